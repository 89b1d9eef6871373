"""``gpu-doctor check`` as CI calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, so that no gpu-doctor.toml of this one is read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def test_the_demos_pass_and_fail(demo_logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(demo_logs / "healthy"), "--lang", "en"]) == 0
    assert "PASS" in capsys.readouterr().out
    assert main(["check", str(demo_logs / "input_bound"), "--lang", "en"]) == 1
    assert "REGRESSION" in capsys.readouterr().out


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
