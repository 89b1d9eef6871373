"""GPUs that wait for the driver's allocator: what is called, in which steps, and that it is no launching."""

from __future__ import annotations

import pytest

from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.phrase import Phrase
from tests.analysis.small_traces import Recorder
from tests.diagnosis.loops import COMPUTE, host, loop
from tests.hosts import diagnosed


def found(recorder: Recorder) -> dict[str, Finding]:
    return {finding.kind: finding for finding in diagnosed([host(recorder)]).findings}


def said(finding: Finding, name: str) -> Phrase:
    return next(phrase for phrase in finding.explanation if phrase.key == f"findings.{finding.kind}.{name}")


def allocating(name: str):  # type: ignore[no-untyped-def]
    def between(recorder: Recorder, step: int, free: float, launch: float) -> None:
        recorder.call("python", "aten::empty", free + 5, launch - 5)
        recorder.call("python", name, free + 6, launch - 6)

    return between


@pytest.mark.parametrize("name", ["cudaFree", "cudaMalloc", "cudaMallocAsync", "hipFree", "cuMemMap", "cudaHostAlloc"])
def test_the_call_is_named_and_launching_is_not_blamed(name: str) -> None:
    pause = 3_000.0
    findings = found(loop(allocating(name), pause))
    finding = findings["allocator_stall"]
    assert finding.severity == "critical"
    assert finding.share == pytest.approx(9 * pause / (9 * pause + 10 * COMPUTE), rel=0.05)
    assert said(finding, "held_up_by").params["name"] == name
    assert said(finding, "stops_in_steps").params["count"] == 9
    assert "launch_bound" not in findings


def test_a_call_in_one_step_is_told_as_one() -> None:
    finding = found(loop(allocating("cudaMalloc"), {5: 6_000.0}))["allocator_stall"]
    assert said(finding, "stops_in_steps").params["count"] == 1


def test_hidden_calls_cost_nothing() -> None:
    def hidden(recorder: Recorder, step: int, free: float, launch: float) -> None:
        recorder.call("python", "cudaMalloc", free - 3_000, free - 1_000)

    assert "allocator_stall" not in found(loop(hidden, 10.0))
