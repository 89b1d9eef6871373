"""The environment report: this machine's, laid-out ones, and what is said to be wrong with them."""

from __future__ import annotations

import copy
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tb_gpu_doctor.cli.env import print_environment, problem_words
from tb_gpu_doctor.monitor import environment_host as host
from tb_gpu_doctor.monitor.environment import _SETTINGS, collect, find_problems
from tb_gpu_doctor.monitor.environment_probe import describe, probe
from tb_gpu_doctor.texts import all_keys, has_text

GIB = 1 << 30


def lay_out(root: Path, files: dict[str, str]) -> str:
    for path, content in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    return str(root)


# --- this machine ------------------------------------------------------------------------------------


def test_this_machine_gives_a_report_that_is_json() -> None:
    report = collect("none")
    assert json.loads(json.dumps(report)) == report
    assert report["memory"]["total_bytes"] > 0 and report["processors"]["usable"] >= 1
    for lang in ("en", "es"):
        target = Console(file=io.StringIO(), width=100)
        print_environment(report, target, lang)
        assert isinstance(target.file, io.StringIO) and len(target.file.getvalue().splitlines()) > 8


def test_nothing_is_imported_that_was_not_loaded() -> None:
    code = (
        "import sys; from tb_gpu_doctor.monitor.environment import collect; r = collect(in_process=True);"
        "assert not {'tensorflow', 'jax', 'torch'} & set(sys.modules); assert r['frameworks'] == {}; print('fine')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "fine"


@pytest.mark.slow
def test_tensorflow_in_this_process_and_in_one_of_its_own_says_the_same() -> None:
    tf = pytest.importorskip("tensorflow")
    here = describe("tensorflow", tf)
    assert here["version"] == tf.__version__ and here["gpus"] == [] and here["cuda_build"] is False
    there = probe("tensorflow")
    assert {**there, "intra_op_threads": 0, "inter_op_threads": 0} == {
        **here, "intra_op_threads": 0, "inter_op_threads": 0
    }  # fmt: skip


def test_a_framework_that_is_absent_or_dies_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path, {"torch/__init__.py": "import os; os.abort()", "jax/__init__.py": "raise OSError('no libcuda')"})
    monkeypatch.syspath_prepend(tmp_path)
    environ = {"PATH": "/usr/bin:/bin"}
    assert "error" in probe("torch", environ)
    assert "no libcuda" in probe("jax", environ)["error"]


