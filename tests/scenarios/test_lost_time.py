"""Time lost beside the work: the cause is named, the saving is near the true one, and nothing else is claimed."""

from __future__ import annotations

import pytest

from simulator.faults.bases import base
from simulator.faults.cases import PLANTS, Case, faint_cases
from simulator.faults.lost_time import LOST_TIME_FAULTS, with_early_clock
from simulator.faults.setup import Style
from simulator.scoring import LOUD, Score, score
from tests.scenarios.chosen import scored, single_cases

pytestmark = pytest.mark.slow

OWN = {plant.id for plant in LOST_TIME_FAULTS}
CASES = [name for name in single_cases() if name.rsplit("/", 2)[0].rpartition(".")[0] in OWN]
# A hole in the file is idle time of which nothing is known, too.
ALSO = {"dropped_events": {"unexplained_idle"}}


def loud(found: Score) -> set[str]:
    return {said.split()[0] for said in found.said if said.endswith(tuple(f"[{word}]" for word in LOUD))}


def test_every_plant_of_lost_time_is_tried() -> None:
    assert len(CASES) == len(OWN) and set(PLANTS) >= OWN


@pytest.mark.parametrize("name", CASES)
def test_cause_culprit_and_saving_are_right(name: str) -> None:
    (fault,) = scored(name).faults
    assert fault.found and fault.cause is not False and fault.culprit is not False, scored(name).said
    assert fault.saving is None or fault.saving == pytest.approx(1.0, abs=0.2)
    assert scored(name).verdict != "ok"


@pytest.mark.parametrize("name", CASES)
def test_nothing_else_is_claimed(name: str) -> None:
    kind = name.split(".")[0]
    assert loud(scored(name)) <= {kind} | ALSO.get(kind, set()), scored(name).said


@pytest.mark.parametrize("name", [name for name in faint_cases() if ".16%/keras" in name or ".2%/jax" in name])
def test_faint_faults_are_found_or_left_alone(name: str) -> None:
    found, kind = score(faint_cases()[name], 1), name.split(".")[0]
    (fault,) = found.faults
    assert fault.found or not fault.required, found.said
    assert loud(found) <= {kind} | ALSO.get(kind, set()), found.said


@pytest.mark.parametrize("style", ["keras", "jax", "eager_tf"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_healthy_run_with_an_early_clock_has_no_warning(style: Style, seed: int) -> None:
    # A GPU that never waits for the host proves no more than that its clock is early: then there is no verdict.
    case = Case("early", (), lambda rng: with_early_clock(base(style, 1, "large", 6, rng)), style, 1)
    found = score(case, seed)
    assert not found.alarms, found.said
    assert found.verdict in ("ok", "cannot_tell")
