"""The environment report: versions, limits and settings that training runs under, and what is wrong with them.

A plain dictionary, so that it goes into a recording, into JSON, and over to a colleague. Its sentences are
made by `environment_words` from the catalogues, in the reader's language.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from tb_gpu_doctor.monitor import environment_driver
from tb_gpu_doctor.monitor import environment_host as host
from tb_gpu_doctor.monitor.environment_probe import describe, installed, probe
from tb_gpu_doctor.monitor.environment_problems import find_problems
from tb_gpu_doctor.monitor.frameworks import FRAMEWORKS, module

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
        "driver": environment_driver.driver(settings),
        "kernel_driver": host.kernel_driver(root),
        "nvidia_hardware": host.nvidia_hardware(root),
        "amd_gpus": host.amd_gpus(root),
        "frameworks": _frameworks(framework, in_process, settings),
        "libraries": host.libraries(root, settings, with_packages),
        "cupti": {
            "restricted": host.profiling_restricted(root),
            "privileged": host.may_profile(root),
        },
        "container": host.container(root, settings),
        "wsl": host.is_wsl(root),
        "memory": host.memory(root),
        "processors": host.processors(root),
        "settings": _settings(settings),
    }
    main: dict[str, Any] = next((facts for facts in report["frameworks"].values() if "error" not in facts), {})
    report["memory_growth"] = main.get("memory_growth")
    report["problems"] = find_problems(report)
    return report


def _frameworks(wanted: str | None, in_process: bool, environ: Mapping[str, str]) -> dict[str, Any]:
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


def _settings(environ: Mapping[str, str]) -> dict[str, str]:
    chosen = {
        name: value[:_MAX_VALUE]
        for name, value in environ.items()
        if (name.startswith(_PREFIXES) or name in _NAMES) and not _SECRET.search(name)
    }
    return dict(sorted(chosen.items()))
