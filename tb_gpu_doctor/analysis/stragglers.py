"""Who keeps the others waiting, again and again: a split into late and early GPUs that noise hardly ever fakes.

A late arrival costs only what the others cannot hide behind their own compute, so the loss is bounded by how much more
time they spend in communication and waiting than the late GPU. Between two files only what exceeds the error of
their clocks counts.

Why a GPU is late: it computes longer, has more to compute, or gets its input or its launches late.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.arrivals import Arrivals, Member, find_arrivals, per_window
from tb_gpu_doctor.analysis.facts import FileFacts, GpuFacts
from tb_gpu_doctor.analysis.job import Job
from tb_gpu_doctor.analysis.results import Cause, Float64

LateCause = str  # ``slow_gpu``, ``uneven_work``, ``late_input`` or ``late_host``
_HOST = (Cause.LAUNCH, Cause.SYNC, Cause.COMPILE, Cause.CHECKPOINT, Cause.HOST_OTHER)
# Kernel counts this far from the others' mean more work, where nothing better is known.
_MORE_KERNELS = 1.10
# What part of the wait for the host one cause must make up to stand for all of it.
_MAIN = 2 / 3
# How many kernels are named.
_NAMED = 3

_Shape = tuple[str, tuple[int, int, int] | None, tuple[int, int, int] | None]


@dataclass(frozen=True)
class Reason:
    """Why the late GPUs are late.

    Attributes:
        cause: None when nothing explains most of the loss.
        amount: what it explains, as a share of the window.
        host_cause: of a late host, what it mostly did, by the id of the idle cause.
        host_event: and the recorded event behind most of it, "" where there is none.
        slow_kernels: of a slow GPU, the kernels that lose most, most first.
        slowdown: how many times as long those kernels take that both run; 1 where unknown.
    """

    cause: LateCause | None
    amount: float
    host_cause: str | None = None
    host_event: str = ""
    slow_kernels: tuple[str, ...] = ()
    slowdown: float = 1.0


def late_reason(late: Sequence[Member], early: Sequence[Member], lost: float, least: float) -> Reason:
    """The largest difference between late and early GPUs.

    Args:
        late: those that come late.
        early: the others.
        lost: mean loss of the late ones, as a share of the window.
        least: what part of the loss a cause must explain.
    """
    if lost <= 0 or not all(member.window for member in late):
        return Reason(None, 0.0)
    longer = float(np.mean(per_window(late, _compute)) - np.median(per_window(early, _compute)))
    waits = np.mean([_idle(m) for m in late], axis=0) - np.median([_idle(m) for m in early], axis=0)
    amounts = {
        "compute": longer,
        "late_input": float(waits[Cause.INPUT]),
        "late_host": float(sum(waits[cause] for cause in _HOST)),
    }
    best = max(amounts, key=amounts.__getitem__)
    share = amounts[best]
    explained = share
    if best != "compute":
        # What stops the host also lays open the launches after it: one story, if most of it is one cause's.
        together = amounts["late_input"] + amounts["late_host"]
        explained = together if share >= _MAIN * together else share
    if explained < least * lost:
        return Reason(None, 0.0)
    if best == "late_host":
        cause = max(_HOST, key=lambda c: float(waits[c]))
        return Reason(best, share, cause.id, _host_event(late, cause))
    if best == "late_input":
        return Reason(best, share)
    if _has_more_work(late, early):
        return Reason("uneven_work", share)
    kernels, slowdown = _slow_kernels(late, early)
    return Reason("slow_gpu", share, slow_kernels=kernels, slowdown=slowdown)


def _compute(member: Member) -> float:
    return float(member.gpu.compute)


def _kernels(member: Member) -> float:
    return float(member.gpu.kernels)


def _idle(member: Member) -> np.ndarray:
    """Idle time by cause as shares of the window."""
    account = member.gpu.account
    return np.zeros(len(Cause)) if account is None else np.array(account.idle_by_cause) / max(1, member.window)


def _host_event(late: Sequence[Member], cause: Cause) -> str:
    """Name of the host event behind most of the idle time that is charged to ``cause``."""
    time: Counter[str] = Counter()
    for member in late:
        for event in member.gpu.idle.whole.of(cause).events if member.gpu.idle is not None else ():
            time[event.name] += event.time
    return time.most_common(1)[0][0] if time else ""


def _has_more_work(late: Sequence[Member], early: Sequence[Member]) -> bool:
    """Whether more launches, or larger ones, explain more of the longer computation than longer kernels do.

    A kernel with another grid is another kernel: the same function over more data.
    """
    calls, time = _by_shape(late)
    usual_calls, usual_time = _by_shape(early)
    if not calls or not usual_calls:
        usual = float(np.median(per_window(early, _kernels)))
        return float(np.mean(per_window(late, _kernels))) >= _MORE_KERNELS * usual > 0
    more, slower = 0.0, 0.0
    for shape in calls.keys() | usual_calls.keys():
        count, known = calls.get(shape, 0.0), usual_calls.get(shape, 0.0)
        length = usual_time[shape] / known if known else time[shape] / count
        more += (count - known) * length
        if known and count:
            slower += time[shape] - count * length
    return more > slower


def _slow_kernels(late: Sequence[Member], early: Sequence[Member]) -> tuple[tuple[str, ...], float]:
    """(names of the kernels that lose most, how many times as long all shared kernels take)."""
    calls, time = _by_shape(late)
    usual_calls, usual_time = _by_shape(early)
    lost: dict[str, float] = {}
    taken = expected = 0.0
    for shape in calls.keys() & usual_calls.keys():
        usual = usual_time[shape] / usual_calls[shape] * calls[shape]
        taken, expected = taken + time[shape], expected + usual
        lost[shape[0]] = lost.get(shape[0], 0.0) + time[shape] - usual
    names = tuple(name for name in sorted(lost, key=lambda name: -lost[name])[:_NAMED] if lost[name] > 0)
    return names, taken / expected if expected > 0 else 1.0


def _by_shape(members: Sequence[Member]) -> tuple[dict[_Shape, float], dict[_Shape, float]]:
    """Mean calls and mean time per GPU of each kernel by name, grid and block; communication left out.

    Of the window, and per picosecond of it: recordings of two files do not hold equally many steps.
    """
    calls: dict[_Shape, float] = {}
    time: dict[_Shape, float] = {}
    for member in members:
        weight = 1 / len(members) / max(1, member.window)
        for row in member.file.kernels:
            if row.device == member.device and row.family != "communication" and row.in_window_ps > 0:
                shape = (row.name, row.grid, row.block)
                inside = row.in_window_ps / max(1, row.total_ps)
                calls[shape] = calls.get(shape, 0.0) + row.calls * inside * weight
                time[shape] = time.get(shape, 0.0) + row.in_window_ps * weight
    return calls, time


# Who is late in a few steps only is named where so many cost so much (as a part of what all of them cost), where nobody
# else is late in them, and where what the late ones did then is recorded and explains it.
_FEWEST_BURSTS = 2
_BLAMED, _NOBODY = 0.1, 0.1
# More units make the test no better, only slower.
_MAX_TESTED = 1_000
# How finely `student_tail` integrates.
_POINTS = 20_000


class LateLimits(Protocol):
    """From when on somebody counts as late: the thresholds of `imbalance`."""

    @property
    def warning(self) -> float:
        """The least lateness, of the length of a step."""

    @property
    def persistence(self) -> float:
        """In how many of the units the same GPUs must be late."""

    @property
    def min_units(self) -> int:
        """How many units there must be."""

    @property
    def often(self) -> float:
        """In how many of at least `often_units` units, when they take turns."""

    @property
    def often_units(self) -> int:
        """How many units it takes to say so."""

    @property
    def explained(self) -> float:
        """What part of the lateness a cause must explain to be named."""

    @property
    def max_chance(self) -> float:
        """How likely noise alone may show as much lateness."""


@dataclass(frozen=True)
class LatePlace:
    """One late arrival, or one step with longer compute.

    Attributes:
        member: the late GPU.
        start, end: on its clock.
        number: recorded number of the step, None for none.
        excess: by how much it was late, picoseconds.
        entered: whether it is about entering a collective.
    """

    member: Member
    start: int
    end: int
    number: int | None
    excess: int
    entered: bool


@dataclass(frozen=True)
class Stragglers:
    """Late GPUs among those that wait for each other.

    Attributes:
        late, early: the GPUs.
        shares: what each late one costs the others, of the window.
        per_step: what a step would gain without them, picoseconds; None without steps.
        persistence: share of the units in which they were late.
        steady: whether they are late in most units, rather than often.
        by_steps: whether the units are steps, rather than single collectives.
        compute_ratio, kernel_ratio: compute and kernels of the late ones over those of the others.
        reason: why they are late.
        places: the worst late arrivals, the worst first.
    """

    late: tuple[Member, ...]
    early: tuple[Member, ...]
    shares: tuple[float, ...]
    per_step: float | None
    persistence: float
    steady: bool
    by_steps: bool
    compute_ratio: float
    kernel_ratio: float
    reason: Reason
    places: tuple[LatePlace, ...]


@dataclass(frozen=True)
class Turns:
    """Waiting inside collectives, whoever is to blame.

    Attributes:
        shares: of each GPU, the part of its window that it waits; never empty.
        collectives, steps: how many were compared, in how many marked steps.
        last: the GPU that came last most often, and in how many collectives; None when nobody was.
        longest: the longest waits: who waited, where, how long, and the number of the step.
        reason: what each time the one that came last had done, by cause of lateness; None where nothing recorded
            explains most of it.
    """

    shares: tuple[tuple[Member, float], ...]
    collectives: int
    steps: int
    last: tuple[Member, int] | None
    longest: tuple[tuple[Member, int, int, int | None], ...]
    reason: Reason | None = None


def find_stragglers(files: Sequence[FileFacts], job: Job, limits: LateLimits, limit: int) -> Iterator[Stragglers]:
    """The late GPUs of each comparison that can be made and in which there are any; ``limit`` places of each."""
    for found in find_arrivals(files, job):
        case = _among(found, limits, limit) or _in_bursts(found, files, job, limits, limit)
        if case is not None:
            yield case


def _among(found: Arrivals, limits: LateLimits, limit: int) -> Stragglers | None:
    lateness, by_steps = found.units(limits.min_units)
    processes = np.unique([id(member.file) for member in found.members], return_inverse=True)[1]
    split = split_late(lateness, found.window / len(lateness), limits, processes.reshape(-1))
    if split is None:
        return None
    late = [found.members[column] for column in split.late]
    early = [found.members[column] for column in split.early]
    typical_wait = float(np.median(found.exposed[list(split.early)]))
    # What the late arrival cost in all, at most what the others really waited longer.
    bounds = [max(0.0, typical_wait - float(found.exposed[column])) for column in split.late]
    lost = [min(float(total), bound) for total, bound in zip(split.excess.clip(0).sum(axis=0), bounds, strict=True)]
    shares = tuple(value / found.window for value in lost)
    # With more late than early GPUs the early ones are the odd ones: count the loss over all.
    weight = 1.0 if len(late) <= len(early) else len(early) / len(found.members)
    if float(np.mean(shares)) * weight < limits.warning:
        return None
    reason = late_reason(late, early, float(np.mean(shares)), limits.explained)
    # Late by turns, each of them costs what the others cost in their turn.
    bound = max(bounds) if split.steady else min(typical_wait, sum(bounds))
    worst = min(float(split.excess.clip(0).max(axis=1).sum()), bound)
    if reason.cause == "uneven_work":
        # Shared out evenly the work does not go away: the step comes down to the mean, not to the others.
        worst *= len(early) / len(found.members)
    return Stragglers(
        late=tuple(late),
        early=tuple(early),
        shares=shares,
        per_step=worst * found.per_step if found.per_step is not None else None,
        persistence=split.persistence,
        steady=split.steady,
        by_steps=by_steps,
        compute_ratio=_ratio(late, early, lambda gpu: float(gpu.compute)),
        kernel_ratio=_ratio(late, early, lambda gpu: float(gpu.kernels)),
        reason=reason,
        places=_places(found, split.late, limit),
    )


def _in_bursts(
    found: Arrivals, files: Sequence[FileFacts], job: Job, limits: LateLimits, limit: int
) -> Stragglers | None:
    """Who is late in a few steps, and costs much in them; None where that is nobody, or nothing recorded explains it.

    Two steps of eight are no habit that a test could prove. But where each time the same few are late, and each time
    their own idle time or their longer computation is as long as they are late, no chance needs to be ruled out.
    """
    lateness, by_steps = found.units(limits.min_units)
    if not by_steps:
        return None
    unit, worst = found.window / len(lateness), lateness.max(axis=1)
    hit = np.flatnonzero(worst >= limits.warning * unit)
    cost = float(worst[hit].sum())
    columns = np.flatnonzero(lateness[hit].sum(axis=0) >= _BLAMED * cost)
    others = np.setdiff1d(np.arange(len(found.members)), columns)
    if len(hit) < _FEWEST_BURSTS or not 0 < len(columns) <= len(others):
        return None
    if float(lateness[np.ix_(hit, others)].max(axis=1).sum()) > _NOBODY * cost:
        return None
    late, early = [found.members[i] for i in columns], [found.members[i] for i in others]
    numbers = found.numbers_of_units()[hit].tolist()
    reason = _reason_in_steps(late, early, numbers, lateness[np.ix_(hit, columns)], limits.explained)
    if reason is None:
        return None
    waited = [_waiting_of(member, files, job) for member in early]
    lost = min([cost, *([float(np.median(waited))] if waited else [])])
    if lost / found.window < limits.warning:
        return None
    return Stragglers(
        late=tuple(late),
        early=tuple(early),
        shares=(lost / found.window,) * len(late),
        per_step=lost * found.per_step if found.per_step is not None else None,
        persistence=len(hit) / len(lateness),
        steady=False,
        by_steps=True,
        compute_ratio=_ratio(late, early, lambda gpu: float(gpu.compute)),
        kernel_ratio=_ratio(late, early, lambda gpu: float(gpu.kernels)),
        reason=replace(reason, amount=reason.amount / found.window),
        places=_places(found, columns.tolist(), limit),
    )


def _waiting_of(member: Member, files: Sequence[FileFacts], job: Job) -> float:
    """Time that a GPU waits for others inside collectives, picoseconds of its window; else what it shows of them."""
    which = next(index for index, file in enumerate(files) if file is member.file)
    split = job.exposed.get((which, member.device))
    if split is not None and split.waiting:
        return float(split.waiting)
    account = member.gpu.account
    return 0.0 if account is None else float(account.communication)


def _reason_in_steps(
    late: Sequence[Member], early: Sequence[Member], numbers: Sequence[int], lateness: Float64, least: float
) -> Reason | None:
    """What the late GPUs did in the steps in which they were late; None where that explains too little of it.

    Args:
        late: GPUs that come late.
        early: those that wait for them.
        numbers: of the steps.
        lateness: of each late GPU in each of the steps, picoseconds, shape (steps, late).
        least: what part of the lateness must be explained.

    Returns:
        The amount is picoseconds here, over these steps.
    """
    amounts = dict.fromkeys(("compute", "late_input", "late_host"), 0.0)
    total, causes = float(lateness.max(axis=1).sum()), np.zeros(len(Cause))
    for row, number in zip(lateness, numbers, strict=True):
        latest = int(row.argmax())
        idle, compute = _step_of(late[latest], number)
        usual = float(np.median([_step_of(member, number)[1] for member in early]))
        causes += idle
        amounts["compute"] += min(float(row[latest]), max(0.0, compute - usual))
        amounts["late_input"] += min(float(row[latest]), float(idle[Cause.INPUT]))
        amounts["late_host"] += min(float(row[latest]), float(sum(idle[cause] for cause in _HOST)))
    best = max(amounts, key=amounts.__getitem__)
    explained = amounts[best]
    if best != "compute" and explained >= _MAIN * (amounts["late_input"] + amounts["late_host"]):
        explained = amounts["late_input"] + amounts["late_host"]
    if explained < least * total:
        return None
    if best == "late_host":
        cause = max(_HOST, key=lambda host: float(causes[host]))
        # Who saves alone is late for a reason that is a story of its own.
        return None if cause is Cause.CHECKPOINT else Reason(best, amounts[best], cause.id, _host_event(late, cause))
    return Reason("slow_gpu" if best == "compute" else best, amounts[best])


def _step_of(member: Member, number: int) -> tuple[Float64, float]:
    """Idle time by cause and computing of a GPU in the step of a number, picoseconds; 0 where it has none."""
    numbers, steps, idle = member.file.steps.numbers, member.gpu.steps, member.gpu.idle
    if numbers.count(number) != 1:
        return np.zeros(len(Cause)), 0.0
    at = numbers.index(number)
    by_cause = np.zeros(len(Cause))
    if idle is not None and idle.whole.per_step:
        by_cause = np.array([column[at] for column in idle.whole.per_step], np.float64)
    return by_cause, float(steps.compute[at]) if steps is not None else 0.0


def _ratio(late: Sequence[Member], early: Sequence[Member], value: Callable[[GpuFacts], float]) -> float:
    top = float(np.mean(per_window(late, lambda member: value(member.gpu))))
    bottom = float(np.median(per_window(early, lambda member: value(member.gpu))))
    return top / bottom if bottom > 0 else 1.0


def _places(found: Arrivals, late: Sequence[int], limit: int) -> tuple[LatePlace, ...]:
    """The worst late arrivals, or the steps with the largest difference in compute."""
    items: list[LatePlace] = []
    for column in late:
        member = found.members[column]
        behind = found.behind[:, column]
        for row in np.argsort(-behind, kind="stable")[:limit].tolist():
            excess = int(behind[row])
            if excess <= 0:
                break
            number = int(found.number[row]) if found.step[row] >= 0 else None
            if found.start is not None:
                end, window = int(found.start[row, column]), member.file.window
                start = end - excess if window is None else min(end, max(window.start, end - excess))
            else:
                steps = member.gpu.steps
                if steps is None or steps.end[row] < 0:
                    continue
                start, end = steps.start(row), steps.end[row]
            items.append(LatePlace(member, start, end, number, excess, found.start is not None))
    items.sort(key=lambda item: -item.excess)
    return tuple(items[:limit])


def find_turns(files: Sequence[FileFacts], job: Job, limits: LateLimits, limit: int) -> Turns | None:
    """Who waits inside the collectives of a job; None where nobody can be compared.

    Args:
        files: of the job.
        job: what they have in common.
        limits: from when on lateness counts, and is explained.
        limit: how many of the longest waits to show.
    """
    lateness = job.lateness
    if lateness is None:
        return None
    found = lateness.collectives
    places = list(zip(found.trace.tolist(), found.device.tolist(), strict=True))
    shares = []
    for which, device in places:
        exposed, member = job.exposed.get((which, device)), Member(files[which], device)
        account = member.gpu.account
        if exposed is not None and account is not None and account.wall > 0:
            shares.append((member, exposed.waiting / account.wall))
    if not shares:
        return None
    last = np.argmax(lateness.own, axis=1)
    counts = np.bincount(last[lateness.own.max(axis=1) > lateness.error], minlength=len(places))
    worst = int(np.argmax(counts))
    longest, waits = [], lateness.wait.max(axis=1)
    for row in np.argsort(-waits, kind="stable")[:limit].tolist():
        column, wait = int(lateness.wait[row].argmax()), int(waits[row])
        if wait <= lateness.error:
            break
        which, device = places[column]
        number = int(found.step[row]) if found.step[row] >= 0 else None
        longest.append((Member(files[which], device), int(found.start[row, column]), wait, number))
    which, device = places[worst]
    return Turns(
        shares=tuple(shares),
        collectives=len(found),
        steps=len(set(found.step[found.step >= 0].tolist())),
        last=(Member(files[which], device), int(counts[worst])) if counts[worst] else None,
        longest=tuple(longest),
        reason=_reason_of_turns(files, job, limits),
    )


def _reason_of_turns(files: Sequence[FileFacts], job: Job, limits: LateLimits) -> Reason | None:
    """What whoever came last had done, in the steps in which that cost much; None where it was not always the same."""
    found = next(find_arrivals(files, job), None)
    if found is None:
        return None
    lateness, by_steps = found.units(limits.min_units)
    hit = np.flatnonzero(lateness.max(axis=1) >= limits.warning * found.window / len(lateness))
    if not by_steps or len(set(lateness[hit].argmax(axis=1).tolist())) < _FEWEST_BURSTS:
        return None
    numbers = found.numbers_of_units()[hit].tolist()
    return _reason_in_steps(found.members, found.members, numbers, lateness[hit], limits.explained)


@dataclass(frozen=True)
class Split:
    """The late devices (columns of the lateness matrix) against the others.

    Attributes:
        late, early: column numbers.
        excess: lateness of each late device over the median early one, shape (units, late).
        persistence: share of the units in which the late devices were late, the mean over them.
        steady: whether they are late in most units, rather than often.
    """

    late: tuple[int, ...]
    early: tuple[int, ...]
    excess: Float64
    persistence: float
    steady: bool = True


def split_late(
    lateness: Float64, unit_length: float, limits: LateLimits, processes: NDArray[np.int64] | None = None
) -> Split | None:
    """Split devices into late and early ones; None when nobody is late for sure.

    Args:
        lateness: picoseconds behind the earliest device, shape (units, devices); a unit is a
            step, or a collective where there are no steps.
        unit_length: length of a typical unit; the threshold is a share of it.
        limits: thresholds.
        processes: number of the process that drives each device, shape (devices,); None where one drives all.

    Looked for are first devices that are late in most units, then such that are late often,
    by turns perhaps, and together cost as much.
    """
    units, devices = lateness.shape
    if units < limits.min_units or devices < 2 or unit_length <= 0:
        return None
    for steady in (True, False) if units >= limits.often_units else (True,):
        found = _split(lateness, unit_length, limits, steady)
        if processes is not None:
            found = _split_processes(lateness, unit_length, limits, steady, processes, found)
        if found is not None:
            return found
    return None


def _split_processes(
    lateness: Float64,
    unit_length: float,
    limits: LateLimits,
    steady: bool,
    processes: NDArray[np.int64],
    found: Split | None,
) -> Split | None:
    """The split of whole processes, where that names all that the devices' one does, and more.

    What makes a process late makes all its devices late together: eight of them are no eight coincidences.
    """
    numbers, sizes = np.unique(processes, return_counts=True)
    if len(numbers) < 2 or len(numbers) == len(processes) or sizes.max() == 1:
        return found
    together = np.stack([lateness[:, processes == number].mean(axis=1) for number in numbers], axis=1)
    whole = _split(together, unit_length, limits, steady)
    if whole is None:
        return found
    late = tuple(np.flatnonzero(np.isin(processes, numbers[list(whole.late)])).tolist())
    if found is not None and not set(found.late) <= set(late):
        return found
    early = tuple(device for device in range(len(processes)) if device not in late)
    middle = np.median if steady else np.mean
    reference = middle(lateness[:, list(early)], axis=1)
    excess = lateness[:, list(late)] - reference[:, None]
    # one slow device does not make its neighbours late
    if (middle(excess, axis=0) < limits.warning / 2 * unit_length).any():
        return found
    return Split(late, early, excess, whole.persistence, steady)


def _split(lateness: Float64, unit_length: float, limits: LateLimits, steady: bool) -> Split | None:
    """Split at the largest gap of the typical lateness: the median, which one bad unit cannot move, or the mean.

    A device is late when its typical excess over the early ones reaches the threshold, or half of it beside
    one that does, when it was late in enough units, and when chance is no explanation: see `_chance`.
    """
    middle = np.median if steady else np.mean
    typical = middle(lateness, axis=0)
    order = np.argsort(typical, kind="stable")
    # Among many that scatter somebody always is earliest: only a minority can be late by turns.
    least = 1 if steady else (len(order) + 1) // 2
    cut = int(np.argmax(np.diff(typical[order])[least - 1 :])) + least
    early, candidates = order[:cut], order[cut:]
    reference = middle(lateness[:, early], axis=1)
    needed = limits.persistence if steady else limits.often
    late: list[int] = []
    persistences: list[float] = []
    most = 0.0
    for device in candidates.tolist():
        excess = lateness[:, device] - reference
        persistence = float(np.mean(excess >= limits.warning / 2 * unit_length))
        if float(middle(excess)) < limits.warning / 2 * unit_length:
            continue
        if persistence < needed:
            continue
        if _chance(lateness, device, excess, len(candidates)) > limits.max_chance:
            continue
        late.append(device)
        persistences.append(persistence)
        most = max(most, float(middle(excess)))
    if most < limits.warning * unit_length:
        return None
    late.sort()
    others = tuple(device for device in range(lateness.shape[1]) if device not in late)
    excess = lateness[:, late] - reference[:, None]
    return Split(tuple(late), others, excess, float(np.mean(persistences)), steady)


def _chance(lateness: Float64, device: int, excess: Float64, late_count: int) -> float:
    """The probability that one of the devices looks as late as this one by chance.

    The smaller of two tests, each counted once per device since any could have stood out.
    By rank: were all devices alike, each would be among the ``late_count`` latest of a unit
    with the same probability. By size: were it not late on average, its mean excess would be
    near 0 on the scale of its scatter. Ranks see through rare outliers but need many units;
    sizes need few where the lateness is steady.
    """
    chosen = np.linspace(0, len(lateness) - 1, min(len(lateness), _MAX_TESTED)).astype(np.int64)
    rows, sample = lateness[chosen], excess[chosen]
    units, devices = rows.shape
    later = np.count_nonzero(rows >= rows[:, [device]], axis=1)  # itself included: ties count against it
    among_latest = int(np.count_nonzero(later <= late_count))
    by_rank = binomial_tail(among_latest, units, late_count / devices)
    scatter = float(np.std(sample, ddof=1)) / math.sqrt(units)
    mean = float(np.mean(sample))
    by_size = student_tail(mean / scatter if scatter > 0 else math.copysign(math.inf, mean), units - 1)
    return float(min(1.0, devices * min(by_rank, by_size)))


def binomial_tail(successes: int, trials: int, probability: float) -> float:
    """P(X >= successes) for X binomial; exact up to rounding."""
    if successes <= 0:
        return 1.0
    if probability >= 1.0:
        return 1.0
    if probability <= 0.0 or successes > trials:
        return 0.0
    logs = [
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(probability)
        + (trials - k) * math.log1p(-probability)
        for k in range(successes, trials + 1)
    ]
    return min(1.0, math.fsum(math.exp(value) for value in logs))


def student_tail(value: float, freedom: int) -> float:
    """P(T >= value) for Student's t with ``freedom`` >= 1 degrees.

    With t = sqrt(freedom) * tan(a) the density is a power of cos(a), so that the tail is
    the ratio of two integrals over a finite angle (midpoint rule).
    """
    if math.isinf(value):
        return 0.0 if value > 0 else 1.0
    from_angle = math.atan(value / math.sqrt(freedom))

    def integral(low: float, high: float) -> float:
        width = (high - low) / _POINTS
        angles = low + width * (np.arange(_POINTS) + 0.5)
        return float(np.sum(np.cos(angles) ** (freedom - 1)) * width)

    whole = integral(-math.pi / 2, math.pi / 2)
    return min(1.0, integral(from_angle, math.pi / 2) / whole)
