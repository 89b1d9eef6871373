"""Single steps that take far longer than the others.

Reads: the wall time of the complete steps, and which part of the slow ones grew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.results import CAUSE_IDS, Cause
from tb_gpu_doctor.diagnosis.asking import ask_one
from tb_gpu_doctor.diagnosis.context import Context, HostProfile
from tb_gpu_doctor.diagnosis.host_activity import busiest_host_events
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.outliers import Outliers, find_outliers
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.traces.columns import Int64

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
    found = [item for profile in context.profiles if (item := find_outliers(profile, limits)) is not None]
    found = [item for item in found if _share(item) >= limits.warning]
    if not found:
        return
    # Hosts that train together are slow together: those whose own work grew speak for all.
    worst = max(found, key=_grown)
    found = [item for item in found if _grown(item) >= _TO_BLAME * _grown(worst)]
    share = _share(worst)
    gpus = tuple(sorted(item.profile.ref(device) for item in found for device in item.devices))
    slow = worst.durations[worst.rows]
    facts = {
        "gpus": context.names(gpus),
        "share": share,
        "count": len(worst.rows),
        "steps": len(worst.durations),
        "numbers": worst.numbers[:_MAX_NUMBERS],
        "typical": float(np.median(slow)),
        "median": worst.median,
        "longest": int(slow.max()),
        "grown": Phrase(f"findings.{KIND}.parts.{worst.grown}"),
        "part": float(worst.parts.max() / max(worst.parts.sum(), 1.0)),
        "growth": float(worst.parts.max() / len(worst.rows)),
    }
    key = f"findings.{KIND}"
    explanation = [Phrase(f"{key}.explanation", facts), Phrase(f"{key}.grown", facts)]
    names = _busiest(worst)
    if names:
        explanation.append(Phrase(f"{key}.busiest", {"names": names}))
    if worst.profile.analysis.steps.source == "inferred":
        explanation.append(Phrase(f"{key}.inferred"))
    yield Finding(
        kind=KIND,
        severity="critical" if share >= limits.critical else "warning",
        title=Phrase(f"{key}.title", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, *_ADVICE.get(worst.grown, ("rare_work", "pin_host")), "look_closer"),
        gpus=gpus,
        cause=worst.grown,
        share=share,
        saving_ps_per_step=float(worst.excess.sum()) / len(worst.durations),
        evidence=_evidence(context, found),
    )


def _share(item: Outliers) -> float:
    """What the outlying steps took longer, of the time of all complete steps."""
    return float(item.excess.sum() / item.durations.sum())


def _grown(item: Outliers) -> float:
    """By how much the host's own part of these steps grew."""
    return float(item.parts.sum())


def _busiest(item: Outliers) -> tuple[str, ...]:
    """What the host did in the GPU's longest pauses of these steps, where waiting for the host grew."""
    if item.grown not in CAUSE_IDS or Cause[item.grown.upper()] > Cause.HOST_OTHER:
        return ()
    return ask_one(_busiest_in_pauses, item.profile, item.devices[0], Cause[item.grown.upper()], item.rows)


def _busiest_in_pauses(profile: HostProfile, device: int, cause: Cause, outlying: Int64) -> tuple[str, ...]:
    """What the host did in the longest pause of a GPU in each of some complete steps."""
    steps, gaps = profile.analysis.steps, profile.analysis.gaps
    complete = np.flatnonzero(steps.complete)
    spans = []
    for row in complete[outlying].tolist():
        low, high = int(steps.start[row, device]), int(steps.end[row, device])
        inside = np.flatnonzero((gaps.device == device) & (gaps.start >= low) & (gaps.end <= high))
        if len(inside):
            longest = inside[np.argmax(gaps.by_cause[inside, cause])]
            spans.append((int(gaps.start[longest]), int(gaps.end[longest])))
    return tuple(name for name, _ in busiest_host_events(profile, spans))


def _evidence(context: Context, found: Sequence[Outliers]) -> tuple[Evidence, ...]:
    """The slow steps on the GPUs to blame, the slowest first."""
    rows: list[tuple[int, Evidence]] = []
    for item in found:
        steps = item.profile.analysis.steps
        complete = np.flatnonzero(steps.complete)
        for row, excess in zip(item.rows.tolist(), item.excess.tolist(), strict=True):
            index = int(complete[row])
            for device in item.devices:
                if steps.end[index, device] < 0:
                    continue
                what = Phrase("report.evidence.slow_step", {"excess": excess})
                start, end = int(steps.start[index, device]), int(steps.end[index, device])
                gpu = item.profile.ref(device).id
                number = int(steps.number[index])
                rows.append((excess, Evidence(item.profile.label, gpu, start, end, None, number, what)))
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
