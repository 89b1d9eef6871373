"""Steps that took far longer than the others, and which part of them grew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tb_gpu_doctor.analysis.facts import FileFacts
from tb_gpu_doctor.analysis.job import Job
from tb_gpu_doctor.analysis.results import CAUSE_IDS, Cause, Float64
from tb_gpu_doctor.analysis.start_up import leading
from tb_gpu_doctor.traces.columns import Int64

# The parts of a step that can grow: computing, moving data (collectives and copies), idle by cause.
PARTS: tuple[str, ...] = ("compute", "communication", *CAUSE_IDS)
_SCALE = 1.4826  # makes the median deviation that of a normal distribution
# A GPU is to blame from this part of the largest growth on.
_TO_BLAME = 0.5


# Names of what the host did in slow steps.
_MAX_NAMES = 3


class OutlierLimits(Protocol):
    """From when on a step stands out: the thresholds of `step_outliers`."""

    @property
    def deviations(self) -> float:
        """How many scaled median deviations above the median."""

    @property
    def ratio(self) -> float:
        """And how many times as long as the median."""

    @property
    def min_steps(self) -> int:
        """How many steps there must be."""

    @property
    def min_confidence(self) -> float:
        """How sure inferred steps must be."""


@dataclass(frozen=True)
class SlowStep:
    """One outlying step on one GPU: where it ran, picoseconds."""

    device: int
    start: int
    end: int
    number: int
    excess: int


@dataclass(frozen=True)
class Outliers:
    """The outlying steps of one file.

    Attributes:
        file: where they are.
        steps: outlying ones, indices into the complete steps.
        durations: wall time of each of them, picoseconds.
        excess: what each took longer than the median step.
        share: what they took longer, of the time of all complete steps.
        median: of the durations of all complete steps.
        devices: GPUs whose own work grew, not those that waited for them.
        parts: growth of each of `PARTS` on the GPU to blame, summed over the outlying steps.
        busiest: what the host did in the longest pauses of these steps, where waiting for the host grew.
    """

    file: FileFacts
    steps: tuple[int, ...]
    durations: tuple[int, ...]
    excess: tuple[int, ...]
    share: float
    median: float
    devices: tuple[int, ...]
    parts: tuple[float, ...]
    busiest: tuple[str, ...]

    @property
    def grown(self) -> str:
        """The part that grew most."""
        return PARTS[self.parts.index(max(self.parts))]

    @property
    def growth(self) -> float:
        """By how much the file's own part of these steps grew, picoseconds."""
        return sum(self.parts)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Recorded numbers of the outlying steps."""
        return tuple(self.file.steps.numbers[step] for step in self.steps)

    def places(self) -> list[SlowStep]:
        """Where they ran on the GPUs to blame."""
        found = []
        for step, excess in zip(self.steps, self.excess, strict=True):
            for device in self.devices:
                known = self.file.gpus[device].steps
                if known is not None and known.end[step] >= 0:
                    number = self.file.steps.numbers[step]
                    found.append(SlowStep(device, known.start(step), known.end[step], number, excess))
        return found


def outlying(durations: Int64, limits: OutlierLimits) -> Int64:
    """Indices of the steps far above the median, by the median deviation; none where there are too few steps."""
    if len(durations) < limits.min_steps:
        return np.zeros(0, np.int64)
    median = float(np.median(durations))
    deviation = _SCALE * float(np.median(np.abs(durations - median)))
    border = max(median + limits.deviations * deviation, limits.ratio * median)
    return np.asarray(np.flatnonzero(durations > border), dtype=np.int64)


def find_outliers(files: Sequence[FileFacts], which: int, job: Job, limits: OutlierLimits) -> Outliers | None:
    """The outlying steps of one file; None without any, or where steps are inferred without much confidence."""
    file = files[which]
    steps = file.steps
    if steps.source == "none" or not steps.count or not any(gpu.steps for gpu in file.gpus):
        return None
    if steps.source == "inferred" and (steps.confidence or 0.0) < limits.min_confidence:
        return None
    durations = np.array(steps.durations, np.int64)
    rows = outlying(durations, limits)
    if file.start_up is None:
        # while the queue and the buffers fill, the first recorded steps take longer: that is no accident of theirs
        rows = rows[rows >= leading(durations, limits.ratio)]
    if not len(rows):
        return None
    own, table = own_time(files, which, job)
    growth = (own[rows] - np.median(own, axis=0)).astype(np.float64)  # (outliers, devices)
    by_device = growth.clip(0).sum(axis=0)
    blamed = np.argmax(growth, axis=1)
    usual = np.median(table, axis=0)  # (devices, parts)
    parts = (table[rows, blamed] - usual[blamed]).clip(0).sum(axis=0)
    devices = tuple(np.flatnonzero(by_device >= _TO_BLAME * by_device.max()).tolist())
    median = float(np.median(durations))
    excess = (durations[rows] - median).astype(np.int64)
    outlying_steps = tuple(rows.tolist())
    return Outliers(
        file=file,
        steps=outlying_steps,
        durations=tuple(durations[rows].tolist()),
        excess=tuple(excess.tolist()),
        share=float(excess.sum() / durations.sum()),
        median=median,
        devices=devices,
        parts=tuple(parts.tolist()),
        busiest=_busiest(file, outlying_steps, devices[0], PARTS[int(np.argmax(parts))]),
    )


def own_time(files: Sequence[FileFacts], which: int, job: Job) -> tuple[Int64, Float64]:
    """Time of each GPU without waits inside collectives, shape (steps, devices), and its `PARTS`."""
    file = files[which]
    own = np.zeros((file.steps.count, len(file.gpus)), np.int64)
    table = np.zeros((*own.shape, len(PARTS)))
    for device, gpu in enumerate(file.gpus):
        if gpu.steps is None:
            continue
        own[:, device] = np.array(gpu.steps.wall) - np.array(job.wait_of_steps(files, which, device))
        table[:, device, 0] = gpu.steps.compute
        if gpu.idle is not None and gpu.idle.whole.per_step:
            table[:, device, 2:] = np.array(gpu.idle.whole.per_step).T
        rest = own[:, device] - table[:, device, 2:].sum(axis=1) - table[:, device, 0]
        table[:, device, 1] = rest.clip(0)
    return own, table


def _busiest(file: FileFacts, steps: Sequence[int], device: int, grown: str) -> tuple[str, ...]:
    """What the host did in the pauses of a GPU in some steps, where waiting for the host is what grew."""
    if grown not in CAUSE_IDS or Cause[grown.upper()] > Cause.HOST_OTHER:
        return ()
    time: dict[str, int] = {}
    for pause in file.pauses:
        if pause.step in steps and pause.device == device and pause.cause == Cause[grown.upper()]:
            for name, spent in pause.busiest:
                time[name] = time.get(name, 0) + spent
    return tuple(sorted(time, key=lambda name: -time[name])[:_MAX_NAMES])
