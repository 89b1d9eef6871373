"""GPUs that wait for input data.

Reads: idle time charged to ``input``, the input pipelines. Says: how much of the window, which host event
held it up, which stage of the pipeline sets the pace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.input_advice import advise, blamed_pipeline, describe
from tb_gpu_doctor.diagnosis.losses import cost_per_step, gap_evidence, idle_loss, worst_event
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "input_bound"


@dataclass(frozen=True)
class Limits:
    """Waiting for input, of a GPU's window."""

    # xprof's own: 5 / 20 % of the step.
    warning: float = 0.05
    critical: float = 0.20


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs above the threshold."""
    limits: Limits = context.thresholds.of(KIND)
    loss = idle_loss(context, Cause.INPUT, limits.warning)
    if loss is None:
        return
    gpus = loss.refs
    facts = {"gpus": context.names(gpus), "share": loss.share}
    explanation = [Phrase(f"findings.{KIND}.explanation", facts)]
    worst = worst_event(context, loss.gpus, Cause.INPUT)
    if worst is not None:
        explanation.append(Phrase(f"findings.{KIND}.held_up_by", {"name": worst[0], "thread": worst[1]}))
    blamed = blamed_pipeline(loss.gpus)
    advice: tuple[Phrase, ...] = ()
    if blamed is not None:
        explanation.extend(describe(blamed))
        advice = advise(blamed)
    if advice:  # by the stage that sets the pace
        advice += context.advice(KIND, "prefetch_jax") if context.framework == "jax" else ()
    elif context.framework == "pytorch":
        advice = context.advice(
            KIND, "workers_pytorch", "prefetch_pytorch", "cheaper_transforms_pytorch", "measure_pytorch"
        )
    elif context.uses_tf_data or context.framework == "tensorflow":
        advice = context.advice(KIND, "prefetch_tf_data", "parallel_map_tf_data", "cache_tf_data", "measure_tf_data")
    elif context.framework == "jax":
        advice = context.advice(KIND, "workers_jax", "prefetch_jax", "measure_jax")
    else:
        advice = context.advice(KIND, "prefetch_tf_data", "parallel_map_tf_data", "workers_jax", "prefetch_jax")
    yield Finding(
        kind=KIND,
        severity="critical" if loss.share >= limits.critical else "warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(*explanation, *cost_per_step(context, loss)),
        advice=(*advice, *context.advice(KIND, "fewer_bytes")),
        gpus=gpus,
        share=loss.share,
        saving_ps_per_step=loss.saving,
        evidence=gap_evidence(context, loss.gpus, Cause.INPUT),
    )


RULE = Rule(
    kind=KIND,
    order=100,
    about="run",
    cost="lost",
    reads=("idle_causes", "host_events", "input_pipelines", "steps"),
    needs=("host_events",),
    thresholds=Limits(),
    idle_cause=Cause.INPUT,
    inflated_by_profiler=True,
    check=check,
)
