"""What the rules ask: framework, names of GPUs, advice that fits, and what the host did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tb_gpu_doctor.analysis.file_columns import HostCalls
from tb_gpu_doctor.diagnosis.model import GpuRef
from tb_gpu_doctor.traces.columns import HostThread, StringTable, Trace, device_events, host_events
from tests.diagnosis.build import MS, marked_steps, profile
from tests.hosts import context_of


@pytest.mark.parametrize(
    ("names", "framework"),
    [(("PjitFunction(train_step)",), "jax"), (("ExecutorState::Process",), "tensorflow"), (("kernel",), None),
     # a JAX training that reads through tf.data is a JAX training
     (("PjitFunction(f)", "IteratorGetNext"), "jax")],
)  # fmt: skip
def test_the_framework_is_read_from_names(names: tuple[str, ...], framework: str | None) -> None:
    assert context_of(profile(1, names=names, host_event="work")).framework == framework


def test_pytorch_is_told_by_the_format() -> None:
    made = profile(1, names=("aten::add", "jax/", "IteratorGetNext"), host_event="work")
    torch = context_of(replace(made, trace=replace(made.trace, format="kineto")))
    assert torch.framework == "pytorch" and not torch.uses_keras
    given = [
        p.key.rpartition(".")[2]
        for p in torch.advice("transfer_bound", "pinned@", "layouts", "donate@jax", "keep_on_gpu")
    ]
    assert given == ["pinned_pytorch", "layouts_pytorch", "keep_on_gpu"]


def test_advice_fits_the_framework() -> None:
    def ids(*names: str) -> list[str]:
        context = context_of(profile(1, names=names, host_event="work"))
        return [p.key.rpartition(".")[2] for p in context.advice("k", "plain", "both@", "mine@jax", "yours@tensorflow")]

    assert ids("PjitFunction(f)") == ["plain", "both_jax", "mine_jax"]
    assert ids("EagerExecute") == ["plain", "both_tensorflow", "yours_tensorflow"]
    assert ids() == ["plain", "both_tensorflow", "both_jax", "mine_jax", "yours_tensorflow"]


def test_hosts_are_named_where_there_are_several() -> None:
    one, two = context_of(profile(2)), context_of(profile(2, label="a"), profile(2, label="b"))
    assert not one.names([GpuRef("worker0", 0)]).show_host
    assert two.names([GpuRef("a", 0)]).show_host
    assert two.names([GpuRef("a", 0)]).total == 4


def test_the_busiest_host_events_are_outermost_ones_outside_the_window() -> None:
    names = ["load", "inner", "train", "ThreadpoolListener::Record", "save"]
    rows = [  # thread, start, duration, name
        (0, 0, 100, 0), (0, 10, 80, 1), (0, 100, 500, 2), (0, 620, 30, 4),
        (1, 0, 90, 3), (1, 640, 40, 4),
    ]  # fmt: skip
    thread, start, duration, name = zip(*rows, strict=True)
    made = Trace(
        path="", host="", format="xplane", strings=StringTable.of(names), devices=(), streams=(),
        device_events=device_events(0), threads=(HostThread(0, 1, "a"), HostThread(1, 2, "b")),
        host_events=host_events(len(rows), thread=thread, start=start, duration=duration, name=name),
    )  # fmt: skip
    calls = HostCalls(made)
    assert calls.busiest([(0, 100), (600, 700)]) == (("load", 100), ("save", 70))
    assert calls.busiest([(50, 40)]) == ()


def test_steps_without_any_gpu_take_no_time() -> None:
    steps = marked_steps(0, 4, 100 * MS, 0)
    assert steps.durations().tolist() == [0, 0, 0, 0]
    assert marked_steps(2, 0, 100 * MS, 0).durations().tolist() == []
