"""What the analyses return, and the stable names of categories and causes: frozen dataclasses of numpy columns.

Times are picoseconds.

"Device index" always means the index into ``Trace.devices``; "active devices" are
those with at least one device event.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.traces.columns import Int32, Int64, UInt8

StepSource = Literal["marked", "inferred", "none"]
BoolArray = NDArray[np.bool_]
Float64 = NDArray[np.float64]


class Category(IntEnum):
    """What a GPU does at one instant; where several overlap, the smaller value wins.

    So COMMUNICATION and TRANSFER are exposed times: not hidden behind compute.
    """

    COMPUTE = 0
    COMMUNICATION = 1
    TRANSFER = 2
    IDLE = 3


class Cause(IntEnum):
    """Why a GPU was idle. Up to ALLOCATOR the host was late; the others are the device's side."""

    INPUT = 0
    LAUNCH = 1
    SYNC = 2
    COMPILE = 3
    CHECKPOINT = 4
    HOST_OTHER = 5
    ALLOCATOR = 6
    DEPENDENCY = 7
    PEER = 8
    KERNEL_GAP = 9
    QUEUED = 10
    NO_EVIDENCE = 11

    @property
    def id(self) -> str:
        """The name used in JSON, texts and the tab."""
        return self.name.lower()


CAUSE_IDS: tuple[str, ...] = tuple(cause.id for cause in Cause)
CATEGORY_IDS: tuple[str, ...] = tuple(category.name.lower() for category in Category)


@dataclass(frozen=True)
class Steps:
    """The steps of one trace.

    Attributes:
        source: ``marked`` by the host, ``inferred``, or ``none``.
        number: step numbers as recorded, shape (n,).
        marker_start, marker_end: host marker of each step, shape (n,).
        complete: not cut off by the recording's start or end, shape (n,).
        start, end: shape (n, devices); a step of a GPU runs from the end of the last
            compute or communication event of the step before it to the end of its own
            last one; -1 where the device did nothing in that step.
        event_step: index into the steps for each device event, -1 for none.
        confidence: of inferred steps, share of the steps that look alike, 0..1; else None.
        cut_at: name of the host's event at which steps were cut that nobody marked; None where they are marked, or
            inferred from the order of the kernels alone.
    """

    source: StepSource
    number: Int64
    marker_start: Int64
    marker_end: Int64
    complete: BoolArray
    start: Int64
    end: Int64
    event_step: Int32
    confidence: float | None = None
    cut_at: str | None = None

    @property
    def count(self) -> int:
        """How many complete steps there are."""
        return int(np.count_nonzero(self.complete))

    def durations(self) -> Int64:
        """Wall time of each complete step: last end minus first start over its GPUs, 0 without any; shape (count,)."""
        rows = np.flatnonzero(self.complete)
        if not self.end[rows].size:  # no complete step, or no GPU at all
            return np.zeros(len(rows), dtype=np.int64)
        used = self.end[rows] >= 0
        start = np.where(used, self.start[rows], np.iinfo(np.int64).max).min(axis=1)
        return np.asarray(self.end[rows].max(axis=1) - start, dtype=np.int64)


@dataclass(frozen=True)
class Window:
    """The analysed stretch [start, end) of a trace's clock, common to its GPUs."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """End - start."""
        return self.end - self.start


@dataclass(frozen=True)
class DeviceAccounting:
    """Where one GPU's window went: the four parts sum to ``wall`` exactly.

    ``idle_by_cause`` is indexed by `Cause` and sums to ``idle`` exactly.
    """

    device: int
    wall: int
    compute: int
    communication: int
    transfer: int
    idle: int
    idle_by_cause: tuple[int, ...]

    @property
    def busy(self) -> int:
        """Compute + communication + transfer."""
        return self.compute + self.communication + self.transfer

    def idle_of(self, cause: Cause) -> int:
        """Idle time charged to one cause."""
        return self.idle_by_cause[cause]


@dataclass(frozen=True)
class Gaps:
    """Idle gaps inside the window, sorted by (device, start).

    Attributes:
        device, start, end: of the gap.
        before, after: rows of the device events that precede and end it (-1: none).
        launch: row of the host event that launched ``after`` (-1: unknown).
        by_cause: time charged to each `Cause`, shape (n, causes); rows sum to the length.
        cause: the `Cause` with the largest part.
        evidence: row of the host event that explains the largest host part (-1: none).
    """

    device: Int32
    start: Int64
    end: Int64
    before: Int64
    after: Int64
    launch: Int64
    by_cause: Int64
    cause: UInt8
    evidence: Int64

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class DeviceSummary:
    """One GPU beside the others, over the window.

    ``*_per_step`` have the shape of the complete steps (empty without steps).
    """

    device: int
    kernels: int
    copies: int
    busy: int
    compute: int
    idle: int
    compute_per_step: Int64
    idle_per_step: Int64


@dataclass(frozen=True)
class Lateness:
    """Who kept the others waiting inside collectives that all GPUs of the trace entered.

    Attributes:
        devices: device indices that take part, shape (d,).
        start, end: of collective k on each device, shape (k, d).
        step: step index of each collective, shape (k,), -1 for none.
        late: start minus the median start of the others, shape (k, d).
        wait: latest start minus own start, shape (k, d), at most the own duration.
    """

    devices: Int32
    start: Int64
    end: Int64
    step: Int32
    late: Int64
    wait: Int64


@dataclass(frozen=True)
class StepCosts:
    """Per complete step and GPU, in picoseconds.

    Attributes:
        wall: length of the step on each GPU, shape (steps, devices), 0 where it did nothing.
        wait: part of it spent in collectives before the last GPU had entered them.
        idle: idle time by `Cause`, shape (steps, devices, causes).
    """

    wall: Int64
    wait: Int64
    idle: Int64


@dataclass(frozen=True)
class LaunchStats:
    """How the host launched, per active device over the window.

    Attributes:
        device: device index.
        launches: launch calls that led to events in the window.
        short_kernels: compute kernels shorter than 10 us.
        median_kernel: median duration of compute kernels.
    """

    device: int
    launches: int
    short_kernels: int
    median_kernel: int
