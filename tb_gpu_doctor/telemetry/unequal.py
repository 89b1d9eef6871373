"""How GPUs that do the same work differ in clock, temperature and power."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.telemetry.samples import Bool, busy, column, within
from tb_gpu_doctor.telemetry.series import GpuSeries

# A profile lasts a second or two and NVML is asked once a second: so many samples around it are looked at.
_LEAST_SAMPLES = 5


@dataclass(frozen=True)
class State:
    """How one GPU was over a stretch of time, while busy; medians, None where not recorded."""

    clock_mhz: float | None
    temperature_celsius: float | None
    power_watts: float | None
    power_limit_watts: float | None
    samples: int


def around(series: GpuSeries, window_ns: tuple[int, int]) -> Bool:
    """bool[n]: the samples of a stretch, widened on both sides until there are enough of them."""
    inside = within(series, *window_ns)
    if int(inside.sum()) >= _LEAST_SAMPLES or not len(series):
        return inside
    middle = (window_ns[0] + window_ns[1]) // 2
    nearest = np.argsort(np.abs(series.wall_ns - middle), kind="stable")[:_LEAST_SAMPLES]
    mask = inside.copy()
    mask[nearest] = True
    return mask


def state(series: GpuSeries, busy_percent: float, window_ns: tuple[int, int] | None) -> State:
    """One GPU over a stretch of wall time, the whole recording by default."""
    mask = np.ones(len(series), np.bool_) if window_ns is None else around(series, window_ns)
    working = busy(series, busy_percent)
    if working is not None and (mask & working).any():
        mask = mask & working

    def median(metric: str) -> float | None:
        values = column(series, metric)
        values = None if values is None else values[mask]
        return None if values is None or not np.isfinite(values).any() else float(np.nanmedian(values))

    return State(
        median("sm_clock_mhz"),
        median("temperature_celsius"),
        median("power_watts"),
        median("power_limit_watts"),
        int(mask.sum()),
    )


def typical(states: Sequence[State]) -> State:
    """The median GPU of several."""

    def median(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return float(np.median(known)) if known else None

    return State(
        median([s.clock_mhz for s in states]),
        median([s.temperature_celsius for s in states]),
        median([s.power_watts for s in states]),
        median([s.power_limit_watts for s in states]),
        sum(s.samples for s in states),
    )
