"""The complete steps of a file and of each of its GPUs, and what the host did in the pauses of slow ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.file_columns import FileColumns
from tb_gpu_doctor.analysis.intervals import IntervalSet, covered_before
from tb_gpu_doctor.analysis.results import Cause, StepSource
from tb_gpu_doctor.traces.columns import Int64

# Steps that take so many times as long as the median one are looked into, so many of them at most.
_SLOW = 1.2
_MAX_SLOW = 12
# The host's activity matters where a cause takes this part more of a slow step than of the median one.
_GROWN = 0.05
_MAX_NAMES = 8


@dataclass(frozen=True)
class StepFacts:
    """The complete steps of one file.

    Attributes:
        source: ``marked`` by the host, ``inferred``, or ``none``.
        confidence: of inferred steps, share of those that look alike, 0..1; else None.
        cut_at: see `Steps`.
        numbers: as recorded.
        durations: from the first GPU's start to the last one's end, picoseconds; 0 without any GPU.
        pace: median time from one of the host's markers to the next, picoseconds; None with less than two.
        paced: how many of these times there are.
    """

    source: StepSource
    confidence: float | None
    cut_at: str | None
    numbers: tuple[int, ...]
    durations: tuple[int, ...]
    pace: float | None = None
    paced: int = 0

    @property
    def count(self) -> int:
        """How many complete steps there are."""
        return len(self.numbers)


@dataclass(frozen=True)
class GpuSteps:
    """The complete steps on one GPU; a step of a GPU runs to the end of its own last work.

    Attributes:
        end: -1 where the GPU did nothing in a step.
        wall: length, 0 where it did nothing.
        compute: time in which it computed.
        communication, transfer: time for these that nothing before them in that order hides.
        wait: part of it inside collectives before the last GPU of the file had entered.
    """

    end: tuple[int, ...]
    wall: tuple[int, ...]
    compute: tuple[int, ...]
    communication: tuple[int, ...]
    transfer: tuple[int, ...]
    wait: tuple[int, ...]

    def start(self, step: int) -> int:
        """Start of a step in which the GPU did something."""
        return self.end[step] - self.wall[step]


@dataclass(frozen=True)
class Pause:
    """What the host did in the pause of a GPU that a cause made longest in one slow step.

    Attributes:
        step: index of the complete step.
        device: index of the GPU.
        cause: of the idle time.
        busiest: host events with the most time in the pause, and that time.
    """

    step: int
    device: int
    cause: Cause
    busiest: tuple[tuple[str, int], ...]


def step_facts(file: FileColumns) -> StepFacts:
    """The complete steps."""
    steps = file.analysis.steps
    numbers = steps.number[file.complete]
    durations = tuple(steps.durations().tolist())
    # Steps in a row only: what lies between two recorded stretches is no step. They need no GPU to be complete.
    apart = np.diff(steps.marker_start)[np.diff(steps.number) == 1] if steps.source == "marked" else np.zeros(0)
    pace = float(np.median(apart)) if len(apart) else None
    return StepFacts(steps.source, steps.confidence, steps.cut_at, tuple(numbers.tolist()), durations, pace, len(apart))


def gpu_steps(file: FileColumns, device: int, busy: tuple[IntervalSet, IntervalSet, IntervalSet]) -> GpuSteps | None:
    """The complete steps of one GPU; None where the file has none, or no GPU did anything.

    Args:
        file: the columns.
        device: index of the GPU.
        busy: `accounting.busy_sets` of it.
    """
    steps, costs = file.analysis.steps, file.analysis.step_costs
    if costs is None or not len(costs.wall):
        return None
    start, end = steps.start[file.complete, device], steps.end[file.complete, device]
    used = end >= 0

    def inside(found: IntervalSet) -> Int64:
        return np.where(used, covered_before(found, end) - covered_before(found, start), 0)

    compute, kernels, work = (inside(found) for found in busy)
    summary = next((s for s in file.analysis.summaries if s.device == device and len(s.compute_per_step)), None)
    return GpuSteps(
        end=tuple(end.tolist()),
        wall=tuple(costs.wall[:, device].tolist()),
        compute=tuple((compute if summary is None else summary.compute_per_step).tolist()),
        communication=tuple((kernels - compute).tolist()),
        transfer=tuple((work - kernels).tolist()),
        wait=tuple(costs.wait[:, device].tolist()),
    )


def pauses_of_slow_steps(file: FileColumns) -> tuple[Pause, ...]:
    """What the host did in the longest pauses of the slowest steps, by GPU and cause."""
    steps, costs, gaps = file.analysis.steps, file.analysis.step_costs, file.analysis.gaps
    durations = steps.durations()
    if costs is None or not costs.wall.size or not len(file.trace.host_events):
        return ()
    slow = np.flatnonzero(durations > _SLOW * np.median(durations))
    slow = np.sort(slow[np.argsort(-durations[slow], kind="stable")[:_MAX_SLOW]])
    if not len(slow):
        return ()
    usual = np.median(costs.idle, axis=0)
    found = []
    for device in range(costs.wall.shape[1]):
        rows = np.flatnonzero(gaps.device == device)
        for step in slow.tolist():
            low, high = steps.start[file.complete[step], device], steps.end[file.complete[step], device]
            inside = rows[(gaps.start[rows] >= low) & (gaps.end[rows] <= high)]
            if not len(inside):
                continue
            grown = costs.idle[step, device] - usual[device]
            for cause in Cause:
                if cause > Cause.HOST_OTHER or grown[cause] < _GROWN * costs.wall[step, device]:
                    continue
                longest = inside[np.argmax(gaps.by_cause[inside, cause])]
                span = (int(gaps.start[longest]), int(gaps.end[longest]))
                found.append(Pause(step, device, cause, file.calls.busiest([span], _MAX_NAMES)))
    return tuple(found)
