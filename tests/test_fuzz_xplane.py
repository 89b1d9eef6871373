"""The fuzzer of whole XPlane files: repeatable, and it notices what it is there to notice."""

from __future__ import annotations

import dataclasses
import signal
from random import Random

import pytest

from fuzz import fuzz_xplane, whole_diagnosis
from fuzz.whole_diagnosis import Failure, check_diagnosis, facts_of
from simulator.faults.cases import all_cases
from tb_gpu_doctor.diagnosis.model import Diagnosis
from tests.hosts import read_run


@pytest.mark.slow
def test_damaged_files_end_in_diagnoses_and_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "alarm", lambda _seconds: 0)
    first = fuzz_xplane.run(60, seed=7, most=30)
    assert first.total() == 30 and {"critical", "cannot_tell"} <= set(first)
    assert fuzz_xplane.run(60, seed=7, most=10) == fuzz_xplane.run(60, seed=7, most=10), "the same inputs each time"


def test_every_kind_of_damage_is_done() -> None:
    whole = fuzz_xplane.spaces()
    assert len(whole) == len(fuzz_xplane.CASES)
    done = {name for i in range(60) for name in fuzz_xplane.make_input(Random(i), whole[:1])[0].split(", ")}
    assert done == {damage.__name__ for damage in fuzz_xplane.DAMAGES}


def test_a_number_out_of_bounds_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_of(read_run(all_cases()[fuzz_xplane.CASES[0]].run(1)))
    assert check_diagnosis(facts).verdict == "critical"
    honest = whole_diagnosis.diagnose_files

    def boastful(files: tuple[object, ...]) -> Diagnosis:
        found = honest(files)  # type: ignore[arg-type]
        worse = [dataclasses.replace(finding, saving_ps_per_step=1e15) for finding in found.findings]
        return dataclasses.replace(found, findings=tuple(worse))

    monkeypatch.setattr(whole_diagnosis, "diagnose_files", boastful)
    with pytest.raises(Failure, match="no saving exceeds the step"):
        check_diagnosis(facts)
