"""The driver's side of a recording: finds the GPUs, samples them, survives the driver's absence."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.monitor.cuda_order import cuda_devices
from tb_gpu_doctor.monitor.devices import VisibleGpus, choose_devices, list_devices
from tb_gpu_doctor.monitor.facts import driver_facts, gpu_facts
from tb_gpu_doctor.monitor.notes import Notes
from tb_gpu_doctor.monitor.nvml import DriverLost, Nvml, amd_present
from tb_gpu_doctor.monitor.sampler import COLUMN, Sampler
from tb_gpu_doctor.monitor.writer import RecordingWriter

DRIVER_RETRY_S = 30.0
# CUDA is asked how it numbers the GPUs once the framework has started it.
CUDA_ASKS = 600


class GpuSource:
    """Gives a matrix of values a tick, None while there is no driver.

    Args:
        gpus: as for `GpuMonitor`.
        interval_s: what is meant to lie between two ticks.
        notes: takes what cannot be recorded.
        writer: told of the GPUs and their facts.
        monotonic_ns: the clock that durations are counted with.
        environment: names the visible GPUs.
        ask_cuda: whether CUDA in this process may correct the framework's numbers.
    """

    def __init__(
        self,
        gpus: str | Sequence[int | str],
        interval_s: float,
        notes: Notes,
        writer: RecordingWriter,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        environment: Mapping[str, str] = os.environ,
        ask_cuda: bool = True,
    ) -> None:
        self._environment = environment
        self._monotonic_ns = monotonic_ns
        self._wanted = gpus
        self._interval_s = interval_s
        self._notes = notes
        self._writer = writer
        self._nvml: Nvml | None = None
        self._sampler: Sampler | None = None
        self._chosen: VisibleGpus | None = None
        self._facts: list[dict[str, Any]] = []
        self._not_before = 0
        self._cuda_asks = CUDA_ASKS if ask_cuda else 0
        self._was_lost = False

    def sample(
        self, budget_s: float, allocator: Mapping[int, tuple[int, int]], limits: Mapping[int, int]
    ) -> NDArray[np.float64] | None:
        """One tick: float64[GPUs, metrics].

        Args:
            budget_s: see `Sampler.sample`.
            allocator: used and peak bytes by the framework's number of the GPU.
            limits: what the allocator may use, likewise.
        """
        if self._nvml is None and not self._begin():
            return None
        if self._sampler is None:
            return None
        try:
            values = self._sampler.sample(budget_s, self._monotonic_ns)
        except DriverLost as problem:
            self._lose(problem)
            return None
        self._ask_cuda()
        self._add_allocator(values, allocator, limits)
        return values

    def by_gpu(self, values: NDArray[np.float64]) -> Iterator[tuple[int, dict[str, float]]]:
        """A tick GPU by GPU: the framework's number, NVML's where that is unknown, and values by metric id."""
        for row, facts in enumerate(self._facts):
            number = facts["framework_id"] if facts["framework_id"] is not None else facts["nvml_index"]
            yield number, {metric: float(values[row, column]) for metric, column in COLUMN.items()}

    def close(self) -> None:
        """Give NVML back."""
        if self._nvml is not None:
            self._nvml.stop()
            self._nvml = None

    def _begin(self) -> bool:
        if self._monotonic_ns() < self._not_before:
            return False
        nvml = Nvml()
        try:
            nvml.start()
            devices = list_devices(nvml, lambda index, reason: self._notes.tell("silent_gpu", gpu=index, reason=reason))
        except DriverLost as problem:
            nvml.stop()
            self._not_before = self._monotonic_ns() + int(DRIVER_RETRY_S * 1e9)
            if not self._was_lost:
                self._was_lost = True
                self._notes.tell("amd" if amd_present() else "no_driver", reason=problem.reason)
            return False
        self._nvml = nvml
        if self._sampler is not None:
            self._sampler.renew(nvml, devices)
            self._notes.tell("driver_back")
            return True
        chosen = choose_devices(devices, self._wanted, self._environment)
        self._chosen = chosen
        for token in chosen.unknown_tokens:
            self._notes.tell("unknown_gpu", gpu=token)
        if not chosen.devices:
            self._notes.tell("no_gpus" if devices else "no_gpus_at_all")
            return True
        if chosen.uncertain:
            self._notes.tell("order_uncertain")
        self._facts = [
            gpu_facts(nvml, device, number) for device, number in zip(chosen.devices, chosen.framework_ids, strict=True)
        ]
        self._sampler = Sampler(nvml, chosen.devices, self._notes, self._interval_s)
        self._writer.set_gpus(self._facts)
        driver = driver_facts(nvml, devices)
        self._writer.update_header(simulated=driver.pop("simulated"))
        self._writer.facts.append(("driver", driver))
        return True

    def _lose(self, problem: DriverLost) -> None:
        self._was_lost = True
        self._notes.tell("driver_lost", reason=problem.reason)
        self.close()
        self._not_before = self._monotonic_ns() + int(DRIVER_RETRY_S * 1e9)

    def _ask_cuda(self) -> None:
        """Take the framework's numbers from CUDA itself once it runs in this process."""
        if self._cuda_asks <= 0 or self._chosen is None:
            return
        self._cuda_asks -= 1
        ordinals = cuda_devices()
        if ordinals is None:
            return
        self._cuda_asks = 0
        changed = False
        for facts in self._facts:
            number = ordinals.get(facts["uuid"].split("-", 1)[-1].lower())
            if number is None and facts["mig"] is not None:
                continue  # older drivers name an instance otherwise than CUDA does
            if number != facts["framework_id"]:
                facts["framework_id"] = number
                changed = True
        if changed:
            self._writer.set_gpus(self._facts)

    def _add_allocator(
        self, values: NDArray[np.float64], allocator: Mapping[int, tuple[int, int]], limits: Mapping[int, int]
    ) -> None:
        changed = False
        for row, facts in enumerate(self._facts):
            number = facts["framework_id"]
            if number in allocator:
                values[row, COLUMN["allocator_used_bytes"]], values[row, COLUMN["allocator_peak_bytes"]] = allocator[
                    number
                ]
            limit = limits.get(number)
            if limit is not None and facts["limits"].get("allocator_limit_bytes") != limit:
                facts["limits"]["allocator_limit_bytes"] = float(limit)
                changed = True
        if changed:
            self._writer.set_gpus(self._facts)
