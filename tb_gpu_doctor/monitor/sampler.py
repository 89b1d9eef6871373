"""Samples all GPUs of a process, and goes on with what is left when something of the driver fails."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.metrics import BY_ID, METRICS, THROTTLE_BITS
from tb_gpu_doctor.monitor.devices import Device
from tb_gpu_doctor.monitor.notes import Notes
from tb_gpu_doctor.monitor.nvml import DriverLost, Forbidden, GpuLost, Nvml, NvmlProblem, TryAgain, Unsupported
from tb_gpu_doctor.monitor.probes import PROBES, Probe

COLUMN = {metric.id: index for index, metric in enumerate(METRICS)}
# After so many failures in a row a value that NVML has given before is asked for no more.
MOST_FAILURES = 10
# A pause longer than this many intervals (a sleeping machine) counts for no more of them.
LONGEST_PAUSE = 10


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
        self._tick = 0

    @property
    def any_left(self) -> bool:
        """Whether a GPU still answers."""
        return any(not gpu.lost for gpu in self._gpus)

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
                self._failed(gpu, probe, Unsupported(repr(error)), left_out)
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
        key = {Unsupported: "metric_unsupported", Forbidden: "metric_forbidden"}.get(kind, "metric_failing")
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
