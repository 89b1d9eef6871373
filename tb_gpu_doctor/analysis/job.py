"""All GPUs of a job side by side: who comes late to the collectives, how long the others wait, and what moving costs.

Inside one file start times tell. Across files they tell once the clocks are aligned; and without that the durations
do: a collective ends everywhere at nearly the same time, so the last to come spends the shortest time inside it, and
what others spend longer they spend waiting. Of the two the one with the smaller error is used. The table takes
collectives of one group, kind and size together: waiting, moving, bandwidth, and who came last.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tb_gpu_doctor.analysis.blame import Waiting, own_lateness
from tb_gpu_doctor.analysis.clocks import Clocks, find_clocks
from tb_gpu_doctor.analysis.collectives import NEEDS_ALL, NOT_FOR_ALL, CollectiveKind, bus_factor
from tb_gpu_doctor.analysis.communication_facts import Exposed as ExposedPart
from tb_gpu_doctor.analysis.communication_facts import (
    as_intervals,
    exposed_within,
    split_communication,
    waits_that_hold_up,
)
from tb_gpu_doctor.analysis.facts import FileFacts
from tb_gpu_doctor.analysis.job_collectives import Collectives, match_collectives
from tb_gpu_doctor.analysis.results import BoolArray, Cause, Float64
from tb_gpu_doctor.analysis.step_costs import FIRST_CAUSE, PART_IDS
from tb_gpu_doctor.traces.columns import PS_PER_NS, PS_PER_US, Int64, Trace
from tb_gpu_doctor.traces.grouping import group
from tb_gpu_doctor.traces.torch_names import machine_of

Method = Literal["one_clock", "aligned", "durations"]
# Ends of what may not be one collective must lie this close together, of the longest participant's time.
_SAME_END_SHARE = 0.2
_SAME_END = 50 * PS_PER_US


@dataclass(frozen=True)
class JobLateness:
    """Who kept the others waiting, over all GPUs that share collectives.

    Attributes:
        collectives: those that count, see `find_lateness_of_job`.
        method: how arrivals were compared.
        error: how wrong ``behind`` can be between two files, picoseconds; 0 on one clock.
        behind: arrival after the first of the collective's participants, 0 where absent; shape (k, p).
        wait: time inside before the last had come, at most the own duration; shape (k, p).
        own: the part of ``behind`` that a participant does not owe to others, see `blame`; shape (k, p).
    """

    collectives: Collectives
    method: Method
    error: int
    behind: Int64
    wait: Int64
    own: Int64


@dataclass(frozen=True)
class Exposed:
    """A GPU's communication that no compute hides, over its window.

    Attributes:
        moving: data moved.
        waiting: for GPUs that had not come yet.
        unsplit: inside collectives that could not be matched with those of other GPUs: either.
    """

    moving: int
    waiting: int
    unsplit: int

    @property
    def total(self) -> int:
        """Moving + waiting + unsplit."""
        return self.moving + self.waiting + self.unsplit


@dataclass(frozen=True)
class Meetings:
    """The collectives of one GPU that were matched with those of others.

    Attributes:
        row: device events, shape (n,).
        wait: time inside before the last GPU had come, shape (n,).
        behind: arrival after the first of all, 0 within the error, shape (n,).
    """

    row: Int64
    wait: Int64
    behind: Int64

    def wait_of_events(self, rows: slice) -> Int64:
        """The wait inside each of a range of device events, -1 for those that are not among them."""
        wait = np.full(rows.stop - rows.start, -1, np.int64)
        wait[self.row - rows.start] = self.wait
        return wait


@dataclass(frozen=True)
class Bandwidth:
    """What the collectives of known size moved.

    Attributes:
        bytes_per_s: bus bandwidth as nccl-tests define it, over the time without waiting.
        collectives: how many it rests on.
        size_bytes: their sizes, summed.
    """

    bytes_per_s: float
    collectives: int
    size_bytes: int


@dataclass(frozen=True)
class Job:
    """The GPUs of all traces together.

    Attributes:
        collectives: all that matched, None without any.
        clocks: of the traces.
        lateness: None where nobody can be compared.
        exposed: by (trace, device index), for GPUs with a window.
        meetings: by (trace, device index), for GPUs with matched collectives.
        bandwidth: None where sizes are not recorded.
        missing_ranks: of the job, as far as the files say how many there are.
        step_waits: by (trace, device index), for all GPUs of a file of which any has matched collectives: time of each
            complete step inside collectives before the last GPU of the job had entered.
    """

    collectives: Collectives | None
    clocks: Clocks
    lateness: JobLateness | None
    exposed: dict[tuple[int, int], Exposed]
    meetings: dict[tuple[int, int], Meetings]
    bandwidth: Bandwidth | None
    missing_ranks: tuple[int, ...]
    step_waits: Mapping[tuple[int, int], tuple[int, ...]]

    def wait_of_steps(self, files: Sequence[FileFacts], which: int, device: int) -> tuple[int, ...]:
        """Time of each complete step of a GPU that it waited in collectives; of the file's own GPUs if need be.

        The matching over all files is also the one that knows what to do with lost collectives.
        """
        known = self.step_waits.get((which, device))
        if known is not None:
            return known
        steps = files[which].gpus[device].steps
        return () if steps is None else steps.wait


NO_MEETINGS = Meetings(*(np.zeros(0, np.int64) for _ in range(3)))


def analyse_job(files: Sequence[FileFacts]) -> Job:
    """Everything that needs more than one GPU, from the facts of the job's files."""
    collectives = match_collectives(files)
    clocks = find_clocks(collectives, len(files))
    lateness = None
    # Contradicting clocks show that what was matched across files are not the same collectives.
    if collectives is not None and clocks.problem != "contradiction":
        lateness = lateness_of_job(collectives, clocks)
    meetings = _all_meetings(files, lateness)
    if lateness is not None:
        lateness = _with_blame(files, lateness)
    return Job(
        collectives,
        clocks,
        lateness,
        _exposed(files, meetings),
        meetings,
        _bandwidth(lateness),
        missing_ranks(files),
        _step_waits(files, meetings),
    )


