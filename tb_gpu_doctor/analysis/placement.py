"""Ops on the CPU in the middle of a step: tensors are copied to the host, worked on there and copied back.

A bounce is proven by a named op on the host between the two copies of one step. Only ops that bounce in
most steps count; a copy to the host that no such op follows is an ordinary synchronisation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.callers import Causality
from tb_gpu_doctor.analysis.gap_parts import gap_rows, overlap, sum_by_step
from tb_gpu_doctor.analysis.host_names import Kind, kind_of
from tb_gpu_doctor.analysis.results import BoolArray, Gaps, Steps
from tb_gpu_doctor.analysis.transfer_results import Bounces, Transfers
from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.traces.columns import PS_PER_US, CopyKind, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, group, rows_by

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
