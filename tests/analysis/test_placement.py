"""Ops on the CPU between GPU ops: what proves them, what does not, and what they cost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.results import TraceAnalysis
from tb_gpu_doctor.analysis.transfer_results import Bounces
from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Trace
from tests.analysis.small_traces import US, Recorder, traces

OP = "lookup/Unique:Unique"


def step(
    record: Recorder,
    number: int,
    op: str | None = OP,
    *,
    thread: str = "tf_Compute/1",
    op_thread: str | None = None,
    gpu: int = 0,
    offset: float = 0,
    inner: bool = False,
) -> None:
    """100 us: a kernel, a copy to the host until 30, an op until 70, a copy back, a kernel."""
    at, first = number * 100 + offset, 100 * (number + 1) + 10_000 * gpu
    if gpu == 0:
        record.step("python", number, at, at + 99)
    record.launch(thread, at + 1, at + 5, at + 20, first, gpu=gpu)
    record.call(thread, "cuMemcpyDtoHAsync_v2", at + 3, at + 4, first + 1)
    record.work(at + 20, at + 30, first + 1, gpu=gpu, stream=1, klass=EventClass.COPY, copy_kind=CopyKind.D2H)
    if op is not None:
        record.call(op_thread or thread, op, at + 35, at + 70)
    if inner:
        record.launch(op_thread or thread, at + 40, at + 96, at + 97, first + 9, gpu=gpu)
    record.call(thread, "cuMemcpyHtoDAsync_v2", at + 72, at + 73, first + 2)
    record.work(at + 75, at + 85, first + 2, gpu=gpu, stream=2, klass=EventClass.COPY, copy_kind=CopyKind.H2D)
    record.launch(thread, at + 74, at + 85, at + 95, first + 3, gpu=gpu)


def bounces(trace: Trace) -> tuple[Bounces, TraceAnalysis]:
    analysis = analyse(trace)
    assert analysis.bounces is not None
    return analysis.bounces, analysis


def run(op: str | None = OP, steps: int = 4, **options: object) -> Trace:
    record = Recorder()
    for number in range(steps):
        step(record, number, op, **options)  # type: ignore[arg-type]
    return record.trace()


def test_a_named_op_between_two_copies_in_every_step() -> None:
    trace = run()
    found, analysis = bounces(trace)
    assert len(found) == 4
    assert {trace.strings[int(trace.host_events.name[row])] for row in found.op} == {OP}
    assert found.op_time.tolist() == [35 * US] * 4
    assert (trace.device_events.copy_kind[found.down] == CopyKind.D2H).all()
    assert (trace.device_events.copy_kind[found.up] == CopyKind.H2D).all()
    # from the end of the copy there to the start of the copy back
    assert found.step_part[:, 0].tolist() == [45 * US] * 4
    assert int(found.gap_part.sum()) == 4 * 45 * US
    assert found.step_copies[:, 0].tolist() == [20 * US] * 4 and found.device_copies.tolist() == [80 * US]
    # the host's work after the hidden wait is a synchronisation's
    assert analysis.accounting[0].idle_of(Cause.SYNC) >= 4 * 40 * US
    assert analysis.accounting[0].idle == sum(analysis.accounting[0].idle_by_cause)
    evidence = {trace.strings[int(trace.host_events.name[row])] for row in analysis.gaps.evidence if row >= 0}
    assert OP in evidence


def test_the_op_may_run_on_another_thread() -> None:
    assert len(bounces(run(op_thread="tf_Compute/2"))[0]) == 4


@pytest.mark.parametrize(
    "op",
    [
        None,  # nobody knows what the host did
        "$train.py:10 log",  # Python, not an op
        "input/IteratorGetNext:IteratorGetNext",
        "save/SaveV2:SaveV2",
        "lookup/_HostRecv:_HostRecv",
        "call/PartitionedCall:PartitionedCall",
        "Unique",
    ],
)
def test_without_a_placed_op_there_is_no_bounce(op: str | None) -> None:
    assert len(bounces(run(op))[0]) == 0


@pytest.mark.parametrize(
    "op", ["EagerLocalExecute: Unique", "xla_ffi_python_gpu_callback", "$callback.py:89 pure_callback"]
)
def test_eager_ops_and_callbacks_count(op: str) -> None:
    assert len(bounces(run(op))[0]) == 4


def test_an_op_that_launches_runs_on_the_gpu() -> None:
    assert len(bounces(run(inner=True))[0]) == 0


def test_an_op_that_also_names_gpu_work_runs_on_the_gpu() -> None:
    record = Recorder()
    for number in range(4):
        step(record, number)
    record.device_rows[0]["op"] = record.string(OP)
    assert len(bounces(record.trace())[0]) == 0


def test_threads_of_the_input_pipeline_do_not_count() -> None:
    assert len(bounces(run(op_thread="tf_data_private_threadpool/9"))[0]) == 0


def test_it_must_recur_in_most_steps() -> None:
    record = Recorder()
    for number in range(6):
        step(record, number, OP if number < 2 else None)
    assert len(bounces(record.trace())[0]) == 0
    record = Recorder()
    for number in range(6):
        step(record, number, OP if number < 3 else None)
    assert len(bounces(record.trace())[0]) == 3


def test_an_op_that_runs_elsewhere_as_well_is_a_coincidence() -> None:
    record = Recorder()
    for number in range(4):
        step(record, number)
        for i in range(3):
            record.call("tf_Compute/3", OP, number * 100 + 86 + 3 * i, number * 100 + 88 + 3 * i)
    assert len(bounces(record.trace())[0]) == 0


def test_a_short_op_in_a_long_wait_explains_nothing() -> None:
    record = Recorder()
    for number in range(4):
        step(record, number, None)
        record.call("tf_Compute/1", OP, number * 100 + 40, number * 100 + 50)  # 10 of 42
    assert len(bounces(record.trace())[0]) == 0


def test_copies_of_two_steps_are_no_bounce() -> None:
    record = Recorder()
    for number in range(5):
        at, first = number * 100, 10 * (number + 1)
        record.step("python", number, at, at + 99)
        record.call("python", "cuMemcpyHtoDAsync_v2", at + 2, at + 3, first)
        record.work(at + 4, at + 8, first, stream=1, klass=EventClass.COPY, copy_kind=CopyKind.H2D)
        record.launch("python", at + 5, at + 8, at + 50, first + 1)
        record.call("python", "cuMemcpyDtoHAsync_v2", at + 6, at + 7, first + 2)
        record.work(at + 50, at + 52, first + 2, stream=2, klass=EventClass.COPY, copy_kind=CopyKind.D2H)
        record.call("tf_Compute/2", OP, at + 60, at + 95)
    assert len(bounces(record.trace())[0]) == 0


def test_each_gpu_has_its_own() -> None:
    record = Recorder(gpus=2)
    for number in range(4):
        step(record, number, thread="tf_Compute/1")
        step(record, number, thread="tf_Compute/2", gpu=1, offset=3)
    trace = record.trace()
    found, _ = bounces(trace)
    assert found.device.tolist() == [0] * 4 + [1] * 4
    threads = trace.host_events.thread[found.op].tolist()
    assert [trace.threads[t].name for t in threads] == ["tf_Compute/1"] * 4 + ["tf_Compute/2"] * 4


def test_a_gpu_beside_it_has_none() -> None:
    record = Recorder(gpus=2)
    for number in range(4):
        step(record, number)
        step(record, number, None, thread="tf_Compute/2", gpu=1, offset=300)  # other copies at other times
    assert set(bounces(record.trace())[0].device.tolist()) == {0}


@settings(deadline=None)
@given(traces())
def test_any_trace(trace: Trace) -> None:
    analysis = analyse(trace)
    if analysis.bounces is None:
        return
    found, gaps = analysis.bounces, analysis.gaps
    assert (found.gap_part >= 0).all() and (found.gap_part <= gaps.end - gaps.start).all()
    assert (gaps.by_cause.sum(axis=1) == gaps.end - gaps.start).all()
    assert (gaps.by_cause >= 0).all()
    assert len(found.gap_part) == len(gaps)


@pytest.mark.parametrize("around", ["Iterator::Root::Map", "XlaCompile", "SaveV2"])
def test_what_runs_for_input_compilation_or_saving_is_theirs(around: str) -> None:
    record = Recorder()
    for number in range(4):
        step(record, number, op_thread="worker")
        record.call("worker", around, number * 100 + 33, number * 100 + 71)
        record.call("worker", "ExecutorState::Process", number * 100 + 34, number * 100 + 70.5)
    assert len(bounces(record.trace())[0]) == 0
