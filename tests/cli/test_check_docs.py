"""The CI examples of docs/check.md do what they say, as far as a machine without GPUs can run them."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main
from tb_gpu_doctor.comparison.limits import Limits, read_limits
from tb_gpu_doctor.diagnosis.rules import KINDS

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
    limits = read_limits(str(tmp_path / "gpu-doctor.toml"), KINDS)
    assert limits.idle_by_cause and limits.allowed and limits.baseline and limits != Limits()
