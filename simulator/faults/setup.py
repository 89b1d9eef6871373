"""What is to be simulated, as data that faults can change: a style of training, its model, its GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from simulator import eager_program, jax_program, tf_program
from simulator.device import Device, Kernel
from simulator.eager_program import EagerProgram, EagerRun
from simulator.engine import Simulation
from simulator.exchange import Exchange
from simulator.export import HostClock, Recorder, WorkStats
from simulator.hardware import H100, Gpu
from simulator.host import HostThread, Interruption
from simulator.items import Graph
from simulator.jax_program import JaxProgram, JaxRun
from simulator.models import AllReduce, Item
from simulator.scenarios import SimulatedJob, SimulatedRun, finish, new_simulation
from simulator.tf_input import InputSpec
from simulator.tf_program import TfProgram, TfRun
from simulator.truth import Fault, Marker

Style = Literal["keras", "jax", "eager_tf", "eager_jax"]
Model = Callable[[int], Iterable[Item]]
_SESSION = ("2026_03_09_11_20_00", 1_773_055_200_000_000_000)


@dataclass(frozen=True)
class Setup:
    """A run before it is simulated.

    Attributes:
        style: framework and kind of training loop.
        gpus: how many GPUs train; ``unused`` more are in the machine.
        model: the items of one step for a GPU.
        run: fields of the style's run that differ from their defaults.
        target: the GPU that a fault of one GPU is planted on.
        slow: slowdown by GPU; slow_steps: by step, on all GPUs.
        spread: jitter of the kernels.
        serialized: the GPUs run one thing at a time.
        recorder: how the profiler is set up.
        processors: how many threads of the host run at once, 0 for enough.
        slow_at: slowdown by GPU and step.
        clocks: of the hosts that the GPUs are spread over, in equal parts; without any there is one.
        link_slowdown: how many times as long data moves between GPUs.
        lost_hosts: hosts whose files are missing.
        host_run: fields of the style's run of one host only.
        shared: turns of this and of another process on the GPUs, in microseconds.
    """

    style: Style
    gpus: int
    steps: int
    model: Model
    run: Mapping[str, Any] = field(default_factory=dict)
    unused: int = 0
    target: int = 0
    slow: Mapping[int, float] = field(default_factory=dict)
    slow_steps: Mapping[int, float] = field(default_factory=dict)
    spread: float = 0.012
    serialized: bool = False
    recorder: Recorder = field(default_factory=Recorder)
    gpu: Gpu = H100
    processors: int = 0
    slow_at: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    clocks: tuple[HostClock, ...] = ()
    link_slowdown: float = 1.0
    lost_hosts: frozenset[int] = frozenset()
    host_run: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    shared: tuple[float, float] | None = None

    @property
    def step_us(self) -> float:
        """What a GPU computes in a step, in microseconds."""
        return sum(_micros(item) for item in self.model(0))

    @property
    def recorded_steps(self) -> int:
        """The steps after the recording's begin."""
        return self.steps - self.recorder.skip

    @property
    def gpus_of_host(self) -> int:
        """How many GPUs each host has."""
        return self.gpus // max(1, len(self.clocks))

    def on_host(self, host: int) -> tuple[int, ...]:
        """The GPUs of one host."""
        return tuple(range(host * self.gpus_of_host, (host + 1) * self.gpus_of_host))

    @property
    def all_gpus(self) -> tuple[int, ...]:
        """The GPUs that train."""
        return tuple(range(self.gpus))

    def with_run(self, **changes: Any) -> Setup:
        """Other fields of the style's run."""
        return replace(self, run={**self.run, **changes})

    def with_interruption(self, interruption: Interruption) -> Setup:
        """One more thing that Python does between steps."""
        return self.with_run(interruptions=(*self.run.get("interruptions", ()), interruption))

    def with_items(self, *items: Item, at: float = 1.0, gpu: int | None = None) -> Setup:
        """More items in each step, at a place from 0 (first) to 1 (last), on all GPUs or on one."""
        before = self.model

        def model(replica: int) -> Iterable[Item]:
            known = list(before(replica))
            if gpu is not None and replica != gpu:
                return known
            # not behind the collectives' join
            end = next((i for i, item in enumerate(known) if isinstance(item, Kernel) and item.joins), len(known))
            place = round(end * at)
            return [*known[:place], *items, *known[place:]]

        return replace(self, model=model)


def _micros(item: Item) -> float:
    if isinstance(item, Graph):
        return sum(_micros(kernel) for kernel in item.kernels)
    return item.micros if isinstance(item, Kernel) and not item.copy else 0.0


