"""The telemetry part of a diagnosis: as plain data and as lines for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tb_gpu_doctor.diagnosis.model import GpuNames
from tb_gpu_doctor.diagnosis.telemetry_report import GpuFigures, TelemetryReport
from tb_gpu_doctor.report.words import say
from tb_gpu_doctor.texts import text
from tb_gpu_doctor.texts.numbers import NBSP, gpu_names

MOST_LINES = 32


def telemetry_dict(report: TelemetryReport, lang: str) -> dict[str, Any]:
    """The part ``telemetry`` of ``diagnosis.schema.json``."""
    return {
        "gpus": [_gpu(figures) for figures in report.gpus],
        "recordings": list(report.recordings),
        "notes": [say(note, lang) for note in report.notes],
        "simulated": report.simulated,
    }


def _gpu(figures: GpuFigures) -> dict[str, Any]:
    return {
        "host": figures.gpu.host,
        "id": figures.gpu.id,
        "name": figures.name,
        "samples": figures.samples,
        "utilization": _finite(figures.utilization),
        "clock_mhz": _finite(figures.clock_mhz),
        "clock_max_mhz": _finite(figures.clock_max_mhz),
        "power_watts": _finite(figures.power_watts),
        "power_limit_watts": _finite(figures.power_limit_watts),
        "temperature_celsius": _finite(figures.temperature_celsius),
        "memory_peak_bytes": _finite(figures.memory_peak_bytes),
        "memory_capacity_bytes": _finite(figures.memory_capacity_bytes),
        "memory_source": figures.memory_source,
        "throttled": {kind: min(1.0, share) for kind, share in figures.throttled},
        "first_step": figures.first_step,
        "last_step": figures.last_step,
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def telemetry_lines(report: TelemetryReport, hosts: Sequence[str], lang: str) -> list[tuple[str, str]]:
    """(GPU, its figures in words) for each GPU, at most `MOST_LINES` of them."""
    lines = []
    for figures in report.gpus[:MOST_LINES]:
        label = gpu_names(GpuNames((figures.gpu,), 0, len(hosts) > 1), lang)
        lines.append((label, ", ".join(part.replace(" ", NBSP) for part in _parts(figures, lang))))
    return lines


def _parts(figures: GpuFigures, lang: str) -> list[str]:
    """The figures that were recorded; what is missing is left out."""
    parts = []

    def add(key: str, *needed: float | None, **params: Any) -> bool:
        if any(value is None for value in needed):
            return False
        parts.append(text(f"telemetry.figures.{key}", lang, **params))
        return True

    add("busy", figures.utilization, share=figures.utilization)
    add("heat", figures.temperature_celsius, heat=figures.temperature_celsius)
    clock, top = figures.clock_mhz, figures.clock_max_mhz
    if not add("clock_of", clock, top, clock=clock, top=top):
        add("clock", clock, clock=clock)
    power, limit = figures.power_watts, figures.power_limit_watts
    if not add("power_of", power, limit, power=power, limit=limit):
        add("power", power, power=power)
    peak, capacity = figures.memory_peak_bytes, figures.memory_capacity_bytes
    add("memory", peak, capacity, peak=peak, capacity=capacity)
    for kind, share in figures.throttled:
        add(f"throttled_{kind}", share, share=share)
    return parts or [text("telemetry.figures.none", lang)]
