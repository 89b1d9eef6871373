"""Read what monitors recorded for some runs, named as the whole logdir names it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tb_gpu_doctor.telemetry.read import TelemetryReader
from tb_gpu_doctor.telemetry.series import Recording, Telemetry
from tb_gpu_doctor.texts import DEFAULT_LANGUAGE, languages
from tb_gpu_doctor.traces.telemetry_homes import Home


@dataclass(frozen=True)
class HomeTelemetry:
    """Telemetry of one or more homes.

    Attributes:
        telemetry: its sentences are in the default language.
        notes: what the monitors noted, by language and run of the recording.
        problems: what could not be read, by language.
    """

    telemetry: Telemetry = field(default_factory=Telemetry)
    notes: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def by_run(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """The notes by run, then by language."""
        found: dict[str, dict[str, tuple[str, ...]]] = {}
        for lang, notes in self.notes.items():
            for run, sentences in notes.items():
                found.setdefault(run, {})[lang] = sentences
        return found

    def spoken_problems(self) -> list[dict[str, str]]:
        """Each problem by language."""
        return [
            {lang: sentences[index] for lang, sentences in self.problems.items() if index < len(sentences)}
            for index in range(max(map(len, self.problems.values()), default=0))
        ]


def read_homes(homes: Sequence[Home]) -> HomeTelemetry:
    """Everything recorded for the given runs; what cannot be read is told in ``problems``."""
    found: list[Telemetry] = []
    notes: dict[str, dict[str, tuple[str, ...]]] = {lang: {} for lang in languages()}
    problems: dict[str, list[str]] = {lang: [] for lang in languages()}
    for home in homes:
        base = f"{home.run}/{os.path.basename(home.folder)}" if home.run else os.path.basename(home.folder)
        reader = TelemetryReader()
        for lang in (*(lang for lang in languages() if lang != DEFAULT_LANGUAGE), DEFAULT_LANGUAGE):
            read = reader.read(home.folder, lang)
            problems[lang] += read.problems
            notes[lang] |= {_below(base, recording.run): recording.notes for recording in read.recordings}
        found.append(
            Telemetry(
                tuple(_named(recording, base) for recording in read.recordings),
                tuple(replace(sweep, run=_below(base, sweep.run)) for sweep in read.sweeps),
                read.problems,
            )
        )
    return HomeTelemetry(
        Telemetry(
            tuple(recording for one in found for recording in one.recordings),
            tuple(sweep for one in found for sweep in one.sweeps),
            tuple(problem for one in found for problem in one.problems),
        ),
        notes,
        {lang: tuple(sentences) for lang, sentences in problems.items()},
    )


def _below(base: str, run: str) -> str:
    return f"{base}/{run}" if run else base


def _named(recording: Recording, base: str) -> Recording:
    gpus = tuple(replace(series, run=_below(base, series.run)) for series in recording.gpus)
    return replace(recording, run=_below(base, recording.run), gpus=gpus)
