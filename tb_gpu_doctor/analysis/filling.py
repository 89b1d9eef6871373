"""How full the chip is: occupancy and multiprocessors in use, weighted by time, per GPU and per step.

Kernels of communication are left out: they hold a few multiprocessors by design.

A kernel's grid grows with the batch, or does not: two profiles at two batch sizes tell. Where it grows, the straight
line blocks = fixed + per_example * batch goes through both points, and the batch that fills the GPU follows.
Libraries may pick another kernel for another batch, so this is what the grids show, not a promise.

Whether memory or arithmetic bounds a kernel is said after the roofline model (Williams, Waterman, Patterson 2009), only
where the profile counts bytes and operations, and only of kernels that come near one of the two roofs; the others are
bound by something else (latency, too few blocks), which these numbers do not show.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.kernel_families import COMMUNICATION, FAMILIES, PRODUCTS, TENSOR_CLASSES, has_tensor_cores
from tb_gpu_doctor.analysis.kernel_results import Float64, GpuFill, KernelRow, StepFill
from tb_gpu_doctor.analysis.results import DeviceAccounting, DeviceSummary, Steps
from tb_gpu_doctor.traces.columns import Device, Int64


def gpu_fills(rows: Sequence[KernelRow], devices: Sequence[Device]) -> tuple[GpuFill, ...]:
    """One entry per device, over the whole recording."""
    of_device: list[list[KernelRow]] = [[] for _ in devices]
    for row in rows:
        of_device[row.device].append(row)
    return tuple(_fill(device, own) for device, own in zip(devices, of_device, strict=True))


def _fill(device: Device, rows: list[KernelRow]) -> GpuFill:
    families = dict.fromkeys(FAMILIES, 0)
    tensor = dict.fromkeys(TENSOR_CLASSES, 0)
    for row in rows:
        families[row.family] += row.total_ps
        if row.family in PRODUCTS and row.tensor_cores is not None:
            tensor[row.tensor_cores] += row.total_ps
    computing = [row for row in rows if row.family != COMMUNICATION]
    everything = sum(row.total_ps for row in computing)
    occupancy, known = weighted((row.occupancy, row.total_ps) for row in computing)
    return GpuFill(
        device=device.index,
        kernel_ps=sum(families.values()),
        occupancy=occupancy,
        occupancy_coverage=known / everything if everything else 0.0,
        achieved_occupancy=weighted((row.achieved_occupancy, row.total_ps) for row in computing)[0],
        sm_share=weighted((row.sm_share, row.total_ps) for row in computing)[0],
        sm_share_in_window=weighted((row.sm_share, row.in_window_ps) for row in computing)[0],
        tensor_ps=tuple(tensor.values()) if has_tensor_cores(device) else None,
        family_ps=tuple(families.values()),
    )


def weighted(values: Iterable[tuple[float | None, int]]) -> tuple[float | None, int]:
    """The mean of what is known, weighted by time, and the time where it is known."""
    total, known = 0.0, 0
    for value, time in values:
        if value is not None:
            total += value * time
            known += time
    return (total / known if known else None), known


def step_fill(rows: Sequence[KernelRow], step: Int64, row: Int64, time: Float64, steps: int, devices: int) -> StepFill:
    """The same for each step.

    Args:
        rows: of the kernel table.
        step: of each entry of the kernel time by step and row.
        row: of each entry.
        time: of each entry, in picoseconds.
        steps: how many there are.
        devices: how many there are.
    """
    computing = np.array([entry.family != COMMUNICATION for entry in rows], np.bool_)[row]
    step, row, time = step[computing], row[computing], time[computing]
    place = step * devices + np.array([entry.device for entry in rows], np.int64)[row]

    def total(weight: Float64) -> Float64:
        sums = np.bincount(place, weights=weight, minlength=steps * devices).astype(np.float64)
        return sums.reshape(steps, devices)

    def mean(values: list[float | None]) -> Float64:
        value = np.array([np.nan if entry is None else entry for entry in values], np.float64)[row]
        known = np.isfinite(value)
        weight = np.where(known, time, 0.0)
        with np.errstate(invalid="ignore"):
            return np.asarray(total(np.where(known, value, 0.0) * weight) / total(weight), dtype=np.float64)

    return StepFill(
        kernel_ps=total(time),
        occupancy=mean([entry.occupancy for entry in rows]),
        achieved_occupancy=mean([entry.achieved_occupancy for entry in rows]),
        sm_share=mean([entry.sm_share for entry in rows]),
    )


@dataclass(frozen=True)
class StepUse:
    """`StepFill` beside the time of the steps; shape (steps, devices), NaN where unknown.

    Attributes:
        wall_ps: length of the step on each GPU, 0 where it did nothing.
        sm_efficiency: the share of the step's time times multiprocessors in which a kernel had a block on them.
    """

    wall_ps: Float64
    sm_efficiency: Float64


def sm_efficiency(fill: GpuFill, account: DeviceAccounting | None) -> float | None:
    """Multiprocessors in use over the window: idle time counts as empty, kernels side by side count once."""
    if account is None or account.wall <= 0 or fill.sm_share_in_window is None:
        return None
    return fill.sm_share_in_window * account.compute / account.wall


def step_use(steps: Steps, fill: StepFill, summaries: Sequence[DeviceSummary]) -> StepUse:
    """How much of each step's time multiprocessors are in use, for complete steps."""
    used = steps.end >= 0
    wall = np.where(used, steps.end - steps.start, 0).astype(np.float64)
    computing = np.full(wall.shape, np.nan)
    complete = np.flatnonzero(steps.complete)
    for summary in summaries:
        if len(summary.compute_per_step) == len(complete):
            computing[complete, summary.device] = summary.compute_per_step
    share = np.divide(computing, wall, out=np.full(wall.shape, np.nan), where=wall > 0)
    return StepUse(wall, np.asarray(fill.sm_share * np.minimum(share, 1.0), dtype=np.float64))


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


MEMORY, COMPUTE = "memory", "compute"
# From this part of the peak bandwidth, or of the peak arithmetic, on.
NEAR_THE_ROOF = 0.6
_PS_PER_S = 1e12


def bound_of(device: Device, total_ps: int, flops: int | None, accessed_bytes: int | None) -> str | None:
    """``memory`` or ``compute``; None where the profile does not hold all that is needed, or neither roof is near.

    Args:
        device: the GPU with its peaks.
        total_ps: time of all calls.
        flops: operations of all calls.
        accessed_bytes: bytes of all calls.
    """
    peak = device.memory_bandwidth_bytes_per_s
    if flops is None or accessed_bytes is None or not peak or total_ps <= 0 or accessed_bytes <= 0:
        return None
    if accessed_bytes / (total_ps / _PS_PER_S) / peak >= NEAR_THE_ROOF:
        return MEMORY
    peak_flops = device.peak_flops_per_s
    if peak_flops and flops / (total_ps / _PS_PER_S) / peak_flops >= NEAR_THE_ROOF:
        return COMPUTE
    return None
