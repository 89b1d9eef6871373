"""Why a GPU is late: it computes longer, has more to compute, or gets its input or its launches late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.diagnosis.context import HostProfile

LateCause = str  # ``slow_gpu``, ``uneven_work``, ``late_input`` or ``late_host``
_HOST = (Cause.LAUNCH, Cause.SYNC, Cause.COMPILE, Cause.CHECKPOINT, Cause.HOST_OTHER)
# The part of the loss that a reason must explain.
_EXPLAINS = 0.4
# Kernel counts this far from the others' mean more work, where nothing better is known.
_MORE_KERNELS = 1.10

_Shape = tuple[str, tuple[int, int, int] | None, tuple[int, int, int] | None]


@dataclass(frozen=True)
class Reason:
    """Why the late GPUs of one host are late.

    Attributes:
        cause: None when nothing explains enough of the loss.
        amount: what it explains, as a share of the window.
    """

    cause: LateCause | None
    amount: float


def late_reason(profile: HostProfile, late: Sequence[int], early: Sequence[int], lost: float) -> Reason:
    """The largest difference between late and early devices.

    Args:
        profile: the host.
        late: device indices of those that come late.
        early: of the others.
        lost: mean loss of the late ones over the window, picoseconds.
    """
    window = profile.analysis.window
    if window is None or lost <= 0:
        return Reason(None, 0.0)
    compute = {summary.device: float(summary.compute) for summary in profile.analysis.summaries}
    idle = {account.device: np.array(account.idle_by_cause, np.float64) for account in profile.analysis.accounting}
    longer = _difference(compute, late, early)
    waits = np.mean([idle[d] for d in late], axis=0) - np.median([idle[d] for d in early], axis=0)
    amounts = {
        "compute": longer,
        "late_input": float(waits[Cause.INPUT]),
        "late_host": float(sum(waits[cause] for cause in _HOST)),
    }
    best = max(amounts, key=amounts.__getitem__)
    share = amounts[best] / window.length
    if amounts[best] < _EXPLAINS * lost:
        return Reason(None, 0.0)
    if best != "compute":
        return Reason(best, share)
    return Reason("uneven_work" if _has_more_work(profile, late, early) else "slow_gpu", share)


def _difference(values: dict[int, float], late: Sequence[int], early: Sequence[int]) -> float:
    return float(np.mean([values.get(d, 0.0) for d in late]) - np.median([values.get(d, 0.0) for d in early]))


def _has_more_work(profile: HostProfile, late: Sequence[int], early: Sequence[int]) -> bool:
    """Whether more launches, or larger ones, explain more of the longer computation than longer kernels do.

    A kernel with another grid is another kernel: the same function over more data.
    """
    calls, time = _by_shape(profile, late)
    usual_calls, usual_time = _by_shape(profile, early)
    if not calls or not usual_calls:
        kernels = {summary.device: float(summary.kernels) for summary in profile.analysis.summaries}
        usual = float(np.median([kernels.get(d, 0.0) for d in early]))
        return float(np.mean([kernels.get(d, 0.0) for d in late])) >= _MORE_KERNELS * usual > 0
    more, slower = 0.0, 0.0
    for shape in calls.keys() | usual_calls.keys():
        count, known = calls.get(shape, 0.0), usual_calls.get(shape, 0.0)
        length = usual_time[shape] / known if known else time[shape] / count
        more += (count - known) * length
        if known and count:
            slower += time[shape] - count * length
    return more > slower


def _by_shape(profile: HostProfile, devices: Sequence[int]) -> tuple[dict[_Shape, float], dict[_Shape, float]]:
    """Mean calls and mean time per device of each kernel by name, grid and block; communication left out."""
    calls: dict[_Shape, float] = {}
    time: dict[_Shape, float] = {}
    wanted = set(devices)
    for row in profile.analysis.kernels.rows:
        if row.device in wanted and row.family != "communication":
            shape = (row.name, row.grid, row.block)
            calls[shape] = calls.get(shape, 0.0) + row.calls / len(wanted)
            time[shape] = time.get(shape, 0.0) + row.total_ps / len(wanted)
    return calls, time
