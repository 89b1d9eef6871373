"""What one sample stands for: its share of time, whether the GPU worked, and values between slow ticks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.telemetry.series import GpuSeries

Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

# A sample speaks for the time since the one before it, unless that is a pause: a process that was stopped,
# a laptop that slept, a clock that was set.
_LONGEST_TICKS = 5.0


def seconds(series: GpuSeries) -> Float64:
    """How long each sample stands for, float64[n] seconds: the time since the one before, without pauses."""
    count = len(series)
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
