"""Idle time that a finding with better evidence has taken, so that no second finding counts it.

`op_placement` takes what the host does between its two copies, `transfer_bound` what it spends inside
blocking copies, `cpu_contention` the part of launching that a host with free processors would not need.
The analysis itself, and every number that is shown of it, stays as it is: only the rules for `sync`, `launch`
and `host_other` look at what is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tb_gpu_doctor.analysis.gap_parts import gap_rows, sum_by_step
from tb_gpu_doctor.analysis.launch_results import Contention
from tb_gpu_doctor.analysis.results import TraceAnalysis
from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.diagnosis.contention_loss import contention_loss
from tb_gpu_doctor.diagnosis.context import Context, GpuAccount, HostProfile
from tb_gpu_doctor.diagnosis.copy_loss import CopyLoss, placement_loss, transfer_loss, transfer_waits
from tb_gpu_doctor.diagnosis.model import GpuRef
from tb_gpu_doctor.traces.columns import Int64

# What may be taken, in this order.
_TAKEN = (Cause.SYNC, Cause.HOST_OTHER, Cause.LAUNCH)


def unclaimed(context: Context) -> Context:
    """The same session with taken idle time gone from gaps, accounting and step costs."""
    placed = placement_loss(context)
    copied = transfer_loss(context, placed)
    crowded = contention_loss(context)
    if placed is None and copied is None and crowded is None:
        return context
    # By host once: a job has hundreds, and each has its own.
    lossy: dict[str, dict[GpuRef, GpuAccount]] = {}
    for loss in (placed, copied):
        for account in loss.accounts if loss is not None else ():
            lossy.setdefault(account.profile.label, {})[account.ref] = account
    contended: dict[str, list[Contention]] = {}
    for account, measured in crowded.found if crowded is not None else ():
        contended.setdefault(account.profile.label, []).append(measured)
    profiles = tuple(
        _reduced(
            profile,
            _claims(profile, placed, copied, lossy.get(profile.label, {}), contended.get(profile.label, ())),
        )
        for profile in context.profiles
    )
    return replace(context, profiles=profiles)


def _claims(
    profile: HostProfile,
    placed: CopyLoss | None,
    copied: CopyLoss | None,
    lossy: Mapping[GpuRef, GpuAccount],
    contended: Sequence[Contention],
) -> Int64:
    """How much of each gap is taken."""
    analysis = profile.analysis
    claim = np.zeros(len(analysis.gaps), np.int64)
    for ref, account in lossy.items():
        rows = gap_rows(analysis.gaps, account.accounting.device)
        bounces = analysis.bounces if placed is not None and ref in placed.refs else None
        if bounces is not None:
            claim[rows] += bounces.gap_part[rows]
        if copied is not None and ref in copied.refs and analysis.transfers is not None:
            claim[rows] += transfer_waits(account, analysis.transfers, bounces)
    for measured in contended:
        claim += measured.gap_part
    return claim


def _reduced(profile: HostProfile, claim: Int64) -> HostProfile:
    if not claim.any():
        return profile
    return replace(profile, analysis=without(profile.analysis, claim))


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
