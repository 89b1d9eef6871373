"""GPUs that wait while a function is traced or compiled again during training.

Reads: idle time charged to ``compile``, the names around those events, and the steps that were stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tb_gpu_doctor.analysis.host_names import is_loading
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.context import Context, WorkingGpu, ref
from tb_gpu_doctor.diagnosis.losses import cost_per_step, gap_evidence, unclaimed_idle
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.stalls import find_stall

KIND = "compile_stall"
_COMPILING = ("same_shapes@", "no_python_values@", "show_reasons@", "cache@jax")
_LOADING = ("load_early",)


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
        yield from _at_the_start(context, limits)
        return
    loss, stops = stall.loss, stall.stops
    function = _function(context, loss.gpus)
    facts = {**stall.facts, "function": function}
    key = f"findings.{KIND}"
    how_often = "first_only" if stops.only_first else "stops" if stops.steps is None else "stops_in_steps"
    loading = is_loading(stall.name)
    explanation = [
        Phrase(f"{key}.{'explanation_loading' if loading else 'explanation'}", facts),
        Phrase(f"{key}.{how_often}", facts),
        Phrase(f"{key}.held_up_by", facts),
    ]
    if function is not None and not loading:
        explanation.append(Phrase(f"{key}.function", facts))
    # What happens once, before the first step or where code is first used, is no fault of the run; that it was
    # recorded spoils the numbers.
    once = loading or stops.only_first
    critical = loss.share >= limits.critical and not once
    yield Finding(
        kind=KIND,
        severity="critical" if critical else "warning",
        title=Phrase(f"{key}.{'title_loading' if loading else 'title'}", facts),
        explanation=(*explanation, *(() if loading else cost_per_step(context, loss))),
        advice=context.advice(KIND, *(("warm_up",) if once else ()), *(_LOADING if loading else _COMPILING)),
        gpus=loss.refs,
        cause="loading" if loading else None,
        share=loss.share,
        saving_ps_per_step=None if loading else loss.saving,
        evidence=gap_evidence(context, loss.gpus, Cause.COMPILE),
    )


def _at_the_start(context: Context, limits: Limits) -> Iterator[Finding]:
    """What is compiled in the start-up alone: no fault of the run, and no figure of it."""
    found = []
    for file in context.files:
        start, window = file.start_up, file.window
        delay = None if start is None else start.lost(Cause.COMPILE)
        if start is None or window is None or delay is None or not delay.name:
            continue
        if delay.lost >= limits.warning * (start.end - start.start + window.length):
            found.append((delay, start, file))
    if not found:
        return
    delay, start, worst = max(found, key=lambda item: item[0].lost)
    gpus = tuple(sorted(ref(file, start.device) for _, start, file in found))
    facts = {"gpus": context.names(gpus), "lost": delay.lost, "name": delay.name, "thread": delay.thread}
    facts |= {"numbers": start.numbers, "count": len(start.numbers)}
    key = f"findings.{KIND}"
    yield Finding(
        kind=KIND,
        severity="warning",
        title=Phrase(f"{key}.title_once", facts),
        explanation=(Phrase(f"{key}.once", facts), Phrase(f"{key}.held_up_by", facts)),
        advice=context.advice(KIND, "warm_up", "cache@jax"),
        gpus=gpus,
        evidence=(
            Evidence(
                worst.label,
                ref(worst, start.device).id,
                start.start,
                start.end,
                delay.thread,
                start.numbers[0],
                delay.name,
            ),
        ),
    )


def _function(context: Context, gpus: Sequence[WorkingGpu]) -> str | None:
    """The function that most of the time is spent on; None where no name tells."""
    found: dict[str, int] = {}
    for gpu in gpus:
        idle = unclaimed_idle(context, gpu)
        for name, spent in idle.functions if idle is not None else ():
            found[name] = found.get(name, 0) + spent
    return max(found, key=found.__getitem__) if found else None


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
