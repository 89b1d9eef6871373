"""Launching beside many and beside few input workers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.launch_results import Contention
from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.traces.columns import Trace
from tests.analysis.small_traces import US, Recorder, traces

STEP, LAUNCHES = 2_000, 20


def run(
    slowdown: float, *, workers: int = 8, steps: int = 8, launches: int = LAUNCHES, prefix: str = "tf_data_private"
) -> Recorder:
    """Steps of which every other one runs beside all workers; beside them each op takes ``slowdown`` times as long."""
    record = Recorder()
    for step in range(steps):
        at, crowded = step * STEP, step % 2 == 1
        record.step("python", step, at, at + STEP - 1)
        length = 20 * (slowdown if crowded else 1)
        for i in range(launches):
            begin, number = at + i * (STEP / launches), step * launches + i + 1
            record.call("python", f"dense/Mul_{i % 5}:Mul", begin, begin + length)
            record.call("python", "cuLaunchKernel", begin + length / 2, begin + length - 1, number)
            record.work(begin + length + 2, begin + STEP / launches + 1, number)
        for worker in range(workers if crowded else 1):
            record.call(f"{prefix}_threadpool/{worker}", "ExecutorState::Process", at, at + STEP)
    return record


def only(record: Recorder) -> Contention:
    (found,) = analyse(record.trace()).contention
    return found


def test_calls_that_take_three_times_as_long() -> None:
    record = run(3)
    analysis = analyse(record.trace())
    (found,) = analysis.contention
    assert found.slowdown == pytest.approx(3, rel=0.1)
    assert (found.few, found.many) == (2, 6)
    assert found.typical_many == pytest.approx(3 * found.typical_few, rel=0.15)
    # of the idle time beside many workers two thirds would not be there
    crowded = analysis.gaps.start // (STEP * US) % 2 == 1
    charged = analysis.gaps.by_cause[:, [Cause.LAUNCH, Cause.HOST_OTHER]].sum(axis=1)
    assert found.lost == pytest.approx(charged[crowded].sum() * 2 / 3, rel=0.1)
    assert found.lost == found.gap_part.sum() and (found.gap_part[~crowded] == 0).all()
    assert found.step_part.sum() == pytest.approx(found.lost, rel=0.05)
    assert len(found.workers) == 4 and found.end > found.start


def test_the_same_speed_is_no_contention() -> None:
    assert all(found.slowdown < 1.2 for found in analyse(run(1).trace()).contention)


@pytest.mark.parametrize(
    "record",
    [
        run(3, workers=3),  # too few to fill a host
        run(3, prefix="tf_Compute"),  # no input workers
        run(3, steps=4),  # two crowded stretches may be anything
        run(3, steps=6, launches=3),  # too few calls to compare
    ],
)
def test_what_cannot_be_told_is_not_said(record: Recorder) -> None:
    assert analyse(record.trace()).contention == ()


def test_workers_that_always_run_leave_nothing_to_compare_with() -> None:
    record = run(3)
    for worker in range(8):
        record.call(f"tf_data_private_threadpool/{worker}x", "ExecutorState::Process", 0, 8 * STEP)
    assert analyse(record.trace()).contention == ()


@settings(deadline=None, max_examples=40)
@given(traces())
def test_any_trace(trace: Trace) -> None:
    analyse(trace)
