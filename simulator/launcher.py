"""Launches the items of one step on one GPU, from one thread, with the dependencies between them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack

from simulator.device import Collective, Kernel, Stream, Work, launch_graph
from simulator.engine import Process, Signal, us
from simulator.host import HostThread
from simulator.items import Allocation, Bounce, Graph, HostWork, Synchronize, driver_stats, is_driver_call
from simulator.models import AllReduce, Item
from simulator.xplane_writer import Stats

Launching = Generator["int | Signal", None, Work]
# Launches one kernel as the framework does: (thread, stream, kernel, what it waits for, collective).
LaunchOne = Callable[[HostThread, Stream, Kernel, Sequence[Work], "Collective | None"], Launching]


class StepLauncher:
    """One step on one GPU.

    Args:
        thread: the launching thread.
        streams: ``compute``, ``H2D``, ``D2H``, ``communication`` and what the kernels' ``side`` names.
        step: index of the step.
        one: launches one kernel.
        collective: the collective that is the step's n-th, shared by its ranks.
        graph_stats: stats of a graph's launch call.
        helper: another thread of the pool.
    """

    def __init__(
        self,
        thread: HostThread,
        streams: Mapping[str, Stream],
        step: int,
        one: LaunchOne,
        collective: Callable[[int, AllReduce], Collective],
        graph_stats: Stats,
        helper: Callable[[], HostThread] | None = None,
    ) -> None:
        self._thread = thread
        self._streams = streams
        self._step = step
        self._one = one
        self._collective = collective
        self._graph_stats = graph_stats
        self._helper = helper
        self._collectives: list[Work] = []
        self._sides: list[Work] = []
        self._last: Work | None = None

    def run(self, items: Iterable[Item], first: Work | None) -> Generator[int | Signal, None, Work | None]:
        """Launches all items behind ``first``; returns the last work on the main stream."""
        self._last = first
        for item in items:
            if isinstance(item, Kernel):
                yield from self._kernel(item)
            elif isinstance(item, AllReduce):
                shared = self._collective(len(self._collectives), item)
                stream = self._streams["communication"]
                self._collectives.append(
                    (yield from self._one(self._thread, stream, item.kernel, self._behind(), shared))
                )
            elif isinstance(item, HostWork):
                if item.is_due(self._step):
                    yield from item.run(self._thread)
            elif isinstance(item, Allocation):
                yield from item.run(self._thread, [work.done for work in self._running()])
            elif isinstance(item, Synchronize):
                yield from self._synchronize(item)
            elif isinstance(item, Bounce):
                yield from self._bounce(item)
            else:
                yield from self._graph(item)
        return self._last

    def _behind(self) -> list[Work]:
        return [self._last] if self._last is not None else []

    def _running(self) -> list[Work]:
        return [*self._behind(), *self._collectives, *self._sides]

    def _kernel(self, kernel: Kernel) -> Process:
        if kernel.side:
            self._sides.append((yield from self._launch(self._streams[kernel.side], kernel, self._behind())))
            return
        stream = self._streams[f"{kernel.copy}" if kernel.copy and not kernel.blocking else "compute"]
        self._last = yield from self._launch(stream, kernel, self._waits(kernel.joins))

    def _waits(self, joins: bool) -> Sequence[Work]:
        """What a kernel on the main stream waits for: a copy before it, or all that ran beside it."""
        if self._last is not None and self._last.kernel.copy:
            return [self._last]
        return [*self._collectives, *self._sides] if joins else []

    def _synchronize(self, item: Synchronize) -> Process:
        with ExitStack() as spans:
            for name in item.events:
                stats = driver_stats(self._thread) if is_driver_call(name) and not item.copy_bytes else {}
                if not (item.copy_bytes and is_driver_call(name)):
                    spans.enter_context(self._thread.span(name, stats))
            if item.copy_bytes:
                call = item.events[-1] if is_driver_call(item.events[-1]) else "cuMemcpyDtoH_v2"
                copy = Kernel(
                    "MemcpyD2H", item.micros, copy="D2H", copy_bytes=item.copy_bytes, call=call, blocking=True
                )
                yield from self._launch(self._streams["D2H"], copy, self._behind())
            else:
                yield from self._thread.synchronize([work.done for work in self._running()])

    def _bounce(self, item: Bounce) -> Process:
        scope = item.op.rsplit(":", 1)[0]
        there = Kernel(
            "MemcpyD2H",
            item.copy_us,
            op=f"{scope}/_{self._step % 7 + 21}:_HostRecv",
            copy="D2H",
            copy_bytes=item.copy_bytes,
            call="cuMemcpyDtoHAsync_v2",
        )
        arrived = yield from self._launch(self._streams["D2H"], there, self._behind())
        if not item.elsewhere or self._helper is None:
            yield from self._on_the_cpu(self._thread, item, arrived)
            return
        done = Signal()
        self._thread.simulation.spawn(self._handed_over(self._helper(), item, arrived, done))
        yield from self._thread.wait(done)

    def _handed_over(self, helper: HostThread, item: Bounce, arrived: Work, done: Signal) -> Process:
        yield from self._on_the_cpu(helper, item, arrived)
        self._thread.simulation.fire(done, helper)

    def _on_the_cpu(self, thread: HostThread, item: Bounce, arrived: Work) -> Process:
        """Waits for the copy, runs the op, and copies its result back."""
        scope = item.op.rsplit(":", 1)[0]
        yield from thread.synchronize([arrived.done], 9.0)
        with thread.span(item.op):
            yield from thread.spend(thread.simulation.jitter(us(item.micros), 0.1), "host_other")
        back = Kernel(
            "MemcpyH2D",
            item.copy_us,
            op=f"{scope}/_{self._step % 7 + 23}:_HostSend",
            copy="H2D",
            copy_bytes=item.copy_bytes,
            call="cuMemcpyHtoDAsync_v2",
        )
        self._last = yield from self._one(thread, self._streams["H2D"], back, [], None)

    def _launch(self, stream: Stream, kernel: Kernel, waits: Sequence[Work]) -> Launching:
        return self._one(self._thread, stream, kernel, waits, None)

    def _graph(self, graph: Graph) -> Process:
        self._last = yield from launch_graph(
            self._thread,
            self._streams["compute"],
            graph.kernels,
            self._step,
            9.0 + 0.05 * len(graph.kernels),
            graph.number,
            self._graph_stats,
            self._waits(True),
        )
