"""GPUs that wait while a function is traced or compiled again during training.

Reads: idle time charged to ``compile``, the names around those events, and the steps that were stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.diagnosis.asking import ask
from tb_gpu_doctor.diagnosis.context import Context, GpuAccount, HostProfile
from tb_gpu_doctor.diagnosis.idle import charged_gaps, cost_per_step, gap_evidence, idle_loss, worst_event
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.stops import find_stops

KIND = "compile_stall"
# Gaps whose surroundings are read for the function's name, the costliest first.
_MAX_READ = 200


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs above the threshold."""
    limits = context.thresholds
    loss = idle_loss(context, Cause.COMPILE, limits.compile_warning)
    if loss is None:
        return
    worst = worst_event(loss.accounts, Cause.COMPILE)
    if worst is None:
        return
    gpus = tuple(account.ref for account in loss.accounts)
    stops = find_stops(context, loss.accounts, Cause.COMPILE)
    function = _function(loss.accounts)
    facts = {
        "gpus": context.names(gpus),
        "share": loss.share,
        "count": stops.count,
        "steps": stops.steps,
        "numbers": stops.numbers,
        "typical": stops.typical,
        "longest": stops.longest,
        "function": function,
    }
    key = f"findings.{KIND}"
    how_often = "first_only" if stops.only_first else "stops" if stops.steps is None else "stops_in_steps"
    explanation = [Phrase(f"{key}.explanation", facts), Phrase(f"{key}.{how_often}", facts)]
    explanation.append(Phrase(f"{key}.held_up_by", {"name": worst[0], "thread": worst[1]}))
    if function is not None:
        explanation.append(Phrase(f"{key}.function", facts))
    # Compiling before the first step is no fault of the run; that it was recorded spoils the numbers.
    critical = loss.share >= limits.compile_critical and not stops.only_first
    yield Finding(
        kind=KIND,
        severity="critical" if critical else "warning",
        title=Phrase(f"{key}.title", facts),
        explanation=(*explanation, *cost_per_step(context, loss)),
        advice=context.advice(
            KIND,
            *(("warm_up",) if stops.only_first else ()),
            "same_shapes@",
            "no_python_values@",
            "show_reasons@",
            "cache@jax",
        ),
        gpus=gpus,
        share=loss.share,
        saving_ps_per_step=loss.saving,
        evidence=gap_evidence(context, loss.accounts, Cause.COMPILE),
    )


def _function(accounts: Sequence[GpuAccount]) -> str | None:
    """The function that most of the time is spent on; None where no name tells."""
    found: dict[str, int] = {}
    for functions in ask(_functions, [(account.profile, account.accounting.device) for account in accounts]):
        for name, spent in functions.items():
            found[name] = found.get(name, 0) + spent
    return max(found, key=found.__getitem__) if found else None


def _functions(profile: HostProfile, device: int) -> dict[str, int]:
    """Loss of one GPU by function."""
    found: dict[str, int] = {}
    gaps, calls = profile.analysis.gaps, profile.calls
    rows, charges = charged_gaps(profile, device, Cause.COMPILE)
    for index in np.argsort(-charges, kind="stable")[:_MAX_READ].tolist():
        event = int(gaps.evidence[rows[index]])
        if event < 0 or gaps.cause[rows[index]] != Cause.COMPILE:
            continue
        name = calls.compiled_function(event)
        if name is not None:
            found[name] = found.get(name, 0) + int(charges[index])
    return found
