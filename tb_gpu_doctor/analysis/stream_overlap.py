"""Kernels of several streams that ran one after the other although they were launched to run side by side."""

from __future__ import annotations

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.launch_results import StreamOverlap
from tb_gpu_doctor.analysis.results import Window
from tb_gpu_doctor.traces.columns import PS_PER_US, EventClass, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct

# The GPU knows of a launch this long after the call at the latest; it starts a waiting kernel this soon.
_KNOWN_AFTER = 10 * PS_PER_US
_AT_ONCE = 10 * PS_PER_US
# Kernels that waited for a shorter time than this may have been about to start anyway.
_MIN_WAIT = 5 * PS_PER_US
# Streams overlap as soon as this part of the kernels' time is shared.
_NO_OVERLAP = 0.001


def find_serialized(trace: Trace, window: Window, launch: Int64) -> tuple[StreamOverlap, ...]:
    """The GPUs whose compute kernels never overlap, with what speaks for it that they could have.

    Only compute kernels tell: a collective or a copy that waits for the kernel before it depends on it
    more often than not.
    """
    found = []
    for device in trace.devices:
        overlap = _serialized(trace, window, launch, device.index)
        if overlap is not None:
            found.append(overlap)
    return tuple(found)


def _serialized(trace: Trace, window: Window, launch: Int64, device: int) -> StreamOverlap | None:
    events = trace.device_events
    own = events.of_device(device)
    kernels = (events.klass[own] == EventClass.COMPUTE) & (events.duration[own] > 0)
    kernels &= (events.start[own] >= window.start) & (events.start[own] < window.end)
    rows = np.flatnonzero(kernels) + own.start
    streams = distinct(events.stream[rows])
    if len(streams) < 2 or not (launch[rows] >= 0).any():
        return None
    start, end, stream = events.start[rows], events.end[rows], events.stream[rows]
    total = intervals.exact_sum(end - start)
    if total - intervals.measure(intervals.union(start, end)) > _NO_OVERLAP * total:
        return None
    own_before = _end_of_own_stream(trace, own, rows)
    call = launch[rows]
    known = (call[1:] >= 0) & (call[:-1] >= 0) & (call[1:] != call[:-1])
    called = np.where(call >= 0, trace.host_events.start[np.maximum(call, 0)], end)
    ready = np.maximum(called + _KNOWN_AFTER, own_before)
    waited = end[:-1] - np.maximum(ready[1:], start[:-1])
    handed = known & (stream[1:] != stream[:-1]) & (waited >= _MIN_WAIT) & (start[1:] - end[:-1] <= _AT_ONCE)
    handed &= start[1:] >= end[:-1]
    at = np.flatnonzero(handed)
    if not len(at):
        return None
    longest = int(at[np.argmax(waited[at])])
    return StreamOverlap(
        device=device,
        streams=len(streams),
        handovers=len(at),
        reversed=int(np.count_nonzero(called[at + 1] < called[at])),
        first=int(rows[longest + 1]),
        waited_for=int(rows[longest]),
    )


def _end_of_own_stream(trace: Trace, own: slice, rows: Int64) -> Int64:
    """When all work before each kernel on its own stream, of whatever kind, had ended."""
    events = trace.device_events
    order = np.argsort(events.stream[own], kind="stable")
    stream, end = events.stream[own][order], events.end[own][order]
    new = np.concatenate(([True], stream[1:] != stream[:-1]))
    before = np.where(new, np.iinfo(np.int64).min, np.concatenate((end[:1], end[:-1])))
    found = np.empty(len(order), np.int64)
    found[order] = before
    return np.asarray(found[rows - own.start], dtype=np.int64)
