"""Copies to, from, on and between GPUs: how many, how fast, how much of them nothing hides, and who asked for them."""

from __future__ import annotations

import re

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.accounting import BusySets
from tb_gpu_doctor.analysis.callers import Causality
from tb_gpu_doctor.analysis.gap_parts import gap_rows, overlap, sum_by_step
from tb_gpu_doctor.analysis.host_activity import HOST_CAUSES
from tb_gpu_doctor.analysis.intervals import IntervalSet
from tb_gpu_doctor.analysis.results import BoolArray, Gaps, Steps, Window
from tb_gpu_doctor.analysis.transfer_results import CopyGroup, CopyTotals, Transfers
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Int64, Trace
from tb_gpu_doctor.traces.grouping import group

GROUPS_PER_GPU = 8
# Partitioned graphs number the ends of a copy: `IteratorGetNext/_12:_HostSend`.
_SERIAL = re.compile(r"/_\d+(?=:|$)")


def find_transfers(
    trace: Trace, window: Window, steps: Steps, gaps: Gaps, launch: Int64, causes: Causality, busy_of: BusySets
) -> Transfers:
    """All copies that touch the window; ``launch`` is `launches.launch_of`, ``busy_of`` `accounting.all_busy_sets`."""
    events = trace.device_events
    is_copy = (events.klass >= EventClass.COPY) | (events.copy_kind == CopyKind.P2P)
    is_copy &= (events.start < window.end) & (events.end > window.start)
    rows = np.flatnonzero(is_copy)
    kind = events.copy_kind[rows].astype(np.int64)
    exposed = np.zeros(len(rows), np.int64)
    blocking = _blocks(trace, launch, rows)
    gap_wait = np.zeros(len(gaps), np.int64)
    late = np.zeros(len(rows), np.int64)
    step_exposed = np.zeros((steps.count, len(trace.devices)), np.int64)
    step_wait, step_late = np.zeros_like(step_exposed), np.zeros_like(step_exposed)
    totals: list[CopyTotals] = []
    groups: list[CopyGroup] = []
    for device in trace.devices:
        low, high = np.searchsorted(events.device[rows], [device.index, device.index + 1])
        compute, kernels, _ = busy_of[device.index]
        own = slice(int(low), int(high))
        between = kind[own] == CopyKind.P2P
        exposed[own][~between] = _exposed(trace, window, rows[own][~between], kernels)
        exposed[own][between] = _exposed(trace, window, rows[own][between], compute)
        mine = gap_rows(gaps, device.index)
        late[own] = _late(trace, gaps, mine, rows[own], np.where(blocking[own] | between, 0, exposed[own]), kernels)
        step_late[:, device.index] = sum_by_step(steps, device.index, events.start[rows[own]], late[own])
        waiting = _waiting(trace, launch, device.index, rows[blocking])
        gap_wait[mine] = overlap(waiting, gaps.start[mine], gaps.end[mine])
        step_wait[:, device.index] = sum_by_step(steps, device.index, gaps.start[mine], gap_wait[mine])
        step_exposed[:, device.index] = _step_exposed(
            trace, window, steps, device.index, rows[own][~between], exposed[own][~between], kernels
        )
        idle = (gaps.start[mine], gaps.end[mine])
        args = (trace, window, device.index, rows[own], exposed[own], blocking[own])
        totals += _totals(*args)
        groups += _groups(*args, launch, causes, idle)
    return Transfers(
        tuple(totals), tuple(groups), rows, exposed, late, gap_wait, step_exposed, step_late, step_wait
    )  # fmt: skip


def _blocks(trace: Trace, launch: Int64, rows: Int64) -> BoolArray:
    """Whether the host sat in the call until the copy was done: recorded as synchronous, or seen to be so."""
    events, host = trace.device_events, trace.host_events
    known = launch[rows] >= 0
    if not known.any():
        return known
    returned = host.end[np.maximum(launch[rows], 0)]
    # an asynchronous copy of page-locked memory may be over before its call returns; nobody waits for it
    may = (events.copy_async[rows] != 1) | (events.copy_memory[rows] == 1)
    seen = may & (returned >= events.end[rows])
    is_copy = events.klass[rows] != EventClass.MEMSET
    return np.asarray(known & is_copy & ((events.copy_async[rows] == 0) | seen), dtype=np.bool_)


