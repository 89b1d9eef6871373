"""How much of a GPU's memory training needs, and whether that keeps growing.

TensorFlow claims nearly all of the memory at startup and JAX three quarters of it, so what NVML calls used is
not the need. The framework's own allocator knows it; NVML's figure counts only where memory grows on demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tb_gpu_doctor.telemetry.series import Float64, GpuSeries, column, filled, step_at

Source = Literal["allocator", "nvml"]

# The samples are looked at in so many pieces of equal time; a leak shows in the least use of each piece.
_PIECES = 10
_LEAST_SAMPLES = 40
# Of the first samples this part is warm-up: weights, the first compilation, caches that fill.
_WARM_UP = 0.2
# A leak rises in nearly every piece: so many of the nine differences at least.
_RISES = 8


# A framework that takes its pool in advance leaves the driver's figure at the pool's size, less what it rounds.
_POOL_TAKEN = 0.95


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
        room_bytes: what this process could take beyond its peak; less than the rest of the capacity where other
            processes hold memory of the GPU, None where they do and nobody knows how much.
    """

    source: Source
    peak_bytes: float
    capacity_bytes: float
    growth: Growth | None
    room_bytes: float | None = None

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
    growth = None if used is None else _growth(series, used, capacity)
    return Memory(source, max(highest), float(capacity), growth, _room(series, max(highest), float(capacity)))


def measure_together(ranks: Sequence[tuple[GpuSeries, bool | None]]) -> Memory | None:
    """The need of one GPU by all processes of a job that recorded it; None where one of them cannot tell.

    Args:
        ranks: the series of each process and whether its framework takes memory as it needs it (`measure`); the
            first one is of a process that works there, others may only see the GPU.
    """
    known = [measure(series, growth) for series, growth in [*ranks[:1], *filter(_holds_memory, ranks[1:])]]
    needs = [memory for memory in known if memory is not None]
    if len(needs) < len(known) or len(needs) < 2:
        return known[0] if len(known) == 1 else None
    peak = sum(memory.peak_bytes for memory in needs)
    total = ranks[0][0].facts.limits.get("memory_total_bytes") or max(memory.capacity_bytes for memory in needs)
    rooms = [memory.room_bytes for memory in needs if memory.room_bytes is not None]
    room = max(0.0, min([total - peak, *rooms])) if len(rooms) == len(needs) else None
    growth = next((memory.growth for memory in needs if memory.growth is not None), None)
    return Memory(needs[0].source, peak, float(total), growth, room)


def _holds_memory(rank: tuple[GpuSeries, bool | None]) -> bool:
    """Whether the process holds memory of a GPU: each rank may see, and record, the GPUs of all."""
    values = [column(rank[0], name) for name in ("allocator_peak_bytes", "memory_process_bytes")]
    return any(found is not None and float(np.nanmax(found)) > 0 for found in values)


def _room(series: GpuSeries, peak: float, capacity: float) -> float | None:
    """What is left of the capacity, and of the GPU's memory beside what other processes held at most."""
    total = series.facts.limits.get("memory_total_bytes") or capacity
    others = column(series, "other_processes")
    held = memory_of_others(series)
    if held is not None:
        # What the driver and a context take is small beside others, so only what is clearly somebody's counts.
        return max(0.0, min(capacity - peak, total - float(np.max(held)) - peak))
    if others is not None:
        return None if bool((np.nan_to_num(others) > 0).any()) else max(0.0, capacity - peak)
    # Who else is there cannot be seen, as in a container: what the driver calls free is, and the framework's own pool.
    free = column(series, "memory_free_bytes")
    used = column(series, "memory_used_bytes")
    if free is None and used is None:
        return None
    least = float(np.nanmin(free)) if free is not None else total - float(np.nanmax(used if used is not None else 0))
    taken = total - least
    pool = capacity if capacity < total and taken >= _POOL_TAKEN * capacity else peak
    return max(0.0, min(capacity - peak, max(0.0, least) + pool - peak))


def memory_of_others(series: GpuSeries) -> Float64 | None:
    """Bytes that other processes held, float64 of the samples in which there were some; None where that is unknown."""
    others = column(series, "other_processes")
    used, own = column(series, "memory_used_bytes"), column(series, "memory_process_bytes")
    if others is None or used is None or own is None:
        return None
    # Own and others are known only at slow ticks; the driver's own part is counted as used where it is not reserved.
    reserved = column(series, "memory_reserved_bytes")
    rest = used - own - (0 if reserved is None else np.nan_to_num(reserved))
    rest = rest[(np.nan_to_num(filled(others)) > 0) & np.isfinite(rest)]
    return rest.clip(0) if len(rest) else None


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
