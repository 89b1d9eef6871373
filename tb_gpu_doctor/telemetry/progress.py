"""Whether training gets anywhere: steps that stopped coming, GPUs that do nothing meanwhile, GPUs that vanished.

A process that hangs goes on recording, for the monitor samples from threads of its own. So the time between the
last step and the last sample tells that training stands still, and what the GPUs did in it tells where: a GPU that
waits inside a collective shows 100 % utilization at little power, since a waiting kernel spins; one that nobody
gives work to shows 0 %.

Steps are those that the process timed itself, with and without a profile being taken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.recording_format import FACT_LOCK_HELD
from tb_gpu_doctor.telemetry.series import (
    Bool,
    GpuSeries,
    Recording,
    Span,
    StepTimes,
    ToldNote,
    column,
    seconds,
    weighted_mean,
)

# A first step compiles, the next ones fill caches and queues.
_WARM_UP_STEPS = 3
# Unprofiled steps this close to a profile, before and after it, are like the profiled ones but for the profiler.
_NEAR_STEPS = 200


@dataclass(frozen=True)
class Overhead:
    """What taking a profile did to the steps.

    Attributes:
        ratio: median of profiled over median of unprofiled steps.
        profiled_ns, unprofiled_ns: the medians.
        profiled, unprofiled: how many steps they rest on.
    """

    ratio: float
    profiled_ns: float
    unprofiled_ns: float
    profiled: int
    unprofiled: int


def overhead(
    recording: Recording, least_profiled: int, least_unprofiled: int, window_ns: tuple[int, int] | None = None
) -> Overhead | None:
    """Profiled against unprofiled steps; None where there are too few of either.

    Args:
        recording: one process.
        least_profiled: how many profiled steps there must be.
        least_unprofiled: how many others.
        window_ns: only the profile taken within this wall time; by default all of them.
    """
    steps = recording.steps
    usable = ordinary(steps, recording.spans)
    profiled = usable & steps.profiled
    if window_ns is not None:
        profiled &= (steps.end_ns >= window_ns[0]) & (steps.end_ns - steps.duration_ns <= window_ns[1])
    rows = np.flatnonzero(profiled)
    # The step that starts the profiler and the one that stops it hold that work as well.
    rows = rows[1:-1] if len(rows) > 2 else rows[:0]
    if len(rows) < least_profiled:
        return None
    near = np.zeros(len(steps.number), np.bool_)
    near[max(0, int(rows[0]) - _NEAR_STEPS) : int(rows[-1]) + _NEAR_STEPS + 1] = True
    others = np.flatnonzero(usable & ~steps.profiled & near)
    if len(others) < least_unprofiled:
        return None
    with_it, without = float(np.median(steps.duration_ns[rows])), float(np.median(steps.duration_ns[others]))
    if without <= 0:
        return None
    return Overhead(with_it / without, with_it, without, len(rows), len(others))


def ordinary(steps: StepTimes, spans: Sequence[Span]) -> Bool:
    """bool[n]: steps that neither warm up nor hold a save or a validation."""
    usable = steps.duration_ns > 0
    usable[:_WARM_UP_STEPS] = False
    start = steps.end_ns - steps.duration_ns
    for span in spans:
        if span.kind in ("checkpoint", "validation"):
            usable &= (steps.end_ns <= span.start_ns) | (start >= span.end_ns)
    return usable


def global_batch(steps: StepTimes) -> int | None:
    """Samples of the usual step, None where unknown."""
    known = steps.samples[steps.samples > 0]
    return int(np.median(known)) if len(known) else None


GpuState = Literal["spinning", "idle", "working", "unknown"]

# Medians over so many of the latest steps: those that were usual before training stood still.
_RECENT_STEPS = 200
_LEAST_STEPS = 3
# A spinning kernel keeps the utilization here; NVML rounds, and may miss a period.
_SPINNING_PERCENT = 95.0
_IDLE_PERCENT = 10.0
# What a GPU draws while it spins, as a part of what it drew while it trained; without steps before, of its limit.
_SPINNING_POWER, _SPINNING_OF_LIMIT = 0.75, 0.35
# Without steps to go by: utilization that never moves, power that hardly does, and more of it for a while before.
_FROZEN_PERCENT, _EVEN_POWER, _LEAST_BEFORE = 99.0, 0.10, 6
# The first samples after the last step still hold its work.
_SETTLE_S = 3.0
# So many samples in a row without any value are no accident.
_LOST_SAMPLES = 3
# The driver is looked for again twice a minute.
_DRIVER_GONE_S = 60.0
_BESIDE = ("checkpoint", "validation", "profile")


@dataclass(frozen=True)
class Standstill:
    """Training that made no further step, seen in one recording.

    Attributes:
        recording: of the process.
        last_step: number of the last step; None where the process tells no steps.
        since_ns, until_ns: from the end of the last step to the last sample, Unix nanoseconds.
        usual_s: median of the last steps; None without steps.
        states: what each of the recording's GPUs did in that time.
        power_watts: mean over the GPUs in that time, None where not recorded.
    """

    recording: Recording
    last_step: int | None
    since_ns: int
    until_ns: int
    usual_s: float | None
    states: tuple[GpuState, ...]
    power_watts: float | None

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return (self.until_ns - self.since_ns) / 1e9


@dataclass(frozen=True)
class Vanished:
    """A GPU that stopped answering while the recording went on.

    Attributes:
        series: of the GPU.
        since_ns, step: of its last sample; the step is None where unknown.
        reason: the driver's words, where the monitor noted them.
    """

    series: GpuSeries
    since_ns: int
    step: int | None
    reason: str | None


def standstill(recording: Recording, least_s: float, least_steps: float) -> Standstill | None:
    """The time without a step at the end of a recording; None where steps kept coming, or there are too few to say.

    Args:
        recording: one process.
        least_s: how long there must have been no step.
        least_steps: the same in steps of the usual length.
    """
    steps = recording.steps
    if len(steps.number) < _LEAST_STEPS:
        return None
    lengths = steps.duration_ns[-_RECENT_STEPS:]
    usual_s = float(np.median(lengths)) / 1e9
    since, until = int(steps.end_ns[-1]), _last_sample(recording)
    locked = lock_held_ns(recording)
    if locked is not None:
        until = max(locked, until or locked)  # the monitor stood still as well
    if until is None:
        return None
    beside = sum(
        max(0, min(span.end_ns, until) - max(span.start_ns, since)) for span in recording.spans if span.kind in _BESIDE
    )
    if (until - since - beside) / 1e9 < max(least_s, least_steps * usual_s):
        return None
    return Standstill(
        recording,
        int(steps.number[-1]),
        since,
        until,
        usual_s,
        tuple(_state(series, since, until) for series in recording.gpus),
        _power(recording.gpus, since, until),
    )


def lock_held_ns(recording: Recording) -> int | None:
    """When it was seen that the process stood still with Python's lock held, and it goes on; Unix nanoseconds."""
    found = recording.facts.get(FACT_LOCK_HELD)
    written = found.get("written_unix_ns") if isinstance(found, dict) and not found.get("resumed") else None
    return written if isinstance(written, int) else None


