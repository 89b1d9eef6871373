"""The state of a running training: what its GPUs do now and how fast its steps come, from the end of the recordings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.telemetry.joining import GpuTelemetry, extent
from tb_gpu_doctor.telemetry.series import GpuSeries, Recording, column, filled
from tb_gpu_doctor.telemetry.throttling import reason_masks

# Values are means over this time, rates count the steps of that one.
NOW_S, RATE_S = 5.0, 60.0


@dataclass(frozen=True)
class GpuNow:
    """One GPU over the last seconds of its recording; None where nothing was recorded.

    Attributes:
        host, gpu: as the diagnosis names it.
        nvml_index: as the driver does.
        utilization: 0..1.
        throttled: names of the reasons that lower the clocks now.
        age_s: since its last sample.
    """

    host: str
    gpu: int
    nvml_index: int
    name: str | None
    utilization: float | None
    power_watts: float | None
    power_limit_watts: float | None
    temperature_celsius: float | None
    clock_mhz: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    throttled: tuple[str, ...]
    age_s: float


@dataclass(frozen=True)
class ProcessNow:
    """One process of a training.

    Attributes:
        step: number of the last one; None where none was recorded.
        steps_per_s, samples_per_s: over the last minute in which steps came.
        step_age_s: since the last step ended.
        age_s: since the last thing that was recorded.
        ended: how it left the monitor (`telemetry.series.Recording`).
    """

    host: str
    process_id: int
    step: int | None
    steps_per_s: float | None
    samples_per_s: float | None
    step_age_s: float | None
    age_s: float
    ended: str | None


def gpu_now(gpu: GpuTelemetry, wall_ns: int) -> GpuNow:
    """What a GPU does at the end of its recording; ``wall_ns`` is the time now."""
    series = gpu.series
    last = int(series.wall_ns[-1]) if len(series) else wall_ns
    recent = series.wall_ns > last - int(NOW_S * 1e9)
    utilization = _mean(series, "utilization_percent", recent)
    return GpuNow(
        host=gpu.host,
        gpu=gpu.gpu,
        nvml_index=series.facts.nvml_index,
        name=series.facts.name,
        utilization=None if utilization is None else utilization / 100,
        power_watts=_mean(series, "power_watts", recent),
        power_limit_watts=_last(series, "power_limit_watts"),
        temperature_celsius=_last(series, "temperature_celsius"),
        clock_mhz=_mean(series, "sm_clock_mhz", recent),
        memory_used_bytes=_last(series, "memory_used_bytes"),
        memory_total_bytes=series.facts.limits.get("memory_total_bytes"),
        throttled=tuple(name for name, mask in reason_masks(series).items() if len(mask) and bool(mask[recent].any())),
        age_s=max(0.0, (wall_ns - last) / 1e9),
    )


def process_now(recording: Recording, wall_ns: int) -> ProcessNow:
    """How a process gets on at the end of its recording; ``wall_ns`` is the time now."""
    steps, span = recording.steps, extent(recording)
    last = span[1] if span is not None else wall_ns
    step_age = rate = samples = None
    if len(steps.number):
        end = int(steps.end_ns[-1])
        step_age = max(0.0, (wall_ns - end) / 1e9)
        recent = steps.end_ns > end - int(RATE_S * 1e9)
        seconds = float(steps.duration_ns[recent].sum()) / 1e9
        if seconds > 0:
            rate = int(recent.sum()) / seconds
            counts = steps.samples[recent]
            samples = float(counts.sum()) / seconds if bool((counts >= 0).all()) else None
    return ProcessNow(
        host=recording.host,
        process_id=recording.process_id,
        step=int(steps.number[-1]) if len(steps.number) else None,
        steps_per_s=rate,
        samples_per_s=samples,
        step_age_s=step_age,
        age_s=max(0.0, (wall_ns - last) / 1e9),
        ended=recording.ended,
    )


def _mean(series: GpuSeries, metric: str, rows: Sequence[bool] | np.ndarray) -> float | None:
    values = column(series, metric)
    chosen = None if values is None else values[rows]
    return None if chosen is None or not np.isfinite(chosen).any() else float(np.nanmean(chosen))


def _last(series: GpuSeries, metric: str) -> float | None:
    values = column(series, metric)
    if values is None:
        return None
    last = float(filled(values)[-1])
    return last if np.isfinite(last) else None
