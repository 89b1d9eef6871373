"""A Keras training loop under MirroredStrategy, as TensorFlow runs and profiles it.

python marks a step and runs the function; on each replica an executor thread waits for
its shard of the input, copies it to the GPU and launches the kernels of the step.
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
from simulator.tf_input import TF_EXECUTOR, InputPipeline, InputSpec, identity, random_id
from simulator.truth import Marker
from simulator.xplane_writer import Ref, Stats, StatValue, Unsigned

Plan = Callable[[int], Iterable[Item]]
COPY_BYTES_PER_US = 22_000  # pageable memory over PCIe 5
_FUNCTION = "__inference_one_step_on_iterator_12547"


@dataclass(frozen=True)
class TfRun:
    """What to run.

    Attributes:
        steps: how many steps.
        plan: kernels of one step for a replica.
        copy_bytes: size of a replica's shard, copied at the start of its step.
        op_us, launch_us: host time of one op around its launch, and of the launch call.
        callback_us: Python's own time between two steps.
        interruptions: what else Python does between steps.
        blocking_copy: the shard is copied by a call that returns when it is there.
        sync: what Python looks at after each step.
        late_host, late_input: by replica, what its executor does before its step, and how long the
            thread that gets its shard takes longer, in microseconds.
    """

    steps: int
    plan: Plan
    input: InputSpec
    copy_bytes: int = 38_535_168
    op_us: float = 9.0
    launch_us: float = 4.6
    callback_us: float = 900.0
    first_step_number: int = 20
    interruptions: tuple[Interruption, ...] = ()
    blocking_copy: bool = False
    sync: StepSync | None = None
    late_host: Mapping[int, HostWork] = field(default_factory=dict)
    late_input: Mapping[int, float] = field(default_factory=dict)


@dataclass
class _Call:
    """One replica's part of one step's function call."""

    step: int
    stats: dict[str, StatValue]
    producer: int
    done: Signal


class TfProgram:
    """Builds the threads of the run; ``markers`` fill up as it runs.

    ``exchange``: the collectives, when GPUs of other programs take part in them.
    """

    def __init__(
        self, simulation: Simulation, devices: Sequence[Device], run: TfRun, exchange: Exchange | None = None
    ) -> None:
        self._simulation = simulation
        self._run = run
        self._devices = devices
        self.threads: list[HostThread] = []
        self.markers: list[Marker] = []
        self._exchange = exchange or Exchange(simulation, len(devices))
        self._losses: dict[tuple[int, int], Work] = {}
        self._traced = 2
        self._helpers: dict[int, HostThread] = {}
        self._python = self._thread("python", numbered=False)
        self._pipeline = InputPipeline(simulation, run.input, len(devices), self._thread)
        self._inboxes: list[Queue[_Call]] = [Queue(simulation, 4) for _ in devices]
        for replica, device in enumerate(devices):
            simulation.spawn(self._executor(replica, device))
        simulation.spawn(self._training())

    def _thread(self, name: str, numbered: bool = True) -> HostThread:
        number = self._simulation.random.getrandbits(64) - (1 << 63)
        self.threads.append(HostThread(self._simulation, f"{name}/{number}" if numbered else name, number))
        return self.threads[-1]

    def _training(self) -> Process:
        thread, simulation, run = self._python, self._simulation, self._run
        yield from thread.spend(us(2_400), "host_other")
        for step in range(run.steps):
            inside = [item for item in run.interruptions if item.inside and item.is_due(step)]
            for interruption in run.interruptions:
                if not interruption.inside:
                    yield from interruption.before(step, thread)
            number = run.first_step_number + step
            start = simulation.now
            with ExitStack() as spans:
                spans.enter_context(thread.span("train", {"step_num": number, "_r": 1}))
                yield from thread.spend(us(12), "launch")
                self._traced += len(inside)
                traced = "traced-nonXla" if inside else "notTraced-nonXla"
                known: Stats = {"tf_function_call": Ref(traced), "tracing_count": self._traced}
                spans.enter_context(thread.span("one_step_on_iterator", known))
                for interruption in inside:
                    yield from interruption.before(step, thread)
                yield from thread.spend(simulation.jitter(us(260), 0.2), "launch")
                spans.enter_context(thread.span("TFE_Py_ExecuteCancelable"))
                yield from thread.spend(us(8), "launch")
                spans.enter_context(thread.span("EagerExecute", {"eager_op": Ref(_FUNCTION), "is_func": 1}))
                yield from thread.spend(us(4), "launch")
                spans.enter_context(thread.span(f"EagerLocalExecute: {_FUNCTION}"))
                yield from thread.spend(us(22), "launch")
                spans.enter_context(thread.span("EagerKernelExecute"))
                yield from thread.spend(us(3), "launch")
                spans.enter_context(thread.span("KernelAndDeviceFunc::Run"))
                shared = identity(simulation)
                calls = [_Call(step, shared, random_id(simulation), Signal()) for _ in self._devices]
                for call, inbox in zip(calls, self._inboxes, strict=True):
                    known = {**shared, "_r": 1, "_pt": TF_EXECUTOR, "_p": Unsigned(call.producer)}
                    with thread.span("FunctionRun", known):
                        yield from thread.spend(us(14), "launch")
                        inbox.put(call, thread)
                for call in calls:
                    yield from thread.wait(call.done)
                yield from thread.spend(us(20), "launch")
            self.markers.append(Marker(number, start, simulation.now))
            if run.sync is not None and run.sync.is_due(step):
                losses = [self._losses[replica, step].done for replica in range(len(self._devices))]
                yield from run.sync.run(thread, losses)
            yield from thread.spend(simulation.jitter(us(run.callback_us), 0.1), "host_other")
            if step:  # the progress bar shows the loss of the step before
                for replica in range(len(self._devices)):
                    with thread.span("EagerCopyToDevice"):
                        yield from thread.wait(self._losses[replica, step - 1].done, "sync")
        yield from thread.wait(self._losses[0, run.steps - 1].done, "sync")
        yield from thread.spend(us(1_500), "host_other")

    def _executor(self, replica: int, device: Device) -> Process:
        """A replica's executor thread, and the thread on which its IteratorGetNext blocks."""
        thread = self._thread("tf_Compute")
        getter = self._thread("tf_data_iterator_get_next")
        streams = {
            "compute": device.stream(16 + 10 * replica, "Compute"),
            "H2D": device.stream(17 + 10 * replica, "MemcpyH2D"),
            "D2H": device.stream(18 + 10 * replica, "MemcpyD2H"),
            "communication": device.stream(22 + 10 * replica, "Compute"),
        }
        for number, name in enumerate(
            sorted({i.side for i in self._run.plan(replica) if isinstance(i, Kernel)} - {""})
        ):
            streams[name] = device.stream(100 + 10 * replica + number, "Compute")
        requests: Queue[tuple[_Call, Signal]] = Queue(self._simulation, 1)
        late = self._run.late_input.get(replica, 0.0)
        self._simulation.spawn(self._get_next(getter, requests, self._pipeline.shards[replica], late))
        inbox = self._inboxes[replica]
        while True:
            call = yield from thread.take(inbox)
            process: Stats = {**call.stats, "iter_num": 0, "_ct": TF_EXECUTOR, "_c": Unsigned(call.producer)}
            arrived = Signal()
            with thread.span("ExecutorState::Process", process):
                yield from thread.spend(us(18), "launch")
                if replica in self._run.late_host:
                    yield from self._run.late_host[replica].run(thread)
                requests.put((call, arrived), thread)
            yield from thread.wait(arrived)
            with thread.span("ExecutorState::Process", process):
                yield from self._launch_step(thread, replica, call.step, streams)
            self._simulation.fire(call.done, thread)

    def _get_next(
        self, thread: HostThread, requests: Queue[tuple[_Call, Signal]], shard: Queue[int], late_us: float
    ) -> Process:
        while True:
            call, arrived = yield from thread.take(requests)
            with thread.span("IteratorGetNextOp::DoCompute", {**call.stats, "iter_num": 0}):
                yield from thread.spend(us(6), "input")
                name = Ref("device_prefetch")
                with (
                    thread.span("Iterator::Root", {"name": name, **identity(self._simulation)}),
                    thread.span("Iterator::Root::Prefetch", {"name": name, "buffer_limit": 1}),
                ):
                    element = yield from self._pipeline.next_element(thread, shard)
                    if late_us:
                        yield from thread.spend(self._simulation.jitter(us(late_us), 0.1), "input")
                    with thread.span("PrefetchConsume", {"element_id": element}):
                        yield from thread.spend(us(3), "input")
                yield from thread.spend(us(9), "input")
            self._simulation.fire(arrived, thread)

    def _launch_step(self, thread: HostThread, replica: int, step: int, streams: dict[str, Stream]) -> Process:
        run, simulation = self._run, self._simulation
        copy = Kernel(
            "MemcpyH2D",
            run.copy_bytes / COPY_BYTES_PER_US,
            op=f"IteratorGetNext/_{replica}:_HostSend",
            copy="H2D",
            copy_bytes=run.copy_bytes,
            call="cuMemcpyHtoD_v2" if run.blocking_copy else "cuMemcpyHtoDAsync_v2",
            blocking=run.blocking_copy,
        )
        first = yield from self._op(thread, streams["compute" if run.blocking_copy else "H2D"], copy, step)

        def one(
            by: HostThread, stream: Stream, kernel: Kernel, waits: Sequence[Work], shared: Collective | None
        ) -> Launching:
            return self._op(by, stream, kernel, step, waits, shared)

        def collective(index: int, item: AllReduce) -> Collective:
            return self._exchange.collective(step, index, item.micros)

        context: Stats = {"context_id": f"$${streams['compute'].device.index + 1}"}
        launcher = StepLauncher(thread, streams, step, one, collective, context, lambda: self._helper(replica))
        last = yield from launcher.run(run.plan(replica), first)
        assert last is not None
        loss = Kernel(
            "MemcpyD2H", 2.1, op="Identity_1/_13:_HostRecv", copy="D2H", copy_bytes=4, call="cuMemcpyDtoHAsync_v2"
        )
        self._losses[replica, step] = yield from self._op(thread, streams["D2H"], loss, step, [last])
        yield from thread.spend(simulation.jitter(us(40), 0.2), "launch")

    def _op(
        self,
        thread: HostThread,
        stream: Stream,
        kernel: Kernel,
        step: int,
        waits_for: Sequence[Work] = (),
        collective: Collective | None = None,
    ) -> Launching:
        """One op of the executor: its own work around one launch."""
        around = self._simulation.jitter(us(self._run.op_us), 0.25)
        with thread.span(kernel.op):
            yield from thread.spend(us(around / 2e6), "launch")
            stats: dict[str, StatValue] = {"context_id": f"$${stream.device.index + 1}", "tf_op": Ref(kernel.op)}
            work = yield from launch(thread, stream, kernel, step, self._run.launch_us, stats, waits_for, collective)
        yield from thread.spend(us(around / 2e6), "launch")
        return work

    def _helper(self, replica: int) -> HostThread:
        """Another thread of the executor's pool."""
        if replica not in self._helpers:
            self._helpers[replica] = self._thread("tf_Compute")
        return self._helpers[replica]


def framework_stats(work: Work) -> dict[str, StatValue]:
    """TensorFlow's own stats of a device event."""
    return {"tf_op": Ref(work.kernel.op)}
