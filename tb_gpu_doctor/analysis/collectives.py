"""The collectives of a job, matched over all its GPUs, whatever file they are in.

Nothing in a trace says which kernels of two GPUs are one collective. They are matched step by step
(by the steps' numbers where they are marked in all files, else over the whole window): the n-th of
a kind on one GPU is the n-th on another one, a kind being the communicator, name and size as far as
they are recorded. Where a GPU ran more or fewer than the others, its sequence is first aligned
with theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.collective_kinds import NEEDS_ALL, CollectiveKind, kinds, sizes
from tb_gpu_doctor.analysis.results import TraceAnalysis
from tb_gpu_doctor.analysis.sequences import common_subsequence
from tb_gpu_doctor.traces.columns import NO_STAT, CopyKind, EventClass, Int32, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, group

# How many collectives one recording may begin before another, what part of the names must fit, and how much
# steadier the distance of the ends must be than without a shift.
_MAX_SHIFT = 64
_SAME_KEYS = 0.95
_CLEARLY = 0.5


@dataclass(frozen=True)
class Collectives:
    """Matched collectives; times on the clock of each participant's own file.

    Attributes:
        trace, device: of each participant, shape (p,): index into the traces, and into ``Trace.devices``.
        row: device event of collective k on each participant, -1 where it has none; shape (k, p).
        start, end: its times, 0 where there is none; shape (k, p).
        kind: `CollectiveKind`, shape (k,).
        size_bytes: what it works on, -1 unknown; shape (k,).
        step: number of the step, -1 without marked steps; shape (k,).
        expected: how many participants its communicator has in these traces, shape (k,).
        unmatched: collective kernels of each participant that no other one's were matched with, shape (p,).
    """

    trace: Int32
    device: Int32
    row: Int64
    start: Int64
    end: Int64
    kind: Int64
    size_bytes: Int64
    step: Int64
    expected: Int64
    unmatched: Int64

    def __len__(self) -> int:
        return len(self.row)

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which participants a collective was found on, shape (k, p)."""
        return self.row >= 0

    def only(self, rows: Int64 | NDArray[np.bool_]) -> Collectives:
        """Some of the collectives."""
        return Collectives(
            self.trace, self.device, self.row[rows], self.start[rows], self.end[rows], self.kind[rows],
            self.size_bytes[rows], self.step[rows], self.expected[rows], self.unmatched,
        )  # fmt: skip


@dataclass(frozen=True)
class _Events:
    """All collective kernels by (participant, step, lane, key, start); a lane is a communicator."""

    part: Int64
    step: Int64
    lane: Int64
    key: Int64
    start: Int64
    end: Int64
    row: Int64
    kind: Int64
    size: Int64

    def only(self, rows: Int64 | NDArray[np.bool_]) -> _Events:
        return _Events(**{spec.name: getattr(self, spec.name)[rows] for spec in fields(self)})


def match_collectives(traces: Sequence[Trace], analyses: Sequence[TraceAnalysis]) -> Collectives | None:
    """Match the collectives of several traces, or of the GPUs of one.

    Only what starts inside a trace's window takes part, on GPUs that compute.

    Returns:
        None when there are fewer than two GPUs with collectives, or nothing matches.
    """
    parts, events = _gather(traces, analyses)
    if len(parts) < 2 or not len(events.part):
        return None
    total = np.bincount(events.part, minlength=len(parts))
    identity = _identities(events, np.array([which for which, _ in parts], np.int64))
    known = identity >= 0
    events, (_, at) = events.only(known), group(identity[known])
    if not len(at):
        return None
    row = np.full((int(at.max()) + 1, len(parts)), -1, np.int64)
    row[at, events.part] = events.row
    first = np.zeros(len(row), np.int64)
    first[at[::-1]] = np.arange(len(at))[::-1]
    rows = np.flatnonzero((row >= 0).sum(axis=1) >= 2)
    if not len(rows):
        return None
    row, first = row[rows], first[rows]
    start, end = np.zeros_like(row), np.zeros_like(row)
    for index, (which, _) in enumerate(parts):
        there = row[:, index] >= 0
        source = traces[which].device_events
        start[there, index] = source.start[row[there, index]]
        end[there, index] = source.end[row[there, index]]
    return Collectives(
        trace=np.array([which for which, _ in parts], np.int32),
        device=np.array([device for _, device in parts], np.int32),
        row=row,
        start=start,
        end=end,
        kind=events.kind[first],
        size_bytes=events.size[first],
        step=events.step[first],
        expected=_members(events)[events.lane[first]],
        unmatched=np.asarray(total - (row >= 0).sum(axis=0), dtype=np.int64),
    )


