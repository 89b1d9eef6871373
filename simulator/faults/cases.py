"""All cases: each fault alone at several strengths, pairs of faults, and healthy controls.

A case and a seed make a run. What the run's faults cost comes from the simulator alone: the
same run is simulated again without the fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from zlib import crc32

from simulator.faults.bases import base, varied
from simulator.faults.device_faults import DEVICE_FAULTS, PROFILE_FAULTS
from simulator.faults.healthy import healthy_setups
from simulator.faults.host_faults import HOST_FAULTS
from simulator.faults.job_faults import JOB_FAULTS, LAYOUTS, healthy_jobs, on_hosts
from simulator.faults.kernel_faults import KERNEL_FAULTS
from simulator.faults.lost_time import LOST_TIME_FAULTS
from simulator.faults.plant import STRENGTHS, Plant
from simulator.faults.setup import Setup, Style, simulate
from simulator.scenarios import SimulatedJob, SimulatedRun

PLANTS: dict[str, Plant] = {
    plant.id: plant
    for plant in (
        *HOST_FAULTS,
        *DEVICE_FAULTS,
        *KERNEL_FAULTS,
        *LOST_TIME_FAULTS,
        *PROFILE_FAULTS,
        *JOB_FAULTS,
    )
}


@dataclass(frozen=True)
class Planted:
    """A fault of a case.

    Attributes:
        plant: what.
        strength: ``mild``, ``medium`` or ``strong``, or a share as in ``8%``.
    """

    plant: Plant
    strength: str

    @property
    def share(self) -> float:
        """The share of the step that it was asked to cost."""
        return STRENGTHS.get(self.strength) or float(self.strength.rstrip("%")) / 100


@dataclass(frozen=True)
class Case:
    """One run, but for the seed.

    Attributes:
        name: unique, and enough to find it again.
        planted: the faults; empty for a healthy control.
        start: the setup before anything is planted.
        style, gpus, hosts: of the setup.
    """

    name: str
    planted: tuple[Planted, ...]
    start: Callable[[Random], Setup]
    style: Style
    gpus: int
    hosts: int = 1

    def setup(self, seed: int, without: int | None = None) -> Setup:
        """The setup with all faults, or all but one."""
        setup = self.start(Random(f"{self.name}/{seed}"))
        for index, planted in enumerate(self.planted):
            if index != without:
                setup = planted.plant.apply(setup, planted.share)
        return setup

    def run(self, seed: int) -> SimulatedRun | SimulatedJob:
        """The run."""
        setup = self.setup(seed)
        faults = tuple(planted.plant.fault(setup) for planted in self.planted)
        return simulate(setup, self.name, self._number(seed), faults)

    def costs(self, seed: int, run: SimulatedRun | SimulatedJob) -> tuple[float, ...]:
        """What each fault costs, as a share of the run's time: by simulating it without the fault."""
        found = []
        for index, planted in enumerate(self.planted):
            if not planted.plant.timed:
                found.append(planted.share)
                continue
            better = simulate(self.setup(seed, without=index), self.name, self._number(seed))
            found.append(1 - _per_step(better) / _per_step(run))
        return tuple(found)

    def _number(self, seed: int) -> int:
        return crc32(self.name.encode()) + seed


def _per_step(run: SimulatedRun | SimulatedJob) -> float:
    low, high = run.truth.window
    return (high - low) / run.truth.steps


def _case(style: Style, gpus: int, *planted: tuple[str, str], hosts: int = 1) -> Case:
    chosen = tuple(Planted(PLANTS[name], strength) for name, strength in planted)
    shapes = {item.plant.shape for item in chosen} - {"large"}
    shape = shapes.pop() if shapes else "large"
    steps = max(item.plant.steps for item in chosen)
    name = "+".join(f"{name}.{strength}" for name, strength in planted)
    about_profile = any(item.plant.scope == "none" for item in chosen)

    def start(rng: Random) -> Setup:
        setup = base(style, gpus, shape, steps, rng)
        setup = varied(setup, rng, cut=steps == 6 and not about_profile)
        return on_hosts(setup, hosts, rng) if hosts > 1 else setup

    return Case(f"{name}/{style}/{gpus}{f'x{hosts}' if hosts > 1 else ''}", chosen, start, style, gpus, hosts)


# Shares of the step, and jitter of the kernels, at which it is tried what can still be seen.
FAINT = (2, 4, 8, 16)
_FAINT_JITTER = (0.01, 0.03)


def faint_cases() -> dict[str, Case]:
    """Each plant of lost time at shares of the step from far below the rules' thresholds to above them, on one GPU."""
    found = {}
    for plant in LOST_TIME_FAULTS:
        for style in plant.styles:
            for percent in FAINT:
                case = _case(style, 1, (plant.id, f"{percent}%"))
                found[case.name] = replace(case, start=_more_jitter(case.start))
    return found


def _more_jitter(start: Callable[[Random], Setup]) -> Callable[[Random], Setup]:
    def jittery(rng: Random) -> Setup:
        setup = start(rng)
        return replace(setup, spread=rng.uniform(*_FAINT_JITTER))

    return jittery


