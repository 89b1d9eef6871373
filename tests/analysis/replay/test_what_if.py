"""Replays of the demo runs: the recorded steps come back, and a step without what was planted is as long as it was."""

from __future__ import annotations

from functools import cache

import pytest

from tb_gpu_doctor.analysis.replay.what_if import CHANGES, LIMITS, Change, Replay, Scenario, WhatIf, what_if
from tb_gpu_doctor.api import choose_session, diagnose_session
from tb_gpu_doctor.traces.columns import PS_PER_MS
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.conftest import DEMO_LOGS

RUNS = ("healthy", "input_bound", "launch_bound", "low_occupancy", "pytorch_ddp", "slow_gpu")


@cache
def replays(run: str, *combined: Change) -> WhatIf:
    result = diagnose_session(choose_session(find_sessions(str(DEMO_LOGS / run))))
    return what_if(result.files, result.job, [combined] if combined else None)


def scenario(run: str, change: Change) -> Scenario:
    return next(one for one in replays(run).scenarios if one.changes == (change,))


@pytest.mark.parametrize("run", RUNS)
def test_the_recorded_steps_come_back(run: str) -> None:
    found = replays(run)
    assert found.offered and found.reason is None
    assert found.error is not None and found.error < 0.02
    assert found.limited_by in LIMITS


@pytest.mark.parametrize("run", RUNS)
def test_no_change_makes_a_step_longer_and_none_beats_the_limit(run: str) -> None:
    found = replays(run)
    assert found.recorded is not None and found.limit is not None
    for one in found.scenarios:
        assert one.step <= found.recorded * 1.001
        if one.changes[0] not in ("products_twice", "attention_twice", "late_gpu"):
            assert one.step >= 0.99 * found.limit.step
        assert one.low is not None and one.high is not None and one.low <= one.step <= one.high
    assert [one.step for one in found.scenarios] == sorted(one.step for one in found.scenarios)


def test_a_slow_gpu_as_fast_as_its_peers_gives_the_step_of_the_others() -> None:
    one = scenario("slow_gpu", "late_gpu")
    assert one.step / PS_PER_MS == pytest.approx(82, abs=2)


def test_without_waiting_for_input_the_gpu_computes_all_the_time() -> None:
    one = scenario("input_bound", "no_input")
    limit = replays("input_bound").limit
    assert limit is not None and one.step < 1.02 * limit.step
    assert one.limited_by == "compute"


def test_launches_that_are_free_leave_the_kernels() -> None:
    assert scenario("launch_bound", "launches_free").step < 0.6 * (replays("launch_bound").recorded or 0)


def test_changes_that_are_combined_gain_at_least_what_the_better_one_does() -> None:
    (both,) = replays("pytorch_ddp", "no_input", "communication_hidden").scenarios
    assert both.changes == ("no_input", "communication_hidden")
    assert both.step <= min(scenario("pytorch_ddp", change).step for change in both.changes) * 1.001


def test_a_session_without_steps_offers_none() -> None:
    result = diagnose_session(choose_session(find_sessions(str(DEMO_LOGS / "healthy"))))
    from dataclasses import replace

    found = what_if([replace(file, replay=None) for file in result.files], result.job)
    assert (found.offered, found.reason, found.scenarios, found.limit) == (False, "no_steps", (), None)
    assert set(CHANGES)


@pytest.mark.parametrize("run", RUNS)
def test_what_is_not_on_the_longest_path_changes_nothing(run: str) -> None:
    result = diagnose_session(choose_session(find_sessions(str(DEMO_LOGS / run))))
    replay = Replay.of(result.files, result.job)
    assert isinstance(replay, Replay)
    recorded = replay.scenario(()).step
    idle = [change for change in replay.possible() if not replay.matters((change,))]
    assert all(replay.scenario((change,)).step == pytest.approx(recorded, rel=2e-3) for change in idle)
