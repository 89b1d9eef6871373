"""Samples the GPUs of a process, and carries on with what is left when part of the driver fails.

`Sampler` asks the GPUs that it is given. `GpuSource` finds them, and survives a driver that is absent at first
or reloaded in between.
"""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.metrics import BY_ID, METRICS, THROTTLE_BITS
from tb_gpu_doctor.monitor.devices import Device, VisibleGpus, choose_devices, cuda_devices, list_devices
from tb_gpu_doctor.monitor.notes import Notes
from tb_gpu_doctor.monitor.nvml import (
    DriverLost,
    Forbidden,
    GpuLost,
    NotInPackage,
    Nvml,
    NvmlProblem,
    TryAgain,
    Unsupported,
    amd_present,
)
from tb_gpu_doctor.monitor.probes import PROBES, Probe, driver_facts, gpu_facts
from tb_gpu_doctor.monitor.writer import RecordingWriter
from tb_gpu_doctor.monitor.xid import XidEvents

COLUMN = {metric.id: index for index, metric in enumerate(METRICS)}
# After so many failures in a row a value that NVML has given before is asked for no more.
MOST_FAILURES = 10
# A pause longer than this many intervals (a sleeping machine) counts for no more of them.
LONGEST_PAUSE = 10


# What is said of a value that is left out for good, by the reason.
_LEFT_OUT: dict[type[NvmlProblem], str] = {
    Unsupported: "metric_unsupported",
    NotInPackage: "metric_unknown_to_package",
    Forbidden: "metric_forbidden",
}


@dataclass
class _Gpu:
    device: Device
    probes: list[Probe] = field(default_factory=lambda: list(PROBES))
    failures: dict[Probe, int] = field(default_factory=lambda: defaultdict(int))
    answered: set[Probe] = field(default_factory=set)
    lost: bool = False
    # Counters: what the driver told last, and what has come together since the monitor began.
    driver_counters: dict[int, float] = field(default_factory=dict)
    totals: dict[int, float] = field(default_factory=dict)
    last_ns: int | None = None


