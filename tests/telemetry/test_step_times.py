"""Profiled against unprofiled steps."""

from __future__ import annotations

import pytest

from tb_gpu_doctor.telemetry.series import Span
from tb_gpu_doctor.telemetry.step_times import global_batch, overhead
from tests.telemetry.build import START_NS, S, recording, steps

PROFILED = range(50, 60)


def times(with_it: float = 0.13, count: int = 200) -> list[float]:
    return [with_it if number in PROFILED else 0.1 for number in range(count)]


def test_the_ratio_of_the_medians() -> None:
    found = overhead(recording(step_times=steps(times(), profiled=PROFILED)), 3, 10)
    assert found is not None and found.ratio == pytest.approx(1.3)
    assert (found.profiled, found.unprofiled) == (8, 187)


def test_the_steps_that_start_and_stop_the_profiler_do_not_count() -> None:
    lengths = times(0.1)
    lengths[50] = lengths[59] = 5.0
    found = overhead(recording(step_times=steps(lengths, profiled=PROFILED)), 3, 10)
    assert found is not None and found.ratio == pytest.approx(1.0)


def test_warm_up_and_saving_do_not_count() -> None:
    lengths = times(0.1)
    lengths[0] = 60.0
    made = steps(lengths, profiled=PROFILED)
    spans = [Span("checkpoint", int(made.end_ns[54]) - S // 10, int(made.end_ns[54]), 54)]
    found = overhead(recording(step_times=made, spans=spans), 3, 10)
    assert found is not None and found.profiled == 7


@pytest.mark.parametrize("profiled", [range(0), range(50, 54)])
def test_too_few_steps_say_nothing(profiled: range) -> None:
    assert overhead(recording(step_times=steps(times(), profiled=profiled)), 3, 10) is None


def test_all_profiled_says_nothing() -> None:
    assert overhead(recording(step_times=steps(times(), profiled=range(200))), 3, 10) is None
    assert overhead(recording(), 3, 10) is None


def test_only_the_profile_within_the_window_counts() -> None:
    made = steps(times(), profiled=PROFILED)
    rec = recording(step_times=made)
    assert overhead(rec, 3, 10, (START_NS, START_NS + S)) is None
    assert overhead(rec, 3, 10, (int(made.end_ns[49]), int(made.end_ns[59]))) is not None


def test_a_training_that_changed_long_ago_is_not_compared() -> None:
    lengths = [0.05] * 1000 + [0.1] * 300
    found = overhead(recording(step_times=steps(lengths, profiled=range(1250, 1270))), 3, 10)
    assert found is not None and found.ratio == pytest.approx(1.0)


def test_the_batch_is_the_usual_one() -> None:
    assert global_batch(steps([0.1] * 5, samples=64)) == 64
    assert global_batch(steps([0.1] * 5, samples=-1)) is None
