"""All GPUs of a job side by side: who comes late to the collectives, how long the others wait, and what moving costs.

Inside one file start times tell. Across files they tell once the clocks are aligned; and without that the durations
do: a collective ends everywhere at nearly the same time, so the last to come spends the shortest time inside it, and
what others spend longer they spend waiting. Of the two the one with the smaller error is used. The table takes
collectives of one group, kind and size together: waiting, moving, bandwidth, and who came last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.clocks import Clocks, find_clocks
from tb_gpu_doctor.analysis.collectives import NEEDS_ALL, NOT_FOR_ALL, CollectiveKind, bus_factor
from tb_gpu_doctor.analysis.job_collectives import Collectives, match_collectives
from tb_gpu_doctor.analysis.results import BoolArray, Float64
from tb_gpu_doctor.analysis.step_costs import communication_layers
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.traces.columns import PS_PER_US, Int32, Int64, Trace
from tb_gpu_doctor.traces.grouping import group

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
    """

    collectives: Collectives
    method: Method
    error: int
    behind: Int64
    wait: Int64


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
    """

    collectives: Collectives | None
    clocks: Clocks
    lateness: JobLateness | None
    exposed: dict[tuple[int, int], Exposed]
    meetings: dict[tuple[int, int], Meetings]
    bandwidth: Bandwidth | None
    missing_ranks: tuple[int, ...]


NO_MEETINGS = Meetings(*(np.zeros(0, np.int64) for _ in range(3)))


@dataclass(frozen=True)
class Encounters:
    """One GPU of one file with its meetings: what splitting its exposed communication needs."""

    which: int
    device: int
    meetings: Meetings


Split = Callable[[Sequence[Encounters]], Sequence[Exposed]]


def analyse_job(traces: Sequence[Trace], analyses: Sequence[TraceAnalysis], split: Split | None = None) -> Job:
    """Everything that needs more than one GPU.

    Args:
        traces: of the job's files.
        analyses: of the same files.
        split: gives `exposed_of_gpu` of many GPUs, where their columns are; by default here.
    """
    collectives = match_collectives(traces, analyses)
    clocks = find_clocks(collectives, len(traces))
    lateness = None
    # Contradicting clocks show that what was matched across files are not the same collectives.
    if collectives is not None and clocks.problem != "contradiction":
        lateness = lateness_of_job(collectives, clocks)
    meetings = _all_meetings(traces, analyses, lateness)
    return Job(
        collectives,
        clocks,
        lateness,
        _exposed(traces, analyses, meetings, split or (lambda found: _split_here(traces, analyses, found))),
        meetings,
        _bandwidth(lateness),
        missing_ranks(traces),
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
    return JobLateness(
        collectives=found,
        method=method,
        error=0 if one_clock else error,
        behind=np.where(present, arrival - first, 0),
        wait=np.where(present, np.clip(last - arrival, 0, duration), 0),
    )


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


def _exposed(
    traces: Sequence[Trace],
    analyses: Sequence[TraceAnalysis],
    meetings: dict[tuple[int, int], Meetings],
    split: Split,
) -> dict[tuple[int, int], Exposed]:
    found = []
    for which, (trace, analysis) in enumerate(zip(traces, analyses, strict=True)):
        if analysis.window is None:
            continue
        for device in trace.devices:
            rows = trace.device_events.of_device(device.index)
            if rows.stop > rows.start:
                met = meetings.get((which, device.index), NO_MEETINGS)
                found.append(Encounters(which, device.index, met))
    return {(e.which, e.device): exposed for e, exposed in zip(found, split(found), strict=True)}


def _split_here(
    traces: Sequence[Trace], analyses: Sequence[TraceAnalysis], found: Sequence[Encounters]
) -> list[Exposed]:
    return [exposed_of_gpu(traces[e.which], analyses[e.which], e.device, e.meetings) for e in found]


def _all_meetings(
    traces: Sequence[Trace], analyses: Sequence[TraceAnalysis], lateness: JobLateness | None
) -> dict[tuple[int, int], Meetings]:
    """Those of the job; for the GPUs of a file that shares none with others, those among themselves."""
    result = {} if lateness is None else _meetings(lateness)
    joined = {which for which, _ in result}
    for which, (trace, analysis) in enumerate(zip(traces, analyses, strict=True)):
        if which in joined or len(traces) == 1 or len(trace.devices) < 2 or analysis.window is None:
            continue
        collectives = match_collectives([trace], [analysis])
        alone = None if collectives is None else lateness_of_job(collectives, find_clocks(collectives, 1))
        if alone is not None:
            result |= {(which, device): met for (_, device), met in _meetings(alone).items()}
    return result


def waits_per_step(analysis: TraceAnalysis, meetings: Mapping[int, Meetings]) -> Int64:
    """Time of each complete step of a file that its GPUs waited inside collectives for any GPU of the job.

    Args:
        analysis: of the file.
        meetings: of its GPUs, by device index.

    Returns:
        shape (complete steps, devices), at most the length of the step.
    """
    steps = analysis.steps
    wait = np.zeros((len(steps.number) + 1, steps.start.shape[1]), np.int64)  # the last row: outside steps
    for device, met in meetings.items():
        if device < wait.shape[1]:
            np.add.at(wait[:, device], _steps_of(analysis, met.row), met.wait)
    complete = np.flatnonzero(steps.complete)
    wall = np.where(steps.end[complete] >= 0, steps.end[complete] - steps.start[complete], 0)
    return np.asarray(np.minimum(wait[complete], wall), dtype=np.int64)


def _steps_of(analysis: TraceAnalysis, rows: Int64) -> Int32:
    """Index into `Steps` of device events that were matched with others."""
    if analysis.candidates is not None:
        return analysis.candidates.step_of(rows)
    return np.asarray(analysis.steps.event_step[rows], np.int32)


def _meetings(lateness: JobLateness) -> dict[tuple[int, int], Meetings]:
    found = lateness.collectives
    behind = np.where(lateness.behind > lateness.error, lateness.behind, 0)
    result = {}
    for column, (trace, device) in enumerate(zip(found.trace.tolist(), found.device.tolist(), strict=True)):
        there = found.row[:, column] >= 0
        result[trace, device] = Meetings(found.row[there, column], lateness.wait[there, column], behind[there, column])
    return result


def exposed_of_gpu(trace: Trace, analysis: TraceAnalysis, device: int, met: Meetings) -> Exposed:
    """Split the exposed communication of one GPU over its window, which there must be.

    Args:
        trace: the file.
        analysis: of it.
        device: index of the GPU.
        met: its collectives that were matched with those of others.
    """
    window = analysis.window
    assert window is not None
    wait = met.wait_of_events(trace.device_events.of_device(device))
    base, with_moving, with_unsplit, whole = (
        intervals.measure(intervals.clip(layer, window.start, window.end))
        for layer in communication_layers(trace, device, wait)
    )
    return Exposed(with_moving - base, whole - with_unsplit, with_unsplit - with_moving)


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


def missing_ranks(traces: Sequence[Trace]) -> tuple[int, ...]:
    """Ranks that the job has by its files' own word, but no file; empty where the files do not say."""
    sizes = [trace.world_size for trace in traces if trace.world_size]
    ranks = [trace.rank for trace in traces]
    if not sizes or any(rank is None for rank in ranks):
        return ()
    size = min(max(sizes), 1 << 20)
    return tuple(sorted(set(range(size)) - {rank for rank in ranks if rank is not None}))


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
