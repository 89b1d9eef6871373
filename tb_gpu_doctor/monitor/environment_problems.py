"""What is wrong with an environment: rules over the report, which name texts and no words.

Each problem is ``{"code", "severity", "params"}``; ``env.problems.<code>`` of the catalogues says it and
gives the command that fixes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

Problem = dict[str, Any]
Report = dict[str, Any]

CRITICAL, WARNING, INFO = "critical", "warning", "info"
_ORDER = {CRITICAL: 0, WARNING: 1, INFO: 2}
SMALL_SHARED_MEMORY = 1 << 30
NEARLY_FULL = 0.9
_GIB = 1 << 30


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
    _driver, _amd, _build, _visible, _libraries, _cupti, _sharing, _memory, _processors, _framework_settings, _settings,
)  # fmt: skip
