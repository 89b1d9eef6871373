"""What copies cost each GPU: tensors that bounce through the CPU, and all other copies that nothing hides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.file_columns import FileColumns, Place
from tb_gpu_doctor.analysis.host_names import Kind
from tb_gpu_doctor.analysis.idle import gap_rows, overlap, sum_by_step
from tb_gpu_doctor.analysis.results import Cause, DeviceAccounting
from tb_gpu_doctor.analysis.transfers import Bounces, CopyGroup, Transfers
from tb_gpu_doctor.traces.columns import PS_PER_MS, CopyKind, EventClass, Int64

# Idle time that findings about copies and busy hosts may take from the causes it is charged to, in this order.
CLAIMABLE = (Cause.SYNC, Cause.HOST_OTHER, Cause.LAUNCH)
# Shorter events of saving are parts of one, or summaries of a single value.
_SHORTEST_SAVE = PS_PER_MS
# Copies of these directions are between the GPU and its host.
_HOST_COPIES = (CopyKind.H2D, CopyKind.D2H)


@dataclass(frozen=True)
class Cost:
    """Lost time of one GPU in picoseconds.

    Attributes:
        exposed: copies that nothing hides.
        waited: idle time around them.
        by_step: both, for each complete step.
    """

    exposed: int
    waited: int
    by_step: tuple[int, ...]


@dataclass(frozen=True)
class CopiesOfOp:
    """The copies that one op asked for, in one direction.

    Attributes:
        direction: ``h2d``, ``d2h``, ``d2d``, ``h2h``, ``none`` (a memset) or ``other``.
        op: framework op, else the host event around the launch, else the copy's own name.
        count, size_bytes: how many, how large in all (0 unknown).
        time: their durations.
        exposed: time that neither a kernel nor an earlier copy hides.
        waited: idle time of the GPU during their blocking calls.
        longest: the copy with the largest exposed time, and the thread that asked for it.
    """

    direction: str
    op: str
    count: int
    size_bytes: int
    time: int
    exposed: int
    waited: int
    longest: Place


@dataclass(frozen=True)
class CopyFacts:
    """The copies of one GPU.

    Attributes:
        cost: of all copies but those between GPUs. Not counted is what would be hidden had the host not been late
            before a copy: that is another cause's consequence.
            Nor are copies that a save asked for.
        cost_without_bounces: the same without what ops on the CPU cost; None where there are none.
        of_saves: exposed time of copies that bring weights to a save, a part of what saving costs; None without any.
        by_op: what was copied, the most expensive first.
        host_count, host_blocking: copies between GPU and host, and those of them whose call waited.
        host_exposed, host_pageable: exposed time of those copies, and the part of it from memory that is not
            page-locked.
    """

    cost: Cost
    cost_without_bounces: Cost | None
    of_saves: Cost | None
    by_op: tuple[CopiesOfOp, ...]
    host_count: int
    host_blocking: int
    host_exposed: int
    host_pageable: int


@dataclass(frozen=True)
class BouncingOp:
    """An op on the CPU between GPU ops: time there and step index of each bounce."""

    name: str
    times: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True)
class BounceFacts:
    """What leaves a GPU for an op on the CPU in the middle of a step, and comes back.

    Attributes:
        cost: of the copies, and of the idle time between them.
        ops: by name.
        worst: the longest bounces, the longest first.
    """

    cost: Cost
    ops: tuple[BouncingOp, ...]
    worst: tuple[Place, ...]


def copy_facts(file: FileColumns, device: int, limit: int) -> CopyFacts | None:
    """The copies of one GPU with a window, None without an analysis of them.

    Args:
        file: where the GPU is.
        device: its index.
        limit: how many ops to show the longest copy of.
    """
    transfers, bounces, account = file.analysis.transfers, file.analysis.bounces, file.account(device)
    if transfers is None or account is None:
        return None
    bounced = bounces if bounces is not None and bool((bounces.device == device).any()) else None
    saved = _copies_of_saves(file, transfers, device)
    totals = [t for t in transfers.totals if t.device == device and t.direction in _HOST_COPIES]
    groups = [g for g in transfers.groups if g.device == device and g.direction is not CopyKind.P2P]
    return CopyFacts(
        cost=_copy_cost(file, account, transfers, None, saved),
        cost_without_bounces=None if bounced is None else _copy_cost(file, account, transfers, bounced, saved),
        of_saves=saved,
        by_op=tuple(_copies_of_op(file, group, index < limit) for index, group in enumerate(groups)),
        host_count=sum(total.count for total in totals),
        host_blocking=sum(total.blocking for total in totals),
        host_exposed=sum(total.exposed for total in totals),
        host_pageable=sum(total.exposed_pageable for total in totals),
    )


def bounce_facts(file: FileColumns, device: int, limit: int) -> BounceFacts | None:
    """The bounces of one GPU, None where it has none."""
    bounces = file.analysis.bounces
    if bounces is None:
        return None
    rows = np.flatnonzero(bounces.device == device)
    if not len(rows):
        return None
    events = file.trace.device_events
    waited = int(bounces.gap_part[gap_rows(file.analysis.gaps, device)].sum())
    by_step = (bounces.step_part + bounces.step_copies)[:, device]
    times: dict[str, list[int]] = {}
    steps: dict[str, list[int]] = {}
    columns = (bounces.op[rows].tolist(), bounces.op_time[rows].tolist(), bounces.step[rows].tolist())
    for op, time, step in zip(*columns, strict=True):
        name = file.host_name(op)
        times.setdefault(name, []).append(time)
        steps.setdefault(name, []).append(step)
    length = events.end[bounces.up[rows]] - events.start[bounces.down[rows]]
    worst = []
    for row in rows[np.argsort(-length, kind="stable")[:limit]].tolist():
        op, down = int(bounces.op[row]), int(bounces.down[row])
        start, end = int(events.start[down]), int(events.end[bounces.up[row]])
        worst.append(Place(start, end, file.host_name(op), file.host_thread(op), file.step_number(down)))
    return BounceFacts(
        cost=Cost(int(bounces.device_copies[device]), waited, tuple(by_step.tolist())),
        ops=tuple(BouncingOp(name, tuple(times[name]), tuple(steps[name])) for name in times),
        worst=tuple(worst),
    )


def blocking_waits(file: FileColumns, device: int, taken: Bounces | None) -> Int64:
    """Time of each gap of a GPU in which the host sat in a blocking copy, less what its bounces take."""
    gaps, rows = file.analysis.gaps, gap_rows(file.analysis.gaps, device)
    assert file.analysis.transfers is not None
    # what is charged to input, compiling, saving or allocating is told there
    waits: Int64 = np.minimum(file.analysis.transfers.gap_wait[rows], gaps.by_cause[rows][:, CLAIMABLE].sum(axis=1))
    if taken is not None:
        waits = np.minimum(waits, gaps.end[rows] - gaps.start[rows] - taken.gap_part[rows])
    return waits


def _copies_of_saves(file: FileColumns, transfers: Transfers, device: int) -> Cost | None:
    """Exposed copies to the host inside saving, or between the GPU's last work before it and its beginning.

    They bring the weights to the file: ``torch.save`` copies by itself, others fetch the values first.
    """
    calls, events, host = file.calls, file.trace.device_events, file.trace.host_events
    saves = np.flatnonzero((calls.kind == Kind.CHECKPOINT) & (host.duration >= _SHORTEST_SAVE))
    if not len(saves):
        return None
    own = events.of_device(device)
    ends = np.sort(events.end[own][events.klass[own] == EventClass.COMPUTE])
    begin = host.start[saves]
    if len(ends):
        at = np.searchsorted(ends, begin, side="right") - 1
        begin = np.where(at >= 0, ends[np.maximum(at, 0)], begin)
    low, high = np.searchsorted(events.device[transfers.rows], [device, device + 1])
    rows, exposed = transfers.rows[low:high], transfers.exposed[low:high]
    inside = overlap(intervals.union(begin, host.end[saves]), events.start[rows], events.end[rows])
    chosen = (events.copy_kind[rows] == CopyKind.D2H) & (exposed > 0) & (inside == events.duration[rows])
    if not chosen.any():
        return None
    by_step = sum_by_step(file.analysis.steps, device, events.start[rows[chosen]], exposed[chosen])
    return Cost(int(exposed[chosen].sum()), 0, tuple(by_step.tolist()))


def _copy_cost(
    file: FileColumns, account: DeviceAccounting, transfers: Transfers, taken: Bounces | None, saved: Cost | None
) -> Cost:
    device, gaps = account.device, file.analysis.gaps
    low, high = np.searchsorted(file.trace.device_events.device[transfers.rows], [device, device + 1])
    exposed = account.transfer - int(transfers.late[low:high].sum())
    by_step = transfers.step_exposed[:, device] - transfers.step_late[:, device]
    waits = blocking_waits(file, device, taken)
    if taken is not None:
        exposed -= int(taken.device_copies[device])
        by_step = by_step - taken.step_copies[:, device]
    if saved is not None:
        exposed -= saved.exposed
        by_step = by_step - np.array(saved.by_step, np.int64)
    by_step = by_step + sum_by_step(file.analysis.steps, device, gaps.start[gap_rows(gaps, device)], waits)
    return Cost(max(exposed, 0), int(waits.sum()), tuple(np.maximum(by_step, 0).tolist()))


def _copies_of_op(file: FileColumns, group: CopyGroup, with_thread: bool) -> CopiesOfOp:
    events, host = file.trace.device_events, file.trace.host_events
    row, thread = group.longest, None
    if with_thread and group.exposed + group.waited > 0 and events.correlation[row] > 0:
        called = host.correlation == events.correlation[row]
        if called.any():
            thread = file.host_thread(int(called.argmax()))
    place = Place(int(events.start[row]), int(events.end[row]), file.device_name(row), thread, file.step_number(row))
    return CopiesOfOp(
        direction=group.direction.name.lower(),
        op=group.op,
        count=group.count,
        size_bytes=group.size_bytes,
        time=group.time,
        exposed=group.exposed,
        waited=group.waited,
        longest=place,
    )
