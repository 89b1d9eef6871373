"""Telemetry with known truth: planted faults are found, on the right GPUs, and healthy recordings raise no alarm.

What is demanded: of planted faults every one is found, with the right GPUs and cause; of the warnings at least 98
of 100 are true (precision), and no healthy control raises any.
"""

from __future__ import annotations

from collections import Counter

import pytest

from simulator.faults.telemetry_runs import HEALTHY, PLANTS, TelemetryRun, healthy_run, planted_run
from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.rule import kinds
from tb_gpu_doctor.diagnosis.telemetry_engine import diagnose_telemetry

pytestmark = pytest.mark.slow

SEEDS = 12
CONTROLS = 30


def alarms(run: TelemetryRun) -> list[Finding]:
    """What would make somebody act."""
    return [f for f in diagnose_telemetry(run.telemetry).findings if f.severity != "info"]


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_recordings_raise_no_alarm(name: str) -> None:
    for seed in range(CONTROLS):
        found = alarms(healthy_run(name, seed))
        assert not found, (name, seed, [f.kind for f in found])


@pytest.mark.parametrize("name", PLANTS)
def test_planted_faults_are_found_and_little_else(name: str) -> None:
    right, wrong = 0, Counter[str]()
    for strength in PLANTS[name].strengths:
        for seed in range(SEEDS):
            run = planted_run(name, strength, seed)
            found = alarms(run)
            own = [f for f in found if f.kind == run.kind]
            assert len(own) == 1, (strength, seed, [f.kind for f in found])
            assert {gpu.id for gpu in own[0].gpus} == run.gpus, (strength, seed)
            assert own[0].cause == run.cause
            right += 1
            wrong.update(f.kind for f in found if f.kind != run.kind)
    assert right / (right + wrong.total()) >= 0.98, wrong


def test_every_rule_is_tried() -> None:
    assert {plant.kind for plant in PLANTS.values()} | {"memory_headroom"} == kinds("telemetry")
