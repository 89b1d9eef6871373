"""Telemetry as columns: what a monitor recorded of each GPU and of the training process.

And what a sample stands for: its share of the time, whether the GPU was busy, the values between slow ticks. `level`
reduces a series to a bounded number of points for drawing: minimum, mean and maximum over equal stretches of time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class GpuFacts:
    """What does not change while training runs.

    Attributes:
        framework_id: the number that the training framework, and hence its profile, gives the GPU; None where unknown.
        nvml_index, uuid, pci_bus_id, name: the driver's own names.
        limits: maxima and thresholds by name with unit, such as ``sm_clock_max_mhz``,
            ``slowdown_temperature_celsius``, ``shutdown_temperature_celsius``, ``memory_total_bytes``,
            ``power_limit_default_watts``, ``pcie_generation_max``, ``pcie_width_max``.
        mig: number of the MIG instance, None for a whole GPU.
    """

    framework_id: int | None
    nvml_index: int
    uuid: str | None
    pci_bus_id: str | None
    name: str | None
    limits: Mapping[str, float] = field(default_factory=dict)
    mig: int | None = None


@dataclass(frozen=True)
class GpuSeries:
    """All samples of one GPU by one monitor, in order of time.

    Attributes:
        run: folder of the event files below the logdir.
        wall_ns: int64[n], Unix time in nanoseconds, increasing.
        step: int64[n], the training step at that time, -1 where unknown.
        values: float64[n] by metric id (`tb_gpu_doctor.metrics`), NaN where a tick had no value. Of old samples of a
            long recording only intervals are left, each with what its samples fold to by the metric's rule.
        intervals: the rows from the first to before the second number are such intervals.
        low, high: by metric id the least and the greatest of each of these; empty where every sample is there.
        weight_s: float64[n], how long each row stands for; None where that follows from the times.
    """

    run: str
    facts: GpuFacts
    wall_ns: NDArray[np.int64]
    step: NDArray[np.int64]
    values: Mapping[str, NDArray[np.float64]]
    intervals: tuple[int, int] = (0, 0)
    low: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    high: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    weight_s: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.wall_ns)

    def extremes(self, metric: str) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Least and greatest of what each row stands for, float64[n] each; None where that is the value itself."""
        if metric not in self.low or metric not in self.high:
            return None
        low, high = self.values[metric].copy(), self.values[metric].copy()
        rows = slice(*self.intervals)
        low[rows], high[rows] = self.low[metric], self.high[metric]
        return low, high


@dataclass(frozen=True)
class Span:
    """Something that training did: ``checkpoint``, ``validation``, ``garbage_collection`` or ``profile``."""

    kind: str
    start_ns: int
    end_ns: int
    step: int
    note: str = ""


@dataclass(frozen=True)
class StepTimes:
    """Training steps as the process itself timed them.

    Attributes:
        number: int64[n].
        end_ns: int64[n], Unix time in nanoseconds.
        duration_ns: int64[n].
        samples: int64[n], global batch; -1 where unknown.
        profiled: bool[n], whether a profile was being taken.
    """

    number: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    samples: NDArray[np.int64]
    profiled: NDArray[np.bool_]


@dataclass(frozen=True)
class BatchPoint:
    """One size of a batch-size sweep; ``samples_per_s`` is None where it did not fit."""

    batch_size: int
    samples_per_s: float | None
    step_seconds: float | None
    peak_bytes: int | None
    problem: str | None = None


@dataclass(frozen=True)
class BatchSweep:
    """A batch-size sweep with its fit: time of a step = fixed + per_sample * batch."""

    run: str
    wall_ns: int
    points: tuple[BatchPoint, ...]
    fixed_seconds: float | None
    per_sample_seconds: float | None
    recommended: int | None


@dataclass(frozen=True)
class ToldNote:
    """What a monitor noted, as key and parameters of the catalogues: rules read these, and never sentences."""

    key: str
    params: Mapping[str, Any]


@dataclass(frozen=True)
class Rank:
    """Which process of a job it is, as its launcher says: ``number`` of ``of``, ``local`` on its host where told."""

    number: int
    of: int
    local: int | None = None


@dataclass(frozen=True)
class Recording:
    """What one monitor, that is one process, recorded.

    Attributes:
        run: folder below the logdir that holds it.
        host: host name as the profiler names its file.
        process_id: of the training process.
        environment: the environment report, as `gpu-doctor env --json` gives it; empty where none was written.
        notes: sentences that the monitor left about what it could not record.
        simulated: whether the driver behind it was a stand-in; demos say so.
        memory_growth: whether the framework takes memory as it needs it; None where unknown.
        facts: what else was written once, by name, such as ``driver`` (versions, topology).
        told: the notes that have a key.
        ended: how training left the monitor: ``normal``, or ``error`` for an exception; None for a process that
            was killed or still runs, and for recordings of older monitors.
        rank: of a job of several processes, None where the launcher said nothing.
        is_log: whether it is a log of nvidia-smi or DCGM, which knows nothing of any process.
    """

    run: str
    host: str
    process_id: int
    gpus: tuple[GpuSeries, ...]
    spans: tuple[Span, ...]
    steps: StepTimes
    environment: Mapping[str, Any]
    notes: tuple[str, ...]
    simulated: bool = False
    memory_growth: bool | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    told: tuple[ToldNote, ...] = ()
    ended: str | None = None
    rank: Rank | None = None
    is_log: bool = False