def lateness_of_job(collectives: Collectives, clocks: Clocks) -> JobLateness | None:
    """Compare the arrivals at those collectives that all have to come to; None without any.

    Left out are collectives that some participants lack (as long as there are others), those
    that need not meet, and pairs that cannot be one collective since one ended before the other began.
    """
    found = collectives.only(~np.isin(collectives.kind, NOT_FOR_ALL))
    if not clocks.all_known:
        found = found.only(found.kind != CollectiveKind.SEND_RECEIVE)
    whole = found.present.sum(axis=1) >= found.expected
    found = found.only(whole) if whole.any() else found
    if not len(found):
        return None
    one_clock = len(set(found.trace.tolist())) == 1
    if one_clock or clocks.all_known:
        found = found.only(_meet(found, clocks))
        if not len(found):
            return None
    present, duration = found.present, found.end - found.start
    error = int(clocks.error[found.trace].max())
    shortest = int(np.median(np.where(present, duration, np.iinfo(np.int64).max).min(axis=1)))
    method: Method = "one_clock" if one_clock else "aligned"
    if not one_clock and (not clocks.all_known or shortest < error):
        method, error = "durations", shortest
    arrival = found.start + clocks.shift(found.trace, found.start)
    if method == "durations":
        arrival = found.start - _last_end_of_trace(found)
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    first = np.where(present, arrival, high).min(axis=1, keepdims=True)
    last = np.where(present, arrival, low).max(axis=1, keepdims=True)
    behind = np.where(present, arrival - first, 0)
    return JobLateness(
        collectives=found,
        method=method,
        error=0 if one_clock else error,
        behind=behind,
        wait=np.where(present, np.clip(last - arrival, 0, duration), 0),
        own=behind,
    )


def _with_blame(files: Sequence[FileFacts], lateness: JobLateness) -> JobLateness:
    """The lateness with what of it is owed to others, where there are several groups."""
    found = lateness.collectives
    waiting: dict[int, Waiting] = {}
    begin: dict[int, int] = {}
    for column, (which, device) in enumerate(zip(found.trace.tolist(), found.device.tolist(), strict=True)):
        window, exposed = files[which].window, files[which].gpus[device].exposed
        if exposed is None or window is None:
            continue
        rows = np.flatnonzero(found.present[:, column])
        rows = rows[np.argsort(found.start[rows, column], kind="stable")]
        start, end, wait = found.start[rows, column], found.end[rows, column], lateness.wait[rows, column]
        held_up = waits_that_hold_up(start, wait, end, as_intervals(exposed.whole))
        waiting[column] = exposed_within(exposed, held_up).inside
        begin[column] = window.start
    return replace(lateness, own=own_lateness(lateness.behind, found.start, found.present, waiting, begin))


