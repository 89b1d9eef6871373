"""Small inputs with the right answer to each, kept beside the repository and judged by a script that lies there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from tests.conftest import SHARED_CASES

# How many answers were right when somebody last looked. Raise it with each change that mends some; never lower it.
RIGHT_AT_LEAST = 104


@pytest.mark.slow
def test_no_fewer_cases_are_right_than_before() -> None:
    script = SHARED_CASES / "check.py"
    if not script.is_file():
        pytest.skip(f"cases not present ({script})")
    command = shlex.join((sys.executable, "-m", "tb_gpu_doctor.cli.main"))
    done = subprocess.run(
        [sys.executable, str(script), "--command", command], capture_output=True, text=True, errors="replace"
    )
    found = re.search(r"^(\d+) of (\d+) right$", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout + done.stderr
    right, cases = map(int, found.groups())
    wrong = [line for line in done.stdout.splitlines() if line != found[0]]
    print(f"{right} of {cases} right", *wrong, sep="\n")
    assert right >= RIGHT_AT_LEAST, f"{right} of {cases} cases are right, {RIGHT_AT_LEAST} were before"
