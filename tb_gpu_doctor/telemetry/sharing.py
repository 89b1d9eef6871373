"""Other processes on a GPU, and a PCIe link below what it could be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.telemetry.samples import busy, column, filled, seconds, step_at, weighted_mean
from tb_gpu_doctor.telemetry.series import GpuSeries

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
    used, own = column(series, "memory_used_bytes"), column(series, "memory_process_bytes")
    held = None
    if used is not None and own is not None:
        # Both are known only at slow ticks; the driver's own part is counted as used where it is not reserved.
        reserved = column(series, "memory_reserved_bytes")
        rest = used - own - (0 if reserved is None else np.nan_to_num(reserved))
        rest = rest[shared & np.isfinite(rest)]
        held = float(np.median(rest.clip(0))) if len(rest) else None
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


def _part(value: int | None, most: int | None, rates: dict[int, float] | None = None) -> float:
    """``value`` over ``most``, by the table where one is given; 1 where unknown."""
    if not value or not most or value >= most:
        return 1.0
    if rates is None:
        return value / most
    return rates[value] / rates[most] if value in rates and most in rates else 1.0
