"""Runs in which nothing is wrong, of many shapes: the controls on which a doctor must keep quiet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

from simulator.device import Kernel
from simulator.faults.bases import base, forked
from simulator.faults.setup import FAST, Setup, Style, scaled
from simulator.host import Interruption
from simulator.items import Graph, HostWork, StepSync
from simulator.jax_models import transformer
from simulator.models import AllReduce, Item, resnet
from simulator.tf_input import InputSpec

Change = Callable[[Setup], Setup]


def _plain(setup: Setup) -> Setup:
    return setup


def _deep_prefetch(setup: Setup) -> Setup:
    spec = InputSpec(elements=8, map_us=900, parallelism=4, buffer=8, ready=6)
    return setup.with_run(**{"input" if setup.style == "keras" else "tf_data": spec})


def _busy_input(setup: Setup) -> Setup:
    """Input that keeps up, at two thirds of its limit."""
    spec = replace(FAST, map_us=setup.step_us / 8 * 4 * 0.66, ready=2, spread=0.2)
    return setup.with_run(**{"input" if setup.style == "keras" else "tf_data": spec})


def _hidden_loader(setup: Setup) -> Setup:
    return setup.with_run(loader=HostWork(("$loader.py:57 __next__",), setup.step_us * 0.6, "input"))


def _far_ahead(setup: Setup) -> Setup:
    return setup.with_run(ahead=4)


def _jittery(setup: Setup) -> Setup:
    return replace(setup, spread=0.05)


def _short_steps(setup: Setup) -> Setup:
    before = setup.model
    return replace(setup, steps=12, model=lambda replica: scaled(before(replica), 0.3)).with_run(
        copy_bytes=262_144, **({"python_us": 90.0} if setup.style == "jax" else {"callback_us": 60.0})
    )


def _long_steps(setup: Setup) -> Setup:
    before = setup.model
    return replace(setup, model=lambda replica: scaled(before(replica), 6.0))


def _late_exchange(setup: Setup) -> Setup:
    """A little communication that nothing hides."""
    model = setup.model

    def exposed(replica: int) -> Iterable[Item]:
        items = list(model(replica))
        hidden = [item for item in items if not isinstance(item, AllReduce)]
        last = next(item for item in items if isinstance(item, AllReduce))
        place = next(i for i, item in enumerate(hidden) if isinstance(item, Kernel) and item.joins)
        kernel = replace(last.kernel, micros=setup.step_us * 0.025)
        return [*hidden[:place], AllReduce(kernel, setup.step_us * 0.025), *hidden[place:]]

    return replace(setup, model=exposed)


def _graphs(setup: Setup) -> Setup:
    model = setup.model

    def graphed(replica: int) -> Iterable[Item]:
        rest: list[Item] = []
        group: list[Kernel] = []
        number = 7
        for item in model(replica):
            if isinstance(item, Kernel) and not item.joins and not item.copy:
                group.append(item)
                if len(group) < 12:
                    continue
                rest.append(Graph(tuple(group), number))
            else:
                rest += [Graph(tuple(group), number), item] if group else [item]
            group, number = [], number + 1
        return [*rest, Graph(tuple(group), number)] if group else rest

    return replace(setup, model=graphed)


def _tiny_but_fast(setup: Setup) -> Setup:
    """Short kernels, yet long enough that the GPU's own pauses between them take less than a tenth of the time."""
    return replace(setup, model=lambda replica: scaled(setup.model(replica), 4.0))


def _rare_look(setup: Setup) -> Setup:
    """The loss is read every sixth step, and Python goes on at once."""
    names = ("$ops.py:412 numpy",) if setup.style != "jax" else ("$array.py:350 __float__",)
    return replace(setup, steps=12).with_run(sync=StepSync(names, copy_bytes=0, every=6))


def _quick_save(setup: Setup) -> Setup:
    """A checkpoint that the run-ahead hides."""
    names = ("EagerLocalExecute: SaveV2",) if setup.style != "jax" else ("$checkpoint_manager.py:1161 save",)
    return setup.with_interruption(Interruption(3, names, setup.step_us * 0.4 / 1e3, "checkpoint"))


def _slightly_slow(setup: Setup) -> Setup:
    return replace(setup, slow={setup.target: 1.02})


def _driver_threads(setup: Setup) -> Setup:
    return replace(setup, recorder=replace(setup.recorder, driver_threads=True))


def _no_markers(setup: Setup) -> Setup:
    return replace(setup, recorder=replace(setup.recorder, markers=False))


