"""Idle time without any reason in the profile: never healthy, and what to record."""

from __future__ import annotations

from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.phrase import Phrase
from tests.analysis.small_traces import Recorder
from tests.diagnosis.loops import host, loop
from tests.hosts import diagnosed


def found(recorder: Recorder) -> dict[str, Finding]:
    return {finding.kind: finding for finding in diagnosed([host(recorder)]).findings}


def said(finding: Finding, name: str) -> Phrase:
    return next(phrase for phrase in finding.explanation if phrase.key == f"findings.{finding.kind}.{name}")


def test_a_pause_in_every_step_that_nobody_recorded() -> None:
    made = loop(None, 3_000.0)
    finding = found(made)["unexplained_idle"]
    assert finding.severity == "warning"
    assert said(finding, "in_each").params["count"] == 9
    diagnosis = diagnosed([host(made)])
    assert diagnosis.verdict == "cannot_tell"
    assert "findings.unexplained_idle.doubt" in [reason.key for reason in diagnosis.reasons]


def test_pauses_in_some_steps_at_an_interval() -> None:
    finding = found(loop(None, {2: 20_000.0, 5: 20_000.0, 8: 20_000.0}))["unexplained_idle"]
    assert said(finding, "in_some").params["numbers"] == (102, 105, 108)
    assert said(finding, "every").params["every"] == 3


def test_a_tenth_is_the_border() -> None:
    assert "unexplained_idle" not in found(loop(None, 700.0))
    assert "unexplained_idle" in found(loop(None, 1_100.0))
