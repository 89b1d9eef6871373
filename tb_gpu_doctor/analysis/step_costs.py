"""Where each step of each GPU went, exact to the picosecond, and what a step would gain without one kind of waiting.

A step ends when its last GPU has done its own work. Time inside a collective before the last GPU has entered it
follows from that GPU, so it is no work of the one that waits. Removing idle time from one GPU shortens the step only
until another GPU becomes the last: the gain is an upper bound, smaller than the sum of what was removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.idle import cut_gaps, gap_rows, overlap
from tb_gpu_doctor.analysis.intervals import IntervalSet
from tb_gpu_doctor.analysis.results import CAUSE_IDS, Cause, Gaps, Lateness, StepCosts, Steps
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Int64, Trace


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


# In the order of `step_parts`' last axis. Communication is what no computation hides: waiting for GPUs that
# come late, moving data, and what could not be matched with other GPUs' and may be either.
PART_IDS: tuple[str, ...] = (
    "compute",
    "communication_wait",
    "communication_moving",
    "communication_unsplit",
    "transfer",
    *CAUSE_IDS,
)
FIRST_CAUSE = len(PART_IDS) - len(CAUSE_IDS)


def communication_layers(trace: Trace, device: int, wait: Int64) -> tuple[IntervalSet, ...]:
    """What one GPU does, each set holding the one before it.

    Args:
        trace: the trace.
        device: index of the GPU.
        wait: of each event of the GPU, its time inside a collective before the last came; -1 where unknown.

    Returns:
        Compute; and data that moves; and collectives that cannot be split; and waiting in collectives.
    """
    events, rows = trace.device_events, trace.device_events.of_device(device)
    start, end, klass = events.start[rows], events.end[rows], events.klass[rows]
    compute = klass == EventClass.COMPUTE
    sent = klass == EventClass.COMMUNICATION
    # a copy between GPUs moves data from its start on
    moves = sent & ((wait >= 0) | (events.copy_kind[rows] != CopyKind.NONE))
    begin = np.where(wait >= 0, start + np.maximum(wait, 0), start)

    layers = [intervals.union(start[compute], end[compute])]
    for low, high in (
        (begin[moves], end[moves]),
        (start[sent & ~moves], end[sent & ~moves]),
        (start[sent], end[sent]),
    ):
        first, last = np.concatenate((layers[-1][0], low)), np.concatenate((layers[-1][1], high))
        order = np.argsort(first, kind="stable")
        layers.append(intervals.union(first[order], last[order]))
    return tuple(layers)


def step_parts(trace: Trace, analysis: TraceAnalysis, device: int, wait: Int64) -> tuple[Int64, Int64]:
    """Split the complete steps of one GPU.

    Args:
        trace: the file.
        analysis: of it.
        device: index of the GPU.
        wait: as in `communication_layers`.

    Returns:
        Length of each complete step, shape (steps,), -1 where the GPU has none; and its parts by
        `PART_IDS`, shape (steps, parts), whose rows sum to the lengths.
    """
    steps = analysis.steps
    complete = np.flatnonzero(steps.complete)
    wall = np.full(len(complete), -1, np.int64)
    parts = np.zeros((len(complete), len(PART_IDS)), np.int64)
    mine = np.flatnonzero(steps.end[complete, device] >= 0)
    if not len(mine):
        return wall, parts
    start, end = steps.start[complete[mine], device], steps.end[complete[mine], device]
    wall[mine] = end - start
    parts[mine] = _split(trace, analysis, device, wait, start, end)
    return wall, parts


def window_parts(trace: Trace, analysis: TraceAnalysis, device: int, wait: Int64) -> Int64:
    """The same over the window of one GPU, shape (parts,); sums to the window, zeros without one."""
    window = analysis.window
    if window is None:
        return np.zeros(len(PART_IDS), np.int64)
    start, end = np.array([window.start], np.int64), np.array([window.end], np.int64)
    parts: Int64 = _split(trace, analysis, device, wait, start, end)[0]
    return parts


def _split(trace: Trace, analysis: TraceAnalysis, device: int, wait: Int64, start: Int64, end: Int64) -> Int64:
    """What one GPU did in each [start, end), shape (stretches, parts); rows sum to the lengths."""
    compute, moving, unsplit, sent = (overlap(s, start, end) for s in communication_layers(trace, device, wait))
    rows = trace.device_events.of_device(device)
    busy = overlap(intervals.union(trace.device_events.start[rows], trace.device_events.end[rows]), start, end)
    columns = [compute, sent - unsplit, moving - compute, unsplit - moving, busy - sent]
    mine_gaps = gap_rows(analysis.gaps, device)
    pieces, causes = cut_gaps(analysis.gaps, np.arange(mine_gaps.start, mine_gaps.stop))
    for cause in range(len(Cause)):
        of_cause = causes == cause
        columns.append(overlap((pieces.start[of_cause], pieces.end[of_cause]), start, end))
    parts = np.stack(columns, axis=1)
    # gaps are looked for inside the window only: what of a step lies outside has no evidence
    parts[:, FIRST_CAUSE + Cause.NO_EVIDENCE] += end - start - parts.sum(axis=1)
    return parts
