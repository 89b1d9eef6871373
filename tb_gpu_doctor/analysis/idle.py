"""Idle gaps of each GPU, and the cause that each part of a gap is charged to.

A gap is the complement of the union over all streams. The launch call of the event that ends it cuts it in two:
before the call the host was late, and what the launching thread (and the threads it waited for) did then says why;
after it, beyond the normal latency, the device was late. Every picosecond is charged to exactly one cause; where
nothing proves one, to `no_evidence`.

A gap behind a synchronisation (`cuStreamSynchronize`, a blocking copy, `.numpy()`) is the synchronisation's, whatever
the host did in it, seen or unseen: without the wait the host would have been ahead, and the work that follows would
have been hidden behind the GPU's. Input, compilation and saving keep their own cause, and what the host launches too
slowly later in the step is `launch`. A wait that is short beside the work that follows drained nothing that mattered:
no more than the time waited is charged to it. Where a wait is followed by far more now and then, as by garbage
collection every thousandth step, the rest has another reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.callers import Causality, nearest_with
from tb_gpu_doctor.analysis.host_activity import HOST_CAUSES, UNKNOWN, WAITING, HostActivity
from tb_gpu_doctor.analysis.host_names import Kind
from tb_gpu_doctor.analysis.intervals import IntervalSet
from tb_gpu_doctor.analysis.results import BoolArray, Cause, Gaps, Steps, Window
from tb_gpu_doctor.traces.columns import PS_PER_US, CopyKind, Int32, Int64, Trace, UInt8
from tb_gpu_doctor.traces.grouping import distinct, rows_by


class Intervals(NamedTuple):
    """Sorted, disjoint intervals [start, end) and the row that each came from, shape (n,)."""

    start: Int64
    end: Int64
    row: Int64


def cut_gaps(gaps: Gaps, rows: NDArray[np.intp]) -> tuple[Intervals, UInt8]:
    """Cut each gap into one piece a cause, in proportion and in the order of `Cause`.

    Returns:
        The pieces (``row`` is the gap's row) and the `Cause` of each.
    """
    parts = gaps.by_cause[rows]
    ends = gaps.start[rows, np.newaxis] + np.cumsum(parts, axis=1)
    which, cause = np.nonzero(parts > 0)
    end = ends[which, cause]
    pieces = Intervals(end - parts[which, cause], end, rows[which].astype(np.int64))
    return pieces, cause.astype(np.uint8)


def overlap(stretches: IntervalSet, start: Int64, end: Int64) -> Int64:
    """How much of a set lies in each [start, end)."""
    if not len(stretches[0]):
        return np.zeros(len(start), np.int64)
    return intervals.covered_before(stretches, end) - intervals.covered_before(stretches, start)


def gap_rows(gaps: Gaps, device: int) -> slice:
    """Rows of one GPU's gaps."""
    low, high = np.searchsorted(gaps.device, [device, device + 1])
    return slice(int(low), int(high))


def sum_by_step(steps: Steps, device: int, start: Int64, amount: Int64) -> Int64:
    """Sums amounts over the complete steps of one GPU, by where they start; shape (steps.count,).

    Steps of one GPU follow each other, and gaps never straddle their borders.
    """
    complete = np.flatnonzero(steps.complete)
    total = np.zeros(len(complete), np.int64)
    mine = np.flatnonzero(steps.end[complete, device] >= 0)
    if len(mine) and amount.any():
        rows = complete[mine]
        at = np.searchsorted(steps.start[rows, device], start, side="right") - 1
        inside = (at >= 0) & (start < steps.end[rows[np.maximum(at, 0)], device])
        np.add.at(total, mine[at[inside]], amount[inside])
    return total


# The event waited for ends this close to the end of the gap ...
_BEFORE, _AFTER = 10 * PS_PER_US, 2 * PS_PER_US
# ... and fills this share of it, or its end is a coincidence.
_COVER = 0.5
_SHORTEST = 20 * PS_PER_US
_MAX_GAPS = 20_000


def charge_peers(trace: Trace, device: Int32, ready: Int64, end: Int64, by_cause: Int64) -> None:
    """Move `dependency` and `queued` time to `peer` where one event of another GPU explains it.

    Args:
        trace: all GPUs of one clock.
        device: GPU of each gap.
        ready: from where on the device was late.
        end: of each gap.
        by_cause: changed in place, shape (gaps, causes).
    """
    events = trace.device_events
    if len(trace.devices) < 2:
        return
    late = by_cause[:, Cause.DEPENDENCY] + by_cause[:, Cause.QUEUED]
    waiting = np.flatnonzero(late >= _SHORTEST)
    if len(waiting) > _MAX_GAPS:
        longest = np.argsort(late[waiting])[-_MAX_GAPS:]
        waiting = waiting[longest]
    for other in trace.devices:
        rows = events.of_device(other.index)
        if rows.start == rows.stop:
            continue
        order = np.argsort(events.end[rows], kind="stable")
        stops, starts = events.end[rows][order], events.start[rows][order]
        mine = waiting[device[waiting] != other.index]
        low = np.searchsorted(stops, end[mine] - _BEFORE, side="left")
        high = np.searchsorted(stops, end[mine] + _AFTER, side="right")
        # of the few events that end there the last one; the candidates are looked at from the end
        for back in range(1, 5):
            at = high - back
            good = at >= low
            inside = np.maximum(at, 0)
            overlap = np.minimum(stops[inside], end[mine]) - np.maximum(starts[inside], ready[mine])
            hit = mine[good & (overlap >= _COVER * (end[mine] - ready[mine]))]
            by_cause[hit, Cause.PEER] += by_cause[hit, Cause.DEPENDENCY] + by_cause[hit, Cause.QUEUED]
            by_cause[hit, Cause.DEPENDENCY] = by_cause[hit, Cause.QUEUED] = 0


# A synchronisation returns a little after the device is done; the clocks may differ by as much.
_TOLERANCE = 20 * PS_PER_US


# What would have been hidden.
_HIDEABLE = [Cause.LAUNCH, Cause.HOST_OTHER, Cause.NO_EVIDENCE]
# The launching thread shows nothing in this part of a gap.
_ASLEEP = 0.8
# A wait that begins when the gap does has lasted no time: only what precedes it may say that the host had waited.
_JUST_BEGUN = 1
# Between waits in a row the GPU does no more than copy a value.
_TINY_WORK = 20 * PS_PER_US
# Events looked at around one instant, or in one gap.
_MAX_WAITS = 16
# A wait of this share of the work behind it, or more, is why the queue was empty.
_REAL_WAIT = 0.25
# What follows a wait so many times as long as usual, in no more than this share of at least so many waits, is not due
# to the wait.
_FAR, _RARELY, _FEWEST_WAITS = 4, 1 / 3, 4


def charge_drained(
    activity: HostActivity,
    gap: Int64,
    thread: Int32,
    device: Int32,
    start: Int64,
    end: Int64,
    call: Int64,
    ahead: Int64,
    by_cause: Int64,
) -> None:
    """Move the launch, other and unseen host work of gaps that follow a draining synchronisation to `sync`.

    Args:
        activity: what the threads did.
        gap: index of a gap, per piece.
        thread: whose activity explains it, per piece.
        device: of each gap; they are sorted by device and start.
        start: of each gap.
        end: of each gap.
        call: host row that launched what ends each gap, -1 unknown.
        ahead: how long the host had launched nothing before a copy to the host that precedes the gap.
        by_cause: changed in place, shape (gaps, causes).
    """
    waited = np.zeros(len(start), np.int64)
    for index, pieces in rows_by(thread):
        mine = distinct(gap[pieces])
        waited[mine] = np.maximum(waited[mine], _after_wait(activity, index, start[mine]))
    waited = np.where(waited > _JUST_BEGUN, waited, np.where(ahead > 0, waited, 0))
    waited, is_last = _in_a_row(np.where(waited > 0, np.maximum(waited, ahead), 0), device, start, end)
    drained = np.flatnonzero((waited > 0) & (call >= 0))
    most = _most_of_a_wait(by_cause[:, _HIDEABLE].sum(axis=1)[drained], device[drained], is_last[drained])
    _move_to_sync(by_cause, drained, waited[drained], _HIDEABLE, most)
    # The thread that launches may sleep while another one reads a value, and is woken by it.
    unseen = by_cause[:, Cause.NO_EVIDENCE]
    asleep = np.flatnonzero((waited == 0) & (call >= 0) & (unseen > 0) & (unseen >= _ASLEEP * by_cause.sum(axis=1)))
    if len(asleep):
        seen = _wait_of_any_thread(activity, start[asleep])
        seen = np.where((seen > _JUST_BEGUN) | (ahead[asleep] > 0) & (seen > 0), np.maximum(seen, ahead[asleep]), 0)
        _move_to_sync(by_cause, asleep, seen, [Cause.NO_EVIDENCE])


def _in_a_row(waited: Int64, device: Int32, start: Int64, end: Int64) -> tuple[Int64, BoolArray]:
    """(the longest wait of those in a row, as in ``loss.item(); acc.item()``; whether a gap is behind the last one).

    The first one waited, the others found an empty queue: between them the GPU did next to nothing.
    """
    linked = np.zeros(len(waited), np.bool_)
    linked[1:] = (device[1:] == device[:-1]) & (start[1:] - end[:-1] <= _TINY_WORK) & (waited[1:] > 0)
    chain = np.cumsum(~linked)
    longest, reach = waited.copy(), 1
    while reach < len(waited) and linked.any():
        same = chain[reach:] == chain[:-reach]
        if not same.any():
            break
        longest[reach:] = np.where(same, np.maximum(longest[reach:], longest[:-reach]), longest[reach:])
        reach *= 2
    return longest, np.append(~linked[1:], True)[: len(waited)]


def _most_of_a_wait(work: Int64, device: Int32, is_last: BoolArray) -> Int64:
    """How much of the work behind each wait is due to it: no more than usual where far more follows now and then.

    Args:
        work: what could have been hidden, of each gap behind a wait.
        device: of each gap.
        is_last: whether it is behind the last of several waits in a row.
    """
    most = work.copy()
    for _, rows in rows_by(device):
        rows = rows[is_last[rows]]
        if len(rows) < _FEWEST_WAITS:
            continue
        usual = int(np.median(work[rows]))
        far = rows[work[rows] > _FAR * usual]
        if len(far) <= _RARELY * len(rows):
            most[far] = usual
    return most


def _ahead_of_copy(trace: Trace, before: Int64, launch: Int64) -> Int64:
    """For gaps behind a copy to the host: how long nothing was launched before the copy, 0 for other gaps.

    Where nothing of the wait itself was recorded, this is how long the host had waited for the value: it had launched
    all there was, and the GPU was busy with that.
    """
    events, host = trace.device_events, trace.host_events
    if len(events) < 2 or not len(host):
        return np.zeros(len(before), np.int64)
    row = np.maximum(before, 1)
    copied = (before > 0) & (events.copy_kind[row] == CopyKind.D2H) & (launch[row] >= 0) & (launch[row - 1] >= 0)
    copied &= events.device[row] == events.device[row - 1]
    called = host.start[np.maximum(launch, 0)]
    return np.where(copied, np.maximum(called[row] - called[row - 1], 0), 0)


def _move_to_sync(
    by_cause: Int64, gaps: NDArray[np.intp], waited: Int64, causes: Sequence[Cause], most: Int64 | None = None
) -> None:
    """Charge to `sync` what would have been hidden without waits of that length, in place; ``most`` of each gap."""
    work = by_cause[gaps][:, causes].sum(axis=1)
    hidden = np.where(waited >= _REAL_WAIT * work, work, np.minimum(work, waited))
    hidden = np.where(waited > 0, hidden, 0)
    if most is not None:
        hidden = np.minimum(hidden, most)
    by_cause[gaps, Cause.SYNC] += hidden
    for cause in causes:  # one after the other: the sums stay exact
        taken = np.minimum(by_cause[gaps, cause], hidden)
        by_cause[gaps, cause] -= taken
        hidden -= taken


def _after_wait(activity: HostActivity, thread: int, start: Int64) -> Int64:
    """How long the thread had been in a synchronisation when each gap began, 0 if it was in none."""
    host = activity.trace.host_events
    rows = activity.rows_of(thread)
    waits = rows[activity.kind[rows] == Kind.SYNC]
    begin, end = intervals.union(host.start[waits], host.end[waits])
    if not len(begin):
        return np.zeros(len(start), np.int64)
    # a small copy may be done before the wait for it has begun
    at = np.searchsorted(begin, start + _TOLERANCE, side="left") - 1
    inside = np.maximum(at, 0)
    hit = (at >= 0) & (end[inside] >= start - _TOLERANCE)
    return np.where(hit, np.maximum(np.minimum(start, end[inside]) - begin[inside], _JUST_BEGUN), 0)


def _wait_of_any_thread(activity: HostActivity, start: Int64) -> Int64:
    """The longest synchronisation of any thread that returned where each gap begins, 0 for none."""
    host = activity.trace.host_events
    waits = np.flatnonzero((activity.kind == Kind.SYNC) & (host.duration > 0))
    waits = waits[np.argsort(host.end[waits], kind="stable")]
    ends = host.end[waits]
    low = np.searchsorted(ends, start - _TOLERANCE, side="left")
    high = np.searchsorted(ends, start + _TOLERANCE, side="right")
    waited = np.zeros(len(start), np.int64)
    for back in range(1, _MAX_WAITS + 1):
        at = high - back
        good = (at >= low) & (at >= 0)
        row = waits[np.maximum(at, 0)] if len(waits) else np.zeros(len(start), np.int64)
        waited = (
            np.maximum(waited, np.where(good, np.maximum(start - host.start[row], _JUST_BEGUN), 0))
            if len(waits)
            else waited
        )
    return waited


# What ran on another thread must fill this part of a gap of which the launching thread shows nothing ...
_FILLS = 0.8
# ... of at least this length, and run no more than this part of the rest of the time: work in the background
# that goes on all the time explains nothing.
_SHORTEST_FILLED = 100 * PS_PER_US
_BACKGROUND = 0.5
_ELSEWHERE = (Kind.COMPILE, Kind.CHECKPOINT, Kind.ALLOCATOR, Kind.HOST_OTHER)


def charge_elsewhere(
    activity: HostActivity, start: Int64, host_end: Int64, end: Int64, call: Int64, by_cause: Int64
) -> Int64:
    """Charge what the launching thread does not explain to what ran meanwhile on other threads.

    Loading of code into the GPU holds up every thread that launches, so all of it counts. Compilation, saving and,
    on the thread that marks the steps, the user's own code count where they fill the gap.

    Args:
        activity: what the threads did.
        start: of each gap.
        host_end: of the host's part of each gap.
        end: of each gap.
        call: host row that launched what ends each gap, -1 unknown.
        by_cause: changed in place, shape (gaps, causes).

    Returns:
        Row of the event that ran meanwhile for each gap, -1 for none.
    """
    host = activity.trace.host_events
    found = np.full(len(start), -1, np.int64)
    loading = activity.loading[host.duration[activity.loading] > 0]
    if len(loading):
        # loading happens inside the call that launches, so it lies in what would be the launch's latency too
        room = overlap(intervals.union(host.start[loading], host.end[loading]), start, end)
        room -= np.minimum(room, by_cause[:, Cause.COMPILE])
        for cause in (Cause.NO_EVIDENCE, Cause.SYNC, Cause.LAUNCH, Cause.HOST_OTHER):
            taken = np.minimum(by_cause[:, cause], room)
            by_cause[:, cause] -= taken
            by_cause[:, Cause.COMPILE] += taken
            room -= taken
            found[taken > 0] = _longest_inside(host.start, host.end, loading, start, end)[taken > 0]
    unseen = by_cause[:, Cause.NO_EVIDENCE]
    length = host_end - start
    asked = np.flatnonzero((call >= 0) & (length >= _SHORTEST_FILLED) & (unseen >= _FILLS * length))
    if not len(asked):
        return found
    marking = np.unique(host.thread[host.step_num >= 0])
    in_gaps = intervals.union(start[asked], host_end[asked])
    events = activity.trace.device_events
    worked = events.start.min(keepdims=True), events.end.max(keepdims=True)
    for kind in _ELSEWHERE:
        rows = np.flatnonzero((activity.kind == kind) & (host.duration > 0))
        if kind == Kind.HOST_OTHER:
            rows = rows[np.isin(host.thread[rows], marking)]
        if not len(rows):
            continue
        ran = intervals.union(host.start[rows], host.end[rows])
        inside = int(overlap(ran, in_gaps[0], in_gaps[1]).sum())
        outside = int(overlap(ran, *worked)[0]) - inside
        if outside > _BACKGROUND * (int(worked[1][0] - worked[0][0]) - intervals.measure(in_gaps)):
            continue
        covered = overlap(ran, start[asked], host_end[asked])
        filled = asked[(covered >= _FILLS * length[asked]) & (by_cause[asked, Cause.NO_EVIDENCE] > 0)]
        by_cause[filled, int(kind)] += by_cause[filled, Cause.NO_EVIDENCE]
        by_cause[filled, Cause.NO_EVIDENCE] = 0
        found[filled] = _longest_inside(host.start, host.end, rows, start[filled], host_end[filled])
    return found


def _longest_inside(begin: Int64, stop: Int64, rows: NDArray[np.intp], start: Int64, end: Int64) -> Int64:
    """Of the given events, the one that fills most of each [start, end), -1 for none."""
    best = np.zeros(len(start), np.int64)
    found = np.full(len(start), -1, np.int64)
    order = rows[np.argsort(begin[rows], kind="stable")]
    high = np.searchsorted(begin[order], end, side="left")
    for back in range(1, min(_MAX_WAITS, len(order)) + 1):
        at = high - back
        row = order[np.maximum(at, 0)]
        inside = np.where(at >= 0, np.minimum(stop[row], end) - np.maximum(begin[row], start), 0)
        better = inside > best
        best, found = np.where(better, inside, best), np.where(better, row, found)
    return found


# A queued kernel starts 1-2 us after the one before it on its stream; a longer wait is for something else.
KERNEL_GAP_MAX = 10 * PS_PER_US
# What waits for an event of another stream starts this long after it, or something else held it up.
HANDOVER_MAX = 20 * PS_PER_US
# Launch latency is estimated from the trace, within these bounds.
LATENCY_DEFAULT, LATENCY_MIN, LATENCY_MAX = 10 * PS_PER_US, PS_PER_US, 50 * PS_PER_US
_LATENCY_SAMPLES = 5
_MAX_HOPS = 6
# Which event explains a gap is looked up for the longest gaps only; nobody reads more.
_MAX_EVIDENCE = 20_000
_SAMPLES = ((1, 2), (1, 4), (3, 4), (7, 8), (1, 8))


@dataclass(frozen=True)
class _Pieces:
    """Stretches of a gap in which one host thread's activity counts: [low, high) on ``thread``."""

    gap: Int64
    thread: Int32
    low: Int64
    high: Int64


def no_gaps() -> Gaps:
    """No gap at all."""
    none = np.zeros(0, np.int64)
    return Gaps(
        none.astype(np.int32), none, none, none, none, none, np.zeros((0, len(Cause)), np.int64),
        none.astype(np.uint8), none,
    )  # fmt: skip


def find_gaps(
    trace: Trace, window: Window, launch: Int64, causes: Causality, activity: HostActivity | None = None
) -> Gaps:
    """All idle gaps inside the window with their causes, GPUs without work included.

    ``launch`` and ``causes`` are as for `steps.find_steps`; ``activity`` is what the host's threads did,
    if somebody has worked it out already.
    """
    device, start, end, full_end, before, after = _complements(trace, window)
    if not len(start):
        return no_gaps()
    if not len(launch):  # no device event at all: nothing says why
        by_cause = np.zeros((len(start), len(Cause)), np.int64)
        by_cause[:, Cause.NO_EVIDENCE] = end - start
        none = np.full(len(start), -1, np.int64)
        cause = np.full(len(start), Cause.NO_EVIDENCE, np.uint8)
        return Gaps(device, start, end, before, after, none, by_cause, cause, none)
    call = np.where(after >= 0, launch[np.maximum(after, 0)], -1)
    by_cause = np.zeros((len(start), len(Cause)), np.int64)
    inner = (call >= 0) & (before >= 0) & (launch[np.maximum(before, 0)] == call)
    host_end, ready = _cut(trace, start, full_end, call, inner)
    host_end, ready = np.minimum(host_end, end), np.minimum(ready, end)
    by_cause[:, Cause.LAUNCH] += ready - host_end
    _charge_device(trace, by_cause, ready, end, before, after, call)
    charge_peers(trace, device, ready, full_end, by_cause)
    pieces = _pieces(trace, start, host_end, call, causes)
    activity = activity or HostActivity(trace, causes.parent, causes.caller)
    activity.look_at(pieces.thread, pieces.low, pieces.high)
    waiting = _charge_host(activity, pieces, by_cause)
    by_cause[:, Cause.NO_EVIDENCE] += waiting
    ahead = _ahead_of_copy(trace, before, launch)
    charge_drained(activity, pieces.gap, pieces.thread, device, start, end, call, ahead, by_cause)
    elsewhere = charge_elsewhere(activity, start, host_end, end, call, by_cause)
    # what remains of waiting in a framework's call is the framework's: it launches in there
    still = np.minimum(waiting, by_cause[:, Cause.NO_EVIDENCE])
    by_cause[:, Cause.LAUNCH] += still
    by_cause[:, Cause.NO_EVIDENCE] -= still
    cause = by_cause.argmax(axis=1).astype(np.uint8)
    evidence = _evidence(activity, pieces, cause, end - start, call)
    if len(activity.kind):
        told = (elsewhere >= 0) & (activity.kind[np.maximum(elsewhere, 0)] == cause)
        evidence = np.where(told, elsewhere, evidence)
    return Gaps(device, start, end, before, after, call, by_cause, cause, evidence)


def _complements(trace: Trace, window: Window) -> tuple[Int32, Int64, Int64, Int64, Int64, Int64]:
    """(device, start, end, end if the window did not cut it, event before, event after) of every gap."""
    events = trace.device_events
    parts = []
    for device in trace.devices:
        rows = events.of_device(device.index)
        picked = np.flatnonzero(events.duration[rows] > 0) + rows.start
        begin, stop = events.start[picked], events.end[picked]
        start, end = intervals.complement(intervals.union(begin, stop), window.start, window.end)
        before = np.full(len(start), -1, np.int64)
        after = np.full(len(start), -1, np.int64)
        full = end.copy()
        if len(picked):
            # the event that ends the gap starts at its end; the one before it ended last
            at = np.searchsorted(begin, end, side="left")
            inside = np.minimum(at, len(picked) - 1)
            hit = at < len(picked)  # behind the window's end it may start later than the gap ends here
            after[hit] = picked[inside[hit]]
            full[hit] = begin[inside[hit]]
            reach = np.maximum.accumulate(stop)
            rising = np.concatenate(([True], stop[1:] > reach[:-1]))
            holder = np.maximum.accumulate(np.where(rising, np.arange(len(picked)), 0))
            at = np.searchsorted(begin, start, side="right") - 1
            hit = at >= 0
            before[hit] = picked[holder[at[hit]]]
        parts.append((np.full(len(start), device.index, np.int32), start, end, full, before, after))
    if not parts:
        none = np.zeros(0, np.int64)
        return none.astype(np.int32), none, none, none, none, none
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return columns[0].astype(np.int32), columns[1], columns[2], columns[3], columns[4], columns[5]


def _cut(trace: Trace, start: Int64, end: Int64, call: Int64, inner: BoolArray) -> tuple[Int64, Int64]:
    """(end of the host's part, end of the launch's own latency) per gap; both ``start`` without a launch.

    A gap inside one graph launch (``inner``) is never the host's: all of it was launched at once.
    """
    host = trace.host_events
    known = (call >= 0) & ~inner
    row = np.maximum(call, 0)
    if not known.any():
        return start, start
    called = np.where(known, host.start[row], start)
    returned = np.where(known, host.end[row], start)
    delays = (end - called)[known & (called >= start) & (called < end)]
    latency = LATENCY_DEFAULT
    if len(delays) >= _LATENCY_SAMPLES:
        latency = int(np.clip(np.median(delays), LATENCY_MIN, LATENCY_MAX))
    host_end = np.clip(called, start, end)
    ready = np.clip(np.maximum(called + 2 * latency, returned + latency), host_end, end)
    return np.where(known, host_end, start), np.where(known, ready, start)


def _charge_device(
    trace: Trace, by_cause: Int64, ready: Int64, end: Int64, before: Int64, after: Int64, call: Int64
) -> None:
    """Charge [ready, end): the event was launched in time, or its launch is unknown."""
    events = trace.device_events
    rest = end - ready
    known = (call >= 0) & (rest > 0)
    has_before = before >= 0
    same_stream = has_before & (events.stream[np.maximum(before, 0)] == events.stream[np.maximum(after, 0)])
    queued = known & same_stream & (rest <= KERNEL_GAP_MAX)
    by_cause[queued, Cause.KERNEL_GAP] += rest[queued]
    # an event of another stream ended right where this gap begins: its completion took that long to arrive
    handed_over = known & has_before & ~same_stream & (rest <= HANDOVER_MAX)
    by_cause[handed_over, Cause.DEPENDENCY] += rest[handed_over]
    stuck = known & ~queued & ~handed_over
    by_cause[stuck, Cause.QUEUED] += rest[stuck]
    unknown = (call < 0) & (rest > 0)
    by_cause[unknown, Cause.NO_EVIDENCE] += rest[unknown]


def _pieces(trace: Trace, start: Int64, host_end: Int64, call: Int64, causes: Causality) -> _Pieces:
    """Whose activity explains the host's part of each gap: follow the launch back to what caused it.

    The launching thread counts from the moment it was handed the work; before that, the thread
    that produced the work, and so on. Between the end of the producer and the start of the consumer
    the launching thread counts again: it may still have been busy with earlier work.
    """
    host = trace.host_events
    producer = causes.producer
    consumer = nearest_with(producer >= 0, causes.parent)
    gap = np.flatnonzero((call >= 0) & (host_end > start))
    row, low, high = causes.caller[call[gap]], start[gap], host_end[gap]
    found: list[tuple[Int64, Int32, Int64, Int64]] = []
    for hop in range(_MAX_HOPS + 1):
        if not len(gap):
            break
        consumed = consumer[row]
        made = np.where(consumed >= 0, producer[np.maximum(consumed, 0)], -1)
        handed = np.where(
            made >= 0, np.minimum(host.end[np.maximum(made, 0)], host.start[np.maximum(consumed, 0)]), low
        )
        if hop == _MAX_HOPS:
            handed = low
        border = np.clip(handed, low, high)
        found.append((gap, host.thread[row], border, high))
        more = (made >= 0) & (border > low)
        gap, row, low, high = gap[more], made[more], low[more], border[more]
    if not found:
        none = np.zeros(0, np.int64)
        return _Pieces(none, none.astype(np.int32), none, none)
    gaps, threads, lows, highs = (np.concatenate(column) for column in zip(*found, strict=True))
    keep = highs > lows
    return _Pieces(gaps[keep], threads[keep].astype(np.int32), lows[keep], highs[keep])


def _charge_host(activity: HostActivity, pieces: _Pieces, by_cause: Int64) -> Int64:
    """Charge the host's part of the gaps by what the threads did; returns how much of each they sat in a call."""
    waiting = np.zeros(len(by_cause), np.int64)
    for thread, mine in rows_by(pieces.thread):
        doing = activity.thread(thread)
        spent = doing.before(pieces.high[mine]) - doing.before(pieces.low[mine])
        for cause in HOST_CAUSES:
            np.add.at(by_cause[:, cause], pieces.gap[mine], spent[cause])
        np.add.at(by_cause[:, Cause.NO_EVIDENCE], pieces.gap[mine], spent[UNKNOWN])
        np.add.at(waiting, pieces.gap[mine], spent[WAITING])
    return waiting


def _evidence(activity: HostActivity, pieces: _Pieces, cause: np.ndarray, length: Int64, call: Int64) -> Int64:
    """The host event that explains each gap's main cause: the longest gaps first, sampled in their pieces."""
    evidence = np.where(cause == Cause.LAUNCH, call, -1)
    wanted = np.ones(len(length), np.bool_)
    if len(length) > _MAX_EVIDENCE:
        wanted[np.argpartition(length, len(length) - _MAX_EVIDENCE)[: len(length) - _MAX_EVIDENCE]] = False
    found = np.zeros(len(length), np.bool_)
    for numerator, denominator in _SAMPLES:
        instant = pieces.low + (pieces.high - pieces.low) // denominator * numerator
        asked = np.flatnonzero(wanted[pieces.gap] & ~found[pieces.gap])
        for thread, index in rows_by(pieces.thread[asked]):
            mine = asked[index]
            doing, row = activity.thread(thread).at(instant[mine])
            hit = (doing == cause[pieces.gap[mine]]) & (row != -1)
            for piece, event in zip(mine[hit].tolist(), row[hit].tolist(), strict=True):
                gap = pieces.gap[piece]
                if not found[gap]:
                    evidence[gap] = event if event >= 0 else activity.fetch_at(int(instant[piece]))
                    found[gap] = True
    return evidence
