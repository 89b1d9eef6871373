"""Which GPUs training sees, and what the framework, the driver and the machine call each of them.

The framework's numbers are CUDA's ordinals: XPlane's ``/device:GPU:3`` is CUDA's device 3 of this process.
NVML counts all GPUs of the machine by their PCI bus. ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER``
stand between the two.

CUDA itself is asked for its numbering only where the framework has started it already. Nothing here loads or
initialises CUDA, which would break processes that are forked later; the calls need no context and wait for no GPU.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tb_gpu_doctor.monitor.nvml import DriverLost, Nvml, NvmlProblem, text_of


@dataclass(frozen=True)
class Device:
    """A GPU, or one MIG instance of it, as NVML lists it.

    Attributes:
        index: NVML's number of the GPU.
        mig: number of the instance on it, None for a whole GPU.
        handle: NVML's handle of the instance or the GPU.
        board: NVML's handle of the whole GPU; temperature, power and clocks are its.
    """

    index: int
    uuid: str
    pci_bus_id: str
    name: str
    handle: Any = None
    board: Any = None
    mig: int | None = None
    mig_enabled: bool = False

    @property
    def label(self) -> str:
        """What its run is called: the driver's number, since that is unique on a machine."""
        return f"gpu{self.index}" if self.mig is None else f"gpu{self.index}_mig{self.mig}"


@dataclass(frozen=True)
class VisibleGpus:
    """The GPUs of a process.

    Attributes:
        devices: in the order of the framework's numbers.
        framework_ids: the framework's number of each, None where it is not certain.
        uncertain: whether CUDA may order the GPUs otherwise.
    """

    devices: tuple[Device, ...]
    framework_ids: tuple[int | None, ...]
    uncertain: bool = False
    unknown_tokens: tuple[str, ...] = field(default=())


def list_devices(nvml: Nvml, silent: Callable[[int, str], None] = lambda index, reason: None) -> list[Device]:
    """All GPUs that NVML lists, each followed by its MIG instances. GPUs that do not answer are left out.

    Args:
        nvml: started.
        silent: told the number and the reason of each GPU that does not answer.

    Raises:
        DriverLost: NVML does not answer.
    """
    pynvml = nvml.module
    found: list[Device] = []
    for index in range(nvml.ask(pynvml.nvmlDeviceGetCount)):
        try:
            handle = nvml.ask(pynvml.nvmlDeviceGetHandleByIndex, index)
            uuid = text_of(nvml.ask(pynvml.nvmlDeviceGetUUID, handle))
        except DriverLost:
            raise
        except NvmlProblem as problem:
            silent(index, problem.reason)
            continue
        name, bus = "", ""
        try:
            name = text_of(nvml.ask(pynvml.nvmlDeviceGetName, handle))
            bus = text_of(nvml.ask(pynvml.nvmlDeviceGetPciInfo, handle).busId)
        except NvmlProblem:
            pass
        instances = _mig_instances(nvml, index, handle, name, bus)
        found.append(Device(index, uuid, bus, name, handle, handle, mig_enabled=bool(instances)))
        found += instances
    return found


def _mig_instances(nvml: Nvml, index: int, board: Any, name: str, bus: str) -> list[Device]:
    try:
        current, _ = nvml.ask(nvml.function("nvmlDeviceGetMigMode"), board)
        if not current:
            return []
        most = nvml.ask(nvml.function("nvmlDeviceGetMaxMigDeviceCount"), board)
    except NvmlProblem:
        return []
    found = []
    for number in range(min(most, 64)):
        try:
            handle = nvml.ask(nvml.function("nvmlDeviceGetMigDeviceHandleByIndex"), board, number)
            uuid = text_of(nvml.ask(nvml.module.nvmlDeviceGetUUID, handle))
            own_name = text_of(nvml.ask(nvml.module.nvmlDeviceGetName, handle))
        except NvmlProblem:
            continue
        found.append(Device(index, uuid, bus, own_name or name, handle, board, number, mig_enabled=True))
    return found


