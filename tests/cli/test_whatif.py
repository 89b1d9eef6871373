"""``gpu-doctor whatif`` as its users call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main


def test_the_table_shows_the_record_the_replays_and_the_limit(
    demo_logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["whatif", str(demo_logs / "slow_gpu"), "--no-color"]) == 0
    out = capsys.readouterr().out.replace("\u00a0", " ").splitlines()
    assert "as recorded" in out[1] and "110 ms" in out[1]
    late = next(line for line in out if "as fast as its peers" in line)
    assert "82.2 ms" in late and "−26%" in late
    assert any("off the recorded steps" in line for line in out)


def test_changes_are_combined_and_asked_for_one_by_one(demo_logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [
        "whatif",
        str(demo_logs / "pytorch_ddp"),
        "--change",
        "no_input,communication_hidden",
        "--change",
        "no_sync",
    ]
    assert main([*given, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [one["changes"] for one in data["scenarios"]] == [["no_input", "communication_hidden"], ["no_sync"]]
    assert data["replay"]["offered"] and data["replay"]["error"] < 0.02
    assert data["scenarios"][0]["saving_ms"] == pytest.approx(data["recorded_ms"] - data["scenarios"][0]["step_ms"])
    assert main([*given, "--lang", "es"]) == 0
    assert "sin esperar datos de entrada" in capsys.readouterr().out


def test_a_change_that_nobody_knows_is_refused_with_those_there_are(
    demo_logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["whatif", str(demo_logs / "slow_gpu"), "--change", "faster"]) == 2
    assert "communication_hidden" in capsys.readouterr().err


def test_the_diagnosis_holds_the_same(demo_logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(demo_logs / "input_bound")
    assert main(["diagnose", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["whatif"]
    assert main(["whatif", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
