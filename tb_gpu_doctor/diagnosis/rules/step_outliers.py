"""Single steps that take far longer than the others.

Reads: the wall time of the complete steps, and which part of the slow ones grew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from tb_gpu_doctor.analysis.slow_steps import Outliers, find_outliers
from tb_gpu_doctor.diagnosis.context import Context, ref
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "step_outliers"
# Of so many steps the numbers are named.
_MAX_NUMBERS = 6
# A host is to blame from this part of the largest growth on.
_TO_BLAME = 0.5
_ADVICE: dict[str, tuple[str, ...]] = {
    "compute": ("check_clocks", "same_work@"),
    "communication": ("check_network", "check_clocks"),
    "input": ("steady_input@",),
    "checkpoint": ("rare_work",),
    "compile": ("warm_up",),
}


@dataclass(frozen=True)
class Limits:
    """When a step stands out, and what such steps cost."""

    # A step stands out from this many scaled median deviations above the median on (1.4826 makes the
    # deviation that of a normal distribution), if it also is this much longer than the median.
    deviations: float = 3.5
    ratio: float = 1.25
    # Fewer steps have no scatter to stand out of; inferred ones must nearly all look alike.
    min_steps: int = 8
    min_confidence: float = 0.90
    # What they take longer than the median step, of all steps' time.
    warning: float = 0.03
    critical: float = 0.15


def check(context: Context) -> Iterator[Finding]:
    """One finding over all hosts."""
    limits: Limits = context.thresholds.of(KIND)
    files = context.files
    everywhere = (find_outliers(files, which, context.job, limits) for which in range(len(files)))
    found = [item for item in everywhere if item is not None]
    found = [item for item in found if item.share >= limits.warning]
    if not found:
        return
    # Hosts that train together are slow together: those whose own work grew speak for all.
    worst = max(found, key=lambda item: item.growth)
    found = [item for item in found if item.growth >= _TO_BLAME * worst.growth]
    gpus = tuple(sorted(ref(item.file, device) for item in found for device in item.devices))
    facts = {
        "gpus": context.names(gpus),
        "share": worst.share,
        "count": len(worst.steps),
        "steps": worst.file.steps.count,
        "numbers": worst.numbers[:_MAX_NUMBERS],
        "typical": float(median(worst.durations)),
        "median": worst.median,
        "longest": max(worst.durations),
        "grown": Phrase(f"findings.{KIND}.parts.{worst.grown}"),
        "part": max(worst.parts) / max(worst.growth, 1.0),
        "growth": max(worst.parts) / len(worst.steps),
    }
    key = f"findings.{KIND}"
    explanation = [Phrase(f"{key}.explanation", facts), Phrase(f"{key}.grown", facts)]
    if worst.busiest:
        explanation.append(Phrase(f"{key}.busiest", {"names": worst.busiest}))
    if worst.file.steps.source == "inferred":
        explanation.append(Phrase(f"{key}.inferred"))
    yield Finding(
        kind=KIND,
        severity="critical" if worst.share >= limits.critical else "warning",
        title=Phrase(f"{key}.title", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, *_ADVICE.get(worst.grown, ("rare_work", "pin_host")), "look_closer"),
        gpus=gpus,
        cause=worst.grown,
        share=worst.share,
        saving_ps_per_step=sum(worst.excess) / worst.file.steps.count,
        evidence=_evidence(context, found),
    )


def _evidence(context: Context, found: Sequence[Outliers]) -> tuple[Evidence, ...]:
    """The slow steps on the GPUs to blame, the slowest first."""
    rows = []
    for item in found:
        for slow in item.places():
            what = Phrase("report.evidence.slow_step", {"excess": slow.excess})
            gpu = ref(item.file, slow.device)
            rows.append((slow.excess, Evidence(gpu.host, gpu.id, slow.start, slow.end, None, slow.number, what)))
    rows.sort(key=lambda pair: -pair[0])
    return tuple(evidence for _, evidence in rows[: context.thresholds.max_evidence])


RULE = Rule(
    kind=KIND,
    order=180,
    about="run",
    cost="lost",
    reads=("many_steps", "steps", "idle_causes", "host_events"),
    needs=("many_steps",),
    thresholds=Limits(),
    check=check,
)
