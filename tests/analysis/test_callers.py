"""Driver-only threads and the threads that made their calls."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from tb_gpu_doctor.analysis.callers import _Search, caller_rows, causality
from tb_gpu_doctor.analysis.host_tree import enclosing
from tb_gpu_doctor.traces.columns import Trace
from tests.analysis import brute_force
from tests.analysis.small_traces import US, Recorder, traces
from tests.real_traces import real_trace


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