def _waiting(trace: Trace, launch: Int64, device: int, blocking: Int64) -> IntervalSet:
    """When a thread that launches for a GPU sat in a blocking copy, to whichever GPU."""
    if not len(blocking):
        return intervals.empty_set()
    host, calls = trace.host_events, launch[blocking]
    mine = launch[trace.device_events.of_device(device)]
    launches = np.zeros(len(trace.threads), np.bool_)
    launches[host.thread[mine[mine >= 0]]] = True
    calls = calls[launches[host.thread[calls]]]
    calls = calls[np.argsort(host.start[calls], kind="stable")]
    return intervals.union(host.start[calls], host.end[calls])


def _fresh(trace: Trace, window: Window, rows: Int64) -> tuple[Int64, Int64]:
    """What each copy adds inside the window to the copies that started before it: [start, end) per row."""
    events = trace.device_events
    start = np.clip(events.start[rows], window.start, window.end)
    end = np.clip(events.end[rows], window.start, window.end)
    reach = np.concatenate(([window.start], np.maximum.accumulate(end)[:-1])) if len(rows) else start
    start = np.maximum(start, reach)
    return start, np.maximum(end, start)  # starts and ends both rise


def _exposed(trace: Trace, window: Window, rows: Int64, hiding: IntervalSet) -> Int64:
    start, end = _fresh(trace, window, rows)
    return end - start - overlap(hiding, start, end)


def _late(trace: Trace, gaps: Gaps, mine: slice, rows: Int64, exposed: Int64, kernels: IntervalSet) -> Int64:
    """What of each copy's exposed time would be hidden had the host not been late before it.

    The copies that follow a gap without a kernel in between would have run that much earlier, behind the
    kernels before the gap: of their exposed time, in order, as much as the host's part of the gap.
    """
    late = np.zeros(len(rows), np.int64)
    start, end = gaps.start[mine], gaps.end[mine]
    if not len(rows) or not len(start):
        return late
    began = trace.device_events.start[rows]
    gap = np.searchsorted(end, began, side="right") - 1
    picked = np.flatnonzero((gap >= 0) & (exposed > 0))
    before_copy = intervals.covered_before(kernels, began[picked])
    picked = picked[before_copy == intervals.covered_before(kernels, end[gap[picked]])]
    if not len(picked):
        return late
    before = np.cumsum(exposed[picked]) - exposed[picked]
    first = np.concatenate(([True], gap[picked][1:] != gap[picked][:-1]))
    earlier = before - np.maximum.accumulate(np.where(first, before, 0))
    host = gaps.by_cause[mine][gap[picked]][:, list(HOST_CAUSES)].sum(axis=1)
    late[picked] = np.clip(host - earlier, 0, exposed[picked])
    return late


def _step_exposed(
    trace: Trace, window: Window, steps: Steps, device: int, rows: Int64, exposed: Int64, hiding: IntervalSet
) -> Int64:
    """Exposed time in each complete step: a difference of what lies before its two borders."""
    complete = np.flatnonzero(steps.complete)
    low, high = steps.start[complete, device], steps.end[complete, device]
    if not len(rows) or not len(complete):
        return np.zeros(len(complete), np.int64)
    start, end = _fresh(trace, window, rows)
    total = np.concatenate((np.zeros(1, np.int64), np.cumsum(exposed)))

    def before(at: Int64) -> Int64:
        # fresh parts do not overlap, so at most the last one that started reaches beyond ``at``
        index = np.searchsorted(start, at, side="right")
        last = np.maximum(index - 1, 0)
        cut = np.minimum(np.maximum(at, start[last]), end[last])
        beyond = end[last] - cut - overlap(hiding, cut, end[last])
        return total[index] - np.where(index > 0, beyond, 0)

    return np.where(high >= 0, before(high) - before(low), 0)


