"""A PyTorch training loop under DistributedDataParallel: one process and one GPU a rank, eager operators.

Per rank a main thread (loader, forward, optimizer) and autograd's thread (backward, which also
starts NCCL's all-reduce of each bucket of gradients). The ranks meet in the collectives only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from simulator.device import Collective, Device, Kernel, Work, launch
from simulator.engine import Process, Signal, Simulation, us
from simulator.host import HostThread
from simulator.items import Allocation, HostWork, driver_stats
from simulator.models import AllReduce
from simulator.torch_models import Operator, TorchModel
from simulator.truth import Marker

COPY_BYTES_PER_US = 21_000
COMPUTE_STREAM, NCCL_STREAM = 7, 20
_LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@dataclass(frozen=True)
class TorchRun:
    """What to run.

    Attributes:
        steps: how many steps.
        model: the operators of one step.
        loader_us: how long the loader keeps the main thread, by rank; ``ready_us`` for the others.
        op_us, launch_us: the host's time around a launch, and that of the call itself.
        copy_bytes: of a batch.
        look: whether ``loss.item()`` ends each step; ``values``: how many results are read so, one after the other.
        own: what Python does behind each step.
        allocation: a call of the driver's allocator behind the backward pass.
    """

    steps: int
    model: TorchModel
    loader_us: Mapping[int, float] = field(default_factory=dict)
    ready_us: float = 140.0
    op_us: float = 11.0
    launch_us: float = 4.4
    copy_bytes: int = 1_048_576
    look: bool = True
    values: int = 1
    own: HostWork | None = None
    allocation: Allocation | None = None
    first_step_number: int = 20


class TorchRank:
    """One process; ``markers`` fill up as it runs."""

    def __init__(self, program: TorchProgram, device: Device, process: int) -> None:
        self.device = device
        self.process = process
        self.markers: list[Marker] = []
        self._program = program
        self._run = program.run
        self._simulation = program.simulation
        self._compute = device.stream(COMPUTE_STREAM, "Compute,MemcpyH2D,MemcpyD2H")
        self._nccl = device.stream(NCCL_STREAM, "Compute")
        self._main = HostThread(self._simulation, f"python/{process}", process)
        self._autograd = HostThread(self._simulation, f"pt_autograd_0/{process + 318}", process + 318)
        self.threads = [self._main, self._autograd]
        self._last: Work | None = None
        self._collectives: list[Work] = []
        self._simulation.spawn(self._training())

    def _training(self) -> Process:
        thread, run, simulation = self._main, self._run, self._simulation
        yield from thread.spend(simulation.jitter(us(600), 0.1), "host_other")
        for step in range(run.steps):
            start = simulation.now
            number = run.first_step_number + step
            with thread.span("ProfilerStep", {"step_num": number, "_r": 1}):
                yield from self._batch(step)
                with thread.span("DistributedDataParallel.forward"):
                    yield from thread.spend(us(16), "launch")
                    for operator in run.model.forward:
                        yield from self._operator(thread, operator, step)
                yield from self._backward(step)
                if run.allocation is not None:
                    yield from run.allocation.run(thread, [work.done for work in self._running()])
                with thread.span("Optimizer.step#AdamW.step"):
                    yield from thread.spend(us(45), "launch")
                    for operator in run.model.optimizer:
                        yield from self._operator(thread, operator, step)
                for _ in range(run.values if run.look else 0):
                    yield from self._item(step)
                if run.own is not None:
                    yield from run.own.run(thread)
                yield from thread.spend(simulation.jitter(us(25), 0.2), "host_other")
            self.markers.append(Marker(number, start, simulation.now))
        with thread.span("cudaDeviceSynchronize", driver_stats(thread)):  # the profiler's own, when it stops
            yield from thread.synchronize([work.done for work in self._running()])

    def _running(self) -> list[Work]:
        return [*([self._last] if self._last else []), *self._collectives]

    def _batch(self, step: int) -> Process:
        thread, run = self._main, self._run
        with thread.span(_LOADER):
            wanted = run.loader_us.get(self.device.index, run.ready_us)
            yield from thread.spend(self._simulation.jitter(us(wanted), 0.06), "input")
        copy = Kernel(
            "MemcpyH2D",
            run.copy_bytes / COPY_BYTES_PER_US,
            copy="H2D",
            copy_bytes=run.copy_bytes,
            call="cudaMemcpyAsync",
            pinned=True,
        )
        yield from self._operator(thread, Operator(("aten::to", "aten::_to_copy", "aten::copy_"), (copy,)), step)

    def _backward(self, step: int) -> Process:
        """The main thread sleeps until autograd's thread has launched everything."""
        done = Signal()
        self._simulation.spawn(self._autograd_part(step, done))
        yield from self._main.wait(done)

    def _autograd_part(self, step: int, done: Signal) -> Process:
        thread = self._autograd
        self._collectives = []
        yield from thread.spend(self._simulation.jitter(us(12), 0.2), "launch")
        for operator in self._run.model.backward:
            yield from self._operator(thread, operator, step)
        self._simulation.fire(done, thread)

    def _item(self, step: int) -> Process:
        """``loss.item()``: a copy of four bytes and a wait for all that was launched before it."""
        thread = self._main
        copy = Kernel("MemcpyD2H", 1.6, copy="D2H", copy_bytes=4, call="cudaMemcpyAsync", pinned=False)
        with thread.span("aten::item"), thread.span("aten::_local_scalar_dense"):
            yield from thread.spend(us(3), "launch")
            copied = yield from launch(thread, self._compute, copy, step, 6.0, {})
            with thread.span("cudaStreamSynchronize", driver_stats(thread)):
                yield from thread.synchronize([copied.done])

    def _operator(self, thread: HostThread, operator: Operator, step: int) -> Process:
        around = self._simulation.jitter(us(self._run.op_us), 0.25)
        with ExitStack() as spans:
            for name in operator.names:
                spans.enter_context(thread.span(name))
            for kernel in operator.kernels:
                yield from thread.spend(us(around * 0.6 / 1e6), "launch")
                yield from self._launch(thread, kernel, step)
            yield from thread.spend(us(around * 0.2 / 1e6), "launch")
        yield from thread.spend(us(around * 0.2 / 1e6), "launch")

    def _launch(self, thread: HostThread, item: Kernel | AllReduce, step: int) -> Process:
        cost = self._run.launch_us
        if isinstance(item, AllReduce):
            shared = self._program.collective(step, len(self._collectives), item)
            behind = [self._last] if self._last is not None else []
            work = yield from launch(thread, self._nccl, item.kernel, step, cost, {}, behind, shared)
            self._collectives.append(work)
            return
        waits = self._collectives if item.joins else ()
        self._last = yield from launch(thread, self._compute, item, step, cost, {}, waits)


class TorchProgram:
    """All ranks of a job on one host."""

    def __init__(self, simulation: Simulation, devices: Sequence[Device], run: TorchRun, first_process: int) -> None:
        self.simulation = simulation
        self.run = run
        self._count = len(devices)
        self._met: dict[tuple[int, int], Collective] = {}
        self.ranks = [TorchRank(self, device, first_process + rank) for rank, device in enumerate(devices)]

    def collective(self, step: int, index: int, item: AllReduce) -> Collective:
        """The collective that is the step's n-th, shared by its ranks."""
        key = (step, index)
        if key not in self._met:
            transfer = self.simulation.jitter(us(item.micros), 0.02)
            self._met[key] = Collective(self.simulation, self._count, transfer)
        return self._met[key]
