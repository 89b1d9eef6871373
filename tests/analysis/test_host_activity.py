"""What each thread does at each time, against asking at every border who runs and what that means."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.callers import enclosing
from tb_gpu_doctor.analysis.host_activity import HOST_CAUSES, LAUNCH_HOLE, UNKNOWN, WAITING, HostActivity
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.traces.columns import HostEvents, SparseStat, Trace
from tests.analysis import brute_force, small_traces
from tests.analysis.small_traces import US, Recorder, traces

MEANING = {
    small_traces.INPUT: "input",
    small_traces.FETCH: "input",
    small_traces.LAUNCH: "launch",
    small_traces.SYNC: "sync",
    small_traces.COMPILE: "compile",
    small_traces.CHECKPOINT: "checkpoint",
    small_traces.WAIT: "wait",
    small_traces.NEUTRAL: "neutral",
    small_traces.USER: "user",
    small_traces.MYSTERY: "mystery",
    "train": "neutral",
}
OWNERS = ("input", "compile", "checkpoint")


class Reference:
    """One trace's host, asked instant by instant."""

    def __init__(self, trace: Trace) -> None:
        self.events: HostEvents = trace.host_events
        self.parent = brute_force.enclosing(self.events)
        self.names = [trace.strings[i] for i in self.events.name.tolist()]
        launching = {self.names[i] for i in range(len(self.events)) if self.events.correlation[i] > 0}
        self.kinds = [
            "launch" if MEANING[n] == "mystery" and n in launching else MEANING[n] for n in self.names
        ]  # a name that no table knows but that calls the device is a launch
        self.kinds = ["neutral" if s >= 0 else k for s, k in zip(self.events.step_num, self.kinds, strict=True)]
        end = brute_force.ends(self.events)
        self.fetches = [
            (int(self.events.start[i]), end[i]) for i in range(len(self.events)) if self.names[i] == small_traces.FETCH
        ]

    def chain(self, row: int) -> list[str]:
        """Kinds of an event and its enclosers, from the inside out."""
        out = []
        while row >= 0:
            out.append(self.kinds[row])
            row = self.parent[row]
        return out

    def doing(self, thread: int, instant: int) -> str | None:
        """What a thread does at an instant; None when nothing says."""
        chain = self.chain(brute_force.innermost_at(self.events, thread, instant))
        owner = next((k for k in chain if k in OWNERS), None)
        if owner is not None:
            return owner
        telling = [k for k in chain if k != "neutral"]
        found = telling[0] if telling else None
        if found in ("user", "mystery"):
            around = next((k for k in telling if k not in ("user", "mystery")), None)
            if around == "sync":
                return "sync"
            return "launch" if found == "mystery" and around in ("launch", "wait") else "host_other"
        if found in (None, "wait") and any(s <= instant < e for s, e in self.fetches):
            return "input"
        return "launch" if found == "wait" else found

    def spent(self, thread: int, low: int, high: int) -> dict[str | None, int]:
        """Time in each cause within [low, high); short holes beside launching are launching."""
        far = 10**18
        cuts = [int(t) for i in range(len(self.events)) for t in (self.events.start[i], self.events.start[i])]
        cuts += brute_force.ends(self.events)
        stretches: list[tuple[int, int, str | None]] = []
        for begin, end in brute_force.borders(cuts, -far, far):
            what = self.doing(thread, begin)
            if stretches and stretches[-1][2] == what:
                stretches[-1] = (stretches[-1][0], end, what)
            else:
                stretches.append((begin, end, what))
        out: dict[str | None, int] = {}
        for i, (begin, end, what) in enumerate(stretches):
            neighbours = {stretches[j][2] for j in (i - 1, i + 1) if 0 <= j < len(stretches)}
            if what is None and end - begin <= LAUNCH_HOLE and "launch" in neighbours:
                what = "launch"
            time = max(0, min(end, high) - max(begin, low))
            out[what] = out.get(what, 0) + time
        return {what: time for what, time in out.items() if time}


