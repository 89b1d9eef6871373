"""Streams, dependencies, collectives and occupancy."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import pytest

from simulator.device import KERNEL_GAP, QUEUE_DEPTH, Collective, Device, Kernel, Work, launch
from simulator.engine import Process, Simulation, us
from simulator.hardware import A100, H100, Gpu, active_blocks
from simulator.host import HostThread

GOLDEN = Path(__file__).resolve().parent.parent / "data" / "occupancy_golden_sample.csv"


def one_gpu(seed: int = 1) -> tuple[Simulation, HostThread, Device]:
    simulation = Simulation(seed)
    return simulation, HostThread(simulation, "python", 1), Device(simulation, 0, H100)


def test_a_stream_is_first_in_first_out_and_pauses_between_kernels() -> None:
    simulation, thread, device = one_gpu()
    stream = device.stream(7, "Compute")
    names = [f"k{i}" for i in range(50)]

    def host() -> Process:
        for i, name in enumerate(names):
            yield from launch(thread, stream, Kernel(name, 3 + i % 11), 0, 4.0, {})

    simulation.spawn(host())
    simulation.run()
    assert [work.kernel.name for work in device.work] == names
    for before, after in pairwise(stream.history):
        assert after.start >= before.end + KERNEL_GAP // 3
    assert all(work.start >= work.ready > work.called for work in stream.history)


def test_a_full_queue_blocks_the_host() -> None:
    simulation, thread, device = one_gpu()
    stream = device.stream(7, "Compute")
    deepest = 0

    def host() -> Process:
        nonlocal deepest
        for _ in range(QUEUE_DEPTH + 200):
            yield from launch(thread, stream, Kernel("long", 100), 0, 1.0, {})
            deepest = max(deepest, stream.unfinished)

    simulation.spawn(host())
    simulation.run()
    assert deepest == QUEUE_DEPTH
    assert any(segment.cause == "sync" for segment in thread.ledger)


def test_a_dependency_holds_work_back() -> None:
    simulation, thread, device = one_gpu()
    copies, compute = device.stream(7, "MemcpyH2D"), device.stream(8, "Compute")
    found: list[Work] = []

    def host() -> Process:
        copy = Kernel("MemcpyH2D", 500, copy="H2D", copy_bytes=1)
        found.append((yield from launch(thread, copies, copy, 0, 4.0, {})))
        found.append((yield from launch(thread, compute, Kernel("k", 5), 0, 4.0, {}, [found[0]])))

    simulation.spawn(host())
    simulation.run()
    copied, kernel = found
    assert kernel.start == kernel.dependencies_met > copied.end > kernel.ready


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_a_collective_ends_everywhere_at_once_after_the_last_arrival(ranks: int) -> None:
    simulation = Simulation(3)
    devices = [Device(simulation, i, H100, slowdown=1 + 0.2 * i) for i in range(ranks)]
    transfer = us(80)
    shared = Collective(simulation, ranks, transfer)

    def host(device: Device) -> Process:
        thread = HostThread(simulation, f"t{device.index}", device.index)
        stream = device.stream(7, "Compute")
        yield from launch(thread, stream, Kernel("gemm", 900), 0, 4.0, {})
        yield from launch(thread, stream, Kernel("nccl", 1, communication=True), 0, 4.0, {}, collective=shared)

    for device in devices:
        simulation.spawn(host(device))
    simulation.run()
    calls = [device.work[-1] for device in devices]
    assert len({work.end for work in calls}) == 1
    assert calls[0].end == max(work.start for work in calls) + transfer


@pytest.mark.parametrize(("gpu", "capability"), [(H100, ("9", "0")), (A100, ("8", "0"))])
def test_occupancy_agrees_with_nvidia(gpu: Gpu, capability: tuple[str, str]) -> None:
    if not GOLDEN.exists():
        pytest.skip("the golden occupancy sample is not present")
    checked = 0
    with GOLDEN.open() as file:
        for row in csv.DictReader(file):
            if (row["cc_major"], row["cc_minor"]) != capability:
                continue
            shared = int(row["static_shared_bytes"]) + int(row["dynamic_shared_bytes"])
            blocks = active_blocks(gpu, int(row["registers_per_thread"]), shared, int(row["block_threads"]))
            expected = 0 if row["error"] != "0" else int(row["active_blocks_per_sm"])
            assert blocks == expected, row
            checked += 1
    assert checked > 10
