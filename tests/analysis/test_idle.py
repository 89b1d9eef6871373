"""Idle gaps and why: the gaps against a sweep, the causes by hand-made situations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.callers import causality
from tb_gpu_doctor.analysis.idle import find_gaps, no_gaps
from tb_gpu_doctor.analysis.launches import launch_of
from tb_gpu_doctor.analysis.results import Cause, Gaps, Window
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Trace
from tests.analysis import brute_force
from tests.analysis.small_traces import US, Recorder, traces

DEVICE_SIDE = (Cause.DEPENDENCY, Cause.PEER, Cause.KERNEL_GAP, Cause.QUEUED)


def gaps_in(trace: Trace, low: int, high: int) -> Gaps:
    return find_gaps(trace, Window(low, high), launch_of(trace), causality(trace))


@given(traces(), st.integers(-5, 70), st.integers(1, 60))
def test_gaps_are_what_no_stream_covers(trace: Trace, low: int, length: int) -> None:
    scale = max(int(trace.device_events.start.max(initial=0)) // 60, 1)
    low, high = low * scale, (low + length) * scale
    gaps = gaps_in(trace, low, high)
    events = trace.device_events
    for gpu in range(len(trace.devices)):
        mine = np.flatnonzero(gaps.device == gpu)
        found = list(zip(gaps.start[mine].tolist(), gaps.end[mine].tolist(), strict=True))
        assert found == brute_force.gaps(trace, gpu, low, high)
        work = [s for s in brute_force.spans(trace, gpu) if s[1] > s[0]]
        for row in mine.tolist():
            start, end = int(gaps.start[row]), int(gaps.end[row])
            previous = max((e for s, e, _ in work if s < start or e <= start), default=None)
            coming = min((s for s, _, _ in work if s >= end), default=None)
            before, after = int(gaps.before[row]), int(gaps.after[row])
            assert (before >= 0) == (previous is not None) and (after >= 0) == (coming is not None)
            if before >= 0:
                assert events.device[before] == gpu and events.end[before] == previous
            if after >= 0:
                assert events.device[after] == gpu and events.start[after] == coming
    assert (np.lexsort((gaps.start, gaps.device)) == np.arange(len(gaps))).all()


@given(traces())
def test_the_launch_cuts_each_gap(trace: Trace) -> None:
    result = analyse(trace)
    gaps, launch = result.gaps, launch_of(trace)
    for row in range(len(gaps)):
        start, end = int(gaps.start[row]), int(gaps.end[row])
        parts = dict(zip(Cause, gaps.by_cause[row].tolist(), strict=True))
        assert sum(parts.values()) == end - start and min(parts.values()) >= 0
        after, call = int(gaps.after[row]), int(gaps.launch[row])
        assert call == (launch[after] if after >= 0 else -1)
        device_side = sum(parts[c] for c in DEVICE_SIDE)
        if call < 0:  # nothing is known about why the next event came late, if there is one
            assert parts[Cause.NO_EVIDENCE] == end - start
            continue
        before = int(gaps.before[row])
        if before >= 0 and launch[before] == call:  # inside one graph launch
            assert device_side == end - start
            continue
        called = min(max(int(trace.host_events.start[call]), start), end)
        assert device_side <= end - called
        # the launch's own latency belongs to the synchronisation that drained the queue before it, if one did; where
        # work is not in the file, nobody knows
        assert result.lost is not None or parts[Cause.LAUNCH] + parts[Cause.SYNC] + device_side >= end - called


@pytest.mark.slow
def test_evidence_is_a_host_event_that_ran_in_the_gap() -> None:
    @given(traces())
    def check(trace: Trace) -> None:
        result = analyse(trace)
        gaps, host = result.gaps, trace.host_events
        for row in np.flatnonzero(gaps.evidence >= 0).tolist():
            event = int(gaps.evidence[row])
            if event == gaps.launch[row]:
                continue
            assert host.start[event] < gaps.end[row] and host.end[event] > gaps.start[row]

    check()


# -- by hand -------------------------------------------------------------------------------


def causes_of(record: Recorder, start: float, gpu: int = 0) -> dict[str, float]:
    """Causes in microseconds of the gap of a GPU that starts at a time."""
    gaps = analyse(record.trace()).gaps
    (row,) = np.flatnonzero((gaps.start == round(start * US)) & (gaps.device == gpu)).tolist()
    return {Cause(c).id: int(v) / US for c, v in enumerate(gaps.by_cause[row]) if v}


def evidence_of(record: Recorder, start: float) -> str:
    trace = record.trace()
    gaps = analyse(trace).gaps
    (row,) = np.flatnonzero(gaps.start == round(start * US)).tolist()
    event = int(gaps.evidence[row])
    return trace.strings[trace.host_events.name[event]] if event >= 0 else ""


def busy(record: Recorder, until: float, stream: int = 0, gpu: int = 0, thread: str = "main") -> None:
    """A kernel from 0 on, launched in time."""
    record.launch(thread, -20, 0, until, 1000 + gpu, stream=stream, gpu=gpu)


def test_the_launching_thread_fetches_input() -> None:
    record = Recorder()
    busy(record, 100)
    record.call("main", "IteratorGetNext", 110, 980)
    record.launch("main", 990, 995, 1005, 2)
    causes = causes_of(record, 100)
    assert causes["input"] == 870
    assert causes.get("launch", 0) + causes.get("no_evidence", 0) == 25
    assert evidence_of(record, 100) == "IteratorGetNext"


def test_another_thread_fetches_input_while_the_step_waits() -> None:
    record = Recorder()
    busy(record, 100)
    record.call("main", "FunctionRun", 90, 1010)
    record.call("tf_data_iterator_get_next/7", "IteratorGetNextOp::DoCompute", 100, 950)
    record.call("tf_Compute/3", "ExecutorState::Process", 955, 1010)
    record.launch("main", 990, 995, 1005, 2)
    causes = causes_of(record, 100)
    assert causes["input"] == 850
    assert causes["launch"] == 45
    assert evidence_of(record, 100) == "IteratorGetNextOp::DoCompute"


def test_a_prefetching_thread_that_nobody_waits_for_is_no_input() -> None:
    record = Recorder()
    busy(record, 100)
    record.call("main", "PjitFunction(step)", 90, 1010)
    record.call("tf_data_iterator_get_next/7", "IteratorGetNextOp::DoCompute", 100, 950)
    record.launch("main", 990, 995, 1005, 2)
    assert set(causes_of(record, 100)) == {"launch"}


def test_work_that_another_thread_was_handed_leads_back_to_its_producer() -> None:
    """JAX: the Python thread loads data, then Execute hands the work to the thread that launches."""
    record = Recorder()
    busy(record, 100, thread="py_xla_execute/2")
    record.call("python", "$data_loader.py:31 __next__", 50, 900)
    record.call("python", "PjRtStreamExecutorLoadedExecutable::Execute", 900, 920, producer_type=4, producer_id=77)
    record.call(
        "py_xla_execute/2", "PjRtStreamExecutorLoadedExecutable::EnqueueExecution", 925, 1010,
        consumer_type=4, consumer_id=77,
    )  # fmt: skip
    record.launch("py_xla_execute/2", 990, 995, 1005, 2)
    # 5 us between the end of Execute and the start of EnqueueExecution show nothing
    assert causes_of(record, 100) == {"input": 800, "no_evidence": 5, "launch": 90}
    assert evidence_of(record, 100) == "$data_loader.py:31 __next__"


def test_two_hops_back() -> None:
    record = Recorder()
    busy(record, 100, thread="launcher")
    record.call("loader", "Iterator::Map", 100, 700)
    record.call("loader", "PrefetchProduce", 700, 710, producer_type=1, producer_id=5)
    record.call("python", "ExecutorState::Process", 720, 910, consumer_type=1, consumer_id=5)
    record.call("python", "XlaCompile", 720, 900)
    record.call("python", "Execute", 900, 910, producer_type=2, producer_id=6)
    record.call("launcher", "EnqueueExecution", 910, 1000, consumer_type=2, consumer_id=6)
    record.launch("launcher", 990, 995, 1005, 2)
    assert causes_of(record, 100) == {"input": 610, "no_evidence": 10, "compile": 180, "launch": 95}


def test_launch_bound() -> None:
    """Tiny kernels, each launched later than the one before it ended."""
    record = Recorder()
    for i in range(20):
        at = 10.0 * i
        record.call("main", "PjitFunction(add)", at, at + 8)
        record.launch("main", at + 2, at + 6, at + 7, i + 1)
    result = analyse(record.trace())
    (parts,) = result.accounting
    assert parts.idle == (6 + 19 * 9) * US  # a step begins where the host begins it
    assert parts.idle_of(Cause.LAUNCH) == parts.idle


def test_a_queued_kernel_starts_after_the_devices_own_pause() -> None:
    record = Recorder()
    record.launch("main", 0, 20, 40, 1)
    record.launch("main", 2, 41.5, 60, 2)
    assert causes_of(record, 40) == {"kernel_gap": 1.5}


def test_a_kernel_waits_for_a_copy_on_another_stream() -> None:
    record = Recorder()
    record.launch("main", 0, 20, 40, 1)
    record.launch("main", 1, 60, 90, 2, stream=1, klass=EventClass.COPY, copy_kind=CopyKind.H2D)
    record.launch("main", 2, 95, 120, 3)
    assert causes_of(record, 40) == {"dependency": 20}
    assert causes_of(record, 90) == {"dependency": 5}


def test_launched_in_time_but_late_on_its_own_stream_waits_for_something() -> None:
    record = Recorder()
    record.launch("main", 0, 20, 40, 1)
    record.launch("main", 2, 540, 560, 2)
    assert causes_of(record, 40) == {"queued": 500}


def test_gap_inside_a_cuda_graph_is_never_the_hosts() -> None:
    record = Recorder()
    record.call("main", "cuGraphLaunch", 0, 80, 1)
    for start, end in ((20, 25), (27, 30), (60, 70)):
        record.work(start, end, 1, graph=4)
    assert causes_of(record, 25) == {"kernel_gap": 2}
    assert causes_of(record, 30) == {"queued": 30}


def test_gap_between_two_graphs_is_the_hosts_if_it_launched_late() -> None:
    record = Recorder()
    record.call("main", "cuGraphLaunch", 0, 5, 1)
    record.work(10, 20, 1, graph=4)
    record.call("main", "$metrics.py:12 log", 20, 480)
    record.call("main", "cuGraphLaunch", 490, 495, 2)
    record.work(500, 510, 2, graph=4)
    causes = causes_of(record, 20)
    assert causes["host_other"] == 460
    assert causes["launch"] == 20


def test_without_a_known_launch_nothing_is_said() -> None:
    record = Recorder()
    busy(record, 100)
    record.call("main", "IteratorGetNext", 110, 980)
    record.work(1000, 1010)
    assert causes_of(record, 100) == {"no_evidence": 900}


def test_the_end_of_a_gpu_that_is_done_earlier_has_no_evidence() -> None:
    record = Recorder(gpus=2)
    busy(record, 100)
    busy(record, 700, gpu=1)
    assert causes_of(record, 100) == {"no_evidence": 600}


def test_an_unused_gpu_is_idle_without_evidence() -> None:
    record = Recorder(gpus=2)
    busy(record, 100)
    assert causes_of(record, 0, gpu=1) == {"no_evidence": 100}
    result = analyse(record.trace())
    assert result.accounting[1].idle == result.accounting[1].wall == 100 * US
    assert [s.device for s in result.summaries] == [0]


def test_event_behind_the_window_still_ends_the_last_gap() -> None:
    """GPU 1 is done with its steps at 260 us; its next kernel, behind the window's end, came late for want of input."""
    record = Recorder(gpus=2)
    for step in range(3):
        at = 100.0 * step
        record.step("main", step, at, at + 50)
        record.launch("main", at + 2, at + 10, at + 90, 10 + step, gpu=0)
        record.launch("main", at + 3, at + 10, at + 60, 20 + step, gpu=1)
    record.call("main", "IteratorGetNext", 255, 400)
    record.launch("main", 405, 410, 420, 98, gpu=0)
    record.launch("main", 407, 410, 420, 99, gpu=1)
    result = analyse(record.trace())
    assert result.window == Window(0, 290 * US)
    assert causes_of(record, 260, gpu=1) == {"input": 30}
    assert result.accounting[1].idle_of(Cause.INPUT) == 30 * US


