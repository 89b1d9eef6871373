"""Jobs over several hosts: what can go wrong between them, and controls in which only the clocks are apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

from simulator.device import Kernel
from simulator.engine import ms
from simulator.export import HostClock
from simulator.faults.bases import base
from simulator.faults.plant import Plant, extra_us, longer_us
from simulator.faults.setup import Setup, Style
from simulator.host import Interruption
from simulator.items import HostWork
from simulator.models import AllReduce, Item

# GPUs and hosts of the jobs.
LAYOUTS: tuple[tuple[int, int], ...] = ((2, 2), (4, 2), (4, 4), (8, 2), (8, 4))
# What data movement alone may take of a healthy step, where it is exposed.
_SMALL_EXCHANGE = 0.025


def on_hosts(setup: Setup, hosts: int, rng: Random) -> Setup:
    """The same run over several hosts: recordings begin within milliseconds, clocks are apart and run unevenly."""
    clocks = tuple(
        HostClock(
            delay_ps=ms(rng.uniform(0, 2.0)) if host else 0,
            skew_ns=round(rng.uniform(-9e6, 9e6)),
            drift_ppm=rng.choice((0.0, 0.0, rng.uniform(-30, 30))),
        )
        for host in range(hosts)
    )
    return replace(setup, clocks=clocks)


def exposed_exchange(setup: Setup, micros: float) -> Setup:
    """One collective at the end of each step, beside which nothing runs."""
    model = setup.model

    def exposed(replica: int) -> Iterable[Item]:
        items = list(model(replica))
        rest = [item for item in items if not isinstance(item, AllReduce)]
        last = next(item for item in items if isinstance(item, AllReduce))
        place = next(i for i, item in enumerate(rest) if isinstance(item, Kernel) and item.joins)
        return [*rest[:place], AllReduce(replace(last.kernel, micros=micros), micros), *rest[place:]]

    return replace(setup, model=exposed)


def big_exchange(setup: Setup, share: float) -> Setup:
    """More data to move than can be hidden."""
    return exposed_exchange(setup, extra_us(setup, share))


def slow_link(setup: Setup, share: float) -> Setup:
    """One host's link is slow, and all wait for the data that crosses it."""
    small = setup.step_us * _SMALL_EXCHANGE
    return replace(exposed_exchange(setup, small), link_slowdown=1 + extra_us(setup, share) / small)


def slow_half(setup: Setup, share: float) -> Setup:
    """Every other GPU computes more slowly."""
    return replace(setup, slow={gpu: 1 / (1 - share) for gpu in range(0, setup.gpus, 2)})


def slow_host(setup: Setup, share: float) -> Setup:
    """All GPUs of the target's host compute more slowly."""
    return replace(setup, slow={gpu: 1 / (1 - share) for gpu in _host_of_target(setup)})


def late_process(setup: Setup, share: float) -> Setup:
    """Python on the target's host does something else before each step."""
    host = setup.target // setup.gpus_of_host
    work = Interruption(0, ("$train.py:140 gather_metrics",), longer_us(setup, share) / 1e3, "host_other", every=1)
    return replace(setup, host_run={host: {"interruptions": (work,)}})


def late_loader(setup: Setup, share: float) -> Setup:
    """The data loader of the target's host is slow."""
    host = setup.target // setup.gpus_of_host
    loader = HostWork(("$loader.py:57 __next__", "$transforms.py:204 resize"), longer_us(setup, share), "input")
    return replace(setup, host_run={host: {"loader": loader}})


def now_and_then(setup: Setup, share: float) -> Setup:
    """The same GPU computes more slowly in some of the steps."""
    steps = _slow_steps(setup)
    factor = 1 + setup.recorded_steps / len(steps) * share / (1 - share)
    return replace(setup, slow_at={setup.target: dict.fromkeys(steps, factor)})


