"""GPUs that wait for the host's own work: who does it, how often, what it costs."""

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


def doing(name: str, outer: str = "$train.py:10 loop"):  # type: ignore[no-untyped-def]
    def between(recorder: Recorder, step: int, free: float, launch: float) -> None:
        recorder.call("python", outer, free + 5, launch - 5)
        recorder.call("python", name, free + 10, launch - 10)

    return between


def test_the_innermost_function_is_named_with_its_cost() -> None:
    pause = 4_000.0
    findings = found(loop(doing("$train.py:88 log_metrics"), pause))
    finding = findings["host_bound"]
    assert finding.severity == "critical" and finding.cause == "own_code"
    assert said(finding, "named").params["name"] == "$train.py:88 log_metrics"
    assert finding.share == pytest.approx(9 * pause / (9 * pause + 10 * COMPUTE), rel=0.05)
    assert finding.saving_ps_per_step is not None
    assert finding.saving_ps_per_step == pytest.approx(pause * 1e6, rel=0.15)
    assert diagnosed([host(loop(doing("$train.py:88 log_metrics"), pause))]).verdict == "critical"


@pytest.mark.parametrize("name", ["gc.collect", "Python GC: collect", "GarbageCollection"])
def test_garbage_collection_is_told_as_such(name: str) -> None:
    def between(recorder: Recorder, step: int, free: float, launch: float) -> None:
        recorder.call("python", name, free + 10, launch - 10)

    finding = found(loop(between, {4: 9_000.0, 8: 9_000.0}))["host_bound"]
    assert finding.cause == "garbage_collection"
    assert said(finding, "stops_in_steps").params["count"] == 2
    assert finding.advice[0].key == "findings.host_bound.advice.freeze_gc"


def test_preparing_data_in_the_loop_belongs_into_the_input() -> None:
    finding = found(loop(doing("$images.py:31 normalize_batch"), 4_000.0))["host_bound"]
    assert "into_input" in finding.advice[0].key


def test_a_little_is_no_finding() -> None:
    assert "host_bound" not in found(loop(doing("$train.py:88 log_metrics"), 0.04 * COMPUTE))


def test_what_nobody_recorded_is_not_the_hosts_work() -> None:
    assert "host_bound" not in found(loop(None, 4_000.0))


def test_a_process_that_stood_still_is_told_as_such() -> None:
    def between(recorder: Recorder, step: int, free: float, launch: float) -> None:
        for k in range(3):
            recorder.call("python", "aten::add", free - 60 + 10 * k, free - 55 + 10 * k)
            recorder.call("autograd", "aten::copy_", free - 60 + 10 * k, free - 55 + 10 * k)
        if launch - free > 8_000:
            recorder.call("python", "aten::add", free + 1, launch - 10)
            recorder.call("autograd", "aten::copy_", free + 2, launch - 12)

    finding = found(loop(between, {4: 9_000.0, 8: 9_000.0}))["host_bound"]
    assert finding.cause == "frozen"
    assert finding.explanation[0].key == "findings.host_bound.explanation_frozen"
    assert said(finding, "frozen").params | {"name": "", "typical": 0, "longest": 0} == {
        "count": 2, "threads": 2, "usual": 5_000_000, "name": "", "typical": 0, "longest": 0,
    }  # fmt: skip
    assert finding.advice[0].key == "findings.host_bound.advice.cpu_limit"
