"""Events that the profiler could not keep, so that the numbers are too small.

Reads: the profile's own warnings and errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase

KIND = "dropped_events"
_DROPPED = re.compile(r"events?[^\n]{0,40} dropped|dropped[^\n]{0,40} events?|activity buffer full", re.I)


def check(context: Context) -> Iterator[Finding]:
    """One finding for all hosts whose profiler dropped events."""
    said: dict[str, str] = {}
    for profile in context.profiles:
        for message in (*profile.trace.warnings, *profile.trace.errors):
            if _DROPPED.search(message):
                said.setdefault(profile.label, message)
    if not said:
        return
    facts = {"hosts": tuple(said), "message": next(iter(said.values()))}
    yield Finding(
        kind=KIND,
        severity="warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(
            Phrase(f"findings.{KIND}.explanation", facts),
            Phrase("report.profiler_said", {"message": facts["message"]}),
        ),
        advice=context.advice(KIND, "shorter", "more_events@jax", "fewer_launches"),
    )