def scaled(items: Iterable[Item], factor: float, collectives: bool = True) -> list[Item]:
    """Items with kernels and collectives that take longer or shorter."""
    found: list[Item] = []
    for item in items:
        if isinstance(item, Kernel):
            found.append(replace(item, micros=item.micros * factor))
        elif isinstance(item, AllReduce):
            if collectives:
                found.append(replace(item, micros=item.micros * factor))
        else:
            found.append(item)
    return found


@dataclass(frozen=True)
class _Process:
    """One host's part of a run: its GPUs and what its threads left behind."""

    devices: list[Device]
    threads: list[HostThread]
    markers: list[Marker]
    stats: WorkStats


def simulate(
    setup: Setup, name: str, seed: int, faults: tuple[Fault, ...] = (), later_s: int = 0
) -> SimulatedRun | SimulatedJob:
    """Runs a setup; equal arguments give an equal run. Several hosts, each with a process, make a job.

    ``later_s`` is how long after all others it began, by the wall clock.
    """
    session, start_unix_ns = _SESSION
    began = (session, start_unix_ns + later_s * 1_000_000_000)
    simulation = new_simulation(seed)
    simulation.processors = setup.processors
    if not setup.clocks:
        exchange = Exchange(simulation, setup.gpus, setup.link_slowdown)
        process = _process(setup, simulation, setup.all_gpus, setup.unused, setup.run, exchange)
        simulation.run()
        threads, markers = process.threads, process.markers
        return finish(name, *began, process.devices, threads, markers, faults, process.stats, setup.recorder)
    exchange = Exchange(simulation, setup.gpus, setup.link_slowdown, _END_SPREAD_US)
    processes = [
        _process(setup, simulation, setup.on_host(host), 0, {**setup.run, **setup.host_run.get(host, {})}, exchange)
        for host in range(len(setup.clocks))
    ]
    simulation.run()
    hosts = tuple(
        finish(
            name, *began, p.devices, p.threads, p.markers, (), p.stats, setup.recorder, f"gpu-node-{host}",
            setup.clocks[host],
        )
        for host, p in enumerate(processes)
        if host not in setup.lost_hosts
    )  # fmt: skip
    return SimulatedJob(name, session, hosts, replace(hosts[0].truth, faults=faults))


def _process(
    setup: Setup,
    simulation: Simulation,
    gpus: Sequence[int],
    unused: int,
    run: Mapping[str, Any],
    exchange: Exchange,
) -> _Process:
    """The program that trains on some of the GPUs, which it counts from 0."""
    devices = [
        Device(
            simulation,
            index,
            setup.gpu,
            setup.slow.get(gpu, 1.0),
            setup.spread,
            {**setup.slow_steps, **setup.slow_at.get(gpu, {})},
            setup.serialized,
            setup.shared,
        )
        for index, gpu in enumerate([*gpus, *range(setup.gpus, setup.gpus + unused)])
    ]
    used = devices[: len(gpus)]
    run = {key: _own(value, gpus) if key in _BY_GPU else value for key, value in run.items()}

    def model(replica: int) -> Iterable[Item]:
        return setup.model(gpus[replica])

    if setup.style == "keras":
        tf = TfProgram(simulation, used, TfRun(steps=setup.steps, plan=model, **{"input": FAST, **run}), exchange)
        return _Process(devices, tf.threads, tf.markers, tf_program.framework_stats)
    if setup.style == "jax":
        jax_run = JaxRun(steps=setup.steps, plan=lambda: model(0), plan_of=model, **run)
        jax = JaxProgram(simulation, used, jax_run, exchange)
        return _Process(devices, jax.threads, jax.markers, jax_program.framework_stats)
    dialect: Literal["tensorflow", "jax"] = "tensorflow" if setup.style == "eager_tf" else "jax"
    eager_run = EagerRun(steps=setup.steps, plan=lambda: model(0), dialect=dialect, **run)
    eager = EagerProgram(simulation, used, eager_run)
    return _Process(devices, eager.threads, eager.markers, eager_program.framework_stats)


def _own(by_gpu: Mapping[int, Any], gpus: Sequence[int]) -> dict[int, Any]:
    return {index: by_gpu[gpu] for index, gpu in enumerate(gpus) if gpu in by_gpu}


# Fields of a style's run that go by GPU, and within how many microseconds ranks of a job see a collective's end.
_BY_GPU = ("late_host", "late_input", "copy_factor")
_END_SPREAD_US = 4.0
# An input pipeline that is always ahead.
FAST = InputSpec(elements=8, map_us=300, parallelism=4, buffer=4, ready=3, read_us=20)
