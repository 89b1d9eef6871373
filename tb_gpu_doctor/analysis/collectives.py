"""The collective kernels of one file: their kind and size, which of them are one collective, and who is late.

Nothing in a trace says which kernels of two GPUs are one collective. Where all GPUs ran the same sequence, the n-th of
a kind on one GPU is the n-th on another. Where something is lost or more was run, the sequences are aligned by their
longest common subsequence; where events are only swapped, each kind is counted; and once the clocks are roughly known
from all that matched, times decide between ways that fit equally well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.results import Float64, Lateness, Steps, Window
from tb_gpu_doctor.traces.columns import NO_STAT, PS_PER_US, CopyKind, EventClass, Int32, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, group, rows_by


class CollectiveKind(IntEnum):
    """What a collective does; OTHER where its name does not say."""

    OTHER = 0
    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    ALL_TO_ALL = 4
    BROADCAST = 5
    REDUCE = 6
    SEND_RECEIVE = 7


# Whose result needs something from every participant: nobody can be done before the last has begun.
NEEDS_ALL = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
)
# Between two GPUs, or from one: that all of them meet cannot be taken for granted.
NOT_FOR_ALL = (CollectiveKind.BROADCAST, CollectiveKind.REDUCE)

_NAMES = (
    (re.compile(r"reduce[-_ ]?scatter", re.IGNORECASE), CollectiveKind.REDUCE_SCATTER),
    (re.compile(r"all[-_ ]?reduce|barrier|cross_device_reduce", re.IGNORECASE), CollectiveKind.ALL_REDUCE),
    (re.compile(r"all[-_ ]?gather", re.IGNORECASE), CollectiveKind.ALL_GATHER),
    (re.compile(r"all[-_ ]?to[-_ ]?all", re.IGNORECASE), CollectiveKind.ALL_TO_ALL),
    (re.compile(r"broadcast", re.IGNORECASE), CollectiveKind.BROADCAST),
    (re.compile(r"send[-_ ]?recv|collective-permute|(?<![a-z])(?:send|recv)(?![a-z])", re.IGNORECASE),
     CollectiveKind.SEND_RECEIVE),
    (re.compile(r"nccl\w*_reduce_|^reduce$", re.IGNORECASE), CollectiveKind.REDUCE),
)  # fmt: skip
# PyTorch's and NCCL's words for the types of elements.
_SIZES = (
    (re.compile(r"float64|double|int64|uint64|long|complex64|f64|s64|u64", re.IGNORECASE), 8),
    (re.compile(r"bfloat16|float16|half|bf16|f16|int16|short", re.IGNORECASE), 2),
    (re.compile(r"float8|int8|uint8|byte|char|bool|f8|u8|s8", re.IGNORECASE), 1),
    (re.compile(r"float|int|f32|u32|s32", re.IGNORECASE), 4),
)
_READ = 512


def kind_of(name: str) -> CollectiveKind:
    """The kind that a kernel's, an HLO op's or PyTorch's name says."""
    return next((kind for pattern, kind in _NAMES if pattern.search(name[:_READ])), CollectiveKind.OTHER)


def kinds(trace: Trace, rows: Int64) -> Int64:
    """`CollectiveKind` of device events: by PyTorch's word, else by HLO op, else by kernel name."""
    found = np.zeros(len(rows), np.int64)
    events = trace.device_events
    for ids in (trace.device_stats.get("collective", NO_STAT).at(rows), events.hlo_op[rows], events.name[rows]):
        open_ = np.flatnonzero((found == CollectiveKind.OTHER) & (ids >= 0))
        if len(open_):
            names, inverse = group(np.asarray(ids, dtype=np.int64)[open_])
            found[open_] = np.array([int(kind_of(trace.strings[i])) for i in names.tolist()], np.int64)[inverse]
    return found


def sizes(trace: Trace, rows: Int64) -> Int64:
    """Bytes that each collective works on, the larger of input and output; -1 where unknown."""
    stats = trace.device_stats
    elements = np.maximum(stats.get("in_elements", NO_STAT).at(rows), stats.get("out_elements", NO_STAT).at(rows))
    types = stats.get("dtype", NO_STAT).at(rows)
    found = np.full(len(rows), -1, np.int64)
    known = np.flatnonzero((elements >= 0) & (types >= 0))
    if len(known):
        names, inverse = group(types[known])
        width = np.array([_element_size(trace.strings[i]) for i in names.tolist()], np.int64)[inverse]
        total = np.clip(elements[known], 0, 1 << 48) * width
        found[known] = np.where(width > 0, total, -1)
    return found


