"""How well kernels fill the GPU: occupancy and multiprocessors in use, weighted by time, per GPU and per step.

Kernels of communication are left out: they hold a few multiprocessors by design.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.kernel_families import COMMUNICATION, FAMILIES
from tb_gpu_doctor.analysis.kernel_results import Float64, GpuFill, KernelRow, StepFill
from tb_gpu_doctor.analysis.results import DeviceAccounting, DeviceSummary, Steps
from tb_gpu_doctor.analysis.tensor_cores import PRODUCTS, TENSOR_CLASSES, has_tensor_cores
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
