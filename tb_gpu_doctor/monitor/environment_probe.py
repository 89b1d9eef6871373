"""What a framework says about itself; as a program it imports one and prints that as JSON.

    python -m tb_gpu_doctor.monitor.environment_probe tensorflow

So the command needs no framework in its own process, takes no GPU's memory, and survives one that
crashes when it is imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tb_gpu_doctor.isolated_python import isolated
from tb_gpu_doctor.monitor.frameworks import FRAMEWORKS, module

_MARK = "gpu-doctor-probe:"
_TIMEOUT_S = 120.0


def describe(name: str, found: Any) -> dict[str, Any]:
    """Facts about a framework that is loaded. What it cannot say is left out."""
    facts: dict[str, Any] = {"version": str(getattr(found, "__version__", "")) or None}
    describer = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}[name]
    for key, ask in describer(found).items():
        try:
            facts[key] = ask()
        except Exception as error:
            facts.setdefault("unknown", {})[key] = f"{type(error).__name__}: {error}".splitlines()[0]
    return facts


def _tensorflow(tf: Any) -> dict[str, Callable[[], Any]]:
    build = dict(tf.sysconfig.get_build_info())
    gpus = tf.config.list_physical_devices("GPU")

    def growth() -> bool | None:
        kinds = {bool(tf.config.experimental.get_memory_growth(gpu)) for gpu in gpus}
        return kinds.pop() if len(kinds) == 1 else None

    def devices() -> list[dict[str, Any]]:
        return [
            {
                "name": tf.config.experimental.get_device_details(gpu).get("device_name"),
                "compute_capability": list(
                    tf.config.experimental.get_device_details(gpu).get("compute_capability") or ()
                ),
            }
            for gpu in gpus
        ]

    return {
        "cuda_build": lambda: bool(build.get("is_cuda_build")),
        "rocm_build": lambda: bool(build.get("is_rocm_build")),
        "cuda_wanted": lambda: build.get("cuda_version"),
        "cudnn_wanted": lambda: build.get("cudnn_version"),
        "compute_capabilities": lambda: list(build.get("cuda_compute_capabilities") or ()),
        "gpus": devices,
        "memory_growth": growth,
        "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads,
        "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads,
        "jit": lambda: str(tf.config.optimizer.get_jit() or ""),
        "functions_run_eagerly": lambda: bool(tf.config.functions_run_eagerly()),
        "tensor_float_32": lambda: bool(tf.config.experimental.tensor_float_32_execution_enabled()),
        "strategy": lambda: type(tf.distribute.get_strategy()).__name__ if tf.distribute.has_strategy() else None,
    }


def _jax(jax: Any) -> dict[str, Callable[[], Any]]:
    def initialised() -> bool:
        check = getattr(module("jax._src.xla_bridge"), "backends_are_initialized", None)
        return bool(check()) if check is not None else True

    def gpus() -> list[dict[str, Any]] | None:
        # Asking would start JAX, which takes most of the GPU's memory.
        if not initialised() and "GPU_DOCTOR_PROBE" not in os.environ:
            return None
        devices = [device for device in jax.local_devices() if device.platform in ("gpu", "cuda", "rocm")]
        return [{"name": getattr(device, "device_kind", None), "compute_capability": []} for device in devices]

    return {
        "jaxlib": lambda: str(importlib.import_module("jaxlib").__version__),
        "cuda_build": lambda: any(
            importlib.util.find_spec(name) is not None for name in ("jax_cuda12_plugin", "jax_cuda13_plugin")
        ),
        "gpus": gpus,
        "jit_disabled": lambda: bool(jax.config.jax_disable_jit),
        "debug_nans": lambda: bool(jax.config.jax_debug_nans),
    }


def _torch(torch: Any) -> dict[str, Callable[[], Any]]:
    def gpus() -> list[dict[str, Any]]:
        cuda = torch.cuda
        return [
            {"name": cuda.get_device_name(index), "compute_capability": list(cuda.get_device_capability(index))}
            for index in range(cuda.device_count())
        ]

    return {
        "cuda_build": lambda: torch.version.cuda is not None,
        "rocm_build": lambda: getattr(torch.version, "hip", None) is not None,
        "cuda_wanted": lambda: torch.version.cuda,
        "cudnn": lambda: torch.backends.cudnn.version(),
        "nccl": lambda: ".".join(map(str, torch.cuda.nccl.version())),
        "gpus": gpus,
        "intra_op_threads": torch.get_num_threads,
        "inter_op_threads": torch.get_num_interop_threads,
        "tensor_float_32": lambda: bool(torch.backends.cuda.matmul.allow_tf32),
    }


def installed(name: str) -> bool:
    """Whether a framework can be imported, without doing so."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def probe(name: str, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Ask a framework in a process of its own; ``{"error": ...}`` where it cannot be imported there."""
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "GPU_DOCTOR_PROBE": "1"}
    try:
        done = subprocess.run(
            isolated("tb_gpu_doctor.monitor.environment_probe", [name]),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            env={**environ, **quiet},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"importing it took more than {_TIMEOUT_S:.0f} s"}
    except OSError as error:
        return {"error": str(error)}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(_MARK):
            facts: dict[str, Any] = json.loads(line[len(_MARK) :])
            return facts
    last = [line for line in done.stderr.splitlines() if line.strip()]
    return {"error": last[-1][:500] if last else f"its process ended with status {done.returncode}"}


def main(arguments: list[str]) -> int:
    """Import, describe, print."""
    name = arguments[0]
    if name not in FRAMEWORKS:
        return 2
    try:
        facts = describe(name, importlib.import_module(name))
    except Exception as error:
        facts = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    print(_MARK + json.dumps(facts, default=str), flush=True)
    # Destructors of a broken driver shall not spoil the answer.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
