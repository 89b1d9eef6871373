"""A desk in this process: all that a cluster's workers do, with everything packed as on its way between machines."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.parallel.compact import pack, unpack
from tb_gpu_doctor.parallel.remote import Held, answer, question_of
from tb_gpu_doctor.parallel.sketch import Sketch, connected, sketch
from tb_gpu_doctor.traces.columns import Trace
from tb_gpu_doctor.traces.elsewhere import Elsewhere


@dataclass(frozen=True, eq=False)
class Place:
    """A file on the desk: packed, in memory or in a file."""

    desk: Desk
    packed: bytes | Path

    def held(self) -> Held:
        """What a worker would have in its memory."""
        content = self.packed.read_bytes() if isinstance(self.packed, Path) else self.packed
        held: Held = unpack(content)
        return held


@dataclass
class Desk:
    """Holds files, and counts what travels.

    Attributes:
        folder: where the files lie packed; in memory where there is none.
        told_bytes: of all files in short.
        question_bytes, answer_bytes: of all questions.
        rounds: how often questions travelled.
        asked: how often each function was asked, by name.
        away_seconds: CPU time of what workers would do for the answers, and of fetching what they have in memory.
    """

    folder: Path | None = None
    told_bytes: int = 0
    question_bytes: int = 0
    answer_bytes: int = 0
    rounds: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    away_seconds: float = 0.0
    _count: int = 0

    def take(self, trace: Trace, analysis: TraceAnalysis) -> tuple[bytes, Place]:
        """What the worker tells of a file, and where it is now."""
        packed: bytes | Path = pack(Held(trace, analysis))
        if self.folder is not None:
            path = self.folder / f"{self._count}.held"
            path.write_bytes(packed)
            packed = path
        self._count += 1
        told = pack(sketch(trace, analysis))
        self.told_bytes += len(told)
        return told, Place(self, packed)

    def hold(self, trace: Trace, analysis: TraceAnalysis) -> Sketch:
        """The file as the asking side has it."""
        told, place = self.take(trace, analysis)
        return connected(unpack(told), place)

    def work(self, function: Callable[..., Any], calls: Sequence[tuple[Elsewhere, tuple[Any, ...]]]) -> list[Any]:
        """As `elsewhere.Desk.work`."""
        self.rounds += 1
        self.asked[function.__name__] += len(calls)
        answers: list[Any] = []
        for place, arguments in calls:
            question = question_of(function, [arguments])
            begun = time.process_time()
            packed = answer([place.held()], question) if isinstance(place, Place) else b""
            self.away_seconds += time.process_time() - begun
            self.question_bytes += len(question)
            self.answer_bytes += len(packed)
            answers += unpack(packed)
        return answers
