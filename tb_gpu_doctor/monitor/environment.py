"""The environment report: versions, limits and settings that training runs under, and what is wrong with them.

A plain dictionary, so that it goes into a recording, into JSON, and over to a colleague. It names texts and holds
no sentences: each problem is ``{"code", "severity", "params"}``, and ``env.problems.<code>`` of the catalogues
says it, with the command that fixes it, in the reader's language.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from tb_gpu_doctor.files.secrets import HIDDEN, all_without_secrets, outline_of_cluster
from tb_gpu_doctor.monitor import environment_host as host
from tb_gpu_doctor.monitor.devices import choose_devices, list_devices
from tb_gpu_doctor.monitor.environment_probe import describe, installed, probe
from tb_gpu_doctor.monitor.frameworks import FRAMEWORKS, module
from tb_gpu_doctor.monitor.nvml import DriverLost, Nvml, NvmlProblem, other_package, text_of

Problem = dict[str, Any]
Report = dict[str, Any]

CRITICAL, WARNING, INFO = "critical", "warning", "info"
_ORDER = {CRITICAL: 0, WARNING: 1, INFO: 2}
SMALL_SHARED_MEMORY = 1 << 30
NEARLY_FULL = 0.9


def _problem(code: str, severity: str, **params: Any) -> Problem:
    return {"code": code, "severity": severity, "params": params}


def find_problems(report: Report) -> list[Problem]:
    """All of them, the worst first."""
    found: list[Problem] = []
    for rule in _RULES:
        try:
            found += rule(report)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            continue  # a report of another version, or with a hole where this rule looks
    return sorted(found, key=lambda problem: _ORDER[problem["severity"]])


def _version(words: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", str(words or ""))[:3])


def _frameworks(report: Report) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, facts in report["frameworks"].items():
        if "error" not in facts:
            yield name, facts


def _gpus(report: Report) -> list[dict[str, Any]]:
    return list(report["driver"].get("gpus") or ())


def _gpu_build(report: Report) -> bool:
    return any(facts.get("cuda_build") for _, facts in _frameworks(report))


def _driver(report: Report) -> Iterator[Problem]:
    error = report["driver"].get("error")
    if error is None:
        if not _gpus(report) and report["nvidia_hardware"]:
            yield _problem("no_gpu_answers", CRITICAL, count=report["nvidia_hardware"])
        return
    lower = error.lower()
    if "mismatch" in lower and "version" in lower:
        yield _problem("driver_mismatch", CRITICAL, reason=error)
    elif report["wsl"]:
        if _gpu_build(report):
            yield _problem("wsl_no_driver", CRITICAL, reason=error)
    elif report["container"] is not None and (report["kernel_driver"] or report["nvidia_hardware"]):
        yield _problem("container_without_gpu", CRITICAL, reason=error)
    elif report["kernel_driver"]:
        yield _problem("driver_library_missing", CRITICAL, reason=error, version=report["kernel_driver"])
    elif report["nvidia_hardware"]:
        yield _problem("driver_missing", CRITICAL, count=report["nvidia_hardware"])
    elif not report["amd_gpus"]:
        yield _problem("no_gpu", WARNING if _gpu_build(report) else INFO)


# The first TensorBoard that starts without `pkg_resources`, which setuptools 82 no longer brings.
_OWN_RESOURCES = (2, 21)


def _package(report: Report) -> Iterator[Problem]:
    if report.get("pynvml"):
        yield _problem("old_pynvml", WARNING, version=str(report["pynvml"]))
    if report.get("pkg_resources") is False and (0,) < _version(report.get("tensorboard")) < _OWN_RESOURCES:
        yield _problem("no_pkg_resources", WARNING, version=str(report["tensorboard"]))


def _amd(report: Report) -> Iterator[Problem]:
    if not report["amd_gpus"]:
        return
    yield _problem("amd", INFO, count=report["amd_gpus"])
    for name, facts in _frameworks(report):
        if name == "tensorflow" and not facts.get("rocm_build") and not _gpus(report):
            yield _problem("amd_without_rocm", CRITICAL)


def _build(report: Report) -> Iterator[Problem]:
    for name, facts in report["frameworks"].items():
        if "error" in facts:
            severity = WARNING if facts["error"] == "not installed" else CRITICAL
            yield _problem("framework_broken", severity, framework=name, reason=facts["error"])
    if not _gpus(report):
        return
    cuda = _version(report["driver"].get("cuda_version"))
    for name, facts in _frameworks(report):
        if facts.get("cuda_build") is False and not facts.get("rocm_build"):
            yield _problem(f"cpu_build_{name}", CRITICAL, gpus=len(_gpus(report)))
            continue
        wanted = _version(facts.get("cuda_wanted"))
        if cuda and wanted and cuda[0] < wanted[0]:
            yield _problem(
                "driver_too_old", CRITICAL, framework=name, wanted=str(facts["cuda_wanted"]),
                driver=report["driver"].get("version"), cuda=report["driver"].get("cuda_version"),
            )  # fmt: skip


def _visible(report: Report) -> Iterator[Problem]:
    gpus = _gpus(report)
    if not gpus:
        return
    chosen = report["settings"].get("CUDA_VISIBLE_DEVICES")
    expected = len(report["driver"]["visible"])
    for token in report["driver"].get("unknown_tokens") or ():
        yield _problem("unknown_visible_gpu", WARNING, token=token, value=chosen)
    if not expected:
        if chosen is not None:
            yield _problem("all_hidden", CRITICAL, value=chosen, total=len(gpus))
        return
    for name, facts in _frameworks(report):
        seen = facts.get("gpus")
        if facts.get("cuda_build") and seen is not None and len(seen) < expected:
            missing = [library for library in ("cudart", "cudnn") if not report["libraries"][library]]
            code = "gpus_unseen" if name == "tensorflow" else "gpus_unseen_other"
            yield _problem(
                code, CRITICAL, framework=name, seen=len(seen), expected=expected, missing=", ".join(missing) or "-"
            )
        elif name == "tensorflow" and seen is not None and len(seen) > 1 and not facts.get("strategy"):
            yield _problem("several_gpus", INFO, count=len(seen))


def _libraries(report: Report) -> Iterator[Problem]:
    if not _gpus(report):
        return
    libraries = report["libraries"]
    for name, facts in _frameworks(report):
        if name != "tensorflow" or not facts.get("cuda_build"):
            continue  # the others bring theirs, or say so themselves
        cuda, cudnn = _version(facts.get("cuda_wanted")), _version(facts.get("cudnn_wanted"))
        for library, wanted in (("cudnn", cudnn), ("cudart", cuda)):
            versions = [_version(entry["version"]) for entry in libraries[library] if entry["version"]]
            shown = str(facts.get("cudnn_wanted" if library == "cudnn" else "cuda_wanted"))
            if not libraries[library]:
                if not facts.get("gpus"):
                    yield _problem("library_missing", CRITICAL, library=library, wanted=shown)
            elif wanted and versions and all(version[:1] != wanted[:1] for version in versions):
                found = ", ".join(sorted({str(entry["version"]) for entry in libraries[library]}))
                yield _problem("library_version", WARNING, library=library, wanted=shown, found=found)
        if not libraries["cupti"]:
            yield _problem("cupti_missing", WARNING)
        if len(facts.get("gpus") or ()) > 1 and not libraries["nccl"]:
            yield _problem("nccl_missing", INFO)


def _cupti(report: Report) -> Iterator[Problem]:
    cupti = report["cupti"]
    if cupti["restricted"] and not cupti["privileged"]:
        yield _problem("cupti_container" if report["container"] else "cupti_permission", WARNING)
    if report["wsl"] and _gpus(report):
        yield _problem("wsl_profiling", INFO)


def _others(report: Report, gpu: dict[str, Any]) -> list[dict[str, Any]]:
    """Processes on a GPU that are not this one. A container knows its own process by another number."""
    others = [process for process in gpu["processes"] if not process["own"]]
    if report["in_process"] and report["container"] and len(others) == len(gpu["processes"]):
        return others if len(others) > 1 else []
    return others


def _sharing(report: Report) -> Iterator[Problem]:
    for gpu in _gpus(report):
        others = _others(report, gpu)
        visible = gpu["index"] in report["driver"]["visible"]
        if others and visible:
            used = sum(process["memory_bytes"] or 0 for process in others)
            yield _problem(
                "other_processes", WARNING, gpu=gpu["index"], count=len(others), used=used or None,
                pids=", ".join(str(process["pid"]) for process in others[:10]),
            )  # fmt: skip
        if visible and gpu["compute_mode"] == "prohibited":
            yield _problem("compute_prohibited", CRITICAL, gpu=gpu["index"])
    if _gpus(report) and any(gpu["persistence_mode"] is False for gpu in _gpus(report)) and not report["wsl"]:
        yield _problem("persistence_off", INFO)


def _memory(report: Report) -> Iterator[Problem]:
    memory = report["memory"]
    limit, used = memory["cgroup_limit_bytes"], memory["cgroup_used_bytes"]
    if memory["cgroup_oom_kills"]:
        yield _problem("oom_killed", WARNING, count=memory["cgroup_oom_kills"], limit=limit)
    elif limit and used and used > NEARLY_FULL * limit:
        yield _problem("memory_nearly_full", WARNING, used=used, limit=limit)
    gpu_memory = max((gpu["memory_total_bytes"] or 0 for gpu in _gpus(report)), default=0)
    if limit and gpu_memory and limit < gpu_memory:
        # Weights, checkpoints and input pass through host memory; less of it than one GPU has is asking for it.
        yield _problem("memory_limit_small", WARNING, limit=limit, gpu=gpu_memory)
    shared = memory["shared_memory_bytes"]
    if shared is not None and shared < SMALL_SHARED_MEMORY and report["container"] and "torch" in report["frameworks"]:
        yield _problem("shared_memory_small", WARNING, size=shared)


def _processors(report: Report) -> Iterator[Problem]:
    cpus = report["processors"]
    quota, usable = cpus["quota"], cpus["usable"]
    if quota and usable and quota < 0.75 * usable:
        yield _problem("cpu_quota", WARNING, quota=quota, usable=usable, threads=max(1, round(quota)))
    if cpus["governor"] == "powersave" and _gpus(report):
        yield _problem("governor", INFO)
    for name, facts in _frameworks(report):
        intra, inter = facts.get("intra_op_threads"), facts.get("inter_op_threads")
        if name == "tensorflow" and usable and usable > 2 and (intra == 1 or inter == 1):
            yield _problem("few_threads", INFO, intra=intra, inter=inter, usable=usable)


def _framework_settings(report: Report) -> Iterator[Problem]:
    for _, facts in _frameworks(report):
        if facts.get("functions_run_eagerly"):
            yield _problem("functions_eager", WARNING)
        if facts.get("jit_disabled") and "JAX_DISABLE_JIT" not in report["settings"]:
            yield _problem("setting", CRITICAL, name="JAX_DISABLE_JIT", value="1", effect="jit_off")
    shared = any(_others(report, gpu) for gpu in _gpus(report) if gpu["index"] in report["driver"]["visible"])
    if report["memory_growth"] is False and shared and "tensorflow" in report["frameworks"]:
        yield _problem("memory_growth_off", INFO)


# Setting, values that matter (a pattern), severity, and what it does (`env.effects`).
_SETTINGS: tuple[tuple[str, str, str, str], ...] = (
    ("CUDA_LAUNCH_BLOCKING", "[1-9]", CRITICAL, "launch_blocking"),
    ("JAX_DISABLE_JIT", "1|true|True", CRITICAL, "jit_off"),
    ("TF_CPP_MAX_VLOG_LEVEL", "[1-9].*", WARNING, "verbose_log"),
    ("TF_CPP_MIN_VLOG_LEVEL", "[1-9].*", WARNING, "verbose_log"),
    ("NCCL_DEBUG", "(?i)INFO|TRACE", INFO, "verbose_log"),
    ("NCCL_P2P_DISABLE", "[1-9]", WARNING, "slow_links"),
    ("NCCL_SHM_DISABLE", "[1-9]", WARNING, "slow_links"),
    ("NCCL_IB_DISABLE", "[1-9]", INFO, "slow_network"),
    ("NVIDIA_TF32_OVERRIDE", "0", WARNING, "no_tf32"),
    ("TF_ENABLE_TF32", "0", WARNING, "no_tf32"),
    ("TF_DETERMINISTIC_OPS", "1|true", INFO, "deterministic"),
    ("TF_CUDNN_DETERMINISTIC", "1|true", INFO, "deterministic"),
    ("TF_CUDNN_USE_AUTOTUNE", "0", WARNING, "no_autotune"),
    ("CUDA_CACHE_DISABLE", "[1-9]", WARNING, "no_kernel_cache"),
    ("XLA_PYTHON_CLIENT_ALLOCATOR", "platform", WARNING, "no_allocator_cache"),
    ("PYTORCH_NO_CUDA_MEMORY_CACHING", "[1-9]", WARNING, "no_allocator_cache"),
    ("JAX_DEBUG_NANS", "1|true|True", WARNING, "checks_every_step"),
    ("XLA_FLAGS", r".*--xla_dump_to=\S+.*", WARNING, "dumps"),
    ("XLA_FLAGS", r".*--xla_gpu_deterministic_ops(=true)?(\s.*)?", INFO, "deterministic"),
    ("TF_XLA_FLAGS", r".*--tf_xla_auto_jit=2.*", INFO, "auto_jit"),
    ("TF_DUMP_GRAPH_PREFIX", ".+", INFO, "dumps"),
)


def _settings(report: Report) -> Iterator[Problem]:
    settings = report["settings"]
    for name, pattern, severity, effect in _SETTINGS:
        value = settings.get(name)
        if value is not None and re.fullmatch(pattern, value.strip(), re.DOTALL):
            yield _problem("setting", severity, name=name, value=value, effect=effect)
    config = settings.get("TF_CONFIG")
    if config:
        try:
            cluster = json.loads(config).get("cluster")
        except (ValueError, AttributeError):
            cluster = None
        if not isinstance(cluster, dict) or not cluster:
            yield _problem("tf_config_broken", CRITICAL)


_RULES: tuple[Callable[[Report], Iterator[Problem]], ...] = (
    _driver, _package, _amd, _build, _visible, _libraries, _cupti, _sharing, _memory, _processors,
    _framework_settings, _settings,
)  # fmt: skip


_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}


def driver(environ: Mapping[str, str]) -> dict[str, Any]:
    """``{"error": reason}`` where NVML does not answer, else versions and GPUs.

    ``visible`` is, of each GPU that CUDA shows to a process with this environment, the driver's number.
    """
    nvml = Nvml()
    try:
        nvml.start()
        return _ask_driver(nvml, environ)
    except DriverLost as problem:
        return {"error": problem.reason}
    finally:
        nvml.stop()


def _ask_driver(nvml: Nvml, environ: Mapping[str, str]) -> dict[str, Any]:
    def value(name: str, *arguments: Any) -> Any:
        try:
            return nvml.ask(nvml.function(name), *arguments)
        except DriverLost:
            raise
        except NvmlProblem:
            return None

    version, cuda = value("nvmlSystemGetDriverVersion"), value("nvmlSystemGetCudaDriverVersion_v2")
    devices = list_devices(nvml)
    chosen = choose_devices(devices, "visible", environ)
    return {
        "version": None if version is None else text_of(version),
        "cuda_version": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        "gpus": [_gpu(device, value) for device in devices if device.mig is None],
        "visible": [device.index for device in chosen.devices],
        "mig_instances": sum(device.mig is not None for device in devices),
        "unknown_tokens": list(chosen.unknown_tokens),
    }


def _gpu(device: Any, value: Callable[..., Any]) -> dict[str, Any]:
    memory = value("nvmlDeviceGetMemoryInfo", device.board)
    capability = value("nvmlDeviceGetCudaComputeCapability", device.board)
    persistence = value("nvmlDeviceGetPersistenceMode", device.board)
    return {
        "index": device.index,
        "name": device.name,
        "uuid": device.uuid,
        "pci_bus_id": device.pci_bus_id,
        "memory_total_bytes": None if memory is None else int(memory.total),
        "memory_used_bytes": None if memory is None else int(memory.used),
        "compute_capability": None if capability is None else list(capability),
        "persistence_mode": None if persistence is None else bool(persistence),
        "compute_mode": _COMPUTE_MODES.get(value("nvmlDeviceGetComputeMode", device.board)),
        "mig": device.mig_enabled,
        "processes": [
            {
                "pid": int(process.pid),
                "own": int(process.pid) == os.getpid(),
                "memory_bytes": None if process.usedGpuMemory is None else int(process.usedGpuMemory),
            }
            for process in value("nvmlDeviceGetComputeRunningProcesses", device.board) or ()
        ],
    }


VERSION = 1
# What is said of the process's environment: settings of GPUs and frameworks, and nothing else of it.
_PREFIXES = (
    "CUDA_", "CUDNN_", "CUBLAS_", "NCCL_", "NVIDIA_VISIBLE", "NVIDIA_DRIVER_CAP", "NVIDIA_TF32", "XLA_", "JAX_",
    "PYTORCH_", "TORCH_", "OMP_", "MKL_NUM", "OPENBLAS_NUM", "KMP_", "HIP_", "ROCR_", "HSA_", "KERAS_BACKEND",
    # TF_ alone would take in Terraform's, some of which are secrets.
    "TF_AUTOTUNE", "TF_CONFIG", "TF_CPP_", "TF_CUDA", "TF_CUDNN_", "TF_DETERMINISTIC", "TF_DISABLE_", "TF_DUMP_",
    "TF_ENABLE_", "TF_FORCE_", "TF_GPU_", "TF_NUM_", "TF_OVERRIDE_", "TF_SYNC_", "TF_USE_", "TF_XLA_",
)  # fmt: skip
_NAMES = ("LD_LIBRARY_PATH", "LD_PRELOAD", "WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "SLURM_NTASKS")
# The names of secrets, should one begin like a setting.
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE", re.IGNORECASE)
_MAX_VALUE = 2000
# Of these the value is told as well, without secrets; of all others only that they are set.
_TOLD = re.compile(
    r"CUDA_(?:VISIBLE_DEVICES|DEVICE_ORDER|LAUNCH_BLOCKING|CACHE_\w+|MODULE_LOADING|DEVICE_MAX_CONNECTIONS|HOME|PATH|VERSION)"
    r"|CUDNN_(?:LOG\w+|VERSION)|CUBLAS_(?:WORKSPACE_CONFIG|LOG\w+)|NVIDIA_(?:VISIBLE_DEVICES|DRIVER_CAPABILITIES|TF32\w*)"
    r"|NCCL_(?:DEBUG(?:_SUBSYS)?|P2P_\w+|IB_\w+|SOCKET_\w+|NET(?:_GDR\w*|_PLUGIN|_SHARED\w*)?|ALGO|PROTO|SHM_\w+|BUFFSIZE|NTHREADS|M(?:AX|IN)_\w+"
    r"|TIMEOUT|ASYNC_ERROR_HANDLING|CROSS_NIC|NVLS_\w+|CUMEM_\w+|VERSION)"
    r"|XLA_(?:FLAGS|PYTHON_\w+)|JAX_(?:PLATFORMS|PLATFORM_NAME|ENABLE_\w+|DISABLE_\w+|DEBUG_\w+|DEFAULT_\w+|LOG_\w+)"
    r"|PYTORCH_(?:\w*ALLOC_CONF|NVML_\w+|NO_\w+)|TORCH_(?:NCCL_\w+|CUDA_\w+|DISTRIBUTED_DEBUG|LOGS|CUDNN_\w+|NUM_\w+)"
    r"|OMP_\w+|MKL_NUM\w+|OPENBLAS_NUM\w+|KMP_\w+|(?:HIP|ROCR)_VISIBLE_DEVICES|HSA_OVERRIDE_\w+|KERAS_BACKEND"
    r"|TF_(?:AUTOTUNE|CPP_|CUDA|CUDNN_|DETERMINISTIC|DISABLE_|ENABLE_|FORCE_|GPU_|NUM_|OVERRIDE_|SYNC_|USE_|XLA_)\w*"
    r"|TF_CONFIG|LD_LIBRARY_PATH|LD_PRELOAD|(?:WORLD_SIZE|RANK|LOCAL_RANK|SLURM_NTASKS)"
)


def collect(
    framework: str | None = None,
    *,
    in_process: bool = False,
    root: str = "/",
    environ: Mapping[str, str] | None = None,
    with_packages: bool = True,
) -> dict[str, Any]:
    """Everything that can be found out; nothing raises, what is unknown is None.

    Args:
        framework: ``tensorflow``, ``jax``, ``torch`` or ``none``; default: those that are installed, or, in
            the training process, loaded.
        in_process: ask the frameworks that this process has loaded. Otherwise each is asked in a process
            of its own, which takes seconds.
        root: of the file system; for tests.
        environ: the environment; default: this process's.
        with_packages: look at installed Python packages too.
    """
    settings = os.environ if environ is None else environ
    report: dict[str, Any] = {
        "version": VERSION,
        "in_process": in_process,
        **host.platform_facts(),
        "driver": driver(settings),
        "pynvml": other_package(),
        "tensorboard": installed_version("tensorboard"),
        "pkg_resources": find_spec("pkg_resources") is not None,
        "kernel_driver": host.kernel_driver(root),
        "nvidia_hardware": host.nvidia_hardware(root),
        "amd_gpus": host.amd_gpus(root),
        "frameworks": _ask_frameworks(framework, in_process, settings),
        "libraries": host.libraries(root, settings, with_packages),
        "cupti": {
            "restricted": host.profiling_restricted(root),
            "privileged": host.may_profile(root),
        },
        "container": host.container(root, settings),
        "wsl": host.is_wsl(root),
        "memory": host.memory(root),
        "processors": host.processors(root),
        "settings": _relevant_variables(settings),
    }
    main: dict[str, Any] = next((facts for facts in report["frameworks"].values() if "error" not in facts), {})
    report["memory_growth"] = main.get("memory_growth")
    report["problems"] = find_problems(report)
    return _without_secrets(report)


def installed_version(package: str) -> str | None:
    """The version of an installed package, None where it is not there or does not say."""
    try:
        return version(package)
    except Exception:
        return None


def _without_secrets(report: dict[str, Any]) -> dict[str, Any]:
    """The report as it may be shown and passed on: rules have seen everything, readers need not."""
    told = {name: value if _TOLD.fullmatch(name) else HIDDEN for name, value in report["settings"].items()}
    if "TF_CONFIG" in told:
        told["TF_CONFIG"] = outline_of_cluster(told["TF_CONFIG"])
    problems = [
        {**problem, "params": {**params, "value": told[params["name"]]}}
        if "value" in (params := problem["params"]) and params.get("name") in told
        else problem
        for problem in report["problems"]
    ]
    safe: dict[str, Any] = all_without_secrets({**report, "settings": told, "problems": problems})
    return safe


def _ask_frameworks(wanted: str | None, in_process: bool, environ: Mapping[str, str]) -> dict[str, Any]:
    if wanted == "none":
        return {}
    names = FRAMEWORKS if wanted is None else (wanted,)
    found: dict[str, Any] = {}
    for name in names:
        if in_process:
            loaded = module(name)
            if loaded is not None:
                try:
                    found[name] = describe(name, loaded)
                except Exception as error:
                    found[name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        elif installed(name):
            found[name] = probe(name, environ)
        elif wanted is not None:
            found[name] = {"error": "not installed"}
    return found


def _relevant_variables(environ: Mapping[str, str]) -> dict[str, str]:
    chosen = {
        name: value[:_MAX_VALUE]
        for name, value in environ.items()
        if (name.startswith(_PREFIXES) or name in _NAMES) and not _SECRET.search(name)
    }
    return dict(sorted(chosen.items()))
