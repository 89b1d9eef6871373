"""Where the steps of a trace begin and end on each GPU, by what the host marks, and the window that they make.

A step of a GPU runs from the end of the last compute or communication event of the step before it to the end
of its own last one, so each step owns the wait in front of it. The host's markers bound the launches; the
device lags behind them, so an event belongs to the step that launched it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tb_gpu_doctor.analysis.callers import Causality, nearest_with
from tb_gpu_doctor.analysis.lost_events import Launches
from tb_gpu_doctor.analysis.results import BoolArray, Steps, StepSource, Window
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces.columns import DeviceEvents, EventClass, Int32, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, group, rows_by

# Markers that carry a step number without the profiler's root flag.
UNFLAGGED_MARKERS = frozenset({"Profiled batch"})
_MAX_HOPS = 8
# A step whose launches miss this share of their device events was cut off by the recording.
_CUT_SHARE = 0.01
# Markers hold all launches of a step where at most this share of them lies between two markers; and from this share
# on what lies there is a step whose marker was lost.
_OUTSIDE, _A_STEP, _ONE_MORE = 0.05, 0.5, 1.5


def no_steps(trace: Trace) -> Steps:
    """No steps at all."""
    empty = np.zeros(0, np.int64)
    table = np.zeros((0, len(trace.devices)), np.int64)
    nothing = np.full(len(trace.device_events), -1, np.int32)
    return Steps("none", empty, empty, empty, np.zeros(0, np.bool_), table, table, nothing)


def marker_rows(trace: Trace) -> Int64:
    """Rows of the step markers: those of the name that occurs most, the longer one where two tie.

    Markers may nest (a framework's own inside the user's): only one kind can be the step.
    """
    host = trace.host_events
    numbered = np.flatnonzero(host.step_num >= 0)
    if not len(numbered):
        return np.asarray(numbered, dtype=np.int64)
    unflagged = [i for i in distinct(host.name[numbered]).tolist() if trace.strings[i] in UNFLAGGED_MARKERS]
    rows = numbered[(host.is_root[numbered] == 1) | np.isin(host.name[numbered], unflagged)]
    if not len(rows):
        return np.asarray(rows, dtype=np.int64)
    names, inverse = group(host.name[rows])
    counts = np.bincount(inverse)
    time = np.bincount(inverse, weights=host.duration[rows].astype(np.float64), minlength=len(names))
    best = max(range(len(names)), key=lambda i: (counts[i], time[i]))
    return np.asarray(rows[inverse == best], dtype=np.int64)


def find_steps(trace: Trace, launch: Int64, causes: Causality, launches: Launches) -> Steps:
    """Steps by the host's markers; source ``none`` when there is none.

    Args:
        trace: the trace.
        launch: host row per device event (`launches.launch_of`).
        causes: links between host events (`callers.causality`).
        launches: with those whose work is not in the file (`lost_events.find_launches`).
    """
    rows = marker_rows(trace)
    if not len(rows):
        return no_steps(trace)
    host = trace.host_events
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    apart = _are_replicas(host.thread[rows], host.step_num[rows], host.start[rows], host.end[rows])
    number, start, end, member = _merge_markers(host.step_num[rows], host.start[rows], host.end[rows], apart)
    called = launches.rows[np.isin(host.thread[launches.rows], distinct(host.thread[rows]))]
    place, number, start, end = _with_lost_markers(number, start, end, np.sort(host.start[called]))
    step_of_row = np.full(len(host), -1, np.int32)
    step_of_row[rows] = place[member]
    steps = made_steps(trace, launch, causes, launches, Cuts("marked", number, start, end, step_of_row))
    if len(number) > int(place[-1]) + 1:  # where the last step ends is unknown
        steps.complete[-1] = False
    return steps


class Cuts(NamedTuple):
    """Where the host cuts its time into steps.

    Attributes:
        source: of the steps.
        number: of each step, shape (n,).
        start, end: of each step on the host, rising.
        step_of_row: index of the step whose launches a host row encloses or causes, -1 none; shape (host events,).
    """

    source: StepSource
    number: Int64
    start: Int64
    end: Int64
    step_of_row: Int32


def made_steps(trace: Trace, launch: Int64, causes: Causality, launches: Launches, cuts: Cuts) -> Steps:
    """Steps whose cuts on the host are known; arguments as for `find_steps`."""
    start, end = cuts.start, cuts.end
    event_step = _event_steps(trace, launch, causes, cuts.step_of_row, start, end)
    complete = _complete(trace, launches, start, end)
    first, last = step_borders(trace, event_step, start)
    complete &= (last >= 0).any(axis=1)
    first = _after_losses(trace, launch, launches, event_step, first, last)
    return Steps(cuts.source, cuts.number, start, end, complete, first, last, event_step)


def _are_replicas(thread: Int32, number: Int64, start: Int64, end: Int64) -> bool:
    """Whether several threads mark the same training at the same time, each number once: as several processes do."""
    spans = []
    for _, mine in rows_by(thread):
        if len(distinct(number[mine])) < len(mine):
            return False
        spans.append((int(start[mine].min()), int(end[mine].max())))
    return len(spans) > 1 and max(low for low, _ in spans) < min(high for _, high in spans)


def _with_lost_markers(number: Int64, start: Int64, end: Int64, called: Int64) -> tuple[Int32, Int64, Int64, Int64]:
    """Steps whose marker is not in the file get one: (place of each given step, number, start, end of all steps).

    Where all launches of the marking threads lie inside markers, as many launches behind a marker as a step has
    are a step of their own: the one whose number is missing, or one more at the end.

    Args:
        number: of each step, in the order of their starts.
        start: of each step.
        end: of each step.
        called: when the threads that mark steps launch, rising.
    """
    place = np.arange(len(number), dtype=np.int32)
    inside = np.searchsorted(called, end) - np.searchsorted(called, start)
    # what comes much later than one more step would is something else
    reach = int(end[-1]) + int(_ONE_MORE * np.median(end - start)) if len(end) else 0
    called = called[called <= reach]
    behind = np.append(np.searchsorted(called, start[1:]), len(called)) - np.searchsorted(called, end)
    usual = float(np.median(inside)) if len(inside) else 0.0
    if usual < 1 or len(number) < 2 or float(np.median(behind)) > _OUTSIDE * usual:
        return place, number, start, end
    lost = (behind >= _A_STEP * usual) & (np.append(np.diff(number), 2) == 2)
    if not lost.any():
        return place, number, start, end
    where = np.flatnonzero(lost)
    until = np.append(start[1:], int(called[-1]) + 1)[where]
    place = (place + np.concatenate(([0], np.cumsum(lost)[:-1]))).astype(np.int32)
    made = [np.insert(column, where + 1, own) for column, own in
            ((number, number[where] + 1), (start, end[where]), (end, until))]  # fmt: skip
    return place, made[0], made[1], np.maximum(made[2], made[1])


def _merge_markers(number: Int64, start: Int64, end: Int64, apart: bool) -> tuple[Int64, Int64, Int64, Int32]:
    """Markers of one step on several threads are one step: (number, start, end, step of each marker).

    ``apart``: also where they do not overlap, as those of several processes in one file.
    """
    numbers: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    member = np.zeros(len(number), np.int32)
    open_steps: dict[int, int] = {}
    for row, (n, s, e) in enumerate(zip(number.tolist(), start.tolist(), end.tolist(), strict=True)):
        step = open_steps.get(n)
        if step is not None and (apart or s < ends[step]):
            ends[step] = max(ends[step], e)
        else:
            step = open_steps[n] = len(numbers)
            numbers.append(n)
            starts.append(s)
            ends.append(e)
        member[row] = step
    return np.array(numbers, np.int64), np.array(starts, np.int64), np.array(ends, np.int64), member


def _event_steps(trace: Trace, launch: Int64, causes: Causality, step_of_row: Int32, start: Int64, end: Int64) -> Int32:
    """Step of each device event: by causality of its launch, else group, else time, else its neighbour."""
    host, events = trace.host_events, trace.device_events
    known = launch >= 0
    calls, inverse = group(launch[known])
    markers = np.flatnonzero(step_of_row >= 0)
    which = np.full(len(host), -1, np.int32)
    which[markers] = np.arange(len(markers), dtype=np.int32)
    marker = causal_step(calls, causes, which)
    step_of_call = np.where(marker >= 0, step_of_row[markers[marker]], -1) if len(markers) else marker
    if (step_of_call < 0).any():
        step_of_call = _by_group(trace, calls, step_of_call, step_of_row)
    missing = (step_of_call < 0) & ~_begun_before(trace, calls, causes, step_of_call)
    device = np.empty(len(calls), np.int32)
    device[inverse] = events.device[known]
    for devices, rows in _own_markers(host.thread[markers], device[marker >= 0], marker[marker >= 0]):
        mine = missing if devices is None else missing & np.isin(device, devices)
        own = markers[rows]
        if devices is None or not len(own):
            step_of_call[mine] = _by_time(host.start[calls[mine]], start, end)
        else:
            own = own[np.argsort(host.start[own], kind="stable")]
            at = _by_time(host.start[calls[mine]], host.start[own], host.end[own])
            step_of_call[mine] = np.where(at >= 0, step_of_row[own[at]], -1)
    step = np.full(len(events), -1, np.int32)
    step[known] = step_of_call[inverse]
    # Work without a launch event belongs where its stream's neighbour does.
    key = events.stream.astype(np.int64)
    order = np.argsort(key, kind="stable")  # rows are in time order already
    ordered = np.where(known[order], step[order], -2)
    holder = np.maximum.accumulate(np.where(ordered != -2, np.arange(len(order)), -1))
    same_stream = (holder >= 0) & (key[order][np.maximum(holder, 0)] == key[order])
    fill = np.where(same_stream, ordered[np.maximum(holder, 0)], -1)
    step[order] = np.where(ordered == -2, fill, ordered)
    return step


def _own_markers(thread: Int32, device: Int32, marker: Int32) -> list[tuple[list[int] | None, Int64]]:
    """(GPUs, the markers of the threads that launch for them): several processes in one file mark their own steps.

    Args:
        thread: of each marker.
        device: of each launch whose marker is known.
        marker: of these launches.

    Returns:
        One element with None for the GPUs where all have the same markers.
    """
    of_device = {gpu: frozenset(distinct(thread[marker[rows]]).tolist()) for gpu, rows in rows_by(device)}
    groups: dict[frozenset[int], list[int]] = {}
    for gpu, threads in of_device.items():
        groups.setdefault(threads, []).append(gpu)
    if len(groups) < 2 or len(frozenset.union(*groups)) < sum(map(len, groups)):
        return [(None, np.arange(len(thread)))]
    return [(gpus, np.flatnonzero(np.isin(thread, list(threads)))) for threads, gpus in groups.items()]


def causal_step(calls: Int64, causes: Causality, step_of_row: Int32) -> Int32:
    """Step of host rows: the marker around them, or around what caused them on another thread."""
    marker = nearest_with(step_of_row >= 0, causes.parent)
    consumer = nearest_with(causes.producer >= 0, causes.parent)
    found = np.full(len(calls), -1, np.int32)
    at = causes.caller[calls]
    for _ in range(_MAX_HOPS):
        open_rows = np.flatnonzero((found < 0) & (at >= 0))
        if not len(open_rows):
            break
        row = at[open_rows]
        hit = marker[row]
        found[open_rows] = np.where(hit >= 0, step_of_row[hit], -1)
        caused = consumer[row]
        at[open_rows] = np.where(caused >= 0, causes.producer[caused], -1)
    return found


def _begun_before(trace: Trace, calls: Int64, causes: Causality, step_of_call: Int32) -> BoolArray:
    """Launches whose cause lies before the recording: they consume what no recorded event produced,
    on a thread whose other launches do follow from recorded ones.
    """
    host = trace.host_events
    consumer = nearest_with(host.consumer_type >= 0, causes.parent)[causes.caller[calls]]
    orphan = (consumer >= 0) & (causes.producer[np.maximum(consumer, 0)] < 0)
    thread = host.thread[causes.caller[calls]]
    linked = distinct(thread[step_of_call >= 0])
    return np.asarray(orphan & (step_of_call < 0) & np.isin(thread, linked))


def _by_group(trace: Trace, calls: Int64, step: Int32, step_of_row: Int32) -> Int32:
    """The profiler's own step groups, where the file carries them."""
    host = trace.host_events
    markers = np.flatnonzero((step_of_row >= 0) & (host.group >= 0))
    if not len(markers):
        return step
    groups, first = np.unique(host.group[markers], return_index=True)
    at = np.minimum(np.searchsorted(groups, host.group[calls]), len(groups) - 1)
    hit = (step < 0) & (groups[at] == host.group[calls])
    return np.where(hit, step_of_row[markers[first[at]]], step).astype(np.int32)


