"""What each host thread does at each time, as piecewise constant functions that can be summed.

For one thread: ``time`` (m,) are borders, ``cause`` (m,) what it does from each border to the next
(a `Cause`, WAITING or UNKNOWN), ``row`` (m,) the event that says so. Time in one cause within [x, y) is then
a difference of two prefix sums, for any number of intervals at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.callers import nearest_with
from tb_gpu_doctor.analysis.host_names import Kind, is_blocking_input, is_loading, kind_of
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.traces.columns import NO_STAT, PS_PER_US, HostEvents, Int32, Int64, Trace, UInt8
from tb_gpu_doctor.traces.grouping import distinct, group, rows_by

# Host causes that a thread's activity can give, then "sits in a call that others work for" and "nothing recorded".
HOST_CAUSES = (
    Cause.INPUT, Cause.LAUNCH, Cause.SYNC, Cause.COMPILE, Cause.CHECKPOINT, Cause.HOST_OTHER, Cause.ALLOCATOR,
)  # fmt: skip
WAITING = len(HOST_CAUSES)
UNKNOWN = WAITING + 1
# Python and the framework leave holes between the events of launching; longer ones are no such hole.
LAUNCH_HOLE = 100 * PS_PER_US


@dataclass(frozen=True)
class ThreadActivity:
    """One thread's activity; ``prefix`` is the time in each cause before each border, (causes + 2, m)."""

    time: Int64
    cause: UInt8
    row: Int64
    prefix: Int64

    def before(self, at: Int64) -> Int64:
        """Time in each cause before each instant, shape (causes + 2, len(at))."""
        if not len(self.time):
            out = np.zeros((UNKNOWN + 1, len(at)), np.int64)
            out[UNKNOWN] = at
            return out
        index = np.searchsorted(self.time, at, side="right") - 1
        inside = np.maximum(index, 0)
        out = self.prefix[:, inside].copy()
        columns = np.arange(len(at))
        # before the first border nothing is recorded: count it as negative time of UNKNOWN
        cause = np.where(index >= 0, self.cause[inside], UNKNOWN)
        out[cause, columns] += at - self.time[inside]
        return out

    def at(self, instant: Int64) -> tuple[UInt8, Int64]:
        """(cause, row) at each instant; UNKNOWN and -1 where nothing is recorded."""
        if not len(self.time):
            return np.full(len(instant), UNKNOWN, np.uint8), np.full(len(instant), -1, np.int64)
        index = np.searchsorted(self.time, instant, side="right") - 1
        inside = np.maximum(index, 0)
        cause = np.where(index >= 0, self.cause[inside], UNKNOWN).astype(np.uint8)
        return cause, np.where(index >= 0, self.row[inside], -1)


