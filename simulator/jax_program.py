"""A JAX training loop with one jitted step over several GPUs, as JAX runs and profiles it.

python marks a step and hands the executable to one thread per GPU, which launches the
step's kernels, often after the marker has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from simulator.device import Collective, Device, Kernel, Stream, Work, launch
from simulator.engine import Process, Queue, Signal, Simulation, us
from simulator.host import HostThread, Interruption
from simulator.models import AllReduce, Item
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


@dataclass
class _Execution:
    """One GPU's part of one step."""

    step: int
    producer: int
    batch: Work


class JaxProgram:
    """Builds the threads of the run; ``markers`` fill up as it runs."""

    def __init__(self, simulation: Simulation, devices: Sequence[Device], run: JaxRun) -> None:
        self._simulation = simulation
        self._devices = devices
        self._run = run
        self.threads: list[HostThread] = []
        self.markers: list[Marker] = []
        self._collectives: dict[tuple[int, int], Collective] = {}
        self._finished: dict[tuple[int, int], Signal] = {
            (device.index, step): Signal() for device in devices for step in range(run.steps)
        }
        self._copies = [device.stream(13 + 8 * device.index, "MemcpyH2D") for device in devices]
        self._compute = [device.stream(14 + 8 * device.index, "Compute") for device in devices]
        self._nccl = [device.stream(17 + 8 * device.index, "Compute") for device in devices]
        self._inboxes: list[Queue[_Execution]] = [Queue(simulation, run.steps) for _ in devices]
        self._python = self._thread("python", numbered=False)
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
            for interruption in run.interruptions:
                yield from interruption.before(step, thread)
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
                yield from thread.spend(simulation.jitter(us(run.python_us * 0.6), 0.1), "launch")
                with thread.span("ParseArguments"):
                    yield from thread.spend(us(6), "launch")
                with thread.span("shard_args"):
                    batches = []
                    for copies in self._copies:
                        with thread.span("DevicePut"):
                            batches.append((yield from self._put_batch(thread, copies, step)))
                producer = simulation.serial() << 8
                with thread.span(f"{_EXECUTABLE}::Execute", {"_pt": PJRT, "_p": Unsigned(producer)}):
                    yield from thread.spend(us(14), "launch")
                    for inbox, batch in zip(self._inboxes, batches, strict=True):
                        yield from thread.spend(simulation.jitter(us(3), 0.3), "launch")
                        inbox.put(_Execution(step, producer, batch), thread)
                yield from thread.spend(us(run.python_us * 0.4), "launch")
            self.markers.append(Marker(number, start, simulation.now))
        for device in self._devices:
            yield from thread.wait(self._finished[device.index, run.steps - 1], "sync")
        yield from thread.spend(us(1_200), "host_other")

    def _put_batch(self, thread: HostThread, stream: Stream, step: int) -> Generator[int | Signal, None, Work]:
        size = self._run.copy_bytes
        copy = Kernel("MemcpyH2D", size / COPY_BYTES_PER_US, copy="H2D", copy_bytes=size, call="cuMemcpyHtoDAsync_v2")
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
        compute, step = self._compute[device], execution.step
        last = execution.batch
        collectives: list[Work] = []
        for item in self._run.plan():
            if isinstance(item, AllReduce):
                shared = self._collective(step, len(collectives), item)
                work = yield from self._thunk(thread, self._nccl[device], item.kernel, step, [last], shared)
                collectives.append(work)
                continue
            waits_for = [last] if last.kernel.copy else collectives if item.joins else []
            last = yield from self._thunk(thread, compute, item, step, waits_for)

    def _thunk(
        self,
        thread: HostThread,
        stream: Stream,
        kernel: Kernel,
        step: int,
        waits_for: Sequence[Work],
        collective: Collective | None = None,
    ) -> Generator[int | Signal, None, Work]:
        around = self._simulation.jitter(us(self._run.thunk_us), 0.2)
        with thread.span(kernel.hlo_op):
            yield from thread.spend(us(around * 0.7 / 1e6), "launch")
            stats = {"context_id": _context(stream), **_hlo(kernel)}
            work = yield from launch(thread, stream, kernel, step, self._run.launch_us, stats, waits_for, collective)
        yield from thread.spend(us(around * 0.3 / 1e6), "launch")
        return work

    def _collective(self, step: int, index: int, item: AllReduce) -> Collective:
        key = (step, index)
        if key not in self._collectives:
            transfer = self._simulation.jitter(us(item.micros), 0.02)
            self._collectives[key] = Collective(self._simulation, len(self._devices), transfer)
        return self._collectives[key]


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
