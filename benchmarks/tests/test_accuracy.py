"""The scoreboard: what it counts, and that it can be run for one case."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.accuracy import main, scoreboard
from simulator.scoring import FaultScore, Score


def a_score(seed: int, found: bool, top: bool | None = True, alarms: tuple[str, ...] = ()) -> Score:
    fault = FaultScore("input_bound", "input_bound.map", 0.3, 0.3, True, found, gpus=found or None)
    faults = () if alarms or top is None else (fault,)
    return Score("x/keras/1", seed, "warning", faults, top, alarms, (), {"input": 0.01}, {"input": 0.3})


def test_rates_are_given_for_each_half() -> None:
    text = scoreboard([a_score(0, True), a_score(1, True), a_score(3, False, top=False)])
    assert "| planted faults found | 50.0% of 2 | 100.0% of 1 | ≥ 97 % |" in text
    assert "| right kind on top | 50.0% of 2 | 100.0% of 1 | ≥ 92 % |" in text
    assert "input_bound not found; not on top" in text
    assert "--cases '^x/keras/1$' --seed 3" in text


def test_an_alarm_in_a_healthy_run_counts() -> None:
    text = scoreboard([a_score(1, True, None, ("launch_bound",)), a_score(1, True, None)])
    assert "| healthy runs with a warning | 50.0% of 2 | ≤ 3 % |" in text
    assert "false alarm launch_bound" in text


def test_a_fault_that_costs_little_need_not_be_found() -> None:
    fault = FaultScore("input_bound", "input_bound.map", 0.02, 0.02, False, False)
    text = scoreboard([Score("x/jax/1", 1, "ok", (fault,), None, (), ())])
    assert "| planted faults found | – | ≥ 97 % |" in text


def test_one_case_can_be_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "board.md"
    assert main(["--cases", "^healthy.plain/jax/1$", "--seed", "1", "--out", str(out)]) == 0
    assert "healthy.plain/jax/1 seed 1: ok" in capsys.readouterr().out
    assert "| healthy runs with a warning | 0.0% of 1 |" in out.read_text()


def test_a_name_that_fits_nothing_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cases", "no such case"]) == 2
    assert "no case" in capsys.readouterr().err


def test_faults_between_gpus_are_told_by_plant_and_hosts() -> None:
    def job(case: str, found: bool) -> Score:
        fault = FaultScore("imbalance", "imbalance.slow_gpu", 0.3, 0.3, True, found, gpus=found or None)
        return Score(case, 1, "warning", (fault,), True, (), ())

    healthy = Score("healthy.plain/jax/4x2", 0, "warning", (), None, ("imbalance",), ())
    text = scoreboard([job("a/keras/4x2", True), job("b/jax/8x4", False), job("c/jax/8", True), healthy])
    assert "| `imbalance.slow_gpu` | 1 | 1 | 100.0% of 1 | 100.0% of 1 |" in text
    assert "| `imbalance.slow_gpu` | 2 to 4 | 2 | 50.0% of 2 | 100.0% of 1 |" in text
    assert "several hosts with a warning: 100.0% of 1." in text
