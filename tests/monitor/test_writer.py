"""Points of the Scalars tab against a count by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.metrics import METRICS, Metric
from tb_gpu_doctor.monitor.writer import DENSEST, Folder, PointClock

SECOND = 1_000_000_000
FOLDS = (Metric("a", "a", "mean"), Metric("b", "b", "max"), Metric("c", "c", "min"), Metric("d", "d", "last"))
VALUES = st.one_of(st.just(math.nan), st.floats(-1e6, 1e6))


def by_hand(fold: str, values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return math.nan
    return {"mean": sum(known) / len(known), "max": max(known), "min": min(known), "last": known[-1]}[fold]


@given(st.lists(st.lists(st.tuples(VALUES, VALUES, VALUES, VALUES), min_size=2, max_size=2), max_size=12))
def test_each_metric_folds_by_its_rule(samples: list[list[tuple[float, ...]]]) -> None:
    folder = Folder(2, FOLDS)
    for sample in samples:
        folder.add(np.array(sample))
    folded = folder.take()
    for gpu in range(2):
        for column, metric in enumerate(FOLDS):
            expected = by_hand(metric.fold, [sample[gpu][column] for sample in samples])
            assert np.isclose(folded[gpu, column], expected, rtol=1e-9, atol=1e-6, equal_nan=True)
    assert np.isnan(folder.take()).all(), "nothing of one point may reach the next"


def test_counters_keep_their_last_value_and_temperature_its_maximum() -> None:
    folds = {metric.id: metric.fold for metric in METRICS}
    assert folds["temperature_celsius"] == "max"
    assert all(metric.fold == "last" for metric in METRICS if metric.counter)
    assert {"energy_joules", "busy_seconds"} <= {metric.id for metric in METRICS if metric.counter}


@given(
    st.lists(st.integers(-1, 40), min_size=1, max_size=80),
    st.one_of(st.none(), st.booleans()),
    st.integers(1, 40),
)
def test_steps_of_points_strictly_grow_whatever_training_does(
    steps: list[int], step_hook: bool | None, interval_s: int
) -> None:
    clock = PointClock(step_hook)
    points = [clock.due(number * interval_s * SECOND, step) for number, step in enumerate(steps)]
    points = [point for point in [*points, clock.last()] if point is not None]
    assert all(later > earlier for earlier, later in pairwise(points))
    assert all(point >= 0 for point in points)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=200))
def test_a_point_carries_the_training_step_if_it_grew(increments: list[int]) -> None:
    clock, step, last = PointClock(), 0, -1
    for number, increment in enumerate(increments):
        step += increment
        due = clock.due(number * SECOND, step)
        assert due == (step if step > last else None)
        last = max(last, step)


def test_without_steps_every_sample_is_a_point_of_its_own() -> None:
    clock = PointClock()
    assert [clock.due(number * SECOND, -1) for number in range(500)] == list(range(500))


def test_with_a_hook_nothing_is_written_before_the_first_step() -> None:
    clock = PointClock(step_hook=True)
    assert [clock.due(number * SECOND, -1) for number in range(60)] == [None] * 60
    assert clock.due(60 * SECOND, 0) == 0


def test_steps_that_come_late_wait_until_they_pass_the_samples() -> None:
    clock = PointClock()
    for number in range(10):
        clock.due(number * SECOND, -1)
    due = [clock.due((10 + step) * SECOND, step) for step in range(15)]
    assert due == [None] * 10 + [10, 11, 12, 13, 14]


def test_a_training_that_begins_anew_goes_on_behind_the_last_point() -> None:
    clock = PointClock()
    due = [clock.due(number * SECOND, step) for number, step in enumerate([0, 5, 9, 0, 1, 2, 0, 1])]
    assert due == [0, 5, 9, 10, 11, 12, 13, 14]


def test_points_become_rarer_as_a_run_grows_older() -> None:
    clock = PointClock()
    hours = 10
    points = [number for number in range(hours * 3600) if clock.due(number * SECOND, number) is not None]
    assert points[: DENSEST // 2] == list(range(DENSEST // 2))
    expected = DENSEST * (1 + math.log(hours * 3600 / DENSEST))
    assert 0.7 * expected < len(points) < 1.1 * expected
    gaps = np.diff(points)
    assert gaps.max() <= hours * 3600 / DENSEST + 1
