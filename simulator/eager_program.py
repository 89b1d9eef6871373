"""A training loop without a compiled step: Python launches every op itself, on one GPU.

In TensorFlow's dialect this is a custom loop with GradientTape and no tf.function, in
JAX's one without jit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

from simulator.device import Collective, Device, Kernel, Stream, Work, launch
from simulator.engine import Process, Simulation, us
from simulator.host import HostThread, Interruption
from simulator.items import HostWork, StepSync
from simulator.launcher import Launching, StepLauncher
from simulator.models import AllReduce, Item
from simulator.tf_input import InputPipeline, InputSpec
from simulator.truth import Marker
from simulator.xplane_writer import Ref, StatValue

COPY_BYTES_PER_US = 22_000


@dataclass(frozen=True)
class EagerRun:
    """What to run.

    Attributes:
        steps, plan: how many steps, and the items of one.
        dialect: whose events surround the launches.
        op_us, launch_us: Python's and the framework's time around a launch, and the call's own.
        ahead: how many steps Python may run ahead of the GPU.
        loader, tf_data: how the next batch is made; without either it is there already.
        sync: what Python looks at after each step; interruptions: what else it does between them.
    """

    steps: int
    plan: Callable[[], Iterable[Item]]
    dialect: Literal["tensorflow", "jax"] = "tensorflow"
    op_us: float = 24.0
    launch_us: float = 4.6
    copy_bytes: int = 2_097_152
    python_us: float = 120.0
    ahead: int = 2
    blocking_copy: bool = False
    loader: HostWork | None = None
    tf_data: InputSpec | None = None
    sync: StepSync | None = None
    interruptions: tuple[Interruption, ...] = ()
    first_step_number: int = 40


class EagerProgram:
    """Builds the threads of the run; ``markers`` fill up as it runs."""

    def __init__(self, simulation: Simulation, devices: Sequence[Device], run: EagerRun) -> None:
        if len(devices) != 1:
            raise ValueError("an eager loop drives one GPU")
        self._simulation = simulation
        self._run = run
        self._device = devices[0]
        self.threads: list[HostThread] = []
        self.markers: list[Marker] = []
        self._python = self._thread("python", numbered=False)
        self._tf_data = InputPipeline(simulation, run.tf_data, 1, self._thread) if run.tf_data else None
        device = self._device
        self._streams = {
            "compute": device.stream(14, "Compute"),
            "H2D": device.stream(15, "MemcpyH2D"),
            "D2H": device.stream(16, "MemcpyD2H"),
        }
        sides = {item.side for item in run.plan() if isinstance(item, Kernel)} - {""}
        for number, name in enumerate(sorted(sides)):
            self._streams[name] = device.stream(30 + number, "Compute")
        self._ends: list[Work] = []
        simulation.spawn(self._training())

    def _thread(self, name: str, numbered: bool = True) -> HostThread:
        number = self._simulation.random.getrandbits(64) - (1 << 63)
        self.threads.append(HostThread(self._simulation, f"{name}/{number}" if numbered else name, number))
        return self.threads[-1]

    def _training(self) -> Process:
        thread, simulation, run = self._python, self._simulation, self._run
        yield from thread.spend(us(1_300), "host_other")
        for step in range(run.steps):
            for interruption in run.interruptions:
                yield from interruption.before(step, thread)
            if step >= run.ahead:
                yield from thread.wait(self._ends[step - run.ahead].done, "sync")
            start = simulation.now
            with thread.span("train", {"step_num": run.first_step_number + step, "_r": 1}):
                yield from thread.spend(us(8), "host_other")
                yield from self._next_batch(thread)
                yield from self._step(thread, step)
                if run.sync is not None and run.sync.is_due(step):
                    yield from self._look(thread, run.sync, step)
                yield from thread.spend(simulation.jitter(us(run.python_us), 0.1), "host_other")
            self.markers.append(Marker(run.first_step_number + step, start, simulation.now))
        yield from thread.wait(self._ends[-1].done, "sync")
        yield from thread.spend(us(900), "host_other")

    def _next_batch(self, thread: HostThread) -> Process:
        if self._run.loader is not None:
            yield from self._run.loader.run(thread)
        if self._tf_data is not None:
            with (
                thread.span("EagerExecute", {"eager_op": Ref("IteratorGetNext")}),
                thread.span("EagerLocalExecute: IteratorGetNext"),
                thread.span("IteratorGetNextOp::DoCompute"),
                thread.span("Iterator::Root"),
                thread.span("Iterator::Root::Prefetch"),
            ):
                yield from self._tf_data.next_element(thread, self._tf_data.shards[0])

    def _step(self, thread: HostThread, step: int) -> Process:
        run = self._run
        copy = Kernel(
            "MemcpyH2D",
            run.copy_bytes / COPY_BYTES_PER_US,
            op="EagerCopyToDevice:_Send",
            copy="H2D",
            copy_bytes=run.copy_bytes,
            call="cuMemcpyHtoD_v2" if run.blocking_copy else "cuMemcpyHtoDAsync_v2",
            blocking=run.blocking_copy,
        )

        def one(
            by: HostThread, stream: Stream, kernel: Kernel, waits: Sequence[Work], _: Collective | None
        ) -> Launching:
            return self._op(by, stream, kernel, step, waits)

        first = yield from one(thread, self._streams["compute" if run.blocking_copy else "H2D"], copy, (), None)
        launcher = StepLauncher(thread, self._streams, step, one, _no_collective, {"context_id": "$$1"})
        last = yield from launcher.run(run.plan(), first)
        assert last is not None
        self._ends.append(last)

    def _op(self, thread: HostThread, stream: Stream, kernel: Kernel, step: int, waits: Sequence[Work]) -> Launching:
        """One op that Python runs, with one launch in it."""
        around = self._simulation.jitter(us(self._run.op_us), 0.25)
        with self._dispatch(thread, kernel):
            yield from thread.spend(us(around * 0.6 / 1e6), "launch")
            stats: dict[str, StatValue] = {"context_id": "$$1", **_names(kernel)}
            work = yield from launch(thread, stream, kernel, step, self._run.launch_us, stats, waits)
            yield from thread.spend(us(around * 0.2 / 1e6), "launch")
        yield from thread.spend(us(around * 0.2 / 1e6), "launch")
        return work

    @contextmanager
    def _dispatch(self, thread: HostThread, kernel: Kernel) -> Iterator[None]:
        op = kernel.op.rsplit(":", 1)[-1].rsplit("/", 1)[-1] or kernel.name
        names: tuple[str, ...]
        if self._run.dialect == "tensorflow":
            names = ("TFE_Py_FastPathExecute", "EagerExecute", f"EagerLocalExecute: {op}", "EagerKernelExecute", op)
        else:
            executable = "PjRtStreamExecutorLoadedExecutable"
            names = (f"PjitFunction({op})", f"{executable}::Execute", "GpuExecutable::ExecuteThunks")
        with ExitStack() as spans:
            for name in names:
                stats = {"eager_op": Ref(op)} if name == "EagerExecute" else {}
                spans.enter_context(thread.span(name, stats))
            yield

    def _look(self, thread: HostThread, sync: StepSync, step: int) -> Process:
        for _ in range(sync.values):
            yield from self._look_once(thread, sync, step)

    def _look_once(self, thread: HostThread, sync: StepSync, step: int) -> Process:
        with ExitStack() as spans:
            for name in sync.events:
                spans.enter_context(thread.span(name))
            end = self._ends[step]
            if not sync.copy_bytes:
                yield from StepSync((), sync.call).run(thread, [end.done])
                return
            call = sync.call or "cuMemcpyDtoH_v2"
            copy = Kernel("MemcpyD2H", sync.micros, copy="D2H", copy_bytes=sync.copy_bytes, call=call, blocking=True)
            yield from launch(thread, self._streams["D2H"], copy, step, 6.0, {"context_id": "$$1"}, [end])


def _no_collective(_index: int, _item: AllReduce) -> Collective:
    raise ValueError("an eager loop on one GPU has no collectives")


def _names(kernel: Kernel) -> dict[str, StatValue]:
    return {"tf_op": Ref(kernel.op)} if kernel.op else {}


def framework_stats(work: Work) -> dict[str, StatValue]:
    """The framework's own stats of a device event."""
    return _names(work.kernel)
