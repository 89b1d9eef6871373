"""Kernels of several streams that never overlap: an old way of tracing makes the GPU run one kernel at a time.

Reads: kernels launched in time to run beside another stream's kernel that did not (`analysis.stream_overlap`).
A finding about the profile: without the profiler the run may well be faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.analysis.facts import SerializedFacts
from tb_gpu_doctor.diagnosis.context import Context, Gpu
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "serialized_kernels"


@dataclass(frozen=True)
class Limits:
    """Streams whose kernels never overlap."""

    # How many kernels must have waited for another stream's, on how many streams at least; or how many of those
    # that waited must have been launched before it.
    handovers: int = 20
    streams: int = 3
    reversed: int = 5


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs whose streams take turns."""
    limits: Limits = context.thresholds.of(KIND)
    found = [
        (Gpu(file, which, index), overlap)
        for which, file in enumerate(context.files)
        for index, gpu in enumerate(file.gpus)
        if (overlap := gpu.serialized) is not None and _proven(overlap, limits)
    ]
    if not found:
        return
    gpus = tuple(sorted(gpu.ref for gpu, _ in found))
    most = max((overlap for _, overlap in found), key=lambda overlap: overlap.handovers)
    facts = {"gpus": context.names(gpus), "streams": most.streams, "count": most.handovers}
    yield Finding(
        kind=KIND,
        severity="warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(Phrase(f"findings.{KIND}.explanation", facts), Phrase(f"findings.{KIND}.doubtful")),
        advice=context.advice(KIND, "newer", "activity", "compare"),
        gpus=gpus,
        evidence=tuple(_evidence(gpu, overlap) for gpu, overlap in found[: context.thresholds.max_evidence]),
    )


def _proven(overlap: SerializedFacts, limits: Limits) -> bool:
    """Two streams in turn may depend on each other; three, or kernels that overtake, need not."""
    if overlap.reversed >= limits.reversed:
        return True
    return overlap.streams >= limits.streams and overlap.handovers >= limits.handovers


def _evidence(gpu: Gpu, overlap: SerializedFacts) -> Evidence:
    """The longest wait of a kernel for one of another stream."""
    waiting, running = overlap.waiting, overlap.running
    return Evidence(
        host=gpu.ref.host,
        gpu=gpu.ref.id,
        start=running.start,
        end=waiting.end,
        thread=None,
        step=waiting.step,
        what=Phrase(
            f"findings.{KIND}.waited",
            {
                "name": waiting.what,
                "stream": overlap.waiting_stream,
                "other": running.what,
                "other_stream": overlap.running_stream,
            },
        ),
    )


RULE = Rule(
    kind=KIND,
    order=450,
    about="profile",
    cost="none",
    reads=("streams",),
    thresholds=Limits(),
    proves_no_health=True,
    distorts="longer",
    check=check,
)
