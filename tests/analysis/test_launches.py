"""The join of device events and launch calls, against trying all pairs.

The launch queue against counting at every instant.

Launching beside many and beside few input workers.

Streams that take turns although they need not.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.launches import (
    MAX_SKEW,
    Contention,
    LaunchQueue,
    StreamOverlap,
    find_serialized,
    launch_of,
    launch_stats,
)
from tb_gpu_doctor.analysis.results import Cause, Window
from tb_gpu_doctor.traces.columns import EventClass, Trace
from tests.analysis import brute_force
from tests.analysis.small_traces import US, Recorder, traces
from tests.real_traces import real_trace


@given(traces())
def test_the_join(trace: Trace) -> None:
    uses = Counter(trace.host_events.correlation.tolist())
    found = launch_of(trace).tolist()
    for i, possible in enumerate(brute_force.launches_of(trace, MAX_SKEW)):
        if uses[int(trace.device_events.correlation[i])] < 2:
            assert found[i] == max(possible, default=-1)
        else:  # of several calls with one id the join takes one, or none; it never invents one
            assert found[i] in possible | {-1}


def test_one_launch_of_a_graph_has_many_kernels() -> None:
    record = Recorder()
    record.call("main", "cuGraphLaunch", 0, 5, 9)
    for i in range(4):
        record.work(10 + i, 10.5 + i, 9, graph=3)
    assert launch_of(record.trace()).tolist() == [0, 0, 0, 0]


def test_a_launch_may_seem_to_start_a_little_after_its_kernel() -> None:
    record = Recorder()
    record.work(10, 12, 1)
    record.call("main", "cuLaunchKernel", 11, 13, 1)
    assert launch_of(record.trace()).tolist() == [0]


def test_a_call_long_after_a_kernel_did_not_launch_it() -> None:
    record = Recorder()
    record.work(10, 12, 1)
    record.call("main", "cuLaunchKernel", 12 + MAX_SKEW / US + 1, 12 + MAX_SKEW / US + 2, 1)
    assert launch_of(record.trace()).tolist() == [-1]


@pytest.mark.parametrize("correlation", [-1, 0])
def test_no_correlation_joins_nothing(correlation: int) -> None:
    record = Recorder()
    record.work(10, 12, correlation)
    record.call("main", "cuLaunchKernel", 0, 1, correlation)
    assert launch_of(record.trace()).tolist() == [-1]


# Device events, and how many of them have their launch call in the file, counted by a protobuf parser.
REAL = {
    "jax_conv_8xmi300x": (235, 235),
    "jax_conv_8xmi300x_older": (78, 78),
    "jax_gemm_1of8_mi300x": (54, 54),
    "jax_te_attention": (150, 150),
    "tf_bert_8gpu": (1556, 1556),
    "xla_2xgtx1080ti": (2, 2),
}


@pytest.mark.parametrize("folder", REAL)
def test_every_device_event_of_the_real_files_has_its_launch(folder: str) -> None:
    trace = real_trace(folder)
    launch = launch_of(trace)
    assert (len(launch), int(np.count_nonzero(launch >= 0))) == REAL[folder]
    known = launch >= 0
    same = trace.host_events.correlation[launch[known]] == trace.device_events.correlation[known]
    assert same.all()


def test_launch_stats() -> None:
    record = Recorder(gpus=3)
    record.launch("main", 0, 5, 9, 1)  # 4 us
    record.launch("main", 2, 9, 29, 2)  # 20 us
    record.call("main", "cuGraphLaunch", 4, 10, 3)
    record.work(30, 31, 3)
    record.work(32, 33, 3)
    record.launch("main", 12, 34, 36, 4, klass=EventClass.COPY)
    record.launch("other", 40, 100, 101, 5, gpu=1)  # outside the window
    trace = record.trace()
    (stats,) = launch_stats(trace, launch_of(trace), Window(0, 50 * US))
    assert stats.device == 0
    assert stats.launches == 4
    assert stats.short_kernels == 3
    assert stats.median_kernel == 2_500_000


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


STEP, LAUNCHES = 2_000, 20


def run(
    slowdown: float, *, workers: int = 8, steps: int = 8, launches: int = LAUNCHES, prefix: str = "tf_data_private"
) -> Recorder:
    """Steps of which every other one runs beside all workers; beside them each op takes ``slowdown`` times as long."""
    record = Recorder()
    for step in range(steps):
        at, crowded = step * STEP, step % 2 == 1
        record.step("python", step, at, at + STEP - 1)
        length = 20 * (slowdown if crowded else 1)
        for i in range(launches):
            begin, number = at + i * (STEP / launches), step * launches + i + 1
            record.call("python", f"dense/Mul_{i % 5}:Mul", begin, begin + length)
            record.call("python", "cuLaunchKernel", begin + length / 2, begin + length - 1, number)
            record.work(begin + length + 2, begin + STEP / launches + 1, number)
        for worker in range(workers if crowded else 1):
            record.call(f"{prefix}_threadpool/{worker}", "ExecutorState::Process", at, at + STEP)
    return record


def only_contention(record: Recorder) -> Contention:
    (found,) = analyse(record.trace()).contention
    return found


def test_calls_that_take_three_times_as_long() -> None:
    record = run(3)
    analysis = analyse(record.trace())
    (found,) = analysis.contention
    assert found.slowdown == pytest.approx(3, rel=0.1)
    assert (found.few, found.many) == (2, 6)
    assert found.typical_many == pytest.approx(3 * found.typical_few, rel=0.15)
    # of the idle time beside many workers two thirds would not be there
    crowded = analysis.gaps.start // (STEP * US) % 2 == 1
    charged = analysis.gaps.by_cause[:, [Cause.LAUNCH, Cause.HOST_OTHER]].sum(axis=1)
    assert found.lost == pytest.approx(charged[crowded].sum() * 2 / 3, rel=0.1)
    assert found.lost == found.gap_part.sum() and (found.gap_part[~crowded] == 0).all()
    assert found.step_part.sum() == pytest.approx(found.lost, rel=0.05)
    assert len(found.workers) == 4 and found.end > found.start


def test_the_same_speed_is_no_contention() -> None:
    assert all(found.slowdown < 1.2 for found in analyse(run(1).trace()).contention)


@pytest.mark.parametrize(
    "record",
    [
        run(3, workers=3),  # too few to fill a host
        run(3, prefix="tf_Compute"),  # no input workers
        run(3, steps=4),  # two crowded stretches may be anything
        run(3, steps=6, launches=3),  # too few calls to compare
    ],
)
def test_what_cannot_be_told_is_not_said(record: Recorder) -> None:
    assert analyse(record.trace()).contention == ()


def test_workers_that_always_run_leave_nothing_to_compare_with() -> None:
    record = run(3)
    for worker in range(8):
        record.call(f"tf_data_private_threadpool/{worker}x", "ExecutorState::Process", 0, 8 * STEP)
    assert analyse(record.trace()).contention == ()


@settings(deadline=None, max_examples=40)
@given(traces())
def test_any_trace(trace: Trace) -> None:
    analyse(trace)


def forked(
    record: Recorder, groups: int, *, apart: float = 1.5, queued: bool = True, klass: EventClass = EventClass.COMPUTE
) -> None:
    """Groups of four kernels on four streams, one after the other; each of 40 us."""
    at = 1_000.0
    for i in range(groups * 4):
        call = i * 5.0 if queued else at - 3
        record.launch("main", call, at, at + 40, i + 1, stream=i % 4, klass=klass if i % 4 else EventClass.COMPUTE)
        at += 40 + apart


def found(record: Recorder) -> tuple[StreamOverlap, ...]:
    trace = record.trace()
    return find_serialized(trace, Window(0, 1_000_000 * US), launch_of(trace))


def test_streams_that_take_turns() -> None:
    record = Recorder()
    forked(record, 8)
    (overlap,) = found(record)
    assert (overlap.device, overlap.streams, overlap.handovers, overlap.reversed) == (0, 4, 31, 0)
    events = record.trace().device_events
    assert events.stream[overlap.first] != events.stream[overlap.waited_for]
    assert events.start[overlap.first] >= events.end[overlap.waited_for]


def test_an_overlap_disproves_it() -> None:
    record = Recorder()
    forked(record, 8)
    record.launch("main", 300, 1_000, 1_020, 99, stream=3)
    assert found(record) == ()


def test_kernels_launched_when_the_other_was_over_did_not_wait() -> None:
    record = Recorder()
    forked(record, 8, queued=False)
    assert found(record) == ()


def test_a_kernel_that_starts_much_later_waited_for_something_else() -> None:
    record = Recorder()
    forked(record, 8, apart=50)
    assert found(record) == ()


def test_one_stream_needs_no_explanation() -> None:
    record = Recorder()
    for i in range(20):
        record.launch("main", i, 100 + 10 * i, 109 + 10 * i, i + 1)
    assert found(record) == ()


def test_collectives_wait_for_what_they_exchange() -> None:
    record = Recorder()
    for i in range(20):
        kind = EventClass.COMMUNICATION if i % 2 else EventClass.COMPUTE
        record.launch("main", i, 100 + 41 * i, 140 + 41 * i, i + 1, stream=i % 2, klass=kind)
    assert found(record) == ()


def test_a_kernel_behind_its_own_stream_did_not_wait_for_another_one() -> None:
    record = Recorder()
    # pairs: two on stream 0, then one on stream 1 whose stream was busy with a copy until then
    at = 1_000.0
    for i in range(10):
        record.launch("main", 3 * i, at, at + 40, 3 * i + 1, stream=0)
        record.work(at, at + 40, 500 + i, stream=1, klass=EventClass.COPY)
        record.launch("main", 3 * i + 1, at + 41, at + 50, 3 * i + 2, stream=1)
        at += 90
    assert found(record) == ()


def test_a_kernel_that_was_launched_first_cannot_depend_on_the_other() -> None:
    record = Recorder()
    at = 1_000.0
    for i in range(6):
        record.launch("main", 10 * i, at + 41, at + 80, 2 * i + 1, stream=1)
        record.launch("main", 10 * i + 5, at, at + 40, 2 * i + 2, stream=0)
        at += 100
    (overlap,) = found(record)
    assert (overlap.handovers, overlap.reversed) == (6, 6)


def test_kernels_of_one_graph_launch_have_their_own_order() -> None:
    record = Recorder()
    record.call("main", "cuGraphLaunch", 0, 5, 7)
    for i in range(40):
        record.work(100 + 41 * i, 140 + 41 * i, 7, stream=i % 4, graph=1)
    assert found(record) == ()


@settings(deadline=None)
@given(traces())
def test_any_trace_stream_overlap(trace: Trace) -> None:
    for overlap in find_serialized(trace, Window(0, 10**15), launch_of(trace)):
        events = trace.device_events
        assert 0 <= overlap.reversed <= overlap.handovers
        assert events.device[overlap.first] == events.device[overlap.waited_for] == overlap.device
        assert events.stream[overlap.first] != events.stream[overlap.waited_for]
