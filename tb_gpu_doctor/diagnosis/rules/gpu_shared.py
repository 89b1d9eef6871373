"""GPUs that other processes use as well.

Reads: how many other processes NVML lists, and the memory that is not this process's (`telemetry.sharing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.telemetry_gpus import driver_name, measured_gpus, names, ref, worst_first
from tb_gpu_doctor.telemetry.joining import GpuTelemetry
from tb_gpu_doctor.telemetry.load import Sharing, sharing

KIND = "gpu_shared"


@dataclass(frozen=True)
class Limits:
    """Other processes on the GPU."""

    # Of the recorded time.
    time: float = 0.10
    # Of the GPU's memory, below which they only are mentioned.
    memory: float = 0.05


def check(context: Context) -> Iterator[Finding]:
    """One finding for all shared GPUs: a warning where the others hold memory, or nobody knows how much."""
    limits: Limits = context.thresholds.of(KIND)
    found = [
        (gpu, shared)
        for gpu in measured_gpus(context)
        if (shared := sharing(gpu.series)) is not None and shared.share >= limits.time
    ]
    if not found:
        return
    serious = [item for item in found if not _small(item[1], limits.memory)]
    gpus = [gpu for gpu, _ in serious or found]
    by_gpu = {id(gpu): shared for gpu, shared in found}
    worst = max(by_gpu[id(gpu)].share for gpu in gpus)
    facts = {"gpus": names(context, gpus), "share": worst, "count": len(gpus)}
    explanation = [Phrase(f"findings.{KIND}.explanation", facts)]
    for gpu in worst_first([(gpu, by_gpu[id(gpu)].share) for gpu in gpus]):
        explanation.append(_described(context, gpu, by_gpu[id(gpu)]))
    if any(_ranks_beside(context, gpu) for gpu in gpus):
        explanation.append(Phrase(f"findings.{KIND}.own_job"))
    yield Finding(
        kind=KIND,
        severity="warning" if serious else "info",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, "who", "one_process", "exclusive", params={"smi": driver_name(gpus)}),
        gpus=tuple(sorted(map(ref, gpus))),
    )


def _small(shared: Sharing, least: float) -> bool:
    return shared.memory_share is not None and shared.memory_share < least


def _described(context: Context, gpu: GpuTelemetry, shared: Sharing) -> Phrase:
    facts = {
        "gpus": names(context, [gpu]),
        "most": shared.most,
        "share": shared.share,
        "memory": shared.others_bytes,
    }
    return Phrase(f"findings.{KIND}.{'one' if shared.others_bytes is None else 'one_memory'}", facts)


def _ranks_beside(context: Context, gpu: GpuTelemetry) -> bool:
    """Whether another recorded process of this job has the same GPU."""
    uuid = gpu.series.facts.uuid
    return uuid is not None and any(
        series.facts.uuid == uuid
        for recording in context.telemetry.recordings
        if recording.process_id != gpu.recording.process_id
        for series in recording.gpus
    )


RULE = Rule(
    kind=KIND,
    order=330,
    about="telemetry",
    cost="none",
    reads=("telemetry",),
    thresholds=Limits(),
    metrics=("other_processes", "work"),
    check=check,
)