def _by_time(time: Int64, start: Int64, end: Int64) -> Int32:
    """The step whose marker started last; launches run on after their marker, but not for long."""
    at = np.searchsorted(start, time, side="right") - 1
    inside = np.maximum(at, 0)
    grace = int(np.median(end - start))
    last = at == len(start) - 1
    good = (at >= 0) & (~last | (time <= end[inside] + grace))
    return np.where(good, at, -1).astype(np.int32)


def _complete(trace: Trace, launches: Launches, start: Int64, end: Int64) -> BoolArray:
    """Steps inside the recording whose launches have their device events."""
    complete = np.ones(len(start), np.bool_)
    if trace.recorded is not None:
        complete &= (start >= trace.recorded[0]) & (end <= trace.recorded[1])
    at = np.searchsorted(start, trace.host_events.start[launches.rows], side="right") - 1
    inside = at >= 0
    total = np.bincount(at[inside], minlength=len(start))
    lost = np.bincount(at[inside & ~launches.met], minlength=len(start))
    return complete & (lost <= _CUT_SHARE * total)


def find_window(trace: Trace, steps: Steps) -> Window | None:
    """The complete steps that the host tells of, else first to last device event; None without events."""
    rows = np.flatnonzero(steps.complete)
    if (steps.source == "marked" or steps.cut_at is not None) and len(rows):
        used = steps.end[rows] >= 0
        low = int(np.where(used, steps.start[rows], np.iinfo(np.int64).max).min())
        high = int(steps.end[rows].max())
        if high > low:
            return Window(low, high)
    events = trace.device_events
    if not len(events):
        return None
    low, high = int(events.start.min()), int(events.end.max())
    return Window(low, high) if high > low else None


