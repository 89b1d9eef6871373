"""Gaps that follow a synchronisation: the host waited until the queue was empty, then worked.

Without the synchronisation that work would have been hidden behind the GPU's, so the first gap after
it is the synchronisation's, whatever the host did in it. Input, compilation and saving keep their
own cause; what the host launches too slowly later in the step is `launch`.
"""

from __future__ import annotations

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.host_activity import HostActivity
from tb_gpu_doctor.analysis.host_names import Kind
from tb_gpu_doctor.analysis.results import BoolArray
from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.traces.columns import PS_PER_US, Int32, Int64
from tb_gpu_doctor.traces.grouping import distinct

# A synchronisation returns a little after the device is done; the clocks may differ by as much.
_TOLERANCE = 20 * PS_PER_US


def charge_drained(activity: HostActivity, gap: Int64, thread: Int32, start: Int64, by_cause: Int64) -> None:
    """Move the launch and other host work of gaps that follow a draining synchronisation to `sync`.

    Args:
        activity: what the threads did.
        gap: index of a gap, per piece.
        thread: whose activity explains it, per piece.
        start: start of each gap.
        by_cause: changed in place, shape (gaps, causes).
    """
    host = activity.trace.host_events
    drained: BoolArray = np.zeros(len(start), np.bool_)
    for index in distinct(thread).tolist():
        rows = host.of_thread(index)
        waits = np.flatnonzero(activity.kind[rows] == Kind.SYNC) + rows.start
        begin, end = intervals.union(host.start[waits], host.end[waits])
        if not len(begin):
            continue
        mine = distinct(gap[thread == index])
        at = np.searchsorted(begin, start[mine], side="left") - 1
        hit = (at >= 0) & (end[np.maximum(at, 0)] >= start[mine] - _TOLERANCE)
        drained[mine[hit]] = True
    for cause in (Cause.LAUNCH, Cause.HOST_OTHER):
        by_cause[drained, Cause.SYNC] += by_cause[drained, cause]
        by_cause[drained, cause] = 0
