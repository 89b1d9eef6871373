"""The launch queue against counting at every instant."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.launch_results import LaunchQueue
from tb_gpu_doctor.analysis.launches import launch_of
from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.traces.columns import EventClass, Trace
from tests.analysis.small_traces import US, Recorder, traces


def by_hand(trace: Trace, gpu: int, low: int, high: int) -> tuple[int, int, int]:
    """(area under the depth, its maximum, time at zero) over [low, high)."""
    events, host, launch = trace.device_events, trace.host_events, launch_of(trace).tolist()
    waits = []
    for i in range(len(events)):
        start = int(events.start[i])
        if events.device[i] == gpu and launch[i] >= 0 and low <= start < high:
            waits.append((min(int(host.start[launch[i]]), start), start))
    cuts = sorted({low, high, *(t for wait in waits for t in wait if low < t < high)})
    area = most = empty = 0
    for begin, end in pairwise(cuts):
        depth = sum(called <= begin < start for called, start in waits)
        area += depth * (end - begin)
        most = max(most, depth)
        empty += (end - begin) * (depth == 0)
    return area, most, empty


@settings(deadline=None)
@given(traces())
def test_depth_at_every_instant(trace: Trace) -> None:
    analysis = analyse(trace)
    if analysis.window is None:
        assert not analysis.queues
        return
    window = analysis.window
    events, launch = trace.device_events, launch_of(trace)
    for queue in analysis.queues:
        area, most, empty = by_hand(trace, queue.device, window.start, window.end)
        assert queue.mean_depth == pytest.approx(area / window.length)
        assert (queue.max_depth, queue.empty) == (most, empty)
        mine = (events.device == queue.device) & (events.start >= window.start) & (events.start < window.end)
        assert queue.launches == len(set(launch[mine & (launch >= 0)].tolist()))
        assert queue.kernels == int(np.count_nonzero(mine & (events.klass == EventClass.COMPUTE)))
        gaps = analysis.gaps
        charged = int(gaps.by_cause[gaps.device == queue.device, Cause.LAUNCH].sum())
        assert queue.border_idle + queue.inner_idle == charged
        assert 0 <= queue.delay_p10 <= queue.delay_median <= queue.delay_p90


def only(record: Recorder) -> LaunchQueue:
    (queue,) = analyse(record.trace()).queues
    return queue


def test_a_launching_thread() -> None:
    record = Recorder()
    for i in range(5):
        record.launch("main", 10 * i, 10 * i + 4, 10 * i + 9, i + 1)
    record.launch("main", 41, 60, 90, 9)  # a long kernel that waits
    queue = only(record)
    assert (queue.launches, queue.kernels, queue.short_kernels) == (6, 6, 5)
    assert (queue.period, queue.call) == (10 * US, US)
    assert (queue.kernel_time, queue.short_time) == (55 * US, 25 * US)
    assert (queue.delay_p10, queue.delay_median) == (4 * US, 4 * US) and queue.delay_p90 == 19 * US
    assert queue.max_depth == 2


def test_where_in_the_step_the_host_falls_behind() -> None:
    record = Recorder()
    for step in range(4):
        at, first = 100 * step, 10 * (step + 1)
        record.step("main", step, at, at + 95)
        record.launch("main", at + 50, at + 53, at + 60, first)  # 50 late
        record.launch("main", at + 70, at + 73, at + 99, first + 1)  # 10 late
        record.call("main", "cuFuncGetAttribute", at + 1, at + 49)
        record.call("main", "cuFuncGetAttribute", at + 58, at + 69)
    queue = only(record)
    assert queue.border_idle > 3 * queue.inner_idle > 0


def test_single_ops_are_counted_as_dispatches() -> None:
    record = Recorder()
    for i in range(4):
        record.call("main", "EagerLocalExecute: Mul", 10 * i, 10 * i + 3)
        record.launch("main", 10 * i + 1, 10 * i + 4, 10 * i + 9, i + 1)
    assert only(record).dispatches == 3, "the first begins before the window"
    record.call("main", "PjitFunction(f)", 30, 33)
    assert only(record).dispatches == 4
