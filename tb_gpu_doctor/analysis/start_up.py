"""The start-up of a training, told apart from the steady steps behind it.

What is loaded, compiled, captured or filled once makes the first recorded steps longer, and says nothing of the steps
to come. Leading steps are start-up where they are far longer than the steady ones and nothing as long comes again;
they count in no figure, and are told once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tb_gpu_doctor.analysis.callers import Causality
from tb_gpu_doctor.analysis.idle import find_gaps
from tb_gpu_doctor.analysis.results import Cause, Steps, Window
from tb_gpu_doctor.traces.columns import Int64, Trace

# Steady steps that must be left; and what part of the steps may be start-up.
_MIN_STEADY, _MOST = 3, 1 / 3
# How far above the median of the steady steps a start-up step is: in median deviations that are scaled to the
# deviation of a normal distribution, and in medians. One that is less far above changes no figure much, and stays.
_DEVIATIONS, _RATIO, _SCALE = 3.5, 2.0, 1.4826
# A later step that is longer by this part of what the start-up took longer is no less a part of the training.
_AGAIN = 0.5


@dataclass(frozen=True)
class Delay:
    """What one cause took of the start-up.

    Attributes:
        cause: of idle time.
        lost: idle time of that cause, on the GPU that lost most in all.
        name, thread: of the host event behind the longest part; empty where none is known.
    """

    cause: Cause
    lost: int
    name: str
    thread: str


@dataclass(frozen=True)
class StartUp:
    """Leading steps that are start-up. Times in picoseconds.

    Attributes:
        numbers: of these steps.
        start, end: the stretch that they take on the GPUs.
        usual: median length of the steady steps.
        device: the GPU that was idle longest.
        delays: what it waited for, the longest first.
    """

    numbers: tuple[int, ...]
    start: int
    end: int
    usual: float
    device: int
    delays: tuple[Delay, ...]

    @property
    def extra(self) -> float:
        """What these steps took longer than as many steady ones."""
        return self.end - self.start - len(self.numbers) * self.usual

    def lost(self, cause: Cause) -> Delay | None:
        """What one cause took."""
        return next((delay for delay in self.delays if delay.cause is cause), None)


def leading(durations: Int64, ratio: float = _RATIO) -> int:
    """How many of the first steps are longer than all later ones by far, at least ``ratio`` times their median."""
    found = 0
    for count in range(1, min(len(durations) - _MIN_STEADY, max(1, int(_MOST * len(durations)))) + 1):
        first, rest = durations[:count], durations[count:]
        median = float(np.median(rest))
        deviation = _SCALE * float(np.median(np.abs(rest - median)))
        if first.min() <= max(median + _DEVIATIONS * deviation, ratio * median):
            break
        if rest.max() - median < _AGAIN * (first.min() - median):
            found = count
    return found


def steady_steps(steps: Steps) -> tuple[Steps, Int64]:
    """The steps without those of the start-up among the complete ones, and the rows of those.

    Steps that only the order of the kernels tells bound no window, and stay.
    """
    none = np.zeros(0, np.int64)
    if steps.source == "none" or (steps.source == "inferred" and steps.cut_at is None):
        return steps, none
    rows = np.flatnonzero(steps.complete)[: leading(steps.durations())]
    if not len(rows):
        return steps, none
    complete = steps.complete.copy()
    complete[rows] = False
    return replace(steps, complete=complete), np.asarray(rows, dtype=np.int64)


def start_up(trace: Trace, steps: Steps, rows: Int64, launch: Int64, causes: Causality) -> StartUp | None:
    """What the start-up was spent on; None where there is none.

    Args:
        trace: the trace.
        steps: the steady ones, of `steady_steps`.
        rows: of the start-up, of `steady_steps`.
        launch: host row per device event.
        causes: links between host events.
    """
    if not len(rows):
        return None
    used = steps.end[rows] >= 0
    start = int(np.where(used, steps.start[rows], np.iinfo(np.int64).max).min())
    end = int(steps.end[rows].max())
    gaps = find_gaps(trace, Window(start, end), launch, causes)
    idle = np.zeros((len(trace.devices), len(Cause)), np.int64)
    np.add.at(idle, gaps.device, gaps.by_cause)
    active = np.flatnonzero(used.any(axis=0))
    device = int(active[np.argmax(idle[active].sum(axis=1))])
    delays = []
    for cause in np.argsort(-idle[device], kind="stable").tolist():
        mine = np.flatnonzero((gaps.device == device) & (gaps.cause == cause) & (gaps.evidence >= 0))
        name = thread = ""
        if len(mine):
            event = int(gaps.evidence[mine[np.argmax(gaps.by_cause[mine, cause])]])
            name = trace.strings[int(trace.host_events.name[event])]
            thread = trace.threads[int(trace.host_events.thread[event])].name
        if idle[device, cause]:
            delays.append(Delay(Cause(cause), int(idle[device, cause]), name, thread))
    usual = float(np.median(steps.durations()))
    return StartUp(tuple(steps.number[rows].tolist()), start, end, usual, device, tuple(delays))
