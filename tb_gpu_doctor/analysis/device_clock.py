"""A GPU's clock that is off within its file, told by what cannot be: work before its launch, waits that end too soon.

The profiler joins the clocks of host and GPU once. Where that went wrong, kernels start before the call that launched
them, or are still running when a call that waits for the device has returned. One shift for all work of a GPU
that makes both possible again is the correction, the smallest such; where none does, the times contradict
themselves, and that is said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.traces.columns import PS_PER_MS, PS_PER_NS, PS_PER_US, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, rows_by

# Profilers join clocks to a few microseconds; in real files no work ever started before its launch.
_TOLERANCE = 20 * PS_PER_US
# A GPU that did nothing for so long had nothing queued.
_PAUSE = 20 * PS_PER_US
# Launches that find the GPU waiting must agree on the shift this closely: this share of it, or so much.
_AGREE, _AGREE_AT_LEAST = 0.1, PS_PER_MS // 10
# A wait for the whole device: what its thread launched before is done when it returns.
_DEVICE_WAIT = re.compile(r"^(?:cu|cuda|hip)(?:Device|Ctx|Context)Synchronize")
# A wait for a stream, which it does not name: of a thread that uses one stream, that one.
_STREAM_WAIT = re.compile(r"^(?:cu|cuda|hip)StreamSynchronize")
# So many waits must agree before work is moved to an earlier time; a launch says more.
_MIN_WAITS = 3


@dataclass(frozen=True)
class EarlyWork:
    """Work that starts before its launch, which no shift of the clock explains.

    Attributes:
        count: device events that do.
        total: device events with a recorded launch.
        longest: by how much at most, picoseconds.
    """

    count: int
    total: int
    longest: int


@dataclass(frozen=True)
class _Pairs:
    """Device events and the calls that launched them, by correlation id alone; in the order of the events."""

    event: Int64
    call: Int64
    delay: Int64


def on_host_clock(trace: Trace) -> Trace:
    """The trace with the GPUs' times moved to where the host's calls prove them to be.

    The same object where nothing is to be moved. A note says how far each GPU's clock was off.
    """
    pairs = _pairs(trace)
    if pairs is None:
        return trace
    shifts = {}
    waits = _device_waits(trace, pairs)
    for index, mine in rows_by(trace.device_events.device[pairs.event]):
        own = _Pairs(pairs.event[mine], pairs.call[mine], pairs.delay[mine])
        shift = _shift(trace, own, index, waits)
        if shift:
            shifts[index] = shift
    return _shifted(trace, shifts) if shifts else trace


def early_work(trace: Trace) -> EarlyWork | None:
    """Work that starts before its launch; None where there is none."""
    pairs = _pairs(trace)
    if pairs is None:
        return None
    early = pairs.delay < -_TOLERANCE
    if not early.any():
        return None
    return EarlyWork(int(np.count_nonzero(early)), len(early), int(-pairs.delay.min()))


def _pairs(trace: Trace) -> _Pairs | None:
    """Joins ids that one call carries; ids that stand on several calls (of several processes) prove nothing."""
    host, events = trace.host_events, trace.device_events
    calls = np.flatnonzero(host.correlation > 0)
    if not len(calls) or not len(events):
        return None
    calls = calls[np.argsort(host.correlation[calls], kind="stable")]
    ids = host.correlation[calls]
    once = np.ones(len(ids), np.bool_)
    once[1:] &= ids[1:] != ids[:-1]
    once[:-1] &= ids[1:] != ids[:-1]
    calls, ids = calls[once], ids[once]
    if not len(ids):
        return None
    at = np.minimum(np.searchsorted(ids, events.correlation), len(ids) - 1)
    event = np.flatnonzero((events.correlation > 0) & (ids[at] == events.correlation))
    if not len(event):
        return None
    call = calls[at[event]]
    return _Pairs(event, call, events.start[event] - host.start[call])


def _shift(trace: Trace, pairs: _Pairs, device: int, waits: Int64) -> int:
    """What to add to a GPU's times, 0 where nothing proves or explains a difference."""
    early = -int(pairs.delay.min())  # at least so much must be added ...
    slack = _slack_of_waits(trace, pairs, waits)  # ... and no more than this
    if early > _TOLERANCE:
        fits = not len(slack) or early <= int(slack.min()) + _TOLERANCE
        return early if fits and _all_are_early(trace, pairs, device, early) else 0
    if len(slack) >= _MIN_WAITS and slack.min() < -_TOLERANCE:
        late = -int(slack.min())
        # a constant shift shows in every wait, and leaves launches the time they need
        near = np.abs(slack + late) <= max(_AGREE * late, _AGREE_AT_LEAST)
        if near.mean() > 1 / 2 and int(pairs.delay.min()) >= late - _TOLERANCE:
            return -late
    return 0