def _gather(traces: Sequence[Trace], analyses: Sequence[TraceAnalysis]) -> tuple[list[tuple[int, int]], _Events]:
    """The participants as (trace, device), and their collective kernels."""
    marked = all(a.steps.source == "marked" and a.steps.count for a in analyses if a.window is not None)
    parts: list[tuple[int, int]] = []
    columns: list[tuple[Int64, ...]] = []
    lanes: dict[tuple[bytes, ...], int] = {}
    keys: dict[tuple[object, ...], int] = {}
    for which, (trace, analysis) in enumerate(zip(traces, analyses, strict=True)):
        if analysis.window is None:
            continue
        events = trace.device_events
        rows = np.flatnonzero(
            (events.klass == EventClass.COMMUNICATION)
            & (events.copy_kind == CopyKind.NONE)
            & (events.start >= analysis.window.start)
            & (events.start < analysis.window.end)
        )
        step = np.full(len(rows), -1, np.int64)
        if marked:
            index = analysis.steps.event_step[rows]
            good = (index >= 0) & analysis.steps.complete[index]
            rows, step = rows[good], analysis.steps.number[index[good]]
        computing = distinct(events.device[events.klass == EventClass.COMPUTE])
        part = np.full(len(trace.devices), -1, np.int64)
        for device in np.intersect1d(computing, events.device[rows]).tolist():
            part[device] = len(parts)
            parts.append((which, device))
        used = part[events.device[rows]] >= 0
        rows, step = rows[used], step[used]
        kind, size = kinds(trace, rows), sizes(trace, rows)
        lane, key = _lanes_and_keys(trace, rows, kind, size, lanes, keys)
        columns.append(
            (part[events.device[rows]], step, lane, key, events.start[rows], events.end[rows], rows, kind, size)
        )
    if not columns:
        return [], _Events(*(np.zeros(0, np.int64) for _ in range(9)))
    made = _Events(*(np.concatenate(column) for column in zip(*columns, strict=True)))
    return parts, made.only(np.lexsort((made.start, made.key, made.lane, made.step, made.part)))


def _lanes_and_keys(
    trace: Trace,
    rows: Int64,
    kind: Int64,
    size: Int64,
    lanes: dict[tuple[bytes, ...], int],
    keys: dict[tuple[object, ...], int],
) -> tuple[Int64, Int64]:
    """Numbers for communicators and for kinds of collectives that mean the same in all traces."""
    events, stats = trace.device_events, trace.device_stats
    process_group = stats.get("process_group", NO_STAT).at(rows)
    ranks = stats.get("group_ranks", NO_STAT).at(rows)
    # PyTorch's word says more than the kernel's name, which may differ by algorithm.
    word = stats.get("collective", NO_STAT).at(rows)
    name = np.where(word >= 0, word, events.name[rows])
    # sizes of the others may differ between participants
    same_size = np.where(np.isin(kind, NEEDS_ALL) & (kind != CollectiveKind.ALL_TO_ALL), size, -1)
    code = _packed(process_group, ranks, name.astype(np.int64), events.hlo_op[rows].astype(np.int64), kind, same_size)
    count = int(code.max()) + 1 if len(code) else 0
    example = np.zeros(count, np.int64)
    example[code] = np.arange(len(code))
    lane_of, key_of = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for index, at in enumerate(example.tolist()):
        texts = [trace.strings.raw(int(i)) if i >= 0 else b"" for i in (process_group[at], ranks[at])]
        lane_of[index] = lanes.setdefault(tuple(texts), len(lanes))
        hlo = int(events.hlo_op[rows[at]])
        key = (
            trace.strings.raw(int(name[at])) if name[at] >= 0 else b"",
            trace.strings.raw(hlo) if hlo >= 0 else b"",
            int(kind[at]),
            int(same_size[at]),
        )
        key_of[index] = keys.setdefault(key, len(keys))
    return lane_of[code], key_of[code]


