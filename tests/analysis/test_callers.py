"""Driver-only threads and the threads that made their calls.

Who encloses and who caused whom, against trying all pairs.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.callers import _Search, caller_rows, causality, enclosing, nearest_with, producer_of
from tb_gpu_doctor.traces.columns import Trace, host_events
from tests.analysis import brute_force
from tests.analysis.small_traces import US, Recorder, traces
from tests.real_traces import real_trace


@given(traces())
def test_enclosers(trace: Trace) -> None:
    assert enclosing(trace.host_events).tolist() == brute_force.enclosing(trace.host_events)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 12)), max_size=40))
def test_enclosers_in_crowded_threads(rows: list[tuple[int, int, int]]) -> None:
    events = host_events(
        len(rows), thread=[r[0] for r in rows], start=[r[1] for r in rows], duration=[r[2] for r in rows]
    )
    assert enclosing(events).tolist() == brute_force.enclosing(events)


@given(traces(), st.data())
def test_nearest_marked_encloser(trace: Trace, data: st.DataObject) -> None:
    parent = enclosing(trace.host_events)
    count = len(parent)
    mark = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_)
    assert nearest_with(mark, parent).tolist() == brute_force.nearest_with(mark.tolist(), parent.tolist())


@given(traces())
def test_producers(trace: Trace) -> None:
    found = producer_of(trace.host_events).tolist()
    for row, possible in zip(found, brute_force.producer_of(trace.host_events), strict=True):
        assert row in possible if possible else row == -1


def test_a_pair_that_is_used_again_belongs_to_its_latest_producer() -> None:
    events = host_events(
        4,
        thread=[0, 0, 1, 1],
        start=[0, 100, 50, 150],
        duration=[10, 10, 10, 10],
        producer_type=[3, 3, -1, -1],
        producer_id=[7, 7, -1, -1],
        consumer_type=[-1, -1, 3, 3],
        consumer_id=[-1, -1, 7, 7],
    )
    assert producer_of(events).tolist() == [-1, -1, 0, 1]


def test_no_host_events() -> None:
    nothing = host_events(0)
    assert len(enclosing(nothing)) == len(producer_of(nothing)) == 0


def test_many_kinds_of_producers_stay_apart() -> None:
    count = 600
    events = host_events(
        2 * count,
        thread=[0] * count + [1] * count,
        start=[0] * count + [10] * count,
        duration=[1] * (2 * count),
        producer_type=[*range(count), *[-1] * count],
        producer_id=[*(i % 3 for i in range(count)), *[-1] * count],
        consumer_type=[*[-1] * count, *range(count)],
        consumer_id=[*[-1] * count, *((i + 1) % 3 for i in range(count))],
    )
    assert (producer_of(events) == -1).all()


@pytest.mark.parametrize(
    "shape",
    [
        "flat",
        "deep",
        "staircase",
        "deep_then_long",
    ],
)
def test_enclosers_take_no_quadratic_time(shape: str) -> None:
    count = 20_000
    number = np.arange(count)
    start, duration = {
        "flat": (number * 10, np.full(count, 5)),
        "deep": (number, 4 * count - 2 * number),
        "staircase": (number, np.full(count, count)),
        "deep_then_long": (
            np.where(number < count // 2, number, number * 10),
            np.where(number < count // 2, 4 * count - 2 * number, 20 * count + number),
        ),
    }[shape]
    events = host_events(count, thread=np.zeros(count, int), start=start, duration=duration)
    began = time.perf_counter()
    enclosing(events)
    assert time.perf_counter() - began < 1.0


def callers(record: Recorder) -> list[tuple[str, str]]:
    """(thread, name) of what stands for each driver call, by the call's start."""
    trace = record.trace()
    host = trace.host_events
    rows = caller_rows(trace, enclosing(host)).tolist()
    calls = [i for i in range(len(host)) if host.correlation[i] > 0]
    calls.sort(key=lambda i: int(host.start[i]))
    return [(trace.threads[host.thread[rows[i]]].name, trace.strings[host.name[rows[i]]]) for i in calls]


@given(traces())
def test_a_caller_is_the_call_itself_or_encloses_it_on_another_thread(trace: Trace) -> None:
    host = trace.host_events
    links = causality(trace)
    assert links.parent.tolist() == brute_force.enclosing(host)
    driver = {t.index for t in trace.threads if t.name.startswith("Host Threads/")}
    for row, caller in enumerate(links.caller.tolist()):
        if caller == row:
            continue
        assert host.thread[row] in driver and host.correlation[row] > 0
        assert host.thread[caller] not in driver
        assert caller == brute_force.innermost_at(host, int(host.thread[caller]), int(host.start[row]))


