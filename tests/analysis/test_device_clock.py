"""A GPU's clock that is off within its file: shifts of recordings that were right are found and undone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.device_clock import early_work, on_host_clock
from tb_gpu_doctor.traces.columns import Trace
from tests.analysis.small_traces import US, Recorder, traces


def training(steps: int, kernels: int, length: float, pause: float, sync: bool, gpus: int = 1) -> Recorder:
    """Steps of kernels that are launched ahead; before each the host does something else for a while."""
    record, correlation, free = Recorder(gpus=gpus), 0, 0.0
    at = 0.0
    for _ in range(steps):
        at = max(at, free if sync else at) + pause
        for _ in range(kernels):
            free = max(at + 4, free)
            for gpu in range(gpus):
                correlation += 1
                record.launch(f"python/{gpu}", at, free, free + length, correlation, gpu=gpu)
            at += 5
            free += length + 1
        if sync:
            for gpu in range(gpus):
                record.call(f"python/{gpu}", "cudaDeviceSynchronize", at, free + 3)
    return record


def shifted(trace: Trace, by_us: float, gpu: int = 0) -> Trace:
    """The same recording with one GPU's clock off."""
    start = trace.device_events.start
    start[trace.device_events.of_device(gpu)] += round(by_us * US)
    return trace


@given(
    st.integers(1, 6),
    st.integers(1, 20),
    st.sampled_from((3.0, 50.0, 400.0)),
    st.sampled_from((30.0, 1_000.0, 8_000.0)),
    st.booleans(),
    st.sampled_from((-40.0, -200.0, -3_000.0, -50_000.0, 5_000_000.0 * -1)),
)
@settings(max_examples=60)
def test_an_early_clock_is_moved_back(
    steps: int, kernels: int, length: float, pause: float, sync: bool, by_us: float
) -> None:
    right = training(steps, kernels, length, pause, sync).trace()
    wrong = shifted(training(steps, kernels, length, pause, sync).trace(), by_us)
    assert early_work(right) is None and on_host_clock(right) is right
    mended = on_host_clock(wrong)
    # what causality demands: work starts no sooner than its launch, which takes 4 us in truth
    off = right.device_events.start - mended.device_events.start
    assert (off == 4 * US).all()
    assert early_work(mended) is None
    assert [note.code for note in mended.notes] == ["device_clock_early"]
    assert mended.notes[0].params["numbers"] == [0]


@given(st.integers(3, 6), st.integers(1, 20), st.sampled_from((60.0, 3_000.0, 50_000.0)))
def test_a_late_clock_is_told_by_waits_that_end_too_soon(steps: int, kernels: int, by_us: float) -> None:
    right = training(steps, kernels, 50, 1_000, sync=True).trace()
    mended = on_host_clock(shifted(training(steps, kernels, 50, 1_000, sync=True).trace(), by_us))
    assert (mended.device_events.start - right.device_events.start == 4 * US).all()
    assert [note.code for note in mended.notes] == ["device_clock_late"]


@pytest.mark.parametrize("streams", [1, 2])
def test_waits_for_a_stream_tell_where_there_is_one(streams: int) -> None:
    def recorded() -> Trace:
        record, correlation, at = Recorder(gpus=1), 0, 0
        for _ in range(4):
            for number in range(6):
                correlation += 1
                start = at + 10 + 50 * number
                record.launch("python", at + number, start, start + 50, correlation, stream=number % streams)
            record.call("python", "cudaStreamSynchronize", at + 10, at + 312)
            at += 1_000
        return record.trace()

    mended = on_host_clock(shifted(recorded(), 400))
    assert (mended.notes != ()) == (streams == 1), "of two streams nobody knows which was waited for"


def test_work_from_before_the_recording_does_not_fall_below_zero() -> None:
    """Its launch is not recorded: nothing keeps it from being moved beyond the clock's zero."""
    record = training(4, 10, 50, 1_000, sync=True)
    record.work(0, 10)
    trace = replace(shifted(record.trace(), 0), wall_start_unix_ns=10**18, recorded=(0, 10**10))
    trace.device_events.start[1:] += 3_000 * US
    mended = on_host_clock(trace)
    moved = mended.device_events.start - trace.device_events.start
    later = int(mended.host_events.start[0] - trace.host_events.start[0])
    assert mended.device_events.start.min() >= 0 and later > 0 and len(np.unique(moved)) == 1
    assert mended.recorded == (later, 10**10 + later)
    assert mended.wall_start_unix_ns is not None
    assert (10**18 - mended.wall_start_unix_ns) * 1000 == later, "the same moment in the world"


def test_each_gpu_has_a_clock_of_its_own() -> None:
    right = training(4, 10, 50, 1_000, sync=True, gpus=2).trace()
    mended = on_host_clock(shifted(training(4, 10, 50, 1_000, sync=True, gpus=2).trace(), -2_000, gpu=1))
    off = (right.device_events.start - mended.device_events.start) // US
    assert set(off[right.device_events.device == 0].tolist()) == {0}
    assert set(off[right.device_events.device == 1].tolist()) == {4}
    assert mended.notes[0].params == {"numbers": [1], "by": 1_996 * US}


def test_work_of_one_step_alone_that_starts_too_soon_is_told_and_not_mended() -> None:
    for sync in (True, False):
        trace = training(8, 20, 400, 50, sync).trace()
        trace.device_events.start[:20] -= 40_000 * US
        assert on_host_clock(trace) is trace
        found = early_work(trace)
        assert found is not None
        assert (found.count, found.total, found.longest) == (20 if sync else found.count, 160, (40_000 - 4) * US)


def test_an_id_on_two_calls_proves_nothing() -> None:
    record = Recorder()
    record.launch("python", 100, 10, 20, 1)
    record.call("other process", "cuLaunchKernel", 5, 6, 1)
    trace = record.trace()
    assert early_work(trace) is None and on_host_clock(trace) is trace


@given(traces())
def test_any_trace_keeps_its_order_and_lengths(trace: Trace) -> None:
    before = trace.device_events
    after = on_host_clock(trace).device_events
    assert (after.duration == before.duration).all() and (after.device == before.device).all()
    for gpu in range(len(trace.devices)):
        rows = before.of_device(gpu)
        moved = after.start[rows] - before.start[rows]
        assert len(np.unique(moved)) <= 1
