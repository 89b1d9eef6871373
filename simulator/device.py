"""GPUs: streams that run work in order, launches, dependencies and collectives."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

from simulator.engine import Process, Signal, Simulation, us
from simulator.hardware import Gpu
from simulator.host import HostThread
from simulator.xplane_writer import Stats, Unsigned

QUEUE_DEPTH = 1_024
LAUNCH_LATENCY = us(3.2)
EVENT_LATENCY = us(1.1)
KERNEL_GAP = us(1.3)


@dataclass(frozen=True)
class Kernel:
    """What is launched: a kernel, or a copy when ``copy_bytes`` is not 0.

    Attributes:
        name: as the profiler records it.
        micros: duration on a GPU in good order, in microseconds.
        op: framework op, ``scope/MatMul:MatMul`` (TF) or the JAX name stack.
        hlo_op: XLA's name (JAX dialect).
        copy: ``H2D`` or ``D2H``.
        call: the host API that launches it.
        joins: waits for all collectives and side streams of its step that were launched before it.
        side: name of the side stream that it runs on; empty for the main one.
        pinned: the host memory of a copy is page-locked.
        blocking: the call returns when the work is done.
    """

    name: str
    micros: float
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (128, 1, 1)
    registers: int = 32
    static_shared_bytes: int = 0
    dynamic_shared_bytes: int = 0
    op: str = ""
    hlo_op: str = ""
    copy: str = ""
    copy_bytes: int = 0
    communication: bool = False
    call: str = "cuLaunchKernel"
    joins: bool = False
    side: str = ""
    pinned: bool = False
    blocking: bool = False

    @property
    def category(self) -> str:
        """``compute``, ``communication`` or ``transfer``."""
        return "transfer" if self.copy else "communication" if self.communication else "compute"


class Collective:
    """One collective over several GPUs: each rank starts alone, all end together, within ``end_spread_ps``."""

    def __init__(self, simulation: Simulation, ranks: int, transfer_ps: int, end_spread_ps: int = 0) -> None:
        self._simulation = simulation
        self._missing = ranks
        self._transfer_ps = transfer_ps
        self._end_spread_ps = end_spread_ps
        self.done = Signal()

    def arrive(self) -> None:
        """A rank has started; the last one starts the transfer."""
        self._missing -= 1
        if not self._missing:
            self._simulation.spawn(self._finish())

    def leave_delay(self) -> int:
        """How long after the first a rank sees the end."""
        return self._simulation.random.randrange(0, self._end_spread_ps + 1, 1_000) if self._end_spread_ps else 0

    def _finish(self) -> Process:
        yield self._transfer_ps
        self._simulation.fire(self.done)


@dataclass
class Work:
    """One launched kernel or copy and why it started when it did.

    Attributes:
        called: when the host entered the launch call; ready: when the GPU knew of it.
        dependencies_met: when the last event it waited for had passed (-1: none).
        let_in: when another process gave the GPU back that had kept this from starting (-1: none had).
        step: index of the training step it belongs to.
        graph: (id, node) of the CUDA graph that it was launched in.
    """

    kernel: Kernel
    stream: Stream
    thread: HostThread
    correlation: int
    called: int
    ready: int
    step: int
    dependencies: Sequence[Work] = ()
    collective: Collective | None = None
    dependencies_met: int = -1
    let_in: int = -1
    graph: tuple[int, int] | None = None
    start: int = -1
    end: int = -1
    done: Signal = field(default_factory=Signal)


class Stream:
    """A hardware queue: its work runs one after the other, in the order of the launches."""

    def __init__(self, device: Device, line_id: int, kinds: str) -> None:
        self.device = device
        self.line_id = line_id
        self.name = f"Stream #{line_id}({kinds})"
        self.history: list[Work] = []
        self.unfinished = 0
        self.freed = Signal()
        self._queue: deque[Work] = deque()
        self._arrived = Signal()
        device.simulation.spawn(self._run())

    def enqueue(self, work: Work) -> None:
        """Hands work over; it runs when it is ready and all before it is done."""
        self._queue.append(work)
        self.history.append(work)
        self.unfinished += 1
        arrived, self._arrived = self._arrived, Signal()
        self.device.simulation.fire(arrived)

    def _run(self) -> Process:
        simulation = self.device.simulation
        free_at = 0
        while True:
            if not self._queue:
                yield self._arrived
                continue
            work = self._queue.popleft()
            if work.ready > simulation.now:
                yield work.ready - simulation.now
            for other in work.dependencies:
                if other.done.fired_at is None:
                    yield other.done
                    yield EVENT_LATENCY
                    work.dependencies_met = simulation.now
            if free_at > simulation.now:
                yield free_at - simulation.now
            asked = simulation.now
            yield from self.device.enter()
            if self.device.shared is not None and simulation.now > asked:
                work.let_in = simulation.now
            work.start = simulation.now
            if work.collective is not None:
                work.collective.arrive()
                yield work.collective.done
                delay = work.collective.leave_delay()
                if delay:
                    yield delay
            else:
                yield self.device.duration(work.kernel, work.step)
            work.end = simulation.now
            self.device.leave()
            self.unfinished -= 1
            simulation.fire(work.done)
            freed, self.freed = self.freed, Signal()
            simulation.fire(freed)
            free_at = simulation.now + simulation.jitter(KERNEL_GAP, 0.15)


class Device:
    """One GPU.

    ``slowdown`` stretches its kernels (not its copies and collectives), ``slow_steps`` those of some
    steps; a ``serialized`` GPU runs one thing at a time, as under a profiler that asks for it. A ``shared`` one
    belongs to another process in turns: (microseconds for this one, microseconds for the other); what runs ends first.
    """

    def __init__(
        self,
        simulation: Simulation,
        index: int,
        gpu: Gpu,
        slowdown: float = 1.0,
        spread: float = 0.012,
        slow_steps: Mapping[int, float] | None = None,
        serialized: bool = False,
        shared: tuple[float, float] | None = None,
    ) -> None:
        self.shared = shared
        self._turn_ends = simulation.now + us(shared[0]) if shared is not None else 0
        self._left_at = 0
        self.simulation = simulation
        self.index = index
        self.gpu = gpu
        self.slowdown = slowdown
        self.spread = spread
        self.streams: list[Stream] = []
        self._slow_steps = dict(slow_steps or {})
        self._serialized = serialized
        self._running = False
        self._left = Signal()

    def stream(self, line_id: int, kinds: str) -> Stream:
        """Opens a stream."""
        self.streams.append(Stream(self, line_id, kinds))
        return self.streams[-1]

    def enter(self) -> Process:
        """Waits until the GPU may start something more."""
        while self._serialized and self._running:
            yield self._left
        if self.shared is not None:
            own, other = (us(micros) for micros in self.shared)
            if self._turn_ends <= self.simulation.now:
                back = max(self._turn_ends, self._left_at) + other
                if back > self.simulation.now:
                    yield back - self.simulation.now
                self._turn_ends = max(self._turn_ends, self.simulation.now + own)
        self._running = True

    def leave(self) -> None:
        """Something has ended."""
        self._running = False
        self._left_at = self.simulation.now
        left, self._left = self._left, Signal()
        self.simulation.fire(left)

    def duration(self, kernel: Kernel, step: int = -1) -> int:
        """How long this run of the kernel takes."""
        factor = 1.0 if kernel.category == "transfer" else self.slowdown * self._slow_steps.get(step, 1.0)
        return max(us(0.9), self.simulation.jitter(us(kernel.micros * factor), self.spread))

    @property
    def work(self) -> list[Work]:
        """All finished work, by start."""
        finished = (work for stream in self.streams for work in stream.history if work.end >= 0)
        return sorted(finished, key=lambda work: (work.start, work.stream.line_id))


def launch(
    thread: HostThread,
    stream: Stream,
    kernel: Kernel,
    step: int,
    cost_us: float,
    stats: Stats,
    dependencies: Sequence[Work] = (),
    collective: Collective | None = None,
) -> Generator[int | Signal, None, Work]:
    """A launch call on a host thread: costs host time, waits while the stream's queue is full."""
    simulation = thread.simulation
    while stream.unfinished >= QUEUE_DEPTH:
        yield from thread.wait(stream.freed, "sync")
    correlation = simulation.serial()
    called = simulation.now
    cost = simulation.jitter(us(cost_us), 0.12)
    known = {"device_id": stream.device.index, "correlation_id": Unsigned(correlation), **stats}
    with thread.span(kernel.call, known):
        ready = called + max(simulation.jitter(LAUNCH_LATENCY, 0.1), cost // 2)
        work = Work(kernel, stream, thread, correlation, called, ready, step, tuple(dependencies), collective)
        stream.enqueue(work)
        yield from thread.spend(cost, "launch")
        if kernel.blocking:
            yield from thread.synchronize([work.done])
    return work


def launch_graph(
    thread: HostThread,
    stream: Stream,
    kernels: Sequence[Kernel],
    step: int,
    cost_us: float,
    graph: int,
    stats: Stats,
    dependencies: Sequence[Work] = (),
) -> Generator[int | Signal, None, Work]:
    """One call that launches all kernels of a CUDA graph, under one correlation id; returns the last."""
    simulation = thread.simulation
    while stream.unfinished >= QUEUE_DEPTH:
        yield from thread.wait(stream.freed, "sync")
    correlation, called = simulation.serial(), simulation.now
    cost = simulation.jitter(us(cost_us), 0.12)
    known = {"device_id": stream.device.index, "correlation_id": Unsigned(correlation), **stats}
    with thread.span("cuGraphLaunch", known):
        ready = called + max(simulation.jitter(LAUNCH_LATENCY, 0.1), cost // 2)
        for node, kernel in enumerate(kernels):
            waits = tuple(dependencies) if not node else ()
            work = Work(kernel, stream, thread, correlation, called, ready, step, waits, graph=(graph, node))
            stream.enqueue(work)
        yield from thread.spend(cost, "launch")
    return work
