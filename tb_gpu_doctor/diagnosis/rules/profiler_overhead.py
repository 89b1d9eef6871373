"""A profiler that makes the steps it records longer.

Reads: step times of the process itself, profiled and not (`telemetry.step_times`). Kernels take as long as ever; what
grows is the host's part, so the figures about host and launches are marked as inflated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.telemetry.progress import Overhead, overhead

KIND = "profiler_overhead"
_PS_PER_NS = 1000


@dataclass(frozen=True)
class Limits:
    """Profiled against unprofiled steps."""

    ratio: float = 1.10
    # How many there must be of each.
    min_profiled: int = 3
    min_unprofiled: int = 10


def check(context: Context) -> Iterator[Finding]:
    """One finding for the process whose steps grew most."""
    found = worst_overhead(context)
    if found is None:
        return
    facts = {
        "times": found.ratio,
        "more": found.ratio - 1,
        "profiled": found.profiled_ns * _PS_PER_NS,
        "unprofiled": found.unprofiled_ns * _PS_PER_NS,
        "count": found.profiled,
        "others": found.unprofiled,
    }
    yield Finding(
        kind=KIND,
        severity="info",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(Phrase(f"findings.{KIND}.explanation", facts), Phrase(f"findings.{KIND}.inflated", facts)),
        advice=context.advice(KIND, "lighter_tensorflow", "lighter_pytorch", "compare"),
    )


def worst_overhead(context: Context) -> Overhead | None:
    """The largest overhead above the threshold over all processes of the profile; None without any."""
    limits: Limits = context.thresholds.of(KIND)
    found = []
    for recording in context.telemetry.recordings if context.files else ():
        windows = {g.window_ns for g in context.telemetry.gpus if g.recording is recording and g.window_ns is not None}
        for window in windows:
            measured = overhead(recording, limits.min_profiled, limits.min_unprofiled, window)
            if measured is not None and measured.ratio > limits.ratio:
                found.append(measured)
    return max(found, key=lambda item: item.ratio) if found else None


RULE = Rule(
    kind=KIND,
    order=470,
    about="profile",
    cost="none",
    reads=("telemetry", "steps"),
    thresholds=Limits(),
    distorts="longer",
    check=check,
)