class Sampler:
    """One tick is one sample of every GPU.

    Args:
        nvml: started.
        devices: what to sample.
        notes: takes what is left out, and why.
        interval_s: what is meant to lie between two ticks.
    """

    def __init__(self, nvml: Nvml, devices: Sequence[Device], notes: Notes, interval_s: float) -> None:
        self._nvml = nvml
        self._notes = notes
        self._interval_s = interval_s
        self._gpus = [_Gpu(device) for device in devices]
        self._xids = XidEvents(nvml, devices)
        self._tick = 0

    def renew(self, nvml: Nvml, devices: Sequence[Device]) -> None:
        """Go on after the driver was reloaded: the same GPUs, with new handles."""
        self._nvml = nvml
        by_uuid = {device.uuid: device for device in devices}
        for gpu in self._gpus:
            device = by_uuid.get(gpu.device.uuid)
            gpu.lost = device is None
            if device is not None:
                gpu.device = device
            gpu.last_ns = None
            gpu.failures.clear()
        self._xids = XidEvents(nvml, [gpu.device for gpu in self._gpus if not gpu.lost])

    def sample(
        self, budget_s: float | None = None, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> NDArray[np.float64]:
        """Ask all GPUs: float64[GPUs, metrics], NaN where there is no value.

        Args:
            budget_s: slow questions wait for a later tick once this is used up.
            monotonic_ns: the clock that durations are counted with.

        Raises:
            DriverLost: the driver as a whole does not answer.
        """
        values = np.full((len(self._gpus), len(METRICS)), np.nan)
        left_out: dict[tuple[Probe, type[NvmlProblem]], list[str]] = defaultdict(list)
        began = monotonic_ns()
        for number, gpu in enumerate(self._gpus):
            if gpu.lost:
                continue
            try:
                self._sample_gpu(gpu, number, values[number], left_out, began, budget_s, monotonic_ns)
            except GpuLost as problem:
                gpu.lost = True
                values[number] = np.nan
                self._notes.tell("gpu_lost", gpu=gpu.device.label, reason=problem.reason)
        for label, number in self._xids.take():
            self._notes.tell("xid", gpu=label, xid=number)
        self._tick += 1
        for (probe, kind), labels in left_out.items():
            self._tell_left_out(probe, kind, labels)
        return values

    def _sample_gpu(
        self,
        gpu: _Gpu,
        number: int,
        row: NDArray[np.float64],
        left_out: dict[tuple[Probe, type[NvmlProblem]], list[str]],
        began: int,
        budget_s: float | None,
        monotonic_ns: Callable[[], int],
    ) -> None:
        for probe in tuple(gpu.probes):
            if probe.every > 1:
                # Slow questions are spread: one GPU's at each tick, except that the first tick asks for all.
                if self._tick and (self._tick - number) % probe.every:
                    continue
                late = budget_s is not None and monotonic_ns() - began > budget_s * 1e9
                if late and self._tick:
                    continue
            try:
                answer = probe.ask(self._nvml, gpu.device)
            except (DriverLost, GpuLost):
                raise
            except NvmlProblem as problem:
                self._failed(gpu, probe, problem, left_out)
                continue
            except Exception as error:  # an older pynvml without the constant; one value is not worth the others
                self._failed(gpu, probe, NotInPackage(repr(error)), left_out)
                continue
            gpu.answered.add(probe)
            gpu.failures.pop(probe, None)
            for metric, value in zip(probe.metrics, answer, strict=True):
                row[COLUMN[metric]] = self._counted(gpu, COLUMN[metric], value) if BY_ID[metric].counter else value
        self._count_time(gpu, row, monotonic_ns())

    def _failed(
        self,
        gpu: _Gpu,
        probe: Probe,
        problem: NvmlProblem,
        left_out: dict[tuple[Probe, type[NvmlProblem]], list[str]],
    ) -> None:
        gpu.failures[probe] += 1
        never = isinstance(problem, Unsupported | Forbidden) and probe not in gpu.answered
        if never or gpu.failures[probe] >= MOST_FAILURES:
            gpu.probes.remove(probe)
            kind = type(problem) if never else TryAgain
            left_out[probe, kind].append(gpu.device.label)

    def _tell_left_out(self, probe: Probe, kind: type[NvmlProblem], labels: list[str]) -> None:
        key = _LEFT_OUT.get(kind, "metric_failing")
        for metric in probe.metrics:
            level = logging.INFO if kind is Unsupported else logging.WARNING
            self._notes.tell(key, level, metric=metric, gpus=", ".join(labels))

    def _counted(self, gpu: _Gpu, column: int, value: float) -> float:
        """What a counter has grown by since the monitor began; a reloaded driver starts its own at 0."""
        if value != value:
            return value
        before = gpu.driver_counters.get(column, value)
        gpu.driver_counters[column] = value
        return self._grow(gpu, column, value - before if value >= before else value)

    def _grow(self, gpu: _Gpu, column: int, amount: float) -> float:
        gpu.totals[column] = total = gpu.totals.get(column, 0.0) + amount
        return total

    def _count_time(self, gpu: _Gpu, row: NDArray[np.float64], now_ns: int) -> None:
        """Add the time since the last tick to the counters of busy and throttled time."""
        passed = 0.0 if gpu.last_ns is None else (now_ns - gpu.last_ns) / 1e9
        passed = min(passed, LONGEST_PAUSE * max(self._interval_s, 1.0))
        gpu.last_ns = now_ns
        utilization = row[COLUMN["utilization_percent"]]
        if utilization == utilization:
            column = COLUMN["busy_seconds"]
            row[column] = self._grow(gpu, column, passed * utilization / 100)
        reasons = row[COLUMN["clock_event_reasons"]]
        if reasons == reasons:
            bits = int(reasons)
            for name, bit in THROTTLE_BITS.items():
                column = COLUMN[f"throttled_{name}_seconds"]
                row[column] = self._grow(gpu, column, passed if bits & bit else 0.0)


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
        self._asking: Nvml | None = None
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

    @property
    def facts(self) -> Sequence[Mapping[str, Any]]:
        """Of each GPU, in the order of the rows."""
        return self._facts

    def call(self) -> tuple[str, float] | None:
        """Name and beginning of the driver's call that runs, None while none does."""
        asked = self._asking
        return None if asked is None else asked.call

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
        nvml = self._asking = Nvml()
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
