"""Telemetry as columns: what a monitor recorded of each GPU and of the training process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class GpuFacts:
    """What does not change while training runs.

    Attributes:
        framework_id: the number that the training framework, and hence its profile, gives the GPU; None where unknown.
        nvml_index, uuid, pci_bus_id, name: the driver's own names.
        limits: maxima and thresholds by name with unit, such as ``sm_clock_max_mhz``,
            ``slowdown_temperature_celsius``, ``shutdown_temperature_celsius``, ``memory_total_bytes``,
            ``power_limit_default_watts``, ``pcie_generation_max``, ``pcie_width_max``.
        mig: number of the MIG instance, None for a whole GPU.
    """

    framework_id: int | None
    nvml_index: int
    uuid: str | None
    pci_bus_id: str | None
    name: str | None
    limits: Mapping[str, float] = field(default_factory=dict)
    mig: int | None = None


@dataclass(frozen=True)
class GpuSeries:
    """All samples of one GPU by one monitor, in order of time.

    Attributes:
        run: folder of the event files below the logdir.
        wall_ns: int64[n], Unix time in nanoseconds, increasing.
        step: int64[n], the training step at that time, -1 where unknown.
        values: float64[n] by metric id (`tb_gpu_doctor.metrics`), NaN where a tick had no value.
    """

    run: str
    facts: GpuFacts
    wall_ns: NDArray[np.int64]
    step: NDArray[np.int64]
    values: Mapping[str, NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.wall_ns)


@dataclass(frozen=True)
class Span:
    """Something that training did: ``checkpoint``, ``validation``, ``garbage_collection`` or ``profile``."""

    kind: str
    start_ns: int
    end_ns: int
    step: int
    note: str = ""


@dataclass(frozen=True)
class StepTimes:
    """Training steps as the process itself timed them.

    Attributes:
        number: int64[n].
        end_ns: int64[n], Unix time in nanoseconds.
        duration_ns: int64[n].
        samples: int64[n], global batch; -1 where unknown.
        profiled: bool[n], whether a profile was being taken.
    """

    number: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    samples: NDArray[np.int64]
    profiled: NDArray[np.bool_]


@dataclass(frozen=True)
class BatchPoint:
    """One size of a batch-size sweep; ``samples_per_s`` is None where it did not fit."""

    batch_size: int
    samples_per_s: float | None
    step_seconds: float | None
    peak_bytes: int | None
    problem: str | None = None


@dataclass(frozen=True)
class BatchSweep:
    """A batch-size sweep with its fit: time of a step = fixed + per_sample * batch."""

    run: str
    wall_ns: int
    points: tuple[BatchPoint, ...]
    fixed_seconds: float | None
    per_sample_seconds: float | None
    recommended: int | None


@dataclass(frozen=True)
class ToldNote:
    """What a monitor noted, as key and parameters of the catalogues: rules read these, and never sentences."""

    key: str
    params: Mapping[str, Any]


@dataclass(frozen=True)
class Rank:
    """Which process of a job it is, as its launcher says: ``number`` of ``of``, ``local`` on its host where told."""

    number: int
    of: int
    local: int | None = None


@dataclass(frozen=True)
class Recording:
    """What one monitor, that is one process, recorded.

    Attributes:
        run: folder below the logdir that holds it.
        host: host name as the profiler names its file.
        process_id: of the training process.
        environment: the environment report, as `gpu-doctor env --json` gives it; empty where none was written.
        notes: sentences that the monitor left about what it could not record.
        simulated: whether the driver behind it was a stand-in; demos say so.
        memory_growth: whether the framework takes memory as it needs it; None where unknown.
        facts: what else was written once, by name, such as ``driver`` (versions, topology).
        told: the notes that have a key.
        ended: how training left the monitor: ``normal``, or ``error`` for an exception; None for a process that
            was killed or still runs, and for recordings of older monitors.
        rank: of a job of several processes, None where the launcher said nothing.
    """

    run: str
    host: str
    process_id: int
    gpus: tuple[GpuSeries, ...]
    spans: tuple[Span, ...]
    steps: StepTimes
    environment: Mapping[str, Any]
    notes: tuple[str, ...]
    simulated: bool = False
    memory_growth: bool | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    told: tuple[ToldNote, ...] = ()
    ended: str | None = None
    rank: Rank | None = None


@dataclass(frozen=True)
class Telemetry:
    """Everything the monitors recorded below one logdir."""

    recordings: tuple[Recording, ...] = ()
    sweeps: tuple[BatchSweep, ...] = ()
    problems: tuple[str, ...] = ()
