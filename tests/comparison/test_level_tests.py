"""The tests of levels: shapes against least squares, chances against brute force and Student's distribution."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpu_doctor.comparison.level_tests import (
    LEAST_RUNS,
    Float64,
    autocorrelation,
    best_fit,
    chance,
    chance_by_permutation,
    drift_advantage,
    filtered,
    lone_runs,
    place_probabilities,
    quantile,
    without_lone_runs,
)


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
