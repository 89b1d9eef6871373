"""Where each step starts and ends on each GPU."""

from __future__ import annotations

import numpy as np

from tb_gpu_doctor.analysis.results import BoolArray
from tb_gpu_doctor.traces.columns import DeviceEvents, EventClass, Int32, Int64, Trace
from tb_gpu_doctor.traces.errors import TraceError

# Steps x GPUs: tables of causes of that shape must fit in memory. Real profiles stay below a hundredth.
MAX_CELLS = 1 << 20


def step_borders(trace: Trace, event_step: Int32, marker_start: Int64) -> tuple[Int64, Int64]:
    """(start, end) of each step on each GPU, -1 where it did nothing; copies do not move borders.

    Raises:
        TraceError: ``too_many_events``: more steps on more GPUs than `MAX_CELLS`.
    """
    events = trace.device_events
    shape = (len(marker_start), len(trace.devices))
    if shape[0] * shape[1] > MAX_CELLS:
        raise TraceError("too_many_events", trace.path)
    work = events.klass <= EventClass.COMMUNICATION
    last = np.full(shape, -1, np.int64)
    begin = np.full(shape, np.iinfo(np.int64).max, np.int64)
    mine = work & (event_step >= 0)
    at = (event_step[mine], events.device[mine])
    np.maximum.at(last, at, events.end[mine])
    np.minimum.at(begin, at, events.start[mine])
    first = np.full(shape, -1, np.int64)
    stray = event_step < 0
    for device in range(shape[1]):
        used = np.flatnonzero(last[:, device] >= 0)
        if not len(used):
            continue
        border = _first_border(events, stray, device, int(marker_start[used[0]]), int(begin[used[0], device]))
        # each step ends no sooner than the one before it, and starts where that ended
        end = np.maximum.accumulate(np.maximum(last[used, device], border))
        first[used, device] = np.concatenate(([border], end[:-1]))
        last[used, device] = end
    return first, last


def _first_border(events: DeviceEvents, stray: BoolArray, device: int, marker: int, begin: int) -> int:
    """Where the first step starts: its marker, or the end of the last earlier event if that is later."""
    rows = events.of_device(device)
    earlier = stray[rows] & (events.start[rows] < begin)
    border = marker
    if earlier.any():
        border = max(border, int(events.end[rows][earlier].max()))
    return min(border, begin)
