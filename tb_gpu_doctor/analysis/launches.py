"""How the host launches: which call launched a device event, how much launched work is queued, and what slows it.

Launches are joined to device events by correlation id. The queue tells how far the host is ahead. Contention is
launching that takes longer while many input workers run than the same calls take beside few. Serialized streams are
kernels that were launched in time to run side by side and never did.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.callers import Causality
from tb_gpu_doctor.analysis.idle import gap_rows, sum_by_step
from tb_gpu_doctor.analysis.intervals import IntervalSet
from tb_gpu_doctor.analysis.results import Cause, Float64, Gaps, LaunchStats, Steps, Window
from tb_gpu_doctor.traces.columns import PS_PER_MS, PS_PER_US, EventClass, Float32, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, group


@dataclass(frozen=True)
class LaunchQueue:
    """How far ahead of one GPU the host was, over the window. Times in picoseconds.

    Attributes:
        device: device index.
        launches: launch calls that led to events in the window.
        period: median time from one launch call to the next on the launching thread, None under two calls.
        call: median time inside a launch call.
        mean_depth: work that was launched and had not started, the mean over time.
        max_depth: the most of it at one time.
        empty: time in which nothing was launched and waiting.
        kernels: compute kernels in the window; ``short_kernels`` of them run less than 10 us.
        kernel_time, short_time: their durations.
        border_idle: idle time charged to `launch` before the first work of a step.
        inner_idle: idle time charged to `launch` elsewhere.
        dispatches: calls in the window in which Python hands single ops or functions to the framework.
    """

    device: int
    launches: int
    period: int | None
    call: int
    mean_depth: float
    max_depth: int
    empty: int
    kernels: int
    short_kernels: int
    kernel_time: int
    short_time: int
    border_idle: int
    inner_idle: int
    dispatches: int


@dataclass(frozen=True)
class Contention:
    """How much longer the same calls take while many input workers run than while few do.

    Attributes:
        device: the GPU that the calls launch for.
        slowdown: median over the calls beside many workers, each compared with calls of its name beside few.
        few, many: workers at most and at least.
        calls_few, calls_many: how many calls were compared.
        name: the call with the most time beside many workers, and its median times.
        typical_few, typical_many: median time of that call.
        lost: idle time charged to ``launch``, ``host_other`` or ``sync`` that would not be there at the speed
            beside few workers; ``gap_part`` of each gap, shape (gaps,), ``step_part`` per complete step.
        workers: names of the worker threads, the busiest first.
        start, end: the longest stretch with many workers.
    """

    device: int
    slowdown: float
    few: int
    many: int
    calls_few: int
    calls_many: int
    name: str
    typical_few: float
    typical_many: float
    lost: int
    gap_part: Int64
    step_part: Int64
    workers: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True)
class StreamOverlap:
    """Whether kernels of several streams of one GPU ran one after the other although they need not have.

    Attributes:
        device: device index.
        streams: streams with compute kernels.
        handovers: kernels that were launched while a kernel of another stream ran, with nothing before
            them on their own stream, and started only when that one had ended.
        reversed: those of them that were launched before the kernel that they waited for,
            so that they cannot depend on it.
        first: row of the kernel of the longest such wait; ``waited_for`` the kernel before it.
    """

    device: int
    streams: int
    handovers: int
    reversed: int
    first: int
    waited_for: int


# The clocks of host and device are joined once: a launch may seem to start a little after its
# kernel, but one that starts this much later belongs to another kernel.
MAX_SKEW = PS_PER_MS
SHORT_KERNEL = 10 * PS_PER_US


def launch_of(trace: Trace) -> Int64:
    """Row of the host event that launched each device event, -1 unknown; shape (device events,)."""
    host, device = trace.host_events, trace.device_events
    found = np.full(len(device), -1, np.int64)
    rows = np.flatnonzero(host.correlation > 0)
    if not len(rows) or not len(device):
        return found
    order = np.argsort(host.correlation[rows], kind="stable")
    rows = rows[order]
    keys = host.correlation[rows]
    first = np.searchsorted(keys, device.correlation, side="left")
    inside = np.minimum(first, len(keys) - 1)
    good = (device.correlation > 0) & (keys[inside] == device.correlation)
    launch = rows[inside]
    good &= host.start[launch] <= device.end + MAX_SKEW
    found[good] = launch[good]
    return found


def launch_stats(trace: Trace, launch: Int64, window: Window) -> tuple[LaunchStats, ...]:
    """How the host launched, for each device with events."""
    events = trace.device_events
    stats = []
    for device in trace.devices:
        rows = events.of_device(device.index)
        inside = (events.start[rows] >= window.start) & (events.start[rows] < window.end)
        if not inside.any():
            continue
        calls = distinct(launch[rows][inside & (launch[rows] >= 0)])
        compute = inside & (events.klass[rows] == EventClass.COMPUTE)
        durations = events.duration[rows][compute]
        stats.append(
            LaunchStats(
                device=device.index,
                launches=len(calls),
                short_kernels=int(np.count_nonzero(durations < SHORT_KERNEL)),
                median_kernel=int(np.median(durations)) if len(durations) else 0,
            )
        )
    return tuple(stats)


# Medians of longer columns are taken from a regular sample.
_SAMPLE = 20_000
# Python hands a single op or function to the framework, or XLA's runtime gets one to run.
_DISPATCH = re.compile(r"^(?:EagerLocalExecute\b|PjitFunction\()")


def launch_queues(trace: Trace, window: Window, steps: Steps, gaps: Gaps, launch: Int64) -> tuple[LaunchQueue, ...]:
    """One for each GPU with launched work in the window."""
    dispatches = _dispatches(trace, window)
    found = []
    for device in trace.devices:
        queue = _queue(trace, window, steps, gaps, launch, device.index, dispatches)
        if queue is not None:
            found.append(queue)
    return tuple(found)


def _queue(
    trace: Trace, window: Window, steps: Steps, gaps: Gaps, launch: Int64, device: int, dispatches: int
) -> LaunchQueue | None:
    events, host = trace.device_events, trace.host_events
    own = events.of_device(device)
    start, duration = events.start[own], events.duration[own]
    inside = (start >= window.start) & (start < window.end)
    called = inside & (launch[own] >= 0)
    rows = launch[own][called]
    if not len(rows):
        return None
    began = start[called]
    call = np.minimum(host.start[rows], began)  # clocks are joined once: a launch may seem to start after its work
    calls = distinct(rows)
    depth = _depth(window, call, began)
    compute = inside & (events.klass[own] == EventClass.COMPUTE)
    times = duration[compute]
    border, inner = _launch_idle(steps, gaps, device)
    return LaunchQueue(
        device=device,
        launches=len(calls),
        period=_period(trace, calls),
        call=int(np.median(_sample(host.duration[calls]))),
        mean_depth=depth[0],
        max_depth=depth[1],
        empty=depth[2],
        kernels=len(times),
        short_kernels=int(np.count_nonzero(times < SHORT_KERNEL)),
        kernel_time=intervals.exact_sum(times),
        short_time=intervals.exact_sum(times[times < SHORT_KERNEL]),
        border_idle=border,
        inner_idle=inner,
        dispatches=dispatches,
    )


def _depth(window: Window, call: Int64, began: Int64) -> tuple[float, int, int]:
    """(mean over the window, maximum, time without any) of the work that was launched and had not started."""
    # a wait that began before the window counts from its start on; those that end behind it are not given
    low = np.maximum(call, window.start)
    waited = intervals.exact_sum(began - low)
    order = np.argsort(low, kind="stable")
    low = low[order]
    # at each launch: all launches up to it, less all work that had started by then; rows are sorted by start
    at_launch = np.arange(1, len(low) + 1) - np.searchsorted(began, low, side="right")
    covered = intervals.measure(intervals.union(low, began[order]))
    return waited / window.length, int(max(at_launch.max(), 0)), window.length - covered


def _sample(values: Int64) -> Int64:
    """All of a few values, every so manyth of many: enough for a median."""
    return values[:: len(values) // _SAMPLE + 1]


def _period(trace: Trace, calls: Int64) -> int | None:
    """Median time between the starts of successive calls of one thread; rows are sorted by thread and start."""
    host = trace.host_events
    apart = np.diff(host.start[calls])[host.thread[calls][1:] == host.thread[calls][:-1]]
    return int(np.median(_sample(apart))) if len(apart) else None


def _launch_idle(steps: Steps, gaps: Gaps, device: int) -> tuple[int, int]:
    """Idle time charged to `launch` (before the first work of a step, elsewhere)."""
    rows = gap_rows(gaps, device)
    charged = gaps.by_cause[rows, Cause.LAUNCH]
    before, after = gaps.before[rows], gaps.after[rows]
    of_next = steps.event_step[np.maximum(after, 0)]
    first = (before < 0) | (of_next != steps.event_step[np.maximum(before, 0)])
    border = int(charged[(after >= 0) & (of_next >= 0) & first].sum())
    return border, int(charged.sum()) - border


def _dispatches(trace: Trace, window: Window) -> int:
    """Host events in the window in which a single op or function is handed over."""
    host = trace.host_events
    if not len(host):
        return 0
    names = distinct(host.name)
    wanted = np.zeros(len(trace.strings) + 1, np.bool_)
    wanted[[i for i in names.tolist() if _DISPATCH.match(trace.strings[i])]] = True
    return int(np.count_nonzero(wanted[host.name] & (host.start >= window.start) & (host.start < window.end)))


# Threads that work for the input pipeline; the one that hands over elements only waits.
_WORKERS, _WAITS = "tf_data", "tf_data_iterator_get_next"
# Fewer workers do not fill a host.
_MIN_WORKERS = 4
# "Few" workers are up to this part of the most that ran at once, "many" from this part on.
_FEW, _MANY = 0.25, 0.75
# A comparison needs so many calls on both sides, and so many of one name; in so many separate stretches.
_MIN_CALLS, _MIN_SAME, _MIN_STRETCHES = 30, 3, 3
_MAX_WORKERS_NAMED = 4
# Idle time in which the host works and would be faster alone; after a synchronisation it is such work, too.
_SLOWED = [Cause.LAUNCH, Cause.HOST_OTHER, Cause.SYNC]


@dataclass(frozen=True)
class _Load:
    """How many workers run: ``count`` (m,) from each of ``time`` (m,) on; and where they are many."""

    time: Int64
    count: Int64
    few: int
    many: int
    busy: IntervalSet
    names: tuple[str, ...]

    def at(self, instant: Int64) -> Int64:
        """Workers at each instant."""
        index = np.searchsorted(self.time, instant, side="right") - 1
        return np.where(index >= 0, self.count[np.maximum(index, 0)], 0)


def find_contention(
    trace: Trace, window: Window, steps: Steps, gaps: Gaps, launch: Int64, causes: Causality
) -> tuple[Contention, ...]:
    """The GPUs whose launching thread slows down beside many input workers; nothing where it cannot be told."""
    load = _load(trace, window)
    if load is None:
        return ()
    found = []
    for device in trace.devices:
        contention = _of_device(trace, window, steps, gaps, launch, causes, load, device.index)
        if contention is not None:
            found.append(contention)
    return tuple(found)


def _load(trace: Trace, window: Window) -> _Load | None:
    host = trace.host_events
    spans: list[IntervalSet] = []
    busy: list[tuple[int, str]] = []
    for thread in trace.threads:
        if not thread.name.startswith(_WORKERS) or thread.name.startswith(_WAITS):
            continue
        rows = host.of_thread(thread.index)
        work = intervals.clip(intervals.union(host.start[rows], host.end[rows]), window.start, window.end)
        if len(work[0]):
            spans.append(work)
            busy.append((intervals.measure(work), thread.name))
    if len(spans) < _MIN_WORKERS:
        return None
    starts = np.sort(np.concatenate([start for start, _ in spans]))
    ends = np.sort(np.concatenate([end for _, end in spans]))
    time = distinct(np.concatenate((starts, ends)))
    count = np.searchsorted(starts, time, side="right") - np.searchsorted(ends, time, side="right")
    most = int(count.max())
    if most < _MIN_WORKERS:
        return None
    few, many = int(most * _FEW), int(np.ceil(most * _MANY))
    crowded = count >= many
    at = np.flatnonzero(crowded[:-1])
    stretches = intervals.union(time[at], time[at + 1])
    if len(stretches[0]) < _MIN_STRETCHES:
        return None
    names = tuple(name for _, name in sorted(busy, key=lambda item: -item[0])[:_MAX_WORKERS_NAMED])
    return _Load(time, count, few, many, stretches, names)


def _of_device(
    trace: Trace,
    window: Window,
    steps: Steps,
    gaps: Gaps,
    launch: Int64,
    causes: Causality,
    load: _Load,
    device: int,
) -> Contention | None:
    host = trace.host_events
    calls = launch[trace.device_events.of_device(device)]
    calls = distinct(calls[calls >= 0])
    # the call itself, and what encloses it most closely: the op that it launches for
    around = causes.parent[causes.caller[calls]]
    rows = distinct(np.concatenate((calls, around[around >= 0])))
    rows = rows[(host.start[rows] >= window.start) & (host.start[rows] < window.end) & (host.duration[rows] > 0)]
    rows = rows[host.step_num[rows] < 0]
    workers = load.at(host.start[rows])
    few, many = rows[workers <= load.few], rows[workers >= load.many]
    if min(len(few), len(many)) < _MIN_CALLS:
        return None
    if len(_stretches(load, host.start[many])) < _MIN_STRETCHES:
        return None
    ratio, compared, typical = _compare(trace, few, many)
    if len(ratio) < _MIN_CALLS:
        return None
    slowdown = float(np.median(ratio))
    if slowdown <= 1:
        return None
    spent = np.bincount(host.name[compared], weights=host.duration[compared].astype(np.float64))
    name = int(np.argmax(spent))
    mine = host.name[compared] == name
    mine_rows = gap_rows(gaps, device)
    part = _lost(gaps, mine_rows, load, slowdown)
    gap_part = np.zeros(len(gaps), np.int64)
    gap_part[mine_rows] = part
    longest = int(np.argmax(load.busy[1] - load.busy[0]))
    return Contention(
        device=device,
        slowdown=slowdown,
        few=load.few,
        many=load.many,
        calls_few=len(few),
        calls_many=len(compared),
        name=trace.strings[name],
        typical_few=float(typical[mine][0]),
        typical_many=float(np.median(host.duration[compared[mine]])),
        lost=int(part.sum()),
        gap_part=gap_part,
        step_part=sum_by_step(steps, device, gaps.start[mine_rows], part),
        workers=load.names,
        start=int(load.busy[0][longest]),
        end=int(load.busy[1][longest]),
    )


def _stretches(load: _Load, instant: Int64) -> Int64:
    """Which of the crowded stretches hold some of the instants."""
    return distinct(np.searchsorted(load.busy[0], instant, side="right"))


def _compare(trace: Trace, few: Int64, many: Int64) -> tuple[Float32, Int64, Float32]:
    """(duration over the median of its name beside few, rows, that median) of the calls beside many workers."""
    host = trace.host_events
    names, index = group(host.name[few])
    order = np.lexsort((host.duration[few], index))
    counts = np.bincount(index)
    first = np.cumsum(counts) - counts
    medians = host.duration[few][order][first + counts // 2].astype(np.float64)
    at = np.minimum(np.searchsorted(names, host.name[many]), len(names) - 1)
    good = (names[at] == host.name[many]) & (counts[at] >= _MIN_SAME)
    compared, usual = many[good], medians[at[good]]
    return (
        (host.duration[compared] / usual).astype(np.float32),
        compared,
        usual.astype(np.float32),
    )


def _lost(gaps: Gaps, rows: slice, load: _Load, slowdown: float) -> Int64:
    """Of each gap's launching and other host work, what would not be there at the speed beside few workers.

    From few to many workers the slowdown is taken to grow evenly; it is 1 up to few and as measured from many on.
    """
    crowd = np.clip((load.count - load.few) / (load.many - load.few), 0, 1)
    saved = 1 - 1 / (1 + crowd * (slowdown - 1))
    before = np.concatenate(([0.0], np.cumsum(saved[:-1] * np.diff(load.time))))

    def until(at: Int64) -> Float64:
        index = np.searchsorted(load.time, at, side="right") - 1
        inside = np.maximum(index, 0)
        return np.where(index >= 0, before[inside] + saved[inside] * (at - load.time[inside]), 0.0)

    start, end = gaps.start[rows], gaps.end[rows]
    share = (until(end) - until(start)) / np.maximum(end - start, 1)
    charged = gaps.by_cause[rows][:, _SLOWED].sum(axis=1)
    return np.asarray(charged * np.clip(share, 0, 1), dtype=np.int64)


# The GPU knows of a launch this long after the call at the latest; it starts a waiting kernel this soon.
_KNOWN_AFTER = 10 * PS_PER_US
_AT_ONCE = 10 * PS_PER_US
# Kernels that waited for a shorter time than this may have been about to start anyway.
_MIN_WAIT = 5 * PS_PER_US
# Streams overlap as soon as this part of the kernels' time is shared.
_NO_OVERLAP = 0.001


def find_serialized(trace: Trace, window: Window, launch: Int64) -> tuple[StreamOverlap, ...]:
    """The GPUs whose compute kernels never overlap, with what speaks for it that they could have.

    Only compute kernels tell: a collective or a copy that waits for the kernel before it depends on it
    more often than not.
    """
    found = []
    for device in trace.devices:
        overlap = _serialized(trace, window, launch, device.index)
        if overlap is not None:
            found.append(overlap)
    return tuple(found)


def _serialized(trace: Trace, window: Window, launch: Int64, device: int) -> StreamOverlap | None:
    events = trace.device_events
    own = events.of_device(device)
    kernels = (events.klass[own] == EventClass.COMPUTE) & (events.duration[own] > 0)
    kernels &= (events.start[own] >= window.start) & (events.start[own] < window.end)
    rows = np.flatnonzero(kernels) + own.start
    streams = distinct(events.stream[rows])
    if len(streams) < 2 or not (launch[rows] >= 0).any():
        return None
    start, end, stream = events.start[rows], events.end[rows], events.stream[rows]
    total = intervals.exact_sum(end - start)
    if total - intervals.measure(intervals.union(start, end)) > _NO_OVERLAP * total:
        return None
    own_before = _end_of_own_stream(trace, own, rows)
    call = launch[rows]
    known = (call[1:] >= 0) & (call[:-1] >= 0) & (call[1:] != call[:-1])
    called = np.where(call >= 0, trace.host_events.start[np.maximum(call, 0)], end)
    ready = np.maximum(called + _KNOWN_AFTER, own_before)
    waited = end[:-1] - np.maximum(ready[1:], start[:-1])
    handed = known & (stream[1:] != stream[:-1]) & (waited >= _MIN_WAIT) & (start[1:] - end[:-1] <= _AT_ONCE)
    handed &= start[1:] >= end[:-1]
    at = np.flatnonzero(handed)
    if not len(at):
        return None
    longest = int(at[np.argmax(waited[at])])
    return StreamOverlap(
        device=device,
        streams=len(streams),
        handovers=len(at),
        reversed=int(np.count_nonzero(called[at + 1] < called[at])),
        first=int(rows[longest + 1]),
        waited_for=int(rows[longest]),
    )


def _end_of_own_stream(trace: Trace, own: slice, rows: Int64) -> Int64:
    """When all work before each kernel on its own stream, of whatever kind, had ended."""
    events = trace.device_events
    order = np.argsort(events.stream[own], kind="stable")
    stream, end = events.stream[own][order], events.end[own][order]
    new = np.concatenate(([True], stream[1:] != stream[:-1]))
    before = np.where(new, np.iinfo(np.int64).min, np.concatenate((end[:1], end[:-1])))
    found = np.empty(len(order), np.int64)
    found[order] = before
    return np.asarray(found[rows - own.start], dtype=np.int64)
