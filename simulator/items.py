"""What a step may hold besides kernels and collectives: host work, waits, copies back and forth, graphs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from simulator.device import Kernel
from simulator.engine import Process, Signal, us
from simulator.host import HostThread
from simulator.xplane_writer import Stats, Unsigned


@dataclass(frozen=True)
class HostWork:
    """The launching thread does something else.

    Attributes:
        events: names of the nested events that show it, outermost first.
        micros, spread: how long, and how much that varies.
        cause: the idle cause that it is charged to where the GPU waits for it.
        steps: in which steps it happens (none: in all).
    """

    events: tuple[str, ...]
    micros: float
    cause: str
    spread: float = 0.1
    steps: tuple[int, ...] = ()

    def is_due(self, step: int) -> bool:
        """Whether it happens in the given step."""
        return not self.steps or step in self.steps

    def run(self, thread: HostThread) -> Process:
        """Does the work on a thread."""
        with ExitStack() as spans:
            for name in self.events:
                spans.enter_context(thread.span(name))
            yield from thread.spend(thread.simulation.jitter(us(self.micros), self.spread), self.cause)


@dataclass(frozen=True)
class Synchronize:
    """The launching thread waits until the GPU has done all that it was given.

    Attributes:
        events: names of the nested events that show it, outermost first; the last one may be a driver call.
        copy_bytes: how much is copied to the host first (0: nothing).
        micros: how long that copy takes.
    """

    events: tuple[str, ...]
    copy_bytes: int = 0
    micros: float = 2.1


@dataclass(frozen=True)
class Allocation:
    """The launching thread asks the driver for memory or gives it back, which waits for the GPU.

    Attributes:
        call: the driver's call.
        micros: how long it takes when the GPU is done.
    """

    call: str
    micros: float

    def run(self, thread: HostThread, running: Sequence[Signal]) -> Process:
        """Waits on a thread for what runs, and does the work."""
        with thread.span(self.call, driver_stats(thread)):
            for signal in running:
                if signal.fired_at is None:
                    yield from thread.wait(signal, "allocator")
            yield from thread.spend(thread.simulation.jitter(us(self.micros), 0.1), "allocator")


@dataclass(frozen=True)
class Bounce:
    """An op that is placed on the CPU in the middle of the step: a copy there, the op, a copy back.

    Attributes:
        op: the op's name, ``scope/Unique:Unique``.
        micros: its time on the CPU.
        copy_bytes, copy_us: of each copy.
        elsewhere: the op and the copy back run on another thread of the pool, as in TensorFlow's executor.
    """

    op: str
    micros: float
    copy_bytes: int
    copy_us: float
    elsewhere: bool = False


@dataclass(frozen=True)
class Graph:
    """A CUDA graph: many kernels, one launch."""

    kernels: tuple[Kernel, ...]
    number: int = 7
    op: str = ""


@dataclass(frozen=True)
class StepSync:
    """Python looks at a result of the step that it has just started, and so waits for its end.

    Attributes:
        events: names of the nested events that show it, outermost first.
        call: the driver's call in which it waits; empty where the file shows none.
        copy_bytes: size of the result; ``micros`` its copy (used where Python itself starts the copy).
        every: how often, in steps.
        values: how many results it looks at, one after the other.
    """

    events: tuple[str, ...]
    call: str = ""
    copy_bytes: int = 4
    micros: float = 2.1
    every: int = 1
    values: int = 1

    def is_due(self, step: int) -> bool:
        """Whether it follows the given step."""
        return (step + 1) % self.every == 0

    def run(self, thread: HostThread, signals: list[Signal]) -> Process:
        """Waits on a thread for all of the signals, once a value."""
        for _ in range(self.values):
            with ExitStack() as spans:
                for name in self.events:
                    spans.enter_context(thread.span(name))
                if self.call:
                    spans.enter_context(thread.span(self.call, driver_stats(thread)))
                yield from thread.synchronize(signals)


def driver_stats(thread: HostThread) -> Stats:
    """Stats of a driver call that starts no work: it has a correlation id all the same."""
    return {"correlation_id": Unsigned(thread.simulation.serial())}


def is_driver_call(name: str) -> bool:
    """Whether an event's name is a call of CUDA's driver."""
    return name.startswith("cu")
