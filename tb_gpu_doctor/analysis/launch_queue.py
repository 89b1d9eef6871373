"""The queue of launched work: how deep, how long work waits in it, and what a launch costs the host."""

from __future__ import annotations

import re

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.gap_parts import gap_rows
from tb_gpu_doctor.analysis.launch_results import LaunchQueue
from tb_gpu_doctor.analysis.launches import SHORT_KERNEL
from tb_gpu_doctor.analysis.results import Gaps, Steps, Window
from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.traces.columns import EventClass, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct

# Medians of longer columns are taken from a regular sample.
_SAMPLE = 20_000
# Python hands a single op or function to the framework, or XLA's runtime gets one to run.
_DISPATCH = re.compile(r"^(?:EagerLocalExecute\b|PjitFunction\()")


def launch_queues(trace: Trace, window: Window, steps: Steps, gaps: Gaps, launch: Int64) -> tuple[LaunchQueue, ...]:
    """One for each GPU with launched work in the window."""
    dispatches = _dispatches(trace, window)
    found = []
    for device in trace.devices:
        queue = _queue(trace, window, steps, gaps, launch, device.index, dispatches)
        if queue is not None:
            found.append(queue)
    return tuple(found)


def _queue(
    trace: Trace, window: Window, steps: Steps, gaps: Gaps, launch: Int64, device: int, dispatches: int
) -> LaunchQueue | None:
    events, host = trace.device_events, trace.host_events
    own = events.of_device(device)
    start, duration = events.start[own], events.duration[own]
    inside = (start >= window.start) & (start < window.end)
    called = inside & (launch[own] >= 0)
    rows = launch[own][called]
    if not len(rows):
        return None
    began = start[called]
    call = np.minimum(host.start[rows], began)  # clocks are joined once: a launch may seem to start after its work
    calls = distinct(rows)
    depth = _depth(window, call, began)
    delay = np.sort(_sample(began - call))
    compute = inside & (events.klass[own] == EventClass.COMPUTE)
    times = duration[compute]
    border, inner = _launch_idle(steps, gaps, device)
    return LaunchQueue(
        device=device,
        launches=len(calls),
        period=_period(trace, calls),
        call=int(np.median(_sample(host.duration[calls]))),
        mean_depth=depth[0],
        max_depth=depth[1],
        empty=depth[2],
        delay_p10=int(delay[len(delay) // 10]),
        delay_median=int(delay[len(delay) // 2]),
        delay_p90=int(delay[len(delay) * 9 // 10]),
        kernels=len(times),
        short_kernels=int(np.count_nonzero(times < SHORT_KERNEL)),
        kernel_time=intervals.exact_sum(times),
        short_time=intervals.exact_sum(times[times < SHORT_KERNEL]),
        border_idle=border,
        inner_idle=inner,
        dispatches=dispatches,
    )


def _depth(window: Window, call: Int64, began: Int64) -> tuple[float, int, int]:
    """(mean over the window, maximum, time without any) of the work that was launched and had not started."""
    # a wait that began before the window counts from its start on; those that end behind it are not given
    low = np.maximum(call, window.start)
    waited = intervals.exact_sum(began - low)
    order = np.argsort(low, kind="stable")
    low = low[order]
    # at each launch: all launches up to it, less all work that had started by then; rows are sorted by start
    at_launch = np.arange(1, len(low) + 1) - np.searchsorted(began, low, side="right")
    covered = intervals.measure(intervals.union(low, began[order]))
    return waited / window.length, int(max(at_launch.max(), 0)), window.length - covered


def _sample(values: Int64) -> Int64:
    """All of a few values, every so manyth of many: enough for a median."""
    return values[:: len(values) // _SAMPLE + 1]


def _period(trace: Trace, calls: Int64) -> int | None:
    """Median time between the starts of successive calls of one thread; rows are sorted by thread and start."""
    host = trace.host_events
    apart = np.diff(host.start[calls])[host.thread[calls][1:] == host.thread[calls][:-1]]
    return int(np.median(_sample(apart))) if len(apart) else None


def _launch_idle(steps: Steps, gaps: Gaps, device: int) -> tuple[int, int]:
    """Idle time charged to `launch` (before the first work of a step, elsewhere)."""
    rows = gap_rows(gaps, device)
    charged = gaps.by_cause[rows, Cause.LAUNCH]
    before, after = gaps.before[rows], gaps.after[rows]
    of_next = steps.event_step[np.maximum(after, 0)]
    first = (before < 0) | (of_next != steps.event_step[np.maximum(before, 0)])
    border = int(charged[(after >= 0) & (of_next >= 0) & first].sum())
    return border, int(charged.sum()) - border


def _dispatches(trace: Trace, window: Window) -> int:
    """Host events in the window in which a single op or function is handed over."""
    host = trace.host_events
    if not len(host):
        return 0
    names = distinct(host.name)
    wanted = np.zeros(len(trace.strings) + 1, np.bool_)
    wanted[[i for i in names.tolist() if _DISPATCH.match(trace.strings[i])]] = True
    return int(np.count_nonzero(wanted[host.name] & (host.start >= window.start) & (host.start < window.end)))