def by_turns(setup: Setup, share: float) -> Setup:
    """In each step another GPU computes more slowly."""
    rng = Random(f"turns/{setup.target}/{setup.gpus}")
    slow: dict[int, dict[int, float]] = {}
    order: list[int] = []
    for step in range(setup.steps):
        if not order:
            order = rng.sample(range(setup.gpus), setup.gpus)
        slow.setdefault(order.pop(), {})[step] = 1 / (1 - share)
    return replace(setup, slow_at=slow)


def _slow_steps(setup: Setup) -> list[int]:
    first = setup.recorder.skip
    return [step for step in range(first, setup.steps) if (step - first) % 3 == 1]


def _host_of_target(setup: Setup) -> tuple[int, ...]:
    return setup.on_host(setup.target // setup.gpus_of_host)


# Steps enough to tell a habit from chance; the exchange has faults of its own.
JOB_FAULTS = (
    Plant("communication_bound", "exchange", big_exchange, scope="all", min_gpus=2),
    Plant("communication_bound", "slow_link", slow_link, scope="all", min_gpus=2),
    Plant("imbalance", "slow_half", slow_half, cause="slow_gpu", scope="even", min_gpus=2),
    Plant("imbalance", "slow_host", slow_host, cause="slow_gpu", scope="host", min_gpus=2),
    Plant("imbalance", "late_process", late_process, ("jax",), cause="late_host", scope="host", min_gpus=2,
          also=("launch_bound", "sync_stall")),
    Plant("imbalance", "late_loader", late_loader, ("jax",), cause="late_input", scope="host", min_gpus=2,
          also=("input_bound",)),
    Plant("imbalance", "sporadic", now_and_then, cause="slow_gpu", scope="target", min_gpus=2, steps=24),
    Plant("imbalance", "by_turns", by_turns, scope="nobody", min_gpus=4, steps=12),
)  # fmt: skip


def _plain(setup: Setup) -> Setup:
    return setup


def _jittery(setup: Setup) -> Setup:
    return replace(setup, spread=0.05)


def _small_exchange(setup: Setup) -> Setup:
    return exposed_exchange(setup, setup.step_us * _SMALL_EXCHANGE)


def _slightly_slow(setup: Setup) -> Setup:
    return replace(setup, slow={setup.target: 1.02})


def _no_markers(setup: Setup) -> Setup:
    return replace(setup, recorder=replace(setup.recorder, markers=False))


def _lost_host(setup: Setup) -> Setup:
    """One file is missing; its GPUs were like the others."""
    host = (setup.target // setup.gpus_of_host) or 1
    return replace(setup, lost_hosts=frozenset({host}))


_CONTROLS: tuple[tuple[str, Callable[[Setup], Setup]], ...] = (
    ("plain", _plain),
    ("jittery", _jittery),
    ("small_exchange", _small_exchange),
    ("slightly_slow", _slightly_slow),
    ("no_markers", _no_markers),
    ("lost_host", _lost_host),
)


def healthy_jobs() -> dict[str, tuple[Style, int, int, Callable[[Random], Setup]]]:
    """Controls by name: style, GPUs, hosts, and the setup."""
    found: dict[str, tuple[Style, int, int, Callable[[Random], Setup]]] = {}
    number = 0
    for name, change in _CONTROLS:
        for style in ("keras", "jax"):
            for _ in range(2):
                gpus, hosts = LAYOUTS[number % len(LAYOUTS)]
                number += 1
                if name == "lost_host" and hosts < 4:
                    gpus, hosts = 8, 4

                def start(
                    rng: Random, style: Style = style, gpus: int = gpus, hosts: int = hosts,
                    change: Callable[[Setup], Setup] = change,
                ) -> Setup:  # fmt: skip
                    return change(on_hosts(base(style, gpus, "large", 6, rng), hosts, rng))

                found[f"healthy.{name}/{style}/{gpus}x{hosts}"] = style, gpus, hosts, start
    return found