def test_event_before_the_window_still_says_which_stream_worked() -> None:
    record = Recorder()
    record.launch("main", 0, 10, 20, 1)
    record.launch("main", 1, 22, 30, 2)
    gaps = gaps_in(record.trace(), 21 * US, 30 * US)
    assert gaps.by_cause[0, Cause.KERNEL_GAP] == 1 * US


def test_a_launch_that_seems_to_start_after_its_kernel_is_the_hosts() -> None:
    """Host and device clocks are joined once: 10 of 18,627 launches start after their kernel."""
    record = Recorder()
    busy(record, 100)
    record.call("main", "IteratorGetNext", 110, 980)
    record.work(1000, 1010, 2)
    record.call("main", "cuLaunchKernel", 1000.2, 1001, 2)
    causes = causes_of(record, 100)
    assert causes["input"] == 870
    assert not {"kernel_gap", "dependency"} & set(causes)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("XlaCompile", "compile"),
        ("tf.function-graph_building on step", "compile"),
        ("SaveV2", "checkpoint"),
        ("cuStreamSynchronize", "sync"),
        ("cuMemcpyDtoH_v2", "sync"),
        ("$metrics.py:12 log", "host_other"),
        ("IteratorGetNextSync", "input"),
    ],
)
def test_what_the_host_did_instead(name: str, cause: str) -> None:
    record = Recorder()
    busy(record, 100)
    record.call("main", name, 100, 980)
    record.launch("main", 990, 995, 1005, 2)
    causes = causes_of(record, 100)
    assert causes[cause] == 880
    assert set(causes) <= {cause, "launch"}
    assert evidence_of(record, 100) == name


