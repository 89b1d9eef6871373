"""Input workers that take the processors which launching needs.

Reads: how long the same calls take beside many and beside few input workers, and idle time of the host's own
work (`launch`, `host_other`, `sync`). How many processors the host has, a profile does not say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.losses import ContentionLoss, contention_loss, cost_per_step
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "cpu_contention"


@dataclass(frozen=True)
class Limits:
    """Idle because launching slows down while input workers run, of a GPU's window."""

    warning: float = 0.05
    critical: float = 0.15
    # By how much the same calls must take longer beside many workers than beside few.
    slowdown: float = 2.0


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs above the threshold."""
    limits: Limits = context.thresholds.of(KIND)
    loss = contention_loss(context)
    if loss is None:
        return
    worst = max((measured for _, measured in loss.found), key=lambda measured: measured.lost)
    facts = {
        "gpus": context.names(loss.refs),
        "share": loss.share,
        "slowdown": worst.slowdown,
        "many": worst.many,
        "few": worst.few,
    }
    example = {
        "name": worst.name,
        "few": worst.typical_few,
        "many": worst.typical_many,
        "calls_few": worst.calls_few,
        "calls_many": worst.calls_many,
    }
    yield Finding(
        kind=KIND,
        severity="critical" if loss.share >= limits.critical else "warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(
            Phrase(f"findings.{KIND}.explanation", facts),
            Phrase(f"findings.{KIND}.example", example),
            Phrase(f"findings.{KIND}.workers", {"workers": worst.workers}),
            *cost_per_step(context, loss),
        ),
        advice=context.advice(KIND, "private_pool", "fewer_calls", "op_pools@tensorflow", "cores"),
        gpus=tuple(sorted(loss.refs)),
        share=loss.share,
        saving_ps_per_step=loss.saving,
        evidence=_evidence(loss),
    )


def _evidence(loss: ContentionLoss) -> tuple[Evidence, ...]:
    """The longest stretch with many workers, once for each GPU."""
    return tuple(
        Evidence(
            host=gpu.ref.host,
            gpu=gpu.ref.id,
            start=measured.start,
            end=measured.end,
            thread=measured.workers[0] if measured.workers else None,
            step=None,
            what=Phrase(f"findings.{KIND}.crowded", {"many": measured.many}),
        )
        for gpu, measured in loss.found
    )


RULE = Rule(
    kind=KIND,
    order=150,
    about="run",
    cost="lost",
    reads=("idle_causes", "host_events", "input_pipelines", "steps"),
    needs=("host_events",),
    thresholds=Limits(),
    inflated_by_profiler=True,
    tells=("launch", "host_other", "sync"),
    check=check,
)
