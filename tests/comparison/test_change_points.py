"""Changes of level: found where they were planted, and not found in noise."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpu_doctor.comparison.change_points import (
    LEAST_RUNS,
    Float64,
    autocorrelation,
    best_fit,
    chance,
    chance_by_permutation,
    drift_advantage,
    filtered,
    find_levels,
    lone_runs,
    place_probabilities,
    quantile,
    step_height,
    without_lone_runs,
)


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


@pytest.mark.slow
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


@pytest.mark.slow
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


def left_over(values: Float64, columns: list[Float64], phi: float) -> float:
    """Squared deviations of the filtered values from the best sum of filtered columns and a level."""
    design = np.stack([filtered(column, phi) for column in (np.ones(len(values)), *columns)], axis=1)
    wanted = filtered(values, phi)
    found = np.linalg.lstsq(design, wanted, rcond=None)[0]
    return float(((wanted - design @ found) ** 2).sum())


@given(st.integers(0, 10_000), st.integers(6, 14))
@settings(max_examples=60, deadline=None)
def test_the_best_step_is_that_of_least_squares(seed: int, runs: int) -> None:
    values = np.random.default_rng(seed).standard_normal(runs)
    fit = best_fit(values, "step")
    assert fit is not None
    at = np.arange(runs)
    squares = {
        cut: left_over(values, [(at >= cut).astype(float)], fit.phi) for cut in range(LEAST_RUNS, runs - LEAST_RUNS + 1)
    }
    assert squares[fit.edges[0]] == pytest.approx(min(squares.values()))
    assert fit.scatter**2 * (runs - 2) == pytest.approx(min(squares.values()))
    level = left_over(values, [], fit.phi)
    assert 1 - fit.share**2 == pytest.approx(min(squares.values()) / level)


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_the_best_bump_is_that_of_least_squares(seed: int) -> None:
    values = np.random.default_rng(seed).standard_normal(11)
    fit = best_fit(values, "bump")
    assert fit is not None
    at = np.arange(11)
    squares = [
        left_over(values, [((at >= a) & (at < b)).astype(float)], fit.phi)
        for a, b in itertools.combinations(range(LEAST_RUNS, 11 - LEAST_RUNS + 1), 2)
        if b - a >= LEAST_RUNS
    ]
    assert fit.scatter**2 * 9 == pytest.approx(min(squares))


def test_of_one_candidate_the_chance_is_student_s() -> None:
    # six runs leave one cut, 3 + 3: Student's t with four degrees of freedom exceeds 2.776 in 5 % on both sides
    share = quantile(6, 0.0, "step", 0.05)
    assert math.sqrt(4) * share / math.sqrt(1 - share**2) == pytest.approx(2.776, abs=0.12)


@pytest.mark.parametrize("phi", [0.0, 0.3, 0.6])
def test_chances_of_normal_scatter_are_evenly_spread(phi: float) -> None:
    chances = []
    for seed in range(400):
        noise = np.random.default_rng((1, seed)).standard_normal(12)
        fit = best_fit(noise, "step")
        assert fit is not None
        chances.append(chance(fit, 12))
    # the autocorrelation is drawn towards a usual one, so what is not correlated looks less striking than it is
    assert np.mean(np.array(chances) < 0.05) <= 0.05
    assert 0.5 <= np.median(chances) <= 0.9


def test_permutation_of_a_clear_step_is_the_count_of_orders() -> None:
    values = np.array([0.0] * 5 + [1.0] * 5) + 1e-6 * np.arange(10)
    fit = best_fit(values, "step")
    assert fit is not None and fit.edges == (5, 10)
    # the five slow runs first or last: two of the choices of five out of ten
    assert chance_by_permutation(values, fit) <= 6 * 2 / math.comb(10, 5)
    bent = np.array([0.0, 1.0] * 5)
    fit = best_fit(bent, "step")
    assert fit is not None and chance_by_permutation(bent, fit) > 0.3


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_autocorrelation_is_estimated(rho: float) -> None:
    found = []
    for seed in range(40):
        random = np.random.default_rng(seed)
        values = np.zeros(200)
        for at in range(1, 200):
            values[at] = rho * values[at - 1] + random.standard_normal()
        found.append(autocorrelation(values, [100]))
    assert np.mean(found) == pytest.approx(rho, abs=0.06)
    assert autocorrelation(np.zeros(9), [4]) == pytest.approx(autocorrelation(np.ones(9), [4]))


def test_steps_and_staircases_are_no_drift_and_drifts_are_no_steps() -> None:
    noise = 0.01 * np.random.default_rng(3).standard_normal(24)
    step = noise + 0.2 * (np.arange(24) >= 9)
    stairs = noise + 0.1 * (np.arange(24) >= 8) + 0.1 * (np.arange(24) >= 16)
    straight = noise + 0.3 * np.arange(24) / 23
    settling = noise + 0.3 * (1 - np.exp(-np.arange(24) / 6))
    for values, is_step in ((step, True), (stairs, True), (straight, False), (settling, False)):
        fit = best_fit(values, "step")
        assert fit is not None and (drift_advantage(values, fit) > 8) is is_step


@given(st.integers(0, 10_000), st.floats(0, 0.7))
@settings(max_examples=40, deadline=None)
def test_probabilities_of_the_place_are_those_of_the_integral(seed: int, phi: float) -> None:
    values = np.random.default_rng(seed).standard_normal(7)
    found = place_probabilities(values, phi)
    at = np.arange(7)
    weights = []
    for cut in range(1, 7):
        step = (at >= cut).astype(float)
        design = np.stack([filtered(np.ones(7), phi), filtered(step, phi)], axis=1)
        # levels integrate to the root of the determinant, the scatter to a power of what is left
        determinant = float(np.linalg.det(design.T @ design))
        weights.append(determinant**-0.5 * left_over(values, [step], phi) ** (-5 / 2))
    assert found == pytest.approx(np.array(weights) / np.sum(weights), rel=1e-6)
    assert found.sum() == pytest.approx(1.0)


def test_a_lone_run_is_told_from_a_level() -> None:
    level = np.array([0.0, 0.01, -0.01, 0.0, 0.01, 0.0, -0.01, 0.01, 0.0, 0.01])
    lone = level.copy()
    lone[4] += 0.5
    assert np.flatnonzero(lone_runs(lone)).tolist() == [4]
    assert abs(without_lone_runs(lone, lone_runs(lone))[4]) <= 0.01
    step = level + 0.5 * (np.arange(10) >= 7)
    assert not lone_runs(step).any(), "where a level begins, its neighbours on one side are like it"
    assert not lone_runs(lone[:7]).any(), "too few runs tell none"
    last = level.copy()
    last[9] += 0.5
    assert np.flatnonzero(lone_runs(last)).tolist() == [9]


def test_nothing_to_fit() -> None:
    assert best_fit(np.zeros(3), "step") is None and best_fit(np.ones(9), "step") is None
    assert best_fit(np.arange(8.0), "bump") is None, "three levels of three runs are nine"
