"""PCIe links below their width or generation while the GPU works.

Reads: link and maximum over the busy samples, since an idle GPU slows its link down on purpose (`telemetry.sharing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.telemetry_gpus import measured_gpus, names, ref, worst_first
from tb_gpu_doctor.telemetry.joining import GpuTelemetry
from tb_gpu_doctor.telemetry.load import Link, link

KIND = "pcie_degraded"


@dataclass(frozen=True)
class Limits:
    """What a degraded link must carry to cost anything."""

    # Of its rate; below it, it costs nothing.
    traffic: float = 0.10


def check(context: Context) -> Iterator[Finding]:
    """One finding for all such GPUs; a remark where hardly anything is sent over the links."""
    limits: Limits = context.thresholds.of(KIND)
    found = [
        (gpu, slow)
        for gpu in measured_gpus(context)
        if (slow := link(gpu.series, context.thresholds.telemetry_busy_percent)) is not None
    ]
    if not found:
        return
    by_gpu = {id(gpu): slow for gpu, slow in found}
    gpus = [gpu for gpu, _ in found]
    traffic = [slow.traffic for _, slow in found]
    quiet = all(value is not None and value < limits.traffic for value in traffic)
    facts = {"gpus": names(context, gpus), "lost": max(slow.lost for _, slow in found), "count": len(gpus)}
    explanation = [Phrase(f"findings.{KIND}.explanation", facts)]
    for gpu in worst_first([(gpu, slow.lost) for gpu, slow in found]):
        explanation += _described(context, gpu, by_gpu[id(gpu)])
    if quiet:
        explanation.append(Phrase(f"findings.{KIND}.quiet"))
    yield Finding(
        kind=KIND,
        severity="info" if quiet else "warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, "look", "reseat", "bios"),
        gpus=tuple(sorted(map(ref, gpus))),
    )


def _described(context: Context, gpu: GpuTelemetry, slow: Link) -> list[Phrase]:
    facts = {
        "gpus": names(context, [gpu]),
        "generation": slow.generation,
        "most_generation": slow.generation_max,
        "width": slow.width,
        "most_width": slow.width_max,
        "traffic": slow.traffic,
        "replays": slow.replays,
    }
    phrases = []
    if slow.width and slow.width_max and slow.width < slow.width_max:
        phrases.append(Phrase(f"findings.{KIND}.width", facts))
    if slow.generation and slow.generation_max and slow.generation < slow.generation_max:
        phrases.append(Phrase(f"findings.{KIND}.generation", facts))
    if slow.traffic is not None:
        phrases.append(Phrase(f"findings.{KIND}.traffic", facts))
    if slow.replays:
        phrases.append(Phrase(f"findings.{KIND}.replays", facts))
    return phrases


RULE = Rule(
    kind=KIND,
    order=340,
    about="telemetry",
    cost="none",
    reads=("telemetry",),
    thresholds=Limits(),
    metrics=("pcie_width", "pcie_generation"),
    check=check,
)
