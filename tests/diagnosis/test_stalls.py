"""Compiling and saving during training: which steps they stop, how long, how regularly, and by what."""

from __future__ import annotations

import pytest

from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.stalls import find_stops
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tb_gpu_doctor.traces.columns import CopyKind, EventClass
from tests.analysis.small_traces import Recorder
from tests.diagnosis.loops import COMPUTE, STEP, host, loop, microseconds
from tests.hosts import AnalysedFile, context_of, diagnosed

T = Thresholds()


def only(made: AnalysedFile, kind: str) -> Finding:
    (found,) = [finding for finding in diagnosed([made]).findings if finding.kind == kind]
    return found


def phrase(finding: Finding, name: str) -> Phrase | None:
    return next((p for p in finding.explanation if p.key == f"findings.{finding.kind}.{name}"), None)


def doing(*names: str, steps: range = range(3, 99, 3)):  # type: ignore[no-untyped-def]
    """What the host does in front of some steps, the given names inside each other."""

    def between(recorder: Recorder, step: int, free: float, launch: float) -> None:
        if step in steps:
            for depth, name in enumerate(names):
                recorder.call("python", name, free - 4_000 + depth, launch - 5 - depth)

    return between


EVERY_THIRD = {3: 6_000.0, 6: 6_000.0, 9: 6_000.0}


# -- saving --------------------------------------------------------------------------------


def test_saving_is_counted_by_step_with_its_length_and_interval() -> None:
    made = host(loop(doing("$checkpoint_manager.py:1161 save"), EVERY_THIRD))
    finding = only(made, "checkpoint_stall")
    stops = find_stops(context := context_of(made), context.working_gpus, Cause.CHECKPOINT)
    assert (stops.count, stops.steps, stops.numbers, stops.every) == (3, 10, (103, 106, 109), 3)
    assert stops.typical == pytest.approx(microseconds(6_000), rel=0.01)
    every, host_time = phrase(finding, "every"), phrase(finding, "host_time")
    assert every is not None and every.params["every"] == 3
    # The host saves 4 ms before the GPU is done and 6 ms more.
    assert host_time is not None and host_time.params["host"] == pytest.approx(microseconds(10_000), rel=0.01)
    assert finding.severity == "critical" and finding.share == pytest.approx(18 / 98, rel=0.02)
    assert finding.saving_ps_per_step == pytest.approx(microseconds(18_000 / 10), rel=0.02)
    assert finding.evidence[0].what == "$checkpoint_manager.py:1161 save"
    assert {item.step for item in finding.evidence} == {103, 106, 109}
    assert finding.advice[0].key.startswith("findings.checkpoint_stall.advice.async")


def test_summaries_are_not_answered_with_asynchronous_checkpoints() -> None:
    finding = only(host(loop(doing("WriteScalarSummary"), EVERY_THIRD)), "checkpoint_stall")
    assert [advice.key.split(".")[-1].rsplit("_", 1)[0] for advice in finding.advice[:1]] == ["fewer_summaries"]


@pytest.mark.parametrize(("pause", "severity"), [(200.0, None), (1_500.0, "warning"), (9_000.0, "critical")])
def test_saving_speaks_from_its_thresholds_on(pause: float, severity: str | None) -> None:
    pauses = dict.fromkeys(EVERY_THIRD, pause)
    found = diagnosed([host(loop(doing("SaveV2"), pauses))]).findings
    assert [f.severity for f in found if f.kind == "checkpoint_stall"] == ([severity] if severity else [])


def test_saving_behind_the_gpus_work_costs_nothing() -> None:
    def hidden(recorder: Recorder, step: int, free: float, launch: float) -> None:
        recorder.call("python", "SaveV2", free - 6_000, free - 20)

    assert diagnosed([host(loop(hidden, 0.0))]).findings == ()


def test_without_steps_stops_are_counted_by_their_distance() -> None:
    # Two GPUs that do different things: no steps can be inferred from the odd ends.
    recorder = Recorder()
    now = 100.0
    for number, length in enumerate((3_000, 5_000, 2_000, 7_000, 4_000), 1):
        recorder.call("python", "SaveV2", now, now + 2_000)
        for part in range(2):  # the save is interrupted by a short kernel
            start = now + 900 + part * 1_101
            correlation = 2 * number + part
            recorder.call("python", "cuLaunchKernel", start, start + 1, correlation)
            recorder.work(start + 8, start + (60 if part == 0 else length), correlation, name=f"k{correlation}")
        now += 2_001 + length
    made = host(recorder)
    assert made.analysis.steps.source == "none"
    stops = find_stops(context := context_of(made), context.working_gpus, Cause.CHECKPOINT)
    assert (stops.count, stops.steps) == (5, None)
    finding = only(made, "checkpoint_stall")
    assert finding.saving_ps_per_step is None and phrase(finding, "stops") is not None


