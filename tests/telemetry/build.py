"""Recordings put together by hand: series of one GPU a second, and processes that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tb_gpu_doctor.telemetry.series import GpuFacts, GpuSeries, Recording, Span, StepTimes

GIB = 1 << 30
S = 1_000_000_000
START_NS = 1_700_000_000 * S
LIMITS = {
    "sm_clock_max_mhz": 2000.0,
    "slowdown_temperature_celsius": 90.0,
    "gpu_max_temperature_celsius": 87.0,
    "power_limit_default_watts": 700.0,
    "memory_total_bytes": 80.0 * GIB,
    "pcie_generation_max": 5.0,
    "pcie_width_max": 16.0,
}
HEALTHY = {
    "utilization_percent": 97.0,
    "temperature_celsius": 65.0,
    "power_watts": 600.0,
    "power_limit_watts": 700.0,
    "sm_clock_mhz": 1900.0,
    "clock_event_reasons": 0.0,
    "memory_used_bytes": 76.0 * GIB,
    "allocator_used_bytes": 50.0 * GIB,
    "allocator_peak_bytes": 64.0 * GIB,
    "pcie_generation": 5.0,
    "pcie_width": 16.0,
    "pcie_receive_bytes_per_s": 10e9,
    "pcie_send_bytes_per_s": 1e9,
    "other_processes": 0.0,
}


def series(
    gpu: int = 0,
    count: int = 100,
    *,
    steps_per_s: int | None = 10,
    start_ns: int = START_NS,
    tick_s: float = 1.0,
    limits: Mapping[str, float] | None = None,
    drop: Sequence[str] = (),
    framework_id: int | None = -1,
    uuid: str | None = "",
    host: str = "node1",
    **values: Any,
) -> GpuSeries:
    """A healthy GPU, but for the given values (one number, or one a sample)."""
    columns = {
        name: np.broadcast_to(np.asarray(value, np.float64), (count,)).copy()
        for name, value in {**HEALTHY, **values}.items()
        if name not in drop
    }
    numbers = np.arange(count, dtype=np.int64)
    return GpuSeries(
        run=f"run/gpu_doctor/{host}/gpu{gpu}",
        facts=GpuFacts(
            framework_id=gpu if framework_id == -1 else framework_id,
            nvml_index=gpu,
            uuid=f"GPU-{host}-{gpu}" if uuid == "" else uuid,
            pci_bus_id=f"00000000:{gpu:02X}:00.0",
            name="NVIDIA H100 80GB HBM3",
            limits={**LIMITS, **(limits or {})},
        ),
        wall_ns=start_ns + np.round(numbers * tick_s * S).astype(np.int64),
        step=np.full(count, -1, np.int64) if steps_per_s is None else numbers * steps_per_s,
        values=columns,
    )


def steps(
    durations_s: Sequence[float] = (),
    *,
    start_ns: int = START_NS,
    samples: int = 256,
    profiled: Sequence[int] = (),
) -> StepTimes:
    """Steps one after the other; ``profiled`` are their numbers."""
    lengths = (np.asarray(durations_s, np.float64) * S).astype(np.int64)
    numbers = np.arange(len(lengths), dtype=np.int64)
    return StepTimes(
        numbers, start_ns + np.cumsum(lengths), lengths, np.full(len(lengths), samples, np.int64),
        np.isin(numbers, list(profiled)),
    )  # fmt: skip


def recording(
    *gpus: GpuSeries,
    host: str = "node1",
    process_id: int = 4242,
    run: str = "",
    spans: Sequence[Span] = (),
    step_times: StepTimes | None = None,
    memory_growth: bool | None = None,
    notes: Sequence[str] = (),
) -> Recording:
    """What one process recorded."""
    return Recording(
        run=run or f"run/gpu_doctor/{host}/process",
        host=host,
        process_id=process_id,
        gpus=tuple(gpus),
        spans=tuple(spans),
        steps=step_times or steps(),
        environment={},
        notes=tuple(notes),
        memory_growth=memory_growth,
    )