def test_a_host_that_shows_nothing_proves_nothing() -> None:
    record = Recorder()
    busy(record, 100)
    record.launch("main", 990, 995, 1005, 2)
    causes = causes_of(record, 100)
    assert causes == {"no_evidence": 890, "launch": 5}


def test_driver_thread_is_followed_to_the_thread_that_made_its_calls() -> None:
    """`Host Threads/<tid>` holds nothing but driver calls; what happened before them is on the caller's own line."""
    record = Recorder()
    for i in range(10):
        at = 1000.0 * i
        record.call("python", "Iterator::Root", at, at + 700)
        record.call("python", f"PjitFunction(f{i % 2})", at + 700, at + 900)
        record.call("idle_thread", "Wait", at, at + 100)
        record.call("Host Threads/4711", "cuLaunchKernel", at + 800, at + 805, 1 + i)
        record.work(at + 810, at + 850, 1 + i)
    causes = causes_of(record, 850)
    assert causes["input"] == 700
    # the call's own surroundings, a hole of at most 100 us beside them, and the latency
    assert causes["launch"] == 50 + 100 + 100 + 10
    assert set(causes) == {"input", "launch"}


def test_gpus_of_one_process_have_their_own_gaps() -> None:
    record = Recorder(gpus=2)
    busy(record, 100)
    busy(record, 100, gpu=1)
    record.launch("main", 150, 160, 500, 2)
    record.call("second", "IteratorGetNext", 100, 480)
    record.launch("second", 485, 490, 500, 3, gpu=1)
    assert "input" not in causes_of(record, 100) or causes_of(record, 100)["input"] <= 50
    assert causes_of(record, 100, gpu=1)["input"] == 380


