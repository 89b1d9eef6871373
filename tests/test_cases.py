"""Small inputs with the right answer to each, kept beside the repository and judged by a script that lies there."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tb_gpu_doctor.cli.main import main
from tests.conftest import SHARED_CASES
from tests.honesty import dishonesties

# How many answers were right when somebody last looked. Raise it with each change that mends some; never lower it.
RIGHT_AT_LEAST = 106


def judge() -> ModuleType:
    """The script as a module."""
    script = SHARED_CASES / "check.py"
    if not script.is_file():
        pytest.skip(f"cases not present ({script})")
    spec = importlib.util.spec_from_file_location("judge_of_cases", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_here(_command: object, case: dict[str, Any], extra: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What the command answers, without an interpreter of its own for each of the two hundred answers."""
    out, err = io.StringIO(), io.StringIO()
    given = ["--lang", "en", "diagnose", str(SHARED_CASES / case["path"]), *case["args"], *extra]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(given)
    return subprocess.CompletedProcess(given, status, out.getvalue(), err.getvalue())


@pytest.mark.slow
def test_no_fewer_cases_are_right_than_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judging = judge()
    dishonest: list[str] = []

    def run(command: object, case: dict[str, Any], extra: Sequence[str]) -> subprocess.CompletedProcess[str]:
        done = run_here(command, case, extra)
        if "--json" in extra and done.stdout:
            dishonest.extend(f"{case['path']}: {text}" for text in dishonesties(json.loads(done.stdout)))
        return done

    monkeypatch.setattr(judging, "run", run)
    for name, value in {"GPU_DOCTOR_CACHE_DIR": str(tmp_path), "NO_COLOR": "1", "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    cases = json.loads((SHARED_CASES / "cases.json").read_text(encoding="utf-8"))
    wrong = [f"{case['path']}: {'; '.join(found)}" for case in cases if (found := judging.faults(case, []))]
    right = len(cases) - len(wrong)
    print(f"{right} of {len(cases)} right", *wrong, sep="\n")
    assert right >= RIGHT_AT_LEAST, f"{right} of {len(cases)} cases are right, {RIGHT_AT_LEAST} were before"
    assert dishonest == []


@pytest.mark.slow
def test_the_script_runs_the_command_as_it_is_installed() -> None:
    judging = judge()
    case = json.loads((SHARED_CASES / "cases.json").read_text(encoding="utf-8"))[0]
    found = judging.run([sys.executable, "-m", "tb_gpu_doctor.cli.main"], case, [])
    here = run_here(None, case, [])
    assert (found.returncode, found.stdout.split(), found.stderr) == (here.returncode, here.stdout.split(), here.stderr)