class HostActivity:
    """The activity of a trace's threads, computed when first asked for."""

    def __init__(self, trace: Trace, parent: Int64, caller: Int64 | None = None) -> None:
        """Args: as in `callers.Causality`; without ``caller`` every thread shows its own events only."""
        self.trace, self.parent = trace, parent
        host = trace.host_events
        self._driver_rows = _calls_of_threads(host, caller)
        used, inverse = group(host.name)
        launching = np.zeros(len(used), np.bool_)
        launching[inverse[host.correlation > 0]] = True
        names = [trace.strings[i] for i in used.tolist()]
        by_name = np.array([kind_of(n, bool(c)) for n, c in zip(names, launching.tolist(), strict=True)], np.uint8)
        kind = by_name[inverse] if len(used) else np.zeros(0, np.uint8)
        # Calls of a tf.function carry the user's name for it, but are the framework's dispatch.
        calls = trace.host_stats.get("tracing_count", NO_STAT).rows
        kind[calls] = np.where(kind[calls] == Kind.UNKNOWN_NAME, np.uint8(Kind.WAIT), kind[calls])
        # One that traces it spends the time until it runs it on that.
        traced = trace.host_stats.get("traced", NO_STAT).rows
        called = (kind[traced] == Kind.WAIT) | (kind[traced] == Kind.NEUTRAL)  # many call theirs `step`
        kind[traced] = np.where(called, np.uint8(Kind.COMPILE), kind[traced])
        # So do PyTorch's operators, whoever wrote them.
        operators = trace.host_stats.get("operator", NO_STAT).rows
        kind[operators] = np.where(kind[operators] == Kind.UNKNOWN_NAME, np.uint8(Kind.LAUNCH), kind[operators])
        # Markers of steps, whatever their name, enclose work and are none.
        kind = np.where(host.step_num >= 0, np.uint8(Kind.NEUTRAL), kind)
        self.kind: UInt8 = _in_context(kind, parent, traced)
        # Operators of a loader say less than the loader around them.
        told = kind != Kind.NEUTRAL
        told[operators] &= nearest_with(kind == Kind.INPUT, parent)[operators] < 0
        self.meaning = nearest_with(told, parent)
        loads = np.array([is_loading(n) for n in names], np.bool_)
        self.loading = np.flatnonzero(loads[inverse]) if len(used) else np.zeros(0, np.int64)
        blocking = np.array([is_blocking_input(n) for n in names], np.bool_)
        self.fetches = np.flatnonzero(blocking[inverse]) if len(used) else np.zeros(0, np.int64)
        order = self.fetches[np.argsort(host.start[self.fetches], kind="stable")]
        self.fetches = order
        self.input_set = intervals.union(host.start[order], host.end[order])
        self._threads: dict[int, ThreadActivity] = {}
        self._stretches: dict[int, intervals.IntervalSet] = {}

    def look_at(self, thread: Int32, low: Int64, high: Int64) -> None:
        """Promise to ask for each thread's activity within its stretches [low, high) only.

        The fetches of all threads show in the activity of each; a thousand threads would hold them a thousand times.
        """
        for index, rows in rows_by(thread):
            rows = rows[np.argsort(low[rows], kind="stable")]
            # what is that near decides which holes are filled
            self._stretches[index] = intervals.union(low[rows] - LAUNCH_HOLE, high[rows] + LAUNCH_HOLE)

    def thread(self, index: int) -> ThreadActivity:
        """Activity of one thread."""
        if index not in self._threads:
            self._threads[index] = self._build(index)
        return self._threads[index]

    def rows_of(self, index: int) -> Int64:
        """Rows of what a thread did, its calls that a driver-only thread shows included, by start."""
        host = self.trace.host_events
        rows = host.of_thread(index)
        own = np.arange(rows.start, rows.stop, dtype=np.int64)
        if index not in self._driver_rows:
            return own
        both = np.concatenate((own, self._driver_rows[index][0]))
        return both[np.lexsort((-host.duration[both], host.start[both]))]

    def _parents(self, rows: Int64, index: int) -> Int64:
        """Encloser of each of a thread's rows; of a driver's call the event that made it."""
        parents = self.parent[rows]
        if index in self._driver_rows:
            calls, made_by = self._driver_rows[index]
            order = np.argsort(calls, kind="stable")
            at = np.minimum(np.searchsorted(calls[order], rows), len(calls) - 1)
            hit = (calls[order][at] == rows) & (parents < 0)
            parents = np.where(hit, made_by[order][at], parents)
        return parents

    def fetch_at(self, instant: int) -> int:
        """Row of a blocking fetch in flight at an instant, -1 for none; the one that started last."""
        host = self.trace.host_events
        index = int(np.searchsorted(host.start[self.fetches], instant, side="right"))
        for row in self.fetches[max(index - 64, 0) : index][::-1].tolist():
            if host.start[row] + host.duration[row] > instant:
                return int(row)
        return -1

    def _build(self, index: int) -> ThreadActivity:
        host = self.trace.host_events
        picked = self.rows_of(index)
        picked = picked[host.duration[picked] > 0]
        time, row = _innermost(picked, host.start[picked], host.end[picked], self._parents(picked, index))
        if len(time):
            row = np.where(row >= 0, self.meaning[np.maximum(row, 0)], -1)
        kind = np.where(row >= 0, self.kind[np.maximum(row, 0)], Kind.NEUTRAL).astype(np.uint8)
        time, kind, row = _with_fetches(self._fetches_of(index), time, kind, row)
        cause = _cause_of(kind)
        cause = _fill_holes(time, cause)
        length = np.diff(time, append=time[-1:])
        prefix = np.zeros((UNKNOWN + 1, len(time)), np.int64)
        for value in range(UNKNOWN + 1):
            spent = np.where(cause == value, length, 0)
            prefix[value, 1:] = np.cumsum(spent)[:-1]
        return ThreadActivity(time, cause, row, prefix)

    def _fetches_of(self, index: int) -> intervals.IntervalSet:
        """Union of the blocking fetches, of those that matter to a thread where `look_at` says so."""
        start, end = self.input_set
        if index not in self._stretches or not len(start):
            return start, end
        low, high = self._stretches[index]
        first = np.searchsorted(end, low, side="left")
        count = np.maximum(np.searchsorted(start, high, side="right") - first, 0)
        serial = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        rows = distinct(np.repeat(first, count) + serial)
        return start[rows], end[rows]