# Steps x GPUs: tables of causes of that shape must fit in memory. Real profiles stay below a hundredth.
MAX_CELLS = 1 << 20


def step_borders(trace: Trace, event_step: Int32, marker_start: Int64) -> tuple[Int64, Int64]:
    """(start, end) of each step on each GPU, -1 where it did nothing; copies do not move borders.

    Raises:
        ProfileError: ``too_many_events``: more steps on more GPUs than `MAX_CELLS`.
    """
    events = trace.device_events
    shape = (len(marker_start), len(trace.devices))
    if shape[0] * shape[1] > MAX_CELLS:
        raise ProfileError("too_many_events", trace.path, count=shape[0] * shape[1], limit=MAX_CELLS)
    work = events.klass <= EventClass.COMMUNICATION
    last = np.full(shape, -1, np.int64)
    begin = np.full(shape, np.iinfo(np.int64).max, np.int64)
    mine = work & (event_step >= 0)
    at = (event_step[mine], events.device[mine])
    np.maximum.at(last, at, events.end[mine])
    np.minimum.at(begin, at, events.start[mine])
    first = np.full(shape, -1, np.int64)
    stray = event_step < 0
    for device in range(shape[1]):
        used = np.flatnonzero(last[:, device] >= 0)
        if not len(used):
            continue
        border = _first_border(events, stray, device, int(marker_start[used[0]]), int(begin[used[0], device]))
        # each step ends no sooner than the one before it, and starts where that ended
        end = np.maximum.accumulate(np.maximum(last[used, device], border))
        first[used, device] = np.concatenate(([border], end[:-1]))
        last[used, device] = end
    return first, last