def _totals(
    trace: Trace, window: Window, device: int, rows: Int64, exposed: Int64, blocking: BoolArray
) -> list[CopyTotals]:
    events = trace.device_events
    kind, size = events.copy_kind[rows], events.copy_bytes[rows]
    inside = np.clip(events.end[rows], window.start, window.end) - np.clip(events.start[rows], window.start, window.end)
    found = []
    for direction in np.flatnonzero(np.bincount(kind)).tolist() if len(rows) else ():
        mine = kind == direction
        memory = events.copy_memory[rows][mine]
        sized = mine & (size > 0)
        found.append(
            CopyTotals(
                device=device,
                direction=CopyKind(direction),
                count=int(np.count_nonzero(mine)),
                pageable=int(np.count_nonzero(memory == 1)),
                pinned=int(np.count_nonzero(memory == 0)),
                blocking=int(np.count_nonzero(blocking & mine)),
                size_bytes=intervals.exact_sum(size[sized]),
                sized_time=intervals.exact_sum(events.duration[rows][sized]),
                time=intervals.exact_sum(inside[mine]),
                exposed=int(exposed[mine].sum()),
                exposed_pageable=int(exposed[mine][memory == 1].sum()),
            )
        )
    return found


def _groups(
    trace: Trace,
    window: Window,
    device: int,
    rows: Int64,
    exposed: Int64,
    blocking: BoolArray,
    launch: Int64,
    causes: Causality,
    idle: IntervalSet,
) -> list[CopyGroup]:
    """By direction and by who asked for them."""
    if not len(rows):
        return []
    events, host = trace.device_events, trace.host_events
    ids, index = group(_asked_by(trace, rows, launch, causes))
    names: dict[str, int] = {}
    # a million copies have few names; a serial number in them would make each one a group of its own
    merged = np.array([names.setdefault(_SERIAL.sub("", trace.strings[i]), len(names)) for i in ids.tolist()])
    kinds = len(CopyKind)
    keys, index = group(merged[index] * kinds + events.copy_kind[rows])
    call = np.maximum(launch[rows], 0)
    waited = np.zeros(len(rows), np.int64)
    if blocking.any():
        calls = call[blocking]
        waited[blocking] = overlap(idle, host.start[calls], host.end[calls])
    cost = np.bincount(index, weights=(exposed + waited).astype(np.float64), minlength=len(keys))
    labels = list(names)
    time = np.clip(events.end[rows], window.start, window.end) - np.clip(events.start[rows], window.start, window.end)
    found = []
    for at in np.argsort(-cost, kind="stable")[:GROUPS_PER_GPU].tolist():
        mine = np.flatnonzero(index == at)
        found.append(
            CopyGroup(
                device=device,
                direction=CopyKind(int(keys[at]) % kinds),
                op=labels[int(keys[at]) // kinds] or trace.strings[int(events.name[rows[mine[0]]])],
                count=len(mine),
                size_bytes=intervals.exact_sum(np.maximum(events.copy_bytes[rows[mine]], 0)),
                time=intervals.exact_sum(time[mine]),
                exposed=int(exposed[mine].sum()),
                waited=intervals.exact_sum(waited[mine]),
                longest=int(rows[mine[np.argmax(exposed[mine] + waited[mine])]]),
            )
        )
    return found


def _asked_by(trace: Trace, rows: Int64, launch: Int64, causes: Causality) -> Int64:
    """String id of who asked for each copy."""
    events, host = trace.device_events, trace.host_events
    asked = events.op[rows].astype(np.int64)
    offsets = trace.strings.offsets
    empty = (asked < 0) | (offsets[np.maximum(asked, 0) + 1] == offsets[np.maximum(asked, 0)])
    call = launch[rows]
    known = np.flatnonzero(empty & (call >= 0))
    asked[empty] = events.name[rows][empty]
    if len(known):
        caller = causes.caller[call[known]]
        around = np.where(caller == call[known], causes.parent[call[known]], caller)
        asked[known[around >= 0]] = host.name[around[around >= 0]]
    return asked
