"""GPUs that wait while weights or summaries are saved.

Reads: idle time charged to ``checkpoint``, the steps that were stopped, and how long the host saved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.host_names import Kind
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.asking import ask
from tb_gpu_doctor.diagnosis.context import Context, GpuAccount, HostProfile
from tb_gpu_doctor.diagnosis.idle import cost_per_step, costliest_events, gap_evidence
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.stops import find_stall

KIND = "checkpoint_stall"
_SUMMARY = re.compile(r"summary|event_file_writer", re.I)
_MAX_READ = 200


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
    loss, stops = stall.loss, stall.stops
    host = _host_time(loss.accounts)
    facts = {**stall.facts, "host": host}
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
        gpus=stall.gpus,
        share=loss.share,
        saving_ps_per_step=loss.saving,
        evidence=gap_evidence(context, loss.accounts, Cause.CHECKPOINT),
    )


def _host_time(accounts: Sequence[GpuAccount]) -> float | None:
    """How long the host typically is busy with one of the saves behind the gaps, in picoseconds."""
    lasting: dict[tuple[str, int], int] = {}
    answers = ask(_saves, [(account.profile, account.accounting.device) for account in accounts])
    for account, saves in zip(accounts, answers, strict=True):
        lasting |= {(account.profile.label, save): duration for save, duration in saves.items()}
    return float(np.median(list(lasting.values()))) if lasting else None


def _saves(profile: HostProfile, device: int) -> dict[int, int]:
    """The saves behind the gaps of one GPU: host row and duration."""
    found: dict[int, int] = {}
    for event, _ in costliest_events(profile, device, Cause.CHECKPOINT, _MAX_READ):
        save = profile.calls.outermost(event, Kind.CHECKPOINT)
        found[save] = int(profile.trace.host_events.duration[save])
    return found


RULE = Rule(
    kind=KIND,
    order=170,
    about="run",
    cost="lost",
    reads=("idle_causes", "host_events", "steps"),
    needs=("host_events",),
    thresholds=Limits(),
    idle_cause=Cause.CHECKPOINT,
    check=check,
)
