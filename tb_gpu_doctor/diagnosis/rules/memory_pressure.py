"""Memory near its end, or in use that only grows.

Reads: the allocator's figures, from telemetry or the profile, or NVML's where memory grows on demand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.telemetry_gpus import measured_gpus, memory_needs, names, names_of, ref, worst_first
from tb_gpu_doctor.telemetry.joining import GpuTelemetry, extent
from tb_gpu_doctor.telemetry.memory import Memory, measure

KIND = "memory_pressure"
_PS_PER_S = 1e12


@dataclass(frozen=True)
class Limits:
    """Memory in use, of what there is, and its growth."""

    # From here on an allocation may fail.
    high: float = 0.95
    # Memory that grows is a leak worth a warning if this part of the memory has gone since warm-up, or if it will
    # all be gone within this many times the time already recorded.
    leak_grown: float = 0.05
    leak_soon: float = 10.0


def check(context: Context) -> Iterator[Finding]:
    """One finding for the GPUs whose memory grows, else a remark about those that are nearly full."""
    limits: Limits = context.thresholds.of(KIND)
    known = [
        (gpu, memory)
        for gpu in measured_gpus(context)
        if (memory := measure(gpu.series, gpu.recording.memory_growth)) is not None
    ]
    growing = [(gpu, memory) for gpu, memory in known if _leaks(gpu, memory, limits)]
    if growing:
        yield _leak(context, growing)
        return
    full = {
        gpu: memory
        for gpu, memory in memory_needs(context).items()
        if memory is not None and memory.used >= limits.high
    }
    if full:
        worst = max(full.values(), key=lambda memory: memory.used)
        facts = {
            "gpus": names_of(context, full),
            "used": worst.used,
            "peak": worst.peak_bytes,
            "capacity": worst.capacity_bytes,
        }
        yield Finding(
            kind=KIND,
            severity="info",
            title=Phrase(f"findings.{KIND}.title_full", facts),
            explanation=(Phrase(f"findings.{KIND}.full", facts),),
            advice=context.advice(KIND, "smaller_batch", "checkpointing", "fragments@"),
            gpus=tuple(sorted(full)),
            cause="near_limit",
        )


def _leaks(gpu: GpuTelemetry, memory: Memory, limits: Limits) -> bool:
    """Whether the growth is large, or fills the memory within a time that matters."""
    growth, span = memory.growth, extent(gpu.recording)
    if growth is None or span is None:
        return False
    recorded_s = (span[1] - span[0]) / 1e9
    # A slow creep far from the end may be a cache that settles.
    return growth.grown_bytes >= limits.leak_grown * memory.capacity_bytes or (
        growth.seconds_left <= limits.leak_soon * recorded_s
        and growth.grown_bytes >= 0.2 * limits.leak_grown * memory.capacity_bytes
    )


def _leak(context: Context, growing: list[tuple[GpuTelemetry, Memory]]) -> Finding:
    gpus = [gpu for gpu, _ in growing]
    facts = {"gpus": names(context, gpus), "count": len(gpus)}
    by_gpu = {id(gpu): memory for gpu, memory in growing}
    explanation = [Phrase(f"findings.{KIND}.growing", facts)]
    soon = False
    for gpu in worst_first([(gpu, memory.used) for gpu, memory in growing]):
        memory = by_gpu[id(gpu)]
        growth, span = memory.growth, extent(gpu.recording)
        assert growth is not None and span is not None
        soon = soon or growth.seconds_left <= (span[1] - span[0]) / 1e9
        one = {
            "gpus": names(context, [gpu]),
            "grown": growth.grown_bytes,
            "peak": memory.peak_bytes,
            "capacity": memory.capacity_bytes,
            "per_step": growth.bytes_per_step,
            "per_minute": growth.bytes_per_s * 60,
            "steps": growth.steps_left,
            "left": growth.seconds_left * _PS_PER_S,
        }
        explanation.append(Phrase(f"findings.{KIND}.{'rate' if growth.bytes_per_step is None else 'rate_steps'}", one))
    return Finding(
        kind=KIND,
        severity="critical" if soon else "warning",
        title=Phrase(f"findings.{KIND}.title_growing", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, "keep_numbers@", "retracing@tensorflow", "bound_caches"),
        gpus=tuple(sorted(map(ref, gpus))),
        cause="growing",
    )


RULE = Rule(
    kind=KIND,
    order=350,
    about="telemetry",
    cost="none",
    reads=("telemetry", "allocators"),
    needs=("allocators",),
    thresholds=Limits(),
    metrics=("memory", "work"),
    check=check,
)