def _meet(found: Collectives, clocks: Clocks) -> BoolArray:
    """Whether all participants of a collective run at one time at least, as far as clocks can tell."""
    present = found.present
    start, end = (times + clocks.shift(found.trace, times) for times in (found.start, found.end))
    error = int(clocks.error.max())
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    last_start = np.where(present, start, low).max(axis=1)
    first_end, last_end = np.where(present, end, high).min(axis=1), np.where(present, end, low).max(axis=1)
    longest = np.where(present, end - start, 0).max(axis=1)
    close = last_end - first_end <= np.maximum(np.maximum(_SAME_END_SHARE * longest, error), _SAME_END)
    meet: BoolArray = (last_start <= first_end + error) & (np.isin(found.kind, NEEDS_ALL) | close)
    return meet


def _last_end_of_trace(found: Collectives) -> Int64:
    """For each participant when the last GPU of its own file was done with the collective, shape (k, p)."""
    low = np.iinfo(np.int64).min
    end = np.where(found.present, found.end, low)
    result = np.zeros_like(found.end)
    for trace in set(found.trace.tolist()):
        mine = found.trace == trace
        result[:, mine] = end[:, mine].max(axis=1, keepdims=True)
    return np.where(found.present, result, 0)


def _exposed(files: Sequence[FileFacts], meetings: dict[tuple[int, int], Meetings]) -> dict[tuple[int, int], Exposed]:
    found = {}
    for which, file in enumerate(files):
        for device, gpu in enumerate(file.gpus):
            if file.window is None or gpu.exposed is None:
                continue
            low, high = np.array([file.window.start]), np.array([file.window.end])
            parts = split_exposed(file, device, meetings.get((which, device), NO_MEETINGS))
            moving, unsplit, whole = (int(part.inside(low, high)[0]) for part in parts)
            found[which, device] = Exposed(moving, whole - unsplit, unsplit - moving)
    return found


def split_exposed(file: FileFacts, device: int, met: Meetings) -> tuple[ExposedPart, ExposedPart, ExposedPart]:
    """The exposed communication of a GPU that has any facts of it, as `split_communication` returns it.

    Args:
        file: where the GPU is.
        device: its index.
        met: its collectives that were matched with those of others.
    """
    known, exposed = file.collectives, file.gpus[device].exposed
    assert known is not None and exposed is not None
    low, high = bisect_left(known.device, device), bisect_right(known.device, device)  # rows are sorted by device
    start = np.array(known.start[low:high], np.int64)
    row = np.array(known.row[low:high], np.int64)
    wait = np.full(len(row), -1, np.int64)
    wait[np.searchsorted(row, met.row)] = met.wait
    return split_communication(exposed, start, start + np.array(known.duration[low:high], np.int64), wait)


def parts_of_steps(files: Sequence[FileFacts], which: int, device: int, job: Job) -> tuple[Int64, Int64]:
    """Where the complete steps of one GPU went.

    Args:
        files: of the job.
        which: the file of the GPU.
        device: its index there.
        job: what the files have in common.

    Returns:
        Length of each complete step, shape (steps,), -1 where the GPU has none; and its parts by
        `step_costs.PART_IDS`, shape (steps, parts), whose rows sum to the lengths.
    """
    gpu, count = files[which].gpus[device], files[which].steps.count
    parts = np.zeros((count, len(PART_IDS)), np.int64)
    if gpu.steps is None:
        return np.full(count, -1, np.int64), parts
    end, wall = np.array(gpu.steps.end, np.int64), np.array(gpu.steps.wall, np.int64)
    used = end >= 0
    parts[:, 0], parts[:, 4] = gpu.steps.compute, gpu.steps.transfer
    if gpu.exposed is not None:
        layers = split_exposed(files[which], device, job.meetings.get((which, device), NO_MEETINGS))
        moving, unsplit, whole = (part.inside(end - wall, end) for part in layers)
        parts[:, 1], parts[:, 2], parts[:, 3] = whole - unsplit, moving, unsplit - moving
    if gpu.idle is not None and gpu.idle.whole.per_step:
        parts[:, FIRST_CAUSE:] = np.array(gpu.idle.whole.per_step, np.int64).T
    # gaps are looked for inside the window only: what of a step lies outside has no evidence
    parts[:, FIRST_CAUSE + Cause.NO_EVIDENCE] += wall - parts.sum(axis=1)
    parts[~used] = 0
    return np.where(used, wall, -1), parts


