"""The tail probabilities agree with tables and with counting."""

from __future__ import annotations

import itertools

import pytest

from tb_gpu_doctor.analysis.stragglers import binomial_tail, student_tail


@pytest.mark.parametrize(
    ("value", "freedom", "tail"),
    # The usual table of Student's t.
    [(12.706, 1, 0.025), (4.303, 2, 0.025), (9.925, 2, 0.005), (2.262, 9, 0.025), (3.250, 9, 0.005),
     (2.045, 29, 0.025), (1.962, 1000, 0.025), (0.0, 5, 0.5), (-2.262, 9, 0.975), (float("inf"), 3, 0.0)],
)  # fmt: skip
def test_student(value: float, freedom: int, tail: float) -> None:
    assert student_tail(value, freedom) == pytest.approx(tail, rel=2e-3, abs=1e-12)


@pytest.mark.parametrize("trials", [1, 2, 5, 8])
@pytest.mark.parametrize("faces", [2, 3])
def test_binomial_counts_outcomes(trials: int, faces: int) -> None:
    outcomes = list(itertools.product(range(faces), repeat=trials))
    for successes in range(trials + 2):
        counted = sum(outcome.count(0) >= successes for outcome in outcomes) / len(outcomes)
        assert binomial_tail(successes, trials, 1 / faces) == pytest.approx(counted)


def test_binomial_borders() -> None:
    assert binomial_tail(3, 3, 1.0) == 1.0
    assert binomial_tail(1, 3, 0.0) == 0.0
    assert binomial_tail(1000, 1000, 0.5) == pytest.approx(0.5**1000)
