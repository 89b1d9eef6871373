"""Changes of level: found where they were planted, and not found in noise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tb_gpu_doctor.comparison.change_points import _cuts, find_changes

Float64 = NDArray[np.float64]


def runs(levels: list[float], seed: int, between: float = 0.01, within: float = 0.03, steps: int = 20) -> list[Float64]:
    """Runs whose means wander by ``between`` and whose steps vary by ``within``."""
    random = np.random.default_rng(seed)
    return [
        level * (1 + between * random.standard_normal()) * (1 + within * random.standard_normal(steps))
        for level in levels
    ]


@pytest.mark.parametrize("at", [1, 3, 7, 9])
@pytest.mark.parametrize("factor", [0.8, 1.15, 2.0])
def test_a_planted_change_is_found_in_its_place(at: int, factor: float) -> None:
    changes = find_changes(runs([100.0] * at + [100.0 * factor] * (10 - at), seed=at), 0.05)
    assert [change.index for change in changes] == [at]
    assert changes[0].change.low < factor - 1 + 0.03 and changes[0].change.high > factor - 1 - 0.03
    assert changes[0].confidence > 0.9
    assert (changes[0].runs_before, changes[0].runs_after) == (at, 10 - at)


def test_noise_alone_is_no_change() -> None:
    alarms = sum(bool(find_changes(runs([100.0] * 10, seed), 0.05)) for seed in range(60))
    assert alarms <= 1


def test_up_and_down_again_are_two_changes() -> None:
    changes = find_changes(runs([100.0] * 4 + [130.0] * 4 + [98.0] * 4, seed=2), 0.05)
    assert [(change.index, change.change.value > 0) for change in changes] == [(4, True), (8, False)]


def test_short_and_single_series() -> None:
    assert find_changes([], 0.05) == () and find_changes([np.full(5, 1.0)], 0.05) == ()
    (change,) = find_changes([np.full(9, 100.0), np.full(9, 120.0)], 0.05)
    assert (change.index, change.confidence) == (1, 1.0)
    assert change.change.value == pytest.approx(0.2)


@pytest.mark.parametrize("seed", range(20))
def test_cuts_are_those_of_brute_force(seed: int) -> None:
    values = np.random.default_rng(seed).uniform(1, 3, 7)

    def deviations(cut: int) -> float:
        return float(sum(((part - part.mean()) ** 2).sum() for part in (values[:cut], values[cut:])))

    assert int(_cuts(values[:, None])[0]) == min(range(1, 7), key=deviations)


@pytest.mark.parametrize("count", [4, 10, 25])
def test_runs_that_differ_by_chance_are_seldom_a_change(count: int) -> None:
    # a run is another day: three percent between runs, though the steps within one hardly vary
    alarms = sum(bool(find_changes(runs([100.0] * count, seed, between=0.03), 0.05)) for seed in range(60))
    assert alarms <= 9


def test_a_clear_change_is_found_in_spite_of_that() -> None:
    found = [find_changes(runs([100.0] * 6 + [120.0] * 4, seed, between=0.03), 0.05) for seed in range(30)]
    assert sum(any(change.index == 6 for change in changes) for changes in found) >= 25


def test_two_runs_a_little_apart_are_no_change() -> None:
    assert find_changes([np.full(20, 100.0), np.full(20, 106.0)], 0.05) == ()


@pytest.mark.filterwarnings("error")
def test_parts_that_most_steps_lack_make_no_trouble() -> None:
    rare = np.array([0.0] * 9 + [1.0])
    assert find_changes([rare] * 6, 0.05) == ()
    assert find_changes([np.zeros(9), rare, rare], 0.05) == ()