def ours(activity: HostActivity, thread: int, low: int, high: int) -> dict[str | None, int]:
    doing = activity.thread(thread)
    spent = doing.before(np.array([high], np.int64)) - doing.before(np.array([low], np.int64))
    named = {cause.id: int(spent[cause, 0]) for cause in HOST_CAUSES}
    named["launch"] += int(spent[WAITING, 0])  # the reference calls both launching
    return {what: time for what, time in {**named, None: int(spent[UNKNOWN, 0])}.items() if time}


def activity_of(trace: Trace) -> HostActivity:
    return HostActivity(trace, enclosing(trace.host_events))


@given(traces(nested=True), st.integers(-5, 80), st.integers(0, 60))
def test_time_in_each_cause(trace: Trace, low: int, length: int) -> None:
    unit = _unit(trace)
    activity, reference = activity_of(trace), Reference(trace)
    for thread in trace.threads:
        expected = reference.spent(thread.index, low * unit, (low + length) * unit)
        assert ours(activity, thread.index, low * unit, (low + length) * unit) == expected


@given(traces(), st.integers(-5, 80), st.integers(0, 60))
def test_time_in_each_cause_where_events_overlap_partly(trace: Trace, low: int, length: int) -> None:
    test_time_in_each_cause.hypothesis.inner_test(trace, low, length)  # type: ignore[attr-defined]


@given(traces(), st.integers(-5, 80))
def test_at_an_instant(trace: Trace, instant: int) -> None:
    unit = _unit(trace)
    activity = activity_of(trace)
    for thread in trace.threads:
        cause, row = activity.thread(thread.index).at(np.array([instant * unit], np.int64))
        (expected,) = ours(activity, thread.index, instant * unit, instant * unit + 1)
        told = "launch" if cause[0] == WAITING else None if cause[0] == UNKNOWN else Cause(int(cause[0])).id
        assert expected == told
        if row[0] >= 0:  # the event that says so runs now
            assert trace.host_events.start[row[0]] <= instant * unit < trace.host_events.end[row[0]]


