"""Errors that the driver reports of GPUs, each by its Xid number, as events that wait until they are asked for."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from typing import Any

from tb_gpu_doctor.monitor.devices import Device
from tb_gpu_doctor.monitor.nvml import DriverLost, Nvml, NvmlProblem

# So many at one look: a GPU that reports on and on must not hold up the samples.
_MOST_EVENTS = 16


class XidEvents:
    """The driver's critical events of some GPUs; silent where the driver, the package or the GPU does not tell them.

    Args:
        nvml: started.
        devices: whose events are wanted.
    """

    def __init__(self, nvml: Nvml, devices: Sequence[Device]) -> None:
        self._nvml = nvml
        self._set: Any = None
        self._labels: dict[int | None, str] = {}
        with contextlib.suppress(NvmlProblem, AttributeError):
            self._set = nvml.ask(nvml.function("nvmlEventSetCreate"))
            for device in devices:
                self._register(device)

    def _register(self, device: Device) -> None:
        wanted = self._nvml.module.nvmlEventTypeXidCriticalError
        with contextlib.suppress(NvmlProblem):
            self._nvml.ask(self._nvml.function("nvmlDeviceRegisterEvents"), device.board, wanted, self._set)
            self._labels.setdefault(_address(device.board), device.label)

    def take(self) -> list[tuple[str, int]]:
        """(label of the GPU, Xid) of what has come since the last look; never waits.

        Raises:
            DriverLost: the driver as a whole does not answer.
        """
        found: list[tuple[str, int]] = []
        if not self._labels:
            return found
        try:
            for _ in range(_MOST_EVENTS):
                event = self._nvml.ask(self._nvml.function("nvmlEventSetWait_v2"), self._set, 0)
                if event.eventType == self._nvml.module.nvmlEventTypeXidCriticalError:
                    found.append((self._labels.get(_address(event.device), "gpu?"), int(event.eventData)))
        except DriverLost:
            raise
        except NvmlProblem:  # nothing more has come
            pass
        return found


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
