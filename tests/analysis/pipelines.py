"""tf.data's events by hand: a `Recorder` whose calls may carry tf.data's stats."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from tb_gpu_doctor.analysis.callers import causality
from tb_gpu_doctor.analysis.input_pipeline import find_pipelines
from tb_gpu_doctor.analysis.input_stages import InputPipeline, InputStage
from tb_gpu_doctor.analysis.results import Gaps
from tb_gpu_doctor.traces.columns import SparseStat, Trace
from tests.analysis.small_traces import Recorder

RUN_ASYNC, RUN = "InstantiatedCapturedFunction::RunAsync", "InstantiatedCapturedFunction::RunWithBorrowedArgs"
PROCESS, DONE = "ExecutorState::Process", "ExecutorDoneCallback"


@dataclass
class InputRecorder(Recorder):
    """As `Recorder`; ``stats`` of a call are those of `Trace.host_stats`, texts included."""

    stats: list[dict[str, int | str]] = field(default_factory=list)

    def on(self, thread: str, name: str, start: float, end: float, **stats: int | str) -> None:
        """A host event with tf.data's stats."""
        self.stats += [{}] * (len(self.host_rows) - len(self.stats))
        self.call(thread, name, start, end)
        self.stats.append({k: self.string(v) if isinstance(v, str) else v for k, v in stats.items()})

    def iterator(self, thread: str, path: str, start: float, end: float, **stats: int | str) -> None:
        """An iterator's event."""
        self.on(thread, f"Iterator::{path}", start, end, **stats)

    def trace(self) -> Trace:
        found = super().trace()
        thread, start, duration = (np.array([r[c] for r in self.host_rows], np.int64) for c in COLUMNS)
        order = np.lexsort((np.arange(len(start)), -duration, start, thread))
        sparse: dict[str, list[tuple[int, int]]] = {}
        for row, given in enumerate(order.tolist()):
            for name, value in (self.stats[given] if given < len(self.stats) else {}).items():
                sparse.setdefault(name, []).append((row, int(value)))
        columns = {name: np.array(pairs, np.int64).T for name, pairs in sparse.items()}
        return replace(found, host_stats={name: SparseStat(pair[0], pair[1]) for name, pair in columns.items()})

    def pipelines(
        self, low: float | None = None, high: float | None = None, gaps: Gaps | None = None
    ) -> tuple[InputPipeline, ...]:
        """What is found in the whole recording, or in [low, high)."""
        trace = self.trace()
        first = int(trace.host_events.start.min()) if low is None else round(low * self.unit)
        last = int(trace.host_events.end.max()) if high is None else round(high * self.unit)
        return find_pipelines(trace, (first, last), causality(trace), gaps)


COLUMNS = ("thread", "start", "duration")


def stage(pipeline: InputPipeline, path: str) -> InputStage:
    """The one stage that stands there."""
    (found,) = [s for s in pipeline.stages if s.path == path]
    return found