def _with_fetches(fetches: intervals.IntervalSet, time: Int64, kind: UInt8, row: Int64) -> tuple[Int64, UInt8, Int64]:
    """Where the thread waits or shows nothing while a blocking fetch is in flight, that is input."""
    start, end = fetches
    if not len(start):
        return time, kind, row
    borders = distinct(np.concatenate((time, start, end)))
    at = np.searchsorted(time, borders, side="right") - 1
    inside = np.maximum(at, 0)
    if len(time):
        kind = np.where(at >= 0, kind[inside], Kind.NEUTRAL).astype(np.uint8)
        row = np.where(at >= 0, row[inside], -1)
    else:
        kind = np.full(len(borders), Kind.NEUTRAL, np.uint8)
        row = np.full(len(borders), -1, np.int64)
    nearest = np.searchsorted(start, borders, side="right") - 1
    fetching = (nearest >= 0) & (borders < end[np.maximum(nearest, 0)])
    hit = fetching & ((kind == Kind.WAIT) | (kind == Kind.NEUTRAL))
    kind = np.where(hit, np.uint8(Kind.INPUT), kind)
    return borders, kind, np.where(hit, -2, row)


def _calls_of_threads(host: HostEvents, caller: Int64 | None) -> dict[int, tuple[Int64, Int64]]:
    """Per thread the rows of its calls on driver-only threads, and the rows of the events that made them."""
    if caller is None:
        return {}
    moved = np.flatnonzero(caller != np.arange(len(host)))
    made_by = caller[moved]
    return {t: (moved[rows], made_by[rows]) for t, rows in rows_by(host.thread[made_by])}


def _in_context(kind: UInt8, parent: Int64, traced: Int64) -> UInt8:
    """Kinds as the enclosers make them: a sleep inside a data loader is input, not the user's own work.

    Whatever runs inside input, compilation or saving belongs to it, launches included. Names that no
    table knows are launch work inside a framework call and waiting inside a synchronisation. Calls that have ``traced``
    their function run it, too: what the framework does inside is its own.
    """
    owns = (kind == Kind.INPUT) | (kind == Kind.COMPILE) | (kind == Kind.CHECKPOINT)
    owns[traced] = False
    owner = nearest_with(owns, parent)
    vague = (kind == Kind.UNKNOWN_NAME) | (kind == Kind.HOST_OTHER)
    known = nearest_with(~vague & (kind != Kind.NEUTRAL), parent)
    around = np.where(known >= 0, kind[np.maximum(known, 0)], Kind.HOST_OTHER)
    called = (around == Kind.LAUNCH) | (around == Kind.WAIT)
    found = np.where(vague & ((around == Kind.SYNC) | (around == Kind.COMPILE)), around, kind)
    found = np.where(found == Kind.UNKNOWN_NAME, np.where(called, Kind.LAUNCH, Kind.HOST_OTHER), found)
    return np.where(owner >= 0, kind[np.maximum(owner, 0)], found).astype(np.uint8)


