"""Events that the profiler could not keep, so that the numbers are too small.

Reads: the profile's own warnings and errors, and whether its writer stopped at a limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "dropped_events"
_CAPPED = "capped_export"
_DROPPED = re.compile(r"events?[^\n]{0,40} dropped|dropped[^\n]{0,40} events?|activity buffer full", re.I)


def check(context: Context) -> Iterator[Finding]:
    """One finding for all hosts whose profiler dropped events."""
    said: dict[str, Phrase] = {}
    for profile in context.profiles:
        for message in (*profile.trace.warnings, *profile.trace.errors):
            if _DROPPED.search(message):
                said.setdefault(profile.label, Phrase("report.profiler_said", {"message": message}))
        for note in profile.trace.notes:
            if note.code == _CAPPED:
                said.setdefault(profile.label, Phrase(f"notes.{_CAPPED}", note.params))
    if not said:
        return
    facts = {"hosts": tuple(said)}
    yield Finding(
        kind=KIND,
        severity="warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(
            Phrase(f"findings.{KIND}.explanation", facts),
            next(iter(said.values())),
        ),
        advice=context.advice(KIND, "shorter", "more_events@jax", "fewer_launches"),
    )


RULE = Rule(
    kind=KIND,
    order=420,
    about="profile",
    cost="none",
    reads=("recording",),
    proves_no_health=True,
    distorts="times",
    check=check,
)
