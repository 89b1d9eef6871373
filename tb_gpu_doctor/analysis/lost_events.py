"""Work of the GPUs that was launched and is not in the file: how much, where, and of which GPU.

A launch call and its work carry one correlation id. In a whole recording every launch meets its work, but for
the last ones, whose work may run after the end. Others were lost: the profiler's buffers were full, or somebody else
took its events. A gap behind which launches lost their work may hold that work, and nothing is known of it.

A GPU whose launches are not recorded is compared with the others: where they meet in collectives and it takes part in
none, its events are missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.results import BoolArray, Cause, Gaps, Steps
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Int32, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, group, rows_by

Place = Literal["begin", "middle", "end", "throughout"]

# Calls that run something on a device, whatever became of it. Copies and memsets are not all recorded.
_LAUNCH = re.compile(r"^(?:cu|cuda|hip)\w*Launch\w*Kernel|^cudaLaunch(?:_|$)|^(?:cu|cuda|hip)GraphLaunch")
_DRIVER_CALL = re.compile(r"^(?:cu|cuda|hip)[A-Z]|^INVALID$")
# What is launched between these is put into a graph and runs later, under the graph's id.
_CAPTURE_BEGIN = re.compile(r"^(?:cu|cuda|hip)StreamBeginCapture")
_CAPTURE_END = re.compile(r"^(?:cu|cuda|hip)StreamEndCapture")
# Waits for all work of a device.
_DEVICE_WAIT = re.compile(r"^(?:cu|cuda|hip)(?:Device|Ctx|Context)Synchronize")
# Of a kind of call that leads to work at least this often, every one should.
_USUALLY = 0.5
# Work launched this much before the end of the recording, of the longest way from a call to the end of its work,
# would have been recorded.
_REACH = 1.5
# Losses that begin or end within this share of a GPU's launches from one end reach to it.
_AT_THE_EDGE = 0.02
# Without launches to tell: a GPU's silence must take this share of what its peers show.
_SILENCE = 0.05
# The collectives that a silent GPU lacks are as many as its peers ran meanwhile, give or take one and this share.
_COUNT_SLACK = 0.02
# Not everybody takes part in these.
_PAIRWISE = re.compile(r"send|recv|p2p", re.IGNORECASE)


@dataclass(frozen=True)
class GpuLoss:
    """What one GPU lacks.

    Attributes:
        device: device index, -1 where no work says on which GPU the launches were to run.
        launches: calls that launched work on it.
        lost: of them, those without any work in the file. 0 where only the GPU's silence beside its peers tells.
        place: where in the GPU's launches the losses lie.
        start, end: from the first to the last of them; or the silence.
    """

    device: int
    launches: int
    lost: int
    place: Place
    start: int
    end: int


@dataclass(frozen=True)
class LostEvents:
    """What a file lacks.

    Attributes:
        launches: calls that should have led to work on a GPU.
        lost: of them, those that did not, the last ones before the end left out.
        gpus: who lacks what; only those that lack something.
        steps: numbers of the steps that lack some of their work; a step without any is among them.
    """

    launches: int
    lost: int
    gpus: tuple[GpuLoss, ...]
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class Launches:
    """The calls that should have led to work on a GPU, shape (n,), in the order of the host's rows.

    Attributes:
        rows: of the host's events.
        device: on which GPU, by their work or by that of their thread's neighbours; -1 unknown.
        met: whether their work is in the file.
        cut: work that may have run after the end of the recording; none of it was met.
    """

    rows: Int64
    device: Int32
    met: BoolArray
    cut: BoolArray

    @property
    def lost(self) -> BoolArray:
        """Whose work was lost."""
        return ~self.met & ~self.cut


def find_launches(trace: Trace) -> Launches:
    """The launches of a file, those without work included."""
    host, events = trace.host_events, trace.device_events
    calls = np.flatnonzero(host.correlation > 0)
    names, kind = group(host.name[calls])
    order = np.argsort(events.correlation, kind="stable")
    ids = events.correlation[order]
    at = np.minimum(np.searchsorted(ids, host.correlation[calls]), max(len(ids) - 1, 0))
    met = ids[at] == host.correlation[calls] if len(ids) else np.zeros(len(calls), np.bool_)
    texts = [trace.strings[i] for i in names.tolist()]
    told = np.array([bool(_LAUNCH.match(text)) for text in texts], np.bool_)
    often = np.bincount(kind, weights=met, minlength=len(names)) >= _USUALLY * np.bincount(kind, minlength=len(names))
    # what is called like a kernel launches it: JAX names its launches so
    kernels = np.isin(names, distinct(events.name))
    if not len(events):
        kernels = np.array([not _DRIVER_CALL.match(text) for text in texts], np.bool_)
    keep = (told | kernels | often)[kind] if len(names) else np.zeros(0, np.bool_)
    keep &= met | ~_captured(trace, calls)
    rows, met, at = calls[keep], met[keep], at[keep]
    device = np.where(met, events.device[order[at]] if len(ids) else -1, -1).astype(np.int32)
    device = _by_neighbour(host.thread[rows], device, len(trace.devices))
    return Launches(rows, device, met, _cut(trace, rows, device, met, order, at))


def _captured(trace: Trace, calls: Int64) -> BoolArray:
    """Calls that a thread makes while it captures a graph."""
    host = trace.host_events
    found = np.zeros(len(calls), np.bool_)
    begins, ends = (_rows_named(trace, pattern) for pattern in (_CAPTURE_BEGIN, _CAPTURE_END))
    if not len(begins):
        return found
    thread = host.thread[calls]
    for index, rows in rows_by(host.thread[begins]):
        mine = np.flatnonzero(thread == index)
        begun = np.sort(host.start[begins[rows]])
        ended = np.sort(host.start[ends[host.thread[ends] == index]])
        at = host.start[calls[mine]]
        found[mine] = np.searchsorted(begun, at, side="right") > np.searchsorted(ended, at, side="right")
    return found


def _rows_named(trace: Trace, pattern: re.Pattern[str]) -> Int64:
    names = distinct(trace.host_events.name)
    wanted = names[[bool(pattern.match(trace.strings[i])) for i in names.tolist()]] if len(names) else names
    if not len(wanted):
        return np.zeros(0, np.int64)
    return np.asarray(np.flatnonzero(np.isin(trace.host_events.name, wanted)), dtype=np.int64)


def _by_neighbour(thread: Int32, device: Int32, devices: int) -> Int32:
    """Unknown GPUs are those of the call before on the same thread, else of the one after it; rows are by thread."""
    if devices == 1:
        return np.zeros(len(device), np.int32)
    at = np.arange(len(device))
    before = np.maximum.accumulate(np.where(device >= 0, at, -1))
    after = np.minimum.accumulate(np.where(device >= 0, at, len(device))[::-1])[::-1]
    found = device
    for near, there in ((before, before >= 0), (after, after < len(device))):
        inside = np.clip(near, 0, max(len(device) - 1, 0))
        same = there & (thread[inside] == thread) if len(device) else there
        found = np.where((found < 0) & same, device[inside], found)
    return found.astype(np.int32)


def _cut(trace: Trace, rows: Int64, device: Int32, met: BoolArray, order: Int64, at: Int64) -> BoolArray:
    """Launches after the last one whose work is there, so near the end that their work may have run after it."""
    host, events = trace.host_events, trace.device_events
    found = np.zeros(len(rows), np.bool_)
    if not len(rows) or met.all():
        return found
    end = max(int(host.end.max()), int(events.end.max()) if len(events) else 0)
    if trace.recorded is not None:
        end = min(end, trace.recorded[1])
    called = host.start[rows]
    ways = np.where(met, events.end[order[at]] - called, 0) if len(events) else np.zeros(len(rows), np.int64)
    # work of an id that no call carries was launched before the recording
    earlier = np.flatnonzero((events.correlation > 0) & ~np.isin(events.correlation, host.correlation[rows]))
    ways = np.append(ways, events.end[earlier] - int(host.start.min()))
    longest = max(int(ways.max()), 0)
    waits = _rows_named(trace, _DEVICE_WAIT)
    for index in distinct(device).tolist():
        mine = np.flatnonzero(device == index)
        done = called[mine[met[mine]]]
        late = mine[~met[mine] & (called[mine] > (done.max() if len(done) else -1))]
        late = late[called[late] + _REACH * longest >= end]
        # whoever waited for the device and came back has seen the work done
        seen = np.zeros(len(late), np.bool_)
        for thread, of_thread in rows_by(host.thread[rows[late]]):
            own = waits[host.thread[waits] == thread]
            last = int(host.start[own].max()) if len(own) else -1
            seen[of_thread] = called[late[of_thread]] < last
        found[late[~seen]] = True
    return found


def find_lost(trace: Trace, launches: Launches, steps: Steps | None = None) -> LostEvents | None:
    """What is missing in a file; None where nothing is. ``steps`` names those that lack some of their work."""
    host = trace.host_events
    lost = launches.lost
    gpus = []
    for device in distinct(launches.device).tolist():
        mine = np.flatnonzero(launches.device == device)
        if lost[mine].any():
            gpus.append(_loss(host.start[launches.rows[mine]], launches.met[mine], launches.cut[mine], device))
    if not gpus:
        gpus = _silent(trace)
    if not gpus:
        return None
    return LostEvents(len(lost), int(np.count_nonzero(lost)), tuple(gpus), _lacking(launches, host.start, steps))


def _loss(called: Int64, met: BoolArray, cut: BoolArray, device: int) -> GpuLoss:
    order = np.argsort(called, kind="stable")
    called, met, cut = called[order], met[order], cut[order]
    where = np.flatnonzero(~met)  # what the end cut off belongs to the hole in front of it
    edge = _AT_THE_EDGE * len(met)
    from_begin, to_end = where[0] <= edge, where[-1] >= len(met) - 1 - edge
    place: Place = "begin" if from_begin else "middle"
    if to_end:
        place = "throughout" if from_begin else "end"
    lost = np.flatnonzero(~met & ~cut)
    return GpuLoss(device, len(met), len(lost), place, int(called[lost[0]]), int(called[lost[-1]]))


def _lacking(launches: Launches, start: Int64, steps: Steps | None) -> tuple[int, ...]:
    """Numbers of the steps from whose markers on launches have no work."""
    if steps is None or not len(steps.number):
        return ()
    at = np.searchsorted(steps.marker_start, start[launches.rows[~launches.met]], side="right") - 1
    return tuple(steps.number[distinct(at[at >= 0])].tolist())


def _silent(trace: Trace) -> list[GpuLoss]:
    """GPUs that lack just the collectives that all their peers ran while they did nothing."""
    events = trace.device_events
    extent = events.extent()
    together = np.flatnonzero(_common_collectives(trace))
    counts = np.bincount(events.device[together], minlength=len(trace.devices))
    members = np.flatnonzero(counts)
    if extent is None or len(members) < 2:
        return []
    usual = float(np.median(counts[members]))
    found = []
    for device in members[counts[members] < usual].tolist():
        rows = events.of_device(device)
        start, end = intervals.complement(intervals.union(events.start[rows], events.end[rows]), *extent)
        longest = int(np.argmax(end - start)) if len(start) else -1
        if longest < 0 or end[longest] - start[longest] < _SILENCE * (extent[1] - extent[0]):
            continue
        low, high = int(start[longest]), int(end[longest])
        inside = together[(events.start[together] >= low) & (events.end[together] <= high)]
        met = np.bincount(events.device[inside], minlength=len(trace.devices))[members[members != device]]
        lacking = usual - counts[device]
        if met.min() < 1 or abs(float(np.median(met)) - lacking) > 1 + _COUNT_SLACK * usual:
            continue
        place: Place = "begin" if low == extent[0] else "end" if high == extent[1] else "middle"
        found.append(GpuLoss(device, 0, 0, place, low, high))
    return found


def _common_collectives(trace: Trace) -> BoolArray:
    """Device events that are collectives of a name that every GPU with collectives runs."""
    events = trace.device_events
    sent = (events.klass == EventClass.COMMUNICATION) & (events.copy_kind == CopyKind.NONE)
    names = distinct(events.name[sent])
    names = names[[not _PAIRWISE.search(trace.strings[i]) for i in names.tolist()]] if len(names) else names
    for _, rows in rows_by(events.device[sent]):
        names = names[np.isin(names, events.name[np.flatnonzero(sent)[rows]])]
    return np.asarray(sent & np.isin(events.name, names), dtype=np.bool_)


def uncertain_gaps(trace: Trace, launches: Launches, launch: Int64, gaps: Gaps) -> BoolArray:
    """Gaps in which lost work may have run: it was launched after the work before the gap, before that behind it.

    Args:
        trace: the trace.
        launches: of the trace.
        launch: host row per device event (`launches.launch_of`).
        gaps: of the trace.
    """
    found = np.zeros(len(gaps), np.bool_)
    host, events, lost = trace.host_events, trace.device_events, launches.lost
    never = np.iinfo(np.int64).min
    called = np.where(launch >= 0, host.start[np.maximum(launch, 0)], never) if len(host) else launch
    for device, rows in rows_by(launches.device[lost]):
        if device < 0:
            continue
        own = events.of_device(device)
        reached = np.maximum.accumulate(called[own])
        gone = np.sort(host.start[launches.rows[lost][rows]])
        mine = np.flatnonzero(gaps.device == device)
        before, after = gaps.before[mine], gaps.launch[mine]
        low = np.full(len(mine), never)
        low[before >= 0] = reached[before[before >= 0] - own.start]
        high = np.where(after >= 0, host.start[np.maximum(after, 0)], gaps.end[mine])
        found[mine] = np.searchsorted(gone, high) > np.searchsorted(gone, low, side="right")
    return found


def without_cause(gaps: Gaps, which: BoolArray) -> Gaps:
    """The gaps, some of them without any evidence of a cause."""
    if not which.any():
        return gaps
    by_cause, cause, evidence = gaps.by_cause.copy(), gaps.cause.copy(), gaps.evidence.copy()
    by_cause[which] = 0
    by_cause[which, Cause.NO_EVIDENCE] = (gaps.end - gaps.start)[which]
    cause[which], evidence[which] = Cause.NO_EVIDENCE, -1
    return replace(gaps, by_cause=by_cause, cause=cause, evidence=evidence)
