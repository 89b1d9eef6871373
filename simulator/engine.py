"""Discrete events: a clock, processes that are generators, and signals they wait for.

Times are integer picoseconds in whole nanoseconds, the resolution of real profiles.
A process yields an ``int`` to let time pass or a `Signal` to wait until it is fired.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Generator, Iterator
from typing import Generic, TypeAlias, TypeVar

PS_PER_NS = 1_000
PS_PER_US = 1_000_000
PS_PER_MS = 1_000_000_000


def us(value: float) -> int:
    """Microseconds as picoseconds, rounded to whole nanoseconds."""
    return round(value * 1_000) * PS_PER_NS


def ms(value: float) -> int:
    """Milliseconds as picoseconds, rounded to whole nanoseconds."""
    return us(value * 1_000)


class Signal:
    """Something that happens once; ``by`` is the host thread that made it happen, if one did."""

    __slots__ = ("_waiting", "by", "fired_at")

    def __init__(self) -> None:
        self.fired_at: int | None = None
        self.by: object | None = None
        self._waiting: list[Process] = []


Process: TypeAlias = Generator["int | Signal", None, None]


class Simulation:
    """The clock and the queue of what happens next; equal times keep the order of scheduling.

    ``processors`` is how many threads of the host can run at once, 0 for enough; ``running`` do.
    """

    def __init__(self, seed: int) -> None:
        self.now = 0
        self.processors = 0
        self.running = 0
        self.random = random.Random(seed)
        self._queue: list[tuple[int, int, Process]] = []
        self._order = 0
        self._serial = 0

    def spawn(self, process: Process) -> None:
        """Starts a process at the present time."""
        self._schedule(self.now, process)

    def run(self) -> None:
        """Runs until nothing is left to happen; processes that still wait are abandoned."""
        while self._queue:
            self.now, _, process = heapq.heappop(self._queue)
            self._advance(process)

    def fire(self, signal: Signal, by: object | None = None) -> None:
        """Lets everyone who waits for the signal continue now."""
        signal.fired_at, signal.by = self.now, by
        for process in signal._waiting:
            self._schedule(self.now, process)
        signal._waiting.clear()

    def serial(self) -> int:
        """The next number of a series (correlation ids and the like)."""
        self._serial += 1
        return self._serial

    def jitter(self, value_ps: int, spread: float) -> int:
        """A value varied by a log-normal factor around 1, in whole nanoseconds."""
        if spread <= 0:
            return value_ps
        return max(PS_PER_NS, round(value_ps * self.random.lognormvariate(0.0, spread) / PS_PER_NS) * PS_PER_NS)

    def crowded(self, duration_ps: int) -> int:
        """How long work of a thread takes beside all others that run, in whole nanoseconds."""
        if not self.processors or self.running <= self.processors:
            return duration_ps
        return round(duration_ps * self.running / self.processors / PS_PER_NS) * PS_PER_NS

    def _schedule(self, at: int, process: Process) -> None:
        self._order += 1
        heapq.heappush(self._queue, (at, self._order, process))

    def _advance(self, process: Process) -> None:
        for wanted in _steps(process):
            if isinstance(wanted, Signal):
                if wanted.fired_at is None:
                    wanted._waiting.append(process)
                    return
            else:
                self._schedule(self.now + wanted, process)
                return


def _steps(process: Process) -> Iterator[int | Signal]:
    """What the process wants next; stops, without an error, when it has ended."""
    while True:
        try:
            yield next(process)
        except StopIteration:
            return


T = TypeVar("T")


class Queue(Generic[T]):
    """A bounded buffer between processes (a tf.data prefetch buffer, a work queue)."""

    def __init__(self, simulation: Simulation, capacity: int) -> None:
        self._simulation = simulation
        self._capacity = capacity
        self._items: list[T] = []
        self._changed = Signal()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def changed(self) -> Signal:
        """Fired at the next put or get."""
        return self._changed

    @property
    def full(self) -> bool:
        """Whether a put has to wait."""
        return len(self._items) >= self._capacity

    def put(self, item: T, by: object | None = None) -> None:
        """Appends; the caller has made sure that there is room."""
        self._items.append(item)
        self._notify(by)

    def get(self, by: object | None = None) -> T:
        """Takes the first item; the caller has made sure that there is one."""
        item = self._items.pop(0)
        self._notify(by)
        return item

    def _notify(self, by: object | None) -> None:
        fired, self._changed = self._changed, Signal()
        self._simulation.fire(fired, by)