def _innermost(picked: Int64, start: Int64, end: Int64, parents: Int64) -> tuple[Int64, Int64]:
    """Borders of a thread and the innermost event from each border on (-1: none)."""
    if not len(picked):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if _overlaps_partly(start, end, parents):
        return _innermost_by_stack(picked, start, end)
    time = np.concatenate((start, end))
    event = np.concatenate((picked, parents))
    # At one instant: ends before starts; of several ends the outermost last, of several starts
    # the innermost last. Rows run from outer to inner, so ends take them in reverse.
    rank = np.concatenate((np.arange(len(picked)) + len(picked), np.arange(len(picked))[::-1]))
    order = np.lexsort((rank, time))
    time, event = time[order], event[order]
    last = np.append(time[1:] != time[:-1], True)
    return time[last], event[last]


def _overlaps_partly(start: Int64, end: Int64, parent: Int64) -> bool:
    """Whether two events of a thread overlap without one enclosing the other."""
    order = np.argsort(parent, kind="stable")
    siblings = parent[order][1:] == parent[order][:-1]
    return bool((siblings & (start[order][1:] < end[order][:-1])).any())


def _innermost_by_stack(picked: Int64, start: Int64, end: Int64) -> tuple[Int64, Int64]:
    """`_innermost` for events that overlap partly: from each border on the running one that started last."""
    borders: list[int] = []
    events: list[int] = []
    stack: list[tuple[int, int]] = []

    def close(until: int) -> None:
        while stack and stack[-1][0] <= until:
            done = stack.pop()[0]
            while stack and stack[-1][0] <= done:
                stack.pop()
            borders.append(done)
            events.append(stack[-1][1] if stack else -1)

    for row, begin, stop in zip(picked.tolist(), start.tolist(), end.tolist(), strict=True):
        close(begin)
        stack.append((stop, row))
        borders.append(begin)
        events.append(row)
    close(int(end.max()))
    time, event = np.array(borders, np.int64), np.array(events, np.int64)
    last = np.append(time[1:] != time[:-1], True)
    return time[last], event[last]


def _cause_of(kind: UInt8) -> UInt8:
    table = np.full(256, UNKNOWN, np.uint8)
    for cause in HOST_CAUSES:
        table[cause] = cause
    table[Kind.WAIT] = WAITING
    return table[kind]


def _fill_holes(time: Int64, cause: UInt8) -> UInt8:
    """Short holes right before or after launch work are part of launching.

    Events that say nothing cut a hole into segments, so whole stretches are judged; the unknown
    time before a thread's first border and after its last has no end and is never filled.
    """
    hole = cause == UNKNOWN
    first = np.flatnonzero(hole & np.concatenate(([True], ~hole[:-1])))
    after = np.flatnonzero(~hole & np.concatenate(([False], hole[:-1])))
    if len(first) and first[0] == 0:
        first, after = first[1:], after[1:]
    first = first[: len(after)]  # the last stretch may run to the end
    launch = (cause == Cause.LAUNCH) | (cause == WAITING)
    beside = launch[first - 1] | launch[after]
    fill = beside & (time[after] - time[first] <= LAUNCH_HOLE)
    change = np.zeros(len(cause) + 1, np.int64)
    change[first[fill]] += 1
    change[after[fill]] -= 1
    return np.where(np.cumsum(change[:-1]) > 0, np.uint8(Cause.LAUNCH), cause)
