"""Steps that were stopped by one cause: how many, how long, how regularly, and by what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.results import Cause, StepCosts
from tb_gpu_doctor.diagnosis.asking import ask_one
from tb_gpu_doctor.diagnosis.context import Context, GpuAccount, HostProfile
from tb_gpu_doctor.diagnosis.idle import IdleLoss, charged_gaps, idle_loss, worst_event
from tb_gpu_doctor.diagnosis.model import GpuRef
from tb_gpu_doctor.traces.columns import PS_PER_MS

# Without steps, gaps that lie closer together than this belong to one stop.
_SAME_STOP = PS_PER_MS
_MAX_NUMBERS = 6


@dataclass(frozen=True)
class Stops:
    """How often one GPU was stopped, the one that lost most.

    Attributes:
        account: that GPU.
        count: stops, one per step at most.
        steps: complete steps in all, None without steps.
        numbers: recorded numbers of the first stopped steps.
        typical, longest: lost time of one stop in picoseconds.
        every: steps from one stop to the next where that is always the same; None otherwise.
        only_first: the first step of several is the only one that was stopped.
    """

    account: GpuAccount
    count: int
    steps: int | None
    numbers: tuple[int, ...]
    typical: float
    longest: int
    every: int | None
    only_first: bool


@dataclass(frozen=True)
class Stall:
    """The GPUs that one cause stops, what holds them up, and how often.

    Attributes:
        loss: who loses how much.
        name, thread: of the host event behind most of it.
        stops: of the GPU that loses most.
        facts: what sentences need of all that.
    """

    loss: IdleLoss
    name: str
    thread: str
    stops: Stops
    facts: dict[str, object]

    @property
    def gpus(self) -> tuple[GpuRef, ...]:
        """Who is stopped."""
        return tuple(account.ref for account in self.loss.accounts)


def find_stall(context: Context, cause: Cause, threshold: float) -> Stall | None:
    """Who is stopped by ``cause`` for at least ``threshold`` of the window; None for nobody, or if no event tells."""
    loss = idle_loss(context, cause, threshold)
    worst = None if loss is None else worst_event(loss.accounts, cause)
    if loss is None or worst is None:
        return None
    stops = find_stops(context, loss.accounts, cause)
    facts: dict[str, object] = {
        "gpus": context.names(account.ref for account in loss.accounts),
        "share": loss.share,
        "count": stops.count,
        "steps": stops.steps,
        "numbers": stops.numbers,
        "typical": stops.typical,
        "longest": stops.longest,
        "every": stops.every,
        "name": worst[0],
        "thread": worst[1],
    }
    return Stall(loss, worst[0], worst[1], stops, facts)


def find_stops(context: Context, accounts: Sequence[GpuAccount], cause: Cause) -> Stops:
    """The stops of the GPU that lost most time to ``cause``; it must have lost some."""
    worst = max(accounts, key=lambda account: account.accounting.idle_of(cause))
    costs = worst.profile.analysis.step_costs
    if costs is not None and len(costs.wall):
        return _by_step(context, worst, costs, cause)
    least = context.thresholds.stopped_step
    count, typical, longest = ask_one(_without_steps, worst.profile, worst.accounting.device, cause, least)
    return Stops(worst, count, None, (), typical, longest, None, False)


def _without_steps(profile: HostProfile, device: int, cause: Cause, least: float) -> tuple[int, float, int]:
    """How many stops, the median one, the longest."""
    rows, charges = charged_gaps(profile, device, cause)
    gaps = profile.analysis.gaps
    stop = np.concatenate(([0], np.cumsum(gaps.start[rows[1:]] - gaps.end[rows[:-1]] >= _SAME_STOP)))
    lost = np.bincount(stop, weights=charges.astype(np.float64))
    # what hardly counts beside the largest is none
    lost = lost[lost >= least * lost.max()]
    return len(lost), float(np.median(lost)), int(lost.max())


def _by_step(context: Context, account: GpuAccount, costs: StepCosts, cause: Cause) -> Stops:
    steps, device = account.profile.analysis.steps, account.accounting.device
    complete = np.flatnonzero(steps.complete)
    lost, wall = costs.idle[:, device, cause], costs.wall[:, device]
    stopped = np.flatnonzero((lost > 0) & (lost >= context.thresholds.stopped_step * wall))
    if not len(stopped):  # spread so thinly that no single step was stopped by it
        stopped = np.flatnonzero(lost == lost.max())
    apart = np.diff(stopped)
    return Stops(
        account=account,
        count=len(stopped),
        steps=len(complete),
        numbers=tuple(steps.number[complete[stopped[:_MAX_NUMBERS]]].tolist()),
        typical=float(np.median(lost[stopped])),
        longest=int(lost[stopped].max()),
        every=int(apart[0]) if len(apart) and (apart == apart[0]).all() else None,
        only_first=len(complete) >= context.thresholds.min_complete_steps and stopped.tolist() == [0],
    )
