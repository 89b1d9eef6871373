"""A profile without step markers: no cost per step can be told. Holds the snippet that marks them."""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase

KIND = "no_steps"


def check(context: Context) -> Iterator[Finding]:
    """A remark when GPUs worked and no host marked steps."""
    if not context.has_gpu_work:
        return
    sources = {profile.analysis.steps.source for profile in context.profiles if profile.has_gpu_work}
    if "marked" in sources:
        return
    variant = "inferred" if "inferred" in sources else "none"
    if context.framework == "jax":
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
        title=Phrase(f"findings.{KIND}.title"),
        explanation=(Phrase(f"findings.{KIND}.{variant}"),),
        advice=advice,
    )