def _cut(setup: Setup) -> Setup:
    """The recording begins and ends in the middle of a step."""
    return replace(setup, recorder=replace(setup.recorder, cut=(0.31, 0.91)))


def _streams(setup: Setup) -> Setup:
    return replace(setup, model=lambda replica: _filling(setup.gpus))


def _filling(gpus: int) -> Iterable[Item]:
    """`forked`, with branches that fill the GPU, so that only the streams are special."""
    for item in forked(gpus):
        if isinstance(item, Kernel):
            yield replace(item, grid=(528, 1, 1))
        elif gpus > 1:
            yield item


def _overlapped_copies(setup: Setup) -> Setup:
    """Big pinned copies beside the kernels of the step before."""
    return setup.with_run(copy_bytes=round(setup.step_us * 0.5 * 22_000))


def _big_resnet(setup: Setup) -> Setup:
    return replace(setup, steps=5, model=lambda replica: scaled(resnet(replica, 6, exchange_us=300), 0.8))


def _big_transformer(setup: Setup) -> Setup:
    return replace(setup, steps=5, model=lambda _: scaled(transformer(4), 0.5))


_SHAPES: tuple[tuple[str, Style, int, Change], ...] = (
    ("plain", "keras", 1, _plain),
    ("plain", "keras", 2, _plain),
    ("plain", "keras", 4, _plain),
    ("plain", "keras", 8, _plain),
    ("plain", "jax", 1, _plain),
    ("plain", "jax", 2, _plain),
    ("plain", "jax", 4, _plain),
    ("plain", "jax", 8, _plain),
    ("plain", "eager_tf", 1, _plain),
    ("plain", "eager_jax", 1, _plain),
    ("deep_prefetch", "keras", 2, _deep_prefetch),
    ("deep_prefetch", "jax", 1, _deep_prefetch),
    ("busy_input", "keras", 1, _busy_input),
    ("busy_input", "jax", 1, _busy_input),
    ("busy_input", "eager_tf", 1, _busy_input),
    ("hidden_loader", "jax", 2, _hidden_loader),
    ("far_ahead", "jax", 1, _far_ahead),
    ("far_ahead", "jax", 4, _far_ahead),
    ("jittery", "keras", 1, _jittery),
    ("jittery", "keras", 4, _jittery),
    ("jittery", "jax", 4, _jittery),
    ("short_steps", "keras", 1, _short_steps),
    ("short_steps", "jax", 2, _short_steps),
    ("long_steps", "keras", 2, _long_steps),
    ("long_steps", "jax", 1, _long_steps),
    ("late_exchange", "keras", 4, _late_exchange),
    ("late_exchange", "jax", 2, _late_exchange),
    ("graphs", "jax", 1, _graphs),
    ("graphs", "jax", 4, _graphs),
    ("rare_look", "keras", 1, _rare_look),
    ("rare_look", "jax", 2, _rare_look),
    ("quick_save", "keras", 1, _quick_save),
    ("quick_save", "jax", 2, _quick_save),
    ("slightly_slow", "keras", 4, _slightly_slow),
    ("slightly_slow", "jax", 8, _slightly_slow),
    ("driver_threads", "keras", 2, _driver_threads),
    ("driver_threads", "jax", 4, _driver_threads),
    ("no_markers", "keras", 2, _no_markers),
    ("no_markers", "jax", 2, _no_markers),
    ("cut", "keras", 2, _cut),
    ("cut", "jax", 1, _cut),
    ("streams", "keras", 1, _streams),
    ("streams", "jax", 2, _streams),
    ("overlapped_copies", "keras", 1, _overlapped_copies),
    ("big", "keras", 4, _big_resnet),
    ("big", "jax", 4, _big_transformer),
    ("short_kernels", "jax", 1, _tiny_but_fast),
    ("short_kernels", "keras", 2, _tiny_but_fast),
)


def healthy_setups() -> dict[str, Callable[[Random], Setup]]:
    """All controls by name; the random numbers vary size and jitter."""

    def maker(name: str, style: Style, gpus: int, change: Change) -> Callable[[Random], Setup]:
        shape = "tiny" if name == "short_kernels" else "large"
        return lambda rng: change(base(style, gpus, shape, 6, rng))  # type: ignore[arg-type]

    return {f"healthy.{name}/{style}/{gpus}": maker(name, style, gpus, change) for name, style, gpus, change in _SHAPES}
