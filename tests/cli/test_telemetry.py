"""``gpu-doctor diagnose`` on a logdir with telemetry: alone, beside a profile, and beside one it does not belong to."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import tb_gpu_doctor
from tb_gpu_doctor.report.diagnosis_report import schema


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tb_gpu_doctor.cli.main", "diagnose", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def alone(demo_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with telemetry only."""
    root = tmp_path_factory.mktemp("logs")
    for name in ("slow_gpu", "input_bound", "launch_bound"):
        shutil.copytree(demo_logs / name / "gpu_doctor", root / name / "gpu_doctor")
    return root


@pytest.mark.slow
@pytest.mark.parametrize(("lang", "words"), [("en", "slowed down by heat"), ("es", "El calor frena")])
def test_telemetry_alone_gives_a_diagnosis_and_the_next_step(alone: Path, lang: str, words: str) -> None:
    found = run(alone / "slow_gpu", "--lang", lang)
    assert found.returncode == 0 and words in found.stdout
    assert "Traceback" not in found.stderr
    heading = {"en": "(simulated driver)", "es": "(driver simulado)"}[lang]
    profile = {"en": "a profile of a few steps tells", "es": "un perfil de unos pocos pasos"}[lang]
    assert heading in found.stdout and profile in " ".join(found.stdout.split())


@pytest.mark.slow
def test_its_json_follows_the_schema(alone: Path) -> None:
    for name, verdict in (("slow_gpu", "critical"), ("input_bound", "warning"), ("launch_bound", "cannot_tell")):
        for lang in ("en", "es"):
            data = tb_gpu_doctor.diagnose(alone, run=name).to_dict(lang)
            jsonschema.validate(data, schema())
            assert (data["verdict"], data["profile"]["format"], data["profile"]["session"]) == (
                verdict, "telemetry", "telemetry",
            )  # fmt: skip
            assert data["telemetry"]["simulated"] and data["profile"]["warnings"]
            assert all(device["wall_ms"] is None for device in data["devices"]) and data["devices"]
    text = run(alone / "launch_bound", "--json").stdout
    assert json.loads(text)["findings"][0]["kind"] == "memory_headroom"


@pytest.mark.slow
def test_telemetry_may_be_chosen_beside_a_profile(demo_logs: Path) -> None:
    profile = run(demo_logs / "slow_gpu")
    assert "1 other session" not in profile.stderr  # it is part of the diagnosis
    assert "thermal limit since step 1,200" in " ".join(profile.stdout.split())
    telemetry = run(demo_logs / "slow_gpu", "--session", "telemetry")
    assert telemetry.returncode == 0 and "slowed down by heat" in telemetry.stdout


@pytest.mark.slow
def test_telemetry_that_does_not_belong_to_the_profile_is_told(demo_logs: Path, tmp_path: Path) -> None:
    shutil.copytree(demo_logs / "healthy", tmp_path / "run")
    shutil.copytree(demo_logs / "slow_gpu" / "gpu_doctor", tmp_path / "run" / "gpu_doctor")
    found = run(tmp_path, "--run", "run")
    assert "was not joined with this profile: it was recorded at another time" in " ".join(found.stdout.split())
    data = tb_gpu_doctor.diagnose(tmp_path).to_dict()
    jsonschema.validate(data, schema())
    assert data["verdict"] == "ok" and data["telemetry"]["gpus"] == []


@pytest.mark.slow
def test_a_recording_of_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "gpu_doctor/node/process"
    folder.mkdir(parents=True)
    (folder / "events.out.tfevents.1.node.1.0.gpu_doctor").write_bytes(b"")
    found = run(tmp_path)
    assert found.returncode == 0 and "Traceback" not in found.stderr and "CANNOT TELL" in found.stdout
