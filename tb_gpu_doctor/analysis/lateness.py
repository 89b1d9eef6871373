"""Who keeps the others waiting inside collectives, on the GPUs of one clock."""

from __future__ import annotations

import numpy as np

from tb_gpu_doctor.analysis.results import Lateness, Steps, Window
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, rows_by


def find_lateness(trace: Trace, window: Window, steps: Steps) -> Lateness | None:
    """Match the collectives of all working GPUs by order, step by step; None when they cannot be matched.

    A step counts if every GPU that computes ran the same sequence of collective kernels in it;
    without steps the whole window is taken as one. A collective starts to move data when the
    last GPU has arrived: who arrived earlier waits.
    """
    events = trace.device_events
    rows = np.flatnonzero(
        (events.klass == EventClass.COMMUNICATION)
        & (events.copy_kind == CopyKind.NONE)
        & (events.start >= window.start)
        & (events.start < window.end)
    )
    devices = distinct(events.device[events.klass == EventClass.COMPUTE])
    rows = rows[np.isin(events.device[rows], devices)]
    if len(devices) < 2 or not len(rows):
        return None
    groups: list[tuple[int, Int64]] = []
    if steps.count:
        step_of = steps.event_step[rows]
        groups = [(s, rows[index]) for s, index in rows_by(step_of) if s >= 0 and steps.complete[s]]
    else:
        groups = [(-1, rows)]
    starts, ends, step_index = [], [], []
    for step, members in groups:
        table = _aligned(trace, members, devices)
        if table is not None:
            starts.append(events.start[table])
            ends.append(events.end[table])
            step_index.append(np.full(len(table), step, np.int32))
    if not starts:
        return None
    start, end = np.concatenate(starts), np.concatenate(ends)
    latest = start.max(axis=1, keepdims=True)
    return Lateness(
        devices=devices.astype(np.int32),
        start=start,
        end=end,
        step=np.concatenate(step_index),
        late=start - _median_of_others(start),
        wait=np.minimum(latest - start, end - start),
    )


def _aligned(trace: Trace, members: Int64, devices: np.ndarray) -> Int64 | None:
    """Rows of the collectives, shape (k, devices), when all devices ran the same sequence."""
    events = trace.device_events
    # rows are sorted by device: equal runs of all devices, or no match
    count = len(members) // len(devices)
    if not count or len(members) != count * len(devices):
        return None
    table = members.reshape(len(devices), count).T
    if (events.device[table] != devices).any():
        return None
    names = events.name[table]
    if (names != names[:, :1]).any():
        return None
    # Matched kernels overlap in time, or they are not the same collective.
    if (events.start[table].max(axis=1) > events.end[table].min(axis=1)).any():
        return None
    return table


def _median_of_others(start: Int64) -> Int64:
    """For each collective and GPU the median start of all the other GPUs, shape as ``start``."""
    count = start.shape[1]
    ordered = np.sort(start, axis=1)
    rank = np.argsort(np.argsort(start, axis=1, kind="stable"), axis=1, kind="stable")
    # without one element, element j of the rest is ordered[j] or, from its own rank on, ordered[j + 1]
    low, high = (count - 2) // 2, (count - 1) // 2
    rows = np.arange(len(start))[:, None]
    a = ordered[rows, low + (rank <= low)]
    b = ordered[rows, high + (rank <= high)]
    return np.asarray(a + (b - a) // 2, dtype=np.int64)
