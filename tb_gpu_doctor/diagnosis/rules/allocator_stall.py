"""GPUs that wait while the host allocates and frees GPU memory through the driver inside steps.

Reads: idle time charged to ``allocator``, the calls behind it, and the steps that were stopped. A caching allocator
asks the driver only while it warms up; later calls mean that it is off, that memory is fragmented, or that somebody
emptied it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.losses import cost_per_step, gap_evidence
from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.stalls import find_stall
from tb_gpu_doctor.phrase import Phrase

KIND = "allocator_stall"


@dataclass(frozen=True)
class Limits:
    """Idle inside the driver's allocator, of a GPU's window: in steady state there is none."""

    warning: float = 0.03
    critical: float = 0.15


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs above the threshold."""
    limits: Limits = context.thresholds.of(KIND)
    stall = find_stall(context, Cause.ALLOCATOR, limits.warning)
    if stall is None:
        return
    loss, facts, key = stall.loss, stall.facts, f"findings.{KIND}"
    yield Finding(
        kind=KIND,
        severity="critical" if loss.share >= limits.critical else "warning",
        title=Phrase(f"{key}.title", facts),
        explanation=(
            Phrase(f"{key}.explanation", facts),
            Phrase(f"{key}.{'stops' if stall.stops.steps is None else 'stops_in_steps'}", facts),
            Phrase(f"{key}.held_up_by", facts),
            *cost_per_step(context, loss),
        ),
        advice=context.advice(
            KIND,
            "expandable@pytorch",
            "async@tensorflow",
            "preallocate@jax",
            "caching_on@pytorch",
            "no_empty_cache@pytorch",
            "no_empty_cache@tensorflow",
            "less_memory",
        ),
        gpus=loss.refs,
        share=loss.share,
        saving_ps_per_step=loss.saving,
        evidence=gap_evidence(context, loss.gpus, Cause.ALLOCATOR),
    )


RULE = Rule(
    kind=KIND,
    order=155,
    about="run",
    cost="lost",
    reads=("idle_causes", "host_events", "steps"),
    needs=("host_events",),
    thresholds=Limits(),
    idle_cause=Cause.ALLOCATOR,
    check=check,
)
