"""What does not change while training runs: GPUs with their limits, driver, and how they are connected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tb_gpu_doctor.monitor.devices import Device
from tb_gpu_doctor.monitor.nvml import Nvml, NvmlProblem, text_of
from tb_gpu_doctor.monitor.probes import limits

# A stand-in for the driver says so in its own version string; no driver of NVIDIA's does.
SIMULATED_MARK = "simulated"
_TOPOLOGY = {0: "internal", 10: "single_switch", 20: "multiple_switches", 30: "host_bridge", 40: "node", 50: "system"}
# NVML_P2P_CAPS_INDEX_NVLINK
_NVLINK_PEERS = 2
# Pairs grow with the square: more than these GPUs are in no machine that is not partitioned.
_MOST_IN_TOPOLOGY = 32


def gpu_facts(nvml: Nvml, device: Device, framework_id: int | None) -> dict[str, Any]:
    """One GPU as the recording's header tells it."""
    return {
        "label": device.label,
        "framework_id": framework_id,
        "nvml_index": device.index,
        "mig": device.mig,
        "uuid": device.uuid,
        "pci_bus_id": device.pci_bus_id,
        "name": device.name,
        "limits": limits(nvml, device),
    }


def driver_facts(nvml: Nvml, devices: Sequence[Device]) -> dict[str, Any]:
    """Versions of driver, NVML and CUDA, the GPUs of the machine, and the topology between them."""
    facts: dict[str, Any] = {"gpus_of_machine": sum(device.mig is None for device in devices)}
    for name, function in (
        ("driver_version", "nvmlSystemGetDriverVersion"),
        ("nvml_version", "nvmlSystemGetNVMLVersion"),
    ):
        try:
            facts[name] = text_of(nvml.ask(nvml.function(function)))
        except NvmlProblem:
            facts[name] = None
    try:
        version = nvml.ask(nvml.function("nvmlSystemGetCudaDriverVersion_v2"))
        facts["cuda_driver_version"] = f"{version // 1000}.{version % 1000 // 10}"
    except NvmlProblem:
        facts["cuda_driver_version"] = None
    facts["topology"] = _topology(nvml, [device for device in devices if device.mig is None])
    facts["simulated"] = SIMULATED_MARK in str(facts["driver_version"]).lower()
    return facts


def _topology(nvml: Nvml, devices: Sequence[Device]) -> dict[str, str]:
    """What lies between two GPUs, by ``"0-1"``: PCIe bridges, or ``nvlink``."""
    found: dict[str, str] = {}
    if not 2 <= len(devices) <= _MOST_IN_TOPOLOGY:
        return found
    for at, one in enumerate(devices):
        for other in devices[at + 1 :]:
            key = f"{one.index}-{other.index}"
            if _linked(nvml, one, other):
                found[key] = "nvlink"
                continue
            try:
                level = nvml.ask(nvml.function("nvmlDeviceGetTopologyCommonAncestor"), one.board, other.board)
                found[key] = _TOPOLOGY.get(int(getattr(level, "value", level)), "unknown")
            except NvmlProblem:
                continue
    return found


def _linked(nvml: Nvml, one: Device, other: Device) -> bool:
    """Whether NVLink leads from one GPU to the other, directly or through a switch."""
    try:
        status = nvml.ask(nvml.function("nvmlDeviceGetP2PStatus"), one.board, other.board, _NVLINK_PEERS)
    except NvmlProblem:
        return False
    return int(getattr(status, "value", status)) == 0
