"""GPUs that wait for work of the host's own: user code, logging, locks, garbage collection.

Reads: idle time charged to ``host_other``, the events that fill it (the innermost that says something), and the steps
that were held up. Input, launching, waiting, compiling, saving and allocating have rules of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.analysis.standstill import Standstills
from tb_gpu_doctor.diagnosis.context import Context, WorkingGpu
from tb_gpu_doctor.diagnosis.losses import cost_per_step, events_behind, gap_evidence, idle_loss
from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.stalls import find_stops
from tb_gpu_doctor.phrase import Phrase

KIND = "host_bound"
# Python's garbage collector, as tracers and people's own ranges name it.
_GARBAGE = re.compile(
    r"\bgc\b\W{0,3}(?:collect|gen)|\bgc_collect|garbage|^gc$|<built-in (?:method|function) collect\b", re.I
)
# Work on data, which belongs into the input pipeline.
_DATA = re.compile(
    r"(?<![a-z])(?:pre_?process|normali[sz]e|resize|crop|augment|tokeni[sz]e|collate|decode|image_process|transform|load|"
    r"read|open|stack|pad)",
    re.I,
)
_MAX_OTHERS = 3
# The part of the loss in which the process stood still, from which on that is what is told.
_MOSTLY = 0.5


@dataclass(frozen=True)
class Limits:
    """Idle while the host does other work, of a GPU's window."""

    warning: float = 0.05
    critical: float = 0.15


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs above the threshold whose gaps name what the host did."""
    limits: Limits = context.thresholds.of(KIND)
    loss = idle_loss(context, Cause.HOST_OTHER, limits.warning)
    if loss is None:
        return
    behind = events_behind(context, loss.gpus, Cause.HOST_OTHER)
    if not behind:
        return
    name, thread = behind[0]
    garbage = bool(_GARBAGE.search(name))
    frozen = _standstill(context, loss.gpus)
    stops = find_stops(context, loss.gpus, Cause.HOST_OTHER)
    facts = {
        "gpus": context.names(loss.refs),
        "share": loss.share,
        "gap": loss.typical_gap,
        "name": name,
        "thread": thread,
        "count": stops.count,
        "steps": stops.steps,
        "numbers": stops.numbers,
        "typical": stops.typical,
        "longest": stops.longest,
        "every": stops.every,
    }
    key = f"findings.{KIND}"
    explanation = [
        Phrase(f"{key}.{'explanation_gc' if garbage else 'explanation'}", facts),
        Phrase(f"{key}.named", facts),
    ]
    if frozen is not None:
        told = {
            "count": frozen.count, "typical": frozen.typical, "longest": frozen.longest, "threads": frozen.threads,
            "name": frozen.name, "usual": frozen.usual,
        }  # fmt: skip
        explanation = [Phrase(f"{key}.explanation_frozen", facts), Phrase(f"{key}.frozen", told)]
        behind = behind[:1]
    others = tuple(other for other, _ in behind[1 : 1 + _MAX_OTHERS])
    if others:
        explanation.append(Phrase(f"{key}.others", {"names": others}))
    if stops.steps is not None:
        explanation.append(Phrase(f"{key}.stops_in_steps", facts))
        if stops.every is not None and stops.every > 1:
            explanation.append(Phrase(f"{key}.every", facts))
    cause = "own_code"
    advice: tuple[str, ...] = ("overlap@", "rarely")
    if frozen is not None:
        cause, advice = "frozen", ("cpu_limit", "swapping", "stopped")
    elif garbage:
        cause, advice = "garbage_collection", ("freeze_gc", "fewer_objects")
    elif _DATA.search(name):
        advice = ("into_input@", "overlap@", "rarely")
    yield Finding(
        kind=KIND,
        severity="critical" if loss.share >= limits.critical else "warning",
        title=Phrase(f"{key}.title", facts),
        explanation=(*explanation, *cost_per_step(context, loss)),
        advice=context.advice(KIND, *advice),
        gpus=loss.refs,
        cause=cause,
        share=loss.share,
        saving_ps_per_step=loss.saving,
        evidence=gap_evidence(context, loss.gpus, Cause.HOST_OTHER),
    )


def _standstill(context: Context, gpus: Sequence[WorkingGpu]) -> Standstills | None:
    """What is told of the stretches in which the process stood still, where they make up most of the loss."""
    frozen, lost, most = 0, 0, None
    for gpu in gpus:
        found = gpu.file.standstills
        lost += round(gpu.account.idle_of(Cause.HOST_OTHER))
        if found is not None:
            frozen += found.idle[gpu.index]
            most = found if most is None or found.count > most.count else most
    return most if frozen >= _MOSTLY * lost else None


RULE = Rule(
    kind=KIND,
    order=125,
    about="run",
    cost="lost",
    reads=("idle_causes", "host_events", "steps"),
    needs=("host_events",),
    thresholds=Limits(),
    idle_cause=Cause.HOST_OTHER,
    inflated_by_profiler=True,
    check=check,
)