@given(traces(), st.lists(st.tuples(st.integers(-5, 80), st.integers(0, 60)), max_size=3))
def test_looking_at_stretches_only_changes_nothing_inside_them(trace: Trace, spans: list[tuple[int, int]]) -> None:
    unit = _unit(trace)
    whole, partial = activity_of(trace), activity_of(trace)
    every = [(t.index, low * unit, (low + length) * unit) for t in trace.threads for low, length in spans]
    columns = np.array(every, np.int64).reshape(-1, 3).T
    partial.look_at(columns[0].astype(np.int32), columns[1], columns[2])
    for thread, low, high in every:
        assert ours(partial, thread, low, high) == ours(whole, thread, low, high)
        middle = np.array([(low + high) // 2], np.int64)
        if high > low:
            assert [x.tolist() for x in partial.thread(thread).at(middle)] == [
                x.tolist() for x in whole.thread(thread).at(middle)
            ]


def test_many_threads_do_not_each_hold_every_fetch() -> None:
    record = Recorder()
    for fetch in range(2_000):
        record.call("loader", "IteratorGetNextOp::DoCompute", fetch * 1_000, fetch * 1_000 + 500)
    for thread in range(20):
        record.call(f"thread {thread}", "FunctionRun", thread * 1_000, thread * 1_000 + 900)
    activity = activity_of(record.trace())
    low = np.arange(20, dtype=np.int64) * 1_000 * US
    activity.look_at(np.arange(1, 21, dtype=np.int32), low, low + 900 * US)
    assert max(len(activity.thread(thread).time) for thread in range(1, 21)) < 20


def _unit(trace: Trace) -> int:
    """The unit that the trace was drawn in."""
    host = trace.host_events
    times = np.concatenate((host.start, host.end))
    return int(np.gcd.reduce(times)) if times.any() else 1


def causes(record: Recorder, low: float, high: float, thread: int = 0) -> dict[str | None, float]:
    found = ours(activity_of(record.trace()), thread, round(low * US), round(high * US))
    return {what: time / US for what, time in found.items()}


@pytest.mark.parametrize(
    ("outer", "inner", "cause"),
    [
        ("XlaCompile", "algebraic-simplifier", "compile"),
        ("$dataloader.py:3 __next__", "$image.py:9 decode", "input"),
        ("$dataloader.py:3 __next__", "$time sleep", "input"),
        ("$dataloader.py:3 __next__", "$queue.py:171 get", "input"),
        ("IteratorGetNext", "cuMemcpyHtoDAsync_v2", "input"),
        ("SaveV2", "$pickle.py:1 dump", "checkpoint"),
        ("cuStreamSynchronize", "$builtins len", "sync"),
        ("$api.py:7 block_until_ready", "$somewhere.py:7 helper", "sync"),
        ("PjRtStreamExecutorLoadedExecutable::Execute", "fusion.12", "launch"),
        ("$train.py:5 main", "fusion.12", "host_other"),
        ("$train.py:5 main", "cuLaunchKernel", "launch"),
        ("PjitFunction(step)", "$numpy asarray", "launch"),
    ],
)
def test_an_inner_event_in_its_context(outer: str, inner: str, cause: str) -> None:
    record = Recorder()
    record.call("main", outer, 0, 1000)
    record.call("main", inner, 400, 600)
    assert causes(record, 450, 550) == {cause: 100}


def test_a_call_that_traces_its_function_compiles_until_it_runs_it() -> None:
    record = Recorder()
    record.call("main", "step", 0, 1000)
    record.call("main", "$model.py:9 helper", 100, 200)
    record.call("main", "EagerExecute: __inference_step_76", 800, 900)
    trace = record.trace()
    call = np.flatnonzero(trace.host_events.duration == 1000 * US)
    stats = {"tracing_count": SparseStat(call, np.array([2])), "traced": SparseStat(call, np.array([1]))}
    for known, cause in ((stats, "compile"), ({"tracing_count": stats["tracing_count"]}, None)):
        found = ours(activity_of(replace(trace, host_stats=known)), 0, 0, 1000 * US)
        assert found.get("compile", 0) == (900 * US if cause else 0), known
        assert found["launch"] >= 100 * US


def test_holes_of_launching() -> None:
    record = Recorder()
    record.call("main", "cuLaunchKernel", 0, 10)
    record.call("main", "cuLaunchKernel", 110, 120)  # 100 us later
    record.call("main", "cuLaunchKernel", 221, 230)  # 101 us later
    record.call("main", "SaveV2", 250, 300)  # 20 us later
    record.call("main", "XlaCompile", 310, 320)  # no launch beside the hole
    assert causes(record, 0, 120) == {"launch": 120}
    assert causes(record, 120, 221) == {None: 101}
    assert causes(record, 230, 250) == {"launch": 20}
    assert causes(record, 300, 310) == {None: 10}
    assert causes(record, -50, 0) == {None: 50}
    assert causes(record, 320, 330) == {None: 10}


def test_bookkeeping_inside_a_hole_does_not_end_it() -> None:
    record = Recorder()
    record.call("main", "cuLaunchKernel", 0, 10)
    record.call("main", "ThreadpoolListener::Record", 30, 40)
    record.call("main", "cuLaunchKernel", 60, 70)
    assert causes(record, 10, 60) == {"launch": 50}


def test_a_fetch_elsewhere_explains_waiting_but_not_working() -> None:
    record = Recorder()
    record.call("main", "FunctionRun", 0, 100)
    record.call("main", "cuLaunchKernel", 40, 60)
    record.call("loader", "IteratorGetNextOp::DoCompute", 0, 80)
    assert causes(record, 0, 100) == {"input": 60, "launch": 40}


def test_a_thread_that_recorded_nothing() -> None:
    record = Recorder()
    record.call("main", "cuLaunchKernel", 5, 5)
    assert causes(record, -10, 10) == {None: 20}


def test_which_fetch_is_in_flight() -> None:
    record = Recorder()
    record.call("a", "IteratorGetNextOp::DoCompute", 0, 100)
    record.call("b", "IteratorGetNextOp::DoCompute", 50, 60)
    trace = record.trace()
    activity = activity_of(trace)
    starts = {t: trace.host_events.start[activity.fetch_at(t * US)] // US for t in (10, 55, 70)}
    assert starts == {10: 0, 55: 50, 70: 0}
    assert activity.fetch_at(100 * US) == activity.fetch_at(-1) == -1
