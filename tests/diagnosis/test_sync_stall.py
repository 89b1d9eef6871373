"""Who waited for the GPU, what the host did then, and what that costs a step."""

from __future__ import annotations

import pytest

from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.model import Diagnosis, Finding, Phrase
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tests.analysis.small_traces import Recorder
from tests.diagnosis.build import profile
from tests.diagnosis.loops import COMPUTE, host, loop, microseconds
from tests.hosts import diagnosed

T = Thresholds()


def sync_finding(diagnosis: Diagnosis) -> Finding:
    (found,) = [finding for finding in diagnosis.findings if finding.kind == "sync_stall"]
    return found


def phrase(finding: Finding, name: str) -> Phrase | None:
    return next((p for p in finding.explanation if p.key == f"findings.sync_stall.{name}"), None)


def looked_at(recorder: Recorder, step: int, free: float, launch: float) -> None:
    """`.numpy()` until the GPU is done, then the user's own logging."""
    recorder.call("python", "$ops.py:412 numpy", free - 3_000, free + 4)
    recorder.call("python", "TensorHandle::CopyToDevice", free - 2_990, free + 3)
    recorder.call("python", "$train.py:131 log_metrics", free + 10, launch - 20)


def test_the_wait_and_the_work_after_it_are_named() -> None:
    finding = sync_finding(diagnosed([host(loop(looked_at, 2_000))]))
    assert finding.severity == "critical"
    waits_in, then = phrase(finding, "waits_in"), phrase(finding, "then")
    assert waits_in is not None and waits_in.params == {"name": "$ops.py:412 numpy", "thread": "python"}
    assert then is not None and then.params["name"] == "$train.py:131 log_metrics"
    first = finding.evidence[0]
    assert first.thread == "python" and first.gpu == 0 and first.step is not None and first.step > 100
    assert first.what == Phrase(
        "report.evidence.after_wait", {"wait": "$ops.py:412 numpy", "work": "$train.py:131 log_metrics"}
    )
    assert finding.advice[0].key.startswith("findings.sync_stall.advice.read_rarely")


def test_the_cost_is_that_of_the_gaps() -> None:
    made = host(loop(looked_at, 2_000))
    finding = sync_finding(diagnosed([made]))
    # Each step but the first waits 2 ms and the launch's 8 us, of which 10 us at most count as latency.
    lost = made.analysis.accounting[0].idle_of(Cause.SYNC)
    assert lost == pytest.approx(microseconds(9 * 2_000), rel=0.02)
    assert finding.share == lost / made.analysis.accounting[0].wall
    assert finding.saving_ps_per_step == pytest.approx(lost / 10)
    in_steps = phrase(finding, "in_steps")
    assert in_steps is not None and in_steps.params == {"count": 9, "steps": 10}


def test_a_wait_before_the_gap_on_another_thread_is_found_too() -> None:
    def waiter(recorder: Recorder, step: int, free: float, launch: float) -> None:
        recorder.call("python", "PjitFunction(f)", launch - 40, launch + 30)
        looked_at(recorder, step, free, launch - 60)

    recorder = loop(waiter, 2_000, thread="Host Threads/9")
    made = host(recorder)
    idle = made.facts.gpus[0].idle
    assert idle is not None and idle.whole.waits is not None
    assert [wait.name for wait in idle.whole.waits.by_name] == ["$ops.py:412 numpy"]
    assert {gap.name for gap in idle.whole.waits.worst} <= {"$ops.py:412 numpy", None}


def test_an_op_of_the_step_that_waits_is_named_as_the_caller() -> None:
    def op(recorder: Recorder, step: int, free: float, launch: float) -> None:
        recorder.call("python", "Where:Where", free - 5_000, launch - 10)
        recorder.call("python", "cuStreamSynchronize", free - 4_990, free + 4)

    finding = sync_finding(diagnosed([host(loop(op, 2_000))]))
    called_by = phrase(finding, "called_by")
    assert called_by is not None and called_by.params["name"] == "Where:Where"
    assert finding.advice[0].key.startswith("findings.sync_stall.advice.static_shapes")


def test_the_line_of_the_users_code_is_named() -> None:
    def framed(recorder: Recorder, step: int, free: float, launch: float) -> None:
        recorder.call("python", "$train.py:40 main", free - 5_000, launch - 10)
        recorder.call("python", "$array.py:350 __float__", free - 4_995, free + 5)
        recorder.call("python", "PjRtStreamExecutorBuffer::ToLiteral", free - 4_990, free + 4)

    finding = sync_finding(diagnosed([host(loop(framed, 2_000))]))
    called_by, in_code = phrase(finding, "called_by"), phrase(finding, "in_your_code")
    assert called_by is not None and called_by.params["name"] == "$array.py:350 __float__"
    assert in_code is not None and in_code.params["name"] == "$train.py:40 main"


def test_several_waits_in_a_step_are_counted() -> None:
    recorder = Recorder()
    now, number = 100.0, 0
    for step in range(10):
        recorder.step("python", step, now - 5, now + 10_020)
        for _ in range(4):
            number += 1
            recorder.launch("python", now, now + 8, now + 2_008, number)
            recorder.call("python", "cuStreamSynchronize", now + 100, now + 2_010)
            recorder.call("python", "$train.py:77 clip", now + 2_015, now + 2_500)
            now += 2_508
    finding = sync_finding(diagnosed([host(recorder)]))
    often = phrase(finding, "times_per_step")
    assert often is not None and often.params["times"] == pytest.approx(4, abs=0.2)


@pytest.mark.parametrize(("pause", "found"), [(COMPUTE * 0.03, False), (COMPUTE * 0.09, True)])
def test_it_speaks_from_its_threshold_on(pause: float, found: bool) -> None:
    diagnosis = diagnosed([host(loop(looked_at, pause))])
    assert any(finding.kind == "sync_stall" for finding in diagnosis.findings) == found
    assert diagnosis.verdict == ("warning" if found else "ok")


def test_reading_one_value_at_the_end_is_no_habit() -> None:
    def once(recorder: Recorder, step: int, free: float, launch: float) -> None:
        if step == 5:
            looked_at(recorder, step, free, launch)

    made = host(loop(once, {5: 10_000}))
    assert (
        made.analysis.accounting[0].idle_of(Cause.SYNC) > T.of("sync_stall").warning * made.analysis.accounting[0].wall
    )
    assert "sync_stall" not in [finding.kind for finding in diagnosed([made]).findings]


def test_without_a_recorded_wait_nothing_is_said() -> None:
    diagnosis = diagnosed([profile(2, idle={Cause.SYNC: 0.7})])
    assert diagnosis.findings == () and diagnosis.verdict == "cannot_tell"


def test_all_gpus_share_one_finding() -> None:
    finding = sync_finding(diagnosed([host(loop(looked_at, 2_000, gpus=3))]))
    assert [gpu.id for gpu in finding.gpus] == [0, 1, 2]
    assert {item.gpu for item in finding.evidence[:3]} == {0, 1, 2}