def _members(events: _Events) -> Int64:
    """How many participants each lane has, by its number."""
    pairs = distinct(events.lane * (int(events.part.max()) + 1) + events.part)
    return np.bincount(pairs // (int(events.part.max()) + 1))


def _identities(events: _Events, trace_of: Int64) -> Int64:
    """A number per event, the same for all events of one collective; -1 for what nothing matches."""
    segment = _packed(events.step, events.lane, events.key)
    occurrence = _count_up(segment, events.part)
    identity = segment * (int(occurrence.max()) + 1) + occurrence
    place = _packed(events.step, events.lane)  # one communicator in one step
    # The sequence of keys in each place: where it differs between participants something is lost or swapped.
    order = np.lexsort((events.start, place, events.part))
    position = np.zeros(len(order), np.int64)
    position[order] = _count_up(place[order], events.part[order])
    spot = _packed(place, position)
    key_at, parts_at = np.zeros(int(spot.max()) + 1, np.int64), np.bincount(spot)
    key_at[spot] = events.key
    parts_of = np.bincount(distinct(place * (int(events.part.max()) + 1) + events.part) // (int(events.part.max()) + 1))
    differs = (key_at[spot] != events.key) | (parts_at[spot] != parts_of[place])
    several = bool((trace_of != trace_of[0]).any())
    # Without steps the recordings of two files need not have begun with the same collective.
    bad = distinct(place[differs | ((events.step < 0) & several)])
    if len(bad):
        rows = order[np.argsort(place[order], kind="stable")]  # by place, participant, start
        low, high = np.searchsorted(place[rows], bad), np.searchsorted(place[rows], bad + 1)
        spans = list(zip(low.tolist(), high.tolist(), strict=True))
        for first, last in spans:
            _align(events, identity, rows[first:last])
        # Now that the clocks are roughly known, times decide where several ways of aligning fit.
        shift = _shifts(events, identity, trace_of)
        for first, last in spans:
            _align_by_time(events, identity, rows[first:last], shift)
    return identity


def _count_up(value: Int64, part: Int64) -> Int64:
    """How many rows of the same value and participant stand directly before each row."""
    count = len(value)
    new = np.ones(count, np.bool_)
    new[1:] = (value[1:] != value[:-1]) | (part[1:] != part[:-1])
    return np.arange(count) - np.maximum.accumulate(np.where(new, np.arange(count), 0))


def _align(events: _Events, identity: Int64, rows: Int64) -> None:
    """Match what the participants ran in one place, in which not all ran the same sequence.

    All are matched with one that ran what most did, or most of all. Events that are only swapped (on
    different streams) are better matched by counting each key, lost ones by aligning the sequences: the
    way is taken in which the ends of the matched events lie at a steadier distance.
    """
    sequences, usual = _sequences(events, rows)
    reference = sequences[usual[0]]
    for index, mine in enumerate(sequences):
        if mine is reference:
            continue
        shift = _shift(events, mine, reference) if events.step[mine[0]] < 0 else 0
        if index in usual and not shift:
            continue
        own_first, first = max(0, -shift), max(0, shift)
        here, there = common_subsequence(events.key[mine[own_first:]], events.key[reference[first:]])
        here, there = here + own_first, there + first
        if not shift and _is_swapped(events, identity, mine, reference, here, there):
            continue
        names = np.full(len(mine), -1, np.int64)
        names[here] = identity[reference[there]]
        identity[mine] = names


def _sequences(events: _Events, rows: Int64) -> tuple[list[Int64], list[int]]:
    """The events of each participant in one place, and which of them ran the usual sequence."""
    part = events.part[rows]
    borders = np.flatnonzero(np.concatenate(([True], part[1:] != part[:-1], [True])))
    sequences = [rows[low:high] for low, high in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)]
    votes: dict[bytes, list[int]] = {}
    for index, mine in enumerate(sequences):
        votes.setdefault(events.key[mine].tobytes(), []).append(index)
    return sequences, max(votes.values(), key=lambda same: (len(same), len(sequences[same[0]])))


def _shifts(events: _Events, identity: Int64, trace_of: Int64) -> Int64 | None:
    """What to subtract from each participant's times to compare them, from the ends of what was matched.

    None when some file shares nothing with the one that matched most. GPUs of one file have one shift.
    """
    known = np.flatnonzero(identity >= 0)
    ordered = known[np.argsort(identity[known], kind="stable")]
    leader = int(np.argmax(np.bincount(events.part[known], minlength=len(trace_of))))
    lead = known[events.part[known] == leader]
    shift = np.zeros(len(trace_of), np.int64)
    for trace in set(trace_of.tolist()) - {int(trace_of[leader])}:
        rows = ordered[trace_of[events.part[ordered]] == trace]
        _, mine, other = np.intersect1d(identity[rows], identity[lead], return_indices=True)
        if not len(mine):
            return None
        shift[trace_of == trace] = np.int64(np.median(events.end[rows[mine]] - events.end[lead[other]]))
    return shift


def _align_by_time(events: _Events, identity: Int64, rows: Int64, shift: Int64 | None) -> None:
    """Match what runs at the same time under the same name, unless that matches far less than the order does."""
    if shift is None:
        return
    sequences, usual = _sequences(events, rows)
    reference = sequences[usual[0]]
    for mine in sequences:
        if mine is reference:
            continue
        names = np.full(len(mine), -1, np.int64)
        for key in distinct(events.key[mine]).tolist():
            at = np.flatnonzero(events.key[mine] == key)
            other = reference[events.key[reference] == key]
            here, there = _same_time(events, mine[at], other, shift)
            names[at[here]] = identity[other[there]]
        if 2 * np.count_nonzero(names >= 0) >= np.count_nonzero(identity[mine] >= 0):
            identity[mine] = names


def _same_time(events: _Events, own: Int64, other: Int64, shift: Int64) -> tuple[Int64, Int64]:
    """Positions of events of two participants that overlap and whose ends are nearest to each other."""
    if not len(own) or not len(other):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    move, move_other = shift[events.part[own[0]]], shift[events.part[other[0]]]
    end, end_other = events.end[own] - move, events.end[other] - move_other
    there, back = _nearest(end, end_other), _nearest(end_other, end)
    here = np.flatnonzero(back[there] == np.arange(len(own)))
    there = there[here]
    meet = (events.start[own[here]] - move <= end_other[there]) & (events.start[other[there]] - move_other <= end[here])
    return here[meet], there[meet]


def _nearest(values: Int64, among: Int64) -> Int64:
    """Position of the nearest of ``among`` for each value."""
    order = np.argsort(among, kind="stable")
    right = np.clip(np.searchsorted(among[order], values), 0, len(among) - 1)
    left = np.maximum(right - 1, 0)
    closer = np.abs(among[order[left]] - values) <= np.abs(among[order[right]] - values)
    return np.asarray(order[np.where(closer, left, right)], dtype=np.int64)


def _shift(events: _Events, mine: Int64, reference: Int64) -> int:
    """How many collectives of the reference came before the first of another participant; negative: the reverse.

    In a repetitive run many shifts fit the names. In the right one the ends lie at the steadiest distance;
    another one than 0 must be clearly better.
    """
    best, least = 0, np.inf
    most = min(_MAX_SHIFT, min(len(mine), len(reference)) // 2)
    for shift in sorted(range(-most, most + 1), key=abs):
        own, other = mine[max(0, -shift) :], reference[max(0, shift) :]
        count = min(len(own), len(other))
        own, other = own[:count], other[:count]
        if shift and np.count_nonzero(events.key[own] == events.key[other]) < _SAME_KEYS * count:
            continue
        spread = _spread(events.end[own] - events.end[other])
        if spread < (least if not shift else _CLEARLY * least):
            best, least = shift, spread
    return best


def _is_swapped(events: _Events, identity: Int64, mine: Int64, reference: Int64, here: Int64, there: Int64) -> bool:
    """Whether counting each key matches better than aligning the sequences."""
    if len(mine) != len(reference) or not (np.sort(events.key[mine]) == np.sort(events.key[reference])).all():
        return False
    counted, own = np.argsort(identity[reference]), np.argsort(identity[mine])
    by_count = events.end[mine[own]] - events.end[reference[counted]]
    by_order = events.end[mine[here]] - events.end[reference[there]]
    return not len(by_order) or _spread(by_count) <= _spread(by_order)


def _spread(distance: Int64) -> float:
    low, high = np.quantile(distance, (0.05, 0.95))
    return float(high - low)


def _packed(*columns: Int64) -> Int64:
    """One number for each distinct combination."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, inverse = group(column)
        code = group(code * max(1, len(values)) + inverse)[1]
    return code