def parts_of_window(files: Sequence[FileFacts], which: int, device: int, job: Job) -> Int64:
    """The same over the window of one GPU, shape (parts,); zeros without one. Arguments as of `parts_of_steps`."""
    account, exposed = files[which].gpus[device].account, job.exposed.get((which, device))
    if account is None:
        return np.zeros(len(PART_IDS), np.int64)
    sent = (exposed.waiting, exposed.moving, exposed.unsplit) if exposed is not None else (0, 0, 0)
    return np.array([account.compute, *sent, account.transfer, *account.idle_by_cause], np.int64)


def _all_meetings(files: Sequence[FileFacts], lateness: JobLateness | None) -> dict[tuple[int, int], Meetings]:
    """Those of the job; for the GPUs of a file that shares none with others, those among themselves."""
    result = {} if lateness is None else _meetings(lateness)
    joined = {which for which, _ in result}
    for which, file in enumerate(files):
        if which in joined or len(files) == 1 or len(file.gpus) < 2 or file.window is None:
            continue
        collectives = match_collectives([file])
        alone = None if collectives is None else lateness_of_job(collectives, find_clocks(collectives, 1))
        if alone is not None:
            result |= {(which, device): met for (_, device), met in _meetings(alone).items()}
    return result


def _step_waits(
    files: Sequence[FileFacts], meetings: Mapping[tuple[int, int], Meetings]
) -> dict[tuple[int, int], tuple[int, ...]]:
    """Time of each complete step that GPUs waited inside collectives for any GPU of the job."""
    found = {}
    for which in sorted({which for which, _ in meetings}):
        known = files[which].collectives
        for device, gpu in enumerate(files[which].gpus):
            if known is None or gpu.steps is None:
                continue
            wait = np.zeros(len(gpu.steps.wall) + 1, np.int64)  # the last one: outside steps
            met = meetings.get((which, device), NO_MEETINGS)
            at = np.searchsorted(np.array(known.row, np.int64), met.row)
            np.add.at(wait, np.array(known.step, np.int64)[at], met.wait)
            found[which, device] = tuple(np.minimum(wait[:-1], np.array(gpu.steps.wall)).tolist())
    return found


def waits_in_windows(files: Sequence[FileFacts], job: Job) -> dict[tuple[int, int], int]:
    """Time that GPUs of several files waited inside collectives for each other, over their windows."""
    found: dict[tuple[int, int], int] = {}
    lateness = job.lateness
    if lateness is None or not np.ptp(lateness.collectives.trace):
        return found
    met = lateness.collectives
    for column, (which, device) in enumerate(zip(met.trace.tolist(), met.device.tolist(), strict=True)):
        window = files[which].window
        if window is not None:
            start, wait = met.start[:, column], lateness.wait[:, column]
            inside = np.minimum(start + wait, window.end) - np.maximum(start, window.start)
            found[which, device] = int(np.maximum(0, inside).sum())
    return found


def _meetings(lateness: JobLateness) -> dict[tuple[int, int], Meetings]:
    found = lateness.collectives
    behind = np.where(lateness.behind > lateness.error, lateness.behind, 0)
    result = {}
    for column, (trace, device) in enumerate(zip(found.trace.tolist(), found.device.tolist(), strict=True)):
        there = found.row[:, column] >= 0
        result[trace, device] = Meetings(found.row[there, column], lateness.wait[there, column], behind[there, column])
    return result


