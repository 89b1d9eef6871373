"""The kernels that a rule may speak about, with what they weigh in their GPU's window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.kernel_results import KernelRow
from tb_gpu_doctor.diagnosis.asking import ask
from tb_gpu_doctor.diagnosis.context import Context, HostProfile
from tb_gpu_doctor.diagnosis.model import Evidence, GpuRef

# Families that trade occupancy for registers and shared memory on purpose.
BY_DESIGN = frozenset({"matmul", "convolution", "attention"})


@dataclass(frozen=True)
class KernelPick:
    """One row of the kernel table.

    ``window_share`` is its time over its GPU's window, scaled so that kernels running side
    by side do not count the same instant twice.
    """

    profile: HostProfile
    row: KernelRow
    window_share: float

    @property
    def ref(self) -> GpuRef:
        """The GPU it ran on."""
        return self.profile.ref(self.row.device)

    @property
    def threads(self) -> int | None:
        """Threads in a block."""
        return int(np.prod(self.row.block, dtype=np.int64)) if self.row.block else None


def picks(context: Context, least_share: float | None = None) -> Iterator[KernelPick]:
    """All kernels but communication with at least the smallest share that counts.

    Args:
        context: the profiles.
        least_share: another smallest share of a GPU's kernel time.
    """
    least = context.thresholds.kernel_min_share if least_share is None else least_share
    for profile in context.profiles:
        accounts = {account.device: account for account in profile.analysis.accounting}
        rows = [row for row in profile.analysis.kernels.rows if row.family != "communication"]
        sums: dict[int, int] = {}
        for row in rows:
            sums[row.device] = sums.get(row.device, 0) + row.in_window_ps
        for row in rows:
            account = accounts.get(row.device)
            if account is None or account.wall <= 0 or row.share < least:
                continue
            if row.in_window_ps <= 0:
                continue
            scale = min(1.0, account.compute / sums[row.device])
            yield KernelPick(profile, row, row.in_window_ps * scale / account.wall)


def mean_share(group: Sequence[KernelPick], value: Callable[[KernelPick], float]) -> float:
    """Sum of ``value`` per GPU, then the mean over the GPUs of the group."""
    per_gpu: dict[GpuRef, float] = {}
    for pick in group:
        per_gpu[pick.ref] = per_gpu.get(pick.ref, 0.0) + value(pick)
    return float(np.mean(list(per_gpu.values()))) if per_gpu else 0.0


def kernel_evidence(context: Context, group: Sequence[KernelPick]) -> tuple[Evidence, ...]:
    """The longest run of each kernel inside the window, the weightiest kernels first."""
    picked = sorted(group, key=lambda item: -item.window_share)[: context.thresholds.max_evidence]
    found = ask(_longest_run, [(pick.profile, pick.row.device, pick.row.name) for pick in picked])
    return tuple(evidence for evidence in found if evidence is not None)


def _longest_run(profile: HostProfile, device: int, name: str) -> Evidence | None:
    """The longest run of one kernel on one GPU inside the window."""
    events, window = profile.trace.device_events, profile.analysis.window
    span = events.of_device(device)
    start, duration = events.start[span], events.duration[span]
    mine = np.zeros(len(start), dtype=np.bool_)
    for ident in profile.kernel_ids(device).get(name, ()):
        mine |= events.name[span] == ident
    if window is not None:
        mine &= (start >= window.start) & (start < window.end)
    if not np.any(mine):
        return None
    best = int(np.argmax(np.where(mine, duration, -1)))
    return Evidence(
        host=profile.label,
        gpu=profile.ref(device).id,
        start=int(start[best]),
        end=int(start[best] + duration[best]),
        thread=None,
        step=profile.step_number(span.start + best),
        what=name,
    )
