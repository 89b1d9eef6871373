"""Healthy runs that faults are planted in: small models in each style of training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from simulator.device import Kernel
from simulator.export import Recorder
from simulator.faults.plant import Shape
from simulator.faults.setup import FAST, Model, Setup, Style, scaled
from simulator.jax_models import transformer
from simulator.models import AllReduce, Item, all_reduce, eigen, resnet

_TINY_US = 7.5
# Steps before the recording begins: until then the GPU had nothing queued.
WARM_UP = 2


def base(style: Style, gpus: int, shape: Shape, steps: int, rng: Random) -> Setup:
    """A healthy run; ``rng`` varies its size and jitter."""
    factor, spread = rng.uniform(0.8, 1.25), rng.choice((0.006, 0.012, 0.025))
    setup = Setup(
        style,
        gpus,
        steps + WARM_UP,
        _model(style, gpus, shape, factor),
        target=rng.randrange(gpus),
        spread=spread,
        recorder=Recorder(skip=WARM_UP),
    )
    if style == "keras":
        setup = setup.with_run(input=FAST, copy_bytes=2_097_152, callback_us=300.0)
    if shape == "tiny":  # launched faster than the GPU runs it
        fast = {"launch_us": 2.0, "thunk_us": 0.8} if style == "jax" else {"launch_us": 2.2, "op_us": 1.6}
        setup = setup.with_run(**fast, copy_bytes=65_536)
    return setup


def varied(setup: Setup, rng: Random, cut: bool) -> Setup:
    """Now and then a recording that begins and ends in the middle of a step, or keeps driver calls apart."""
    recorder = replace(setup.recorder, driver_threads=setup.style in ("jax", "eager_jax") and rng.random() < 0.25)
    if cut and rng.random() < 0.3:
        return replace(setup, steps=setup.steps + 2, recorder=replace(recorder, cut=(0.31, 0.93)))
    return replace(setup, recorder=recorder)


def _model(style: Style, gpus: int, shape: Shape, factor: float) -> Model:
    def model(replica: int) -> Iterable[Item]:
        if shape == "tiny":
            items = list(tiny(gpus, style == "keras"))
        elif shape == "forked":
            items = list(forked(gpus))
        elif style == "jax":
            items = scaled(transformer(2), 0.42 * factor)
        else:
            items = scaled(resnet(replica, 3, exchange_us=260), factor)
        return items if gpus > 1 else [item for item in items if not isinstance(item, AllReduce)]

    return model


def tiny(gpus: int, keras: bool, kernels: int = 150) -> Iterable[Item]:
    """Many short kernels."""
    for i in range(kernels):
        name = ("mul", "add", "tanh", "sub")[i % 4]
        op = f"cell/{name}_{i}/{name.title()}:{name.title()}"
        yield replace(eigen(op, f"scalar_{name}_op", _TINY_US), hlo_op=f"loop_{name}_fusion.{i}")
    if gpus > 1:
        yield all_reduce("grads/CollectiveReduceV2:CollectiveReduceV2", 30, "all-reduce-start.1")
    last = eigen("adam/Sub:Sub", "scalar_difference_op", _TINY_US)
    yield replace(last, hlo_op="loop_subtract_fusion", joins=True)


def forked(gpus: int, groups: int = 14) -> Iterable[Item]:
    """Groups of independent kernels on three streams between kernels that fill the GPU."""
    for i in range(groups):
        yield _plain(f"dense_{i}", 160, 264)
        for branch in ("a", "b", "c"):
            yield replace(_plain(f"branch_{branch}_{i}", 190, 44), side=branch)
        yield replace(_plain(f"concat_{i}", 90, 528), joins=True)
    if gpus > 1:
        yield all_reduce("grads/CollectiveReduceV2:CollectiveReduceV2", 60, "all-reduce-start.1")
    yield replace(_plain("update", 120, 528), joins=True)


def _plain(name: str, micros: float, blocks: int) -> Kernel:
    return Kernel(
        f"{name.rsplit('_', 1)[0]}_kernel",
        micros,
        (blocks, 1, 1),
        (512, 1, 1),
        40,
        op=f"net/{name}/Op:Op",
        hlo_op=f"{name.rsplit('_', 1)[0]}_fusion.{name.rsplit('_', 1)[-1]}",
    )
