"""Kernels of two runs by name and launch shape: added, gone, changed, and from which batch on grids fill the GPU.

The differences sum to the total difference. Summaries know kernels by name and shape only, so where two batch sizes are
compared, a kernel that runs in several grids, for several ops, is left out. Batches are those of a step over all GPUs:
with other numbers of GPUs nobody knows how a model is split over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from tb_gpu_doctor.analysis.filling import GridScaling, grid_scaling
from tb_gpu_doctor.analysis.kernel_families import is_persistent, kernel_family
from tb_gpu_doctor.analysis.kernel_results import KernelRow
from tb_gpu_doctor.comparison.summary import KernelSum, RunSummary

KernelChangeKind = Literal["added", "gone", "changed"]
_Key = tuple[str, tuple[int, int, int] | None, tuple[int, int, int] | None]

# The row of all that are too many to list.
_REST: _Key = ("", None, None)


# Kernels of a smaller part of the kernel time are not worth a larger batch.
_LEAST_SHARE = 0.01
_MOST = 20


@dataclass(frozen=True)
class KernelChange:
    """One kernel of one shape, per GPU and unit; ``before`` and ``after`` are 0 where it does not occur."""

    name: str
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    kind: KernelChangeKind
    calls_before: float
    calls_after: float
    before: float
    after: float
    occupancy_before: float | None
    occupancy_after: float | None

    @property
    def difference(self) -> float:
        """After - before."""
        return self.after - self.before


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


def compare_kernels(
    before: RunSummary, after: RunSummary, scale_before: float, scale_after: float
) -> tuple[KernelChange, ...]:
    """All kernels of both, largest change first; by name alone where one run does not tell any shape.

    Args:
        before: one run.
        after: the other one.
        scale_before: what its numbers are multiplied by, to be per unit.
        scale_after: the same of the other one.
    """
    ours, theirs = _by_key(before), _by_key(after)
    if lacks_shapes(before) != lacks_shapes(after):
        ours, theirs = _by_name(before), _by_name(after)
    ours, theirs = _without_hidden(ours, theirs), _without_hidden(theirs, ours)
    found = []
    for key in sorted(ours.keys() | theirs.keys(), key=str):
        old, new = ours.get(key), theirs.get(key)
        found.append(
            KernelChange(
                *key,
                kind="changed" if old and new else "gone" if old else "added",
                calls_before=old.calls * scale_before if old else 0.0,
                calls_after=new.calls * scale_after if new else 0.0,
                before=old.total_ps * scale_before if old else 0.0,
                after=new.total_ps * scale_after if new else 0.0,
                occupancy_before=old.occupancy if old else None,
                occupancy_after=new.occupancy if new else None,
            )
        )
    return tuple(sorted(found, key=lambda change: (-abs(change.difference), change.name, str(change.grid))))


def _without_hidden(rows: dict[_Key, KernelSum], other: dict[_Key, KernelSum]) -> dict[_Key, KernelSum]:
    """The rows; those that the other run may hold among its many short ones, which it lists as one, join ours.

    Neither gone nor new can be said of them.
    """
    if _REST not in other:
        return rows
    shortest = min((row.total_ps for key, row in other.items() if key != _REST), default=0.0)
    hidden = [row for key, row in rows.items() if key not in other and row.total_ps <= shortest]
    if not hidden:
        return rows
    left = {key: row for key, row in rows.items() if key in other or row.total_ps > shortest}
    rest = [rows[_REST]] if _REST in rows else []
    together = _added([*rest, *hidden])
    return {**left, _REST: KernelSum(*_REST, together.calls, together.total_ps)}


def lacks_shapes(run: RunSummary) -> bool:
    """Whether a run has kernels, and a launch shape of none of them."""
    return bool(run.kernels) and all(row.grid is None and row.block is None for row in run.kernels)


def grid_growth(before: RunSummary, after: RunSummary) -> float | None:
    """By how much most kernels' grids grew, by time; None where no common factor covers half of the time.

    Kernels are matched by name and block where each run has one grid of them. Grids grow with the batch or the
    shape of the input: a factor other than 1 tells that the two runs do not do the same work in a step.
    """
    ours, theirs = _single_grids(before), _single_grids(after)
    weight: dict[float, float] = {}
    for key in (key for key in ours if key in theirs):  # a set would have another order in each process
        old, new = ours[key], theirs[key]
        factor = round(_blocks(new) / _blocks(old), 2)
        weight[factor] = weight.get(factor, 0.0) + old.total_ps
    total = sum(row.total_ps for row in before.kernels)
    if not weight or total <= 0:
        return None
    factor, covered = max(weight.items(), key=lambda item: item[1])
    return factor if covered >= total / 2 else None


def call_growth(before: RunSummary, after: RunSummary) -> float | None:
    """By how much more often most kernels are launched, by time; None where no common factor covers half of it."""
    ours, theirs = _by_key(before), _by_key(after)
    weight: dict[float, float] = {}
    for key in (key for key in ours if key in theirs):
        if key[0] and ours[key].calls > 0:
            factor = round(theirs[key].calls / ours[key].calls, 1)
            weight[factor] = weight.get(factor, 0.0) + ours[key].total_ps
    total = sum(row.total_ps for row in before.kernels)
    if not weight or total <= 0:
        return None
    factor, covered = max(weight.items(), key=lambda item: item[1])
    return factor if covered >= total / 2 else None


def common_share(before: RunSummary, after: RunSummary) -> float | None:
    """Part of the kernel time that is in kernels, by name, that both runs have: the smaller of the two runs' parts.

    None where a run has no kernels.
    """
    shares = []
    names = {row.name for row in before.kernels} & {row.name for row in after.kernels}
    for run in (before, after):
        total = sum(row.total_ps for row in run.kernels)
        if total <= 0:
            return None
        shares.append(sum(row.total_ps for row in run.kernels if row.name in names) / total)
    return min(shares)


def _by_key(summary: RunSummary) -> dict[_Key, KernelSum]:
    """Kernels by name and shape; rows of one key are added: a nameless kernel may stand beside that of all others."""
    found: dict[_Key, KernelSum] = {}
    for row in summary.kernels:
        key = (row.name, row.grid, row.block)
        found[key] = row if key not in found else _added([found[key], row])
    return found


def _by_name(summary: RunSummary) -> dict[_Key, KernelSum]:
    """Kernels without their shapes, as if all had been recorded so."""
    rows: dict[str, list[KernelSum]] = {}
    for row in summary.kernels:
        rows.setdefault(row.name, []).append(replace(row, grid=None, block=None))
    return {(name, None, None): _added(same) for name, same in rows.items()}


def _added(rows: Sequence[KernelSum]) -> KernelSum:
    """Several rows as one; occupancy is weighted by time."""
    known = [(row.occupancy, row.total_ps) for row in rows if row.occupancy is not None]
    weight = sum(total for _, total in known)
    return replace(
        rows[0],
        calls=sum(row.calls for row in rows),
        total_ps=sum(row.total_ps for row in rows),
        occupancy=sum(value * total for value, total in known) / weight if weight > 0 else None,
    )


def _single_grids(summary: RunSummary) -> dict[tuple[str, object], KernelSum]:
    found: dict[tuple[str, object], KernelSum | None] = {}
    for row in summary.kernels:
        if row.grid is not None and row.name and _blocks(row):
            key = (row.name, row.block)
            found[key] = None if key in found else row
    return {key: row for key, row in found.items() if row is not None}


def _blocks(row: KernelSum) -> int:
    assert row.grid is not None
    return row.grid[0] * row.grid[1] * row.grid[2]


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
