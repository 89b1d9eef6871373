"""Copies against loops over single picoseconds, and the rules for who waited for what.

Ops on the CPU between GPU ops: what proves them, what does not, and what they cost.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tb_gpu_doctor.analysis.accounting import account, all_busy_sets
from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.callers import causality
from tb_gpu_doctor.analysis.idle import find_gaps
from tb_gpu_doctor.analysis.launches import launch_of
from tb_gpu_doctor.analysis.lost_events import find_launches
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.analysis.steps import find_steps, find_window
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.analysis.transfers import Bounces, CopyTotals, Transfers, find_transfers
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Trace
from tests.analysis.small_traces import US, Recorder, traces
from tests.real_traces import real_trace


def found_in(trace: Trace) -> tuple[Transfers, TraceAnalysis] | None:
    analysis = analyse(trace)
    if analysis.window is None:
        return None
    assert analysis.transfers is not None
    return analysis.transfers, analysis


def is_copy(trace: Trace, row: int) -> bool:
    events = trace.device_events
    return events.klass[row] >= EventClass.COPY or events.copy_kind[row] == CopyKind.P2P


def exposed_by_hand(trace: Trace, low: int, high: int) -> dict[int, int]:
    """Per copy the time in [low, high) that it alone explains: no kernel runs, and no copy that started before it."""
    events = trace.device_events
    found: dict[int, int] = {}
    for gpu in range(len(trace.devices)):
        rows = [i for i in range(len(events)) if events.device[i] == gpu]
        spans = {i: (int(events.start[i]), int(events.end[i])) for i in rows}
        cuts = sorted({low, high, *(t for span in spans.values() for t in span if low < t < high)})
        for between in (False, True):
            copies = [
                i for i in rows if is_copy(trace, i) and (events.copy_kind[i] == CopyKind.P2P) == between
            ]  # in order of start
            hiding = [
                i for i in rows if events.klass[i] == EventClass.COMPUTE
                or (not between and events.klass[i] == EventClass.COMMUNICATION)
            ]  # fmt: skip
            for begin, end in pairwise(cuts):
                if any(spans[i][0] <= begin < spans[i][1] for i in hiding):
                    continue
                running = [i for i in copies if spans[i][0] <= begin < spans[i][1]]
                if running:
                    found[running[0]] = found.get(running[0], 0) + end - begin
    return found


@settings(deadline=None)
@given(traces())
def test_exposed_time_is_what_nothing_hides(trace: Trace) -> None:
    found = found_in(trace)
    if found is None:
        return
    transfers, analysis = found
    assert analysis.window is not None
    window = analysis.window
    events = trace.device_events
    by_hand = exposed_by_hand(trace, window.start, window.end)
    rows = [
        i for i in range(len(events))
        if is_copy(trace, i) and events.start[i] < window.end and events.end[i] > window.start
    ]  # fmt: skip
    assert transfers.rows.tolist() == rows
    assert dict(zip(rows, transfers.exposed.tolist(), strict=True)) == {row: by_hand.get(row, 0) for row in rows}
    # and so the directions sum to the accounting, to the picosecond
    for accounting in analysis.accounting:
        mine = [t for t in transfers.totals if t.device == accounting.device and t.direction is not CopyKind.P2P]
        assert sum(t.exposed for t in mine) == accounting.transfer
    assert (transfers.late >= 0).all() and (transfers.late <= transfers.exposed).all()


@settings(deadline=None)
@given(traces())
def test_waits_and_steps_by_hand(trace: Trace) -> None:
    found = found_in(trace)
    if found is None:
        return
    transfers, analysis = found
    gaps, steps, events, host = analysis.gaps, analysis.steps, trace.device_events, trace.host_events
    launch = launch_of(trace).tolist()
    blocking = [i for i in transfers.rows.tolist() if blocks(trace, launch, i)]
    for at in range(len(gaps)):
        low, high, gpu = int(gaps.start[at]), int(gaps.end[at]), int(gaps.device[at])
        threads = {
            int(host.thread[launch[i]]) for i in range(len(events)) if events.device[i] == gpu and launch[i] >= 0
        }
        calls = [launch[i] for i in blocking if int(host.thread[launch[i]]) in threads]
        ended_by, call = int(gaps.after[at]), int(gaps.launch[at])
        if call >= 0:  # from its launch on, what ends the gap waits for the device, but for the staging of its bytes
            launched = min(max(int(host.start[call]), low), high)
            staging = 20 * US + 2000 * max(int(events.copy_bytes[ended_by]), 0) if ended_by in blocking else 0
            high = min(high, launched + staging)
        cuts = sorted({low, high, *(int(t) for c in calls for t in (host.start[c], host.end[c]) if low < t < high)})
        waited = sum(
            end - begin for begin, end in pairwise(cuts) if any(host.start[c] <= begin < host.end[c] for c in calls)
        )
        assert transfers.gap_wait[at] == waited
    complete = np.flatnonzero(steps.complete).tolist()
    for place, step in enumerate(complete):
        for gpu in range(len(trace.devices)):
            low, high = int(steps.start[step, gpu]), int(steps.end[step, gpu])
            if high < 0:
                assert transfers.step_exposed[place, gpu] == 0
                continue
            inside = exposed_by_hand(trace, low, high)
            assert transfers.step_exposed[place, gpu] == sum(
                time for row, time in inside.items()
                if events.device[row] == gpu and events.copy_kind[row] != CopyKind.P2P
            )  # fmt: skip


def blocks(trace: Trace, launch: list[int], row: int) -> bool:
    events, host = trace.device_events, trace.host_events
    if launch[row] < 0 or events.klass[row] == EventClass.MEMSET:
        return False
    if events.copy_async[row] == 0:
        return True
    may = events.copy_async[row] == -1 or events.copy_memory[row] == 1
    return bool(may and host.end[launch[row]] >= events.end[row])


def copy(record: Recorder, start: float, end: float, correlation: int = -1, **columns: Any) -> None:
    """A copy to the GPU, of page-locked memory and asynchronous unless said otherwise."""
    given = {"kind": CopyKind.H2D, "size": 1_000_000, "memory": 0, "is_async": 1, "op": "", "name": "MemcpyH2D"}
    given |= columns
    record.work(
        start,
        end,
        correlation,
        stream=1,
        klass=EventClass.COMMUNICATION if given["kind"] == CopyKind.P2P else EventClass.COPY,
        name=str(given["name"]),
        copy_kind=CopyKind(given["kind"]),
    )
    record.device_rows[-1] |= {
        "copy_bytes": int(given["size"]),
        "copy_memory": int(given["memory"]),
        "copy_async": int(given["is_async"]),
    }
    if given["op"]:
        record.device_rows[-1]["op"] = record.string(str(given["op"]))


def totals(trace: Trace) -> dict[CopyKind, CopyTotals]:
    found = found_in(trace)
    assert found is not None
    return {total.direction: total for total in found[0].totals}


def test_totals_of_a_direction() -> None:
    record = Recorder()
    record.work(0, 10)
    copy(record, 5, 15, memory=1)  # half of it behind the kernel
    copy(record, 12, 20, memory=0)  # three of its eight behind the copy before it
    copy(record, 20, 21, kind=CopyKind.D2H, size=-1, memory=-1)
    record.work(30, 40)
    found = totals(record.trace())
    up = found[CopyKind.H2D]
    assert (up.count, up.blocking) == (2, 0)
    assert (up.time, up.exposed, up.exposed_pageable, up.hidden) == (18 * US, 10 * US, 5 * US, 8 * US)
    assert (up.size_bytes, up.sized_time) == (2_000_000, 18 * US)
    assert up.bytes_per_s == pytest.approx(2e6 / 18e-6)
    down = found[CopyKind.D2H]
    assert (down.count, down.bytes_per_s) == (1, None)


@pytest.mark.parametrize(
    ("is_async", "memory", "returns", "blocking"),
    [(0, 0, 11, 1), (1, 0, 30, 0), (1, 1, 30, 1), (1, 1, 18, 0), (-1, -1, 30, 1), (-1, -1, 18, 0)],
)
def test_which_copies_hold_up_the_host(is_async: int, memory: int, returns: float, blocking: int) -> None:
    record = Recorder()
    record.work(0, 5)
    record.call("python", "cuMemcpyHtoD_v2", 10, returns, 7)
    copy(record, 12, 20, 7, is_async=is_async, memory=memory)
    record.work(40, 50)
    assert totals(record.trace())[CopyKind.H2D].blocking == blocking


def test_a_gpu_waits_while_its_thread_copies_for_another_one() -> None:
    record = Recorder(gpus=2)
    for gpu in (0, 1):
        record.launch("python", gpu, 5 + gpu, 10, 1 + gpu, gpu=gpu)
        record.launch("python", 42 + gpu, 50, 60, 11 + gpu, gpu=gpu)
    record.call("python", "cuMemcpyDtoH_v2", 12, 40, 21)
    copy(record, 15, 40, 21, kind=CopyKind.D2H, is_async=0)
    found = found_in(record.trace())
    assert found is not None
    transfers, analysis = found
    wait = [int(transfers.gap_wait[analysis.gaps.device == gpu].sum()) for gpu in (0, 1)]
    # GPU 0 before the copy begins, GPU 1 as long as the call takes
    assert wait == [3 * US, 28 * US]


def test_another_threads_copy_holds_up_nobody_else() -> None:
    record = Recorder(gpus=2)
    for gpu, thread in ((0, "first"), (1, "second")):
        record.launch(thread, gpu, 5, 10, 1 + gpu, gpu=gpu)
        record.launch(thread, 42, 50, 60, 11 + gpu, gpu=gpu)
    record.call("first", "cuMemcpyDtoH_v2", 12, 40, 21)
    copy(record, 15, 40, 21, kind=CopyKind.D2H, is_async=0)
    found = found_in(record.trace())
    assert found is not None
    transfers, analysis = found
    assert int(transfers.gap_wait[analysis.gaps.device == 1].sum()) == 0


def test_a_copy_that_the_host_started_late_is_the_hosts_doing() -> None:
    record = Recorder()
    record.launch("python", 0, 5, 10, 1)
    record.call("python", "$train.py:5 think", 11, 30)
    record.call("python", "cuMemcpyHtoDAsync_v2", 30, 31, 2)
    copy(record, 33, 40, 2)  # would be hidden, had it been started 20 earlier
    record.launch("python", 32, 40, 50, 3)
    copy(record, 50, 60, 4)  # follows a kernel at once: nobody was late
    record.launch("python", 34, 60, 70, 5)
    found = found_in(record.trace())
    assert found is not None
    assert found[0].exposed.tolist() == [7 * US, 10 * US]
    assert found[0].late.tolist() == [7 * US, 0]


def test_a_short_delay_explains_no_long_copy() -> None:
    record = Recorder()
    record.launch("python", 0, 5, 10, 1)
    record.call("python", "$train.py:5 think", 11, 14)
    record.call("python", "cuMemcpyHtoDAsync_v2", 14, 15, 2)
    copy(record, 16, 40, 2)
    copy(record, 40, 45, 3)
    record.launch("python", 17, 45, 50, 4)
    found = found_in(record.trace())
    assert found is not None
    late = found[0].late.tolist()
    assert 0 < late[0] <= 6 * US and late[1] == 0, "the gap is used up by the first copy"


def test_who_asked_for_copies() -> None:
    record = Recorder()
    record.work(0, 5)
    copy(record, 10, 20, op="input/_12:_HostSend")
    copy(record, 30, 50, op="input/_13:_HostSend")
    record.call("python", "DevicePut", 58, 66)
    record.call("python", "cuMemcpyHtoDAsync_v2", 59, 60, 9)
    copy(record, 61, 66, 9)
    copy(record, 70, 71, name="MyCopy")
    record.work(80, 90)
    found = found_in(record.trace())
    assert found is not None
    groups = found[0].groups
    assert [(g.op, g.count, g.exposed // US) for g in groups] == [
        ("input:_HostSend", 2, 30), ("DevicePut", 1, 5), ("MyCopy", 1, 1)
    ]  # fmt: skip
    assert groups[0].size_bytes == 2_000_000
    assert int(record.trace().device_events.start[groups[0].longest]) == 30 * US


def test_real_copies() -> None:
    trace = real_trace("tf_bert_8gpu")
    launch, causes = launch_of(trace), causality(trace)
    steps = find_steps(trace, launch, causes, find_launches(trace))
    window = find_window(trace, steps)
    assert window is not None
    gaps, busy = find_gaps(trace, window, launch, causes), all_busy_sets(trace)
    transfers = find_transfers(trace, window, steps, gaps, launch, causes, busy)
    events = trace.device_events
    for accounting in account(trace, window, gaps, busy):
        mine = [t for t in transfers.totals if t.device == accounting.device]
        assert sum(t.exposed for t in mine if t.direction is not CopyKind.P2P) == accounting.transfer
        inside = [
            i for i in np.flatnonzero(events.device == accounting.device).tolist()
            if is_copy(trace, i) and events.start[i] < window.end and events.end[i] > window.start
        ]  # fmt: skip
        assert sum(t.count for t in mine) == len(inside)
        assert sum(t.size_bytes for t in mine) == sum(max(0, int(events.copy_bytes[i])) for i in inside)


OP = "lookup/Unique:Unique"


def step(
    record: Recorder,
    number: int,
    op: str | None = OP,
    *,
    thread: str = "tf_Compute/1",
    op_thread: str | None = None,
    gpu: int = 0,
    offset: float = 0,
    inner: bool = False,
) -> None:
    """100 us: a kernel, a copy to the host until 30, an op until 70, a copy back, a kernel."""
    at, first = number * 100 + offset, 100 * (number + 1) + 10_000 * gpu
    if gpu == 0:
        record.step("python", number, at, at + 99)
    record.launch(thread, at + 1, at + 5, at + 20, first, gpu=gpu)
    record.call(thread, "cuMemcpyDtoHAsync_v2", at + 3, at + 4, first + 1)
    record.work(at + 20, at + 30, first + 1, gpu=gpu, stream=1, klass=EventClass.COPY, copy_kind=CopyKind.D2H)
    if op is not None:
        record.call(op_thread or thread, op, at + 35, at + 70)
    if inner:
        record.launch(op_thread or thread, at + 40, at + 96, at + 97, first + 9, gpu=gpu)
    record.call(thread, "cuMemcpyHtoDAsync_v2", at + 72, at + 73, first + 2)
    record.work(at + 75, at + 85, first + 2, gpu=gpu, stream=2, klass=EventClass.COPY, copy_kind=CopyKind.H2D)
    record.launch(thread, at + 74, at + 85, at + 95, first + 3, gpu=gpu)


def bounces(trace: Trace) -> tuple[Bounces, TraceAnalysis]:
    analysis = analyse(trace)
    assert analysis.bounces is not None
    return analysis.bounces, analysis


def run(op: str | None = OP, steps: int = 4, **options: object) -> Trace:
    record = Recorder()
    for number in range(steps):
        step(record, number, op, **options)  # type: ignore[arg-type]
    return record.trace()


def test_a_named_op_between_two_copies_in_every_step() -> None:
    trace = run()
    found, analysis = bounces(trace)
    assert len(found) == 4
    assert {trace.strings[int(trace.host_events.name[row])] for row in found.op} == {OP}
    assert found.op_time.tolist() == [35 * US] * 4
    assert (trace.device_events.copy_kind[found.down] == CopyKind.D2H).all()
    assert (trace.device_events.copy_kind[found.up] == CopyKind.H2D).all()
    # from the end of the copy there to the start of the copy back
    assert found.step_part[:, 0].tolist() == [45 * US] * 4
    assert int(found.gap_part.sum()) == 4 * 45 * US
    assert found.step_copies[:, 0].tolist() == [20 * US] * 4 and found.device_copies.tolist() == [80 * US]
    # the host's work after the hidden wait is a synchronisation's
    assert analysis.accounting[0].idle_of(Cause.SYNC) >= 4 * 40 * US
    assert analysis.accounting[0].idle == sum(analysis.accounting[0].idle_by_cause)
    evidence = {trace.strings[int(trace.host_events.name[row])] for row in analysis.gaps.evidence if row >= 0}
    assert OP in evidence


def test_the_op_may_run_on_another_thread() -> None:
    assert len(bounces(run(op_thread="tf_Compute/2"))[0]) == 4


@pytest.mark.parametrize(
    "op",
    [
        None,  # nobody knows what the host did
        "$train.py:10 log",  # Python, not an op
        "input/IteratorGetNext:IteratorGetNext",
        "save/SaveV2:SaveV2",
        "lookup/_HostRecv:_HostRecv",
        "call/PartitionedCall:PartitionedCall",
        "Unique",
    ],
)
def test_without_a_placed_op_there_is_no_bounce(op: str | None) -> None:
    assert len(bounces(run(op))[0]) == 0


@pytest.mark.parametrize(
    "op", ["EagerLocalExecute: Unique", "xla_ffi_python_gpu_callback", "$callback.py:89 pure_callback"]
)
def test_eager_ops_and_callbacks_count(op: str) -> None:
    assert len(bounces(run(op))[0]) == 4


def test_an_op_that_launches_runs_on_the_gpu() -> None:
    assert len(bounces(run(inner=True))[0]) == 0


def test_an_op_that_also_names_gpu_work_runs_on_the_gpu() -> None:
    record = Recorder()
    for number in range(4):
        step(record, number)
    record.device_rows[0]["op"] = record.string(OP)
    assert len(bounces(record.trace())[0]) == 0


def test_threads_of_the_input_pipeline_do_not_count() -> None:
    assert len(bounces(run(op_thread="tf_data_private_threadpool/9"))[0]) == 0


def test_it_must_recur_in_most_steps() -> None:
    record = Recorder()
    for number in range(6):
        step(record, number, OP if number < 2 else None)
    assert len(bounces(record.trace())[0]) == 0
    record = Recorder()
    for number in range(6):
        step(record, number, OP if number < 3 else None)
    assert len(bounces(record.trace())[0]) == 3


def test_an_op_that_runs_elsewhere_as_well_is_a_coincidence() -> None:
    record = Recorder()
    for number in range(4):
        step(record, number)
        for i in range(3):
            record.call("tf_Compute/3", OP, number * 100 + 86 + 3 * i, number * 100 + 88 + 3 * i)
    assert len(bounces(record.trace())[0]) == 0


def test_a_short_op_in_a_long_wait_explains_nothing() -> None:
    record = Recorder()
    for number in range(4):
        step(record, number, None)
        record.call("tf_Compute/1", OP, number * 100 + 40, number * 100 + 50)  # 10 of 42
    assert len(bounces(record.trace())[0]) == 0


def test_copies_of_two_steps_are_no_bounce() -> None:
    record = Recorder()
    for number in range(5):
        at, first = number * 100, 10 * (number + 1)
        record.step("python", number, at, at + 99)
        record.call("python", "cuMemcpyHtoDAsync_v2", at + 2, at + 3, first)
        record.work(at + 4, at + 8, first, stream=1, klass=EventClass.COPY, copy_kind=CopyKind.H2D)
        record.launch("python", at + 5, at + 8, at + 50, first + 1)
        record.call("python", "cuMemcpyDtoHAsync_v2", at + 6, at + 7, first + 2)
        record.work(at + 50, at + 52, first + 2, stream=2, klass=EventClass.COPY, copy_kind=CopyKind.D2H)
        record.call("tf_Compute/2", OP, at + 60, at + 95)
    assert len(bounces(record.trace())[0]) == 0


def test_each_gpu_has_its_own() -> None:
    record = Recorder(gpus=2)
    for number in range(4):
        step(record, number, thread="tf_Compute/1")
        step(record, number, thread="tf_Compute/2", gpu=1, offset=3)
    trace = record.trace()
    found, _ = bounces(trace)
    assert found.device.tolist() == [0] * 4 + [1] * 4
    threads = trace.host_events.thread[found.op].tolist()
    assert [trace.threads[t].name for t in threads] == ["tf_Compute/1"] * 4 + ["tf_Compute/2"] * 4


def test_a_gpu_beside_it_has_none() -> None:
    record = Recorder(gpus=2)
    for number in range(4):
        step(record, number)
        step(record, number, None, thread="tf_Compute/2", gpu=1, offset=300)  # other copies at other times
    assert set(bounces(record.trace())[0].device.tolist()) == {0}


@settings(deadline=None)
@given(traces())
def test_any_trace(trace: Trace) -> None:
    analysis = analyse(trace)
    if analysis.bounces is None:
        return
    found, gaps = analysis.bounces, analysis.gaps
    assert (found.gap_part >= 0).all() and (found.gap_part <= gaps.end - gaps.start).all()
    assert (gaps.by_cause.sum(axis=1) == gaps.end - gaps.start).all()
    assert (gaps.by_cause >= 0).all()
    assert len(found.gap_part) == len(gaps)


@pytest.mark.parametrize("around", ["Iterator::Root::Map", "XlaCompile", "SaveV2"])
def test_what_runs_for_input_compilation_or_saving_is_theirs(around: str) -> None:
    record = Recorder()
    for number in range(4):
        step(record, number, op_thread="worker")
        record.call("worker", around, number * 100 + 33, number * 100 + 71)
        record.call("worker", "ExecutorState::Process", number * 100 + 34, number * 100 + 70.5)
    assert len(bounces(record.trace())[0]) == 0
