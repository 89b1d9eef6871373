"""Gaps that follow a synchronisation: the host waited until the queue was empty, then worked.

Without the synchronisation (`cuStreamSynchronize`, a blocking copy, `.numpy()`) the host would have
been ahead, and the work that follows would have been hidden behind the GPU's, so the first gap after
it is the synchronisation's, whatever the host did in it, seen or unseen. Input, compilation and saving
keep their own cause; what the host launches too slowly later in the step is `launch`. A wait that is
short beside the work that follows drained nothing that mattered: the host was late already, and no
more than the time waited is the synchronisation's.
"""

from __future__ import annotations

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.host_activity import HostActivity
from tb_gpu_doctor.analysis.host_names import Kind
from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.traces.columns import PS_PER_US, Int32, Int64
from tb_gpu_doctor.traces.grouping import distinct, rows_by

# A synchronisation returns a little after the device is done; the clocks may differ by as much.
_TOLERANCE = 20 * PS_PER_US


# What would have been hidden.
_HIDEABLE = [Cause.LAUNCH, Cause.HOST_OTHER, Cause.NO_EVIDENCE]
# A wait of this share of the work behind it, or more, is why the queue was empty.
_REAL_WAIT = 0.25


def charge_drained(
    activity: HostActivity, gap: Int64, thread: Int32, start: Int64, call: Int64, by_cause: Int64
) -> None:
    """Move the launch, other and unseen host work of gaps that follow a draining synchronisation to `sync`.

    Args:
        activity: what the threads did.
        gap: index of a gap, per piece.
        thread: whose activity explains it, per piece.
        start: start of each gap.
        call: host row that launched what ends each gap, -1 unknown.
        by_cause: changed in place, shape (gaps, causes).
    """
    waited = np.zeros(len(start), np.int64)
    for index, pieces in rows_by(thread):
        mine = distinct(gap[pieces])
        waited[mine] = np.maximum(waited[mine], _after_wait(activity, index, start[mine]))
    drained = np.flatnonzero((waited > 0) & (call >= 0))
    work = by_cause[drained][:, _HIDEABLE].sum(axis=1)
    hidden = np.where(waited[drained] >= _REAL_WAIT * work, work, np.minimum(work, waited[drained]))
    by_cause[drained, Cause.SYNC] += hidden
    for cause in _HIDEABLE:  # one after the other: the sums stay exact
        taken = np.minimum(by_cause[drained, cause], hidden)
        by_cause[drained, cause] -= taken
        hidden -= taken


def _after_wait(activity: HostActivity, thread: int, start: Int64) -> Int64:
    """How long the thread had been in a synchronisation when each gap began, 0 if it was in none."""
    host = activity.trace.host_events
    rows = activity.rows_of(thread)
    waits = rows[activity.kind[rows] == Kind.SYNC]
    begin, end = intervals.union(host.start[waits], host.end[waits])
    if not len(begin):
        return np.zeros(len(start), np.int64)
    at = np.searchsorted(begin, start, side="left") - 1
    inside = np.maximum(at, 0)
    hit = (at >= 0) & (end[inside] >= start - _TOLERANCE)
    return np.where(hit, np.minimum(start, end[inside]) - begin[inside], 0)