def _after_losses(
    trace: Trace, launch: Int64, launches: Launches, event_step: Int32, first: Int64, last: Int64
) -> Int64:
    """Starts of steps, where work in front of a step was lost that of its own first work: when it began is unknown."""
    lost = launches.rows[launches.lost]
    if not len(lost):
        return first
    events, host = trace.device_events, trace.host_events
    called = np.where(launch >= 0, host.start[np.maximum(launch, 0)], -1)
    mine = (event_step >= 0) & (launch >= 0) & (events.klass <= EventClass.COMMUNICATION)
    at = (event_step[mine], events.device[mine])
    begin, call = np.full(first.shape, np.iinfo(np.int64).max), np.full(first.shape, np.iinfo(np.int64).max)
    reached = np.full(first.shape, -1, np.int64)
    np.minimum.at(begin, at, events.start[mine])
    np.minimum.at(call, at, called[mine])
    np.maximum.at(reached, at, called[mine])
    first = first.copy()
    for device, rows in rows_by(launches.device[launches.lost]):
        if device < 0:
            continue
        gone = np.sort(host.start[lost[rows]])
        used = np.flatnonzero((last[:, device] >= 0) & (reached[:, device] >= 0))
        before = np.concatenate(([-1], np.maximum.accumulate(reached[used, device])[:-1])) if len(used) else used
        holes = np.searchsorted(gone, call[used, device]) > np.searchsorted(gone, before, side="right")
        at_hole = used[holes]
        first[at_hole, device] = np.clip(begin[at_hole, device], first[at_hole, device], last[at_hole, device])
    return first


