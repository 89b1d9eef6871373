"""What is planted costs what was asked for, and the truth of it does not depend on any analysis."""

from __future__ import annotations

from random import Random

import pytest

from simulator.engine import Process, Signal, Simulation
from simulator.faults.bases import base
from simulator.faults.cases import PLANTS, Case, all_cases
from simulator.faults.plant import STRENGTHS
from simulator.faults.setup import Setup, simulate
from simulator.host import HostThread
from simulator.items import HostWork, Synchronize
from simulator.truth import Accounting

pytestmark = pytest.mark.slow


def accounts(name: str, seed: int = 0) -> list[Accounting]:
    run = all_cases()[name].run(seed)
    return [run.truth.accounting(gpu.gpu) for gpu in run.truth.gpus if gpu.events]


def named(start: str) -> Case:
    """The case with one fault whose name starts so."""
    return next(case for name, case in all_cases().items() if name.startswith(f"{start}/"))


def test_case_names_find_their_cases_and_every_plant_is_used() -> None:
    cases = all_cases()
    assert all(name == case.name for name, case in cases.items())
    used = {planted.plant.id for case in cases.values() for planted in case.planted}
    assert used == set(PLANTS)
    strengths = {(planted.plant.id, planted.strength) for case in cases.values() for planted in case.planted}
    assert all((plant, strength) in strengths for plant in PLANTS for strength in STRENGTHS)


def test_a_case_and_a_seed_make_the_same_bytes() -> None:
    case = named("sync_stall.block.medium/jax")
    first, again, other = (case.run(seed).space.encode() for seed in (3, 3, 4))
    assert first == again != other


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("input_bound.map.strong/keras", "input"),
        ("input_bound.loader.strong/jax", "input"),
        ("sync_stall.numpy.mild/keras", "sync"),
        ("sync_stall.often.strong/eager_tf", "sync"),
        ("compile_stall.recompile.mild/jax", "compile"),
        ("checkpoint_stall.callback.strong/keras", "checkpoint"),
        ("op_placement.bounce.medium/eager_tf", "sync"),
        ("launch_bound.slow.strong/jax", "launch"),
    ],
)
def test_the_ledger_agrees_with_simulating_the_run_without_the_fault(name: str, cause: str) -> None:
    case = named(name)
    run = case.run(0)
    (cost,) = case.costs(0, run)
    for account in accounts(case.name):
        wall = account.end - account.start
        assert account.idle_by_cause[cause] / wall == pytest.approx(cost, abs=0.09)
        assert account.idle - account.idle_by_cause[cause] < 0.06 * wall


def test_stronger_plants_cost_more() -> None:
    for plant in ("sync_stall.float", "transfer_bound.pageable", "imbalance.slow_gpu"):
        costs = []
        for strength in STRENGTHS:
            case = named(f"{plant}.{strength}/jax")
            costs += case.costs(1, case.run(1))
        assert costs == sorted(costs)
        assert costs[0] > 0.05


@pytest.mark.parametrize("name", [name for name, case in all_cases().items() if not case.planted and "/8" not in name])
def test_controls_are_healthy(name: str) -> None:
    for account in accounts(name):
        wall = account.end - account.start
        assert account.communication < 0.07 * wall
        assert account.idle - account.idle_by_cause["kernel_gap"] < 0.05 * wall


def test_work_after_a_wait_that_drained_the_queue_counts_as_sync() -> None:
    setup = eager()
    (account,) = [simulate(setup, "x", 1).truth.accounting(0)]
    work = HostWork(("$train.py:7 think",), 2_000, "host_other")
    looked = simulate(setup.with_items(Synchronize(("cuStreamSynchronize",)), work, at=0.5), "x", 1)
    found = looked.truth.accounting(0)
    assert account.idle_by_cause["sync"] < 1e9
    assert found.idle_by_cause["sync"] == pytest.approx(setup.recorded_steps * 2.03e9, rel=0.12)
    assert found.idle_by_cause["host_other"] == 0


def test_the_same_work_without_the_wait_is_hidden() -> None:
    setup = eager()
    busy = setup.with_items(HostWork(("$train.py:7 think",), 2_000, "host_other"), at=0.5)
    found = simulate(busy, "x", 1).truth.accounting(0)
    assert found.idle < 0.02 * (found.end - found.start)


def eager() -> Setup:
    return base("eager_tf", 1, "large", 5, Random(1))


def test_an_early_wait_drains_nothing() -> None:
    simulation = Simulation(0)
    thread = HostThread(simulation, "python", 1)
    old, last = Signal(), Signal()

    def device() -> Process:
        yield 10_000_000
        simulation.fire(old)
        yield 90_000_000
        simulation.fire(last)

    def host() -> Process:
        yield from thread.synchronize([old], 1.0)
        yield from thread.spend(200_000_000, "launch")

    simulation.spawn(device())
    simulation.spawn(host())
    simulation.run()
    # the device ran out of work at 100 us; the wait was over at 11 us
    assert thread.drained_at(100_000_000, 200_000_000) is None
    assert thread.drained_at(10_000_000, 200_000_000) == 11_000_000
