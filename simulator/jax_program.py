"""A JAX training loop with one jitted step over several GPUs, as JAX runs and profiles it.

python marks a step and hands the executable to one thread per GPU, which launches the
step's kernels, often after the marker has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from simulator.device import Collective, Device, Kernel, Stream, Work, launch
from simulator.engine import Process, Queue, Signal, Simulation, us
from simulator.exchange import Exchange
from simulator.host import HostThread, Interruption
from simulator.items import HostWork, StepSync
from simulator.launcher import Launching, StepLauncher
from simulator.models import AllReduce, Item
from simulator.tf_input import InputPipeline, InputSpec
from simulator.truth import Marker
from simulator.xplane_writer import Ref, Stats, StatValue, Unsigned

PJRT = 5  # the profiler's context type of PjRt
MODULE = "jit_train_step"
PROGRAM_ID = 17
COPY_BYTES_PER_US = 24_000
_EXECUTABLE = "PjRtStreamExecutorLoadedExecutable"


@dataclass(frozen=True)
class JaxRun:
    """What to run.

    Attributes:
        steps: how many steps.
        plan: kernels of one step.
        ahead: how many steps Python may run ahead of the GPUs.
        copy_bytes: input of one step and GPU.
        thunk_us, launch_us: host time of one thunk around its launch, and of the launch call.
        python_us: Python's own time in a step.
        interruptions: what else Python does between steps.
        plan_of: kernels of one step by GPU, where they differ.
        blocking_copy: the input is copied by a call that returns when it is there.
        sync: what Python looks at after each step.
        loader: how Python makes the next batch; ``tf_data`` where it asks tf.data for it instead.
        late_host: by GPU, what the thread that runs its executable does first.
        copy_factor: by GPU, how much longer its input's copy takes.
    """

    steps: int
    plan: Callable[[], Iterable[Item]]
    ahead: int = 2
    copy_bytes: int = 1_048_576
    thunk_us: float = 2.2
    launch_us: float = 3.8
    python_us: float = 350.0
    first_step_number: int = 100
    interruptions: tuple[Interruption, ...] = ()
    plan_of: Callable[[int], Iterable[Item]] | None = None
    blocking_copy: bool = False
    sync: StepSync | None = None
    loader: HostWork | None = None
    tf_data: InputSpec | None = None
    late_host: Mapping[int, HostWork] = field(default_factory=dict)
    copy_factor: Mapping[int, float] = field(default_factory=dict)

    def items(self, device: int) -> Iterable[Item]:
        """Kernels of one step on one GPU."""
        return self.plan() if self.plan_of is None else self.plan_of(device)


@dataclass
class _Execution:
    """One GPU's part of one step."""

    step: int
    producer: int
    batch: Work


