"""Stretches in which no thread of a process moved on: something outside stopped it, whatever it was doing.

A container that has used up its processor time, swapping, a debugger, a virtual machine that is moved: they stop all
threads at once, in the midst of work that takes microseconds otherwise. That is the proof asked for: while a GPU stood
idle nothing began or ended on any thread, and on two of them at least an event was open that usually takes a small part
of that time, and that waits for nobody.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.host_activity import HostActivity
from tb_gpu_doctor.analysis.host_names import Kind
from tb_gpu_doctor.analysis.idle import overlap
from tb_gpu_doctor.analysis.results import Cause, Gaps
from tb_gpu_doctor.traces.columns import PS_PER_MS, Int64, Trace

# So many of the longest gaps are looked into; shorter ones have reasons enough.
_MOST_GAPS, _SHORTEST = 32, 5 * PS_PER_MS
# The stretch makes up this part of its gap.
_PART = 0.5
# What is in progress usually takes this part of the stretch, as so many others of its name show, on so many threads;
# and of these hardly any takes a part of it that could be called long.
_USUAL, _OTHERS, _THREADS = 0.01, 5, 2
_LONG, _OFTEN = 0.1, 0.05
_WORKS = (Kind.LAUNCH, Kind.HOST_OTHER, Kind.UNKNOWN_NAME, Kind.ALLOCATOR, Kind.NEUTRAL)
# Names of what waits for others: they may take any time.
_WAITS = re.compile(
    r"sleep|wait|acquire|(?<![a-z])get(?![a-z_])|poll|select|recv|receive|join|lock|read|synchroni|step|pop|listen|accept",
    re.IGNORECASE,
)
_DRIVER = re.compile(r"(?:cu|hip|nccl|nvtx)[A-Z]|cuda|rccl")
_CHARGED = (Cause.NO_EVIDENCE, Cause.LAUNCH, Cause.SYNC, Cause.ALLOCATOR)


@dataclass(frozen=True)
class Standstills:
    """What is told of the stretches; times in picoseconds.

    Attributes:
        count: how many there are among the longest gaps.
        typical, longest: their median and greatest length.
        threads: on how many threads short work was in progress, in the median.
        name, usual: what was in progress on one of them, and how long that takes otherwise.
        idle: by GPU, how much of its idle time lies in them.
    """

    count: int
    typical: int
    longest: int
    threads: int
    name: str
    usual: int
    idle: tuple[int, ...]


def charge_standstills(trace: Trace, gaps: Gaps, activity: HostActivity) -> tuple[Gaps, Standstills | None]:
    """The gaps with what lies in stretches of standstill charged to ``host_other``, and what is told of these."""
    long = np.flatnonzero(gaps.end - gaps.start >= _SHORTEST)
    host = trace.host_events
    if not len(long) or not len(host):
        return gaps, None
    long = long[np.argsort(gaps.start[long] - gaps.end[long], kind="stable")][:_MOST_GAPS]
    found: dict[tuple[int, int], Int64] = {}
    usual: dict[int, Int64] = {}
    for low, high in {(int(gaps.start[row]), int(gaps.end[row])) for row in long.tolist()}:
        stretch = _still(trace, low, high)
        if stretch is not None and stretch not in found:
            rows = _in_progress(trace, activity, *stretch, usual)
            if len(rows) >= _THREADS:
                found[stretch] = rows
    if not found:
        return gaps, None
    stretches = intervals.union(*(np.array(side, np.int64) for side in zip(*found, strict=True)))
    inside = overlap(stretches, gaps.start, gaps.end)
    by_cause, left = gaps.by_cause.copy(), np.maximum(inside - gaps.by_cause[:, Cause.HOST_OTHER], 0)
    for cause in _CHARGED:
        taken = np.minimum(by_cause[:, cause], left)
        by_cause[:, cause] -= taken
        by_cause[:, Cause.HOST_OTHER] += taken
        left -= taken
    row = next(iter(found.values()))[0]
    cause = by_cause.argmax(axis=1).astype(np.uint8)
    changed = (cause != gaps.cause) & (inside > 0)
    lengths = [end - start for start, end in found]
    told = Standstills(
        count=len(found),
        typical=int(np.median(lengths)),
        longest=max(lengths),
        threads=int(np.median([len(rows) for rows in found.values()])),
        name=trace.strings[int(host.name[row])],
        usual=int(np.median(usual[int(host.name[row])])),
        idle=tuple(int(inside[gaps.device == device.index].sum()) for device in trace.devices),
    )
    evidence = np.where(changed, row, gaps.evidence)
    return replace(gaps, by_cause=by_cause, cause=cause, evidence=evidence), told


def _still(trace: Trace, low: int, high: int) -> tuple[int, int] | None:
    """The longest stretch of [low, high) in which nothing begins or ends on the host, where it is most of it."""
    host = trace.host_events
    rows = np.flatnonzero((host.start < high) & (host.end > low))
    times = np.concatenate((host.start[rows], host.end[rows]))
    times = np.sort(np.concatenate((times[(times > low) & (times < high)], [low, high])))
    at = int(np.argmax(np.diff(times)))
    start, end = int(times[at]), int(times[at + 1])
    return (start, end) if end - start >= max(_SHORTEST, _PART * (high - low)) else None


def _in_progress(trace: Trace, activity: HostActivity, start: int, end: int, usual: dict[int, Int64]) -> Int64:
    """Rows of the innermost events that are open all the time, of the threads where these are short work otherwise."""
    host = trace.host_events
    rows = np.flatnonzero((host.start <= start) & (host.end >= end))
    rows = rows[np.lexsort((host.start[rows], host.thread[rows]))]
    innermost = rows[np.append(host.thread[rows][1:] != host.thread[rows][:-1], True)] if len(rows) else rows
    kept = []
    for row in innermost.tolist():
        name = int(host.name[row])
        # the driver's own calls wait for each other, and for room in the GPU's queue
        if activity.kind[row] not in _WORKS or host.step_num[row] >= 0 or host.correlation[row] > 0:
            continue
        if name not in usual:
            works = not _WAITS.search(trace.strings[name]) and not _DRIVER.match(trace.strings[name])
            usual[name] = np.sort(host.duration[host.name == name]) if works else np.zeros(0, np.int64)
        durations, length = usual[name], end - start
        if len(durations) <= _OTHERS or np.median(durations) > _USUAL * length:
            continue
        # as long as this stretch are those that stood still with it; in between lie those that take their time
        between = np.count_nonzero((durations > _LONG * length) & (durations < length))
        if between <= _OFTEN * len(durations):
            kept.append(row)
    return np.array(kept, np.int64)