def test_work_that_a_synchronisation_left_uncovered_is_its_fault() -> None:
    record = Recorder()
    busy(record, 100)
    record.call("main", "cuStreamSynchronize", 10, 102)
    record.call("main", "$metrics.py:12 log", 102, 300)
    record.launch("main", 310, 315, 400, 2)
    record.call("main", "$metrics.py:12 log", 312, 600)  # no synchronisation before this gap
    record.launch("main", 610, 615, 700, 3)
    assert causes_of(record, 100) == {"sync": 215}
    assert causes_of(record, 400)["host_other"] == 200


def test_a_synchronisation_before_a_fetch_leaves_the_fetch_its_time() -> None:
    record = Recorder()
    busy(record, 100)
    record.call("main", "cuStreamSynchronize", 10, 101)
    record.call("main", "IteratorGetNext", 101, 900)
    record.launch("main", 910, 915, 1000, 2)
    assert causes_of(record, 100) == {"input": 799, "sync": 16}


def test_a_synchronisation_long_before_the_gap_has_no_part_in_it() -> None:
    record = Recorder()
    busy(record, 100)
    record.call("main", "cuStreamSynchronize", 10, 60)
    record.call("main", "$metrics.py:12 log", 60, 300)
    record.launch("main", 310, 315, 400, 2)
    assert "sync" not in causes_of(record, 100)


def test_a_queued_kernel_that_starts_when_another_gpu_is_done_waited_for_it() -> None:
    record = Recorder(gpus=2)
    record.launch("main", 0, 10, 100, 1)
    record.launch("main", 1, 10, 500, 2, gpu=1)
    record.launch("main", 2, 503, 600, 3)
    record.work(600, 700, gpu=1)
    assert causes_of(record, 100) == {"peer": 403}


