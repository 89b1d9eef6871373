"""Streams that take turns although they need not."""

from __future__ import annotations

from hypothesis import given, settings

from tb_gpu_doctor.analysis.launch_results import StreamOverlap
from tb_gpu_doctor.analysis.launches import launch_of
from tb_gpu_doctor.analysis.results import Window
from tb_gpu_doctor.analysis.stream_overlap import find_serialized
from tb_gpu_doctor.traces.columns import EventClass, Trace
from tests.analysis.small_traces import US, Recorder, traces


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
def test_any_trace(trace: Trace) -> None:
    for overlap in find_serialized(trace, Window(0, 10**15), launch_of(trace)):
        events = trace.device_events
        assert 0 <= overlap.reversed <= overlap.handovers
        assert events.device[overlap.first] == events.device[overlap.waited_for] == overlap.device
        assert events.stream[overlap.first] != events.stream[overlap.waited_for]