def visible_devices(devices: Sequence[Device], environment: Mapping[str, str]) -> VisibleGpus:
    """What CUDA shows to a process with this environment, by the rules of the CUDA programming guide.

    ``CUDA_VISIBLE_DEVICES`` unset shows all GPUs. It is a list of indices or of beginnings of UUIDs that name
    one GPU alone; the first entry that names none ends the list, and a GPU named twice leaves none visible.
    Where MIG is on, CUDA shows one instance, the first unless one is named.

    Args:
        devices: of `list_devices`.
        environment: such as ``os.environ``.
    """
    whole = [device for device in devices if device.mig is None]
    by_bus = environment.get("CUDA_DEVICE_ORDER", "").strip().upper() == "PCI_BUS_ID"
    # By default CUDA puts the fastest GPU first; equal ones stand in the order of their bus.
    uncertain = not by_bus and len({device.name for device in whole}) > 1
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        plain = [device for device in whole if not device.mig_enabled]
        if plain or not whole:
            return _numbered(plain, uncertain)
        return _numbered([device for device in devices if device.mig is not None][:1], uncertain)
    chosen: list[Device] = []
    unknown: list[str] = []
    for token in (part.strip() for part in wanted.split(",")):
        device = _named(token, devices, whole)
        if device is None:
            if token not in ("", "-1", "NoDevFiles", "none", "void"):
                unknown.append(token)
            break
        if device in chosen:
            return VisibleGpus((), (), False, (token,))
        chosen.append(device)
    by_number = any(part.strip().lstrip("+-").isdigit() for part in wanted.split(","))
    if any(device.mig is not None for device in chosen):
        chosen = [device for device in chosen if device.mig is not None][:1]
    return _numbered(chosen, uncertain and by_number, tuple(unknown))


def _named(token: str, devices: Sequence[Device], whole: Sequence[Device]) -> Device | None:
    if token.isascii() and token.isdigit():
        index = int(token)
        if index >= len(whole):
            return None
        device = whole[index]
        if device.mig_enabled:
            return next((other for other in devices if other.mig is not None and other.index == device.index), None)
        return device
    if token[:4].upper() == "GPU-" or token[:4].upper() == "MIG-":
        # Older drivers call an instance MIG-GPU-<uuid>/<gi>/<ci>, newer ones MIG-<uuid>.
        pool = whole if token[:4].upper() == "GPU-" else [device for device in devices if device.mig is not None]
        fits = [device for device in pool if device.uuid.lower().startswith(token.lower())]
        if len(token) > 4 and len(fits) == 1:
            return fits[0]
    return None


def _numbered(devices: Sequence[Device], uncertain: bool, unknown: tuple[str, ...] = ()) -> VisibleGpus:
    ids = tuple(None if uncertain else number for number in range(len(devices)))
    return VisibleGpus(tuple(devices), ids, uncertain, unknown)


def choose_devices(
    devices: Sequence[Device], gpus: str | int | Sequence[int | str], environment: Mapping[str, str]
) -> VisibleGpus:
    """The GPUs to record, with the framework's numbers of those that training sees.

    Args:
        devices: of `list_devices`.
        gpus: ``"visible"``, ``"all"``, or NVML's numbers or UUIDs.
        environment: such as ``os.environ``.
    """
    visible = visible_devices(devices, environment)
    if gpus == "visible":
        return visible
    number_of = {device.uuid: number for device, number in zip(visible.devices, visible.framework_ids, strict=True)}
    whole = [device for device in devices if device.mig is None]
    unknown: list[str] = []
    if gpus == "all":
        chosen = [device for device in devices if device.mig is not None or not device.mig_enabled]
    else:
        chosen = []
        for wanted in [gpus] if isinstance(gpus, str | int) else gpus:
            device = _named(str(wanted).strip(), devices, whole)
            if device is None:
                unknown.append(str(wanted))
            elif device not in chosen:
                chosen.append(device)
    ids = tuple(number_of.get(device.uuid) for device in chosen)
    return VisibleGpus(tuple(chosen), ids, visible.uncertain, tuple(unknown))


_SUCCESS = 0


def _loaded_library() -> Any:
    """The driver's library if this process has it, else None."""
    flag = getattr(os, "RTLD_NOLOAD", None)
    if flag is None:
        return None
    try:
        return ctypes.CDLL("libcuda.so.1", mode=flag | os.RTLD_NOW)
    except OSError:
        return None


def cuda_devices() -> dict[str, int] | None:
    """CUDA's ordinal by UUID (hexadecimal with hyphens, without ``GPU-``); None while CUDA does not run here."""
    library = _loaded_library()
    if library is None:
        return None
    count = ctypes.c_int()
    try:
        if library.cuDeviceGetCount(ctypes.byref(count)) != _SUCCESS:
            return None
        # The second version gives an instance's own UUID where the GPU is partitioned.
        get_uuid = getattr(library, "cuDeviceGetUuid_v2", None) or library.cuDeviceGetUuid
        found = {}
        for ordinal in range(count.value):
            device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
            if library.cuDeviceGet(ctypes.byref(device), ordinal) != _SUCCESS:
                return None
            if get_uuid(raw, device) != _SUCCESS:
                return None
            found[_uuid(bytes(raw))] = ordinal
        return found
    except AttributeError:
        return None


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
