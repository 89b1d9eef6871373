"""What the plugin keeps of one analysed session: enough for every answer, and no more."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tb_gpu_doctor.api import ANSWER, SessionAnswer, answer_of, diagnose_session, span_of
from tb_gpu_doctor.errors import DoctorError
from tb_gpu_doctor.parallel.transport import with_own_arrays
from tb_gpu_doctor.plugin.collectives_view import collectives_answer
from tb_gpu_doctor.plugin.gaps_view import GapsView
from tb_gpu_doctor.plugin.input_view import input_answer
from tb_gpu_doctor.plugin.kernels_view import KernelsView
from tb_gpu_doctor.plugin.responses import to_json
from tb_gpu_doctor.plugin.steps_view import steps_answer
from tb_gpu_doctor.plugin.telemetry_view import TelemetryView, window_of
from tb_gpu_doctor.plugin.timeline import Timeline
from tb_gpu_doctor.plugin.timeline_range import RangeView

if TYPE_CHECKING:
    from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
    from tb_gpu_doctor.api import SessionResult
    from tb_gpu_doctor.diagnosis.model import Phrase
    from tb_gpu_doctor.report.diagnosis_report import DiagnosisReport
    from tb_gpu_doctor.traces.columns import Trace
    from tb_gpu_doctor.traces.sessions import Session


# The tab keeps the columns of all files of a session, to draw them; a job of more ranks shows so many of them.
MOST_FILES = 512


def analyse(session: Session, report: Callable[[str, float], None], shown: Callable[[str], str]) -> SessionView:
    """Diagnose a session and lay out its timeline; runs in a background thread.

    Args:
        session: what to read.
        report: called with a stage and the share of the work that is done.
        shown: from a path on this machine to what the tab may show.

    Raises:
        ProfileError: nothing in the session can be read.
    """
    from tb_gpu_doctor.cache.remember import remembered

    answers: list[SessionAnswer] = []
    part = dataclasses.replace(session, files=session.files[:MOST_FILES])

    def make() -> tuple[SessionView, bool]:
        result = diagnose_session(part, report, with_columns=True)
        answers.append(answer_of(result, session))
        diagnosis = _with_shown_paths(_of_a_part(result.diagnosis, len(session.files)), shown)
        return SessionView(part, dataclasses.replace(result, diagnosis=diagnosis)), not result.failures

    # What the command and comparisons ask for comes with it.
    whole = len(part.files) == len(session.files)
    kind = kind_of(shown(session.path))
    return remembered(session, kind, SessionView, make, beside=lambda _: {ANSWER: answers[0]} if whole else {})


def _of_a_part(diagnosis: DiagnosisReport, files: int) -> DiagnosisReport:
    """The diagnosis of the first files of a session: what the others hold may be what is wrong."""
    from tb_gpu_doctor.phrase import Phrase

    if files <= MOST_FILES:
        return diagnosis
    said = Phrase("report.doubts.files_left_out", {"count": files - MOST_FILES, "total": files, "most": MOST_FILES})
    verdict = "cannot_tell" if diagnosis.verdict == "ok" else diagnosis.verdict
    return dataclasses.replace(diagnosis, verdict=verdict, incomplete=said, reasons=(*diagnosis.reasons, said))


def kind_of(shown: str) -> str:
    """What a view is called in the cache.

    What is shown of paths depends on where the logdir begins, so the same files can have two views.
    """
    return f"view {shown}"


def _with_shown_paths(diagnosis: DiagnosisReport, shown: Callable[[str], str]) -> DiagnosisReport:
    """The same diagnosis; errors about single files name them below the logdir."""

    def phrase(warning: str | Phrase) -> str | Phrase:
        if isinstance(warning, str):
            return warning
        params = {
            name: value.with_path(shown(value.path)) if isinstance(value, DoctorError) and value.path else value
            for name, value in warning.params.items()
        }
        return dataclasses.replace(warning, params=params)

    return dataclasses.replace(diagnosis, warnings=tuple(phrase(warning) for warning in diagnosis.warnings))


class SessionView:
    """The answers about one session, made from its result when it is built."""

    def __init__(self, session: Session, result: SessionResult) -> None:
        self._diagnosis = result.diagnosis
        by_path = {os.path.abspath(file.path): file.host for file in session.files}
        traces = [file.trace for file in result.columns]
        analyses = [file.analysis for file in result.columns]
        files = [by_path.get(os.path.abspath(trace.path), trace.host) for trace in traces]
        hosts = [file.label for file in result.files]
        self.timeline = Timeline(*_in_memory(traces, analyses), hosts, files, result.job.clocks)
        self.meta_json = to_json(self.timeline.meta())
        self.kernels = KernelsView(traces, analyses, hosts, self.timeline.shifts)
        self.gaps = GapsView(self.timeline)
        self.ranges = RangeView(traces, result.job, self.timeline)
        whole = (traces, analyses, result.job, self.timeline)
        self.steps_json = to_json(steps_answer(*whole))
        self.collectives_json = to_json(collectives_answer(*whole))
        self.input_json = to_json(input_answer(traces, analyses, hosts, self.timeline))
        self.telemetry = TelemetryView(
            result.telemetry,
            result.joined,
            result.diagnosis,
            self.timeline,
            [trace.wall_start_unix_ns for trace in traces],
            window_of([span_of(file).window_ns for file in result.files]),
        )
        self.summary = answer_of(result, session).summary
        self._diagnosis_json: dict[str, bytes] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        # Histories and comparisons keep it longer than the view, of whose buffer its arrays are parts.
        self.summary = with_own_arrays(self.summary)

    @property
    def size_bytes(self) -> int:
        """Approximate memory held."""
        # The diagnosis holds tens of sentences and at most a few hundred intervals.
        made = (self.meta_json, self.steps_json, self.collectives_json, self.input_json)
        texts = sum(map(len, made)) + sum(map(len, list(self._diagnosis_json.values())))
        return (
            self.timeline.size_bytes
            + self.kernels.size_bytes
            + self.gaps.size_bytes
            + self.ranges.size_bytes
            + texts
            + 100_000
            + self.telemetry.size_bytes
        )

    def diagnosis_json(self, lang: str) -> bytes:
        """The diagnosis in one language, worded once."""
        made = self._diagnosis_json.get(lang)
        if made is None:  # two who ask at once word it twice
            made = self._diagnosis_json[lang] = to_json(self._diagnosis.to_dict(lang))
        return made


def _in_memory(traces: Sequence[Trace], analyses: Sequence[TraceAnalysis]) -> tuple[list[Trace], list[TraceAnalysis]]:
    """Traces and analyses whose columns that the timeline keeps do not rest on a file (`parallel.transport`)."""
    own_traces = [
        dataclasses.replace(trace, device_events=with_own_arrays(trace.device_events, "start", "duration", "stream"))
        for trace in traces
    ]
    own_analyses = [
        dataclasses.replace(analysis, gaps=with_own_arrays(analysis.gaps), steps=with_own_arrays(analysis.steps))
        for analysis in analyses
    ]
    return own_traces, own_analyses
