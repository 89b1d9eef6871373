"""Ops that run on the CPU in the middle of a step, so that tensors are copied to the host and back.

Reads: bounces (`analysis.placement`): a copy to the host, a named op there, a copy back, in most steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.diagnosis.asking import ask
from tb_gpu_doctor.diagnosis.context import Context, HostProfile
from tb_gpu_doctor.diagnosis.copy_loss import CopyLoss
from tb_gpu_doctor.diagnosis.idle import cost_per_step, ranked_evidence
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
    loss = context.placed
    if loss is None:
        return
    ops = _ops(loss)
    steps = max(account.profile.analysis.steps.count for account in loss.accounts)
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
    count = sum(account.profile.analysis.steps.count for account in loss.accounts)
    for items in ask(_bounces, [(account.profile, account.accounting.device) for account in loss.accounts]):
        for name, time, step in items:
            spent.setdefault(name, []).append(time)
            steps.setdefault(name, set()).add(step)
    ops = [_Op(name, len(t) / max(count, 1), float(np.median(t)), len(steps[name])) for name, t in spent.items()]
    return sorted(ops, key=lambda op: -op.times_per_step * op.typical)


def _bounces(profile: HostProfile, device: int) -> list[tuple[str, int, int]]:
    """The bounces of one GPU: the op on the CPU, the time there, the step."""
    bounces, trace = profile.analysis.bounces, profile.trace
    if bounces is None:
        return []
    rows = np.flatnonzero(bounces.device == device)
    names = [trace.strings[i] for i in trace.host_events.name[bounces.op[rows]].tolist()]
    return list(zip(names, bounces.op_time[rows].tolist(), bounces.step[rows].tolist(), strict=True))


def _evidence(context: Context, loss: CopyLoss) -> tuple[Evidence, ...]:
    """The longest bounces: the worst of every GPU first, then the worst of all."""
    most = context.thresholds.max_evidence
    calls = [(account.profile, account.accounting.device, most) for account in loss.accounts]
    return ranked_evidence(ask(_longest, calls), most)


def _longest(profile: HostProfile, device: int, most: int) -> list[tuple[int, Evidence]]:
    """The longest bounces of one GPU."""
    bounces, events, host = profile.analysis.bounces, profile.trace.device_events, profile.trace.host_events
    if bounces is None:
        return []
    rows = np.flatnonzero(bounces.device == device)
    length = events.end[bounces.up[rows]] - events.start[bounces.down[rows]]
    found = []
    for at in np.argsort(-length, kind="stable")[:most].tolist():
        row = int(rows[at])
        op = int(bounces.op[row])
        evidence = Evidence(
            host=profile.label,
            gpu=profile.ref(device).id,
            start=int(events.start[bounces.down[row]]),
            end=int(events.end[bounces.up[row]]),
            thread=profile.trace.threads[int(host.thread[op])].name,
            step=profile.step_number(int(bounces.down[row])),
            what=profile.trace.strings[int(host.name[op])],
        )
        found.append((int(length[at]), evidence))
    return found


RULE = Rule(
    kind=KIND,
    order=140,
    about="run",
    cost="lost",
    reads=("idle_causes", "copies", "host_events", "steps"),
    needs=("host_events",),
    thresholds=Limits(),
    inflated_by_profiler=True,
    check=check,
)
