"""Which collective kernels of several GPUs are one collective: by counting, by order, and by time.

Where all ran the same sequence, the n-th of a kind on one GPU is the n-th on another. Where something is
lost or more was run, sequences are aligned; where events are only swapped, each kind is counted; and once
the clocks are roughly known from all that matched, times decide between ways that fit equally well.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.sequences import common_subsequence
from tb_gpu_doctor.traces.columns import PS_PER_US, Int64
from tb_gpu_doctor.traces.grouping import distinct, group

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
