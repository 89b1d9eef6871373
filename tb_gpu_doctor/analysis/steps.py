"""Steps as the host marked them, and the window that the marked complete steps make.

A step of a GPU runs from the end of the last compute or communication event of the step before
it to the end of its own last one: each step owns the wait in front of it. The host's markers
bound the launches; the device lags, so an event belongs to the step that launched it.
"""

from __future__ import annotations

import numpy as np

from tb_gpu_doctor.analysis.callers import Causality
from tb_gpu_doctor.analysis.host_tree import nearest_with
from tb_gpu_doctor.analysis.results import BoolArray, Steps, Window
from tb_gpu_doctor.analysis.step_borders import step_borders
from tb_gpu_doctor.traces.columns import Int32, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, group

# Markers that carry a step number without the profiler's root flag.
UNFLAGGED_MARKERS = frozenset({"Profiled batch"})
_MAX_HOPS = 8
# A step whose launches miss this share of their device events was cut off by the recording.
_CUT_SHARE = 0.01


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


def find_steps(trace: Trace, launch: Int64, causes: Causality) -> Steps:
    """Steps by the host's markers; source ``none`` when there is none.

    Args:
        trace: the trace.
        launch: host row per device event (`launches.launch_of`).
        causes: links between host events (`callers.causality`).
    """
    rows = marker_rows(trace)
    if not len(rows):
        return no_steps(trace)
    host = trace.host_events
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    number, start, end, member = _merge_markers(host.step_num[rows], host.start[rows], host.end[rows])
    step_of_row = np.full(len(host), -1, np.int32)
    step_of_row[rows] = member
    event_step = _event_steps(trace, launch, causes, step_of_row, start, end)
    complete = _complete(trace, launch, event_step, start, end)
    first, last = step_borders(trace, event_step, start)
    complete &= (last >= 0).any(axis=1)
    return Steps("marked", number, start, end, complete, first, last, event_step)


def _merge_markers(number: Int64, start: Int64, end: Int64) -> tuple[Int64, Int64, Int64, Int32]:
    """Markers of one step on several threads are one step: (number, start, end, step of each marker)."""
    numbers: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    member = np.zeros(len(number), np.int32)
    open_steps: dict[int, int] = {}
    for row, (n, s, e) in enumerate(zip(number.tolist(), start.tolist(), end.tolist(), strict=True)):
        step = open_steps.get(n)
        if step is not None and s < ends[step]:
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
    step_of_call = _causal_step(calls, causes, step_of_row)
    if (step_of_call < 0).any():
        step_of_call = _by_group(trace, calls, step_of_call, step_of_row)
    missing = (step_of_call < 0) & ~_begun_before(trace, calls, causes, step_of_call)
    step_of_call[missing] = _by_time(host.start[calls[missing]], start, end)
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


def _causal_step(calls: Int64, causes: Causality, step_of_row: Int32) -> Int32:
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


def _complete(trace: Trace, launch: Int64, event_step: Int32, start: Int64, end: Int64) -> BoolArray:
    """Steps inside the recording whose launches have their device events."""
    host = trace.host_events
    complete = np.ones(len(start), np.bool_)
    if trace.recorded is not None:
        complete &= (start >= trace.recorded[0]) & (end <= trace.recorded[1])
    # Only calls of a kind that usually leads to device work: synchronisations carry correlations too.
    used = distinct(launch[launch >= 0])
    if not len(used):
        return complete
    leads = np.zeros(len(host), np.bool_)
    leads[used] = True
    calls = np.flatnonzero(host.correlation > 0)
    _, kind = group(host.name[calls])
    usual = np.bincount(kind, weights=leads[calls]) * 2 >= np.bincount(kind)
    calls = calls[usual[kind]]
    at = np.searchsorted(start, host.start[calls], side="right") - 1
    inside = at >= 0
    total = np.bincount(at[inside], minlength=len(start))
    lost = np.bincount(at[inside & ~leads[calls]], minlength=len(start))
    return complete & (lost <= _CUT_SHARE * total)


def find_window(trace: Trace, steps: Steps) -> Window | None:
    """The analysed stretch: the marked complete steps, else first to last device event; None without events."""
    rows = np.flatnonzero(steps.complete)
    if steps.source == "marked" and len(rows):
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
