"""When and why a GPU ran below its clocks, and how GPUs that do the same work differ in clock, heat and power.

NVML's reasons are read together with the clocks themselves, since a reason bit alone proves little: most large
GPUs report the software power cap under full load while they run close to their maximum, and the software
thermal bit may come with full clocks. Those two count only where the SM clock is really down. A hardware
slowdown (thermal, or the server's power brake) halves the clocks and counts by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.metrics import THROTTLE_BITS
from tb_gpu_doctor.telemetry.series import (
    Bool,
    Float64,
    GpuSeries,
    busy,
    column,
    seconds,
    step_at,
    weighted_mean,
    within,
)

Kind = Literal["thermal", "power", "other"]
KINDS: tuple[Kind, ...] = ("thermal", "power", "other")

_REASONS: dict[Kind, tuple[str, ...]] = {
    "thermal": ("hardware_thermal", "software_thermal"),
    "power": ("power_brake", "software_power"),
    "other": ("hardware_slowdown",),
}
# These count only while the clock is below this part of its maximum, or, of the thermal one, of what the GPU runs
# at when nothing holds it back.
_NEED_LOW_CLOCK = {"software_power": 0.90, "software_thermal": 0.95}
# So many busy samples without any reason tell what the GPU runs at by itself.
_FREE_SAMPLES = 20
_WORKING_PERCENT = 10.0
# NVML's reasons are 64 bits of which a float holds these exactly; what is larger no driver has told.
_MOST_BITS = float(1 << 53)
# A GPU is at its limit this close to it: between two samples it cools down as fast as it heats up.
_NEAR_CELSIUS = 3.0
# From its beginning on a lasting state fills this part of the busy time, and holds this part of all throttling.
_LASTING, _MOST = 0.80, 0.50
# Bands that are this many ticks apart are one.
_JOINED_TICKS = 10.0


@dataclass(frozen=True)
class Throttling:
    """One kind of throttling of one GPU over one recording.

    Attributes:
        reasons: names of the bits, the one that was set longest first.
        share: of the busy time, 0..1.
        since_step, since_ns: where it began; of a state that comes and goes, where it was first seen.
        lasting: whether it has held (nearly) all the time from there to the end.
        clock_mhz: mean clock of the multiprocessors while throttled and busy.
        free_clock_mhz: the same while busy and not throttled at all; None where there are hardly such samples.
        max_clock_mhz: highest clock that the GPU can have.
        temperature_celsius: highest while throttled.
        slowdown_celsius: where this begins: the hardware's own slowdown, or the highest temperature that the driver
            lets the GPU work at.
        power_watts, limit_watts, default_limit_watts: mean draw while throttled, its limit and the usual limit.
    """

    kind: Kind
    reasons: tuple[str, ...]
    share: float
    since_step: int | None
    since_ns: int
    lasting: bool
    clock_mhz: float | None
    free_clock_mhz: float | None
    max_clock_mhz: float | None
    temperature_celsius: float | None
    slowdown_celsius: float | None
    power_watts: float | None
    limit_watts: float | None
    default_limit_watts: float | None


@dataclass(frozen=True)
class Band:
    """A stretch of wall time in which a GPU was throttled."""

    kind: Kind
    reasons: tuple[str, ...]
    start_ns: int
    end_ns: int
    start_step: int | None
    end_step: int | None


def reason_masks(series: GpuSeries) -> dict[str, Bool]:
    """bool[n] by reason: it was set, and cost clocks where it must; empty where the driver tells no reasons."""
    bits = column(series, "clock_event_reasons")
    if bits is None:
        return {}
    known = (bits >= 0) & (bits < _MOST_BITS)
    whole = np.where(known, bits, 0).astype(np.int64)
    clock, top = column(series, "sm_clock_mhz"), series.facts.limits.get("sm_clock_max_mhz")
    usual = {"software_power": top, "software_thermal": _free_clock(series, whole) or top}
    masks = {}
    for name, bit in THROTTLE_BITS.items():
        mask = (whole & bit) != 0
        part = _NEED_LOW_CLOCK.get(name)
        if part is not None:
            # Without clocks a power cap proves nothing, while a thermal bit still is a thermal bit.
            reference = usual[name]
            if clock is not None and reference:
                mask &= ~(clock >= part * reference)
            elif name == "software_power":
                mask &= False
        masks[name] = mask
    # The general bit comes with one of the others; where it stands alone, a temperature at the limit tells.
    masks["hardware_slowdown"] &= ~(masks["hardware_thermal"] | masks["power_brake"])
    heat, limit = column(series, "temperature_celsius"), series.facts.limits.get("slowdown_temperature_celsius")
    if heat is not None and limit:
        hot = masks["hardware_slowdown"] & (heat >= limit - _NEAR_CELSIUS)
        masks["hardware_thermal"] |= hot
        masks["hardware_slowdown"] &= ~hot
    return masks


def _free_clock(series: GpuSeries, bits: NDArray[np.int64]) -> float | None:
    """Median clock while busy with no bit of any throttling set; None where that hardly occurs."""
    clock, working = column(series, "sm_clock_mhz"), busy(series, _WORKING_PERCENT)
    if clock is None:
        return None
    free = np.isfinite(clock) & ((bits & sum(THROTTLE_BITS.values())) == 0)
    free = free if working is None else free & working
    return float(np.median(clock[free])) if int(free.sum()) >= _FREE_SAMPLES else None


def kind_masks(series: GpuSeries) -> dict[Kind, Bool]:
    """bool[n] by kind; empty where the driver tells no reasons. Two kinds may hold at once."""
    masks = reason_masks(series)
    if not masks:
        return {}
    return {kind: np.logical_or.reduce([masks[name] for name in _REASONS[kind]]) for kind in KINDS}


def measure(series: GpuSeries, busy_percent: float) -> tuple[Throttling, ...]:
    """Each kind of throttling that the GPU had while busy.

    Args:
        series: one GPU.
        busy_percent: utilization from which on a sample counts as busy; where NVML tells none, all do.
    """
    masks = kind_masks(series)
    if not masks:
        return ()
    reasons, weight = reason_masks(series), seconds(series)
    working = busy(series, busy_percent)
    working = np.ones(len(series), np.bool_) if working is None else working
    total = float(weight[working].sum())
    free = working & ~np.logical_or.reduce(list(masks.values()))
    found = []
    for kind in KINDS:
        mask = masks[kind] & working
        if total <= 0 or not mask.any():
            continue
        begin, lasting = _beginning(mask[working], weight[working])
        row = int(np.flatnonzero(working)[begin])
        found.append(_described(series, kind, reasons, mask, free, weight, total, row, lasting))
    return tuple(found)


def _described(
    series: GpuSeries,
    kind: Kind,
    reasons: dict[str, Bool],
    mask: Bool,
    free: Bool,
    weight: Float64,
    total: float,
    row: int,
    lasting: bool,
) -> Throttling:
    limits = series.facts.limits
    lengths = {name: float(weight[mask & reasons[name]].sum()) for name in _REASONS[kind]}

    def mean(metric: str, over: Bool) -> float | None:
        values = column(series, metric)
        return None if values is None else weighted_mean(values, weight, over)

    heat = column(series, "temperature_celsius")
    hottest = None if heat is None or not np.isfinite(heat[mask]).any() else float(np.nanmax(heat[mask]))
    return Throttling(
        kind=kind,
        reasons=tuple(sorted((n for n in lengths if lengths[n] > 0), key=lambda name: -lengths[name])),
        share=float(weight[mask].sum()) / total,
        since_step=step_at(series, row),
        since_ns=int(series.wall_ns[row]),
        lasting=lasting,
        clock_mhz=mean("sm_clock_mhz", mask),
        free_clock_mhz=mean("sm_clock_mhz", free) if int(free.sum()) >= 5 else None,
        max_clock_mhz=limits.get("sm_clock_max_mhz"),
        temperature_celsius=hottest,
        slowdown_celsius=limits.get("slowdown_temperature_celsius")
        if lengths.get("hardware_thermal")
        else limits.get("gpu_max_temperature_celsius"),
        power_watts=mean("power_watts", mask),
        limit_watts=mean("power_limit_watts", mask),
        default_limit_watts=limits.get("power_limit_default_watts"),
    )


def _beginning(mask: Bool, weight: Float64) -> tuple[int, bool]:
    """(row of the beginning, whether it lasted from there on): the change point with least time on its wrong side.

    A throttled sample before the point and a free one after it are on the wrong side, by their time.
    """
    wrong_before = np.concatenate(([0.0], np.cumsum(np.where(mask, weight, 0.0))))
    free_after = np.concatenate((np.cumsum(np.where(mask, 0.0, weight)[::-1])[::-1], [0.0]))
    point = int(np.argmin((wrong_before + free_after)[: len(mask)]))
    throttled, everything = float(weight[point:][mask[point:]].sum()), float(weight[point:].sum())
    lasting = (
        bool(mask[point]) and throttled >= _LASTING * everything and throttled >= _MOST * float(weight[mask].sum())
    )
    return (point, True) if lasting else (int(np.argmax(mask)), False)


def bands(series: GpuSeries, limit: int | None = None) -> tuple[Band, ...]:
    """Stretches of throttling in order of time, busy or not.

    Args:
        series: one GPU.
        limit: with more bands than this the nearest ones become one.
    """
    reasons = reason_masks(series)
    found: list[tuple[Kind, int, int]] = []
    for kind, mask in kind_masks(series).items():
        rows = np.flatnonzero(mask)
        if not len(rows):
            continue
        tick = float(np.median(np.diff(series.wall_ns))) if len(series) > 1 else 1e9
        apart = np.diff(series.wall_ns[rows])
        cut = apart > _JOINED_TICKS * tick
        if limit is not None and int(cut.sum()) + 1 > limit:
            cut = np.zeros(len(apart), np.bool_)
            cut[np.argsort(-apart, kind="stable")[: max(1, limit) - 1]] = True
        starts = rows[np.concatenate(([True], cut))]
        ends = rows[np.concatenate((cut, [True]))]
        found += [(kind, int(a), int(b)) for a, b in zip(starts, ends, strict=True)]
    return tuple(
        Band(
            kind,
            tuple(name for name in _REASONS[kind] if bool(reasons[name][a : b + 1].any())),
            # A sample speaks for the time before it.
            int(series.wall_ns[max(0, a - 1)]) if a else int(series.wall_ns[a]),
            int(series.wall_ns[b]),
            step_at(series, a),
            step_at(series, b),
        )
        for kind, a, b in sorted(found, key=lambda item: (max(0, item[1] - 1), item[2], item[0]))
    )


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
