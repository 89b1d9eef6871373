"""The graph of what one file's GPUs waited for, over a row of its complete steps.

A node is a device event, or a wait of the host that a device event ended. What a node waits for:

- *stream*: the event before it on its stream;
- *host*: the last wait of the host before its launch, since when the host has worked on for a recorded time;
- *other*: an event of another stream or GPU: for a wait the one that ended it, for communication the last work that
  the host had launched before it, else the one that ended right before the node began.

Each comes with a lag. Lags are as recorded where the order explains the start, and the file's usual ones where it does
not: what remains unexplained is missing in a replay, and shows in its error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.callers import Causality
from tb_gpu_doctor.analysis.host_activity import WAITING, HostActivity
from tb_gpu_doctor.analysis.host_names import Kind
from tb_gpu_doctor.analysis.intervals import IntervalSet
from tb_gpu_doctor.analysis.kernel_families import kernel_family
from tb_gpu_doctor.analysis.kernel_patterns import FAMILIES
from tb_gpu_doctor.analysis.results import BoolArray, Cause, Lateness, Steps
from tb_gpu_doctor.traces.columns import PS_PER_MS, PS_PER_US, CopyKind, DeviceEvents, EventClass, Int32, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, group

# A replay of so many events of one file says what a longer one would.
MOST_EVENTS = 10_000
# Ranks of a large job share this much.
_MOST_EVENTS_OF_A_JOB = 8 * MOST_EVENTS
_FEWEST_EVENTS = 1_500
# Work that follows another stream's event starts so soon after its end; clocks are this exact.
_SOON, _TOLERANCE = 10 * PS_PER_US, 20 * PS_PER_US
# A queued kernel starts within this after the one before it.
_QUEUED_GAP = 10 * PS_PER_US
# Work that no launch is known of keeps gaps up to this long: they lie inside one graph.
_KNOWN_GAP = PS_PER_MS
# Other threads that launch this much while one waits go on without it.
_GO_ON = 3
# A pause that lasts so long, and ends so soon after a step of a GPU, waited for that step.
_PAUSE, _PAUSE_ENDS = 100 * PS_PER_US, 50 * PS_PER_US
_PAUSING = (Kind.SYNC, Kind.WAIT, Kind.HOST_OTHER)
_GRID = PS_PER_US // 10
# Threads with a smaller part of the launches have no say in what the host does.
_LAUNCHES = 0.05

# What the host spends time on that a change may remove: names of the columns of `ReplayGraph.host`.
HOST_PARTS: tuple[Cause, ...] = (Cause.INPUT, Cause.LAUNCH, Cause.CHECKPOINT, Cause.COMPILE, Cause.HOST_OTHER)
WAIT_NODE, WORK_NODE = -1, -2
# The host waited for nothing before: `host_lag` counts from the clock's zero. Or no launch is known.
NO_WAIT, UNKNOWN_LAUNCH = -1, -2


@dataclass(frozen=True)
class ReplayGraph:
    """Nodes in an order in which each follows what it waits for; times in picoseconds, shape (n,) each.

    Attributes:
        row: device event of communication, `WORK_NODE` for other device events, `WAIT_NODE` for a wait of the host.
        device: index of the GPU; of a wait that of the event that ended it.
        klass: `EventClass`.
        family: index into ``families`` of a compute kernel, -1 for others.
        step: position among the replayed steps, -1 before the first.
        end: of communication, as recorded; 0 for others.
        duration: as recorded; waits have none.
        stream, stream_lag: how many nodes back the one before it on its stream is, 0 for none; and the least time
            between the two.
        host, host_lag: likewise the host's wait before its launch, `NO_WAIT` or `UNKNOWN_LAUNCH`; and the time since.
        other, other_lag: likewise the node of another stream or GPU.
        blocking: 1 where a wait is for a copy to the GPU.
        parts: time of ``host_lag`` by `HOST_PARTS`, one tuple a part.
        families: names of kernel families.
        steps: indices of the replayed steps among the complete ones.
        borders: when the step before each replayed step and the last one ended, on each GPU; shape (steps + 1, gpus).
        met: number of the collective of several GPUs of this file that an event is, -1 for none.
        met_wait: what it waits in there for the last of them.
        launched: whether most events have a launch.
    """

    row: tuple[int, ...]
    device: tuple[int, ...]
    klass: tuple[int, ...]
    family: tuple[int, ...]
    step: tuple[int, ...]
    end: tuple[int, ...]
    duration: tuple[int, ...]
    stream: tuple[int, ...]
    stream_lag: tuple[int, ...]
    host: tuple[int, ...]
    host_lag: tuple[int, ...]
    other: tuple[int, ...]
    other_lag: tuple[int, ...]
    blocking: tuple[int, ...]
    parts: tuple[tuple[int, ...], ...]
    families: tuple[str, ...]
    steps: tuple[int, ...]
    borders: tuple[tuple[int, ...], ...]
    met: tuple[int, ...]
    met_wait: tuple[int, ...]
    launched: bool

    def __len__(self) -> int:
        return len(self.row)


def replay_graph(
    trace: Trace, steps: Steps, launch: Int64, causes: Causality, activity: HostActivity, lateness: Lateness | None
) -> ReplayGraph | None:
    """The graph of the first complete steps in a row; None with fewer than two.

    Args:
        trace: the decoded file.
        steps: of it.
        launch: `launches.launch_of` it.
        causes: who called what.
        activity: what its threads did.
        lateness: collectives of several GPUs of the file.
    """
    chosen = _steps(trace, steps)
    if chosen is None:
        return None
    events = trace.device_events
    rows = np.flatnonzero((steps.event_step >= chosen[0]) & (steps.event_step <= chosen[-1]))
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    if not len(rows):
        return None
    return _Building(trace, steps, launch, causes, activity, lateness, chosen, rows).graph()


def _steps(trace: Trace, steps: Steps) -> Int64 | None:
    """Indices of complete steps in a row, as many as may be replayed."""
    complete = np.flatnonzero(steps.complete)
    if len(complete) < 2 or not len(steps.event_step):
        return None
    runs = np.split(complete, np.flatnonzero(np.diff(complete) > 1) + 1)
    run = max(runs, key=len)
    count = np.bincount(steps.event_step[steps.event_step >= 0], minlength=len(steps.number))[run]
    world = max(trace.world_size or 1, 1)
    most = max(_FEWEST_EVENTS, min(MOST_EVENTS, _MOST_EVENTS_OF_A_JOB // world))
    fitting = int(np.searchsorted(np.cumsum(count), most, side="right"))
    run = run[: max(fitting, 2)]
    if len(run) < 2 or count[: len(run)].sum() > 8 * MOST_EVENTS:
        return None
    return np.asarray(run, np.int64)


class _Building:
    """Columns on the way to a graph; rows are device events by start."""

    def __init__(
        self,
        trace: Trace,
        steps: Steps,
        launch: Int64,
        causes: Causality,
        activity: HostActivity,
        lateness: Lateness | None,
        chosen: Int64,
        rows: Int64,
    ) -> None:
        self.trace, self.steps, self.activity, self.lateness = trace, steps, activity, lateness
        self.chosen, self.rows = chosen, rows
        events, host = trace.device_events, trace.host_events
        self.events: DeviceEvents = events
        # the graph is kept and sent: times on one grid pack well, and their sums stay true
        self.start, self.end = _on_grid(events.start[rows]), _on_grid(events.end[rows])
        self.call = launch[rows]
        self.known: BoolArray = self.call >= 0
        at = np.maximum(self.call, 0)
        self.launched = np.minimum(_on_grid(host.start[at]), self.start) if len(host) else self.start.copy()
        self.called_until = host.end[at] if len(host) else self.end
        thread = host.thread[causes.caller[at]] if len(host) else np.zeros(len(rows), np.int32)
        self.threads = _main_threads(thread[self.known])
        # who marks the steps, or calls what launches on other threads, decides when there is something to launch
        self.callers = sorted({int(at) for at in distinct(host.thread[host.step_num >= 0])} - set(self.threads))

    def graph(self) -> ReplayGraph:
        """All columns together."""
        events, rows = self.events, self.rows
        wait_start, wait_end, waited = self._waits()
        n, k = len(rows), len(wait_start)
        # other threads may launch on while one waits: it does not go on before they have
        calls = np.sort(self.launched[self.known])
        if k:
            wait_start = np.maximum(wait_start, calls[np.maximum(np.searchsorted(calls, wait_end) - 1, 0)])
        # order: a wait before what starts when it ends
        key = np.concatenate((self.start, wait_end))
        kind = np.concatenate((np.ones(n, np.int8), np.zeros(k, np.int8)))
        order = np.lexsort((kind, key))
        place = np.empty(n + k, np.int64)
        place[order] = np.arange(n + k)
        before, gap = self._streams()
        anchor = np.searchsorted(wait_end, self.launched, side="right") - 1
        since = np.where(anchor >= 0, wait_end[np.maximum(anchor, 0)] if k else 0, 0)
        other = self._others(before)
        lag, stream_lag, other_lag = self._lags(before, gap, other)
        borders = self._borders()
        # what nothing of these steps holds up on its stream starts as recorded
        fixed = (before < 0) & (other < 0) & (~self.known | (self.steps.event_step[rows] == self.chosen[0]))
        begin = np.array([min(borders[0])], np.int64)
        parts = []
        for found in self._host_parts():
            launched = intervals.covered_before(found, self.launched)
            ended = intervals.covered_before(found, wait_end)
            began = intervals.covered_before(found, wait_start)
            root = intervals.covered_before(found, begin)
            own = launched - np.where(anchor >= 0, ended[np.maximum(anchor, 0)] if k else root, root)
            own = np.where(fixed, 0, np.maximum(own, 0))
            waits = np.maximum(began - np.concatenate((root, ended[:-1])), 0) if k else ended
            parts.append(tuple(_on_grid(np.concatenate((own, waits)))[order].tolist()))
        host_lag = np.where(self.known, self.launched + lag - since, 0)
        wait_lag = wait_start - np.concatenate(([0], wait_end[:-1])) if k else wait_start
        behind = np.where(anchor >= 0, place[n + np.maximum(anchor, 0)] if k else NO_WAIT, NO_WAIT)
        host = np.where(self.known, behind, UNKNOWN_LAUNCH)
        wait_host = np.concatenate(([NO_WAIT], place[n : n + k - 1])) if k else np.zeros(0, np.int64)

        def mapped(found: Int64) -> Int64:
            return np.where(found >= 0, place[:n] - place[np.maximum(found, 0)], 0)

        def both(mine: Int64 | Int32, waits: Int64 | Int32) -> tuple[int, ...]:
            return tuple(np.concatenate((np.asarray(mine, np.int64), np.asarray(waits, np.int64)))[order].tolist())

        nothing, zero = np.full(k, -1, np.int64), np.zeros(k, np.int64)
        klass, family, families = self._families()
        sent = klass == EventClass.COMMUNICATION
        step = np.searchsorted(self.chosen, self.steps.event_step[rows])
        copies = (events.copy_kind[rows] == CopyKind.H2D) & (klass == EventClass.COPY)
        met, met_wait = self._met()
        host = np.where(fixed, NO_WAIT, host)
        host_lag = np.where(fixed, self.start, host_lag)
        return ReplayGraph(
            row=both(np.where(sent, rows, WORK_NODE), nothing),
            device=both(events.device[rows], events.device[rows][waited] if k else zero),
            klass=both(klass, np.full(k, int(EventClass.MEMSET))),
            family=both(family, nothing),
            step=both(step, step[waited] if k else zero),
            end=both(np.where(sent, self.end, 0), zero),
            duration=both(self.end - self.start, zero),
            stream=both(mapped(before), zero),
            stream_lag=both(stream_lag, zero),
            host=both(
                np.where(host >= 0, place[:n] - host, host), np.where(wait_host >= 0, place[n:] - wait_host, wait_host)
            ),
            host_lag=both(host_lag, wait_lag),
            other=both(mapped(other), place[n:] - place[waited] if k else zero),
            other_lag=both(other_lag, wait_end - self.end[waited] if k else zero),
            blocking=both(np.zeros(n, np.int64), copies[waited] if k else zero),
            parts=tuple(parts),
            families=families,
            steps=tuple(np.searchsorted(np.flatnonzero(self.steps.complete), self.chosen).tolist()),
            borders=borders,
            met=both(met, nothing),
            met_wait=both(met_wait, zero),
            launched=bool(self.known.mean() > 0.5),
        )

    def _waits(self) -> tuple[Int64, Int64, Int64]:
        """(start, end, position of the event that ended it) of the host's waits for a GPU, by end."""
        host = self.trace.host_events
        empty = np.zeros(0, np.int64)
        if not len(host) or not self.known.any():
            return empty, empty, empty
        low, high = int(self.launched.min()), int(self.end.max())
        rows = np.flatnonzero((self.activity.kind == Kind.SYNC) & (host.start < high) & (host.end > low))
        # a call that copies returns when the copy is done, if it blocks
        blocks = self.known & (self.events.copy_kind[self.rows] != CopyKind.NONE)
        blocks &= np.abs(self.called_until - self.end) <= _TOLERANCE
        starts = np.concatenate((host.start[rows], self.launched[blocks]))
        ends = np.concatenate((host.end[rows], self.called_until[blocks]))
        paused = self._pauses(low, high)
        start, end = intervals.union(
            np.concatenate((starts, host.start[paused])), np.concatenate((ends, host.end[paused]))
        )
        at_step = np.isin(end, host.end[paused])
        borders = np.sort(self.steps.end[self.steps.end >= 0])
        border = borders[np.maximum(np.searchsorted(borders, end, side="right") - 1, 0)]
        at_step &= (border <= end) & (border > start)
        inside = np.searchsorted(np.sort(self.launched[self.known]), end, side="left")
        inside = inside - np.searchsorted(np.sort(self.launched[self.known]), start, side="right")
        by_end = np.argsort(self.end, kind="stable")
        until = np.where(at_step, border, end + PS_PER_US)
        at = np.searchsorted(self.end[by_end], until, side="right") - 1
        waited = by_end[np.maximum(at, 0)]
        # ... or all that was launched by then is done: who waits for everything, waits for all threads
        begun = np.searchsorted(self.start, end + PS_PER_US, side="right")
        called = np.searchsorted(np.sort(self.launched), end, side="left")
        good = (at >= 0) & ((inside <= _GO_ON) | (called - begun <= _GO_ON) | at_step)
        good &= (self.end[waited] > start + PS_PER_US) & (self.start[waited] < end)
        good &= self.launched[waited] < end
        # a value that is waited for may be asked for only when it is there: it was wanted when the wait began
        at = np.searchsorted(end[good], self.launched, side="right")
        own = (at < good.sum()) & (self.events.copy_kind[self.rows] == CopyKind.D2H)
        few = np.append((inside <= _GO_ON)[good], False)[at]
        began = np.append(start[good], 0)[at]
        self.launched = np.where(own & few & (began < self.launched), _on_grid(began), self.launched)
        return _on_grid(start[good]), _on_grid(end[good]), waited[good]

    def _pauses(self, low: int, high: int) -> Int64:
        """Rows of calls that launch nothing and return when a GPU has ended a step: the host is no further ahead."""
        host = self.trace.host_events
        ended = np.sort(self.steps.end[self.steps.end >= 0])
        rows = np.flatnonzero(np.isin(self.activity.kind, _PAUSING) & (host.duration > _PAUSE))
        rows = rows[(host.start[rows] < high) & (host.end[rows] > low)]
        if not len(ended) or not len(rows):
            return rows[:0]
        at = np.searchsorted(ended, host.end[rows], side="right") - 1
        soon = (at >= 0) & (host.end[rows] - ended[np.maximum(at, 0)] <= _PAUSE_ENDS)
        rows = rows[soon & (ended[np.maximum(at, 0)] > host.start[rows])]
        calling = np.flatnonzero(host.correlation > 0)
        first = np.searchsorted(calling, rows, side="right")  # rows are sorted by thread and start
        own = first < len(calling)
        following = calling[np.minimum(first, len(calling) - 1)]
        launches = own & (host.thread[following] == host.thread[rows]) & (host.start[following] < host.end[rows])
        return np.asarray(rows[~launches], np.int64)

    def _streams(self) -> tuple[Int64, Int64]:
        """(position of the event before each on its stream, time since its end)."""
        stream = self.events.stream[self.rows]
        order = np.argsort(stream, kind="stable")
        before = np.full(len(order), -1, np.int64)
        same = stream[order][1:] == stream[order][:-1]
        before[order[1:]] = np.where(same, order[:-1], -1)
        gap = np.where(before >= 0, self.start - self.end[np.maximum(before, 0)], 0)
        return before, gap

    def _others(self, before: Int64) -> Int64:
        """Position of the event of another stream or GPU that each waited for, -1 for none."""
        events, rows = self.events, self.rows
        stream, klass = events.stream[rows], events.klass[rows]
        found = np.full(len(rows), -1, np.int64)
        never = np.iinfo(np.int64).min
        ready = np.where(self.known, self.launched + 3 * self._usual(before) + 5 * PS_PER_US, never)
        ready = np.maximum(ready, np.where(before >= 0, self.end[np.maximum(before, 0)], never))
        by_end = np.argsort(self.end, kind="stable")
        ends = self.end[by_end]
        asked = np.flatnonzero(self.start - ready > 2 * PS_PER_US)
        high = np.searchsorted(ends, self.start[asked] + PS_PER_US, side="right") - 1
        for back in range(4):
            at = high - back
            row = by_end[np.maximum(at, 0)]
            hit = (at >= 0) & (stream[row] != stream[asked]) & (ends[np.maximum(at, 0)] >= self.start[asked] - _SOON)
            hit &= (row < asked) & (found[asked] < 0) & (self.end[row] >= ready[asked] - _SOON)
            found[asked[hit]] = row[hit]
        # a collective follows what its GPU had been given to compute before it
        for device in distinct(events.device[rows]).tolist():
            mine = np.flatnonzero((events.device[rows] == device) & self.known)
            computing = mine[klass[mine] == EventClass.COMPUTE]
            sent = mine[klass[mine] == EventClass.COMMUNICATION]
            if not len(computing) or not len(sent):
                continue
            by_launch = computing[np.argsort(self.launched[computing], kind="stable")]
            at = np.searchsorted(self.launched[by_launch], self.launched[sent], side="left") - 1
            row = by_launch[np.maximum(at, 0)]
            good = (at >= 0) & (found[sent] < 0) & (stream[row] != stream[sent])
            good &= (self.end[row] <= self.start[sent] + PS_PER_US) & (row < sent)
            found[sent[good]] = row[good]
        return found

    def _free(self, before: Int64) -> BoolArray:
        """Which events found their stream empty when they were launched."""
        return self.known & ((before < 0) | (self.end[np.maximum(before, 0)] <= self.launched))

    def _usual(self, before: Int64) -> int:
        """How long work takes from its launch to its start where nothing holds it up."""
        free = self._free(before)
        return int(np.median((self.start - self.launched)[free])) if free.any() else 5 * PS_PER_US

    def _lags(self, before: Int64, gap: Int64, other: Int64) -> tuple[Int64, Int64, Int64]:
        """(from launch to start, after the event before it on its stream, after that of another stream)."""
        took = self.start - self.launched
        usual = self._usual(before)
        free = self._free(before) & (other < 0)
        lag = np.where(took <= 3 * usual + 5 * PS_PER_US, took, usual)
        lag = np.where(free, lag, np.minimum(took, usual))
        queued = (before >= 0) & (gap >= 0) & (gap <= _QUEUED_GAP) & (~self.known | (took > usual + gap))
        short = int(np.median(gap[queued])) if queued.any() else PS_PER_US
        after = np.where((gap <= _QUEUED_GAP) & queued, gap, np.minimum(gap, short))
        after = np.where(~self.known & (gap <= _KNOWN_GAP), gap, after)
        late = np.where(other >= 0, self.start - self.end[np.maximum(other, 0)], 0)
        return lag, after, np.minimum(late, short)

    def _host_parts(self) -> list[IntervalSet]:
        """When the host did what, by `HOST_PARTS`: the launching threads together."""
        found: list[tuple[list[Int64], list[Int64]]] = [([], []) for _ in HOST_PARTS]
        low, high = int(self.launched.min()), int(self.end.max())
        for thread in (*self.threads, *self.callers):
            launches = thread in self.threads
            doing = self.activity.thread(thread)
            until = np.append(doing.time[1:], doing.time[-1:])
            near = (doing.time < high) & (until > low)
            for at, part in enumerate(HOST_PARTS):
                mine = near & (doing.cause == part)
                if part == Cause.LAUNCH:
                    mine = near & launches & ((doing.cause == part) | (doing.cause == WAITING))
                found[at][0].append(doing.time[mine])
                found[at][1].append(until[mine])
        sets = []
        taken = intervals.empty_set()
        for starts, ends in found:
            own = intervals.union(np.concatenate(starts), np.concatenate(ends)) if starts else intervals.empty_set()
            if len(own[0]) and len(taken[0]):
                own = intervals.intersect(own, intervals.complement(taken, low - PS_PER_MS, high + PS_PER_MS))
            sets.append(own)
            joined = (np.concatenate((taken[0], own[0])), np.concatenate((taken[1], own[1])))
            taken = intervals.union(*joined)
        return sets

    def _families(self) -> tuple[Int64, Int64, tuple[str, ...]]:
        """(class of each event, family of each kernel, names of the families)."""
        events, rows, strings = self.events, self.rows, self.trace.strings
        klass = events.klass[rows].astype(np.int64)
        names, index = group(events.name[rows])
        known = list(FAMILIES)
        code = np.array([_code(known, kernel_family(strings[name])) for name in names.tolist()], np.int64)
        return klass, np.where(klass == EventClass.COMPUTE, code[index], -1), tuple(known)

    def _borders(self) -> tuple[tuple[int, ...], ...]:
        first = self.steps.start[self.chosen[:1]]
        return tuple(map(tuple, np.concatenate((first, self.steps.end[self.chosen])).tolist()))

    def _met(self) -> tuple[Int64, Int64]:
        """(number of the collective that several GPUs of this file meet in, what each waits in it); -1 for none."""
        met, wait = np.full(len(self.rows), -1, np.int64), np.zeros(len(self.rows), np.int64)
        late = self.lateness
        if late is None or not len(late.start):
            return met, wait
        events = self.events
        for column, device in enumerate(late.devices.tolist()):
            mine = np.flatnonzero(
                (events.device[self.rows] == device) & (events.klass[self.rows] == EventClass.COMMUNICATION)
            )
            if not len(mine):
                continue
            at = np.minimum(np.searchsorted(self.start[mine], _on_grid(late.start[:, column])), len(mine) - 1)
            hit = self.start[mine[at]] == _on_grid(late.start[:, column])
            met[mine[at[hit]]] = np.flatnonzero(hit)
            wait[mine[at[hit]]] = np.minimum(_on_grid(late.wait[hit, column]), (self.end - self.start)[mine[at[hit]]])
        return met, wait


def _back(place: Int64, node: Int64) -> Int64:
    return np.where(node >= 0, place - node, node)


def _on_grid(time: Int64) -> Int64:
    return np.asarray(time // _GRID * _GRID, np.int64)


def _code(known: list[str], family: str) -> int:
    if family not in known:
        known.append(family)
    return known.index(family)


def _main_threads(thread: Int32) -> list[int]:
    if not len(thread):
        return []
    used, index = group(thread)
    count = np.bincount(index)
    return [int(value) for value in used[count >= _LAUNCHES * count.sum()]]
