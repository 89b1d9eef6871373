"""Why a GPU is late: it computes longer, has more to compute, or gets its input or its launches late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.arrivals import Member, per_window
from tb_gpu_doctor.analysis.results import Cause

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
