"""Where each GPU's window went, exact to the picosecond."""

from __future__ import annotations

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.intervals import IntervalSet
from tb_gpu_doctor.analysis.results import Cause, DeviceAccounting, DeviceSummary, Gaps, Steps, Window
from tb_gpu_doctor.traces.columns import DeviceEvents, EventClass, Int64, Trace

BusySets = tuple[tuple[IntervalSet, IntervalSet, IntervalSet], ...]


def busy_sets(events: DeviceEvents, device: int) -> tuple[IntervalSet, IntervalSet, IntervalSet]:
    """Unions over all streams of one GPU: compute; compute or communication; any work."""
    rows = events.of_device(device)
    start, end, klass = events.start[rows], events.end[rows], events.klass[rows]
    compute = klass == EventClass.COMPUTE
    kernels = klass <= EventClass.COMMUNICATION
    return (
        intervals.union(start[compute], end[compute]),
        intervals.union(start[kernels], end[kernels]),
        intervals.union(start, end),
    )


def all_busy_sets(trace: Trace) -> BusySets:
    """`busy_sets` of every GPU."""
    return tuple(busy_sets(trace.device_events, device.index) for device in trace.devices)


def account(trace: Trace, window: Window, gaps: Gaps, busy_of: BusySets) -> tuple[DeviceAccounting, ...]:
    """The accounting of every GPU of the trace, those without work included (all idle).

    Compute is a union over all streams; communication and transfer are what is not hidden
    behind it, in that order; idle is the rest and equals the gaps.
    """
    result = []
    for device in trace.devices:
        compute, kernels, busy = (
            intervals.measure(intervals.clip(s, window.start, window.end)) for s in busy_of[device.index]
        )
        by_cause = gaps.by_cause[gaps.device == device.index].sum(axis=0)
        result.append(
            DeviceAccounting(
                device=device.index,
                wall=window.length,
                compute=compute,
                communication=kernels - compute,
                transfer=busy - kernels,
                idle=window.length - busy,
                idle_by_cause=tuple(int(v) for v in by_cause) if len(by_cause) else (0,) * len(Cause),
            )
        )
    return tuple(result)


def summarise(trace: Trace, window: Window, steps: Steps, busy_of: BusySets) -> tuple[DeviceSummary, ...]:
    """Each GPU beside the others: totals over the window and values per complete step."""
    events = trace.device_events
    complete = np.flatnonzero(steps.complete)
    result = []
    for device in trace.devices:
        rows = events.of_device(device.index)
        if rows.start == rows.stop:
            continue
        inside = (events.start[rows] < window.end) & (events.end[rows] > window.start)
        kernels = inside & (events.klass[rows] <= EventClass.COMMUNICATION)
        compute_set, _, busy_set = busy_of[device.index]
        low, high = np.array([window.start, window.end], np.int64)
        start, end = steps.start[complete, device.index], steps.end[complete, device.index]
        used = end >= 0
        busy_steps = np.where(used, _overlap(busy_set, start, end), 0)
        compute_steps = np.where(used, _overlap(compute_set, start, end), 0)
        busy = int(_overlap(busy_set, np.array([low]), np.array([high]))[0])
        compute = int(_overlap(compute_set, np.array([low]), np.array([high]))[0])
        result.append(
            DeviceSummary(
                device=device.index,
                kernels=int(np.count_nonzero(kernels)),
                copies=int(np.count_nonzero(inside & ~kernels)),
                busy=busy,
                compute=compute,
                idle=window.length - busy,
                compute_per_step=compute_steps,
                idle_per_step=np.where(used, end - start - busy_steps, 0),
            )
        )
    return tuple(result)


def _overlap(intervals_: IntervalSet, start: Int64, end: Int64) -> Int64:
    return intervals.covered_before(intervals_, end) - intervals.covered_before(intervals_, start)
