"""Training that stands still, GPUs that vanish, and GPUs that do nothing while steps run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tb_gpu_doctor.telemetry.progress import frozen, standstill, utilization_while_stepping, vanished
from tb_gpu_doctor.telemetry.series import Span, ToldNote
from tests.telemetry.build import START_NS, S, recording, series, steps

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
