"""GPUs that run dry because the host waited for them and only then prepared more work.

Reads: idle time charged to ``sync``, the recorded wait before each gap and what the host did after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.losses import IdleLoss, cost_per_step, idle_loss
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.stalls import WaitSummary, find_stops, summarise_waits, wait_evidence

KIND = "sync_stall"
# From so many waits per step on their number is worth saying.
_OFTEN = 1.5

# What the recorded names say about how the wait came about; the first match decides what to try first.
_OP = re.compile(r"^[\w./\-]+:\w+$|^aten::(?:nonzero|masked_select|_?unique|index|repeat_interleave)")
_BLOCK = re.compile(
    r"block_until_ready|try_to_block|BlockHostUntil|BlockUntilReady|AwaitReady"
    r"|^(?:cuda|hip)DeviceSynchronize|^torch/cuda/.*: synchronize$"
)
_VALUE = re.compile(
    r" (?:numpy|item|__float__|__int__|__bool__|__array__|__index__|tolist)$|TensorHandle|ToLiteral"
    r"|CopyRawToHost|DtoH|np_array"
    r"|^aten::(?:item|_local_scalar_dense|is_nonzero|_?to(?:_copy)?)$|^<built-in \w+ (?:item|tolist|cpu|numpy)\b"
)


@dataclass(frozen=True)
class Limits:
    """Idle because the host waited for the GPU and then had to start anew, of a GPU's window."""

    warning: float = 0.05
    critical: float = 0.15
    # One value read at the end is no habit; and this part of the loss must follow a recorded wait.
    min_gaps: int = 3
    min_located: float = 0.50


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs above the threshold whose waits were recorded."""
    limits: Limits = context.thresholds.of(KIND)
    loss = idle_loss(context, Cause.SYNC, limits.warning, limits.min_gaps)
    if loss is None:
        return
    summary = summarise_waits(context, loss.gpus)
    if summary is None or summary.located < limits.min_located:
        return
    gpus = loss.refs
    facts = {"gpus": context.names(gpus), "share": loss.share, "gaps": loss.gaps, "gap": loss.typical_gap}
    yield Finding(
        kind=KIND,
        severity="critical" if loss.share >= limits.critical else "warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(
            Phrase(f"findings.{KIND}.explanation", facts),
            *_names(summary),
            *_how_often(context, loss),
            *cost_per_step(context, loss),
        ),
        advice=context.advice(KIND, *_advice(summary)),
        gpus=gpus,
        share=loss.share,
        saving_ps_per_step=loss.saving,
        evidence=wait_evidence(context, loss.gpus),
    )


def _names(summary: WaitSummary) -> Iterator[Phrase]:
    """The wait, who asked for it, and what the host did next."""
    facts = {"name": summary.name, "thread": summary.thread}
    yield Phrase(f"findings.{KIND}.waits_in", facts)
    if summary.caller is not None:
        yield Phrase(f"findings.{KIND}.called_by", {"name": summary.caller})
    if summary.frame is not None:
        yield Phrase(f"findings.{KIND}.in_your_code", {"name": summary.frame})
    if summary.work is not None:
        yield Phrase(f"findings.{KIND}.then", {"name": summary.work})


def _how_often(context: Context, loss: IdleLoss) -> Iterator[Phrase]:
    """How many steps are held up, or how often each."""
    stops = find_stops(context, loss.gpus, Cause.SYNC)
    if stops.steps is None:
        return
    times = loss.gaps / stops.steps
    if times >= _OFTEN:
        yield Phrase(f"findings.{KIND}.times_per_step", {"times": times})
    else:
        yield Phrase(f"findings.{KIND}.in_steps", {"count": stops.count, "steps": stops.steps})


def _advice(summary: WaitSummary) -> tuple[str, ...]:
    names = [name for name in (summary.name, summary.caller) if name is not None]
    if any(_VALUE.search(name) for name in names):
        return ("read_rarely@", "keep_on_device@", "move_work@")
    if any(_BLOCK.search(name) for name in names):
        return ("block_rarely@", "read_rarely@", "move_work@")
    if any(_OP.match(name) for name in names):
        return ("static_shapes@", "read_rarely@")
    return ("read_rarely@", "find_caller@", "move_work@")


RULE = Rule(
    kind=KIND,
    order=120,
    about="run",
    cost="lost",
    reads=("idle_causes", "host_events", "steps"),
    needs=("host_events",),
    thresholds=Limits(),
    idle_cause=Cause.SYNC,
    inflated_by_profiler=True,
    check=check,
)
