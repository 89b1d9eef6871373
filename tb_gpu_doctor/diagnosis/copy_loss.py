"""What copies cost each GPU: tensors that bounce through the CPU, and all other exposed copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tb_gpu_doctor.analysis.idle import gap_rows, sum_by_step
from tb_gpu_doctor.analysis.results import DeviceAccounting
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.analysis.transfers import Bounces, Transfers
from tb_gpu_doctor.diagnosis.asking import ask
from tb_gpu_doctor.diagnosis.context import Context, GpuAccount, HostProfile
from tb_gpu_doctor.diagnosis.idle import share_to_name
from tb_gpu_doctor.diagnosis.model import GpuRef
from tb_gpu_doctor.diagnosis.step_gains import gain
from tb_gpu_doctor.traces.columns import Int64
from tb_gpu_doctor.traces.grouping import distinct

if TYPE_CHECKING:
    from tb_gpu_doctor.diagnosis.rules.transfer_bound import Limits


@dataclass(frozen=True)
class CopyLoss:
    """The GPUs that lose enough of their window to copies.

    Attributes:
        accounts: the GPUs that lose most (`idle.share_to_name`).
        share: mean over them of the lost part of the window.
        exposed, waited: the parts of ``share``: copies that nothing hides, idle time around them.
        per_step: mean loss per complete step in picoseconds, None without steps.
        saving: what a step would gain at most without it, by its critical path; None without complete steps.
    """

    accounts: tuple[GpuAccount, ...]
    share: float
    exposed: float
    waited: float
    per_step: float | None
    saving: float | None

    @cached_property
    def refs(self) -> frozenset[GpuRef]:
        """The GPUs."""
        return frozenset(account.ref for account in self.accounts)

    def devices(self) -> dict[str, tuple[int, ...]]:
        """The GPUs as device indices, by host."""
        found: dict[str, tuple[int, ...]] = {}
        for account in self.accounts:
            label = account.profile.label
            found[label] = (*found.get(label, ()), account.accounting.device)
        return found


@dataclass(frozen=True)
class Cost:
    """What copies cost one GPU, picoseconds: those that nothing hides, idle time around them, and per complete step."""

    exposed: int
    waited: int
    by_step: Int64


def placement_loss(context: Context) -> CopyLoss | None:
    """Who loses time to ops on the CPU between GPU ops; None when nobody does."""
    asked = [profile for profile in context.profiles if profile.analysis.bounces is not None]
    costs = _by_gpu(context, asked, ask(_placements, [(profile,) for profile in asked]))
    return _loss(context, costs, context.thresholds.of("op_placement").warning)


def _placements(profile: HostProfile) -> dict[int, Cost]:
    """What bounces cost each GPU of a file that has any."""
    bounces, gaps = profile.analysis.bounces, profile.analysis.gaps
    assert bounces is not None
    return {
        device: Cost(
            exposed=int(bounces.device_copies[device]),
            waited=int(bounces.gap_part[gap_rows(gaps, device)].sum()),
            by_step=(bounces.step_part + bounces.step_copies)[:, device],
        )
        for device in distinct(bounces.device).tolist()
    }


def transfer_loss(context: Context, placed: CopyLoss | None) -> CopyLoss | None:
    """Who loses time to copies, those of ``placed`` GPUs' bounces left out; None when nobody does.

    Not counted is what would be hidden had the host not been late before a copy: that time is
    another cause's consequence.
    """
    limits: Limits = context.thresholds.of("transfer_bound")
    asked = [profile for profile in context.profiles if profile.analysis.transfers is not None]
    taken = {} if placed is None else placed.devices()
    answers = ask(_transfers, [(profile, taken.get(profile.label, ())) for profile in asked])
    found = _by_gpu(context, asked, answers)
    costs = {
        account.ref: cost
        for account in context.accounts()
        if (cost := found.get(account.ref)) is not None and _recurs(account, cost, limits)
    }
    return _loss(context, costs, limits.warning)


def _by_gpu(
    context: Context, profiles: Sequence[HostProfile], answers: Sequence[Mapping[int, Cost]]
) -> dict[GpuRef, Cost]:
    pairs = zip(profiles, answers, strict=True)
    return {profile.ref(device): cost for profile, costs in pairs for device, cost in costs.items()}


def _transfers(profile: HostProfile, placed: Sequence[int]) -> dict[int, Cost]:
    """What copies cost each GPU of a file, on ``placed`` ones without those of its bounces."""
    transfers, bounces = profile.analysis.transfers, profile.analysis.bounces
    assert transfers is not None
    return {
        account.device: _transfer_cost(profile, account, transfers, bounces if account.device in placed else None)
        for account in profile.analysis.accounting
    }


def _transfer_cost(
    profile: HostProfile, account: DeviceAccounting, transfers: Transfers, taken: Bounces | None
) -> Cost:
    device, analysis = account.device, profile.analysis
    low, high = np.searchsorted(profile.trace.device_events.device[transfers.rows], [device, device + 1])
    late = int(transfers.late[low:high].sum())
    exposed = account.transfer - late
    by_step = transfers.step_exposed[:, device] - transfers.step_late[:, device]
    waits = transfer_waits(analysis, device, transfers, taken)
    if taken is not None:
        exposed -= int(taken.device_copies[device])
        by_step = by_step - taken.step_copies[:, device]
    rows = gap_rows(analysis.gaps, device)
    by_step = by_step + sum_by_step(analysis.steps, device, analysis.gaps.start[rows], waits)
    return Cost(max(exposed, 0), int(waits.sum()), np.maximum(by_step, 0))


def _recurs(account: GpuAccount, cost: Cost, limits: Limits) -> bool:
    """Whether more than one step loses time: the first copy of a run has nothing to hide behind."""
    costs = account.profile.analysis.step_costs
    if costs is None or len(cost.by_step) < 2:
        return True
    wall = costs.wall[:, _index(account)]
    worst = int(np.argmax(cost.by_step))
    others = int(cost.by_step.sum() - cost.by_step[worst])
    return others >= limits.recurs * limits.warning * int(wall.sum() - wall[worst])


def transfer_waits(analysis: TraceAnalysis, device: int, transfers: Transfers, taken: Bounces | None) -> Int64:
    """Time of each gap of a GPU in which the host sat in a blocking copy, less what its bounces take."""
    gaps, rows = analysis.gaps, gap_rows(analysis.gaps, device)
    waits = transfers.gap_wait[rows]
    if taken is not None:
        waits = np.minimum(waits, gaps.end[rows] - gaps.start[rows] - taken.gap_part[rows])
    return waits


def _loss(context: Context, costs: Mapping[GpuRef, Cost], threshold: float) -> CopyLoss | None:
    found = [(account, cost) for account in context.accounts() if (cost := costs.get(account.ref)) is not None]
    shares = [(cost.exposed + cost.waited) / account.accounting.wall for account, cost in found]
    border = share_to_name(shares, threshold)
    if border is None:
        return None
    found = [item for item, share in zip(found, shares, strict=True) if share >= border]
    exposed = float(np.mean([cost.exposed / account.accounting.wall for account, cost in found]))
    waited = float(np.mean([cost.waited / account.accounting.wall for account, cost in found]))
    per_step = [float(np.mean(cost.by_step)) for _, cost in found if len(cost.by_step)]
    profiles = {account.profile.label: account.profile for account, _ in found}
    return CopyLoss(
        accounts=tuple(account for account, _ in found),
        share=exposed + waited,
        exposed=exposed,
        waited=waited,
        per_step=float(np.mean(per_step)) if per_step else None,
        saving=gain(context, profiles.values(), lambda profile: _removed(profile, costs)),
    )


def _removed(profile: HostProfile, costs: Mapping[GpuRef, Cost]) -> Int64 | None:
    """The cost of all GPUs of one host in each complete step, shape (steps, devices)."""
    known = profile.analysis.step_costs
    if known is None or not len(known.wall):
        return None
    removed = np.zeros_like(known.wall)
    for device in range(removed.shape[1]):
        cost = costs.get(profile.ref(device))
        if cost is not None:
            removed[:, device] = cost.by_step
    return removed


def _index(account: GpuAccount) -> int:
    return account.accounting.device
