"""What a step would gain if one kind of waiting were gone.

A step ends when its last GPU has done its own work; time inside a collective before the last GPU
has entered it follows from that GPU, so it is no work of the one that waits. Removing idle time
from a GPU's own work shortens the step only until another GPU becomes the last: the gain is an upper
bound, and smaller than the sum of what was removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from tb_gpu_doctor.analysis.results import Gaps, Lateness, StepCosts, Steps
from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.traces.columns import Int64


def step_costs(steps: Steps, gaps: Gaps, lateness: Lateness | None) -> StepCosts:
    """Own time and idle time by cause of each GPU in each complete step."""
    complete = np.flatnonzero(steps.complete)
    devices = steps.start.shape[1]
    used = steps.end[complete] >= 0
    wall = np.where(used, steps.end[complete] - steps.start[complete], 0)
    wait = np.zeros((len(steps.number), devices), np.int64)
    if lateness is not None:
        inside = lateness.step >= 0
        for column, device in enumerate(lateness.devices.tolist()):
            np.add.at(wait[:, device], lateness.step[inside], lateness.wait[inside, column])
    idle = np.zeros((len(complete), devices, len(Cause)), np.int64)
    for device in range(devices):
        rows = np.flatnonzero(gaps.device == device)
        mine = np.flatnonzero(used[:, device])
        if not len(rows) or not len(mine):
            continue
        # steps of one GPU follow each other and gaps never straddle their borders
        at = np.searchsorted(steps.start[complete[mine], device], gaps.start[rows], side="right") - 1
        inside = at >= 0
        inside &= gaps.start[rows] < steps.end[complete[mine[np.maximum(at, 0)]], device]
        np.add.at(idle[:, device], mine[at[inside]], gaps.by_cause[rows[inside]])
    return StepCosts(wall=wall, wait=np.minimum(wait[complete], wall), idle=idle)


def gain_per_step(costs: StepCosts, removed: Int64) -> Int64:
    """How much shorter each step could be without ``removed``.

    Args:
        costs: of the complete steps.
        removed: time taken from each GPU's own work, shape (steps, devices).

    Returns:
        shape (steps,): picoseconds, >= 0.
    """
    if not costs.wall.size:
        return np.zeros(len(costs.wall), np.int64)
    own = costs.wall - costs.wait
    left = own - np.clip(removed, 0, own)
    return np.asarray(own.max(axis=1) - left.max(axis=1), dtype=np.int64)


def joint_gain(costs: Sequence[StepCosts], numbers: Sequence[Int64], removed: Sequence[Int64]) -> float | None:
    """Mean of `gain_per_step` over the GPUs of several files that end their steps together.

    Args:
        costs: of each file's complete steps, their waits for GPUs of all files.
        numbers: of those steps, by which they are the same in all files; a number stands once in a file.
        removed: as in `gain_per_step`, for each file.

    Returns:
        None when the files have no step in common.
    """
    common = reduce(np.intersect1d, numbers)
    if not len(common):
        return None
    before, after = np.zeros(len(common), np.int64), np.zeros(len(common), np.int64)
    for cost, number, gone in zip(costs, numbers, removed, strict=True):
        rows = np.argsort(number, kind="stable")[np.searchsorted(np.sort(number), common)]
        own = (cost.wall - cost.wait)[rows]
        left = own - np.clip(gone[rows], 0, own)
        before, after = np.maximum(before, own.max(axis=1, initial=0)), np.maximum(after, left.max(axis=1, initial=0))
    return float(np.mean(before - after))


def gain_of_causes(costs: StepCosts, *causes: Cause) -> Int64:
    """`gain_per_step` of all idle time charged to the given causes, shape (steps,)."""
    return gain_per_step(costs, costs.idle[:, :, list(causes)].sum(axis=2))
