"""GPUs that stand idle with launched work: by which of the three reasons, and by how much."""

from __future__ import annotations

import pytest

from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.phrase import Phrase
from tests.analysis.small_traces import Recorder
from tests.diagnosis.loops import host
from tests.hosts import diagnosed


def found(recorder: Recorder) -> dict[str, Finding]:
    return {finding.kind: finding for finding in diagnosed([host(recorder)]).findings}


def said(finding: Finding, name: str) -> Phrase:
    return next(phrase for phrase in finding.explanation if phrase.key == f"findings.{finding.kind}.{name}")


def queued(delay: float, steps: int = 10, late: range | None = None) -> Recorder:
    """Each step's second kernel was launched with the first one and starts ``delay`` after it."""
    recorder = Recorder()
    now = 100.0
    for step in range(steps):
        wait = delay if late is None or step in late else 1.0
        recorder.step("python", step, now, now + 50)
        recorder.launch("python", now, now + 10, now + 4_000, 10 * step + 1)
        recorder.launch("python", now + 5, now + 4_000 + wait, now + 8_000 + wait, 10 * step + 2)
        now += 8_005 + wait
    return recorder


def test_queued_work_on_an_empty_gpu() -> None:
    findings = found(queued(3_000))
    finding = findings["device_wait"]
    assert finding.cause == "queued" and finding.severity == "critical"
    assert finding.share == pytest.approx(3_000 / 11_000, rel=0.02)
    assert finding.saving_ps_per_step == pytest.approx(3_000e6, rel=0.05)
    assert finding.advice[0].key == "findings.device_wait.advice.who_else"
    assert said(finding, "stops_in_steps").params["count"] == 10


def test_in_some_steps_only() -> None:
    finding = found(queued(6_000, late=range(2, 4)))["device_wait"]
    assert said(finding, "stops_in_steps").params["count"] == 2


def test_many_pauses_between_short_kernels() -> None:
    recorder = Recorder()
    now, number = 100.0, 1
    for step in range(5):
        recorder.step("python", step, now, now + 20)
        at = now + 10
        for kernel in range(200):
            recorder.launch("python", now + 1 + kernel / 100, at, at + 3, number)
            at, number = at + 5, number + 1
        now = at + 1
    finding = found(recorder)["device_wait"]
    assert finding.cause == "kernel_gap"
    assert "queued" not in {phrase.key.rsplit(".", 1)[-1] for phrase in finding.explanation}


def test_the_usual_pauses_between_kernels_are_none() -> None:
    assert "device_wait" not in found(queued(1.5))
