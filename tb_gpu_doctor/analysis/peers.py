"""Gaps in which a queued kernel waited for another GPU, outside a collective."""

from __future__ import annotations

import numpy as np

from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.traces.columns import PS_PER_US, Int32, Int64, Trace

# The event waited for ends this close to the end of the gap ...
_BEFORE, _AFTER = 10 * PS_PER_US, 2 * PS_PER_US
# ... and fills this share of it, or its end is a coincidence.
_COVER = 0.5
_SHORTEST = 20 * PS_PER_US
_MAX_GAPS = 20_000


def charge_peers(trace: Trace, device: Int32, ready: Int64, end: Int64, by_cause: Int64) -> None:
    """Move `dependency` time to `peer` where one event of another GPU explains it.

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
    waiting = np.flatnonzero(by_cause[:, Cause.DEPENDENCY] >= _SHORTEST)
    if len(waiting) > _MAX_GAPS:
        longest = np.argsort(by_cause[waiting, Cause.DEPENDENCY])[-_MAX_GAPS:]
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
            by_cause[hit, Cause.PEER] += by_cause[hit, Cause.DEPENDENCY]
            by_cause[hit, Cause.DEPENDENCY] = 0
