"""What NVIDIA's driver tells for the environment report: versions, GPUs, modes, who else uses them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from tb_gpu_doctor.monitor.devices import choose_devices, list_devices
from tb_gpu_doctor.monitor.nvml import DriverLost, Nvml, NvmlProblem, text_of

_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}


def driver(environ: Mapping[str, str]) -> dict[str, Any]:
    """``{"error": reason}`` where NVML does not answer, else versions and GPUs.

    ``visible`` is, of each GPU that CUDA shows to a process with this environment, the driver's number.
    """
    nvml = Nvml()
    try:
        nvml.start()
        return _ask(nvml, environ)
    except DriverLost as problem:
        return {"error": problem.reason}
    finally:
        nvml.stop()


def _ask(nvml: Nvml, environ: Mapping[str, str]) -> dict[str, Any]:
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
