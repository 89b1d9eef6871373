"""One process of a job is slower than the others, or keeps them waiting, as telemetry alone shows it.

Reads: the step times of the processes of one job side by side, and what their GPUs did meanwhile (`telemetry.ranks`).
Without a profile, which shows it better. Says: which rank, since which step, by how much, and why as far as known.
"""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.telemetry_gpus import MOST_DESCRIBED, driver_name, process_name, ref
from tb_gpu_doctor.telemetry.joining import GpuTelemetry
from tb_gpu_doctor.telemetry.ranks import SlowRank, slow_ranks

KIND = "slow_rank"
# From here on the job loses so much that it is more than a warning.
_CRITICAL = 2.0
_HARDWARE = ("heat", "power", "clock")


def check(context: Context) -> Iterator[Finding]:
    """One finding for all slow ranks of the job; silent with a profile."""
    if context.files:
        return
    found = slow_ranks(context.telemetry.recordings)
    if not found:
        return
    worst = found[0]
    explanation = []
    for slow in found[:MOST_DESCRIBED]:
        facts = _facts(context, slow)
        explanation.append(Phrase(f"findings.{KIND}.{'steps' if slow.slow else 'lockstep'}", facts))
        explanation.append(Phrase(f"findings.{KIND}.reasons.{slow.reason}", facts))
    gpus = [gpu for slow in found for gpu in _gpu(context, slow)]
    reasons = {slow.reason for slow in found}
    hardware = bool(reasons & set(_HARDWARE))
    advice = [*(["hardware"] if hardware else []), *(["host"] if reasons & {"idle", "unknown"} else [])]
    advice += [*(["shared"] if "shared" in reasons else []), *(["share"] if reasons & {"work", "model"} else [])]
    facts = {**_facts(context, worst), "count": len(found), "ranks": tuple(process_name(s.recording) for s in found)}
    smi = {"smi": driver_name(gpus) if gpus else "0"}
    yield Finding(
        kind=KIND,
        severity="critical" if worst.slow is not None and worst.slow.ratio >= _CRITICAL else "warning",
        title=Phrase(f"findings.{KIND}.{'title' if worst.slow else 'title_lockstep'}", facts),
        explanation=tuple(explanation),
        advice=(
            *(Phrase(f"findings.{KIND}.advice.{name}", smi) for name in advice),
            *context.advice(KIND, "profile"),
        ),
        gpus=tuple(sorted(map(ref, gpus))),
        cause=worst.reason,
    )


def _facts(context: Context, slow: SlowRank) -> dict[str, object]:
    others = [other for other in slow.others if other.clock_mhz is not None]
    gpus = _gpu(context, slow)
    return {
        "rank": process_name(slow.recording),
        "gpu": driver_name(gpus) if gpus else "?",
        "model": slow.own.name or "?",
        "first": slow.steps[0],
        "last": slow.steps[1],
        "more": None if slow.slow is None else slow.slow.ratio - 1,
        "own": None if slow.slow is None else slow.slow.own_ns * 1000,
        "others": None if slow.slow is None else slow.slow.others_ns * 1000,
        "clock": slow.own.clock_mhz or 0.0,
        "clocks": sum(other.clock_mhz or 0.0 for other in others) / len(others) if others else 0.0,
        "temperature": slow.own.temperature_celsius or 0.0,
        "used": (slow.own.utilization_percent or 0.0) / 100,
    }


def _gpu(context: Context, slow: SlowRank) -> list[GpuTelemetry]:
    """The GPU of the process, among those that the diagnosis names."""
    if slow.series is None:
        return []
    uuid = slow.series.facts.uuid
    return [
        gpu
        for gpu in context.telemetry.gpus
        if gpu.series is slow.series
        or (uuid is not None and gpu.series.facts.uuid == uuid and gpu.recording.host == slow.recording.host)
    ][:1]


RULE = Rule(
    kind=KIND,
    order=287,
    about="telemetry",
    cost="none",
    reads=("telemetry",),
    beside_profile=False,
    metrics=("ranks",),
    check=check,
)
