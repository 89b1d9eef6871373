"""What the host was busy with in a stretch of time, told by its outermost events."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tb_gpu_doctor.diagnosis.context import HostProfile
from tb_gpu_doctor.traces.columns import UNNAMED

# Bookkeeping of the thread pools and of the profiler, no work of its own.
_IGNORED = (UNNAMED, "ThreadpoolListener", "ThreadPool::", "StartRegion", "StopRegion")


def busiest_host_events(profile: HostProfile, spans: Sequence[tuple[int, int]], most: int = 3) -> list[tuple[str, int]]:
    """Names of outermost host events with the most time inside ``spans``, and that time in picoseconds.

    A question to one file (`diagnosis.asking`).
    """
    trace, events = profile.trace, profile.trace.host_events
    if not len(events):
        return []
    start, end = events.start, events.end
    inside = np.zeros(len(events), dtype=np.int64)
    for low, high in spans:
        if high > low:
            inside += np.maximum(0, np.minimum(end, high) - np.maximum(start, low))
    outermost = np.zeros(len(events), dtype=np.bool_)
    for thread in trace.threads:
        span = events.of_thread(thread.index)
        if span.stop > span.start:
            reached = np.maximum.accumulate(end[span])
            outermost[span] = np.concatenate(([True], start[span][1:] >= reached[:-1]))
    inside[~outermost] = 0
    totals = np.zeros(int(events.name.max()) + 1, dtype=np.int64)
    np.add.at(totals, events.name, inside)
    found: list[tuple[str, int]] = []
    for name in np.argsort(-totals, kind="stable")[: most + 20]:
        if totals[name] <= 0 or len(found) == most:
            break
        label = trace.strings[int(name)]
        if label and not label.startswith(_IGNORED):
            found.append((label, int(totals[name])))
    return found