def frozen(recording: Recording, least_s: float) -> Standstill | None:
    """As `standstill`, for a process that tells no steps: all its GPUs spin at the end, and drew more before."""
    if len(recording.steps.number) or not recording.gpus:
        return None
    until = _last_sample(recording)
    begins = [_frozen_since(series) for series in recording.gpus]
    known = [begin for begin in begins if begin is not None]
    if until is None or len(known) < len(begins):
        return None
    since = max(known)
    if (until - since) / 1e9 < least_s:
        return None
    spinning: GpuState = "spinning"
    states = tuple(spinning for _ in begins)
    return Standstill(recording, None, since, until, None, states, _power(recording.gpus, since, until))


def vanished(recording: Recording) -> tuple[Vanished, ...]:
    """GPUs that gave no value any more: the driver said so, or their samples end before the others'."""
    reasons: dict[int, str] = {}
    for note in recording.told:
        number = _number_of(note)
        if note.key == "recording.gpu_lost" and number is not None:
            reasons[number] = str(note.params.get("reason", "")).strip()
    found = []
    for series in recording.gpus:
        rows = np.flatnonzero(_answered(series))
        reason = reasons.get(series.facts.nvml_index)
        silent = _ticks_without(series, rows, recording) if len(rows) else 0
        if not len(rows) or (silent < _LOST_SAMPLES and reason is None):
            continue
        # A driver that is reloaded comes back: who answers at the end was not lost for good.
        if silent == 0 and reason is not None and not _ends_early(series, recording):
            continue
        last = int(rows[-1])
        step = int(series.step[last])
        found.append(Vanished(series, int(series.wall_ns[last]), step if step >= 0 else None, reason or None))
    return tuple(found)


