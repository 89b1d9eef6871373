"""GPUs that run out of work because the host cannot launch it fast enough.

Reads: idle time charged to ``launch``, how many launches there were and how short their work is, how far
ahead the host was, and where in the step it fell behind.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean, median

from tb_gpu_doctor.analysis.launches import LaunchQueue
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.losses import IdleLoss, cost_per_step, gap_evidence, idle_loss
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "launch_bound"
# From so many calls of Python per launch on, ops are handed over one by one.
_EAGER = 0.3
# A step of fewer calls than these is compiled: one function or graph, its copies and its counters.
_COMPILED_CALLS = 6
# Nothing waiting for this part of the time: the host is not ahead of the GPU.
_HARDLY_AHEAD = 0.4


@dataclass(frozen=True)
class Limits:
    """Waiting for the host to launch, of a GPU's window."""

    # xprof's own: 3 / 15 % of the step.
    warning: float = 0.03
    critical: float = 0.15
    # A launch-bound GPU waits again and again; a few pauses are another illness.
    min_gaps: int = 8
    # With half of the loss in fewer pauses than this, single calls are to blame, not a habit.
    spread_gaps: int = 5


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs above the threshold that wait again and again."""
    limits: Limits = context.thresholds.of(KIND)
    loss = idle_loss(context, Cause.LAUNCH, limits.warning, limits.min_gaps)
    if loss is None:
        return
    gpus = loss.refs
    facts = {"gpus": context.names(gpus), "share": loss.share}
    few = loss.half_gaps < limits.spread_gaps
    if few:
        pauses = {**facts, "half": round(loss.half_gaps), "longest": loss.longest_gap}
        explanation = Phrase(f"findings.{KIND}.explanation_few", pauses)
    else:
        explanation = Phrase(f"findings.{KIND}.explanation", {**facts, "gaps": loss.gaps, "gap": loss.typical_gap})
    yield Finding(
        kind=KIND,
        severity="critical" if loss.share >= limits.critical else "warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(
            explanation,
            *_launches(loss),
            *_pace(loss),
            *cost_per_step(context, loss),
        ),
        advice=context.advice(KIND, *(("warm_up",) if few else ()), *_advice(loss)),
        gpus=gpus,
        share=loss.share,
        saving_ps_per_step=loss.saving,
        evidence=gap_evidence(context, loss.gpus, Cause.LAUNCH),
    )


def _launches(loss: IdleLoss) -> Iterator[Phrase]:
    """How many launches, and how long their kernels run."""
    launches, kernels = [], []
    for gpu in loss.gpus:
        stats, per_step = gpu.facts.launches, gpu.file.per_step
        if stats is not None and stats.launches > 0:
            launches.append(stats.launches * per_step if per_step is not None else float(stats.launches))
            kernels.append(stats.median_kernel)
    if launches:
        per_step_known = all(gpu.file.per_step is not None for gpu in loss.gpus)
        yield Phrase(
            f"findings.{KIND}.{'launches_per_step' if per_step_known else 'launches'}",
            {"launches": fmean(launches), "kernel": float(median(kernels))},
        )


def _queues(loss: IdleLoss) -> list[LaunchQueue]:
    """The launch queues of the GPUs."""
    return [queue for gpu in loss.gpus if (queue := gpu.facts.queue) is not None]


def _pace(loss: IdleLoss) -> Iterator[Phrase]:
    """How fast the host launches and the GPU works off; what would follow from fewer or larger kernels."""
    queues = _queues(loss)
    wall = sum(gpu.account.wall for gpu in loss.gpus)
    kernels = sum(queue.kernels for queue in queues)
    if not kernels or not wall:
        return
    empty = sum(queue.empty for queue in queues) / wall
    if empty >= _HARDLY_AHEAD:
        depth, most = fmean(queue.mean_depth for queue in queues), max(q.max_depth for q in queues)
        yield Phrase(f"findings.{KIND}.queue", {"empty": empty, "depth": depth, "most": most})
    periods = [queue.period for queue in queues if queue.period is not None]
    mean = sum(queue.kernel_time for queue in queues) / kernels
    if periods and mean > 0 and median(periods) > mean:
        period = float(median(periods))
        call = float(median(queue.call for queue in queues))
        # Rounded up to what is shown: "1.0 times as much" would be no advice.
        factor = math.ceil(period / mean * 10) / 10
        facts = {"period": period, "call": min(call, period), "kernel": mean, "factor": factor}
        yield Phrase(f"findings.{KIND}.pace", facts)
    short = sum(queue.short_kernels for queue in queues)
    if short:
        time = sum(queue.short_time for queue in queues) / max(sum(queue.kernel_time for queue in queues), 1)
        yield Phrase(f"findings.{KIND}.short", {"short": short / kernels, "time": time})
    if _between_steps(queues):
        border = sum(queue.border_idle for queue in queues)
        inner = sum(queue.inner_idle for queue in queues)
        yield Phrase(f"findings.{KIND}.between_steps", {"border": border / (border + inner)})
    if _is_eager(loss):
        launches = sum(queue.launches for queue in queues)
        yield Phrase(f"findings.{KIND}.eager", {"calls": max(q.dispatches for q in queues), "launches": launches})


def _between_steps(queues: list[LaunchQueue]) -> bool:
    """Whether the host falls behind between the steps rather than inside them."""
    border = sum(queue.border_idle for queue in queues)
    return border > 0 and border >= sum(queue.inner_idle for queue in queues)


def _is_eager(loss: IdleLoss) -> bool:
    """Whether Python hands over the ops one by one: a compiled step takes a few calls for all its launches."""
    queues = _queues(loss)
    launches = sum(queue.launches for queue in queues)
    dispatches = max((queue.dispatches for queue in queues), default=0)
    steps = max((gpu.file.steps.count for gpu in loss.gpus), default=0)
    return dispatches >= _EAGER * launches > 0 and dispatches >= _COMPILED_CALLS * max(steps, 1)


def _advice(loss: IdleLoss) -> Iterator[str]:
    """What helps most first: whole steps where Python is in between, one compiled step where ops are single."""
    queues = _queues(loss)
    several = ("keras_steps@tensorflow", "scan@jax")
    if _is_eager(loss):
        yield "function@tensorflow"
    if _between_steps(queues):
        yield from several
    yield "compile@"
    if not _between_steps(queues):
        yield from several
    yield from ("graphs@", "batch", "no_sync@", "fuse_optimizer@jax", "fuse_optimizer@pytorch")


RULE = Rule(
    kind=KIND,
    order=110,
    about="run",
    cost="lost",
    reads=("idle_causes", "host_events", "launches", "steps"),
    needs=("host_events",),
    thresholds=Limits(),
    idle_cause=Cause.LAUNCH,
    inflated_by_profiler=True,
    check=check,
)
