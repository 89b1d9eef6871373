"""A profile that shows too little of the training to judge by.

Reads: complete steps, marked or inferred, and how much of the recording the window covers. Says what the
host did in the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.analysis.facts import FileFacts
from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "short_profile"
_PS_PER_MS = 1_000_000_000


@dataclass(frozen=True)
class Limits:
    """What a profile must show of a run to judge it by (and `Thresholds.min_complete_steps`)."""

    # What part of the recording the window must cover.
    min_coverage: float = 0.50
    # How long the window must be at least, milliseconds: microseconds prove nothing, neither good nor bad.
    min_window_ms: int = 1


def check(context: Context) -> Iterator[Finding]:
    """One finding when any host with GPU work shows too few steps or too small a window."""
    limits: Limits = context.thresholds.of(KIND)
    key = f"findings.{KIND}"
    explanation: list[Phrase] = []
    evidence: list[Evidence] = []
    advice: list[str] = []
    worked = [file for file in context.files if file.has_gpu_work]
    counts = [_shown_steps(file) for file in worked if file.steps.source != "none"]
    if proves_nothing(context):
        facts = {"window": context.window, "least": limits.min_window_ms * _PS_PER_MS}
        explanation.append(Phrase(f"{key}.tiny_window", facts))
    if counts and min(counts) < context.thresholds.min_complete_steps:
        facts = {"count": min(counts), "least": context.thresholds.min_complete_steps}
        explanation.append(Phrase(f"{key}.{'few_passes' if context.only_predicts else 'few_steps'}", facts))
        advice.append("more_passes" if context.only_predicts else "more_steps@")
    coverages = [(value, file) for file in worked if (value := _coverage(file)) is not None]
    coverage, file = min(coverages, key=lambda item: item[0], default=(1.0, None))
    if file is not None and coverage < limits.min_coverage:
        window, recorded = file.window, file.recorded
        assert window is not None and recorded is not None
        length = recorded[1] - recorded[0]
        explanation.append(
            Phrase(f"{key}.small_window", {"window": window.length, "recorded": length, "share": coverage})
        )
        rest = [(recorded[0], window.start), (window.end, recorded[1])]
        if file.outside_window:
            names = tuple(name for name, _ in file.outside_window)
            explanation.append(Phrase(f"{key}.rest", {"names": names}))
        advice.append("start_later@")
        what = Phrase("report.evidence.outside_window")
        evidence += [Evidence(file.label, None, start, end, None, None, what) for start, end in rest if end > start]
    if not explanation:
        return
    yield Finding(
        kind=KIND,
        severity="warning",
        title=Phrase(f"{key}.title"),
        explanation=tuple(explanation),
        advice=context.advice(KIND, *advice),
        evidence=tuple(evidence),
    )


def proves_nothing(context: Context) -> bool:
    """Whether the window is so short that whatever it shows may be chance."""
    limits: Limits = context.thresholds.of(KIND)
    return context.window is not None and context.window < limits.min_window_ms * _PS_PER_MS


def _shown_steps(file: FileFacts) -> int:
    """Complete steps, and those that only lack lost work, which is `dropped_events`."""
    return file.steps.count + (0 if file.lost is None else len(file.lost.steps))


def _coverage(file: FileFacts) -> float | None:
    """The part of the recording that is judged or told as start-up; None when the file does not tell its length."""
    window, recorded = file.window, file.recorded
    if window is None or recorded is None or recorded[1] <= recorded[0]:
        return None
    start = file.start_up
    known = window.length + (0 if start is None else start.end - start.start)
    return known / (recorded[1] - recorded[0])


RULE = Rule(
    kind=KIND,
    order=440,
    about="profile",
    cost="none",
    reads=("steps", "recording"),
    thresholds=Limits(),
    proves_no_health=True,
    check=check,
)
