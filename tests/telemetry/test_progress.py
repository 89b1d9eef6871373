"""Training that stands still, GPUs that vanish, and GPUs that do nothing while steps run.

Profiled against unprofiled steps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tb_gpu_doctor.telemetry.progress import (
    frozen,
    global_batch,
    overhead,
    standstill,
    utilization_while_stepping,
    vanished,
)
from tb_gpu_doctor.telemetry.series import Span, ToldNote
from tests.telemetry.build import START_NS, S, recording, series, steps

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


COUNT = 300
ROWS = np.arange(COUNT)
# Steps of half a second end at 100 s.
STOPPED = steps([0.5] * 200)


def after(row: int, value: float, before: float) -> np.ndarray:
    return np.where(row <= ROWS, value, before)


def hung(utilization: float, watts: float, **values: object) -> object:
    return series(
        count=COUNT,
        utilization_percent=after(101, utilization, 96),
        power_watts=after(101, watts, 600),
        **values,
    )


@pytest.mark.parametrize(
    ("utilization", "watts", "state"),
    [(100, 150, "spinning"), (0, 70, "idle"), (97, 580, "working"), (60, 300, "working")],
)
def test_what_a_gpu_does_while_no_step_comes(utilization: float, watts: float, state: str) -> None:
    found = standstill(recording(hung(utilization, watts), step_times=STOPPED), 60, 20)
    assert found is not None and found.states == (state,)
    assert found.last_step == 199 and found.since_ns == START_NS + 100 * S and found.seconds == 199
    assert found.usual_s == pytest.approx(0.5) and found.power_watts == pytest.approx(watts, abs=1)


def test_a_gpu_without_utilization_is_unknown() -> None:
    gone = series(count=COUNT, drop=["utilization_percent"])
    found = standstill(recording(gone, step_times=STOPPED), 60, 20)
    assert found is not None and found.states == ("unknown",)


def test_long_steps_may_take_long() -> None:
    slow = recording(series(count=COUNT), step_times=steps([12.0] * 8))  # 204 s without one are 17 steps
    assert standstill(slow, 60, 20) is None
    assert standstill(slow, 60, 16) is not None


def test_saving_and_validating_are_no_standstill() -> None:
    saving = [Span("validation", START_NS + 100 * S, START_NS + 250 * S, 199)]
    stopped = recording(series(count=COUNT), step_times=STOPPED, spans=saving)
    assert standstill(stopped, 60, 20) is None
    collecting = [replace(saving[0], kind="garbage_collection")]
    assert standstill(recording(series(count=COUNT), step_times=STOPPED, spans=collecting), 60, 20) is not None


def test_steps_until_the_end_and_too_few_of_them() -> None:
    assert standstill(recording(series(count=COUNT), step_times=steps([0.5] * 590)), 60, 20) is None
    assert standstill(recording(series(count=COUNT), step_times=steps([0.5] * 2)), 60, 20) is None
    assert standstill(recording(step_times=STOPPED), 60, 20) is None


def test_frozen_without_steps() -> None:
    found = frozen(recording(hung(100, 150), step_times=steps()), 120)
    assert found is not None and found.last_step is None and found.since_ns == START_NS + 101 * S


@pytest.mark.parametrize(
    "values",
    [
        {"power_watts": 150.0, "utilization_percent": 100.0},  # always a light load
        {"power_watts": after(101, 500, 600), "utilization_percent": 100.0},  # still at work
        {"power_watts": after(101, 150, 600) + 60 * (ROWS % 2), "utilization_percent": 100.0},  # uneven
        {"power_watts": after(101, 150, 600), "utilization_percent": after(101, 97, 96)},  # not all the time
        {"power_watts": after(250, 150, 600), "utilization_percent": 100.0},  # not for long
    ],
)
def test_what_is_not_frozen(values: dict[str, object]) -> None:
    assert frozen(recording(series(count=COUNT, **values), step_times=steps()), 120) is None


def test_a_gpu_whose_samples_end_is_lost() -> None:
    gone = {name: after(200, np.nan, value) for name, value in (("utilization_percent", 95), ("power_watts", 600))}
    names = [name for name in series().values if name not in gone and not name.startswith("allocator_")]
    lost = series(1, COUNT, drop=names, **gone)
    whole = series(0, COUNT)
    (found,) = vanished(recording(whole, lost))
    assert found.series is lost and found.step == 1990 and found.reason is None
    told = (ToldNote("recording.gpu_lost", {"gpu": "gpu1", "reason": "GPU is lost "}),)
    (found,) = vanished(replace(recording(whole, lost), told=told))
    assert found.reason == "GPU is lost"


def test_a_gpu_that_came_back_is_not_lost() -> None:
    told = (ToldNote("recording.gpu_lost", {"gpu": "gpu0", "reason": "reset required"}),)
    assert vanished(replace(recording(series(count=COUNT)), told=told)) == ()


def test_the_last_two_samples_may_be_missing() -> None:
    gone = after(COUNT - 2, np.nan, 95)
    names = [name for name in series().values if name != "utilization_percent"]
    assert vanished(recording(series(count=COUNT, drop=names, utilization_percent=gone))) == ()


def test_utilization_counts_from_the_first_step_to_the_last() -> None:
    gpu = series(count=COUNT, utilization_percent=after(100, 90, 10))
    found = utilization_while_stepping(gpu, recording(gpu, step_times=STOPPED))
    assert found is not None and found[0] == pytest.approx(0.10, abs=0.01) and found[1] == pytest.approx(101, abs=1)
    assert utilization_while_stepping(gpu, recording(gpu)) is None