def _bandwidth(lateness: JobLateness | None) -> Bandwidth | None:
    """Bus bandwidth over the collectives of known size: bytes over the median time without waiting."""
    if lateness is None:
        return None
    found = lateness.collectives
    known = (found.size_bytes > 0) & np.isin(found.kind, NEEDS_ALL)
    if not known.any():
        return None
    rows = np.flatnonzero(known)
    present = found.present[rows]
    moving = np.where(present, found.end[rows] - found.start[rows] - lateness.wait[rows], 0)
    time = np.array([np.median(m[p]) for m, p in zip(moving, present, strict=True)])
    size = found.size_bytes[rows]
    useful = time > 0
    if not useful.any():
        return None
    carried = size * bus_factor(found.kind[rows], present.sum(axis=1))
    return Bandwidth(
        bytes_per_s=float(carried[useful].sum() / time[useful].sum() * 1e12),
        collectives=int(np.count_nonzero(useful)),
        size_bytes=int(size[useful].sum()),
    )


def missing_ranks(files: Sequence[FileFacts]) -> tuple[int, ...]:
    """Ranks that the job has by its files' own word, but no file; empty where the files do not say.

    Where several call themselves the same rank their word is worth nothing: see `doubled_ranks`.
    """
    sizes = [file.world_size for file in files if file.world_size]
    ranks = [file.rank for file in files]
    if not sizes or any(rank is None for rank in ranks) or doubled_ranks(files):
        return ()
    size = min(max(sizes), 1 << 20)
    return tuple(sorted(set(range(size)) - {rank for rank in ranks if rank is not None}))


# From this part of the files on that repeat a rank, no file's word about ranks is worth anything.
_REPEATED = 0.25


def doubled_ranks(files: Sequence[FileFacts]) -> dict[int, int]:
    """Ranks that several files say they are, and how many do; empty where only a stray file repeats another's rank."""
    counts = Counter(file.rank for file in files if file.rank is not None)
    doubled = {rank: count for rank, count in sorted(counts.items()) if count > 1}
    repeated = sum(doubled.values()) - len(doubled)
    return doubled if repeated >= _REPEATED * len(files) else {}


@dataclass(frozen=True)
class SharedNumber:
    """Processes of one machine that call a GPU of the same model by the same number, at the same time.

    Attributes:
        host: the machine.
        number: of the GPU, as each process counts.
        labels: of the files, one a process.
    """

    host: str
    number: int
    labels: tuple[str, ...]


def perhaps_one_gpu(files: Sequence[FileFacts]) -> tuple[SharedNumber, ...]:
    """GPUs of several files that may be one and the same.

    Nothing recorded tells them apart: a process that sees one GPU of eight counts it as 0 as well. Ranks of a job have
    a GPU each, for the collective libraries refuse two on one; so these are left out, and whatever communicates.
    """
    found: dict[tuple[str, int, str | None], list[FileFacts]] = {}
    for file in files:
        if file.rank is not None or file.communicates:
            continue
        host = machine_of(file.host)
        for gpu in file.gpus:
            if gpu.worked:
                found.setdefault((host, gpu.device.id, gpu.device.name), []).append(file)
    return tuple(
        SharedNumber(host, number, tuple(file.label for file in group))
        for (host, number, _), group in found.items()
        if host and len(group) > 1 and len({file.host for file in group}) == len(group) and _at_once(group)
    )


def _at_once(files: Sequence[FileFacts]) -> bool:
    """Whether all files were recorded at the same time, as far as they tell."""
    spans = []
    for file in files:
        if file.wall_start_unix_ns is None or file.recorded is None:
            return False
        spans.append(tuple(file.wall_start_unix_ns * PS_PER_NS + time for time in file.recorded))
    return max(start for start, _ in spans) < min(end for _, end in spans)


@dataclass(frozen=True)
class CollectiveRow:
    """Collectives that differ only in time.

    Attributes:
        group: index into ``Collectives.groups``.
        kind: what they do.
        name, op: of the kernel, and of the HLO op ("" for none).
        size_bytes: what each works on, None where unknown.
        present: the participants that took part in any, shape (p,).
        count: how many there were; per participant in ``counts``, shape (p,).
        inside, wait: time inside, and before the last had come, summed per participant, shape (p,).
        last: how many each participant was the last to enter, by more than the error, shape (p,).
        behind: how far behind the first each came, summed, shape (p,).
        algorithm_bytes_per_s, bus_bytes_per_s: as nccl-tests define them, None where the size is unknown.
    """

    group: int
    kind: CollectiveKind
    name: str
    op: str
    size_bytes: int | None
    present: BoolArray
    count: int
    counts: Int64
    inside: Int64
    wait: Int64
    last: Int64
    behind: Int64
    algorithm_bytes_per_s: float | None
    bus_bytes_per_s: float | None