def _first_border(events: DeviceEvents, stray: BoolArray, device: int, marker: int, begin: int) -> int:
    """Where the first step starts: its marker, or the end of the last earlier event if that is later."""
    rows = events.of_device(device)
    earlier = stray[rows] & (events.start[rows] < begin)
    border = marker
    if earlier.any():
        border = max(border, int(events.end[rows][earlier].max()))
    return min(border, begin)


StepKey = tuple[int, int]


def step_keys(numbers: Sequence[int], by_order: bool) -> list[StepKey]:
    """What a complete step is known by in all files: its number, and which one of that number it is."""
    if by_order:
        return [(index, 0) for index in range(len(numbers))]
    seen: dict[int, int] = {}
    found = []
    for number in numbers:
        found.append((number, seen.get(number, 0)))
        seen[number] = found[-1][1] + 1
    return found


def order_of_steps(keys: Sequence[Sequence[StepKey]]) -> dict[StepKey, int]:
    """The place of each step of any file: in the order of the file with most, the others' own by number."""
    longest = max(keys, key=len, default=[])
    known = dict.fromkeys(longest)
    rest = sorted({key for own in keys for key in own} - set(known), key=lambda key: (key[1], key[0]))
    if rest:
        known = dict.fromkeys(sorted([*known, *rest], key=lambda key: (key[1], key[0])))
    return {key: place for place, key in enumerate(known)}
