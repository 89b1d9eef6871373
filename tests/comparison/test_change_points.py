"""Changes of level: found where they were planted, and not found in noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tb_gpu_doctor.comparison.change_points import find_levels, step_height
from tb_gpu_doctor.comparison.level_tests import Float64


def series(levels: list[float], seed: int, scatter: float = 0.01) -> Float64:
    """Logarithms of levels that scatter."""
    return np.asarray(np.log(levels) + scatter * np.random.default_rng(seed).standard_normal(len(levels)))


@pytest.mark.parametrize("at", [3, 5, 9])
@pytest.mark.parametrize("factor", [0.8, 1.15, 2.0])
def test_a_planted_change_is_found_in_its_place(at: int, factor: float) -> None:
    found = find_levels(series([100.0] * at + [100.0 * factor] * (12 - at), seed=at), 0.03)
    (change,) = found.changes
    assert change.index == at and change.earliest == change.latest == at and change.confidence > 0.95
    assert change.height.low < math.log(factor) < change.height.high and change.height.excludes_zero
    assert (change.runs_before, change.runs_after) == (at, 12 - at)
    assert found.drift is None and found.newest is None and found.noticeable is None and found.lone == ()


def test_three_runs_on_each_side_suffice_where_they_are_alike() -> None:
    (change,) = find_levels(series([100.0] * 3 + [115.0] * 3, seed=1), 0.03).changes
    assert change.index == 3 and change.confidence > 0.9
    # that five are too few is no statement about them
    few = find_levels(series([100.0] * 3 + [115.0] * 2, seed=1), 0.03)
    assert few.changes == () and few.drift is None and few.noticeable is None and few.newest is not None


@pytest.mark.parametrize(
    ("levels", "places"),
    [
        ([100.0] * 4 + [130.0] * 4 + [98.0] * 4, [(4, True), (8, False)]),
        ([100.0] * 8 + [115.0] * 8 + [130.0] * 8, [(8, True), (16, True)]),
        ([100.0] * 10 + [115.0] * 10 + [130.0] * 10 + [110.0] * 10, [(10, True), (20, True), (30, False)]),
    ],
)
def test_several_changes_are_all_found(levels: list[float], places: list[tuple[int, bool]]) -> None:
    found = find_levels(series(levels, seed=2), 0.03).changes
    assert [(change.index, change.height.value > 0) for change in found] == places


def test_a_drift_moves_the_level_but_names_no_run() -> None:
    drifting = 0.01 * np.random.default_rng(5).standard_normal(30) + np.linspace(0, 0.2, 30)
    found = find_levels(drifting, 0.03)
    assert found.changes == () and found.drift == pytest.approx(0.2 * 2 / 3, abs=0.02)


@pytest.mark.parametrize("count", [1, 2])
def test_the_newest_runs_are_no_level_yet(count: int) -> None:
    values = series([100.0] * 7 + [140.0] * count, seed=4)
    found = find_levels(values, 0.03)
    assert found.changes == () and found.newest is not None
    assert found.newest.index == 7 and found.newest.first_before == 0
    assert found.newest.height.low < math.log(1.4) < found.newest.height.high
    # a third one makes them one
    assert [change.index for change in find_levels(series([100.0] * 7 + [140.0] * 3, seed=4), 0.03).changes] == [7]


def test_a_lone_run_is_left_aside() -> None:
    values = series([100.0] * 8 + [110.0] * 8, seed=6)
    values[4] += 0.4
    found = find_levels(values, 0.03)
    assert found.lone == (4,) and [change.index for change in found.changes] == [8]
    assert found.changes[0].height.value == pytest.approx(math.log(1.1), abs=0.02)


def test_a_lone_run_before_the_newest_makes_no_two_of_them() -> None:
    for runs in (12, 20, 45):
        values = series([100.0] * runs, seed=runs)
        values[-2] += 0.7
        found = find_levels(values, 0.03)
        assert found.newest is None and found.lone == (runs - 2,), runs
    values = series([100.0] * 20, seed=3)
    values[-2:] += (0.7, 0.3)
    newest = find_levels(values, 0.03).newest
    assert newest is not None and newest.index == 18, "both are slower: whether one is more so does not matter"


def test_no_lone_run_is_named_as_the_first_of_a_level() -> None:
    for seed in range(5):
        values = series([100.0] * 6 + [300.0] + [120.0] * 6, seed=seed)
        found = find_levels(values, 0.03)
        (change,) = found.changes
        assert found.lone == (6,) and change.index == 7 and change.earliest <= 7 <= change.latest
        assert (change.runs_before, change.runs_after) == (7, 6)


def test_up_and_down_again_is_two_changes_in_a_long_series() -> None:
    for seed in (2, 29, 32):
        random = np.random.default_rng(seed)
        first, end = int(random.integers(60, 150)), int(random.integers(153, 250))
        values = random.normal(0, 0.01, 300)
        values[first:end] += 0.1
        found = find_levels(values, 0.03).changes
        assert [change.index for change in found] == [first, end]


def test_small_changes_are_not_looked_for() -> None:
    values = series([100.0] * 10 + [102.0] * 10, seed=0, scatter=0.001)
    assert find_levels(values, 0.03).changes == () and len(find_levels(values, 0.01).changes) == 1


def test_scatter_that_is_known_beforehand_counts() -> None:
    # by chance the sessions are alike, though the steps of each vary so much that they need not be
    values = np.array([0.0, 0.001, 0.0, 0.05, 0.051, 0.05])
    assert len(find_levels(values, 0.03).changes) == 1
    assert find_levels(values, 0.03, floor=0.03**2).changes == ()


def test_what_would_have_been_noticed_grows_with_the_scatter_and_shrinks_with_the_runs() -> None:
    def noticeable(runs: int, scatter: float) -> float:
        found = [find_levels(series([100.0] * runs, seed, scatter), 0.03).noticeable for seed in range(20)]
        return float(np.median([value for value in found if value is not None]))

    assert noticeable(8, 0.03) > noticeable(30, 0.03) > noticeable(30, 0.01) > 0.03
    found = 0
    for seed in range(40):
        planted = series([100.0] * 6 + [100.0 * math.exp(noticeable(12, 0.02))] * 6, 100 + seed, 0.02)
        found += bool(find_levels(planted, 0.03).changes)
    assert found >= 24


@pytest.mark.filterwarnings("error")
def test_times_that_are_mostly_zero_need_many_runs() -> None:
    rare = np.zeros(20)
    rare[[3, 9, 15]] = 0.1
    assert find_levels(rare, 0.03, strictness=10, any_distribution=True).changes == ()
    begun = np.array([0.0] * 10 + [0.1, 0.12, 0.0, 0.11, 0.1, 0.1, 0.13, 0.1, 0.12, 0.1])
    assert [c.index for c in find_levels(begun, 0.03, strictness=10, any_distribution=True).changes] == [10]
    assert find_levels(begun[6:14], 0.03, strictness=10, any_distribution=True).changes == ()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("runs", range(9))
def test_short_and_even_series(runs: int) -> None:
    found = find_levels(np.full(runs, 3.0), 0.03)
    assert found.changes == () and found.drift is None and found.newest is None
    even = np.array([0.0] * 4 + [0.3] * 4)
    assert [change.index for change in find_levels(even, 0.03).changes] == [4]


def test_the_interval_of_a_height_holds_it() -> None:
    held = 0
    for seed in range(300):
        values = np.random.default_rng((9, seed)).standard_normal(10)
        height = step_height(values, 4)
        held += height.low <= 0 <= height.high
    assert held >= 285