class JaxProgram:
    """Builds the threads of the run; ``markers`` fill up as it runs.

    ``exchange``: the collectives, when GPUs of other programs take part in them.
    """

    def __init__(
        self, simulation: Simulation, devices: Sequence[Device], run: JaxRun, exchange: Exchange | None = None
    ) -> None:
        self._simulation = simulation
        self._devices = devices
        self._run = run
        self.threads: list[HostThread] = []
        self.markers: list[Marker] = []
        self._exchange = exchange or Exchange(simulation, len(devices))
        self._finished: dict[tuple[int, int], Signal] = {
            (device.index, step): Signal() for device in devices for step in range(run.steps)
        }
        self._copies = [device.stream(13 + 8 * device.index, "MemcpyH2D") for device in devices]
        self._compute = [device.stream(14 + 8 * device.index, "Compute") for device in devices]
        self._nccl = [device.stream(17 + 8 * device.index, "Compute") for device in devices]
        self._downloads = [device.stream(18 + 8 * device.index, "MemcpyD2H") for device in devices]
        self._sides = [self._side_streams(device) for device in devices]
        self._inboxes: list[Queue[_Execution]] = [Queue(simulation, run.steps) for _ in devices]
        self._python = self._thread("python", numbered=False)
        self._tf_data = InputPipeline(simulation, run.tf_data, 1, self._thread) if run.tf_data else None
        for device in devices:
            simulation.spawn(self._execute(device))
        simulation.spawn(self._training())

    def _thread(self, name: str, numbered: bool = True) -> HostThread:
        number = self._simulation.random.getrandbits(64) - (1 << 63)
        self.threads.append(HostThread(self._simulation, f"{name}/{number}" if numbered else name, number))
        return self.threads[-1]

    def _training(self) -> Process:
        thread, simulation, run = self._python, self._simulation, self._run
        yield from thread.spend(us(1_800), "host_other")
        for step in range(run.steps):
            inside = [item for item in run.interruptions if item.inside and item.is_due(step)]
            for interruption in run.interruptions:
                if not interruption.inside:
                    yield from interruption.before(step, thread)
            yield from self._next_batch(thread)
            if step >= run.ahead:
                with thread.span("$api.py:2839 block_until_ready"):
                    for device in self._devices:
                        yield from thread.wait(self._finished[device.index, step - run.ahead], "sync")
            number = run.first_step_number + step
            start = simulation.now
            with ExitStack() as spans:
                spans.enter_context(thread.span("train", {"step_num": number, "_r": 1}))
                yield from thread.spend(us(5), "launch")
                spans.enter_context(thread.span("PjitFunction(train_step)"))
                for interruption in inside:
                    yield from interruption.before(step, thread)
                yield from thread.spend(simulation.jitter(us(run.python_us * 0.6), 0.1), "launch")
                with thread.span("ParseArguments"):
                    yield from thread.spend(us(6), "launch")
                with thread.span("shard_args"):
                    batches = []
                    for device in self._devices:
                        with thread.span("DevicePut"):
                            batches.append((yield from self._put_batch(thread, device.index, step)))
                producer = simulation.serial() << 8
                with thread.span(f"{_EXECUTABLE}::Execute", {"_pt": PJRT, "_p": Unsigned(producer)}):
                    yield from thread.spend(us(14), "launch")
                    for inbox, batch in zip(self._inboxes, batches, strict=True):
                        yield from thread.spend(simulation.jitter(us(3), 0.3), "launch")
                        inbox.put(_Execution(step, producer, batch), thread)
                yield from thread.spend(us(run.python_us * 0.4), "launch")
            self.markers.append(Marker(number, start, simulation.now))
            if run.sync is not None and run.sync.is_due(step):
                yield from self._look(thread, run.sync, step)
        for device in self._devices:
            yield from thread.wait(self._finished[device.index, run.steps - 1], "sync")
        yield from thread.spend(us(1_200), "host_other")

    def _side_streams(self, device: Device) -> dict[str, Stream]:
        names = {item.side for item in self._run.items(device.index) if isinstance(item, Kernel)} - {""}
        first = 200 + 8 * device.index
        return {name: device.stream(first + i, "Compute") for i, name in enumerate(sorted(names))}

    def _next_batch(self, thread: HostThread) -> Process:
        if self._run.loader is not None:
            yield from self._run.loader.run(thread)
        if self._tf_data is not None:
            with (
                thread.span("$dataset_ops.py:4786 __next__"),
                thread.span("EagerLocalExecute: IteratorGetNext"),
                thread.span("IteratorGetNextOp::DoCompute"),
                thread.span("Iterator::Root"),
                thread.span("Iterator::Root::Prefetch"),
            ):
                yield from self._tf_data.next_element(thread, self._tf_data.shards[0])

    def _look(self, thread: HostThread, sync: StepSync, step: int) -> Process:
        """Python waits for the step's end, then for a copy of its result from each GPU."""
        yield from StepSync(sync.events).run(thread, [self._finished[d.index, step] for d in self._devices])
        if not sync.copy_bytes:
            return
        call = sync.call or "cuMemcpyDtoH_v2"
        copy = Kernel("MemcpyD2H", sync.micros, copy="D2H", copy_bytes=sync.copy_bytes, call=call, blocking=True)
        for _ in range(sync.values):
            with ExitStack() as spans:
                for name in sync.events:
                    spans.enter_context(thread.span(name))
                for stream in self._downloads:
                    yield from launch(thread, stream, copy, step, 6.0, {"context_id": _context(stream)})

    def _put_batch(self, thread: HostThread, device: int, step: int) -> Launching:
        run, size = self._run, self._run.copy_bytes
        copy = Kernel(
            "MemcpyH2D",
            size / COPY_BYTES_PER_US * run.copy_factor.get(device, 1.0),
            copy="H2D",
            copy_bytes=size,
            call="cuMemcpyHtoD_v2" if run.blocking_copy else "cuMemcpyHtoDAsync_v2",
            blocking=run.blocking_copy,
        )
        stream = (self._compute if run.blocking_copy else self._copies)[device]
        return (yield from launch(thread, stream, copy, step, 6.0, {"context_id": _context(stream)}))

    def _execute(self, device: Device) -> Process:
        """The thread that runs the executable for one GPU."""
        thread = self._thread("py_xla_execute")
        inbox = self._inboxes[device.index]
        while True:
            execution = yield from thread.take(inbox)
            with ExitStack() as spans:
                spans.enter_context(thread.span(f"{_EXECUTABLE}::ExecuteHelper"))
                yield from thread.spend(us(9), "launch")
                if device.index in self._run.late_host:
                    yield from self._run.late_host[device.index].run(thread)
                known: Stats = {"_ct": PJRT, "_c": Unsigned(execution.producer)}
                spans.enter_context(thread.span(f"{_EXECUTABLE}::EnqueueExecution", known))
                for name, time in (("ComputeSemaphoreAcquire", 1), ("Build buffer allocations", 18)):
                    with thread.span(name):
                        yield from thread.spend(us(time), "launch")
                spans.enter_context(thread.span("GpuExecutable::ExecuteThunks", {"module_name": Ref(MODULE)}))
                yield from thread.spend(us(2), "launch")
                spans.enter_context(thread.span(f"{MODULE}:XLA GPU module"))
                with thread.span("Thunks::Initialize"):
                    yield from thread.spend(us(5), "launch")
                yield from self._thunks(thread, device.index, execution)
            last = self._compute[device.index].history[-1]
            finished = self._finished[device.index, execution.step]
            self._simulation.spawn(_relay(self._simulation, last.done, finished))

    def _thunks(self, thread: HostThread, device: int, execution: _Execution) -> Process:
        step = execution.step
        streams = {
            "compute": self._compute[device],
            "communication": self._nccl[device],
            "H2D": self._copies[device],
            "D2H": self._downloads[device],
            **self._sides[device],
        }

        def one(
            by: HostThread, stream: Stream, kernel: Kernel, waits: Sequence[Work], shared: Collective | None
        ) -> Launching:
            return self._thunk(by, stream, kernel, step, waits, shared)

        def collective(index: int, item: AllReduce) -> Collective:
            return self._exchange.collective(step, index, item.micros)

        graph_stats: Stats = {"context_id": _context(self._compute[device]), "hlo_module": Ref(MODULE)}
        launcher = StepLauncher(thread, streams, step, one, collective, graph_stats)
        yield from launcher.run(self._run.items(device), execution.batch)

    def _thunk(
        self,
        thread: HostThread,
        stream: Stream,
        kernel: Kernel,
        step: int,
        waits_for: Sequence[Work],
        collective: Collective | None = None,
    ) -> Launching:
        around = self._simulation.jitter(us(self._run.thunk_us), 0.2)
        with thread.span(kernel.hlo_op):
            yield from thread.spend(us(around * 0.7 / 1e6), "launch")
            stats = {"context_id": _context(stream), **_hlo(kernel)}
            work = yield from launch(thread, stream, kernel, step, self._run.launch_us, stats, waits_for, collective)
        yield from thread.spend(us(around * 0.3 / 1e6), "launch")
        return work


def _relay(simulation: Simulation, source: Signal, target: Signal) -> Process:
    yield source
    simulation.fire(target)


def _context(stream: Stream) -> str:
    return f"$${stream.device.index + 1}"


def _hlo(kernel: Kernel) -> dict[str, StatValue]:
    return {
        "tf_op": Ref("XlaModule:"),
        "name": Ref(kernel.op),
        "hlo_op": Ref(kernel.hlo_op),
        "hlo_module": Ref(MODULE),
        "program_id": Unsigned(PROGRAM_ID),
    }


def framework_stats(work: Work) -> dict[str, StatValue]:
    """XLA's own stats of a device event; copies of arguments have none."""
    return {} if work.kernel.copy else _hlo(work.kernel)
