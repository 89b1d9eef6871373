"""Faults whose truth is known: found, named first, of the right GPUs, and their idle time charged rightly."""

from __future__ import annotations

import pytest

from simulator.faults.cases import PLANTS
from simulator.scoring import MIN_COST
from tb_gpu_doctor.diagnosis.rule import kinds
from tests.scenarios.chosen import pair_cases, scored, single_cases

pytestmark = pytest.mark.slow

PLANTED_KINDS = tuple(sorted({plant.kind for plant in PLANTS.values()}))


@pytest.mark.parametrize("name", single_cases())
def test_the_planted_fault_is_found(name: str) -> None:
    (fault,) = scored(name).faults
    assert fault.cost >= MIN_COST
    assert fault.found, scored(name).said
    assert fault.gpus is not False, scored(name).said


@pytest.mark.parametrize("name", single_cases())
def test_it_is_named_first(name: str) -> None:
    assert scored(name).top is not False, scored(name).said


@pytest.mark.parametrize("name", pair_cases())
def test_of_two_faults_both_are_found_and_the_costlier_is_named_first(name: str) -> None:
    said = scored(name).said
    assert all(fault.found for fault in scored(name).faults if fault.required), said
    assert scored(name).top is not False, said


@pytest.mark.parametrize("name", [*single_cases(), *pair_cases()])
def test_idle_time_is_charged_to_its_causes(name: str) -> None:
    found = scored(name)
    assert found.idle_error <= 0.02, (dict(found.idle), dict(found.idle_truth))


def test_every_planted_kind_is_tried() -> None:
    assert {name.split(".")[0] for name in single_cases()} == set(PLANTED_KINDS)


def test_every_planted_kind_has_a_rule() -> None:
    assert set(PLANTED_KINDS) <= kinds()