def _element_size(dtype: str) -> int:
    return next((size for pattern, size in _SIZES if pattern.search(dtype[:_READ])), 0)


def bus_factor(kind: Int64, participants: Int64) -> Float64:
    """What the size is multiplied with for the bytes that cross each GPU's link (nccl-tests' bus bandwidth)."""
    n = np.maximum(participants, 1).astype(np.float64)
    part = (n - 1) / n
    factor = np.ones(len(n))
    factor[kind == CollectiveKind.ALL_REDUCE] = 2 * part[kind == CollectiveKind.ALL_REDUCE]
    split = np.isin(kind, (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL))
    factor[split] = part[split]
    return factor


# Sequences that differ in more places than this have too little in common to be worth the time.
MAX_DIFFERENCES = 300


def common_subsequence(a: Int64, b: Int64) -> tuple[Int64, Int64]:
    """Positions in ``a`` and in ``b`` of a longest common subsequence, both rising, of one shape.

    Myers' greedy method: quick where the two differ in few places. Beyond `MAX_DIFFERENCES` only the
    common beginning and the common end are given.
    """
    short = min(len(a), len(b))
    same = a[:short] == b[:short]
    head = short if same.all() else int(np.argmin(same))
    rest = short - head
    same = a[len(a) - rest :][::-1] == b[len(b) - rest :][::-1]
    tail = rest if same.all() else int(np.argmin(same))
    middle = _myers(a[head : len(a) - tail].tolist(), b[head : len(b) - tail].tolist())
    front, back = np.arange(head, dtype=np.int64), np.arange(tail, dtype=np.int64)
    inner = np.array(middle, np.int64).reshape(-1, 2) + head
    return (
        np.concatenate((front, inner[:, 0], len(a) - tail + back)),
        np.concatenate((front, inner[:, 1], len(b) - tail + back)),
    )


def _myers(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    """Matched positions; nothing when the sequences differ in too many places."""
    n, m = len(a), len(b)
    if not n or not m:
        return []
    reach = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(min(n + m, MAX_DIFFERENCES) + 1):
        history.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (
                diagonal != edits and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1)
            )
            x = reach[diagonal + 1] if down else reach[diagonal - 1] + 1
            y = x - diagonal
            while x < n and y < m and a[x] == b[y]:
                x, y = x + 1, y + 1
            reach[diagonal] = x
            if x >= n and y >= m:
                return _walk_back(history, n, m)
    return []


def _walk_back(history: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    matched: list[tuple[int, int]] = []
    for edits in range(len(history) - 1, -1, -1):
        reach = history[edits]
        diagonal = x - y
        down = diagonal == -edits or (diagonal != edits and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1))
        before = diagonal + 1 if down else diagonal - 1
        from_x = reach[before]
        from_y = from_x - before
        while x > max(from_x, 0) and y > max(from_y, 0) and (x > from_x if down else x > from_x + 1):
            x, y = x - 1, y - 1
            matched.append((x, y))
        x, y = from_x, from_y
    matched.reverse()
    return matched


# How many collectives one recording may begin before another, what part of the names must fit, and how much
# steadier the distance of the ends must be than without a shift.
_MAX_SHIFT = 64
_SAME_KEYS = 0.95
_CLEARLY = 0.5
# Ends of one collective lie this close together on two clocks that are aligned; and how many distances of the
# clocks are tried.
_SAME_END = 50 * PS_PER_US
_TRIED = 33


@dataclass(frozen=True)
class Events:
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

    def only(self, rows: Int64 | NDArray[np.bool_]) -> Events:
        """Some of the events."""
        return Events(**{spec.name: getattr(self, spec.name)[rows] for spec in fields(self)})


def identities(events: Events, trace_of: Int64) -> Int64:
    """A number per event, the same for all events of one collective; -1 for what nothing matches.

    Args:
        events: of at least one participant, in the order that `Events` says.
        trace_of: the file of each participant.
    """
    segment = packed(events.step, events.lane, events.key)
    occurrence = _count_up(segment, events.part)
    identity = segment * (int(occurrence.max()) + 1) + occurrence
    place = packed(events.step, events.lane)  # one communicator in one step
    # The sequence of keys in each place: where it differs between participants something is lost or swapped.
    order = np.lexsort((events.start, place, events.part))
    position = np.zeros(len(order), np.int64)
    position[order] = _count_up(place[order], events.part[order])
    spot = packed(place, position)
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


def _align(events: Events, identity: Int64, rows: Int64) -> None:
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