def _ticks_without(series: GpuSeries, answered: NDArray[np.intp], recording: Recording) -> int:
    """Ticks from the last answer of a GPU to the end of the recording."""
    rest = len(series) - 1 - int(answered[-1])
    last = _last_sample(recording)
    if last is None or len(series) < _LOST_SAMPLES:
        return rest
    tick = float(np.median(np.diff(series.wall_ns)))
    behind = last - int(series.wall_ns[-1])
    return rest + (int(behind / tick) if tick > 0 and behind > _LOST_SAMPLES * tick else 0)


def xids(recording: Recording) -> dict[int, tuple[int, ...]]:
    """The errors that the driver reported, by its number of the GPU, in the order in which they came."""
    found: dict[int, tuple[int, ...]] = {}
    for note in recording.told:
        number, xid = _number_of(note), note.params.get("xid")
        if note.key == "recording.xid" and number is not None and isinstance(xid, int):
            found[number] = (*found.get(number, ()), xid)
    return found


def silent_gpus(recording: Recording) -> dict[int, str]:
    """GPUs of the machine that did not answer when the monitor began: the driver's number, and its words."""
    return {
        int(note.params["gpu"]): str(note.params.get("reason", "")).strip()
        for note in recording.told
        if note.key == "recording.silent_gpu" and str(note.params.get("gpu", "")).isdigit()
    }


def driver_lost(recording: Recording) -> str | None:
    """Why the driver as a whole stopped answering, and did so to the end; None where it did not."""
    words = None
    for note in recording.told:
        if note.key == "recording.driver_lost":
            words = str(note.params.get("reason", "")).strip() or "?"
    last, steps = _last_sample(recording), recording.steps
    if words is None or last is None:
        return None
    came_back = any(note.key == "recording.driver_back" for note in recording.told)
    # A driver that came back may have gone again: each is noted once, so then the steps after the last sample tell.
    goes_on = len(steps.end_ns) > 0 and int(steps.end_ns[-1]) - last > _DRIVER_GONE_S * 1e9
    return words if goes_on or not came_back else None


def _number_of(note: ToldNote) -> int | None:
    """The driver's number of the GPU that a note is about."""
    match = re.fullmatch(r"gpu(\d+)(?:_mig\d+)?", str(note.params.get("gpu")))
    return int(match[1]) if match else None


def utilization_while_stepping(series: GpuSeries, recording: Recording) -> tuple[float, float] | None:
    """(mean utilization 0..1, seconds) from the first step to the last; None where NVML does not tell."""
    steps, utilization = recording.steps, column(series, "utilization_percent")
    if utilization is None or not len(steps.number):
        return None
    first, last = int(steps.end_ns[0] - steps.duration_ns[0]), int(steps.end_ns[-1])
    inside = (series.wall_ns >= first) & (series.wall_ns <= last)
    weight = seconds(series)
    mean = weighted_mean(utilization, weight, inside)
    return None if mean is None else (min(1.0, max(0.0, mean / 100)), float(weight[inside].sum()))


def _last_sample(recording: Recording) -> int | None:
    return max((int(series.wall_ns[-1]) for series in recording.gpus if len(series)), default=None)


