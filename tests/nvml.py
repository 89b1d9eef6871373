"""The stand-in for NVIDIA's driver in tests: in a process of its own, or in this one at a time of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest

from simulator.nvml_stub import LIBRARY, LoadedStub, NoCompiler, build

REPOSITORY = Path(__file__).resolve().parent.parent


@lru_cache(maxsize=2)
def library(old_driver: bool = False) -> Path:
    """The compiled stand-in; the test is skipped where nothing can compile it."""
    folder = Path(tempfile.gettempdir()) / f"gpu-doctor-nvml-{os.getpid()}{'-old' if old_driver else ''}"
    folder.mkdir(exist_ok=True)
    try:
        return build(folder, old_driver)
    except NoCompiler as error:
        pytest.skip(str(error))


@lru_cache(maxsize=1)
def loaded() -> LoadedStub:
    """The stand-in in this process, without a scenario: no driver."""
    stub = LoadedStub(library(), Path(tempfile.gettempdir()) / f"gpu-doctor-scenario-{os.getpid()}.txt")
    del os.environ["NVML_STUB_SCENARIO"]
    return stub


def train(
    script: str,
    scenario: str | None,
    folder: Path,
    old_driver: bool = False,
    timeout_s: float = 60.0,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run a training script in a fresh interpreter over the driver that the scenario plays.

    Args:
        script: source; ``logdir`` is defined in it, and ``GpuMonitor``, ``os``, ``sys``, ``time`` are imported.
        scenario: text, None for a machine without a driver.
        folder: holds the scenario, the logdir is ``folder / "logs"``.
    """
    return subprocess.run(
        [sys.executable, "-c", PREFACE.format(logdir=str(folder / "logs")) + script],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=REPOSITORY,
        env=driver_environment(scenario, folder, old_driver) | environment,
    )


PREFACE = """
import os, sys, time
from tb_gpu_doctor import GpuMonitor
logdir = {logdir!r}
"""


def driver_environment(scenario: str | None, folder: Path, old_driver: bool = False) -> dict[str, str]:
    """The environment of a process whose driver is the stand-in."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("LD_LIBRARY_PATH", "NVML_STUB_SCENARIO", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
        and not name.startswith(("LC_", "LANG"))
    }
    if scenario is not None:
        path = library(old_driver)
        assert path.name == LIBRARY
        text = folder / "scenario.txt"
        text.write_text(scenario, encoding="utf-8")
        environment |= {"LD_LIBRARY_PATH": str(path.parent), "NVML_STUB_SCENARIO": str(text)}
    return environment
