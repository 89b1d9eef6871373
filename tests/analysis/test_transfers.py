"""Copies against loops over single picoseconds, and the rules for who waited for what."""

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
from tb_gpu_doctor.analysis.results import TraceAnalysis
from tb_gpu_doctor.analysis.steps import find_steps, find_window
from tb_gpu_doctor.analysis.transfer_results import CopyTotals, Transfers
from tb_gpu_doctor.analysis.transfers import find_transfers
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
    assert (up.count, up.pageable, up.pinned, up.blocking) == (2, 1, 1, 0)
    assert (up.time, up.exposed, up.exposed_pageable, up.hidden) == (18 * US, 10 * US, 5 * US, 8 * US)
    assert (up.size_bytes, up.sized_time) == (2_000_000, 18 * US)
    assert up.bytes_per_s == pytest.approx(2e6 / 18e-6)
    down = found[CopyKind.D2H]
    assert (down.count, down.pageable, down.pinned, down.bytes_per_s) == (1, 0, 0, None)


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


# Copies of the real files: (GPU, direction) -> (count, pageable, bytes), counted by a protobuf parser.
def test_real_copies() -> None:
    trace = real_trace("tf_bert_8gpu")
    launch, causes = launch_of(trace), causality(trace)
    steps = find_steps(trace, launch, causes)
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