def _sequences(events: Events, rows: Int64) -> tuple[list[Int64], list[int]]:
    """The events of each participant in one place, and which of them ran the usual sequence."""
    part = events.part[rows]
    borders = np.flatnonzero(np.concatenate(([True], part[1:] != part[:-1], [True])))
    sequences = [rows[low:high] for low, high in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)]
    votes: dict[bytes, list[int]] = {}
    for index, mine in enumerate(sequences):
        votes.setdefault(events.key[mine].tobytes(), []).append(index)
    return sequences, max(votes.values(), key=lambda same: (len(same), len(sequences[same[0]])))


def _shifts(events: Events, identity: Int64, trace_of: Int64) -> Int64 | None:
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
        apart = events.end[rows[mine]] - events.end[lead[other]]
        own = events.end[known[events.part[known] == events.part[rows[0]]]]
        shift[trace_of == trace] = _best_shift(apart, own, events.end[lead])
    return shift


def _best_shift(apart: Int64, own: Int64, other: Int64) -> np.int64:
    """The distance of two clocks at which most collectives end together.

    Behind one that was lost, sequences may be matched one off for a long way: then most distances are wrong.

    Args:
        apart: distances of the ends of what was matched, the right one among them.
        own: all ends on one clock.
        other: and on the other.
    """
    usual = np.int64(np.median(apart))
    other = np.sort(other)
    best, most = usual, _together(own - usual, other)
    for shift in np.unique(np.quantile(apart, np.linspace(0, 1, _TRIED), method="nearest")):
        if abs(shift - usual) > _SAME_END and (count := _together(own - shift, other)) > most:
            best, most = shift, count
    return best


def _together(ends: Int64, others: Int64) -> int:
    """How many ends have another one close by."""
    right = np.clip(np.searchsorted(others, ends), 0, len(others) - 1)
    left = np.maximum(right - 1, 0)
    distance = np.minimum(np.abs(others[right] - ends), np.abs(others[left] - ends))
    return int(np.count_nonzero(distance <= _SAME_END))


def _align_by_time(events: Events, identity: Int64, rows: Int64, shift: Int64 | None) -> None:
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


def _same_time(events: Events, own: Int64, other: Int64, shift: Int64) -> tuple[Int64, Int64]:
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


def _shift(events: Events, mine: Int64, reference: Int64) -> int:
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


def _is_swapped(events: Events, identity: Int64, mine: Int64, reference: Int64, here: Int64, there: Int64) -> bool:
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