def _singles() -> list[Case]:
    found = []
    for plant in PLANTS.values():
        if plant in JOB_FAULTS and plant.kind == "imbalance":
            continue
        number = crc32(plant.id.encode())  # not its place: a new plant must not rename the others' cases
        for place, style in enumerate(plant.styles):
            for step, strength in enumerate(STRENGTHS):
                allowed = [n for n in (1, 2, 4, 8) if plant.min_gpus <= n <= plant.max_gpus]
                # every count is used, the large ones less often: they take longest
                order = (0, 1, 2, 1, 0, 3, 1, 2)
                gpus = allowed[order[(number + place + 3 * step) % len(order)] % len(allowed)]
                found.append(_case(style, 1 if style.startswith("eager") else gpus, (plant.id, strength)))
    return found


_PAIRS: tuple[tuple[Style, int, tuple[str, str], tuple[str, str]], ...] = (
    ("keras", 4, ("imbalance.slow_gpu", "strong"), ("input_bound.map", "strong")),
    ("keras", 2, ("imbalance.slow_gpu", "medium"), ("sync_stall.numpy", "strong")),
    ("keras", 1, ("checkpoint_stall.callback", "strong"), ("input_bound.map", "medium")),
    ("keras", 1, ("input_bound.map", "medium"), ("compile_stall.retrace", "strong")),
    ("keras", 1, ("input_bound.no_prefetch", "medium"), ("op_placement.bounce", "strong")),
    ("keras", 1, ("sync_stall.numpy", "medium"), ("transfer_bound.pageable", "strong")),
    ("keras", 2, ("sync_stall.op", "strong"), ("transfer_bound.outputs", "mild")),
    ("keras", 2, ("op_placement.bounce", "strong"), ("imbalance.uneven_work", "medium")),
    ("keras", 2, ("checkpoint_stall.ops", "strong"), ("imbalance.slow_gpu", "mild")),
    ("keras", 1, ("low_occupancy.registers", "medium"), ("input_bound.reader", "strong")),
    ("keras", 2, ("idle_gpus.unused", "medium"), ("input_bound.map", "medium")),
    ("keras", 1, ("step_outliers.pause", "mild"), ("sync_stall.driver", "strong")),
    ("keras", 2, ("compile_stall.retrace", "medium"), ("checkpoint_stall.callback", "strong")),
    ("keras", 1, ("launch_bound.slow", "strong"), ("input_bound.map", "strong")),
    ("jax", 2, ("input_bound.loader", "strong"), ("imbalance.slow_gpu", "strong")),
    ("jax", 1, ("low_occupancy.shared", "medium"), ("input_bound.loader", "strong")),
    ("jax", 1, ("sync_stall.block", "strong"), ("transfer_bound.pageable", "mild")),
    ("jax", 2, ("sync_stall.float", "medium"), ("checkpoint_stall.orbax", "strong")),
    ("jax", 2, ("compile_stall.recompile", "strong"), ("imbalance.uneven_work", "mild")),
    ("jax", 1, ("underfilled_gpu.blocks", "medium"), ("compile_stall.xla", "medium")),
    ("jax", 2, ("transfer_bound.asarray", "strong"), ("imbalance.slow_gpu", "mild")),
    ("jax", 1, ("input_bound.loader", "medium"), ("sync_stall.block", "medium")),
    ("jax", 2, ("launch_bound.slow", "strong"), ("sync_stall.float", "medium")),
    ("jax", 2, ("idle_gpus.unused", "medium"), ("sync_stall.block", "medium")),
    ("jax", 1, ("checkpoint_stall.orbax", "medium"), ("input_bound.reader", "medium")),
    ("jax", 2, ("no_steps.markers", "medium"), ("input_bound.loader", "strong")),
    ("jax", 2, ("no_steps.markers", "medium"), ("sync_stall.float", "strong")),
    ("keras", 2, ("no_steps.markers", "medium"), ("transfer_bound.pageable", "strong")),
    ("eager_tf", 1, ("sync_stall.often", "medium"), ("input_bound.loader", "strong")),
    ("eager_tf", 1, ("op_placement.bounce", "medium"), ("input_bound.map", "medium")),
    ("eager_tf", 1, ("launch_bound.slow", "strong"), ("checkpoint_stall.callback", "mild")),
    ("eager_jax", 1, ("sync_stall.float", "medium"), ("transfer_bound.pageable", "medium")),
)


def _jobs() -> list[Case]:
    """Faults over several hosts: what holds the others back, and what only looks like it."""
    found = []
    named = [plant for plant in PLANTS.values() if plant.kind == "imbalance" or plant in JOB_FAULTS]
    for plant in named:
        for place, style in enumerate(plant.styles):
            for step, strength in enumerate(STRENGTHS):
                layouts = [layout for layout in LAYOUTS if layout[0] >= plant.min_gpus]
                gpus, hosts = layouts[(crc32(plant.id.encode()) + place + 2 * step) % len(layouts)]
                found.append(_case(style, gpus, (plant.id, strength), hosts=hosts))
    return found


@cache
def all_cases() -> dict[str, Case]:
    """Every case by name."""
    found = [*_singles(), *(_case(style, gpus, first, second) for style, gpus, first, second in _PAIRS)]
    found += _jobs()
    for name, start in healthy_setups().items():
        style, gpus = name.split("/")[1:]
        found.append(Case(name, (), start, style, int(gpus)))  # type: ignore[arg-type]
    found += [Case(name, (), start, style, gpus, n) for name, (style, gpus, n, start) in healthy_jobs().items()]
    return {case.name: case for case in found}