def _answered(series: GpuSeries) -> Bool:
    """bool[n]: the driver gave any value; the framework's own figures go on without it."""
    known = np.zeros(len(series), np.bool_)
    for metric, values in series.values.items():
        if not metric.startswith("allocator_"):
            known |= np.isfinite(values)
    return known


def _ends_early(series: GpuSeries, recording: Recording) -> bool:
    last = _last_sample(recording)
    return last is not None and int(series.wall_ns[-1]) < last


def _state(series: GpuSeries, since_ns: int, until_ns: int) -> GpuState:
    """What a GPU did between two times."""
    utilization = column(series, "utilization_percent")
    inside = (series.wall_ns > since_ns + int(_SETTLE_S * 1e9)) & (series.wall_ns <= until_ns)
    if utilization is None or not np.isfinite(utilization[inside]).any():
        return "unknown"
    low, high = float(np.nanmin(utilization[inside])), float(np.nanpercentile(utilization[inside], 95))
    if high <= _IDLE_PERCENT:
        return "idle"
    if low >= _SPINNING_PERCENT:
        power = column(series, "power_watts")
        if power is None or not np.isfinite(power[inside]).any():
            return "unknown"  # it computes or spins: without the power nobody can tell
        if _draws_little(series, inside, series.wall_ns <= since_ns):
            return "spinning"
    return "working"


def _draws_little(series: GpuSeries, now: Bool, before: Bool) -> bool:
    power, utilization = column(series, "power_watts"), column(series, "utilization_percent")
    if power is None or utilization is None or not np.isfinite(power[now]).any():
        return False
    drawn = float(np.nanmedian(power[now]))
    worked = before & (utilization > _IDLE_PERCENT) & np.isfinite(power)
    if int(worked.sum()) >= _LOST_SAMPLES:
        return drawn <= _SPINNING_POWER * float(np.median(power[worked]))
    limit = series.facts.limits.get("power_limit_default_watts") or series.facts.limits.get("power_limit_watts")
    return bool(limit) and drawn <= _SPINNING_OF_LIMIT * float(limit or 0)


def _frozen_since(series: GpuSeries) -> int | None:
    """Since when a GPU has been at 100 % at an even and low power; None where it is not so at the end.

    It must have drawn more before, for a while: a load that always was light is no hang.
    """
    utilization, power = column(series, "utilization_percent"), column(series, "power_watts")
    limit = series.facts.limits.get("power_limit_default_watts") or series.facts.limits.get("power_limit_watts")
    if utilization is None or power is None or not limit:
        return None
    worked = (utilization > _IDLE_PERCENT) & np.isfinite(power)
    if int(worked.sum()) < _LEAST_BEFORE:
        return None
    low = min(_SPINNING_POWER * float(np.percentile(power[worked], 98)), _SPINNING_OF_LIMIT * limit)
    spins = (np.nan_to_num(utilization, nan=100.0) >= _FROZEN_PERCENT) & (np.nan_to_num(power, nan=0.0) <= low)
    others = np.flatnonzero(~spins)
    first = int(others[-1]) + 1 if len(others) else 0
    if first >= len(series) or int((worked & ~spins)[:first].sum()) < _LEAST_BEFORE:
        return None
    drawn = power[first:][np.isfinite(power[first:])]
    if not len(drawn) or float(np.ptp(np.percentile(drawn, (5, 95)))) > _EVEN_POWER * float(np.median(drawn)):
        return None
    return int(series.wall_ns[first])


def _power(gpus: tuple[GpuSeries, ...], since_ns: int, until_ns: int) -> float | None:
    means = []
    for series in gpus:
        power = column(series, "power_watts")
        if power is not None:
            inside = (series.wall_ns > since_ns + int(_SETTLE_S * 1e9)) & (series.wall_ns <= until_ns)
            mean = weighted_mean(power, seconds(series), inside)
            if mean is not None:
                means.append(mean)
    return float(np.mean(means)) if means else None
