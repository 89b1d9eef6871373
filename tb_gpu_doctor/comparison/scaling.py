"""From which batch on grids fill the GPU, where the two runs that are compared have different batches.

Summaries know kernels by name and shape only, so a kernel that runs in several grids, for other ops, is left out.
Batches are those of a step over all GPUs; with other numbers of GPUs nobody knows how a model is split over them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tb_gpu_doctor.analysis.filling import GridScaling, grid_scaling
from tb_gpu_doctor.analysis.kernel_families import is_persistent, kernel_family
from tb_gpu_doctor.analysis.kernel_results import KernelRow
from tb_gpu_doctor.comparison.summary import KernelSum, RunSummary

# Kernels of a smaller part of the kernel time are not worth a larger batch.
_LEAST_SHARE = 0.01
_MOST = 20


@dataclass(frozen=True)
class BatchGrids:
    """What two batches tell of grids that are too small for the GPU in either run.

    Attributes:
        batch_before, batch_after: of a step over all GPUs.
        sm_count: multiprocessors of a GPU.
        kernels: those that leave most of the chip empty first; their batches are of a step over all GPUs.
    """

    batch_before: int
    batch_after: int
    sm_count: int
    kernels: tuple[GridScaling, ...]


def batch_grids(
    before: RunSummary, after: RunSummary, batch_before: int | None, batch_after: int | None
) -> BatchGrids | None:
    """The kernels that have too few blocks, and the batch that fills them.

    None where the batches are unknown or the same, the GPUs are others, or no such kernel is in both runs.
    """
    sms = before.sm_count
    if not batch_before or not batch_after or batch_before == batch_after:
        return None
    if not sms or after.sm_count != sms or before.models != after.models:
        return None
    found = grid_scaling(map(_row, before.kernels), map(_row, after.kernels), batch_before, batch_after, sms)
    total = sum(row.total_ps for row in before.kernels)
    small = [
        entry
        for entry in found
        if min(entry.blocks, entry.other_blocks) < sms and entry.total_ps >= _LEAST_SHARE * total
    ]
    small.sort(key=lambda entry: -entry.total_ps * (1 - min(entry.blocks, entry.other_blocks) / sms))
    return BatchGrids(batch_before, batch_after, sms, tuple(small[:_MOST])) if small else None


def _row(kernel: KernelSum) -> KernelRow:
    """The kernel as a row of a table, as far as a summary knows it."""
    return KernelRow(
        device=0,
        name=kernel.name,
        calls=1,
        total_ps=round(kernel.total_ps),
        min_ps=0,
        max_ps=0,
        share=0.0,
        registers=None,
        static_shared_bytes=None,
        dynamic_shared_bytes=None,
        grid=kernel.grid if kernel.name and kernel.grid and prod(kernel.grid) else None,
        block=kernel.block,
        occupancy=kernel.occupancy,
        limiter=None,
        waves=None,
        sm_share=None,
        family=kernel_family(kernel.name),
        persistent=is_persistent(kernel.name),
        op="",
        in_window_ps=0,
        wave_blocks=kernel.wave_blocks,
    )
