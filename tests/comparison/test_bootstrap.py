"""Intervals hold what they promise: their coverage over many simulated pairs of runs, and exactness at the edges."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tb_gpu_doctor.comparison.bootstrap import (
    block_length,
    correlation,
    difference,
    relative_difference,
    resample,
    t_quantile,
)

Float64 = NDArray[np.float64]


def independent(random: np.random.Generator, steps: int) -> Float64:
    return 100 + 5 * random.standard_normal(steps)


def skewed(random: np.random.Generator, steps: int) -> Float64:
    return 90 + random.exponential(10, steps)


def correlated(random: np.random.Generator, steps: int) -> Float64:
    noise, level = random.standard_normal(steps + 20), 0.0
    values = np.empty(steps + 20)
    for index in range(steps + 20):  # the first ones bring the series to its own scatter
        level = 0.6 * level + noise[index]
        values[index] = 100 + 4 * level
    return values[20:]


@pytest.mark.parametrize(
    ("draw", "steps", "least"),
    [
        (independent, 5, 0.94), (independent, 8, 0.94), (independent, 40, 0.94), (skewed, 10, 0.94),
        (skewed, 60, 0.93), (correlated, 10, 0.91), (correlated, 20, 0.92), (correlated, 80, 0.92),
    ],
)  # fmt: skip
def test_two_like_runs_differ_surely_in_few_pairs_only(
    draw: Callable[[np.random.Generator, int], Float64], steps: int, least: float
) -> None:
    random, pairs, held = np.random.default_rng(7), 400, 0
    for _ in range(pairs):
        before, after = (draw(random, steps)[:, None] for _ in range(2))
        held += not relative_difference(resample(before, 1, 600), resample(after, 2, 600), 0).excludes_zero
    assert held / pairs >= least


@pytest.mark.parametrize("steps", [5, 10, 20])
def test_neighbours_that_resemble_each_other_are_not_called_slower(steps: int) -> None:
    """Correlation hardly shows in so few steps, and must not be taken for a change all the same."""
    random, pairs, sure = np.random.default_rng(11), 300, 0
    for _ in range(pairs):
        change = relative_difference(
            *(resample(correlated(random, steps)[:, None], seed, 400) for seed in (1, 2)), column=0
        )
        sure += change.excludes_zero and abs(change.value) >= 0.05
    assert sure / pairs <= (0.12 if steps == 5 else 0.06)


def test_correlation_is_mended_for_few_steps_and_bounded() -> None:
    random = np.random.default_rng(2)
    found = [correlation(correlated(random, 12)) for _ in range(600)]
    assert 0.4 < float(np.mean(found)) < 0.62 and max(found) <= 0.9 and min(found) == 0.0
    assert correlation(np.full(9, 2.0)) == correlation(np.array([1.0, 9.0])) == 0.0
    assert correlation(np.array([1.0, 2.0] * 20)) == 0.0, "steps that alternate are no surer than independent ones"


def test_a_mean_of_one_long_wait_leaves_every_change_possible() -> None:
    before, after = np.array([[1.0], [1.0], [1.0], [90.0], [95.0]]), np.full((5, 1), 1.0)
    change = relative_difference(resample(before, 1), resample(after, 2), 0)
    assert math.isfinite(change.high) and change.high > 0 > change.low > -1


def test_a_change_beyond_the_noise_is_seen_and_its_interval_holds_it() -> None:
    random = np.random.default_rng(3)
    before, after = (scale * independent(random, 30)[:, None] for scale in (1.0, 0.8))
    change = relative_difference(resample(before, 1), resample(after, 2), 0)
    assert change.excludes_zero and change.low < -0.2 < change.high
    assert change.value == pytest.approx(after.mean() / before.mean() - 1)


def test_columns_share_their_draws() -> None:
    wall = np.random.default_rng(5).uniform(1, 9, 17)
    drawn = resample(np.column_stack((wall, 3 * wall, np.full(17, 2.0))), 1, 200)
    np.testing.assert_allclose(drawn.means[:, 1], 3 * drawn.means[:, 0])
    np.testing.assert_allclose(drawn.means[:, 2], 2.0)


def test_each_column_spreads_as_its_own_series_demands() -> None:
    random = np.random.default_rng(4)
    held = np.zeros(2)
    for _ in range(200):
        before, after = (
            np.column_stack((3 * independent(random, 20) + wave, wave))
            for wave in (correlated(random, 20), correlated(random, 20))
        )
        drawn = resample(before, 1, 300), resample(after, 2, 300)
        held += [not difference(*drawn, column).excludes_zero for column in (0, 1)]
    assert held[0] / 200 > 0.92 and held[1] / 200 > 0.9


def test_steps_that_never_vary_leave_no_doubt() -> None:
    before, after = np.full((6, 1), 10.0), np.full((6, 1), 12.0)
    change = difference(resample(before, 1, 50), resample(after, 2, 50), 0)
    assert (change.value, change.low, change.high) == (2.0, 2.0, 2.0)


def test_resampling_is_the_same_every_time() -> None:
    values = np.arange(20.0)[:, None]
    assert np.array_equal(resample(values, 1, 40).means, resample(values, 1, 40).means)


def test_blocks_grow_with_correlation_only() -> None:
    random = np.random.default_rng(1)
    assert block_length(independent(random, 200)) <= 2
    assert 3 <= block_length(correlated(random, 200)) <= 66
    assert block_length(np.full(100, 3.0)) == 1


@pytest.mark.parametrize(("freedom", "quantile"), [(4, 2.7764), (7, 2.3646), (9, 2.2622), (29, 2.0452), (1000, 1.9623)])
def testt_quantiles_agree_with_the_tables(freedom: int, quantile: float) -> None:
    assert math.isclose(t_quantile(1.959964, freedom), quantile, rel_tol=3e-3)