def test_a_queued_kernel_that_starts_later_did_not_wait_for_the_other_gpu() -> None:
    record = Recorder(gpus=2)
    record.launch("main", 0, 10, 100, 1)
    record.launch("main", 1, 10, 450, 2, gpu=1)
    record.launch("main", 2, 503, 600, 3)
    assert causes_of(record, 100) == {"queued": 403}


def test_the_end_of_the_window_is_no_sign_of_a_peer() -> None:
    record = Recorder(gpus=2)
    record.launch("main", 0, 10, 900, 1, gpu=0)
    record.launch("main", 1, 10, 300, 2, gpu=1)
    record.launch("main", 2, 4000, 4100, 3, gpu=1)  # queued long before, and it starts behind the window
    gaps = gaps_in(record.trace(), 0, 900 * US)
    (row,) = np.flatnonzero((gaps.device == 1) & (gaps.start == 300 * US)).tolist()
    assert gaps.by_cause[row, Cause.QUEUED] == 600 * US


def test_no_gap_at_all() -> None:
    assert len(no_gaps()) == 0 and no_gaps().by_cause.shape == (0, len(Cause))
    record = Recorder()
    busy(record, 100)
    assert len(analyse(record.trace()).gaps) == 0


def test_sums_hold_with_very_many_gaps() -> None:
    count = 30_000
    record = Recorder(unit=1)
    for i in range(count):
        record.device_rows.append(
            {"device": 0, "stream": 0, "start": i * 1000, "duration": 10 + i % 7, "name": record.string("k"),
             "klass": 0, "correlation": i + 1, "copy_kind": 0, "graph": -1}
        )  # fmt: skip
    trace = record.trace()
    gaps = analyse(trace).gaps
    assert len(gaps) == count - 1
    assert (gaps.by_cause.sum(axis=1) == gaps.end - gaps.start).all()
    assert (gaps.cause == Cause.NO_EVIDENCE).all()


@pytest.mark.parametrize(
    "name", ["cudaFree", "cudaMalloc", "hipFree", "cudaMallocAsync", "cuMemCreate", "cudaHostAlloc"]
)
def test_the_drivers_allocator_is_no_launching(name: str) -> None:
    record = Recorder()
    busy(record, 100)
    record.call("main", "aten::empty", 100, 982)
    record.call("main", name, 101, 981)
    record.launch("main", 990, 995, 1005, 2)
    assert causes_of(record, 100)["allocator"] == 880
    assert evidence_of(record, 100) == name


def values_in_a_row(record: Recorder, apart: float) -> None:
    """A step of 1 ms, three values read one after the other, then 500 us of which nothing is recorded."""
    record.launch("main", 0, 10, 1000, 1)
    at = 20.0
    for index in range(3):
        done = 1000.0 + index * apart
        record.call("main", "cudaMemcpyAsync", at, at + 3, 10 + index)
        record.work(done + 1, done + 2, 10 + index, klass=EventClass.COPY, copy_kind=CopyKind.D2H)
        record.call("main", "cudaStreamSynchronize", at + 4, done + 3)
        at = done + apart - 5
    end = 1000 + 2 * apart + 3 + 500
    record.launch("main", end, end + 10, end + 100, 2)


@pytest.mark.parametrize("apart", [20.0, 140.0])
def test_several_waits_in_a_row_are_one(apart: float) -> None:
    record = Recorder()
    values_in_a_row(record, apart)
    causes = causes_of(record, round(1000 + 2 * apart + 2))
    assert causes["sync"] >= 490
    assert causes.get("no_evidence", 0) == 0


def test_a_wait_behind_real_work_is_not_the_one_before() -> None:
    """The second wait finds a busy GPU: what it waited for counts alone, and that was next to nothing."""
    record = Recorder()
    record.launch("main", 0, 10, 1000, 1)
    record.call("main", "cudaStreamSynchronize", 20, 1003)
    record.launch("main", 1010, 1020, 1400, 2)
    record.call("main", "cudaStreamSynchronize", 1395, 1401)
    record.launch("main", 2400, 2410, 2500, 3)
    causes = causes_of(record, 1400)
    assert causes["sync"] <= 10
    assert causes["no_evidence"] >= 980


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("pauses", "is_habit"), [((3, 6), False), ((1, 3, 5, 7), True)])
def test_what_follows_a_wait_now_and_then_is_not_due_to_it(
    named: bool, pauses: tuple[int, ...], is_habit: bool
) -> None:
    """Eight steps that end with a wait and 50 us of Python; behind some of them the host does 2 ms of something."""
    record, at, begun = Recorder(), 0.0, {}
    for step in range(9):
        record.launch("main", at, at + 10, at + 1000, 1 + step)
        record.call("main", "cudaStreamSynchronize", at + 20, at + 1003)
        begun[step] = round(at + 1000)
        at += 1050
        if step in pauses:
            if named:
                record.call("main", "$callbacks.py:7 evaluate", at - 40, at + 2000)
            at += 2000
    causes = causes_of(record, begun[3])
    other = "host_other" if named else "no_evidence"
    if is_habit:
        assert causes["sync"] >= 2000 and causes.get(other, 0) == 0
    else:
        assert causes["sync"] <= 60 and causes[other] >= 1980