# -- compiling -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "function"),
    [(("XlaCompile:#module=jit_train_step,program_id=18#",), "jit_train_step"),
     (("PjitFunction(loss_fn)", "$compiler.py:289 backend_compile", "GpuCompiler::RunBackend"), "loss_fn"),
     (("one_step_on_iterator", "tf.function-graph_building"), "one_step_on_iterator"),
     (("$train.py:9 fit", "$compiler.py:289 backend_compile"), "$train.py:9 fit"),
     (("EagerKernelExecute", "XlaCompile"), None)],
)  # fmt: skip
def test_the_function_that_is_compiled_is_named(names: tuple[str, ...], function: str | None) -> None:
    finding = only(host(loop(doing(*names), EVERY_THIRD)), "compile_stall")
    said = phrase(finding, "function")
    assert (said.params["function"] if said is not None else None) == function
    stops = phrase(finding, "stops_in_steps")
    assert stops is not None and (stops.params["count"], stops.params["steps"]) == (3, 10)
    assert finding.severity == "critical"


@pytest.mark.parametrize(
    ("pause", "severity"), [(STEP * 0.01, None), (STEP * 0.12, "warning"), (COMPUTE * 0.6, "critical")]
)
def test_compiling_speaks_from_its_thresholds_on(pause: float, severity: str | None) -> None:
    pauses = dict.fromkeys(EVERY_THIRD, pause)
    found = diagnosed([host(loop(doing("XlaCompile"), pauses))]).findings
    assert [f.severity for f in found if f.kind == "compile_stall"] == ([severity] if severity else [])


@pytest.mark.parametrize(("steps", "said"), [(10, "once"), (4, "first_only")])
def test_compiling_before_the_first_step_only_is_no_habit(steps: int, said: str) -> None:
    """Of enough steps it is told as start-up, and in no other figure."""

    def first(recorder: Recorder, step: int, free: float, launch: float) -> None:
        if step == 1:  # the first that is complete: step 0 has nothing before it
            recorder.call("python", "XlaCompile", free + 5, launch - 5)

    recorder = loop(first, {1: 40_000.0}, steps=steps)
    recorder.recorded = (8_000, 1_000_000)  # step 0 began before
    made = host(recorder)
    finding = only(made, "compile_stall")
    assert finding.severity == "warning"
    assert phrase(finding, said) is not None and phrase(finding, "stops_in_steps") is None
    assert finding.advice[0].key == "findings.compile_stall.advice.warm_up"
    start = made.analysis.start_up
    if said == "first_only":
        assert start is None
        return
    assert start is not None and start.numbers == (101,) and made.analysis.steps.count == 8
    assert finding.saving_ps_per_step is None and made.analysis.accounting[0].idle_of(Cause.COMPILE) == 0
    assert start.extra == pytest.approx(microseconds(40_000), rel=0.01)
    delay = start.lost(Cause.COMPILE)
    assert delay is not None and (delay.name, delay.thread) == ("XlaCompile", "python")
    assert delay.lost == pytest.approx(microseconds(40_000), rel=0.01)
    assert any(isinstance(w, Phrase) and w.key == "report.start_up" for w in diagnosed([made]).warnings)


def test_two_causes_come_in_the_order_of_what_they_cost() -> None:
    def both(recorder: Recorder, step: int, free: float, launch: float) -> None:
        if step in EVERY_THIRD:
            recorder.call("python", "SaveV2", free - 3_000, launch - 5)
        elif step % 3 == 1:
            recorder.call("python", "XlaCompile", free - 3_000, launch - 5)

    pauses = {**EVERY_THIRD, 1: 2_000.0, 4: 2_000.0, 7: 2_000.0}
    assert [f.kind for f in diagnosed([host(loop(both, pauses))]).findings][:2] == [
        "checkpoint_stall", "compile_stall"]  # fmt: skip


def test_copies_of_the_weights_are_a_part_of_saving() -> None:
    """Values fetched between the last kernel and the file are saving too; one story, and no finding about copies."""
    recorder = Recorder()
    now, number = 100.0, 1
    for step in range(10):
        recorder.step("python", step, now, now + 20)
        recorder.launch("python", now, now + 8, now + 8 + COMPUTE, number)
        end, number = now + 8 + COMPUTE, number + 1
        if step in (4, 8):
            recorder.call("python", "cudaStreamSynchronize", now + 30, end + 2)
            for _ in range(3):
                recorder.call("python", "cudaMemcpyAsync", end + 4, end + 1_004, number)
                recorder.work(
                    end + 5, end + 1_003, number, klass=EventClass.COPY, copy_kind=CopyKind.D2H, name="Memcpy DtoH"
                )
                end, number = end + 1_005, number + 1
            recorder.call("python", "torch/serialization.py(914): save", end + 5, end + 6_000)
            end += 6_005
        now = end + 5
    made = host(recorder)
    found = {finding.kind: finding for finding in diagnosed([made]).findings}
    assert found["checkpoint_stall"].share == pytest.approx(2 * 9_000 / (10 * 8_008 + 2 * 9_020), rel=0.03)
    assert "transfer_bound" not in found
