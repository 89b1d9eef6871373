"""GPUs that wait while a function is traced or compiled again during training.

Reads: idle time charged to ``compile``, the names around those events, and the steps that were stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.asking import ask
from tb_gpu_doctor.diagnosis.context import Context, GpuAccount, HostProfile
from tb_gpu_doctor.diagnosis.idle import cost_per_step, costliest_events, gap_evidence
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.stops import find_stall

KIND = "compile_stall"
# Gaps whose surroundings are read for the function's name, the costliest first.
_MAX_READ = 200


@dataclass(frozen=True)
class Limits:
    """Idle while something is compiled or traced, of a GPU's window: in steady state there is none."""

    warning: float = 0.02
    critical: float = 0.10


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs above the threshold."""
    limits: Limits = context.thresholds.of(KIND)
    stall = find_stall(context, Cause.COMPILE, limits.warning)
    if stall is None:
        return
    loss, stops = stall.loss, stall.stops
    function = _function(loss.accounts)
    facts = {**stall.facts, "function": function}
    key = f"findings.{KIND}"
    how_often = "first_only" if stops.only_first else "stops" if stops.steps is None else "stops_in_steps"
    explanation = [Phrase(f"{key}.explanation", facts), Phrase(f"{key}.{how_often}", facts)]
    explanation.append(Phrase(f"{key}.held_up_by", facts))
    if function is not None:
        explanation.append(Phrase(f"{key}.function", facts))
    # Compiling before the first step is no fault of the run; that it was recorded spoils the numbers.
    critical = loss.share >= limits.critical and not stops.only_first
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
        gpus=stall.gpus,
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
    for event, charge in costliest_events(profile, device, Cause.COMPILE, _MAX_READ):
        name = profile.calls.compiled_function(event)
        if name is not None:
            found[name] = found.get(name, 0) + charge
    return found


RULE = Rule(
    kind=KIND,
    order=160,
    about="run",
    cost="lost",
    reads=("idle_causes", "host_events", "steps"),
    needs=("host_events",),
    thresholds=Limits(),
    idle_cause=Cause.COMPILE,
    check=check,
)