# --- machines that are laid out ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "environ", "expected"),
    [
        ({}, {}, None),
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": ""}, {}, "podman"),
        ({"/proc/1/cgroup": "0::/kubepods.slice/pod1"}, {}, "kubernetes"),
        ({"/.dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({}, {"APPTAINER_CONTAINER": "x.sif"}, "apptainer"),
        ({"/proc/1/cgroup": "0::/init.scope"}, {}, None),
    ],
)
def test_containers(tmp_path: Path, files: dict[str, str], environ: dict[str, str], expected: str | None) -> None:
    assert host.container(lay_out(tmp_path, files), environ) == expected


def test_wsl(tmp_path: Path) -> None:
    assert not host.is_wsl(str(tmp_path))
    assert host.is_wsl(lay_out(tmp_path, {"/proc/version": "Linux version 5.15.90.1-microsoft-standard-WSL2"}))


def test_the_right_to_profile(tmp_path: Path) -> None:
    assert host.profiling_restricted(str(tmp_path)) is None and host.may_profile(str(tmp_path)) is None
    root = lay_out(tmp_path, {
        "/proc/driver/nvidia/params": "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n",
        "/proc/self/status": "Name:\tpython\nCapEff:\t00000000a80425fb\n",
        "/proc/driver/nvidia/version": (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\nGCC version: 12\n"),
    })  # fmt: skip
    assert host.profiling_restricted(root) is True and host.may_profile(root) is False
    assert host.kernel_driver(root) == "570.86.15"
    lay_out(tmp_path, {
        "/proc/driver/nvidia/params": "RmProfilingAdminOnly: 0\n",
        "/proc/self/status": "CapEff:\t000001ffffffffff\n",
        "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun\n",
    })  # fmt: skip
    assert host.profiling_restricted(root) is False and host.may_profile(root) is True
    assert host.kernel_driver(root) == "535.54.03"


def test_hardware_on_the_bus(tmp_path: Path) -> None:
    root = lay_out(tmp_path, {
        "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n", "/sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
        "/sys/bus/pci/devices/0000:01:00.1/vendor": "0x10de\n", "/sys/bus/pci/devices/0000:01:00.1/class": "0x040300\n",
        "/sys/class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 8\nsimd_count 0\n",
        "/sys/class/kfd/kfd/topology/nodes/1/properties": "cpu_cores_count 0\nsimd_count 440\n",
    })  # fmt: skip
    assert host.nvidia_hardware(root) == 1  # and its sound device is none
    assert host.amd_gpus(root) == 1


@pytest.mark.parametrize(
    ("files", "limit", "quota"),
    [
        # cgroup v2 inside a container: its own group is the root it sees
        ({"/proc/self/cgroup": "0::/", "/sys/fs/cgroup/memory.max": "8589934592\n",
          "/sys/fs/cgroup/cpu.max": "200000 100000\n"}, 8 * GIB, 2.0),
        # v2 on a host: the limit of a parent counts
        ({"/proc/self/cgroup": "0::/user.slice/job", "/sys/fs/cgroup/user.slice/memory.max": "4294967296",
          "/sys/fs/cgroup/user.slice/job/memory.max": "max", "/sys/fs/cgroup/user.slice/job/cpu.max": "max 100000"},
         4 * GIB, None),
        # v1
        ({"/proc/self/cgroup": "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x",
          "/sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000"},
         2 * GIB, 1.5),
        ({"/proc/self/cgroup": "5:memory:/", "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
          "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"}, None, None),
        ({}, None, None),
    ],
)  # fmt: skip
def test_limits_of_groups(tmp_path: Path, files: dict[str, str], limit: int | None, quota: float | None) -> None:
    root = lay_out(tmp_path, files)
    assert host.memory(root)["cgroup_limit_bytes"] == limit
    assert host.processors(root)["quota"] == quota
    lay_out(tmp_path, {"/proc/meminfo": f"MemTotal: {16 * GIB // 1024} kB\nMemAvailable: 1024 kB\n"})
    assert host.memory_limit(root) == (16 * GIB if limit is None else limit)


def test_past_ends_by_memory(tmp_path: Path) -> None:
    root = lay_out(tmp_path, {
        "/proc/self/cgroup": "0::/", "/sys/fs/cgroup/memory.events": "low 0\noom 3\noom_kill 2\n",
        "/sys/fs/cgroup/memory.current": "123\n", "/sys/fs/cgroup/memory.max": "max\n",
    })  # fmt: skip
    memory = host.memory(root)
    assert (memory["cgroup_oom_kills"], memory["cgroup_used_bytes"], memory["cgroup_limit_bytes"]) == (2, 123, None)


def test_libraries(tmp_path: Path) -> None:
    root = lay_out(tmp_path, {
        "/usr/local/cuda-12.4/lib64/libcudart.so": "", "/usr/local/cuda-12.4/lib64/libcudart.so.12": "",
        "/usr/local/cuda-12.4/lib64/libcudart.so.12.4.127": "",
        "/usr/local/cuda-12.4/extras/CUPTI/lib64/libcupti.so.12": "",
        "/usr/lib/x86_64-linux-gnu/libcudnn.so.9.1.0": "", "/opt/own/libnccl.so.2.21.5": "",
    })  # fmt: skip
    found = host.libraries(root, {"LD_LIBRARY_PATH": "/opt/own:"}, with_packages=False)
    assert {name: [entry["version"] for entry in entries] for name, entries in found.items()} == {
        "cudart": ["12.4.127"], "cudnn": ["9.1.0"], "cupti": ["12"], "nccl": ["2.21.5"]
    }  # fmt: skip
    assert found["cudart"][0]["path"] == "/usr/local/cuda-12.4/lib64/libcudart.so.12.4.127"


def test_secrets_and_other_programs_settings_stay_out() -> None:
    secret = ("TF_VAR_password", "TF_CLI_ARGS", "NCCL_TOKEN", "AWS_SECRET_ACCESS_KEY", "HOME")
    shown = ("TF_CPP_MIN_LOG_LEVEL", "XLA_FLAGS", "TF_CONFIG", "CUDA_VISIBLE_DEVICES")
    environ = dict.fromkeys((*secret, *shown), "x")
    settings = collect("none", environ=environ, root="/nowhere")["settings"]
    assert set(settings) == set(shown)


def test_planted_secrets_never_come_out() -> None:
    planted = "hunter2"
    environ = {
        "NCCL_NET_PLUGIN_AUTH": planted, "TORCH_HOME": f"/home/{planted}/.cache", "TF_DUMP_GRAPH_PREFIX": planted,
        "XLA_FLAGS": f"--xla_dump_to=/home/{planted}/dump", "MASTER_ADDR": planted, "JAX_SOMETHING": planted,
        "LD_LIBRARY_PATH": f"/home/{planted}/lib", "NCCL_DEBUG": "INFO",
        "TF_CONFIG": json.dumps({"cluster": {"worker": [f"{planted}:1", "b:2"]}, "task": {"index": 0}}),
    }  # fmt: skip
    report = collect("none", environ=environ, root="/nowhere")
    assert planted not in json.dumps(report)
    assert set(report["settings"]) == set(environ) and report["settings"]["NCCL_DEBUG"] == "INFO"
    assert json.loads(report["settings"]["TF_CONFIG"])["tasks"] == {"worker": 2}


# --- problems ------------------------------------------------------------------------------------------


def healthy() -> dict[str, Any]:
    """A report of a machine with two GPUs on which nothing is wrong."""
    gpus = [
        {"index": index, "name": "NVIDIA H100", "uuid": f"GPU-{index}", "pci_bus_id": f"0000:0{index}:00.0",
         "memory_total_bytes": 80 * GIB, "memory_used_bytes": 0, "compute_capability": [9, 0],
         "persistence_mode": True, "compute_mode": "default", "mig": False, "processes": []}
        for index in range(2)
    ]  # fmt: skip
    return {
        "version": 1, "in_process": False, "python": "3.11", "system": "Linux", "executable": "python",
        "driver": {"version": "570.86", "cuda_version": "12.8", "gpus": gpus, "visible": [0, 1], "mig_instances": 0,
                   "unknown_tokens": []},
        "kernel_driver": "570.86", "nvidia_hardware": 2, "amd_gpus": 0,
        "frameworks": {"tensorflow": {
            "version": "2.19.0", "cuda_build": True, "rocm_build": False, "cuda_wanted": "12.5.1", "cudnn_wanted": "9",
            "gpus": [{"name": "NVIDIA H100"}] * 2, "memory_growth": False, "intra_op_threads": 0,
            "inter_op_threads": 0, "functions_run_eagerly": False, "strategy": "MirroredStrategy"}},
        "libraries": {"cudart": [{"version": "12.5.82", "package": "nvidia-cuda-runtime-cu12"}],
                      "cudnn": [{"version": "9.3.0.75", "package": "nvidia-cudnn-cu12"}],
                      "nccl": [{"version": "2.25.1", "package": "nvidia-nccl-cu12"}],
                      "cupti": [{"version": "12.5.82", "package": "nvidia-cuda-cupti-cu12"}]},
        "cupti": {"restricted": True, "privileged": True}, "container": None, "wsl": False,
        "memory": {"total_bytes": 512 * GIB, "available_bytes": 400 * GIB, "cgroup_limit_bytes": None,
                   "cgroup_used_bytes": None, "cgroup_oom_kills": None, "shared_memory_bytes": 64 * GIB},
        "processors": {"count": 64, "usable": 64, "quota": None, "governor": "performance"},
        "settings": {}, "memory_growth": False,
    }  # fmt: skip


def changed(**changes: Any) -> dict[str, Any]:
    """The healthy report with ``a__b`` for ``["a"]["b"]``."""
    report = copy.deepcopy(healthy())
    for path, value in changes.items():
        node: Any = report
        *parents, last = path.split("__")
        for part in parents:
            node = node[int(part)] if part.isdigit() else node[part]
        node[last] = value
    return report


NO_DRIVER = {"error": "NVML Shared Library Not Found"}
OTHER = [{"pid": 77, "own": False, "memory_bytes": GIB}]


def test_a_healthy_environment_has_no_problem() -> None:
    assert find_problems(healthy()) == []


@pytest.mark.parametrize(
    ("changes", "code", "severity"),
    [
        ({"driver": NO_DRIVER, "kernel_driver": None, "nvidia_hardware": 0}, "no_gpu", "warning"),
        ({"driver": NO_DRIVER, "kernel_driver": None, "nvidia_hardware": 0, "frameworks": {}}, "no_gpu", "info"),
        ({"driver": NO_DRIVER, "kernel_driver": None}, "driver_missing", "critical"),
        ({"driver": NO_DRIVER}, "driver_library_missing", "critical"),
        ({"driver": NO_DRIVER, "container": "docker"}, "container_without_gpu", "critical"),
        ({"driver": NO_DRIVER, "wsl": True}, "wsl_no_driver", "critical"),
        ({"driver": {"error": "Driver/library version mismatch"}}, "driver_mismatch", "critical"),
        ({"pynvml": "11.5.3"}, "old_pynvml", "warning"),
        ({"tensorboard": "2.20.0", "pkg_resources": False}, "no_pkg_resources", "warning"),
        ({"driver__gpus": [], "driver__visible": [], "frameworks": {}}, "no_gpu_answers", "critical"),
        ({"amd_gpus": 1}, "amd", "info"),
        ({"amd_gpus": 1, "driver": NO_DRIVER, "nvidia_hardware": 0, "kernel_driver": None}, "amd_without_rocm",
         "critical"),
        ({"frameworks__tensorflow": {"error": "ImportError: x"}}, "framework_broken", "critical"),
        ({"frameworks__tensorflow__cuda_build": False, "frameworks__tensorflow__gpus": []}, "cpu_build_tensorflow",
         "critical"),
        ({"frameworks": {"torch": {"cuda_build": False, "gpus": []}}}, "cpu_build_torch", "critical"),
        ({"frameworks": {"jax": {"cuda_build": False, "gpus": []}}}, "cpu_build_jax", "critical"),
        ({"driver__cuda_version": "11.8"}, "driver_too_old", "critical"),
        ({"driver__unknown_tokens": ["7"], "settings": {"CUDA_VISIBLE_DEVICES": "0,1,7"}}, "unknown_visible_gpu",
         "warning"),
        ({"driver__visible": [], "settings": {"CUDA_VISIBLE_DEVICES": ""}, "frameworks__tensorflow__gpus": []},
         "all_hidden", "critical"),
        ({"frameworks__tensorflow__gpus": []}, "gpus_unseen", "critical"),
        ({"frameworks": {"torch": {"cuda_build": True, "gpus": []}}}, "gpus_unseen_other", "critical"),
        ({"frameworks__tensorflow__strategy": None}, "several_gpus", "info"),
        ({"libraries__cudnn": [], "frameworks__tensorflow__gpus": [], "driver__visible": [0]}, "library_missing",
         "critical"),
        ({"libraries__cudnn": [{"version": "8.9.7", "path": "/x"}]}, "library_version", "warning"),
        ({"libraries__cupti": []}, "cupti_missing", "warning"),
        ({"libraries__nccl": []}, "nccl_missing", "info"),
        ({"cupti__privileged": False}, "cupti_permission", "warning"),
        ({"cupti__privileged": False, "container": "docker"}, "cupti_container", "warning"),
        ({"wsl": True}, "wsl_profiling", "info"),
        ({"driver__gpus__1__processes": OTHER, "memory_growth": True}, "other_processes", "warning"),
        ({"driver__gpus__1__processes": OTHER}, "memory_growth_off", "info"),
        ({"driver__gpus__0__compute_mode": "prohibited"}, "compute_prohibited", "critical"),
        ({"driver__gpus__0__persistence_mode": False}, "persistence_off", "info"),
        ({"memory__cgroup_oom_kills": 2, "memory__cgroup_limit_bytes": 900 * GIB}, "oom_killed", "warning"),
        ({"memory__cgroup_limit_bytes": 100 * GIB, "memory__cgroup_used_bytes": 95 * GIB}, "memory_nearly_full",
         "warning"),
        ({"memory__cgroup_limit_bytes": 16 * GIB}, "memory_limit_small", "warning"),
        ({"memory__shared_memory_bytes": 64 << 20, "container": "docker",
          "frameworks": {"torch": {"cuda_build": True, "gpus": [{}, {}]}}}, "shared_memory_small", "warning"),
        ({"processors__quota": 4.0}, "cpu_quota", "warning"),
        ({"processors__governor": "powersave"}, "governor", "info"),
        ({"frameworks__tensorflow__intra_op_threads": 1}, "few_threads", "info"),
        ({"frameworks__tensorflow__functions_run_eagerly": True}, "functions_eager", "warning"),
        ({"settings": {"CUDA_LAUNCH_BLOCKING": "1"}}, "setting", "critical"),
        ({"settings": {"XLA_FLAGS": "--xla_dump_to=/tmp/x --xla_gpu_autotune_level=0"}}, "setting", "warning"),
        ({"settings": {"TF_CONFIG": "{}"}}, "tf_config_broken", "critical"),
        ({"settings": {"TF_CONFIG": "oops"}}, "tf_config_broken", "critical"),
    ],
)  # fmt: skip
def test_each_problem_alone(changes: dict[str, Any], code: str, severity: str) -> None:
    found = find_problems(changed(**changes))
    assert (code, severity) in [(problem["code"], problem["severity"]) for problem in found]
    order = ["critical", "warning", "info"]
    assert [p["severity"] for p in found] == sorted((p["severity"] for p in found), key=order.index)
    for problem in found:
        for lang in ("en", "es"):
            sentence, fix = problem_words(problem, lang)
            assert len(sentence) > 20 and fix and all(line.strip() for line in fix)


@pytest.mark.parametrize("changes", [
    {"settings": {"CUDA_LAUNCH_BLOCKING": "0", "NCCL_DEBUG": "WARN", "TF_CPP_MAX_VLOG_LEVEL": "0",
                  "XLA_FLAGS": "--xla_gpu_enable_latency_hiding_scheduler=true", "NVIDIA_TF32_OVERRIDE": "1",
                  "TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'}},
    {"driver__visible": [0], "frameworks__tensorflow__gpus": [{}], "driver__gpus__1__processes": OTHER},
    {"processors__quota": 60.0},
    {"cupti__restricted": None, "cupti__privileged": None},
    {"driver__gpus__0__persistence_mode": None, "driver__gpus__0__memory_total_bytes": None},
])  # fmt: skip
def test_what_is_no_problem(changes: dict[str, Any]) -> None:
    assert find_problems(changed(**changes)) == []


def test_a_container_knows_its_own_process_by_another_number() -> None:
    report = changed(container="docker", in_process=True, driver__gpus__0__processes=OTHER)
    assert find_problems(report) == []
    report["driver"]["gpus"][0]["processes"] = OTHER * 2
    assert "other_processes" in {problem["code"] for problem in find_problems(report)}


def test_every_problem_has_its_words_and_every_word_its_problem() -> None:
    source = (Path(find_problems.__code__.co_filename)).read_text(encoding="utf-8")
    for key in all_keys("en"):
        parts = key.split(".")
        if parts[:2] == ["env", "problems"] and not parts[2].startswith("cpu_build_"):
            assert f'"{parts[2]}"' in source, key
    for *_, effect in _SETTINGS:
        assert has_text(f"env.effects.{effect}")


def test_reports_with_holes_are_no_error() -> None:
    for name in healthy():
        report = healthy()
        report[name] = None
        find_problems(report)