def _all_are_early(trace: Trace, pairs: _Pairs, device: int, early: int) -> bool:
    """Whether most launches that found the GPU waiting were answered as much too early: one clock, not some events."""
    events = trace.device_events
    own = events.of_device(device)
    start, reach = events.start[own], np.maximum.accumulate(events.end[own])
    paused = np.concatenate(([True], start[1:] - reach[:-1] >= _PAUSE))
    delay = pairs.delay[paused[pairs.event - own.start]]
    as_early = delay <= -early + max(_AGREE * early, _AGREE_AT_LEAST)
    return bool(np.count_nonzero(as_early) > len(delay) / 2)


def _device_waits(trace: Trace, pairs: _Pairs) -> Int64:
    """Rows of the waits of which it is clear for what: for a GPU on threads all of whose work runs on one, and for a
    stream where all of it runs on one stream.
    """
    host, events = trace.host_events, trace.device_events
    names = distinct(host.name)
    thread, device, stream = host.thread[pairs.call], events.device[pairs.event], events.stream[pairs.event]
    found = [np.zeros(0, np.int64)]
    for pattern, place in ((_DEVICE_WAIT, device), (_STREAM_WAIT, stream)):
        waits = names[[bool(pattern.match(trace.strings[i])) for i in names.tolist()]]
        if len(waits):
            single = [index for index, rows in rows_by(thread) if (place[rows] == place[rows[0]]).all()]
            found.append(np.flatnonzero(np.isin(host.name, waits) & np.isin(host.thread, single)))
    return np.sort(np.concatenate(found))


def _slack_of_waits(trace: Trace, pairs: _Pairs, waits: Int64) -> Int64:
    """How long after the end of what its thread had launched each wait returned."""
    host, events = trace.host_events, trace.device_events
    found = [np.zeros(0, np.int64)]
    for thread, index in rows_by(host.thread[waits]):
        mine = np.flatnonzero(host.thread[pairs.call] == thread)
        if not len(mine):
            continue
        mine = mine[np.argsort(host.start[pairs.call[mine]], kind="stable")]
        called = host.start[pairs.call[mine]]
        done = np.maximum.accumulate(events.end[pairs.event[mine]])
        wait = waits[index]
        before = np.searchsorted(called, host.start[wait], side="left") - 1
        # the first wait after a launch: a second one says nothing new
        fresh = np.concatenate(([True], before[1:] != before[:-1])) & (before >= 0)
        found.append(host.end[wait[fresh]] - done[before[fresh]])
    return np.concatenate(found)


def _shifted(trace: Trace, shifts: dict[int, int]) -> Trace:
    events = trace.device_events
    moved = events.start.copy()
    for device, shift in shifts.items():
        moved[events.of_device(device)] += shift
    # every GPU's rows move alike, so their order stays
    gpus = [trace.devices[device].id for device in shifts]
    by = max(shifts.values(), key=abs)
    key = "notes.device_clock_early" if by > 0 else "notes.device_clock_late"
    note = Phrase(key, {"numbers": gpus, "by": abs(by)})
    moved_trace = replace(trace, device_events=replace(events, start=moved), notes=(*trace.notes, note))
    return _from_zero(moved_trace, int(moved.min()))


def _from_zero(trace: Trace, first: int) -> Trace:
    """The trace on a clock that begins early enough for its first device event: no time is below zero."""
    if first >= 0:
        return trace
    later = -(first // PS_PER_NS) * PS_PER_NS  # whole nanoseconds, as the wall clock's
    device, host, wall = trace.device_events, trace.host_events, trace.wall_start_unix_ns
    return replace(
        trace,
        device_events=replace(device, start=device.start + later),
        host_events=replace(host, start=host.start + later),
        recorded=trace.recorded and (trace.recorded[0] + later, trace.recorded[1] + later),
        wall_start_unix_ns=None if wall is None else wall - later // PS_PER_NS,
    )
