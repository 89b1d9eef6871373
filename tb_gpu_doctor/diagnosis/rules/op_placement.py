"""Ops that run on the CPU in the middle of a step, so that tensors are copied to the host and back.

Reads: bounces (`analysis.placement`): a copy to the host, a named op there, a copy back, in most steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from tb_gpu_doctor.diagnosis.context import Context, evidence_at
from tb_gpu_doctor.diagnosis.losses import CopyLoss, cost_per_step, placement_loss, ranked
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "op_placement"
_MAX_NAMES = 4


@dataclass(frozen=True)
class Limits:
    """Idle for ops on the CPU between GPU ops, their copies included, of a GPU's window."""

    warning: float = 0.03
    critical: float = 0.15


@dataclass(frozen=True)
class _Op:
    """One op over all GPUs: how often per step and GPU it bounces, how long it runs, in how many of the steps."""

    name: str
    times_per_step: float
    typical: float
    steps: int


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs above the threshold."""
    limits: Limits = context.thresholds.of(KIND)
    loss = placement_loss(context)
    if loss is None:
        return
    ops = _ops(loss)
    steps = max(gpu.file.steps.count for gpu in loss.gpus)
    facts = {
        "gpus": context.names(loss.refs),
        "share": loss.share,
        "exposed": loss.exposed,
        "waited": loss.waited,
        "ops": tuple(op.name for op in ops[:_MAX_NAMES]),
        "more": len(ops) - _MAX_NAMES,
    }
    worst = {"name": ops[0].name, "time": ops[0].typical, "steps": ops[0].steps, "of": steps}
    yield Finding(
        kind=KIND,
        severity="critical" if loss.share >= limits.critical else "warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(
            Phrase(f"findings.{KIND}.{'explanation_more' if len(ops) > _MAX_NAMES else 'explanation'}", facts),
            Phrase(f"findings.{KIND}.worst", worst),
            *cost_per_step(context, loss),
        ),
        advice=context.advice(KIND, "see@", "move@", "replace@", "soft_placement@tensorflow"),
        gpus=tuple(sorted(loss.refs)),
        share=loss.share,
        saving_ps_per_step=loss.saving,
        evidence=_evidence(context, loss),
    )


def _ops(loss: CopyLoss) -> list[_Op]:
    """The ops on the CPU, those with the most time first."""
    spent: dict[str, list[int]] = {}
    steps: dict[str, set[int]] = {}
    count = sum(gpu.file.steps.count for gpu in loss.gpus)
    for gpu in loss.gpus:
        for op in gpu.facts.bounces.ops if gpu.facts.bounces is not None else ():
            spent.setdefault(op.name, []).extend(op.times)
            steps.setdefault(op.name, set()).update(op.steps)
    ops = [_Op(name, len(t) / max(count, 1), float(median(t)), len(steps[name])) for name, t in spent.items()]
    return sorted(ops, key=lambda op: -op.times_per_step * op.typical)


def _evidence(context: Context, loss: CopyLoss) -> tuple[Evidence, ...]:
    """The longest bounces: the worst of every GPU first, then the worst of all."""
    most = context.thresholds.max_evidence
    found = []
    for gpu in loss.gpus:
        places = gpu.facts.bounces.worst if gpu.facts.bounces is not None else ()
        found.append([(place.end - place.start, evidence_at(gpu.file, gpu.index, place)) for place in places])
    return ranked(found, most)


RULE = Rule(
    kind=KIND,
    order=140,
    about="run",
    cost="lost",
    reads=("idle_causes", "copies", "host_events", "steps"),
    needs=("host_events",),
    thresholds=Limits(),
    inflated_by_profiler=True,
    tells=("transfer", "sync", "host_other", "launch"),
    check=check,
)
