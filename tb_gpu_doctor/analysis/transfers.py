"""Copies to, from, on and between GPUs: how many, how fast, how much of them nothing hides, and who asked for them.

A bounce is an op on the CPU in the middle of a step: tensors are copied to the host, worked on there and copied back.
It is proven by a named host op between the two copies of one step. Only ops that bounce in most steps count; a copy to
the host that no such op follows is an ordinary synchronisation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.accounting import BusySets
from tb_gpu_doctor.analysis.callers import Causality
from tb_gpu_doctor.analysis.host_activity import HOST_CAUSES
from tb_gpu_doctor.analysis.host_names import Kind, kind_of
from tb_gpu_doctor.analysis.idle import gap_rows, overlap, sum_by_step
from tb_gpu_doctor.analysis.intervals import IntervalSet
from tb_gpu_doctor.analysis.results import BoolArray, Cause, Gaps, Steps, Window
from tb_gpu_doctor.traces.columns import PS_PER_US, CopyKind, EventClass, Int32, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, group, rows_by


@dataclass(frozen=True)
class CopyTotals:
    """The copies of one direction on one GPU that ran in the window.

    Attributes:
        device: device index.
        direction: `CopyKind`; ``NONE`` stands for memsets.
        count: how many.
        blocking: those whose call returned only when the copy was done.
        size_bytes: of those with a known size, ``sized_time`` their durations.
        time: durations inside the window.
        exposed: time that neither a kernel nor an earlier copy hides. Without ``P2P`` the directions
            sum to ``DeviceAccounting.transfer`` exactly; copies between GPUs count as communication.
        exposed_pageable: the part of it with pageable host memory.
    """

    device: int
    direction: CopyKind
    count: int
    blocking: int
    size_bytes: int
    sized_time: int
    time: int
    exposed: int
    exposed_pageable: int

    @property
    def hidden(self) -> int:
        """Time behind kernels or an earlier copy."""
        return self.time - self.exposed

    @property
    def bytes_per_s(self) -> float | None:
        """Bandwidth over the copies of known size; None without any."""
        return self.size_bytes / self.sized_time * 1e12 if self.size_bytes > 0 and self.sized_time > 0 else None


@dataclass(frozen=True)
class CopyGroup:
    """The copies on one GPU that one op asked for.

    Attributes:
        device, direction: as in `CopyTotals`.
        op: framework op, else the host event around the launch, else the copy's own name.
        count, size_bytes, time, exposed: as in `CopyTotals`.
        waited: idle time of the GPU during their blocking calls.
        longest: row of the device event with the largest exposed time.
    """

    device: int
    direction: CopyKind
    op: str
    count: int
    size_bytes: int
    time: int
    exposed: int
    waited: int
    longest: int


@dataclass(frozen=True)
class Transfers:
    """All copies of one trace over the window.

    Attributes:
        totals: by GPU and direction, in that order; directions without copies are left out.
        groups: those of each GPU that cost most, the most expensive first.
        rows: rows of the device events, by device and start.
        exposed: time of each row that neither a kernel nor an earlier copy hides.
        late: the part of it that would be hidden had the host not been late before the copy.
        gap_wait: time of each gap in which the host sat in a blocking copy, shape (gaps,).
        step_exposed: exposed time without ``P2P`` per complete step and GPU, shape (steps, devices).
        step_late: ``late`` per complete step and GPU.
    """

    totals: tuple[CopyTotals, ...]
    groups: tuple[CopyGroup, ...]
    rows: Int64
    exposed: Int64
    late: Int64
    gap_wait: Int64
    step_exposed: Int64
    step_late: Int64


@dataclass(frozen=True)
class Bounces:
    """Ops on the CPU between GPU ops: a copy to the host, the op, a copy back, in most steps.

    Attributes:
        device: device index, shape (n,), rising.
        step: index into `Steps`.
        down, up: rows of the two copies.
        op: host row of the op between them, the longest of several.
        op_time: time of all named ops between them.
        gap_part: time of each gap between the two copies of a bounce, shape (gaps,).
        step_part: the same per complete step and GPU, shape (steps, devices).
        step_copies: exposed time of the bounces' copies per complete step and GPU.
        device_copies: exposed time of the bounces' copies in the window, shape (devices,).
    """

    device: Int32
    step: Int32
    down: Int64
    up: Int64
    op: Int64
    op_time: Int64
    gap_part: Int64
    step_part: Int64
    step_copies: Int64
    device_copies: Int64

    def __len__(self) -> int:
        return len(self.op)


GROUPS_PER_GPU = 8
# Pageable memory is copied to a page-locked buffer first, at 0.5 GB/s at the slowest, after some microseconds.
_STAGING, _STAGING_PS_PER_BYTE = 20 * PS_PER_US, 2000
_LARGEST_COPY = 1 << 40
# Partitioned graphs number the ends of a copy: `IteratorGetNext/_12:_HostSend`.
_SERIAL = re.compile(r"/_\d+(?=:|$)")


def find_transfers(
    trace: Trace, window: Window, steps: Steps, gaps: Gaps, launch: Int64, causes: Causality, busy_of: BusySets
) -> Transfers:
    """All copies that touch the window; ``launch`` is `launches.launch_of`, ``busy_of`` `accounting.all_busy_sets`."""
    events = trace.device_events
    is_copy = (events.klass >= EventClass.COPY) | (events.copy_kind == CopyKind.P2P)
    is_copy &= (events.start < window.end) & (events.end > window.start)
    rows = np.flatnonzero(is_copy)
    kind = events.copy_kind[rows].astype(np.int64)
    exposed = np.zeros(len(rows), np.int64)
    blocking = _blocks(trace, launch, rows)
    gap_wait = np.zeros(len(gaps), np.int64)
    late = np.zeros(len(rows), np.int64)
    step_exposed = np.zeros((steps.count, len(trace.devices)), np.int64)
    step_late = np.zeros_like(step_exposed)
    totals: list[CopyTotals] = []
    groups: list[CopyGroup] = []
    for device in trace.devices:
        low, high = np.searchsorted(events.device[rows], [device.index, device.index + 1])
        compute, kernels, _ = busy_of[device.index]
        own = slice(int(low), int(high))
        between = kind[own] == CopyKind.P2P
        exposed[own][~between] = _exposed(trace, window, rows[own][~between], kernels)
        exposed[own][between] = _exposed(trace, window, rows[own][between], compute)
        mine = gap_rows(gaps, device.index)
        late[own] = _late(trace, gaps, mine, rows[own], np.where(blocking[own] | between, 0, exposed[own]), kernels)
        step_late[:, device.index] = sum_by_step(steps, device.index, events.start[rows[own]], late[own])
        waiting = _waiting(trace, launch, device.index, rows[blocking])
        gap_wait[mine] = overlap(waiting, gaps.start[mine], _host_end(trace, gaps, mine, rows[blocking]))
        step_exposed[:, device.index] = _step_exposed(
            trace, window, steps, device.index, rows[own][~between], exposed[own][~between], kernels
        )
        idle = (gaps.start[mine], gaps.end[mine])
        args = (trace, window, device.index, rows[own], exposed[own], blocking[own])
        totals += _totals(*args)
        groups += _groups(*args, launch, causes, idle)
    return Transfers(
        tuple(totals), tuple(groups), rows, exposed, late, gap_wait, step_exposed, step_late
    )  # fmt: skip


def _blocks(trace: Trace, launch: Int64, rows: Int64) -> BoolArray:
    """Whether the host sat in the call until the copy was done: recorded as synchronous, or seen to be so."""
    events, host = trace.device_events, trace.host_events
    known = launch[rows] >= 0
    if not known.any():
        return known
    returned = host.end[np.maximum(launch[rows], 0)]
    # an asynchronous copy of page-locked memory may be over before its call returns; nobody waits for it
    may = (events.copy_async[rows] != 1) | (events.copy_memory[rows] == 1)
    seen = may & (returned >= events.end[rows])
    is_copy = events.klass[rows] != EventClass.MEMSET
    return np.asarray(known & is_copy & ((events.copy_async[rows] == 0) | seen), dtype=np.bool_)


def _host_end(trace: Trace, gaps: Gaps, mine: slice, blocking: Int64) -> Int64:
    """Until when the host can be to blame for each gap: it had launched what ends it, and so waited like the GPU.

    Where a blocking copy ends the gap itself, its call is busy with pageable memory first, for as long as its bytes
    take; a call that lasts longer waits for the device.
    """
    call, after, start, end = gaps.launch[mine], gaps.after[mine], gaps.start[mine], gaps.end[mine]
    if not len(trace.host_events):
        return end
    launched = np.clip(trace.host_events.start[np.maximum(call, 0)], start, end)
    size = np.minimum(np.maximum(trace.device_events.copy_bytes[np.maximum(after, 0)], 0), _LARGEST_COPY)
    staged = np.where(np.isin(after, blocking), np.minimum(end - launched, _STAGING + size * _STAGING_PS_PER_BYTE), 0)
    return np.where(call >= 0, launched + staged, end)


def _waiting(trace: Trace, launch: Int64, device: int, blocking: Int64) -> IntervalSet:
    """When a thread that launches for a GPU sat in a blocking copy, to whichever GPU."""
    if not len(blocking):
        return intervals.empty_set()
    host, calls = trace.host_events, launch[blocking]
    mine = launch[trace.device_events.of_device(device)]
    launches = np.zeros(len(trace.threads), np.bool_)
    launches[host.thread[mine[mine >= 0]]] = True
    calls = calls[launches[host.thread[calls]]]
    calls = calls[np.argsort(host.start[calls], kind="stable")]
    return intervals.union(host.start[calls], host.end[calls])


def _fresh(trace: Trace, window: Window, rows: Int64) -> tuple[Int64, Int64]:
    """What each copy adds inside the window to the copies that started before it: [start, end) per row."""
    events = trace.device_events
    start = np.clip(events.start[rows], window.start, window.end)
    end = np.clip(events.end[rows], window.start, window.end)
    reach = np.concatenate(([window.start], np.maximum.accumulate(end)[:-1])) if len(rows) else start
    start = np.maximum(start, reach)
    return start, np.maximum(end, start)  # starts and ends both rise


def _exposed(trace: Trace, window: Window, rows: Int64, hiding: IntervalSet) -> Int64:
    start, end = _fresh(trace, window, rows)
    return end - start - overlap(hiding, start, end)


def _late(trace: Trace, gaps: Gaps, mine: slice, rows: Int64, exposed: Int64, kernels: IntervalSet) -> Int64:
    """What of each copy's exposed time would be hidden had the host not been late before it.

    The copies that follow a gap without a kernel in between would have run that much earlier, behind the
    kernels before the gap: of their exposed time, in order, as much as the host's part of the gap.
    """
    late = np.zeros(len(rows), np.int64)
    start, end = gaps.start[mine], gaps.end[mine]
    if not len(rows) or not len(start):
        return late
    began = trace.device_events.start[rows]
    gap = np.searchsorted(end, began, side="right") - 1
    picked = np.flatnonzero((gap >= 0) & (exposed > 0))
    before_copy = intervals.covered_before(kernels, began[picked])
    picked = picked[before_copy == intervals.covered_before(kernels, end[gap[picked]])]
    if not len(picked):
        return late
    before = np.cumsum(exposed[picked]) - exposed[picked]
    first = np.concatenate(([True], gap[picked][1:] != gap[picked][:-1]))
    earlier = before - np.maximum.accumulate(np.where(first, before, 0))
    host = gaps.by_cause[mine][gap[picked]][:, list(HOST_CAUSES)].sum(axis=1)
    late[picked] = np.clip(host - earlier, 0, exposed[picked])
    return late


def _step_exposed(
    trace: Trace, window: Window, steps: Steps, device: int, rows: Int64, exposed: Int64, hiding: IntervalSet
) -> Int64:
    """Exposed time in each complete step: a difference of what lies before its two borders."""
    complete = np.flatnonzero(steps.complete)
    low, high = steps.start[complete, device], steps.end[complete, device]
    if not len(rows) or not len(complete):
        return np.zeros(len(complete), np.int64)
    start, end = _fresh(trace, window, rows)
    total = np.concatenate((np.zeros(1, np.int64), np.cumsum(exposed)))

    def before(at: Int64) -> Int64:
        # fresh parts do not overlap, so at most the last one that started reaches beyond ``at``
        index = np.searchsorted(start, at, side="right")
        last = np.maximum(index - 1, 0)
        cut = np.minimum(np.maximum(at, start[last]), end[last])
        beyond = end[last] - cut - overlap(hiding, cut, end[last])
        return total[index] - np.where(index > 0, beyond, 0)

    return np.where(high >= 0, before(high) - before(low), 0)


def _totals(
    trace: Trace, window: Window, device: int, rows: Int64, exposed: Int64, blocking: BoolArray
) -> list[CopyTotals]:
    events = trace.device_events
    kind, size = events.copy_kind[rows], events.copy_bytes[rows]
    inside = np.clip(events.end[rows], window.start, window.end) - np.clip(events.start[rows], window.start, window.end)
    found = []
    for direction in np.flatnonzero(np.bincount(kind)).tolist() if len(rows) else ():
        mine = kind == direction
        memory = events.copy_memory[rows][mine]
        sized = mine & (size > 0)
        found.append(
            CopyTotals(
                device=device,
                direction=CopyKind(direction),
                count=int(np.count_nonzero(mine)),
                blocking=int(np.count_nonzero(blocking & mine)),
                size_bytes=intervals.exact_sum(size[sized]),
                sized_time=intervals.exact_sum(events.duration[rows][sized]),
                time=intervals.exact_sum(inside[mine]),
                exposed=int(exposed[mine].sum()),
                exposed_pageable=int(exposed[mine][memory == 1].sum()),
            )
        )
    return found


def _groups(
    trace: Trace,
    window: Window,
    device: int,
    rows: Int64,
    exposed: Int64,
    blocking: BoolArray,
    launch: Int64,
    causes: Causality,
    idle: IntervalSet,
) -> list[CopyGroup]:
    """By direction and by who asked for them."""
    if not len(rows):
        return []
    events, host = trace.device_events, trace.host_events
    ids, index = group(_asked_by(trace, rows, launch, causes))
    names: dict[str, int] = {}
    # a million copies have few names; a serial number in them would make each one a group of its own
    merged = np.array([names.setdefault(_SERIAL.sub("", trace.strings[i]), len(names)) for i in ids.tolist()])
    kinds = len(CopyKind)
    keys, index = group(merged[index] * kinds + events.copy_kind[rows])
    call = np.maximum(launch[rows], 0)
    waited = np.zeros(len(rows), np.int64)
    if blocking.any():
        calls = call[blocking]
        waited[blocking] = overlap(idle, host.start[calls], host.end[calls])
    cost = np.bincount(index, weights=(exposed + waited).astype(np.float64), minlength=len(keys))
    labels = list(names)
    time = np.clip(events.end[rows], window.start, window.end) - np.clip(events.start[rows], window.start, window.end)
    found = []
    for at in np.argsort(-cost, kind="stable")[:GROUPS_PER_GPU].tolist():
        mine = np.flatnonzero(index == at)
        found.append(
            CopyGroup(
                device=device,
                direction=CopyKind(int(keys[at]) % kinds),
                op=labels[int(keys[at]) // kinds] or trace.strings[int(events.name[rows[mine[0]]])],
                count=len(mine),
                size_bytes=intervals.exact_sum(np.maximum(events.copy_bytes[rows[mine]], 0)),
                time=intervals.exact_sum(time[mine]),
                exposed=int(exposed[mine].sum()),
                waited=intervals.exact_sum(waited[mine]),
                longest=int(rows[mine[np.argmax(exposed[mine] + waited[mine])]]),
            )
        )
    return found


def _asked_by(trace: Trace, rows: Int64, launch: Int64, causes: Causality) -> Int64:
    """String id of who asked for each copy."""
    events, host = trace.device_events, trace.host_events
    asked = events.op[rows].astype(np.int64)
    offsets = trace.strings.offsets
    empty = (asked < 0) | (offsets[np.maximum(asked, 0) + 1] == offsets[np.maximum(asked, 0)])
    call = launch[rows]
    known = np.flatnonzero(empty & (call >= 0))
    asked[empty] = events.name[rows][empty]
    if len(known):
        caller = causes.caller[call[known]]
        around = np.where(caller == call[known], causes.parent[call[known]], caller)
        asked[known[around >= 0]] = host.name[around[around >= 0]]
    return asked


# Host and device clocks are joined once and may differ by this much.
_TOLERANCE = 20 * PS_PER_US
# The named ops must fill this part of the time between the copies, or they are there by chance.
_MIN_COVER = 0.3
# ... and an op that runs elsewhere as well is no sign: this part of its runs must lie in bounces.
_MIN_TYPICAL = 0.5
# In how many of the steps, and how many there must be.
_MOST_STEPS, _MIN_STEPS = 0.5, 2
_MAX_ANCESTORS = 40

# What the framework does around ops, containers of ops, and input: none of them is an op that was placed.
_FRAMEWORK_OP = re.compile(r"^(?:[\w./\-]+(?::\w+)*:|EagerLocalExecute: )(?P<type>\w+)$")
_NOT_PLACED = re.compile(
    r"^_|^(?:Identity\w*|NoOp|Const|Placeholder|VarHandleOp|ReadVariableOp|ResourceApply\w*|Assign\w*VariableOp"
    r"|(?:Stateful)?PartitionedCall|(?:Stateless)?(?:While|If|Case)|Merge|Switch|Enter|Exit|NextIteration|LoopCond"
    r"|Collective\w*|Nccl\w*|\w*Iterator\w*|\w*Dataset\w*|Optional\w+|\w*Save\w*|\w*Restore\w*|MergeV2\w*"
    r"|ShardedFilename|\w*Summary\w*|HostSend|HostRecv|Send|Recv|__\w+)$"
)
# XLA's calls back into Python.
_CALLBACK = re.compile(
    r"xla_(?:ffi_)?(?:partitioned_)?python_(?:cpu|gpu)_callback|PyCpuCallback|CpuCallback::|HostCallback"
)
_PYTHON_CALLBACK = re.compile(r"^\$callback\.py:\d+ (?:pure_callback|io_callback|_callback|callback)\w*")
_INPUT_THREAD = "tf_data"


@dataclass(frozen=True)
class _Ops:
    """Candidates: host rows by start, the outermost ones of each thread."""

    row: Int64
    start: Int64
    end: Int64


def find_bounces(
    trace: Trace, steps: Steps, gaps: Gaps, transfers: Transfers, launch: Int64, causes: Causality
) -> Bounces:
    """Bounces that recur in most complete steps."""
    none = _no_bounces(trace, steps, gaps)
    if not steps.count or not len(transfers.rows):
        return none
    kind = trace.device_events.copy_kind[transfers.rows]
    if not (kind == CopyKind.D2H).any() or not (kind == CopyKind.H2D).any():
        return none
    ops = _candidates(trace, causes)
    if not len(ops.row):
        return none
    parts = [_of_device(trace, steps, transfers.rows, launch, ops, device.index) for device in trace.devices]
    device, step, down, up, op, op_time = (np.concatenate(column) for column in zip(*parts, strict=True))
    keep = _recurring(trace, steps, ops, device, step, op)
    keep &= _is_own_work(trace, causes, op, keep)
    if not keep.any():
        return none
    device, step, down, up, op, op_time = (c[keep] for c in (device, step, down, up, op, op_time))
    found = replace(none, device=device.astype(np.int32), step=step.astype(np.int32), down=down, up=up, op=op)
    return _with_parts(trace, steps, gaps, transfers, replace(found, op_time=op_time))


def charge_bounces(trace: Trace, gaps: Gaps, bounces: Bounces, launch: Int64) -> Gaps:
    """The gaps with the host's work between the copies of a bounce charged to `sync`.

    The executor waits for the copy without an event that says so; what it does then would be hidden
    if it need not wait. Time that is charged to input, compilation or saving keeps its cause.
    """
    if not len(bounces):
        return gaps
    host = trace.host_events
    by_cause, evidence = gaps.by_cause.copy(), gaps.evidence.copy()
    for device in distinct(bounces.device).tolist():
        mine = bounces.device == device
        start = trace.device_events.end[bounces.down[mine]]
        end = np.maximum(host.start[launch[bounces.up[mine]]], start)
        order = np.argsort(start, kind="stable")
        rows = np.arange(len(gaps))[gap_rows(gaps, device)]
        inside = overlap(intervals.union(start[order], end[order]), gaps.start[rows], gaps.end[rows])
        rows, inside = rows[inside > 0], inside[inside > 0]
        for cause in (Cause.LAUNCH, Cause.HOST_OTHER):
            moved = np.minimum(by_cause[rows, cause], inside)
            by_cause[rows, cause] -= moved
            by_cause[rows, Cause.SYNC] += moved
            inside = inside - moved
        at = np.minimum(np.searchsorted(start[order], gaps.end[rows], side="left") - 1, len(order) - 1)
        evidence[rows] = bounces.op[mine][order][np.maximum(at, 0)]
    cause = by_cause.argmax(axis=1).astype(np.uint8)
    return replace(gaps, by_cause=by_cause, cause=cause, evidence=evidence)


def _no_bounces(trace: Trace, steps: Steps, gaps: Gaps) -> Bounces:
    rows = np.zeros(0, np.int64)
    by_step = np.zeros((steps.count, len(trace.devices)), np.int64)
    return Bounces(
        device=rows.astype(np.int32),
        step=rows.astype(np.int32),
        down=rows,
        up=rows,
        op=rows,
        op_time=rows,
        gap_part=np.zeros(len(gaps), np.int64),
        step_part=by_step,
        step_copies=by_step,
        device_copies=np.zeros(len(trace.devices), np.int64),
    )


def _candidates(trace: Trace, causes: Causality) -> _Ops:
    """Host rows that may be ops on the CPU: named so, nothing launched inside, no op of any GPU event."""
    host = trace.host_events
    ids, index = group(host.name)
    on_gpu = {trace.strings[i] for i in distinct(trace.device_events.op).tolist()}
    named = np.array([_may_be_placed(trace.strings[i]) and trace.strings[i] not in on_gpu for i in ids.tolist()])
    if not named.any():
        return _Ops(host.start[:0], host.start[:0], host.start[:0])
    foreign = np.array([thread.name.startswith(_INPUT_THREAD) for thread in trace.threads], np.bool_)
    rows = np.flatnonzero(named[index] & ~foreign[host.thread] & (host.duration > 0))
    rows = rows[~_launches_inside(trace, causes, rows)]
    # rows run from outer to inner: an op inside another candidate of its thread ends no later than that
    start, end, thread = host.start[rows], host.end[rows], host.thread[rows]
    shift = thread.astype(np.int64) * (int(end.max(initial=0)) - int(start.min(initial=0)) + 1)
    reach = np.maximum.accumulate(end + shift)
    outer = np.concatenate(([True], (end + shift)[1:] > reach[:-1])) if len(rows) else np.zeros(0, np.bool_)
    rows = rows[outer]
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    return _Ops(rows, host.start[rows], host.end[rows])


def _may_be_placed(name: str) -> bool:
    if len(name) > 512:
        return False
    if _CALLBACK.search(name) or _PYTHON_CALLBACK.match(name):
        return True
    match = _FRAMEWORK_OP.match(name)
    return match is not None and not _NOT_PLACED.match(match.group("type"))


def _launches_inside(trace: Trace, causes: Causality, rows: Int64) -> BoolArray:
    """Whether a call that works for a device stands below each row.

    Rows of a thread are sorted by start, so what an event encloses follows it without a break.
    """
    host = trace.host_events
    calls = causes.caller[host.correlation > 0]
    marked = np.zeros(len(host) + 1, np.int64)
    marked[calls + 1] = 1
    before = np.cumsum(marked)
    last = np.empty(len(rows), np.int64)
    for thread, mine in rows_by(host.thread[rows]):
        own = host.of_thread(thread)
        last[mine] = np.searchsorted(host.start[own], host.end[rows[mine]], side="left") + own.start
    return np.asarray(before[last] > before[rows], dtype=np.bool_)


def _of_device(trace: Trace, steps: Steps, copies: Int64, launch: Int64, ops: _Ops, device: int) -> tuple[Int64, ...]:
    """(device, step, down, up, main op, time of ops) of every pair of copies with named ops between them."""
    events, host = trace.device_events, trace.host_events
    none = np.zeros(0, np.int64)
    mine = copies[(events.device[copies] == device) & (launch[copies] >= 0)]
    down, up = (mine[events.copy_kind[mine] == kind] for kind in (CopyKind.D2H, CopyKind.H2D))
    if not len(down) or not len(up):
        return none, none, none, none, none, none
    down = down[np.argsort(events.end[down], kind="stable")]
    called = host.start[launch[up]]
    order = np.argsort(called, kind="stable")
    up, called = up[order], called[order]
    before = np.searchsorted(events.end[down], ops.start + _TOLERANCE, side="right") - 1
    after = np.searchsorted(called, ops.end - _TOLERANCE, side="left")
    good = np.flatnonzero((before >= 0) & (after < len(up)))
    # the last copy there before the copy back, and the first copy back after the copy there: with others
    # in between, an op of another GPU's step would seem to lie between them
    before, after = before[good], after[good]
    closest = np.searchsorted(events.end[down], called[after] + _TOLERANCE, side="right") - 1 == before
    closest &= np.searchsorted(called, events.end[down[before]] - _TOLERANCE, side="left") == after
    good, before, after = good[closest], before[closest], after[closest]
    first, second = down[before], up[after]
    same = steps.event_step[first] == steps.event_step[second]
    of_step = np.maximum(steps.event_step[first], 0)
    same &= (steps.event_step[first] >= 0) & steps.complete[of_step]
    # the copy back comes later than the copy there
    same &= events.start[second] > events.end[first]
    good, first, second = good[same], first[same], second[same]
    if not len(good):
        return none, none, none, none, none, none
    pairs, index = group(first * len(events) + second)
    spent = ops.end[good] - ops.start[good]
    time = np.bincount(index, weights=spent.astype(np.float64)).astype(np.int64)
    # several GPUs work on equal steps at once: the op on the thread that launches the copy back is the GPU's own
    own = host.thread[ops.row[good]] == host.thread[launch[second]]
    order = np.lexsort((spent, own, index))
    longest = order[np.searchsorted(index[order], np.arange(len(pairs)), side="right") - 1]
    covered = np.bincount(index[own], weights=spent[own].astype(np.float64), minlength=len(pairs)).astype(np.int64)
    time = np.where(covered > 0, covered, time)
    first, second = pairs // len(events), pairs % len(events)
    between = np.maximum(host.start[launch[second]] - events.end[first], 1)
    keep = time >= _MIN_COVER * between
    rows = ops.row[good[longest]]
    return (
        np.full(int(keep.sum()), device, np.int64),
        steps.event_step[first[keep]].astype(np.int64),
        first[keep],
        second[keep],
        rows[keep],
        time[keep],
    )


def _recurring(trace: Trace, steps: Steps, ops: _Ops, device: Int64, step: Int64, op: Int64) -> BoolArray:
    """Whether the op of each bounce bounces in most steps of its GPU, and does not run elsewhere as much."""
    if not len(op):
        return np.zeros(0, np.bool_)
    names = trace.host_events.name
    everywhere = np.bincount(names[ops.row])
    in_bounces = np.bincount(names[op], minlength=len(everywhere))
    keys, index = group(device * len(everywhere) + names[op])
    length = int(step.max()) + 1
    pairs = distinct(index * length + step)
    in_steps = np.bincount(pairs // length, minlength=len(keys))
    name = keys % len(everywhere)
    good = in_steps >= max(_MIN_STEPS, _MOST_STEPS * steps.count)
    good &= in_bounces[name] >= _MIN_TYPICAL * everywhere[name]
    return np.asarray(good[index], dtype=np.bool_)


def _is_own_work(trace: Trace, causes: Causality, op: Int64, wanted: BoolArray) -> BoolArray:
    """Whether an op belongs to the step itself: not to input, compilation or saving."""
    names, foreign = trace.host_events.name, {Kind.INPUT, Kind.COMPILE, Kind.CHECKPOINT}
    known: dict[int, bool] = {}
    own = wanted.copy()
    row = np.where(wanted, causes.parent[op], -1)
    for _ in range(_MAX_ANCESTORS):
        at = np.flatnonzero(row >= 0)
        if not len(at):
            break
        around, index = group(names[row[at]])
        for name in around.tolist():
            if name not in known:
                known[name] = kind_of(trace.strings[name]) in foreign
        is_foreign = np.array([known[name] for name in around.tolist()], np.bool_)[index]
        own[at[is_foreign]] = False
        row[at] = np.where(is_foreign, -1, causes.parent[row[at]])
    return own


def _with_parts(trace: Trace, steps: Steps, gaps: Gaps, transfers: Transfers, found: Bounces) -> Bounces:
    """The idle time between the copies of the bounces, and the exposed time of the copies themselves."""
    events = trace.device_events
    gap_part = np.zeros(len(gaps), np.int64)
    step_part = np.zeros((steps.count, len(trace.devices)), np.int64)
    step_copies, device_copies = np.zeros_like(step_part), np.zeros(len(trace.devices), np.int64)
    for device in distinct(found.device).tolist():
        mine = found.device == device
        start, end = events.end[found.down[mine]], events.start[found.up[mine]]
        order = np.argsort(start, kind="stable")
        stretches = intervals.union(start[order], end[order])
        rows = gap_rows(gaps, device)
        gap_part[rows] = overlap(stretches, gaps.start[rows], gaps.end[rows])
        step_part[:, device] = sum_by_step(steps, device, gaps.start[rows], gap_part[rows])
        copies = distinct(np.concatenate((found.down[mine], found.up[mine])))
        exposed = transfers.exposed[np.searchsorted(transfers.rows, copies)]
        device_copies[device] = int(exposed.sum())
        step_copies[:, device] = sum_by_step(steps, device, events.start[copies], exposed)
    return replace(found, gap_part=gap_part, step_part=step_part, step_copies=step_copies, device_copies=device_copies)
