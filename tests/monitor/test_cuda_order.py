"""CUDA's own numbers, from a stand-in for its library that orders the GPUs by speed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tb_gpu_doctor.telemetry.recordings import read_telemetry
from tests.nvml import driver_environment, train

# The two GPUs of the scenario, the other way round; nothing answers before cuInit.
CUDA = """
#include <string.h>
static int started;
int cuInit(unsigned flags) { (void)flags; started = 1; return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return started ? 0 : 3; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetUuid(unsigned char *uuid, int device) {
    memset(uuid, 0, 16);
    uuid[3] = 1 - device;
    uuid[15] = 2 - device;
    return 0;
}
"""
MIXED = "gpus 2\ngpu 0 name Tesla T4\ngpu 1 name NVIDIA H100 80GB HBM3\n"


@pytest.fixture
def libraries(tmp_path: Path) -> str:
    """A folder with both stand-ins."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler found")
    folder = driver_environment(MIXED, tmp_path)["LD_LIBRARY_PATH"]
    source = tmp_path / "cuda.c"
    source.write_text(CUDA)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(source)], check=True)
    return f"{folder}{os.pathsep}{tmp_path}"


def framework_ids(folder: Path) -> list[int | None]:
    return [gpu.facts.framework_id for gpu in read_telemetry(folder / "logs").recordings[0].gpus]


def test_cuda_is_asked_once_the_framework_has_started_it(tmp_path: Path, libraries: str) -> None:
    done = train(
        """
import ctypes
with GpuMonitor(logdir, 0.05):
    time.sleep(0.3)
    ctypes.CDLL("libcuda.so.1").cuInit(0)  # as a framework does
    time.sleep(0.4)
""",
        MIXED,
        tmp_path,
        LD_LIBRARY_PATH=libraries,
    )
    assert done.returncode == 0, done.stderr
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in done.stderr
    assert framework_ids(tmp_path) == [1, 0]


@pytest.mark.parametrize("loaded", [True, False])
def test_cuda_is_neither_loaded_nor_started_by_the_monitor(loaded: bool, tmp_path: Path, libraries: str) -> None:
    done = train(
        f"""
import ctypes
cuda = ctypes.CDLL("libcuda.so.1") if {loaded} else None
with GpuMonitor(logdir, 0.05):
    time.sleep(0.3)
assert "libcuda" in open("/proc/self/maps").read() if cuda else "libcuda" not in open("/proc/self/maps").read()
assert not cuda or cuda.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == 3
""",
        MIXED,
        tmp_path,
        LD_LIBRARY_PATH=libraries,
    )
    assert done.returncode == 0, done.stderr
    assert framework_ids(tmp_path) == [None, None]
