"""Nothing in the current folder runs, whatever it is called: every command that starts Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tb_gpu_doctor.isolated_python import isolated, safe_path

PACKAGE = Path(__file__).resolve().parents[1] / "tb_gpu_doctor"
# What the children import early and late: the library's, their own, and TensorBoard's.
PLANTED = (
    "tensorboard", "socket", "json", "runpy", "numpy", "tb_gpu_doctor", "werkzeug", "torch", "tensorflow", "jax",
    "sitecustomize", "usercustomize", "statistics", "tempfile", "grpc",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with modules that leave a mark when they run."""
    here = tmp_path / "downloads"
    here.mkdir()
    for name in PLANTED:
        (here / f"{name}.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r} + ' ')\nraise ImportError\n"
        )
    (here / "mine.py").write_text("import time\ndef make(size):\n    return lambda: time.sleep(1e-4)\n")
    return here


def command(*arguments: str) -> list[str]:
    """As the installed script starts it: the script's own folder comes first on the path, not the current one."""
    script = Path(sys.executable).with_name("gpu-doctor")
    if not script.exists():
        pytest.skip("the command is not installed")
    return [sys.executable, str(script), *arguments]


def ran(folder: Path) -> str:
    mark = folder.parent / "ran"
    return mark.read_text() if mark.exists() else ""


def test_the_folder_would_harm_python(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "tensorboard"], cwd=folder, capture_output=True, check=False)
    assert "tensorboard" in ran(folder)


@pytest.mark.slow
def test_env(folder: Path) -> None:
    done = subprocess.run(command("env", "--json"), cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout.lstrip().startswith("{"), done.stderr
    assert ran(folder) == ""


@pytest.mark.slow
def test_batch(folder: Path) -> None:
    done = subprocess.run(
        command("batch", "mine:make", "--max", "8"), cwd=folder, capture_output=True, text=True, check=False
    )
    assert "8" in done.stdout and done.returncode == 0, done.stderr + done.stdout
    assert ran(folder) == ""


@pytest.mark.slow
def test_view(folder: Path, demo_logs: Path) -> None:
    viewing = subprocess.Popen(
        command("view", str(demo_logs / "healthy"), "--no-open", "--port", "0"),
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert viewing.stdout is not None
    said = []
    try:
        deadline = time.monotonic() + 120
        for line in viewing.stdout:
            said.append(line)
            if re.search(r"http://\S+", line) or time.monotonic() > deadline:
                break
    finally:
        viewing.terminate()
        viewing.wait(30)
    assert re.search(r"http://\S+", said[-1]), said
    assert ran(folder) == ""


def test_a_child_finds_what_this_process_finds() -> None:
    done = subprocess.run(isolated("this", ["a b", ""]), capture_output=True, text=True, check=True)
    assert "Zen of Python" in done.stdout
    done = subprocess.run(
        isolated("tests.plugin.work", []), capture_output=True, text=True, check=False, cwd=PACKAGE.parent
    )
    assert done.returncode == 0, "the folder of a checkout is there all the same, at the end"
    assert safe_path()[-1] == str(PACKAGE.parent) and "" not in safe_path()
    assert os.path.realpath(os.curdir) not in map(os.path.realpath, safe_path()[:-1])


def test_no_other_module_starts_python_in_the_current_folder() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"sys\.executable", path.read_text(encoding="utf-8"))
    }
    # The workers of `parallel` are isolated by themselves; the environment's report names the interpreter.
    assert found <= {"isolated_python.py", "parallel/processes.py", "monitor/environment_host.py"}
