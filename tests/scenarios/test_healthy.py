"""Runs in which nothing is wrong: the doctor keeps quiet."""

from __future__ import annotations

import pytest

from simulator.faults.cases import all_cases
from tests.scenarios.chosen import healthy_cases, scored

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", healthy_cases())
def test_a_healthy_run_has_no_warning(name: str) -> None:
    found = scored(name)
    assert not found.alarms, found.said
    assert found.verdict == "ok"
    assert found.idle_error <= 0.02


def test_there_are_at_least_thirty_controls() -> None:
    assert sum(not case.planted for case in all_cases().values()) >= 30
