"""Gaps that follow a synchronisation: the host waited until the queue was empty, then worked.

The wait is an event of its own (`cuStreamSynchronize`, a blocking copy, `.numpy()`), or it shows as a
copy to the host that drained the queue while the thread which had launched it did nothing until
it was done. Without the synchronisation the work that follows would have been hidden behind
the GPU's, so the first gap after it is the synchronisation's, whatever the host did in it. Input,
compilation and saving keep their own cause; what the host launches too slowly later in the step is
`launch`.
"""

from __future__ import annotations

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.host_activity import HostActivity
from tb_gpu_doctor.analysis.host_names import Kind
from tb_gpu_doctor.analysis.results import BoolArray
from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.traces.columns import PS_PER_US, CopyKind, Int32, Int64
from tb_gpu_doctor.traces.grouping import distinct

# A synchronisation returns a little after the device is done; the clocks may differ by as much.
_TOLERANCE = 20 * PS_PER_US


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
    drained: BoolArray = np.zeros(len(start), np.bool_)
    for index in distinct(thread).tolist():
        mine = distinct(gap[thread == index])
        drained[mine[_after_wait(activity, index, start[mine])]] = True
    open_gaps = np.flatnonzero(~drained & (before >= 0))
    drained[open_gaps[_after_copy(activity, before[open_gaps], launch)]] = True
    for cause in (Cause.LAUNCH, Cause.HOST_OTHER):
        by_cause[drained, Cause.SYNC] += by_cause[drained, cause]
        by_cause[drained, cause] = 0


def _after_wait(activity: HostActivity, thread: int, start: Int64) -> BoolArray:
    """Whether the thread was in a synchronisation when each gap began."""
    host = activity.trace.host_events
    rows = host.of_thread(thread)
    waits = np.flatnonzero(activity.kind[rows] == Kind.SYNC) + rows.start
    begin, end = intervals.union(host.start[waits], host.end[waits])
    if not len(begin):
        return np.zeros(len(start), np.bool_)
    at = np.searchsorted(begin, start, side="left") - 1
    return np.asarray((at >= 0) & (end[np.maximum(at, 0)] >= start - _TOLERANCE))


def _after_copy(activity: HostActivity, before: Int64, launch: Int64) -> BoolArray:
    """Whether a copy to the host ended just before each gap and its thread had idled until then."""
    host, events = activity.trace.host_events, activity.trace.device_events
    found: BoolArray = np.zeros(len(before), np.bool_)
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
        found[mine] = spent <= _BUSY_SHARE * waited[mine]
    return found
