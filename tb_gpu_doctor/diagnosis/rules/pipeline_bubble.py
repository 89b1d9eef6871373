"""Pipelines whose stages wait for the next microbatch, though none is slower than its share.

Reads: sends and receives of stages of which all are here. The stage that waits least has nobody slower to wait for;
what it waits is how the pipeline fills and drains, and all stages wait as long. A pipeline with four microbatches
per stage still waits a little: only what exceeds that is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from tb_gpu_doctor.analysis.pipelines import Pipeline
from tb_gpu_doctor.diagnosis.context import Context, evidence_at, ref
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "pipeline_bubble"


@dataclass(frozen=True)
class Limits:
    """What more microbatches would save, of the step, and how many per stage make a bubble small."""

    warning: float = 0.10
    critical: float = 0.40
    microbatches_per_stage: int = 4


def check(context: Context) -> Iterator[Finding]:
    """One finding over all pipelines of the job."""
    limits: Limits = context.thresholds.of(KIND)
    found = [pipeline for pipeline in context.pipelines if _lost(pipeline, limits) >= limits.warning]
    if not found:
        return
    share = fmean(_lost(pipeline, limits) for pipeline in found)
    worst = max(found, key=lambda pipeline: pipeline.bubble)
    stages = [stage for pipeline in found for stage in pipeline.stages]
    gpus = tuple(sorted(ref(context.files[stage.which], stage.device) for stage in stages))
    count = len(worst.stages)
    facts = {
        "gpus": context.names(gpus),
        "share": fmean(pipeline.bubble for pipeline in found),
        "stages": count,
        "gain": share,
        "enough": limits.microbatches_per_stage * count,
    }
    explanation = [Phrase(f"findings.{KIND}.explanation", facts)]
    if worst.microbatches is not None:
        explanation.append(Phrase(f"findings.{KIND}.microbatches", {"count": worst.microbatches, "stages": count}))
    explanation.append(Phrase(f"findings.{KIND}.gain", facts))
    steps = [factor * file.window.length for file in context.files if file.window and (factor := file.per_step)]
    yield Finding(
        kind=KIND,
        severity="critical" if share >= limits.critical else "warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, "more_microbatches", "interleave", "fewer_stages"),
        gpus=gpus,
        share=share,
        saving_ps_per_step=share * fmean(steps) if steps else None,
        evidence=_evidence(context, worst),
    )


def _lost(pipeline: Pipeline, limits: Limits) -> float:
    """By what part a step gets shorter with microbatches enough: each stage then waits a small part of its work."""
    busy, stages = 1 - pipeline.bubble, len(pipeline.stages)
    still = busy * (stages - 1) / (limits.microbatches_per_stage * stages)
    return pipeline.bubble - still


def _evidence(context: Context, pipeline: Pipeline) -> tuple[Evidence, ...]:
    """The longest wait of each stage."""
    items = []
    for stage in pipeline.stages:
        file = context.files[stage.which]
        exposed = file.gpus[stage.device].exposed
        if exposed is not None:
            items += [evidence_at(file, stage.device, place) for place in exposed.longest[:1]]
    return tuple(items[: context.thresholds.max_evidence])


RULE = Rule(
    kind=KIND,
    order=195,
    about="run",
    cost="lost",
    reads=("collectives", "steps"),
    thresholds=Limits(),
    tells=("communication",),
    check=check,
)
