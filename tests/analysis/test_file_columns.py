"""Enclosers as the analysis knows them, and what the names around an event say."""

from __future__ import annotations

from hypothesis import given

from tb_gpu_doctor.analysis.callers import enclosing
from tb_gpu_doctor.analysis.file_columns import HostCalls
from tb_gpu_doctor.analysis.host_names import Kind
from tb_gpu_doctor.traces.columns import Trace
from tests.analysis.small_traces import Recorder, traces


@given(traces())
def test_enclosers_are_those_of_the_whole_trace(trace: Trace) -> None:
    calls, expected = HostCalls(trace), enclosing(trace.host_events).tolist()
    for row, parent in enumerate(expected):
        assert calls.parent(row) == parent
        stack = list(calls.stack(row))
        assert stack[0] == row and stack[1:] == list(calls.stack(parent)) if parent >= 0 else stack == [row]
    assert len(calls.kind) == len(trace.host_events)


def nested(*names: str) -> HostCalls:
    """Events inside each other, the outermost first."""
    recorder = Recorder()
    for depth, name in enumerate(names):
        recorder.call("python", name, depth, 100 - depth)
    return HostCalls(recorder.trace())


def test_callers_and_frames() -> None:
    calls = nested("$train.py:9 main", "$array.py:350 __float__", "PjRtBuffer::ToLiteral", "cuMemcpyDtoH_v2")
    assert calls.caller(3) == "$array.py:350 __float__"
    assert calls.user_frame(3) == "$train.py:9 main"
    assert calls.outermost(3, Kind.SYNC) == 2
    assert calls.outermost(0, Kind.SYNC) == 0, "itself where none is"
    assert calls.caller(0) is None and calls.user_frame(0) is None


def test_an_event_deep_inside_thousands_ends() -> None:
    calls = nested(*[f"frame{i}" for i in range(45)])
    assert len(list(calls.stack(44))) == 45
    assert calls.compiled_function(44) == "frame44"


def test_a_trace_without_host_events() -> None:
    assert len(HostCalls(Recorder().trace()).kind) == 0
