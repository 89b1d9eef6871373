"""Idle time that nothing in the profile explains, and what to record so that the next one does.

Reads: idle time charged to ``no_evidence``, whether the host was recorded, and in which steps the pauses lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.context import Context, WorkingGpu
from tb_gpu_doctor.diagnosis.losses import cost_per_step, gap_evidence, idle_loss
from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.stalls import find_stops
from tb_gpu_doctor.phrase import Phrase

KIND = "unexplained_idle"
# In so many of the steps, it belongs to every step.
_EACH = 0.8
# A GPU that lacks so much of its work need not have stood idle: what is missing may have run then.
_LACKING = 0.05


@dataclass(frozen=True)
class Limits:
    """Idle without any reason in the profile, of a GPU's window; from here on a profile is no proof of health."""

    warning: float = 0.10


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs above the threshold."""
    limits: Limits = context.thresholds.of(KIND)
    loss = idle_loss(context, Cause.NO_EVIDENCE, limits.warning)
    if loss is None or all(_lacks_work(gpu) for gpu in loss.gpus):
        return
    key = f"findings.{KIND}"
    stops = find_stops(context, loss.gpus, Cause.NO_EVIDENCE)
    facts = {
        "gpus": context.names(loss.refs),
        "share": loss.share,
        "gap": loss.typical_gap,
        "count": stops.count,
        "steps": stops.steps,
        "numbers": stops.numbers,
        "typical": stops.typical,
        "longest": stops.longest,
        "every": stops.every,
    }
    explanation = [Phrase(f"{key}.explanation", facts)]
    if not any(gpu.file.has_host_events for gpu in loss.gpus):
        explanation.append(Phrase(f"{key}.host_missing"))
    if stops.steps is not None:
        explanation.append(Phrase(f"{key}.{'in_each' if stops.count >= _EACH * stops.steps else 'in_some'}", facts))
        if stops.every is not None and stops.every > 1:
            explanation.append(Phrase(f"{key}.every", facts))
    yield Finding(
        kind=KIND,
        severity="warning",
        title=Phrase(f"{key}.title", facts),
        explanation=(*explanation, *cost_per_step(context, loss)),
        advice=context.advice(KIND, "python@", "annotate@", "system"),
        gpus=loss.refs,
        share=loss.share,
        saving_ps_per_step=loss.saving,
        evidence=gap_evidence(context, loss.gpus, Cause.NO_EVIDENCE),
    )


def _lacks_work(gpu: WorkingGpu) -> bool:
    lost = gpu.file.lost
    found = [one for one in lost.gpus if one.device == gpu.index] if lost is not None else []
    return any(one.lost >= _LACKING * max(1, one.launches) for one in found)


RULE = Rule(
    kind=KIND,
    order=435,
    about="profile",
    cost="lost",
    reads=("idle_causes", "host_events", "steps"),
    thresholds=Limits(),
    proves_no_health=True,
    tells=("no_evidence",),
    check=check,
)
