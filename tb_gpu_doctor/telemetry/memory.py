"""How much of a GPU's memory training needs, and whether that keeps growing.

TensorFlow claims nearly all of the memory at startup and JAX three quarters of it, so what NVML calls used is
not the need. The framework's own allocator knows it; NVML's figure counts only where memory grows on demand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tb_gpu_doctor.telemetry.samples import Float64, column, filled, step_at
from tb_gpu_doctor.telemetry.series import GpuSeries

Source = Literal["allocator", "nvml"]

# The samples are looked at in so many pieces of equal time; a leak shows in the least use of each piece.
_PIECES = 10
_LEAST_SAMPLES = 40
# Of the first samples this part is warm-up: weights, the first compilation, caches that fill.
_WARM_UP = 0.2
# A leak rises in nearly every piece: so many of the nine differences at least.
_RISES = 8


@dataclass(frozen=True)
class Growth:
    """Memory in use that only grows.

    Attributes:
        bytes_per_s: slope through the least use of each piece.
        bytes_per_step: the same by training step, None without steps.
        seconds_left: until it reaches the capacity at this rate, counted from the last sample.
        steps_left: the same in steps.
        since_step: first step of the stretch that was looked at.
        grown_bytes: from the first to the last piece.
    """

    bytes_per_s: float
    bytes_per_step: float | None
    seconds_left: float
    steps_left: float | None
    since_step: int | None
    grown_bytes: float


@dataclass(frozen=True)
class Memory:
    """The need of one GPU over one recording.

    Attributes:
        source: who counted it.
        peak_bytes: highest need.
        capacity_bytes: what there is: the allocator's limit, else the GPU's memory.
        growth: None where it does not grow steadily.
    """

    source: Source
    peak_bytes: float
    capacity_bytes: float
    growth: Growth | None

    @property
    def used(self) -> float:
        """Peak over capacity."""
        return self.peak_bytes / self.capacity_bytes


def measure(series: GpuSeries, grows_on_demand: bool | None) -> Memory | None:
    """The need of one GPU, None where it cannot be told.

    Args:
        series: one GPU.
        grows_on_demand: whether the framework takes memory from the driver only as it needs it.
    """
    limits = series.facts.limits
    capacity = limits.get("allocator_limit_bytes") or limits.get("memory_total_bytes")
    if not capacity or capacity <= 0:
        return None
    peak, used = column(series, "allocator_peak_bytes"), column(series, "allocator_used_bytes")
    source: Source = "allocator"
    if peak is None and used is None:
        if not grows_on_demand:
            return None
        used = column(series, "memory_process_bytes")
        used = column(series, "memory_used_bytes") if used is None else used
        source = "nvml"
        capacity = limits.get("memory_total_bytes") or capacity
    highest = [float(np.nanmax(values)) for values in (peak, used) if values is not None]
    if not highest or max(highest) <= 0:
        return None
    return Memory(source, max(highest), float(capacity), None if used is None else _growth(series, used, capacity))


def _growth(series: GpuSeries, used: Float64, capacity: float) -> Growth | None:
    """A steady rise of the least use, None without one."""
    values = filled(used)
    rows = np.flatnonzero(np.isfinite(values))
    rows = rows[int(len(rows) * _WARM_UP) :]
    if len(rows) < _LEAST_SAMPLES:
        return None
    pieces = np.array_split(rows, _PIECES)
    least = np.array([values[piece].min() for piece in pieces])
    when = np.array([float(np.median(series.wall_ns[piece])) / 1e9 for piece in pieces])
    grown = float(least[-1] - least[0])
    if int((np.diff(least) > 0).sum()) < _RISES or grown <= 0 or when[-1] <= when[0]:
        return None
    slope = float(np.polyfit(when - when[0], least, 1)[0])
    if slope <= 0:
        return None
    left = max(0.0, capacity - float(values[rows[-1]])) / slope
    steps = series.step[rows]
    known = np.flatnonzero(steps >= 0)
    per_step = None
    if len(known) >= 2 and steps[known[-1]] > steps[known[0]]:
        passed = (series.wall_ns[rows[known[-1]]] - series.wall_ns[rows[known[0]]]) / 1e9
        per_step = slope * float(passed) / float(steps[known[-1]] - steps[known[0]])
    steps_left = None if not per_step else max(0.0, capacity - float(values[rows[-1]])) / per_step
    return Growth(slope, per_step, left, steps_left, step_at(series, int(rows[0])), grown)