def packed(*columns: Int64) -> Int64:
    """One number for each distinct combination."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, inverse = group(column)
        code = group(code * max(1, len(values)) + inverse)[1]
    return code


Lane = tuple[bytes, bytes]
Key = tuple[bytes, bytes, int, int]


@dataclass(frozen=True)
class Candidates:
    """The collective kernels that start inside a file's window, in the order of the device events.

    Attributes:
        row: of the device event; ``device``, ``start`` and ``end`` are its columns, shape (n,).
        step: index into `Steps`, -1 for none, shape (n,).
        kind: `CollectiveKind`; ``size_bytes`` of it, -1 unknown; shape (n,).
        code: index into ``lanes`` and ``keys``, shape (n,).
        lanes: process group and ranks, as far as the file names them.
        keys: what is the same on all that take part: name, HLO op, kind, size (-1 where that may differ).
        computing: devices with compute kernels, rising.
    """

    row: Int64
    device: Int32
    start: Int64
    end: Int64
    step: Int32
    kind: Int64
    size_bytes: Int64
    code: Int64
    lanes: tuple[Lane, ...]
    keys: tuple[Key, ...]
    computing: Int32

    def step_of(self, rows: Int64) -> Int32:
        """Index into `Steps` of device events that are among the candidates, shape (rows,)."""
        return self.step[np.searchsorted(self.row, rows)]


def find_candidates(trace: Trace, window: Window, steps: Steps) -> Candidates:
    """The candidates of a file."""
    events = trace.device_events
    row = np.flatnonzero(
        (events.klass == EventClass.COMMUNICATION)
        & (events.copy_kind == CopyKind.NONE)
        & (events.start >= window.start)
        & (events.start < window.end)
    )
    kind, size = kinds(trace, row), sizes(trace, row)
    code, lanes, keys = _lanes_and_keys(trace, row, kind, size)
    step = steps.event_step[row] if len(steps.event_step) else np.full(len(row), -1, np.int32)
    return Candidates(
        row, events.device[row], events.start[row], events.end[row], step, kind, size, code, lanes, keys,
        distinct(events.device[events.klass == EventClass.COMPUTE]),
    )  # fmt: skip


def _lanes_and_keys(
    trace: Trace, rows: Int64, kind: Int64, size: Int64
) -> tuple[Int64, tuple[Lane, ...], tuple[Key, ...]]:
    """A number for each sort of collective, and the texts behind the numbers."""
    events, stats = trace.device_events, trace.device_stats
    process_group = stats.get("process_group", NO_STAT).at(rows)
    ranks = stats.get("group_ranks", NO_STAT).at(rows)
    # PyTorch's word says more than the kernel's name, which may differ by algorithm.
    word = stats.get("collective", NO_STAT).at(rows)
    name = np.where(word >= 0, word, events.name[rows]).astype(np.int64)
    hlo = events.hlo_op[rows].astype(np.int64)
    # sizes of the others may differ between participants
    same_size = np.where(np.isin(kind, NEEDS_ALL) & (kind != CollectiveKind.ALL_TO_ALL), size, -1)
    code = packed(process_group, ranks, name, hlo, kind, same_size)
    example = np.zeros(int(code.max()) + 1 if len(code) else 0, np.int64)
    example[code] = np.arange(len(code))

    def texts(ids: Int64) -> Sequence[bytes]:
        return [trace.strings.raw(i) if i >= 0 else b"" for i in ids[example].tolist()]

    lanes = tuple(zip(texts(process_group), texts(ranks), strict=True))
    keys = zip(texts(name), texts(hlo), kind[example].tolist(), same_size[example].tolist(), strict=True)
    return code, lanes, tuple(keys)


def find_lateness(trace: Trace, window: Window, steps: Steps) -> Lateness | None:
    """Match the collectives of all working GPUs by order, step by step; None when they cannot be matched.

    A step counts if every GPU that computes ran the same sequence of collective kernels in it;
    without steps the whole window is taken as one. A collective starts to move data when the
    last GPU has arrived: who arrived earlier waits.
    """
    events = trace.device_events
    rows = np.flatnonzero(
        (events.klass == EventClass.COMMUNICATION)
        & (events.copy_kind == CopyKind.NONE)
        & (events.start >= window.start)
        & (events.start < window.end)
    )
    devices = distinct(events.device[events.klass == EventClass.COMPUTE])
    rows = rows[np.isin(events.device[rows], devices)]
    if len(devices) < 2 or not len(rows):
        return None
    groups: list[tuple[int, Int64]] = []
    if steps.count:
        step_of = steps.event_step[rows]
        groups = [(s, rows[index]) for s, index in rows_by(step_of) if s >= 0 and steps.complete[s]]
    else:
        groups = [(-1, rows)]
    starts, ends, step_index = [], [], []
    for step, members in groups:
        table = _aligned(trace, members, devices)
        if table is not None:
            starts.append(events.start[table])
            ends.append(events.end[table])
            step_index.append(np.full(len(table), step, np.int32))
    if not starts:
        return None
    start, end = np.concatenate(starts), np.concatenate(ends)
    latest = start.max(axis=1, keepdims=True)
    return Lateness(
        devices=devices.astype(np.int32),
        start=start,
        end=end,
        step=np.concatenate(step_index),
        late=start - _median_of_others(start),
        wait=np.minimum(latest - start, end - start),
    )


def _aligned(trace: Trace, members: Int64, devices: np.ndarray) -> Int64 | None:
    """Rows of the collectives, shape (k, devices), when all devices ran the same sequence."""
    events = trace.device_events
    # rows are sorted by device: equal runs of all devices, or no match
    count = len(members) // len(devices)
    if not count or len(members) != count * len(devices):
        return None
    table = members.reshape(len(devices), count).T
    if (events.device[table] != devices).any():
        return None
    names = events.name[table]
    if (names != names[:, :1]).any():
        return None
    # Matched kernels overlap in time, or they are not the same collective.
    if (events.start[table].max(axis=1) > events.end[table].min(axis=1)).any():
        return None
    return table


def _median_of_others(start: Int64) -> Int64:
    """For each collective and GPU the median start of all the other GPUs, shape as ``start``."""
    count = start.shape[1]
    ordered = np.sort(start, axis=1)
    rank = np.argsort(np.argsort(start, axis=1, kind="stable"), axis=1, kind="stable")
    # without one element, element j of the rest is ordered[j] or, from its own rank on, ordered[j + 1]
    low, high = (count - 2) // 2, (count - 1) // 2
    rows = np.arange(len(start))[:, None]
    a = ordered[rows, low + (rank <= low)]
    b = ordered[rows, high + (rank <= high)]
    return np.asarray(a + (b - a) // 2, dtype=np.int64)
