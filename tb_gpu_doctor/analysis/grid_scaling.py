"""From which batch size on kernels fill the GPU, shown by two profiles of the same model at two batch sizes.

A kernel's grid grows with the batch, or does not: two profiles tell. Where it grows, the straight line
blocks = fixed + per_example * batch goes through both points, and the batch that fills all multiprocessors follows.
Libraries may pick another kernel for another batch, so this is what the grids show, not a promise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tb_gpu_doctor.analysis.kernel_results import KernelRow

# A grid counts as growing with the batch from this part of the batch's own growth on.
_GROWS = 0.5


@dataclass(frozen=True)
class GridScaling:
    """One kernel in both profiles.

    Attributes:
        name: of the kernel.
        op: that launches it.
        blocks, other_blocks: of its grid at the two batch sizes.
        scales: whether the grid grows with the batch.
        block_per_sm_batch: batch from which on every multiprocessor gets a block; None where the grid does not grow.
        full_wave_batch: batch from which on the grid fills all slots for blocks once; None where that is unknown.
        total_ps: its time in the first profile.
    """

    name: str
    op: str
    blocks: int
    other_blocks: int
    scales: bool
    block_per_sm_batch: int | None
    full_wave_batch: int | None
    total_ps: int


def grid_scaling(
    rows: Iterable[KernelRow], other_rows: Iterable[KernelRow], batch: int, other_batch: int, sm_count: int | None
) -> tuple[GridScaling, ...]:
    """Compare the grids of kernels that both profiles have, the longest first.

    A kernel is the same if name, op and block are; one whose grid is not the same in all its calls is left out, and
    so are persistent kernels and communication, whose grid says nothing.

    Args:
        rows: kernels of the first profile.
        other_rows: kernels of the second profile, of the same kind of GPU.
        batch: batch size per GPU of the first profile.
        other_batch: of the second one.
        sm_count: multiprocessors of the GPU.

    Raises:
        ValueError: the batch sizes are equal, or not positive.
    """
    if batch <= 0 or other_batch <= 0 or batch == other_batch:
        raise ValueError("batch sizes must be positive and differ")
    ours, theirs = _single_grids(rows), _single_grids(other_rows)
    found = []
    for key in ours.keys() & theirs.keys():
        row, other = ours[key], theirs[key]
        assert row.blocks is not None and other.blocks is not None
        slope = (other.blocks - row.blocks) / (other_batch - batch)
        scales = slope * batch >= _GROWS * row.blocks
        fixed = row.blocks - slope * batch

        def reaching(blocks: int | None, fixed: float = fixed, slope: float = slope, up: bool = scales) -> int | None:
            if blocks is None or not up:
                return None
            return max(1, math.ceil((blocks - fixed) / slope - 1e-9))

        found.append(
            GridScaling(
                row.name,
                row.op,
                row.blocks,
                other.blocks,
                scales,
                reaching(sm_count),
                reaching(row.wave_blocks),
                row.total_ps,
            )
        )
    return tuple(sorted(found, key=lambda entry: (-entry.total_ps, entry.name)))


def _single_grids(rows: Iterable[KernelRow]) -> dict[tuple[object, ...], KernelRow]:
    """Kernels by name, op and block that have one grid only; the GPUs of a profile may repeat it."""
    found: dict[tuple[object, ...], KernelRow] = {}
    grids: dict[tuple[object, ...], set[object]] = {}
    for row in rows:
        if row.blocks is None or row.persistent or row.family == "communication":
            continue
        key = (row.name, row.op, row.block)
        grids.setdefault(key, set()).add(row.grid)
        if key not in found or row.total_ps > found[key].total_ps:
            found[key] = row
    return {key: row for key, row in found.items() if len(grids[key]) == 1}
