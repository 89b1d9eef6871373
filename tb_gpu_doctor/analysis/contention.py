"""Launching that slows down while input workers run: the same calls, beside many workers and beside few."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.callers import Causality
from tb_gpu_doctor.analysis.gap_parts import gap_rows, sum_by_step
from tb_gpu_doctor.analysis.intervals import IntervalSet
from tb_gpu_doctor.analysis.launch_results import Contention
from tb_gpu_doctor.analysis.results import Float64, Gaps, Steps, Window
from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.traces.columns import Float32, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, group

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
