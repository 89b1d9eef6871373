"""Whole histories, simulated: false alarms are rare, real changes are found in the right session, places are honest.

``benchmarks/history.py`` counts the same over many more histories.
"""

from __future__ import annotations

import numpy as np
import pytest

from simulator import histories as simulation

SEEDS = range(2_000_000, 2_000_040)
FEW = range(2_000_000, 2_000_020)


@pytest.mark.slow
@pytest.mark.parametrize("noise", simulation.NOISES)
def test_histories_without_a_change_raise_few_alarms(noise: str) -> None:
    cases = [(0.01, 12), (0.03, 6), (0.03, 20), (0.05, 9), (0.10, 14), (0.05, 40)]
    shares = [simulation.alarms(noise, scatter, count, FEW).any for scatter, count in cases]
    # of 120 histories six are expected at 5 %; more than twelve would be seen in one of a hundred such tests
    assert np.mean(shares) <= 0.10
    assert max(shares) <= 0.25


@pytest.mark.slow
def test_the_usual_noise_raises_hardly_any() -> None:
    shares = [simulation.alarms("normal", scatter, 10, SEEDS).any for scatter in (0.01, 0.03, 0.05, 0.10)]
    assert np.mean(shares) <= 0.04


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_too_few_sessions_raise_none(count: int) -> None:
    assert simulation.alarms("heavy tails (Student's t, 3)", 0.10, count, FEW).any == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "scatter", "before", "after", "least"),
    [
        (0.05, 0.01, 10, 10, 0.8),
        (0.10, 0.01, 3, 3, 0.75),
        (0.10, 0.02, 10, 10, 0.75),
        (0.20, 0.02, 4, 3, 0.8),
        (0.20, 0.03, 8, 3, 0.8),
        (0.50, 0.03, 3, 3, 0.85),
        (0.50, 0.03, 30, 5, 0.95),
    ],
)
def test_real_changes_are_found_in_the_right_session(
    change: float, scatter: float, before: int, after: int, least: float
) -> None:
    found = simulation.power(change, scatter, before, after, SEEDS)
    assert found.exact >= least and found.told >= 0.9
    assert found.extra <= 0.05


@pytest.mark.slow
def test_the_confidence_in_the_place_is_honest() -> None:
    places = [
        place
        for scatter, before, after in ((0.02, 10, 10), (0.03, 12, 6), (0.03, 20, 20))
        for place in simulation.power(0.08, scatter, before, after, SEEDS).places
    ]
    stated, right, in_range = (np.array([place[column] for place in places], float) for column in (0, 1, 2))
    assert len(places) > 60
    assert stated.mean() <= right.mean() + 0.08
    assert in_range.mean() >= 0.9
