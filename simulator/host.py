"""Host threads: the events a profiler records of them and a ledger of what they were doing.

The events go to the file. The ledger is the simulator's own knowledge and goes to the
truth: for every stretch of a thread's time either a cause, or the signal it waited for.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from simulator.engine import Process, Queue, Signal, Simulation, ms, us
from simulator.xplane_writer import Stats, StatValue

T = TypeVar("T")
# Work of the host that no recorded event shows.
UNSEEN = "unseen"


@dataclass
class HostEvent:
    """One recorded event of a thread; ``end`` is set when it closes."""

    name: str
    start: int
    end: int = -1
    stats: dict[str, StatValue] = field(default_factory=dict)


@dataclass
class Segment:
    """One stretch of a thread's time: a cause, or a signal that some thread had to fire."""

    start: int
    end: int
    cause: str | None
    signal: Signal | None = None


class HostThread:
    """A thread that spends time, records events and can say afterwards what it was doing."""

    def __init__(self, simulation: Simulation, name: str, line_id: int) -> None:
        self.simulation = simulation
        self.name = name
        self.line_id = line_id
        self.events: list[HostEvent] = []
        self.ledger: list[Segment] = []
        self._shown = 0

    @contextmanager
    def span(self, name: str, stats: Stats | None = None) -> Iterator[HostEvent]:
        """Records an event around the block."""
        event = HostEvent(name, self.simulation.now, stats=dict(stats or {}))
        self.events.append(event)
        shows = "step_num" not in event.stats  # a step's marker says nothing of what is done in it
        self._shown += shows
        yield event
        self._shown -= shows
        event.end = self.simulation.now

    def instant(self, name: str, stats: Stats | None = None) -> None:
        """Records an event without a duration."""
        self.events.append(HostEvent(name, self.simulation.now, self.simulation.now, dict(stats or {})))

    def spend(self, duration_ps: int, cause: str) -> Process:
        """Lets time pass, for a known cause.

        What is ``host_other`` outside of any event is ``unseen``: the file shows nothing of it.
        """
        if cause == "host_other" and not self._shown:
            cause = UNSEEN
        start = self.simulation.now
        self.simulation.running += 1
        yield self.simulation.crowded(duration_ps)
        self.simulation.running -= 1
        self.ledger.append(Segment(start, self.simulation.now, cause))

    def wait(self, signal: Signal, cause: str | None = None) -> Process:
        """Waits; without a cause the wait is charged to what the firing thread was doing."""
        start = self.simulation.now
        yield signal
        self.ledger.append(Segment(start, self.simulation.now, cause, signal))

    def synchronize(self, signals: Sequence[Signal], latency_us: float = 4.0) -> Process:
        """Waits for the device: until all signals have fired, and a little longer to hear of it."""
        start = self.simulation.now
        for signal in signals:
            if signal.fired_at is None:
                yield signal
        yield us(latency_us)
        last = max(signals, key=lambda signal: signal.fired_at or 0)
        self.ledger.append(Segment(start, self.simulation.now, "sync", last))

    def drained_at(self, start: int, end: int, depth: int = 0) -> int | None:
        """When in [start, end) a synchronisation ended that had waited for the device's last work.

        ``start`` is when the device ran out of work. The threads that this one waited for count too.
        """
        first = bisect_left(self.ledger, start, key=lambda segment: segment.end)
        for segment in islice(self.ledger, first, None):
            if segment.start >= end:
                return None
            signal = segment.signal
            if signal is None or signal.fired_at is None or signal.fired_at < start:
                continue
            if segment.cause == "sync":
                return segment.end
            if segment.cause is None and isinstance(signal.by, HostThread) and signal.by is not self and depth < 8:
                found = signal.by.drained_at(max(segment.start, start), min(segment.end, end), depth + 1)
                if found is not None:
                    return found
        return None

    def put(self, queue: Queue[T], item: T, cause: str | None = None) -> Process:
        """Puts into a bounded queue, waiting while it is full."""
        while queue.full:
            yield from self.wait(queue.changed, cause)
        queue.put(item, self)

    def take(self, queue: Queue[T], cause: str | None = None) -> Generator[int | Signal, None, T]:
        """Takes from a queue, waiting while it is empty."""
        while not len(queue):
            yield from self.wait(queue.changed, cause)
        return queue.get(self)

    def causes(self, start: int, end: int, depth: int = 0) -> Iterator[tuple[int, int, str]]:
        """What this thread was doing in [start, end): pieces that cover it, in order."""
        at = start
        first = bisect_right(self.ledger, start, key=lambda segment: segment.end)
        for segment in islice(self.ledger, first, None):
            if segment.start >= end:
                break
            low, high = max(segment.start, at), min(segment.end, end)
            if high <= low:
                continue
            if low > at:
                yield at, low, UNSEEN
            by = segment.signal.by if segment.signal is not None else None
            if segment.cause is not None:
                yield low, high, segment.cause
            elif isinstance(by, HostThread) and by is not self and depth < 8:
                yield from by.causes(low, high, depth + 1)
            else:
                yield low, high, "host_other"
            at = high
        if at < end:
            yield at, end, UNSEEN


@dataclass(frozen=True)
class Interruption:
    """Something that keeps Python from its next step: a checkpoint, a compilation, an evaluation.

    Attributes:
        step: index of the step that it delays; every: repeat it each so many steps (0: once).
        events: names of the nested events that a profiler records of it, outermost first.
        millis: how long it takes.
        cause: the idle cause that it is charged to.
        inside: it happens inside the step's marker and function call, as tracing does.
    """

    step: int
    events: tuple[str, ...]
    millis: float
    cause: str
    every: int = 0
    inside: bool = False

    def is_due(self, step: int) -> bool:
        """Whether it delays the given step."""
        late = step - self.step
        return late >= 0 and not (late % self.every if self.every else late)

    def before(self, step: int, thread: HostThread) -> Process:
        """Runs on the thread in front of the given step, if it is due."""
        if not self.is_due(step):
            return
        with ExitStack() as spans:
            for name in self.events:
                spans.enter_context(thread.span(name))
            yield from thread.spend(ms(self.millis), self.cause)
