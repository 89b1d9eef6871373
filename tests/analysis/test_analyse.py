"""All analyses together: nothing that a trace may hold makes them fail."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tb_gpu_doctor.analysis.analyse import analyse, recorded_span
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Trace
from tests.analysis.small_traces import US, Recorder, traces
from tests.real_traces import XPLANE_FOLDERS, real_trace


@given(traces())
def test_progress_rises_to_one(trace: Trace) -> None:
    seen: list[float] = []
    analyse(trace, seen.append)
    assert seen == sorted(seen)
    assert all(0 <= share <= 1 for share in seen)


@given(traces())
def test_the_same_trace_gives_the_same_numbers(trace: Trace) -> None:
    first, second = analyse(trace), analyse(trace)
    assert first.accounting == second.accounting
    assert np.array_equal(first.gaps.by_cause, second.gaps.by_cause)
    assert np.array_equal(first.gaps.evidence, second.gaps.evidence)


def test_an_empty_trace() -> None:
    result = analyse(Recorder(gpus=0).trace())
    assert result.window is None and result.recorded is None and result.lateness is None
    assert result.accounting == result.summaries == result.launches == result.kernels.rows == ()
    assert len(result.gaps) == 0


def test_gpus_that_did_nothing() -> None:
    result = analyse(Recorder(gpus=3).trace())
    assert result.window is None and result.accounting == ()


def test_a_host_only_trace() -> None:
    record = Recorder(gpus=0)
    record.call("python", "IteratorGetNext", 0, 50)
    record.step("python", 1, 0, 100)
    result = analyse(record.trace())
    assert result.window is None
    assert result.recorded == (0, 100 * US)
    assert result.steps.count == 0


def test_nothing_but_events_without_duration() -> None:
    record = Recorder()
    record.work(5, 5)
    record.work(5, 5)
    assert analyse(record.trace()).window is None
    record.work(9, 9)
    result = analyse(record.trace())
    assert result.accounting[0].idle == 4 * US


def test_what_the_file_says_about_the_recording_goes_first() -> None:
    record = Recorder(recorded=(0, 500))
    record.call("python", "train", 10, 20)
    assert recorded_span(record.trace()) == (0, 500 * US)
    record.recorded = None
    assert recorded_span(record.trace()) == (10 * US, 20 * US)


def test_times_at_the_limits_do_not_overflow() -> None:
    week = 7 * 24 * 3600 * 10**12
    record = Recorder(gpus=2, unit=1)
    for gpu in range(2):
        record.call("python", "cuLaunchKernel", -week, -week + 5, 1 + gpu)
        record.work(-week, -week + 10, 1 + gpu, gpu=gpu)
        record.call("python", "cuLaunchKernel", week - 50, week - 40, 11 + gpu)
        record.work(week, 2 * week, 11 + gpu, gpu=gpu)
    result = analyse(record.trace())
    assert result.window is not None and result.window.length == 3 * week
    for parts in result.accounting:
        assert parts.compute == week + 10
        assert sum(parts.idle_by_cause) == parts.idle == 2 * week - 10


@pytest.mark.parametrize("folder", XPLANE_FOLDERS)
def test_real_files_are_analysed_within_a_second_or_two(folder: str) -> None:
    result = analyse(real_trace(folder))
    assert result.window is not None and result.kernels.rows


def test_sums_of_weeks_do_not_wrap_around() -> None:
    week, streams = 6 * 24 * 3600 * 10**6, 40  # microseconds
    record = Recorder(gpus=10)
    for number in range(streams):
        record.call(f"loader {number}", "$dataloader.py:3 __next__", number, week)
        record.call(f"python {number}", "cuLaunchKernel", 1, 2, number + 1)
        record.work(week / 2, week, number + 1, gpu=0, stream=number)
        record.work(number, week, gpu=0, stream=number, klass=EventClass.COPY, copy_kind=CopyKind.H2D, name="MemcpyH2D")
    found = analyse(record.trace())
    queue, copies, loader = found.queues[0], found.transfers.totals[0], found.pipelines[0].stages[0]
    assert queue.kernel_time == streams * week // 2 * US > np.iinfo(np.int64).max
    assert queue.mean_depth == pytest.approx(streams / 2, rel=1e-3)
    assert copies.time == sum((week - number) * US for number in range(streams))
    assert loader.busy == sum((week - number) * US for number in range(streams))
