"""Idle time that a finding with better evidence has taken, so that no second finding counts it.

`op_placement` takes what the host does between its two copies, `transfer_bound` what it spends inside
blocking copies, `cpu_contention` the part of launching that a host with free processors would not need.
The analysis itself, and every number that is shown of it, stays as it is: only the rules for `sync`, `launch`
and `host_other` look at what is left.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from tb_gpu_doctor.analysis.idle import gap_rows, sum_by_step
from tb_gpu_doctor.analysis.launches import Contention
from tb_gpu_doctor.analysis.results import Cause, DeviceAccounting
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.diagnosis.asking import ask, ask_one
from tb_gpu_doctor.diagnosis.contention_loss import contention_loss
from tb_gpu_doctor.diagnosis.context import Context, HostProfile
from tb_gpu_doctor.diagnosis.copy_loss import transfer_waits
from tb_gpu_doctor.traces.columns import Int64
from tb_gpu_doctor.traces.far import connect

# What may be taken, in this order.
_TAKEN = (Cause.SYNC, Cause.HOST_OTHER, Cause.LAUNCH)


@dataclass(frozen=True)
class Claim:
    """Which idle time of one file is taken.

    Attributes:
        placed: devices whose bounces are.
        copied: devices whose blocking copies are.
        contended: whose slower launches are, as indices into ``TraceAnalysis.contention``.
    """

    placed: tuple[int, ...] = ()
    copied: tuple[int, ...] = ()
    contended: tuple[int, ...] = ()


def unclaimed(context: Context) -> Context:
    """The same session with taken idle time gone from gaps, accounting and step costs."""
    placed = {} if context.placed is None else context.placed.devices()
    copied = {} if context.copied is None else context.copied.devices()
    crowded = contention_loss(context)
    contended: dict[str, list[Contention]] = {}
    for account, measured in crowded.found if crowded is not None else ():
        contended.setdefault(account.profile.label, []).append(measured)
    profiles = list(context.profiles)
    taken = {}
    for index, profile in enumerate(profiles):
        known = contended.get(profile.label, ())
        rows = (i for i, item in enumerate(profile.analysis.contention) if any(item is other for other in known))
        claim = Claim(placed.get(profile.label, ()), copied.get(profile.label, ()), tuple(rows))
        if claim != Claim():
            taken[index] = claim
    far = [index for index in taken if profiles[index].trace.elsewhere is not None]
    for index in taken.keys() - set(far):
        profiles[index] = claimed(profiles[index], taken[index])
    answers = ask(_left_over, [(profiles[index], taken[index]) for index in far])
    for index, (accounting, idle) in zip(far, answers, strict=True):
        profiles[index] = _far_claimed(profiles[index], taken[index], accounting, idle)
    # A copy even where nothing is taken: the context keeps it, and must not keep itself.
    return replace(context, profiles=tuple(profiles))


def claimed(profile: HostProfile, claim: Claim) -> HostProfile:
    """The profile without the taken idle time, where its columns are."""
    analysis = profile.analysis
    gaps, bounces = analysis.gaps, analysis.bounces
    amount = np.zeros(len(gaps), np.int64)
    for device in sorted({*claim.placed, *claim.copied}):
        rows = gap_rows(gaps, device)
        own = bounces if device in claim.placed else None
        if own is not None:
            amount[rows] += own.gap_part[rows]
        if device in claim.copied and analysis.transfers is not None:
            amount[rows] += transfer_waits(analysis, device, analysis.transfers, own)
    for index in claim.contended:
        amount += analysis.contention[index].gap_part
    return replace(profile, analysis=without(analysis, amount), claim=claim) if amount.any() else profile


def _left_over(profile: HostProfile, claim: Claim) -> tuple[tuple[DeviceAccounting, ...], Int64 | None]:
    """Accounting, and idle time of the step costs, without the taken time."""
    left = claimed(profile, claim).analysis
    return left.accounting, None if left.step_costs is None else left.step_costs.idle


def _far_claimed(
    profile: HostProfile, claim: Claim, accounting: tuple[DeviceAccounting, ...], idle: Int64 | None
) -> HostProfile:
    """The same for a profile whose columns are elsewhere, which is asked for its gaps from now on with the claim."""
    costs = profile.analysis.step_costs
    if costs is not None and idle is not None:
        costs = replace(costs, idle=idle)
    # Not through what is returned, which would then hold itself, and with it the worker's memory.
    asked = replace(profile, claim=claim)
    gaps = connect(copy(profile.analysis.gaps), lambda name: ask_one(_gap_column, asked, name))
    return replace(asked, analysis=replace(profile.analysis, accounting=accounting, step_costs=costs, gaps=gaps))


def _gap_column(profile: HostProfile, name: str) -> object:
    return getattr(profile.analysis.gaps, name)


def without(analysis: TraceAnalysis, claim: Int64) -> TraceAnalysis:
    """The analysis without ``claim`` picoseconds of each gap, as far as they are charged to the host; shape (gaps,)."""
    gaps = analysis.gaps
    by_cause, left = gaps.by_cause.copy(), claim.copy()
    for cause in _TAKEN:
        taken = np.minimum(by_cause[:, cause], left)
        by_cause[:, cause] -= taken
        left -= taken
    removed = gaps.by_cause - by_cause
    costs = analysis.step_costs
    if costs is not None:
        idle = costs.idle.copy()
        for device in range(idle.shape[1]):
            rows = gap_rows(gaps, device)
            for cause in _TAKEN:
                amount = removed[rows, cause]
                if amount.any():
                    idle[:, device, cause] -= sum_by_step(analysis.steps, device, gaps.start[rows], amount)
        costs = replace(costs, idle=idle)
    accounting = []
    for account in analysis.accounting:
        gone = removed[gap_rows(gaps, account.device)].sum(axis=0)
        left_over = tuple(int(v) for v in np.array(account.idle_by_cause) - gone)
        accounting.append(replace(account, idle=account.idle - int(gone.sum()), idle_by_cause=left_over))
    main = np.where(removed.any(axis=1), by_cause.argmax(axis=1), gaps.cause).astype(np.uint8)
    return replace(
        analysis,
        gaps=replace(gaps, by_cause=by_cause, cause=main),
        accounting=tuple(accounting),
        step_costs=costs,
    )
