"""``gpu-doctor check`` as CI calls it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main
from tests.cli.profiles import training, write


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, so that no gpu-doctor.toml of this one is read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def test_the_demos_pass_and_fail(demo_logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(demo_logs / "healthy"), "--lang", "en"]) == 0
    assert "PASS" in capsys.readouterr().out
    assert main(["check", str(demo_logs / "input_bound"), "--lang", "en"]) == 1
    assert "NOT ALLOWED" in capsys.readouterr().out


def test_a_baseline_gates_and_its_own_run_passes(
    demo_logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["baseline", str(demo_logs / "healthy"), "-o", "baseline.json"]) == 0
    Path("gpu-doctor.toml").write_text('[check]\nbaseline = "baseline.json"\n', encoding="utf-8")
    assert main(["check", str(demo_logs / "healthy"), "--lang", "en"]) == 0
    assert "against" in capsys.readouterr().out
    assert main(["check", str(demo_logs / "slow_gpu")]) == 1
    capsys.readouterr()
    assert main(["check", str(demo_logs / "pytorch_ddp"), "--format", "json"]) == 1
    data = json.loads(capsys.readouterr().out)
    by_id = {entry["id"]: entry["status"] for entry in data["checks"]}
    assert by_id["step_time"] == "cannot_tell", "other GPUs: the time must not pass"


def test_reports_are_written_beside(demo_logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    arguments = ["--write", "junit=junit.xml", "--write", "markdown=check.md", "--format", "github"]
    assert main(["check", str(demo_logs / "healthy"), *arguments]) == 0
    assert "<testsuites>" in Path("junit.xml").read_text(encoding="utf-8")
    assert Path("summary.md").read_text(encoding="utf-8") == Path("check.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--write", "pdf=x"], "FORMAT=FILE"),
        (["--write", "junit"], "FORMAT=FILE"),
        (["--write", "junit=/nowhere/x.xml"], "/nowhere/x.xml cannot be written"),
        (["--config", "/nowhere/x.toml"], "/nowhere/x.toml"),
        (["--baseline", "/nowhere/x"], "/nowhere/x does not exist"),
    ],
)
def test_what_fails_is_never_a_pass(
    demo_logs: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(demo_logs / "healthy"), "--lang", "en", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["check", "input_bound"], 1),
        (["check", "healthy"], 0),
        (["check", "healthy", "--baseline", "pytorch_ddp"], 2),
        (["compare", "healthy", "input_bound"], 0),
    ],
)
def test_a_reader_that_goes_away_does_not_change_the_status(
    demo_logs: Path, tmp_path: Path, arguments: list[str], status: int
) -> None:
    named = [str(demo_logs / word) if (demo_logs / word).is_dir() else word for word in arguments]
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "tb_gpu_doctor.cli.main", *named], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (status, b"")


def test_a_baseline_that_cannot_be_written_leaves_nothing_behind(demo_logs: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert main(["baseline", str(demo_logs / "healthy"), "-o", "folder"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_several_sessions_are_checked_as_one_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        folder = tmp_path / "logs" / "plugins" / "profile" / f"2026_01_01_00_00_0{number}"
        folder.mkdir(parents=True)
        write(training(number), folder / f"host{number}.xplane.pb")
    names = ["--session", "2026_01_01_00_00_01", "--session", "2026_01_01_00_00_02"]
    assert main(["baseline", "logs", *names, "-o", "b.json"]) == 0
    baseline = json.loads(Path("b.json").read_text(encoding="utf-8"))
    assert baseline["hosts"] == 2 and len(baseline["gpus"]) == 3
    capsys.readouterr()
    main(["check", "logs", *names, "--baseline", "b.json", "--format", "json"])
    assert json.loads(capsys.readouterr().out)["comparison"]["after"]["gpus"] == 3


def test_a_profile_that_can_be_read_in_part_only_does_not_pass(
    demo_logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(demo_logs / "healthy", tmp_path / "logs")
    (good,) = (tmp_path / "logs").rglob("*.xplane.pb")
    (good.parent / "other.xplane.pb").write_bytes(good.read_bytes()[:1000])
    assert main(["check", "logs", "--lang", "en", "--write", "junit=j.xml"]) == 2
    assert "1 file of the profile could not be read" in capsys.readouterr().out
    assert 'errors="1"' in Path("j.xml").read_text(encoding="utf-8")


def test_a_file_that_was_cut_off_does_not_pass_whatever_is_allowed(
    demo_logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(demo_logs / "pytorch_ddp", tmp_path / "logs")
    Path("gpu-doctor.toml").write_text("[findings]\nseverities = []\n", encoding="utf-8")
    assert main(["check", "logs", "--lang", "en"]) == 0
    one = sorted((tmp_path / "logs").glob("*.gz"))[1]
    one.write_bytes(one.read_bytes()[:-2000])
    assert main(["check", "logs", "--lang", "en"]) == 2
    assert "1 file of the profile was cut off" in capsys.readouterr().out
    capsys.readouterr()
    assert main(["diagnose", "logs", "--lang", "en", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] != "ok" and len(found["devices"]) == 4


@pytest.mark.slow
def test_packs_are_checked_and_stand_for_baselines(
    demo_logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pack", str(demo_logs / "healthy"), "-o", "good.gpudoctor.zip", "--slim"]) == 0
    assert main(["check", "good.gpudoctor.zip", "--baseline", str(demo_logs / "healthy"), "--lang", "en"]) == 0
    assert "good against healthy" in capsys.readouterr().out
    assert main(["check", str(demo_logs / "slow_gpu"), "--baseline", "good.gpudoctor.zip"]) == 1
    assert main(["baseline", "good.gpudoctor.zip", "-o", "b.json"]) == 0
    assert json.loads(Path("b.json").read_text(encoding="utf-8"))["label"] == "good"
    Path("bad.zip").write_bytes(b"PK\x03\x04 no more")
    assert main(["check", str(demo_logs / "healthy"), "--baseline", "bad.zip", "--lang", "en"]) == 2
    assert "bad.zip is damaged or cut off" in capsys.readouterr().err