def collective_table(traces: Sequence[Trace], lateness: JobLateness) -> tuple[CollectiveRow, ...]:
    """One row for each group, kind, name and size; longest total time first."""
    found = lateness.collectives
    present = found.present
    inside = np.where(present, found.end - found.start, 0)
    last = last_to_come(lateness)
    first = present.argmax(axis=1)  # whose names the row goes by: the first participant's
    names, ops = _names(traces, lateness, first)
    name_ids, op_ids = _numbered(names), _numbered(ops)
    columns = np.stack([found.group, found.kind, found.size_bytes, name_ids, op_ids], axis=1)
    _, at = np.unique(columns, axis=0, return_inverse=True)
    at = at.reshape(-1)
    order = np.argsort(at, kind="stable")
    borders = np.flatnonzero(np.concatenate(([True], np.diff(at[order]) > 0, [True])))
    rows = []
    for low, high in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        mine = order[low:high]
        one = int(mine[0])
        size = int(found.size_bytes[one])
        rates = _rates(found.kind[mine], size, present[mine], inside[mine] - lateness.wait[mine]) if size > 0 else None
        rows.append(
            CollectiveRow(
                group=int(found.group[one]),
                kind=CollectiveKind(int(found.kind[one])),
                name=names[one],
                op=ops[one],
                size_bytes=size if size >= 0 else None,
                present=np.asarray(present[mine].any(axis=0)),
                count=len(mine),
                counts=present[mine].sum(axis=0),
                inside=inside[mine].sum(axis=0),
                wait=lateness.wait[mine].sum(axis=0),
                last=last[mine].sum(axis=0),
                behind=lateness.behind[mine].sum(axis=0),
                algorithm_bytes_per_s=None if rates is None else rates[0],
                bus_bytes_per_s=None if rates is None else rates[1],
            )
        )
    rows.sort(key=lambda row: -int(row.inside.sum()))
    return tuple(rows)


def last_to_come(lateness: JobLateness) -> BoolArray:
    """Who entered each collective last, behind the one before by more than the error; shape (k, p)."""
    behind = np.where(lateness.collectives.present, lateness.behind, -1)
    most = behind.max(axis=1, keepdims=True)
    second = np.sort(behind, axis=1)[:, -2:-1] if behind.shape[1] > 1 else np.zeros_like(most)
    result: BoolArray = (behind == most) & (most - np.maximum(second, 0) > lateness.error)
    return result


def _rates(kind: Int64, size: int, present: BoolArray, moving: Int64) -> tuple[float, float] | None:
    """Bytes per second of the algorithm and of the bus: over the median time without waiting of each."""
    if int(kind[0]) not in NEEDS_ALL:
        return None
    time: Float64 = np.array([np.median(m[p]) for m, p in zip(moving, present, strict=True)])
    useful = time > 0
    if not useful.any():
        return None
    factor = bus_factor(kind[useful], present[useful].sum(axis=1))
    seconds = float(time[useful].sum()) / 1e12
    return size * int(np.count_nonzero(useful)) / seconds, float(size * factor.sum()) / seconds


def _names(traces: Sequence[Trace], lateness: JobLateness, first: Int64) -> tuple[list[str], list[str]]:
    found = lateness.collectives
    names, ops = [""] * len(found), [""] * len(found)
    for column in sorted(set(first.tolist())):
        trace = traces[int(found.trace[column])]
        rows = np.flatnonzero(first == column)
        events = trace.device_events
        for ids, into in ((events.name, names), (events.hlo_op, ops)):
            values, inverse = group(ids[found.row[rows, column]].astype(np.int64))
            texts = [trace.strings[i] if i >= 0 else "" for i in values.tolist()]
            for row, which in zip(rows.tolist(), inverse.tolist(), strict=True):
                into[row] = texts[which]
    return names, ops


def _numbered(texts: Sequence[str]) -> Int64:
    known: dict[str, int] = {}
    return np.array([known.setdefault(text, len(known)) for text in texts], np.int64)
