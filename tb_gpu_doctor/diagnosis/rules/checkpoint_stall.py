"""GPUs that wait while weights or summaries are saved.

Reads: idle time charged to ``checkpoint``, the steps that were stopped, and how long the host saved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.context import Context, WorkingGpu
from tb_gpu_doctor.diagnosis.losses import IdleLoss, cost_per_step, gap_evidence, unclaimed_idle
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.stalls import find_stall

KIND = "checkpoint_stall"
_SUMMARY = re.compile(r"summary|event_file_writer", re.I)


@dataclass(frozen=True)
class Limits:
    """Idle while weights or summaries are saved, of a GPU's window: now and then that must be."""

    warning: float = 0.03
    critical: float = 0.15


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs above the threshold."""
    limits: Limits = context.thresholds.of(KIND)
    stall = find_stall(context, Cause.CHECKPOINT, limits.warning)
    if stall is None:
        return
    loss, stops = _with_copies(stall.loss), stall.stops
    host = _host_time(context, loss.gpus)
    facts = {**stall.facts, "share": loss.share, "host": host}
    key = f"findings.{KIND}"
    explanation = [Phrase(f"{key}.explanation", facts)]
    explanation.append(Phrase(f"{key}.{'stops' if stops.steps is None else 'stops_in_steps'}", facts))
    if stops.every is not None and stops.every > 1:
        explanation.append(Phrase(f"{key}.every", facts))
    if host is not None and host >= stops.typical:  # else one save is many short events
        explanation.append(Phrase(f"{key}.host_time", facts))
    explanation.append(Phrase(f"{key}.held_up_by", facts))
    summaries = bool(_SUMMARY.search(stall.name))
    yield Finding(
        kind=KIND,
        severity="critical" if loss.share >= limits.critical else "warning",
        title=Phrase(f"{key}.title", facts),
        explanation=(*explanation, *cost_per_step(context, loss)),
        advice=context.advice(
            KIND, *(("fewer_summaries@",) if summaries else ("async@", "less_often@", "faster_disk"))
        ),
        gpus=loss.refs,
        share=loss.share,
        saving_ps_per_step=loss.saving,
        evidence=gap_evidence(context, loss.gpus, Cause.CHECKPOINT),
    )


def _with_copies(loss: IdleLoss) -> IdleLoss:
    """The loss together with the copies that bring the weights to the host, which the GPU does not stand idle for."""
    copies = [(gpu, saved) for gpu in loss.gpus if gpu.facts.copies and (saved := gpu.facts.copies.of_saves)]
    if not copies:
        return loss
    share = sum(saved.exposed / gpu.account.wall for gpu, saved in copies) / len(loss.gpus)
    per_step = sum(fmean(saved.by_step) for _, saved in copies if saved.by_step) / len(loss.gpus)
    return replace(
        loss,
        share=loss.share + share,
        per_step=None if loss.per_step is None else loss.per_step + per_step,
        saving=None if loss.saving is None else loss.saving + per_step,
    )


def _host_time(context: Context, gpus: Sequence[WorkingGpu]) -> float | None:
    """How long the host typically is busy with one of the saves behind the gaps, in picoseconds."""
    lasting: dict[tuple[int, int], int] = {}
    for gpu in gpus:
        idle = unclaimed_idle(context, gpu)
        lasting |= {(gpu.which, save): duration for save, duration in (idle.saves if idle is not None else ())}
    return float(median(lasting.values())) if lasting else None


RULE = Rule(
    kind=KIND,
    order=170,
    about="run",
    cost="lost",
    reads=("idle_causes", "host_events", "steps"),
    needs=("host_events",),
    thresholds=Limits(),
    idle_cause=Cause.CHECKPOINT,
    tells=("checkpoint", "transfer"),
    check=check,
)
