"""How loaded a GPU was: its utilization while training ran, who else used it, and its PCIe link.

NVML's utilization is the share of each short sampling period in which any kernel ran. Below 100 % the GPU was
idle for the rest; 100 % says nothing about how full it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.telemetry.memory import memory_of_others
from tb_gpu_doctor.telemetry.series import (
    Bool,
    GpuSeries,
    Int64,
    Span,
    busy,
    column,
    filled,
    seconds,
    step_at,
    weighted_mean,
)


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
    series: GpuSeries, busy_percent: float, beside: Int64 | None = None, window_ns: tuple[int, int] | None = None
) -> Load | None:
    """The load of one GPU, None where NVML does not tell.

    Args:
        series: one GPU.
        busy_percent: utilization from which on a sample counts as busy.
        beside: when training did something else than step (`stretches_beside`); that time is left out.
        window_ns: when any GPU of this training worked (`active_window`); by default when this one did.
    """
    utilization = column(series, "utilization_percent")
    if utilization is None:
        return None
    window = window_ns or active_window((series,), busy_percent)
    if window is None:
        return None
    inside = (series.wall_ns >= window[0]) & (series.wall_ns <= window[1])
    if beside is not None:
        inside &= ~_inside(series, beside)
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


def stretches_beside(spans: Sequence[Span]) -> Int64:
    """When training saved or validated, in Unix nanoseconds, shape (2, n): starts, ends."""
    found = [(span.start_ns, span.end_ns) for span in spans if span.kind in ("checkpoint", "validation")]
    return np.array(found, np.int64).reshape(-1, 2).T


def _inside(series: GpuSeries, stretches: Int64) -> Bool:
    """bool[n]: samples within any of the stretches."""
    low, high = np.searchsorted(series.wall_ns, stretches)
    change = np.bincount(low, minlength=len(series) + 1) - np.bincount(np.maximum(low, high), minlength=len(series) + 1)
    return np.asarray(np.cumsum(change)[:-1] > 0)


# Bytes a second of one lane in one direction, by generation (PCI-SIG: 2.5, 5, 8, 16, 32, 64 GT/s less their encoding).
_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}


@dataclass(frozen=True)
class Sharing:
    """Other processes on one GPU.

    Attributes:
        share: part of the recorded time in which there was one at least.
        most: how many at once.
        since_step: when the first one was seen.
        others_bytes: memory that they held at most; None where it is not known.
        memory_share: that over the GPU's memory.
    """

    share: float
    most: int
    since_step: int | None
    others_bytes: float | None
    memory_share: float | None


@dataclass(frozen=True)
class Link:
    """A PCIe link that is slower than it could be while the GPU works.

    Attributes:
        generation, width: as they were while busy; None where not recorded.
        generation_max, width_max: what GPU and slot can do.
        lost: part of the link's rate that is missing.
        traffic: busier direction over the present rate of the link, 0..1; None where not recorded.
        replays: packets sent again since the monitor began.
    """

    generation: int | None
    width: int | None
    generation_max: int | None
    width_max: int | None
    lost: float
    traffic: float | None
    replays: int


def sharing(series: GpuSeries) -> Sharing | None:
    """Who else used the GPU; None where nobody did or the driver does not tell."""
    others = column(series, "other_processes")
    if others is None:
        return None
    count, weight = filled(others), seconds(series)
    known, shared = np.isfinite(count), np.nan_to_num(count) > 0
    total = float(weight[known].sum())
    if total <= 0 or not shared.any():
        return None
    rest = memory_of_others(series)
    held = None if rest is None else float(np.median(rest))
    capacity = series.facts.limits.get("memory_total_bytes")
    return Sharing(
        share=float(weight[shared].sum()) / total,
        most=int(np.nanmax(count)),
        since_step=step_at(series, int(np.argmax(shared))),
        others_bytes=held,
        memory_share=None if held is None or not capacity else held / capacity,
    )


def link(series: GpuSeries, busy_percent: float) -> Link | None:
    """The link of one GPU while it was busy, None where it is as fast as it can be or not recorded.

    Idle GPUs slow their link down to save power, so only busy samples count, and of them the best.
    """
    limits, working = series.facts.limits, busy(series, busy_percent)
    if working is None or not working.any():
        return None

    def best(metric: str) -> int | None:
        values = column(series, metric)
        values = None if values is None else values[working]
        return None if values is None or not np.isfinite(values).any() else int(np.nanmax(values))

    def top(name: str) -> int | None:
        value = limits.get(name)
        return None if not value else int(value)

    generation, width = best("pcie_generation"), best("pcie_width")
    most_generation, most_width = top("pcie_generation_max"), top("pcie_width_max")
    rate, possible = _part(width, most_width), _part(generation, most_generation, _LANE_BYTES_PER_S)
    if rate * possible >= 1.0:
        return None
    weight, traffic = seconds(series), None
    if generation in _LANE_BYTES_PER_S and width:
        means = [
            mean
            for metric in ("pcie_receive_bytes_per_s", "pcie_send_bytes_per_s")
            if (values := column(series, metric)) is not None
            and (mean := weighted_mean(values, weight, working)) is not None
        ]
        traffic = min(1.0, max(means) / (_LANE_BYTES_PER_S[generation] * width)) if means else None
    replays = column(series, "pcie_replays")
    return Link(
        generation,
        width,
        most_generation,
        most_width,
        1.0 - rate * possible,
        traffic,
        0 if replays is None else int(np.nanmax(replays)),
    )


def _part(value: int | None, maximum: int | None, rates: dict[int, float] | None = None) -> float:
    """``value`` over ``maximum``, by the table where one is given; 1 where unknown."""
    if not value or not maximum or value >= maximum:
        return 1.0
    if rates is None:
        return value / maximum
    return rates[value] / rates[maximum] if value in rates and maximum in rates else 1.0