def test_calls_of_a_driver_thread_go_to_the_thread_around_them() -> None:
    record = Recorder()
    for i in range(5):
        at = 100 * i
        record.call("py_xla_execute/-41", "EnqueueExecution", at, at + 50)
        record.call("py_xla_execute/-41", "ExecuteThunks", at + 5, at + 45)
        record.call("python", "PjitFunction(f)", at + 60, at + 90)
        record.call("Host Threads/9", "cuLaunchKernel", at + 10, at + 12, i + 1)
    assert callers(record) == [("py_xla_execute/-41", "ExecuteThunks")] * 5


def test_a_frame_around_everything_says_nothing() -> None:
    record = Recorder()
    record.call("python", "$train.py:1 main", 0, 1000)
    for i in range(5):
        record.call("Host Threads/9", "cuLaunchKernel", 100 * i + 10, 100 * i + 12, i + 1)
    assert callers(record) == [("Host Threads/9", "cuLaunchKernel")] * 5


def test_threads_in_lockstep_are_told_apart_by_the_ops_names() -> None:
    record = Recorder(gpus=2)
    for i in range(5):
        at = 100 * i
        for gpu in range(2):
            record.call(f"worker/{gpu}", f"fusion.{gpu}{i}", at, at + 50)
            record.call(
                f"Host Threads/{gpu}", "cuLaunchKernel", at + 10 + gpu, at + 12 + gpu, 1 + 2 * i + gpu,
                op=f"fusion.{gpu}{i}",
            )  # fmt: skip
    found = callers(record)
    assert found[0::2] == [("worker/0", f"fusion.0{i}") for i in range(5)]
    assert found[1::2] == [("worker/1", f"fusion.1{i}") for i in range(5)]


def test_where_nothing_tells_them_apart_the_call_stands_for_itself() -> None:
    record = Recorder()
    for i in range(5):
        at = 100 * i
        record.call("worker/0", f"a{i}", at, at + 50)
        record.call("worker/1", f"b{i}", at, at + 50)
        record.call("Host Threads/1", "cuLaunchKernel", at + 10, at + 12, 1 + i)
    assert callers(record) == [("Host Threads/1", "cuLaunchKernel")] * 5


def test_other_threads_speak_for_themselves() -> None:
    record = Recorder()
    for i in range(3):
        record.call("outer", f"Execute{i}", 100 * i, 100 * i + 50)
        record.call("tf_Compute/1", "cuLaunchKernel", 100 * i + 10, 100 * i + 12, 1 + i)
    assert callers(record) == [("tf_Compute/1", "cuLaunchKernel")] * 3


def test_real_driver_threads_find_their_callers() -> None:
    """In every JAX file most launches on `Host Threads/<tid>` are enclosed by events of a traced thread."""
    for folder in ("jax_conv_8xmi300x", "jax_gemm_1of8_mi300x", "jax_te_attention"):
        trace = real_trace(folder)
        host = trace.host_events
        driver = [t.index for t in trace.threads if t.name.startswith("Host Threads/")]
        calls = [i for i in range(len(host)) if host.correlation[i] > 0 and host.thread[i] in driver]
        if not calls:
            continue
        rows = caller_rows(trace, enclosing(host))
        moved = sum(int(rows[i]) != i for i in calls)
        assert moved >= 0.9 * len(calls), folder


@pytest.mark.slow
def test_hundreds_of_threads_that_all_may_have_made_the_calls_end_the_search() -> None:
    record = Recorder()
    for thread in range(300):
        for call in range(2):
            record.call(f"Host Threads/{thread}", "cuLaunchKernel", call * 100 + 10, call * 100 + 11, 1)
            record.call(f"python {thread}", f"op {call}", call * 100, call * 100 + 50)
    trace = record.trace()
    parent = enclosing(trace.host_events)
    search = _Search(trace, parent, np.arange(1, 600, 2))
    search.left = 5
    assert search.running_at(np.array([10 * US, 110 * US])) == list(range(1, 600, 2))
    assert all((search.innermost_at(1, np.array([10 * US])) >= 0).all() for _ in range(5))
    assert search.left == 0 and (search.innermost_at(1, np.array([10 * US])) == -1).all()
    assert caller_rows(trace, parent).tolist() == list(range(len(trace.host_events)))  # nobody can tell