def test_a_value_read_on_one_thread_drains_what_another_one_launches() -> None:
    """The reading thread shows the copy and a short wait; that it had waited the copy's own lateness tells."""
    record = Recorder()
    for step in range(3):
        at = 2000.0 * step
        record.launch("executor", at, at + 10, at + 1000, 1 + 10 * step)
        record.call("python", "cuMemcpyDtoHAsync", at + 1000, at + 1002, 2 + 10 * step)
        record.work(at + 1004, at + 1005, 2 + 10 * step, klass=EventClass.COPY, copy_kind=CopyKind.D2H)
        record.call("python", "cuStreamSynchronize", at + 1006, at + 1010)
    causes = causes_of(record, 1005)
    assert causes["sync"] >= 980
    assert causes.get("no_evidence", 0) == 0


def test_a_copy_to_the_host_that_nobody_waits_for_proves_no_wait() -> None:
    record = Recorder()
    for step in range(3):
        at = 2000.0 * step
        record.launch("executor", at, at + 10, at + 1000, 1 + 10 * step)
        record.call("python", "cuMemcpyDtoHAsync", at + 1000, at + 1002, 2 + 10 * step)
        record.work(at + 1004, at + 1005, 2 + 10 * step, klass=EventClass.COPY, copy_kind=CopyKind.D2H)
    causes = causes_of(record, 1005)
    assert "sync" not in causes
    assert causes["no_evidence"] >= 980


def test_code_that_is_loaded_holds_up_the_launch_it_lies_in() -> None:
    record = Recorder()
    record.launch("main", 0, 10, 100, 1)
    record.call("main", "aten::linalg_inv_ex", 110, 90_120)
    record.call("main", "cudaLaunchKernel", 115, 90_115, 2)
    record.call("overheads", "overhead: Lazy Function Loading", 130, 90_100)
    record.work(90_120, 90_200, 2)
    causes = causes_of(record, 100)
    assert causes["compile"] == 89_970
    assert evidence_of(record, 100) == "overhead: Lazy Function Loading"


@pytest.mark.parametrize(
    ("name", "cause"), [("XlaCompile", "compile"), ("SaveV2", "checkpoint"), ("cudaMalloc", "allocator")]
)
def test_what_fills_a_gap_on_another_thread_is_named(name: str, cause: str) -> None:
    record = Recorder()
    busy(record, 100)
    record.call("somebody", name, 110, 980)
    record.launch("main", 990, 995, 1005, 2)
    causes = causes_of(record, 100)
    assert causes[cause] >= 880
    assert evidence_of(record, 100) == name


def test_what_runs_all_the_time_in_the_background_explains_no_gap() -> None:
    record = Recorder()
    busy(record, 100)
    record.call("writer", "SaveV2", 0, 5000)
    record.launch("main", 990, 995, 4900, 2)
    assert "checkpoint" not in causes_of(record, 100)


def test_half_a_gap_is_not_filled() -> None:
    record = Recorder()
    busy(record, 100)
    record.call("somebody", "XlaCompile", 110, 550)
    record.launch("main", 990, 995, 1005, 2)
    assert "compile" not in causes_of(record, 100)


def test_the_users_code_on_the_thread_of_the_steps_is_named() -> None:
    record = Recorder()
    for step in range(2):
        at = 1000.0 * step
        record.step("python", step, at, at + 1000)
        record.launch("executor", at + 5, at + 10, at + 400, 1 + step)
        record.call("python", "$train.py:88 log_metrics", at + 410, at + 990)
    causes = causes_of(record, 400)
    assert causes["host_other"] >= 580
    assert evidence_of(record, 400) == "$train.py:88 log_metrics"
