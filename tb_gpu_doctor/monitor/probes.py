"""What is asked of NVML: one probe per call at each tick, and once what never changes (limits, versions, topology)."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tb_gpu_doctor.monitor.devices import Device
from tb_gpu_doctor.monitor.nvml import Nvml, NvmlProblem, Unsupported, text_of

NAN = float("nan")
_ALL_LINKS = 0xFFFFFFFF

Values = tuple[float, ...]


@dataclass(frozen=True)
class Probe:
    """One question to the driver.

    Attributes:
        metrics: ids of `tb_gpu_doctor.metrics`, in the order of the values.
        ask: raises `NvmlProblem`; a value may be NaN.
        every: it is asked at every n-th tick, since it is answered slowly.
    """

    metrics: tuple[str, ...]
    ask: Callable[[Nvml, Device], Values]
    every: int = 1


def _utilization(nvml: Nvml, device: Device) -> Values:
    rates = nvml.ask(nvml.module.nvmlDeviceGetUtilizationRates, device.handle)
    return float(rates.gpu), float(rates.memory)


def _memory(nvml: Nvml, device: Device) -> Values:
    try:
        info = nvml.ask(nvml.module.nvmlDeviceGetMemoryInfo, device.handle, nvml.function("nvmlMemory_v2"))
        return float(info.used), float(info.reserved), float(info.free)
    except Unsupported:
        # Before driver 510, and through a package before 11.510, the driver's own share counts as used.
        info = nvml.ask(nvml.module.nvmlDeviceGetMemoryInfo, device.handle)
        return float(info.used), NAN, float(info.free)


def _power(nvml: Nvml, device: Device) -> Values:
    return (nvml.ask(nvml.module.nvmlDeviceGetPowerUsage, device.board) / 1e3,)


def _power_limit(nvml: Nvml, device: Device) -> Values:
    return (nvml.ask(nvml.module.nvmlDeviceGetEnforcedPowerLimit, device.board) / 1e3,)


def _temperature(nvml: Nvml, device: Device) -> Values:
    try:
        return (float(nvml.ask(nvml.module.nvmlDeviceGetTemperature, device.board, 0)),)
    except Unsupported:
        return (float(nvml.ask(nvml.function("nvmlDeviceGetTemperatureV"), device.board, 0)),)


def _memory_temperature(nvml: Nvml, device: Device) -> Values:
    return (_fields(nvml, device, [(nvml.module.NVML_FI_DEV_MEMORY_TEMP, 0)])[0],)


def _sm_clock(nvml: Nvml, device: Device) -> Values:
    return (float(nvml.ask(nvml.module.nvmlDeviceGetClockInfo, device.board, nvml.module.NVML_CLOCK_SM)),)


def _memory_clock(nvml: Nvml, device: Device) -> Values:
    return (float(nvml.ask(nvml.module.nvmlDeviceGetClockInfo, device.board, nvml.module.NVML_CLOCK_MEM)),)


def _reasons(nvml: Nvml, device: Device) -> Values:
    for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
        # The second name is the first one's before driver 535, and the only one that older packages know.
        with contextlib.suppress(Unsupported):
            return (float(nvml.ask(nvml.function(name), device.board)),)
    # Newer packages look for the new name under both, and older drivers have the old one only.
    old = getattr(getattr(nvml.module, "nvmlLib", None), "nvmlDeviceGetCurrentClocksThrottleReasons", None)
    bits = ctypes.c_ulonglong()
    if old is None:
        raise Unsupported("no reasons for lower clocks")
    code = old(device.board, ctypes.byref(bits))
    if code != nvml.module.NVML_SUCCESS:
        raise nvml.problem(code)
    return (float(bits.value),)


def _energy(nvml: Nvml, device: Device) -> Values:
    return (nvml.ask(nvml.function("nvmlDeviceGetTotalEnergyConsumption"), device.board) / 1e3,)


def _fan(nvml: Nvml, device: Device) -> Values:
    return (float(nvml.ask(nvml.module.nvmlDeviceGetFanSpeed, device.board)),)


def _replays(nvml: Nvml, device: Device) -> Values:
    return (float(nvml.ask(nvml.module.nvmlDeviceGetPcieReplayCounter, device.board)),)


def _pcie_throughput(nvml: Nvml, device: Device) -> Values:
    pynvml = nvml.module
    # In kB/s, measured over 20 ms: that long each call takes.
    receive = nvml.ask(pynvml.nvmlDeviceGetPcieThroughput, device.board, pynvml.NVML_PCIE_UTIL_RX_BYTES)
    send = nvml.ask(pynvml.nvmlDeviceGetPcieThroughput, device.board, pynvml.NVML_PCIE_UTIL_TX_BYTES)
    return receive * 1e3, send * 1e3


def _pcie_link(nvml: Nvml, device: Device) -> Values:
    generation = nvml.ask(nvml.module.nvmlDeviceGetCurrPcieLinkGeneration, device.board)
    return float(generation), float(nvml.ask(nvml.module.nvmlDeviceGetCurrPcieLinkWidth, device.board))


def _nvlink(nvml: Nvml, device: Device) -> Values:
    pynvml = nvml.module
    receive, send = _fields(
        nvml,
        device,
        [
            (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
            (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
        ],
    )
    return receive * 1024.0, send * 1024.0


def _ecc(nvml: Nvml, device: Device) -> Values:
    pynvml = nvml.module
    corrected = nvml.ask(
        pynvml.nvmlDeviceGetTotalEccErrors,
        device.board,
        pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
        pynvml.NVML_VOLATILE_ECC,
    )
    uncorrected = nvml.ask(
        pynvml.nvmlDeviceGetTotalEccErrors,
        device.board,
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_VOLATILE_ECC,
    )
    return float(corrected), float(uncorrected)


def _processes(nvml: Nvml, device: Device) -> Values:
    """This process's memory, and how many other processes compute beside it.

    Unknown where the list does not hold this process: then it does not use this GPU, and who does is none of
    its business (each rank of a job sees all GPUs); or it is in a container, where the driver lists nobody or
    by other numbers.
    """
    try:
        listed = nvml.ask(nvml.module.nvmlDeviceGetComputeRunningProcesses, device.handle)
    except Unsupported:
        # Before driver 510.
        listed = nvml.ask(nvml.function("nvmlDeviceGetComputeRunningProcesses_v2"), device.handle)
    own = next((process for process in listed if process.pid == os.getpid()), None)
    if own is None:
        return NAN, NAN
    memory = NAN if own.usedGpuMemory is None else float(own.usedGpuMemory)
    return memory, float(len({process.pid for process in listed}) - 1)


def _fields(nvml: Nvml, device: Device, wanted: list[tuple[int, int]]) -> list[float]:
    """Field values by (field, scope).

    Raises:
        NvmlProblem: of the first field that has no value.
    """
    found = []
    for value in nvml.ask(nvml.function("nvmlDeviceGetFieldValues"), device.board, wanted):
        if value.nvmlReturn != nvml.module.NVML_SUCCESS:
            raise nvml.problem(value.nvmlReturn)
        kind, union = value.valueType, value.value
        number = {0: union.dVal, 1: union.uiVal, 2: union.ulVal, 3: union.ullVal, 4: union.sllVal}.get(kind)
        if number is None:
            raise Unsupported(f"a value of type {kind}")
        found.append(float(number))
    return found


PROBES: tuple[Probe, ...] = (
    Probe(("utilization_percent", "memory_utilization_percent"), _utilization),
    Probe(("memory_used_bytes", "memory_reserved_bytes", "memory_free_bytes"), _memory),
    Probe(("power_watts",), _power),
    Probe(("power_limit_watts",), _power_limit),
    Probe(("temperature_celsius",), _temperature),
    Probe(("memory_temperature_celsius",), _memory_temperature),
    Probe(("sm_clock_mhz",), _sm_clock),
    Probe(("memory_clock_mhz",), _memory_clock),
    Probe(("clock_event_reasons",), _reasons),
    Probe(("energy_joules",), _energy),
    Probe(("fan_percent",), _fan),
    Probe(("pcie_replays",), _replays),
    Probe(("pcie_receive_bytes_per_s", "pcie_send_bytes_per_s"), _pcie_throughput, 10),
    Probe(("pcie_generation", "pcie_width"), _pcie_link, 10),
    Probe(("nvlink_receive_bytes", "nvlink_send_bytes"), _nvlink, 10),
    Probe(("ecc_corrected", "ecc_uncorrected"), _ecc, 10),
    Probe(("memory_process_bytes", "other_processes"), _processes, 10),
)


def limits(nvml: Nvml, device: Device) -> dict[str, float]:
    """Maxima and thresholds of a GPU by name with unit; what the driver does not tell is absent."""
    pynvml = nvml.module
    calls: tuple[tuple[str, str, tuple[Any, ...], float], ...] = (
        ("sm_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", (1,), 1),
        ("memory_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", (2,), 1),
        ("shutdown_temperature_celsius", "nvmlDeviceGetTemperatureThreshold", (0,), 1),
        ("slowdown_temperature_celsius", "nvmlDeviceGetTemperatureThreshold", (1,), 1),
        ("memory_max_temperature_celsius", "nvmlDeviceGetTemperatureThreshold", (2,), 1),
        ("gpu_max_temperature_celsius", "nvmlDeviceGetTemperatureThreshold", (3,), 1),
        ("power_limit_default_watts", "nvmlDeviceGetPowerManagementDefaultLimit", (), 1e-3),
        ("power_limit_watts", "nvmlDeviceGetEnforcedPowerLimit", (), 1e-3),
        ("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", (), 1),
        ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", (), 1),
        ("cores", "nvmlDeviceGetNumGpuCores", (), 1),
        ("persistence_mode", "nvmlDeviceGetPersistenceMode", (), 1),
        ("numa_node", "nvmlDeviceGetNumaNodeId", (), 1),
    )
    found: dict[str, float] = {}
    for name, function, arguments, scale in calls:
        try:
            found[name] = nvml.ask(nvml.function(function), device.board, *arguments) * scale
        except NvmlProblem:
            continue
    with contextlib.suppress(NvmlProblem):
        found["memory_total_bytes"] = float(nvml.ask(pynvml.nvmlDeviceGetMemoryInfo, device.handle).total)
    with contextlib.suppress(NvmlProblem):
        smallest, largest = nvml.ask(pynvml.nvmlDeviceGetPowerManagementLimitConstraints, device.board)
        found["power_limit_min_watts"], found["power_limit_max_watts"] = smallest / 1e3, largest / 1e3
    links = _active_links(nvml, device)
    if links:
        found["nvlinks"] = float(links)
    return found


def _active_links(nvml: Nvml, device: Device) -> int:
    active = 0
    for link in range(getattr(nvml.module, "NVML_NVLINK_MAX_LINKS", 18)):
        try:
            active += bool(nvml.ask(nvml.function("nvmlDeviceGetNvLinkState"), device.board, link))
        except NvmlProblem:
            break
    return active


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
