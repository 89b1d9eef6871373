"""The recorded PyTorch runs, whose troubles are known, through the whole pipeline."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tb_gpu_doctor.api import SessionResult, choose_session, diagnose_session
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.conftest import SHARED_TRACES

FOLDERS = (
    "kineto_bert_small_h100", "kineto_diff_control_a100", "kineto_diff_test_v100", "kineto_dlrm_8xv100",
    "kineto_eager_b200", "kineto_megatron_tp8_a100", "kineto_minitoy_mi250", "kineto_resnet50_loader0_v100",
    "kineto_resnet50_loader4_v100",
)  # fmt: skip
# Advice of another framework has no place in what PyTorch users read.
FOREIGN = re.compile(r"\b(?:tf\.|tf_|tensorflow|keras|jax\b|jit_compile|xla\b|tf\.data)", re.IGNORECASE)


@cache
def result(folder: str) -> SessionResult:
    if not (SHARED_TRACES / folder).is_dir():
        pytest.skip(f"real profile not present ({SHARED_TRACES / folder})")
    return diagnose_session(choose_session(find_sessions(str(SHARED_TRACES / folder))))


def findings(folder: str) -> dict[str, float]:
    """Shares of the findings that cost time."""
    report = result(folder).diagnosis.to_dict()
    return {f["kind"]: f["share"] for f in report["findings"] if f["share"] is not None}


def test_a_loader_without_workers_is_found_and_its_mending_seen() -> None:
    before, after = findings("kineto_resnet50_loader0_v100"), findings("kineto_resnet50_loader4_v100")
    assert before["input_bound"] > 0.15 and "input_bound" not in after
    worst = result("kineto_resnet50_loader0_v100").diagnosis.to_dict()["findings"][0]
    assert worst["kind"] == "input_bound" and "num_workers" in " ".join(worst["advice"])
    assert "_SingleProcessDataLoaderIter" in worst["explanation"]


@pytest.mark.parametrize("folder", ["kineto_bert_small_h100", "kineto_eager_b200", "kineto_minitoy_mi250"])
def test_eager_runs_are_held_up_by_launching(folder: str) -> None:
    found = findings(folder)
    assert max(found, key=found.__getitem__) == "launch_bound" and found["launch_bound"] > 0.5


def test_ranks_of_one_folder_are_one_job() -> None:
    megatron = result("kineto_megatron_tp8_a100")
    assert len(megatron.files) == 8 and not megatron.failures
    assert [file.rank for file in megatron.files] == list(range(8))
    assert [file.host for file in megatron.files] == [f"rank{i}" for i in range(8)]
    report = megatron.diagnosis.to_dict()
    assert report["profile"]["format"] == "kineto" and len(report["devices"]) == 8
    idle = {device["host"]: device["idle_ms"] for device in report["devices"]}
    # the two late ones idle while the others wait for them inside collectives
    assert set(sorted(idle, key=idle.__getitem__)[-2:]) == {"rank0", "rank6"}


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("lang", ["en", "es"])
def test_advice_is_in_pytorchs_terms(folder: str, lang: str) -> None:
    report = result(folder).diagnosis.to_dict(lang)
    assert report["findings"] or report["verdict"] == "ok"
    for finding in report["findings"]:
        for advice in finding["advice"]:
            assert not FOREIGN.search(advice), (finding["kind"], advice)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_parts_of_the_time_add_up(folder: str) -> None:
    for device in result(folder).diagnosis.to_dict()["devices"]:
        parts = sum(device[f"{part}_ms"] for part in ("compute", "communication", "transfer", "idle"))
        assert parts == pytest.approx(device["wall_ms"], rel=1e-9)
        assert sum(device["idle_by_cause_ms"].values()) == pytest.approx(device["idle_ms"], rel=1e-9, abs=1e-9)
