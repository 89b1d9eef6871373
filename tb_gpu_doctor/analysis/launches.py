"""Join device events to the host calls that launched them."""

from __future__ import annotations

import numpy as np

from tb_gpu_doctor.analysis.intervals import measure, union
from tb_gpu_doctor.analysis.results import LaunchStats, Window
from tb_gpu_doctor.traces.columns import PS_PER_MS, PS_PER_US, EventClass, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, rows_by

# The clocks of host and device are joined once: a launch may seem to start a little after its
# kernel, but one that starts this much later belongs to another kernel.
MAX_SKEW = PS_PER_MS
SHORT_KERNEL = 10 * PS_PER_US


def launch_of(trace: Trace) -> Int64:
    """Row of the host event that launched each device event, -1 unknown; shape (device events,)."""
    host, device = trace.host_events, trace.device_events
    found = np.full(len(device), -1, np.int64)
    rows = np.flatnonzero(host.correlation > 0)
    if not len(rows) or not len(device):
        return found
    order = np.argsort(host.correlation[rows], kind="stable")
    rows = rows[order]
    keys = host.correlation[rows]
    first = np.searchsorted(keys, device.correlation, side="left")
    inside = np.minimum(first, len(keys) - 1)
    good = (device.correlation > 0) & (keys[inside] == device.correlation)
    launch = rows[inside]
    good &= host.start[launch] <= device.end + MAX_SKEW
    found[good] = launch[good]
    return found


def _time_inside(trace: Trace, calls: Int64) -> int:
    """Union of the calls' times per thread, summed: a driver call inside a runtime call counts once."""
    host = trace.host_events
    parts = (calls[index] for _, index in rows_by(host.thread[calls]))
    return sum(measure(union(host.start[rows], host.end[rows])) for rows in parts)


def launch_stats(trace: Trace, launch: Int64, window: Window) -> tuple[LaunchStats, ...]:
    """How the host launched, for each device with events."""
    events = trace.device_events
    stats = []
    for device in trace.devices:
        rows = events.of_device(device.index)
        inside = (events.start[rows] >= window.start) & (events.start[rows] < window.end)
        if not inside.any():
            continue
        calls = distinct(launch[rows][inside & (launch[rows] >= 0)])
        compute = inside & (events.klass[rows] == EventClass.COMPUTE)
        durations = events.duration[rows][compute]
        stats.append(
            LaunchStats(
                device=device.index,
                launches=len(calls),
                host_time=_time_inside(trace, calls),
                short_kernels=int(np.count_nonzero(durations < SHORT_KERNEL)),
                median_kernel=int(np.median(durations)) if len(durations) else 0,
            )
        )
    return tuple(stats)
