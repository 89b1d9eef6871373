"""The CI examples of docs/check.md do what they say, as far as a machine without GPUs can run them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main
from tb_gpu_doctor.comparison.check import Limits, read_limits
from tb_gpu_doctor.diagnosis.rule import kinds

PAGE = Path(__file__).parents[2] / "docs" / "check.md"


def commands() -> list[str]:
    """The calls of the command in the two examples."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    found = [line.strip().removeprefix("- ").removeprefix("run: ") for block in blocks for line in block.splitlines()]
    return [line for line in found if line.startswith("gpu-doctor ")]


@pytest.fixture
def repository(demo_logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the profile that the training step would have left, and a baseline."""
    shutil.copytree(demo_logs / "healthy", tmp_path / "logs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    assert main(["baseline", "logs", "-o", "baseline.json"]) == 0
    return tmp_path


def test_the_examples_pass_a_good_run_and_fail_a_bad_one(repository: Path, demo_logs: Path) -> None:
    assert len(commands()) == 2
    for command in commands():
        assert main(shlex.split(command)[1:]) == 0
    assert (repository / "gpu-doctor.xml").is_file() and (repository / "gpu-doctor.md").is_file()
    shutil.rmtree(repository / "logs")
    shutil.copytree(demo_logs / "slow_gpu", repository / "logs")
    for command in commands():
        assert main(shlex.split(command)[1:]) == 1


@pytest.mark.parametrize("page", [PAGE, PAGE.parent / "es" / "check.md"])
def test_the_limits_of_the_page_can_be_read(page: Path, tmp_path: Path) -> None:
    block = re.search(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    (tmp_path / "gpu-doctor.toml").write_text(block.group(1), encoding="utf-8")
    limits = read_limits(str(tmp_path / "gpu-doctor.toml"), kinds())
    assert limits.idle_by_cause and limits.allowed and limits.baseline and limits != Limits()


TRAIN = '''"""Stands for a training script: writes the profile that it is told to, with the arguments of the page."""
import argparse, os, shutil
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--profile-steps", required=True)
parser.add_argument("--logdir", required=True)
shutil.copytree(os.environ["PROFILE"], parser.parse_args().logdir)
'''


def scripts() -> dict[str, list[str]]:
    """What the jobs of the two examples run, by system."""
    github, gitlab = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    steps = re.findall(r"^      - run: (.+)$", github, re.MULTILINE)
    script = gitlab[gitlab.index("script:") : gitlab.index("artifacts:")]
    return {"github": steps, "gitlab": re.findall(r"^    - (.+)$", script, re.MULTILINE)}


def test_the_examples_are_jobs_of_their_systems() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    github, gitlab = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))
    job = github["jobs"]["profile"]
    assert job["runs-on"] and [step["run"] for step in job["steps"] if "run" in step] == scripts()["github"]
    assert all(("run" in step) != ("uses" in step) for step in job["steps"])
    job = gitlab["gpu-performance"]
    assert job["script"] == scripts()["gitlab"] and job["artifacts"]["reports"]["junit"] == "gpu-doctor.xml"


@pytest.mark.slow
@pytest.mark.parametrize("system", ["github", "gitlab"])
def test_the_jobs_run_in_a_shell_as_the_systems_run_them(system: str, demo_logs: Path, tmp_path: Path) -> None:
    assert main(["baseline", str(demo_logs / "healthy"), "-o", str(tmp_path / "baseline.json")]) == 0
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name, content in {
        "python": f'exec "{sys.executable}" "$@"',
        "gpu-doctor": f'exec "{sys.executable}" -m tb_gpu_doctor.cli.main "$@"',
        "pip": "true",  # what is installed here is tested
    }.items():
        (bin_folder / name).write_text(f"#!/bin/sh\n{content}\n", encoding="utf-8")
        (bin_folder / name).chmod(0o755)
    for profile, status in (("healthy", 0), ("slow_gpu", 1)):
        environment = {
            **os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "PROFILE": str(demo_logs / profile),
            "GITHUB_STEP_SUMMARY": str(tmp_path / f"{profile}.md"), "PYTHONPATH": str(PAGE.parents[1]),
        }  # fmt: skip
        script = "\n".join(["set -e", *scripts()[system]])
        ended = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ended.returncode == status, ended.stderr
        if system == "github":
            assert ended.stdout.startswith("::notice" if status == 0 else "::error")
            assert "GPU Doctor" in (tmp_path / f"{profile}.md").read_text(encoding="utf-8")
        else:
            assert (tmp_path / "gpu-doctor.xml").is_file() and (tmp_path / "gpu-doctor.md").is_file()
        shutil.rmtree(tmp_path / "logs")
