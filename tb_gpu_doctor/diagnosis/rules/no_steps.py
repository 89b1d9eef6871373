"""A profile without step markers: the steps are inferred, or no cost per step can be told.

Reads: where the steps come from and how sure they are. Holds the snippet that marks them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "no_steps"


@dataclass(frozen=True)
class Limits:
    """How sure inferred steps must be."""

    # Inferred steps of which fewer look alike are to be taken with care.
    sure: float = 0.90


def check(context: Context) -> Iterator[Finding]:
    """A remark when GPUs worked and no host marked steps."""
    if not context.has_gpu_work:
        return
    sources = {file.steps.source for file in context.files if file.has_gpu_work}
    if "marked" in sources:
        return
    key = f"findings.{KIND}"
    inferred = [file.steps for file in context.files if file.steps.source == "inferred" and file.has_gpu_work]
    explanation = [Phrase(f"{key}.none")]
    passes = [Phrase(f"{key}.only_predicts")] if context.only_predicts else []
    if inferred:
        # Hosts may differ: the least sure one speaks for all.
        least = min(inferred, key=lambda steps: steps.confidence or 0.0)
        facts = {"count": least.count, "median": context.median_step, "confidence": least.confidence}
        if least.cut_at is not None:
            explanation = [Phrase(f"{key}.executed", {**facts, "name": least.cut_at})]
        else:
            explanation = [Phrase(f"{key}.inferred", facts)]
        if (least.confidence or 0.0) < context.thresholds.of(KIND).sure:
            explanation.append(Phrase(f"{key}.unsure"))
        if least.cut_at is None:
            explanation.append(Phrase(f"{key}.consequence"))
    if all(file.format == "nsys" for file in context.files):
        advice = context.advice(KIND, "nsys")
    elif context.only_predicts:
        advice = context.advice(KIND, "passes@")
    elif context.framework == "pytorch":
        advice = context.advice(KIND, "pytorch")
    elif context.framework == "jax":
        advice = context.advice(KIND, "jax")
    elif context.uses_keras:
        advice = context.advice(KIND, "keras", "custom_loop")
    elif context.framework == "tensorflow":
        advice = context.advice(KIND, "custom_loop", "keras")
    else:
        advice = context.advice(KIND, "custom_loop", "keras", "jax")
    yield Finding(
        kind=KIND,
        severity="info",
        title=Phrase(f"{key}.title_inferred" if inferred else f"{key}.title"),
        explanation=(*explanation, *passes),
        advice=advice,
    )


RULE = Rule(
    kind=KIND,
    order=430,
    about="profile",
    cost="none",
    reads=("steps", "gpus"),
    thresholds=Limits(),
    check=check,
)
