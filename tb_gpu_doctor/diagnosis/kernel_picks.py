"""The kernels that a rule may speak about, with what they weigh in their GPU's window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from tb_gpu_doctor.analysis.facts import FileFacts
from tb_gpu_doctor.analysis.kernel_results import KernelRow
from tb_gpu_doctor.diagnosis.context import Context, evidence_at, ref
from tb_gpu_doctor.diagnosis.model import Evidence, GpuRef

# Families that trade occupancy for registers and shared memory on purpose.
BY_DESIGN = frozenset({"matmul", "convolution", "attention"})


@dataclass(frozen=True, eq=False)
class KernelPick:
    """One row of the kernel table.

    ``window_share`` is its time over its GPU's window, scaled so that kernels running side
    by side do not count the same instant twice.
    """

    file: FileFacts
    row: KernelRow
    window_share: float

    @property
    def ref(self) -> GpuRef:
        """The GPU it ran on."""
        return ref(self.file, self.row.device)

    @property
    def threads(self) -> int | None:
        """Threads in a block."""
        return self.row.block_threads


def picks(context: Context, least_share: float | None = None) -> Iterator[KernelPick]:
    """All kernels but communication with at least the smallest share that counts.

    Args:
        context: the profiles.
        least_share: another smallest share of a GPU's kernel time.
    """
    least = context.thresholds.kernel_min_share if least_share is None else least_share
    for file in context.files:
        rows = [row for row in file.kernels if row.family != "communication"]
        sums: dict[int, int] = {}
        for row in rows:
            sums[row.device] = sums.get(row.device, 0) + row.in_window_ps
        for row in rows:
            account = file.gpus[row.device].account
            if account is None or account.wall <= 0 or row.share < least:
                continue
            if row.in_window_ps <= 0:
                continue
            scale = min(1.0, account.compute / sums[row.device])
            yield KernelPick(file, row, row.in_window_ps * scale / account.wall)


def mean_share(group: Sequence[KernelPick], value: Callable[[KernelPick], float]) -> float:
    """Sum of ``value`` per GPU, then the mean over the GPUs of the group."""
    per_gpu: dict[GpuRef, float] = {}
    for pick in group:
        per_gpu[pick.ref] = per_gpu.get(pick.ref, 0.0) + value(pick)
    return fmean(per_gpu.values()) if per_gpu else 0.0


def kernel_evidence(context: Context, group: Sequence[KernelPick]) -> tuple[Evidence, ...]:
    """The longest run of each kernel inside the window, the weightiest kernels first."""
    picked = sorted(group, key=lambda item: -item.window_share)[: context.thresholds.max_evidence]
    found = []
    for pick in picked:
        places = (place for device, place in pick.file.kernel_runs if device == pick.row.device)
        place = next((place for place in places if place.what == pick.row.name), None)
        if place is not None:
            found.append(evidence_at(pick.file, pick.row.device, place))
    return tuple(found)