@dataclass(frozen=True)
class Telemetry:
    """Everything the monitors recorded below one logdir."""

    recordings: tuple[Recording, ...] = ()
    sweeps: tuple[BatchSweep, ...] = ()
    problems: tuple[str, ...] = ()


Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

# A sample speaks for the time since the one before it, unless that is a pause: a process that was stopped,
# a laptop that slept, a clock that was set.
_LONGEST_TICKS = 5.0


def seconds(series: GpuSeries) -> Float64:
    """How long each sample stands for, float64[n] seconds: the time since the one before, without pauses."""
    count = len(series)
    if series.weight_s is not None:
        return series.weight_s
    if count < 2:
        return np.full(count, 1.0)
    passed = np.diff(series.wall_ns) / 1e9
    tick = float(np.median(passed))
    return np.concatenate(([tick], np.minimum(passed, _LONGEST_TICKS * tick)))


def column(series: GpuSeries, metric: str) -> Float64 | None:
    """The samples of a metric, NaN where there is none or it is no number; None where nothing is left."""
    values = series.values.get(metric)
    if values is None or not len(values):
        return None
    finite = np.isfinite(values)
    if not finite.any():
        return None
    return np.where(finite, values, np.nan) if bool(np.isinf(values).any()) else values


def highest(values: Float64) -> float:
    """The largest sample of a column that has any."""
    return float(np.nanmax(values))


def filled(values: Float64) -> Float64:
    """Values of slow ticks held until the next one; NaN only before the first."""
    known = np.isfinite(values)
    last = np.maximum.accumulate(np.where(known, np.arange(len(values)), -1))
    return np.where(last >= 0, values[np.maximum(last, 0)], np.nan)


def busy(series: GpuSeries, least_percent: float) -> Bool | None:
    """bool[n]: at least so many percent of the sample's time some kernel ran; None where NVML does not tell."""
    utilization = column(series, "utilization_percent")
    return None if utilization is None else np.nan_to_num(utilization, nan=-1.0) >= least_percent


def within(series: GpuSeries, start_ns: int, end_ns: int) -> Bool:
    """bool[n]: the samples of a stretch of wall time."""
    return (series.wall_ns >= start_ns) & (series.wall_ns <= end_ns)


def step_at(series: GpuSeries, row: int) -> int | None:
    """The training step of a sample, None where unknown."""
    step = int(series.step[row])
    return step if step >= 0 else None


def weighted_mean(values: Float64, weights: Float64, mask: Bool) -> float | None:
    """Mean over the masked samples that have a value, None without any."""
    use = mask & np.isfinite(values)
    total = float(weights[use].sum())
    return float((values[use] * weights[use]).sum() / total) if total > 0 else None


Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """One series over a range of time.

    Attributes:
        samples: how many with a value lie in the range.
        folded: whether parts of time stand for them; else every sample is there, and all three columns are the same.
        wall_ns: int64[m], middle of a part's samples.
        step: int64[m], the last known one, -1 without.
        low, mean, high: float64[m]; of a counter ``mean`` is the last value, of bits all three are those that were set.
    """

    samples: int
    folded: bool
    wall_ns: Int64
    step: Int64
    low: Float64
    mean: Float64
    high: Float64


def level(
    wall_ns: Int64,
    step: Int64,
    values: Float64,
    points: int,
    window_ns: tuple[int, int] | None = None,
    counter: bool = False,
    bits: bool = False,
    extremes: tuple[Float64, Float64] | None = None,
) -> Level:
    """At most ``points`` points of a series.

    Args:
        wall_ns: int64[n], increasing.
        step: int64[n], -1 where unknown.
        values: float64[n], NaN where there is none.
        points: how many parts the range is cut into.
        window_ns: first and last time wanted; all by default.
        counter: whether the value only grows, so that a part's last value stands for it.
        bits: whether the value is a set of bits.
        extremes: least and greatest value of what each row stands for; the value itself by default.
    """
    keep = np.isfinite(values)
    if bits:
        keep &= (values >= 0) & (values < float(1 << 53))
    if window_ns is not None:
        keep &= (wall_ns >= window_ns[0]) & (wall_ns <= window_ns[1])
    when, at, value = wall_ns[keep], step[keep], values[keep]
    least, most = (value, value) if extremes is None or bits or counter else (part[keep] for part in extremes)
    if len(value) <= points:
        return Level(len(value), bool((least < most).any()), when, at, least, value, most)
    first, last = window_ns or (int(when[0]), int(when[-1]))
    # Exact in integers: nanoseconds since 1970 times points do not fit into 64 bits, so parts go by their length.
    length = max(1, -(-(last - first + 1) // points))
    part = (when - first) // length
    starts = np.flatnonzero(np.concatenate(([True], part[1:] != part[:-1])))
    ends = np.concatenate((starts[1:], [len(part)]))
    counts = ends - starts
    middle = when[starts] + (when[ends - 1] - when[starts]) // 2
    steps = np.maximum.accumulate(np.where(at >= 0, np.arange(len(at)), -1))[ends - 1]
    last_step = np.where(steps >= starts, at[np.maximum(steps, 0)], -1)
    if bits:
        together = np.bitwise_or.reduceat(value.astype(np.int64), starts).astype(np.float64)
        return Level(len(value), True, middle, last_step, together, together, together)
    low, high = np.minimum.reduceat(least, starts), np.maximum.reduceat(most, starts)
    # Sums of bytes over hours lose nothing that a drawing shows; the bounds hold for rounded means too.
    mean = value[ends - 1] if counter else np.clip(np.add.reduceat(value, starts) / counts, low, high)
    return Level(len(value), True, middle, last_step, low, mean, high)
