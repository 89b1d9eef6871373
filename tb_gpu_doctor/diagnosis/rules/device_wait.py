"""GPUs that stand idle although work has been launched to them.

Reads: idle time charged to ``queued`` (nothing in the profile held the work up: another process may have the GPU), to
``kernel_gap`` (the GPU's own pause before a kernel that was already queued) and to ``dependency`` (the handover from
another stream).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.losses import IdleLoss, cost_per_step, gap_evidence, idle_loss
from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.stalls import find_stops
from tb_gpu_doctor.phrase import Phrase

KIND = "device_wait"
_CAUSES = (Cause.QUEUED, Cause.KERNEL_GAP, Cause.DEPENDENCY)
_ADVICE = {
    Cause.QUEUED: ("who_else", "monitor", "mps"),
    Cause.KERNEL_GAP: ("graphs@", "fuse@", "batch"),
    Cause.DEPENDENCY: ("fewer_streams", "graphs@"),
}


@dataclass(frozen=True)
class Limits:
    """Idle with launched work, of a GPU's window."""

    # Launched work starts within microseconds unless something holds it up.
    queued: float = 0.05
    # Every GPU pauses for a microsecond or two between kernels; with short ones a few percent are usual.
    pauses: float = 0.10
    critical: float = 0.25


def check(context: Context) -> Iterator[Finding]:
    """One finding, told by the cause that most of the time is charged to."""
    limits: Limits = context.thresholds.of(KIND)
    stuck = idle_loss(context, (Cause.QUEUED,), limits.queued)
    loss = idle_loss(context, _CAUSES, limits.pauses) or stuck
    if loss is None:
        return
    cause = max(loss.shares, key=loss.shares.__getitem__)
    facts = {"gpus": context.names(loss.refs), "share": loss.share, "gaps": loss.gaps, "gap": loss.typical_gap}
    key = f"findings.{KIND}"
    explanation = [Phrase(f"{key}.{cause.id}", {**facts, "share": loss.shares[cause]})]
    explanation += _stops(context, loss, cause)
    yield Finding(
        kind=KIND,
        severity="critical" if loss.share >= limits.critical else "warning",
        title=Phrase(f"{key}.title", facts),
        explanation=(*explanation, *cost_per_step(context, loss)),
        advice=context.advice(KIND, *_ADVICE[cause]),
        gpus=loss.refs,
        cause=cause.id,
        share=loss.share,
        saving_ps_per_step=loss.saving,
        evidence=gap_evidence(context, loss.gpus, cause),
    )


def _stops(context: Context, loss: IdleLoss, cause: Cause) -> Iterator[Phrase]:
    """In how many steps launched work did not start; pauses between kernels are in all of them."""
    if cause is not Cause.QUEUED:
        return
    stops = find_stops(context, loss.gpus, cause)
    if stops.steps is not None:
        facts = {"count": stops.count, "steps": stops.steps, "numbers": stops.numbers, "longest": stops.longest}
        yield Phrase(f"findings.{KIND}.stops_in_steps", facts)


RULE = Rule(
    kind=KIND,
    order=128,
    about="run",
    cost="lost",
    reads=("idle_causes", "launches", "steps"),
    needs=("launches",),
    thresholds=Limits(),
    idle_cause=Cause.QUEUED,
    tells=("dependency", "kernel_gap", "queued"),
    check=check,
)
