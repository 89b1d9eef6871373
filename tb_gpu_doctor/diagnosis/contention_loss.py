"""GPUs that wait because launching slows down while the input pipeline's workers run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tb_gpu_doctor.analysis.launches import Contention
from tb_gpu_doctor.diagnosis.context import Context, GpuAccount, HostProfile
from tb_gpu_doctor.diagnosis.idle import share_to_name
from tb_gpu_doctor.diagnosis.model import GpuRef
from tb_gpu_doctor.diagnosis.step_gains import gain
from tb_gpu_doctor.traces.columns import Int64

if TYPE_CHECKING:
    from tb_gpu_doctor.diagnosis.rules.cpu_contention import Limits


@dataclass(frozen=True)
class ContentionLoss:
    """Those GPUs, each with what was measured, and what it costs.

    Attributes:
        found: (GPU, measurement) of those that lose most (`idle.share_to_name`).
        share: mean over them of the lost part of the window.
        per_step, saving: as in `idle.IdleLoss`.
    """

    found: tuple[tuple[GpuAccount, Contention], ...]
    share: float
    per_step: float | None
    saving: float | None

    @property
    def refs(self) -> frozenset[GpuRef]:
        """The GPUs."""
        return frozenset(account.ref for account, _ in self.found)


def contention_loss(context: Context) -> ContentionLoss | None:
    """Who loses time to it; None when nobody does."""
    limits: Limits = context.thresholds.of("cpu_contention")
    found = []
    for account in context.accounts():
        for measured in account.profile.analysis.contention:
            if measured.device == account.accounting.device and measured.slowdown >= limits.slowdown:
                found.append((account, measured))
    shares = [measured.lost / account.accounting.wall for account, measured in found]
    border = share_to_name(shares, limits.warning)
    if border is None:
        return None
    found = [item for item, share in zip(found, shares, strict=True) if share >= border]
    per_step = [float(np.mean(measured.step_part)) for _, measured in found if len(measured.step_part)]
    profiles = {account.profile.label: account.profile for account, _ in found}
    return ContentionLoss(
        found=tuple(found),
        share=float(np.mean([measured.lost / account.accounting.wall for account, measured in found])),
        per_step=float(np.mean(per_step)) if per_step else None,
        saving=gain(context, profiles.values(), lambda profile: _removed(profile, found)),
    )


def _removed(profile: HostProfile, found: list[tuple[GpuAccount, Contention]]) -> Int64 | None:
    """The loss of all GPUs of one host in each complete step, shape (steps, devices)."""
    costs = profile.analysis.step_costs
    if costs is None or not len(costs.wall):
        return None
    removed = np.zeros_like(costs.wall)
    for account, measured in found:
        if account.profile.label == profile.label:
            removed[:, measured.device] = measured.step_part
    return removed
