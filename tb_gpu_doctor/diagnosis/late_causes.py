"""Why a GPU is late: it computes longer, has more to compute, or gets its input or its launches late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.diagnosis.arrivals import Member
from tb_gpu_doctor.diagnosis.thresholds import Thresholds

LateCause = str  # ``slow_gpu``, ``uneven_work``, ``late_input`` or ``late_host``
_HOST = (Cause.LAUNCH, Cause.SYNC, Cause.COMPILE, Cause.CHECKPOINT, Cause.HOST_OTHER)
# Kernel counts this far from the others' mean more work, where nothing better is known.
_MORE_KERNELS = 1.10
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


def late_reason(late: Sequence[Member], early: Sequence[Member], lost: float, limits: Thresholds) -> Reason:
    """The largest difference between late and early GPUs.

    Args:
        late: those that come late.
        early: the others.
        lost: mean loss of the late ones over the window, picoseconds.
        limits: what part of the loss a cause must explain.
    """
    windows = [m.profile.analysis.window.length for m in late if m.profile.analysis.window is not None]
    if not windows or lost <= 0:
        return Reason(None, 0.0)
    longer = float(np.mean([_compute(m) for m in late]) - np.median([_compute(m) for m in early]))
    waits = np.mean([_idle(m) for m in late], axis=0) - np.median([_idle(m) for m in early], axis=0)
    amounts = {
        "compute": longer,
        "late_input": float(waits[Cause.INPUT]),
        "late_host": float(sum(waits[cause] for cause in _HOST)),
    }
    best = max(amounts, key=amounts.__getitem__)
    share = amounts[best] / float(np.mean(windows))
    if amounts[best] < limits.imbalance_explained * lost:
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
    return next((float(s.compute) for s in member.profile.analysis.summaries if s.device == member.device), 0.0)


def _kernels(member: Member) -> float:
    return next((float(s.kernels) for s in member.profile.analysis.summaries if s.device == member.device), 0.0)


def _idle(member: Member) -> np.ndarray:
    account = member.account
    return np.zeros(len(Cause)) if account is None else np.array(account.idle_by_cause, np.float64)


def _host_event(late: Sequence[Member], cause: Cause) -> str:
    """Name of the host event behind most of the idle time that is charged to ``cause``."""
    time: Counter[str] = Counter()
    for member in late:
        gaps, trace = member.profile.analysis.gaps, member.profile.trace
        rows = np.flatnonzero((gaps.device == member.device) & (gaps.evidence >= 0) & (gaps.cause == cause))
        for row in rows[np.argsort(-gaps.by_cause[rows, cause], kind="stable")][:200].tolist():
            name = trace.strings[int(trace.host_events.name[gaps.evidence[row]])]
            time[name] += int(gaps.by_cause[row, cause])
    return time.most_common(1)[0][0] if time else ""


def _has_more_work(late: Sequence[Member], early: Sequence[Member]) -> bool:
    """Whether more launches, or larger ones, explain more of the longer computation than longer kernels do.

    A kernel with another grid is another kernel: the same function over more data.
    """
    calls, time = _by_shape(late)
    usual_calls, usual_time = _by_shape(early)
    if not calls or not usual_calls:
        usual = float(np.median([_kernels(m) for m in early]))
        return float(np.mean([_kernels(m) for m in late])) >= _MORE_KERNELS * usual > 0
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
    lost: Counter[str] = Counter()
    taken = expected = 0.0
    for shape in calls.keys() & usual_calls.keys():
        usual = usual_time[shape] / usual_calls[shape] * calls[shape]
        taken, expected = taken + time[shape], expected + usual
        lost[shape[0]] += round(time[shape] - usual)
    names = tuple(name for name, loss in lost.most_common(_NAMED) if loss > 0)
    return names, taken / expected if expected > 0 else 1.0


def _by_shape(members: Sequence[Member]) -> tuple[dict[_Shape, float], dict[_Shape, float]]:
    """Mean calls and mean time per GPU of each kernel by name, grid and block; communication left out."""
    calls: dict[_Shape, float] = {}
    time: dict[_Shape, float] = {}
    for member in members:
        for row in member.profile.analysis.kernels.rows:
            if row.device == member.device and row.family != "communication":
                shape = (row.name, row.grid, row.block)
                calls[shape] = calls.get(shape, 0.0) + row.calls / len(members)
                time[shape] = time.get(shape, 0.0) + row.total_ps / len(members)
    return calls, time
