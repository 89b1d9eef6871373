"""How busy a GPU was by NVML's account, while training ran.

NVML's utilization is the part of each short sampling period in which some kernel ran. Below 100 % the GPU was
idle for the rest; 100 % says nothing of how full it was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.telemetry.samples import Bool, busy, column, seconds, step_at, weighted_mean
from tb_gpu_doctor.telemetry.series import GpuSeries, Span


@dataclass(frozen=True)
class Load:
    """One GPU over one recording.

    Attributes:
        utilization: mean part of the time in which some kernel ran, 0..1, while training ran.
        seconds: how much time that is about.
        start_ns, end_ns: the stretch looked at.
        first_step, last_step: None without steps.
        power_watts: mean draw over the same time.
        ever_busy: whether it worked at all.
    """

    utilization: float
    seconds: float
    start_ns: int
    end_ns: int
    first_step: int | None
    last_step: int | None
    power_watts: float | None
    ever_busy: bool


def measure(
    series: GpuSeries, busy_percent: float, spans: tuple[Span, ...] = (), window_ns: tuple[int, int] | None = None
) -> Load | None:
    """The load of one GPU, None where NVML does not tell.

    Args:
        series: one GPU.
        busy_percent: utilization from which on a sample counts as busy.
        spans: what training did beside stepping; that time is left out.
        window_ns: when any GPU of this training worked (`active_window`); by default when this one did.
    """
    utilization = column(series, "utilization_percent")
    if utilization is None:
        return None
    window = window_ns or active_window((series,), busy_percent)
    if window is None:
        return None
    inside = (series.wall_ns >= window[0]) & (series.wall_ns <= window[1]) & ~_beside(series, spans)
    weight = seconds(series)
    mean = weighted_mean(utilization, weight, inside)
    if mean is None:
        return None
    rows = np.flatnonzero(inside)
    power = column(series, "power_watts")
    working = busy(series, busy_percent)
    return Load(
        utilization=min(1.0, max(0.0, mean / 100)),
        seconds=float(weight[inside].sum()),
        start_ns=int(series.wall_ns[rows[0]]),
        end_ns=int(series.wall_ns[rows[-1]]),
        first_step=step_at(series, int(rows[0])),
        last_step=step_at(series, int(rows[-1])),
        power_watts=None if power is None else weighted_mean(power, weight, inside),
        ever_busy=working is not None and bool((working & inside).any()),
    )


def active_window(gpus: tuple[GpuSeries, ...], busy_percent: float) -> tuple[int, int] | None:
    """From the first to the last busy sample of any GPU, in Unix nanoseconds; None when none ever was.

    With training steps: from the first sample that carries one on, so that loading and compiling are left out.
    """
    starts, ends = [], []
    for series in gpus:
        working = busy(series, busy_percent)
        if working is None:
            continue
        stepping = np.flatnonzero(series.step > 0) if bool((series.step >= 0).any()) else np.zeros(0, np.int64)
        first = int(stepping[0]) if len(stepping) else 0
        rows = np.flatnonzero(working)
        rows = rows[rows >= first]
        if len(rows):
            starts.append(int(series.wall_ns[max(first, int(rows[0])) if len(stepping) == 0 else first]))
            ends.append(int(series.wall_ns[rows[-1]]))
    return (min(starts), max(ends)) if starts else None


def _beside(series: GpuSeries, spans: tuple[Span, ...]) -> Bool:
    """bool[n]: samples while training saved or validated."""
    mask = np.zeros(len(series), np.bool_)
    for span in spans:
        if span.kind in ("checkpoint", "validation"):
            low, high = np.searchsorted(series.wall_ns, [span.start_ns, span.end_ns])
            mask[int(low) : int(high)] = True
    return mask
