"""Steps that nobody marks, cut at what the host runs or at what kernels repeat: the true ones are known."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.results import Steps, Window
from tb_gpu_doctor.traces.columns import CopyKind, EventClass
from tests.analysis.small_traces import US, Recorder

# Of each framework: how a step shows on the host, and what the steps are cut at.
STYLES = {
    "keras": "train_function",
    "tf": "EagerExecute: __inference_train_step_17",
    "jax": "PjitFunction(train_step)",
    "torch": "Optimizer.step#AdamW.step",
    "inference": "nn.Module: Net_0",
}


@dataclass
class Known:
    """A recording and the step of each launch."""

    style: str
    steps: int
    record: Recorder
    step_of: dict[int, int] = field(default_factory=dict)

    def kernels(self, thread: str, step: int, at: float, layers: int, gpu: int = 0) -> float:
        """Launches of one step: the same four kernels a layer, 20 us each on the host and 40 us on a late GPU."""
        for layer in range(layers):
            for k in range(4):
                correlation = len(self.step_of) + 1
                self.step_of[correlation] = step
                call = at + 20 * (4 * layer + k)
                self.record.call(thread, "cuLaunchKernel", call, call + 5, correlation)
                begin = max(call + 8, self.free.get(gpu, 0.0))
                self.free[gpu] = begin + 40
                self.record.work(begin, begin + 40, correlation, gpu=gpu, name=f"layer_kernel_{k}")
        return at + 80 * layers

    free: dict[int, float] = field(default_factory=dict)


@st.composite
def recordings(draw: st.DrawFn) -> Known:
    """A host that runs steps of several layers, unevenly long pauses between them, and small functions beside them."""
    known = Known(draw(st.sampled_from(sorted(STYLES))), draw(st.integers(1, 7)), Recorder())
    record, at, style = known.record, float(draw(st.integers(0, 50))), known.style
    layers = draw(st.integers(1, 5))
    for step in range(known.steps):
        at += draw(st.sampled_from((5, 60, 700)))
        record.call("python", "DataLoader.__next__", at, at + 3)
        at += 4
        begin, length = at, 80 * layers
        if style == "keras":
            record.call("python", "train_function", at, at + length + 20)
            at = known.kernels("python", step, at + 10, layers) + 20
        elif style == "tf":
            record.call("python", "EagerExecute: __inference_metric_4", at, at + 2)
            record.call("python", "FunctionRun", at, at + 1)
            record.call("python", STYLES["tf"], at + 3, at + 10)
            record.call("python", "FunctionRun", at + 4, at + 6, producer_type=1, producer_id=step)
            # the executor lags two steps behind the Python thread
            late = at + 2 * length
            record.call(
                "tf_Compute/1", "ExecutorState::Process", late, late + length + 1, consumer_type=1, consumer_id=step
            )
            known.kernels("tf_Compute/1", step, late, layers)
            at += length
        elif style == "jax":
            record.call("python", STYLES["jax"], at, at + 9)
            record.call(
                "python",
                "PjRtStreamExecutorLoadedExecutable::Execute",
                at + 1,
                at + 8,
                producer_type=2,
                producer_id=step,
            )
            late = at + length
            record.call(
                "py_xla_execute/3", "PjRtStreamExecutorLoadedExecutable::ExecuteHelper", late, late + length + 1,
                consumer_type=2, consumer_id=step,
            )  # fmt: skip
            known.kernels("py_xla_execute/3", step, late, layers)
            at += length + 2
        elif style == "torch":
            at = known.kernels("python", step, at, layers) + 2
            record.call("python", STYLES["torch"], at, at + 90)
            at = known.kernels("python", step, at + 5, 1) + 10
        else:
            record.call("python", STYLES["inference"], at, at + length + 4)
            for block in range(layers):
                record.call("python", f"nn.Module: Block_{block}", at + 80 * block, at + 80 * block + 79)
            at = known.kernels("python", step, at, layers) + 5
        assert at > begin
    return known


@pytest.mark.slow
@given(recordings())
@settings(max_examples=150)
def test_steps_are_what_the_host_runs_once_each(known: Known) -> None:
    trace = known.record.trace()
    steps = analyse(trace).steps
    assert (steps.source, steps.cut_at, len(steps.number)) == ("inferred", STYLES[known.style], known.steps)
    assert steps.event_step.tolist() == [known.step_of[c] for c in trace.device_events.correlation.tolist()]


def steps_of(record: Recorder) -> Steps:
    return analyse(record.trace()).steps


def layers(record: Recorder, pieces: int, pause: float = 0.0, first: int = 0, last: str = "relu") -> None:
    """Pieces of four kernels each, launched one after the other, the GPU never late."""
    at, correlation = 0.0, 0
    for piece in range(pieces):
        at += pause
        for k in range(first if piece == 0 else 0, 4):
            correlation += 1
            record.launch("tf_Compute/1", at, at + 3, at + 40, correlation, name=("gemm", "norm", "gelu", last)[k])
            at += 45


def test_one_execution_is_one_step_however_many_layers_it_has() -> None:
    record = Recorder()
    layers(record, 24)
    record.call("tf_Compute/1", "train_function", 0, 24 * 4 * 45)
    result = analyse(record.trace())
    assert (result.steps.count, result.steps.cut_at) == (1, "train_function")


def test_what_only_repeats_may_be_layers() -> None:
    for pieces in (3, 10, 24, 60):
        record = Recorder()
        layers(record, pieces)
        assert steps_of(record).source == "none"


def test_pieces_with_a_pause_between_them_are_steps() -> None:
    record = Recorder()
    layers(record, 10, pause=300)
    steps = steps_of(record)
    assert (steps.source, steps.count, steps.cut_at) == ("inferred", 10, None)


def test_pieces_that_an_optimizer_ends_are_steps() -> None:
    record = Recorder()
    layers(record, 10, last="multi_tensor_apply_kernel<adam>")
    assert steps_of(record).count == 10


@pytest.mark.parametrize("name", ["IteratorGetNext", "cudaStreamSynchronize"])
def test_pieces_for_each_of_which_the_host_fetches_or_waits_are_steps(name: str) -> None:
    record = Recorder()
    layers(record, 10)
    for piece in range(10):
        record.call("python", name, 180 * piece + 20, 180 * piece + 30)
    assert steps_of(record).count == 10


def test_an_operator_of_each_layer_says_nothing() -> None:
    record = Recorder()
    layers(record, 10)
    for piece in range(10):
        record.call("python", "aten::softmax", 180 * piece + 20, 180 * piece + 30)
    assert steps_of(record).source == "none"


def test_pieces_with_a_batch_copied_in_are_steps() -> None:
    record = Recorder()
    layers(record, 10)
    for piece in range(10):
        record.work(
            180 * piece + 20,
            180 * piece + 30,
            stream=1,
            klass=EventClass.COPY,
            copy_kind=CopyKind.H2D,
            name="MemcpyH2D",
        )
    assert steps_of(record).count == 10


def test_a_first_and_a_last_step_that_the_recording_cuts_off_are_left_out() -> None:
    record = Recorder()
    at, correlation = 0.0, 0
    for step, kernels in enumerate((3, 8, 8, 8, 2)):
        for _ in range(kernels):
            correlation += 1
            record.launch("python", at, at + 4, at + 40, correlation, name="k")
            at += 50
        if step < 4:
            record.call("python", "Optimizer.step#SGD.step", at, at + 10)
        at += 20
    steps = steps_of(record)
    assert [bool(c) for c in steps.complete] == [False, True, True, True]
    assert len(steps.number) == 4


def test_of_two_optimizers_the_later_one_ends_a_step() -> None:
    record = Recorder()
    for step in range(5):
        for k, name in enumerate(("Optimizer.step#Adam.step", "Optimizer.step#SGD.step")):
            at = 200 * step + 100 * k
            record.launch("python", at, at + 5, at + 60, 1 + 2 * step + k)
            record.call("python", name, at + 70, at + 80)
    steps = steps_of(record)
    assert (steps.cut_at, len(steps.number)) == ("Optimizer.step#SGD.step", 5)
    assert steps.event_step.tolist() == [step for step in range(5) for _ in range(2)]


def test_replicas_on_several_threads_are_one_step() -> None:
    record = Recorder(gpus=2)
    for step in range(4):
        for gpu in range(2):
            at = 300 * step + 7 * gpu
            record.call(f"replica/{gpu}", "FunctionRun", at, at + 50)
            record.launch(f"replica/{gpu}", at + 5, at + 10, at + 200, 1 + 2 * step + gpu, gpu=gpu)
    steps = steps_of(record)
    assert (len(steps.number), steps.cut_at) == (4, "FunctionRun")
    assert steps.event_step.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]


def test_a_single_batch_is_one_step_and_what_follows_belongs_to_nobody() -> None:
    record = Recorder(recorded=(0, 5_000))
    record.call("python", "train_function", 100, 700)
    for k in range(10):
        record.launch("python", 110 + 50 * k, 120 + 50 * k, 160 + 50 * k, 1 + k)
    # the profiler stops, and what it copies for itself is no part of the step
    record.launch(
        "python", 3_000, 3_010, 3_020, 99, stream=1, klass=EventClass.COPY, copy_kind=CopyKind.D2H, name="MemcpyD2H"
    )
    result = analyse(record.trace())
    assert result.steps.count == 1 and result.steps.event_step.tolist() == [0] * 10 + [-1]
    assert result.window == Window(100 * US, 610 * US)


def test_gpus_that_begin_a_piece_earlier_or_later_keep_their_steps() -> None:
    for early in (0, 1):
        record = Recorder(gpus=2)
        for gpu in range(2):
            for piece in range(0 if gpu == early else 1, 11):
                for k in range(3):
                    at = 1_000 * piece + 100 * k
                    record.work(at, at + 90, gpu=gpu, name=("gemm", "norm", "gelu")[k])
        trace = record.trace()
        steps = analyse(trace).steps
        assert steps.source == "inferred"
        shift = 0 if len(steps.number) == 11 else 1
        true = (trace.device_events.start // (1_000 * US) - shift).tolist()
        assert steps.event_step.tolist() == [step if step >= 0 else -1 for step in true]
