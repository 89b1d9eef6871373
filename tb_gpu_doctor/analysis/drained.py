"""Gaps that follow a synchronisation: the host waited until the queue was empty, then worked.

The wait is an event of its own (`cuStreamSynchronize`, a blocking copy, `.numpy()`), or it shows as a
copy to the host that drained the queue while the thread which had launched it did nothing until
it was done. Without the synchronisation the host would have been ahead, and the work that follows
would have been hidden behind the GPU's, so the first gap after it is the synchronisation's, whatever
the host did in it. Input, compilation and saving keep their own cause; what the host launches too
slowly later in the step is `launch`. A wait that is short beside the work that follows drained
nothing that mattered: the host was late already. Then, and where only a copy shows the wait, no more
than the time waited is the synchronisation's.
"""

from __future__ import annotations

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.host_activity import HostActivity
from tb_gpu_doctor.analysis.host_names import Kind
from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.traces.columns import PS_PER_US, CopyKind, Int32, Int64
from tb_gpu_doctor.traces.grouping import distinct

# A synchronisation returns a little after the device is done; the clocks may differ by as much.
_TOLERANCE = 20 * PS_PER_US


# A wait of this share of the work behind it, or more, is why the queue was empty.
_REAL_WAIT = 0.25
# A copy to the host that the thread awaited: it idled at least this long ...
_SHORTEST_WAIT = 20 * PS_PER_US
# ... but for this share of the time.
_BUSY_SHARE = 0.1


def charge_drained(
    activity: HostActivity, gap: Int64, thread: Int32, start: Int64, before: Int64, launch: Int64, by_cause: Int64
) -> None:
    """Move the launch and other host work of gaps that follow a draining synchronisation to `sync`.

    Args:
        activity: what the threads did.
        gap: index of a gap, per piece.
        thread: whose activity explains it, per piece.
        start: start of each gap.
        before: row of the device event in front of each gap, -1 for none.
        launch: host row per device event, -1 unknown.
        by_cause: changed in place, shape (gaps, causes).
    """
    waited = np.zeros(len(start), np.int64)
    for index in distinct(thread).tolist():
        mine = distinct(gap[thread == index])
        waited[mine] = np.maximum(waited[mine], _after_wait(activity, index, start[mine]))
    proved = waited > 0
    open_gaps = np.flatnonzero(~proved & (before >= 0))
    waited[open_gaps] = _after_copy(activity, before[open_gaps], launch)
    drained = np.flatnonzero(waited)
    work = by_cause[drained, Cause.LAUNCH] + by_cause[drained, Cause.HOST_OTHER]
    whole = proved[drained] & (waited[drained] >= _REAL_WAIT * work)
    hidden = np.where(whole, work, np.minimum(work, waited[drained]))
    # of both kinds of work in proportion; float64 is exact enough to share, the sums stay exact
    launching = by_cause[drained, Cause.LAUNCH]
    from_launch = np.minimum(launching, (hidden * (launching / np.maximum(work, 1))).astype(np.int64))
    from_launch = np.maximum(from_launch, hidden - by_cause[drained, Cause.HOST_OTHER])
    by_cause[drained, Cause.SYNC] += hidden
    by_cause[drained, Cause.LAUNCH] -= from_launch
    by_cause[drained, Cause.HOST_OTHER] -= hidden - from_launch


def _after_wait(activity: HostActivity, thread: int, start: Int64) -> Int64:
    """How long the thread had been in a synchronisation when each gap began, 0 if it was in none."""
    host = activity.trace.host_events
    rows = host.of_thread(thread)
    waits = np.flatnonzero(activity.kind[rows] == Kind.SYNC) + rows.start
    begin, end = intervals.union(host.start[waits], host.end[waits])
    if not len(begin):
        return np.zeros(len(start), np.int64)
    at = np.searchsorted(begin, start, side="left") - 1
    inside = np.maximum(at, 0)
    hit = (at >= 0) & (end[inside] >= start - _TOLERANCE)
    return np.where(hit, np.minimum(start, end[inside]) - begin[inside], 0)


def _after_copy(activity: HostActivity, before: Int64, launch: Int64) -> Int64:
    """How long a thread had idled for the copy to the host in front of each gap, 0 if it was not so."""
    host, events = activity.trace.host_events, activity.trace.device_events
    found = np.zeros(len(before), np.int64)
    if not len(host):
        return found
    call = np.where(events.copy_kind[before] == CopyKind.D2H, launch[before], -1)
    done = events.end[before]
    waited = np.where(call >= 0, done - host.end[np.maximum(call, 0)], 0)
    candidates = np.flatnonzero((call >= 0) & (waited >= _SHORTEST_WAIT))
    threads = host.thread[call[candidates]]
    for index in distinct(threads).tolist():
        mine = candidates[threads == index]
        rows = host.of_thread(index)
        kind = activity.kind[rows]
        works = np.flatnonzero((kind != Kind.WAIT) & (kind != Kind.NEUTRAL)) + rows.start
        # the events that enclose the call itself are where the thread waits
        busy = intervals.union(host.start[works], host.end[works])
        spent = intervals.covered_before(busy, done[mine]) - intervals.covered_before(busy, host.end[call[mine]])
        found[mine] = np.where(spent <= _BUSY_SHARE * waited[mine], waited[mine], 0)
    return found
