"""Which GPU is which, by CUDA's rules."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tb_gpu_doctor.monitor.devices import Device, choose_devices, visible_devices
from tb_gpu_doctor.telemetry.recordings import read_telemetry
from tests.nvml import driver_environment, train

UUIDS = ["GPU-aaaa1111-0", "GPU-aaaa2222-0", "GPU-bbbb3333-0", "GPU-cccc4444-0"]
FOUR = [Device(index, uuid, f"0000:0{index}:00.0", "H100") for index, uuid in enumerate(UUIDS)]
MIG = [
    Device(0, UUIDS[0], "0000:00:00.0", "A100", mig_enabled=True),
    Device(0, "MIG-11111111-0", "0000:00:00.0", "A100 MIG 1g", mig=0, mig_enabled=True),
    Device(0, "MIG-22222222-0", "0000:00:00.0", "A100 MIG 1g", mig=1, mig_enabled=True),
    Device(1, UUIDS[1], "0000:01:00.0", "A100"),
]


def visible(value: str | None, devices: list[Device] = FOUR, **environment: str) -> list[str]:
    if value is not None:
        environment["CUDA_VISIBLE_DEVICES"] = value
    return [device.label for device in visible_devices(devices, environment).devices]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ["gpu0", "gpu1", "gpu2", "gpu3"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("2", ["gpu2"]),
        ("3,1", ["gpu3", "gpu1"]),
        (" 3 , 1 ", ["gpu3", "gpu1"]),
        ("1,-1,2", ["gpu1"]),
        ("0,7,2", ["gpu0"]),
        ("0,x,2", ["gpu0"]),
        ("9", []),
        ("1,1", []),
        ("0,GPU-aaaa1111", []),
        ("GPU-bbbb3333-0", ["gpu2"]),
        ("GPU-b", ["gpu2"]),
        ("gpu-B", ["gpu2"]),
        ("GPU-aaaa", []),
        ("GPU-aaaa2,GPU-c", ["gpu1", "gpu3"]),
        ("GPU-", []),
        ("GPU-ffff", []),
        ("1,", ["gpu1"]),
        (",1", []),
        ("٣", []),
    ],
)
def test_cuda_visible_devices(value: str | None, expected: list[str]) -> None:
    assert visible(value) == expected


def test_the_framework_counts_what_is_visible() -> None:
    mapping = visible_devices(FOUR, {"CUDA_VISIBLE_DEVICES": "3,1"})
    assert mapping.framework_ids == (0, 1)
    assert not mapping.uncertain


def test_what_is_named_and_unknown_is_told() -> None:
    assert visible_devices(FOUR, {"CUDA_VISIBLE_DEVICES": "0,7,2"}).unknown_tokens == ("7",)
    assert visible_devices(FOUR, {"CUDA_VISIBLE_DEVICES": "-1"}).unknown_tokens == ()


def test_gpus_of_different_kinds_are_only_certain_in_the_order_of_their_bus() -> None:
    mixed = [Device(0, UUIDS[0], "", "T4"), Device(1, UUIDS[1], "", "H100")]
    by_default = visible_devices(mixed, {})
    assert by_default.uncertain
    assert by_default.framework_ids == (None, None)
    by_bus = visible_devices(mixed, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert by_bus.framework_ids == (0, 1)
    by_uuid = visible_devices(mixed, {"CUDA_VISIBLE_DEVICES": UUIDS[1]})
    assert by_uuid.framework_ids == (0,)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ["gpu1"]),
        ("MIG-2222", ["gpu0_mig1"]),
        ("MIG-11111111-0,MIG-22222222-0", ["gpu0_mig0"]),
        ("0", ["gpu0_mig0"]),
        ("1", ["gpu1"]),
    ],
)
def test_instances_of_a_partitioned_gpu(value: str | None, expected: list[str]) -> None:
    assert visible(value, MIG) == expected


def test_a_machine_of_instances_alone_shows_the_first() -> None:
    assert visible(None, MIG[:3]) == ["gpu0_mig0"]


def test_gpus_chosen_by_hand_keep_the_frameworks_numbers() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "3,1"}
    everything = choose_devices(FOUR, "all", environment)
    assert everything.framework_ids == (None, 1, None, 0)
    some = choose_devices(FOUR, [3, "GPU-bbbb", 3], environment)
    assert [device.label for device in some.devices] == ["gpu3", "gpu2"]
    assert some.framework_ids == (0, None)
    assert choose_devices(FOUR, [17], environment).unknown_tokens == ("17",)
    assert [device.label for device in choose_devices(FOUR, 2, environment).devices] == ["gpu2"]
    assert [device.label for device in choose_devices(MIG, "all", {}).devices] == ["gpu0_mig0", "gpu0_mig1", "gpu1"]


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


@pytest.mark.slow
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


@pytest.mark.slow
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
