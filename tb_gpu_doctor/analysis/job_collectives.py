"""The collectives of a job, matched over all its GPUs, whatever file they are in.

They are matched step by step (by the steps' numbers where all files mark them, else over the whole window): the n-th of
a kind on one GPU is the n-th on another, a kind being the communicator, name and size as far as they are recorded.
Where a GPU ran more or fewer than the others, its sequence is first aligned with theirs.

XPlane names no communicators. In a program that is parallel in two ways, over tensors and over data, the same op runs
on all GPUs, but in groups of its own: {0, 1} and {2, 3}, say. Taken for one collective of four, each group would
seem to wait for the other. GPUs of one file share a clock, and a collective ends on all its GPUs at nearly the same
time: GPUs whose collectives hardly ever end together are not in one group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.collectives import NEEDS_ALL, Events, identities
from tb_gpu_doctor.analysis.facts import FileFacts
from tb_gpu_doctor.analysis.results import BoolArray
from tb_gpu_doctor.traces.columns import PS_PER_US, Int32, Int64
from tb_gpu_doctor.traces.grouping import distinct, group

# Process group and ranks; name, HLO op, kind and size: see `CollectiveFacts`.
Lane = tuple[str, str]
Key = tuple[str, str, int, int]
# Ends of one collective lie this close together, at the most of its shortest participant's time.
_TOGETHER = 50 * PS_PER_US
_TOGETHER_SHARE = 0.1
# So many collectives of a kind must be seen to tell.
_FEWEST = 5
# Of those, what part must end together.
_MOSTLY = 0.5
# The n-th of a kind may be another GPU's n-th but so many, where the profiler has lost some on both. So many in a row
# must end together then, since by chance some do; and at the beginning or the end of the recording, before or behind
# what was lost, so many of the same number, since groups that run in step are as far apart from first to last.
_MOST_LOST = 4
_IN_A_ROW = 3
_AT_AN_END = 5


def split_groups(events: Events, trace_of: Int64, names: tuple[str, ...]) -> tuple[Events, tuple[str, ...]] | None:
    """The events with a lane for each group; None where all that one lane holds ends together.

    Groups of several GPUs of one file stay in that file; a GPU that is alone in its file meets those with its
    place in the other files, if any.

    Args:
        events: in the order that `Events` says.
        trace_of: the file of each participant.
        names: of the lanes.
    """
    lane = events.lane.copy()
    new_names = list(names)
    place = _places(trace_of)
    unnamed = np.array([not name for name in names])
    asked = unnamed[events.lane] & np.isin(events.kind, NEEDS_ALL)
    if len(np.unique(trace_of)) == len(trace_of):
        return None  # one GPU a file: nobody's ends can be compared
    order = np.flatnonzero(asked)[np.argsort(events.key[asked], kind="stable")]
    borders = np.flatnonzero(np.diff(events.key[order])) + 1
    for rows in np.split(order, borders) if len(order) else []:
        groups: dict[tuple[int, ...], int] = {}
        for trace in distinct(trace_of[events.part[rows]]).tolist():
            mine = rows[trace_of[events.part[rows]] == trace]
            found = _groups(events, mine)
            if len(found) < 2:
                continue
            for members in found:
                name = (-1, int(place[members[0]])) if len(members) == 1 else (trace, *members)
                if name not in groups:
                    groups[name] = len(new_names)
                    new_names.append("")
                lane[rows[np.isin(events.part[rows], members)]] = groups[name]
    if len(new_names) == len(names):
        return None
    moved = dataclasses.replace(events, lane=lane)
    return moved.only(np.lexsort((moved.start, moved.key, moved.lane, moved.step, moved.part))), tuple(new_names)


def _places(trace_of: Int64) -> Int64:
    """How many participants of the same file stand before each."""
    return np.array(
        [np.count_nonzero(trace_of[:index] == own) for index, own in enumerate(trace_of.tolist())], np.int64
    )


def _groups(events: Events, rows: Int64) -> list[list[int]]:
    """The participants of one file's collectives of one kind, by who ends together; one group where nobody can tell.

    The n-th of a kind on one GPU is compared with the n-th on the others: whether these are one is the question. Where
    both have lost some, stretches of theirs are compared with what comes a few before or after.
    """
    parts, counts = np.unique(events.part[rows], return_counts=True)
    if len(parts) < 2 or counts.min() != counts.max() or counts[0] < _FEWEST:
        return [parts.tolist()]
    rows = rows[np.lexsort((events.start[rows], events.part[rows]))]
    end, start = (times[rows].reshape(len(parts), -1).T for times in (events.end, events.start))
    near = np.maximum(_TOGETHER, _TOGETHER_SHARE * (end - start).min(axis=1))[:, None]
    linked = np.stack([np.mean(np.abs(end - end[:, [i]]) <= near, axis=0) >= _MOSTLY for i in range(len(parts))])
    for i, j in np.argwhere(~linked).tolist():
        linked[i, j] = linked[j, i] = np.mean(_together_in_stretches(end[:, i], end[:, j], near[:, 0])) >= _MOSTLY
    return [parts[group].tolist() for group in _components(linked)]


def _together_in_stretches(own: Int64, other: Int64, near: Int64) -> BoolArray:
    """Which of a GPU's collectives are part of a stretch that ends together with one of another's, shape (n,)."""
    count = len(own)
    found = np.zeros(count, np.bool_)
    usual = np.abs(own - other) <= near
    if not (usual[:_AT_AN_END].all() or usual[-_AT_AN_END:].all()):
        return found
    for ahead in range(-_MOST_LOST, _MOST_LOST + 1):
        low, high = max(0, -ahead), min(count, count - ahead)
        if high - low < _IN_A_ROW:
            continue
        same = np.abs(own[low:high] - other[low + ahead : high + ahead]) <= near[low:high]
        whole: BoolArray = np.all(np.lib.stride_tricks.sliding_window_view(same, _IN_A_ROW), axis=1)
        for step in range(_IN_A_ROW):
            found[low + step : low + step + len(whole)] |= whole
    return found


def _components(linked: BoolArray) -> list[BoolArray]:
    left = np.ones(len(linked), np.bool_)
    found = []
    while left.any():
        group = np.zeros(len(linked), np.bool_)
        group[int(np.argmax(left))] = True
        while True:
            grown = group | linked[group].any(axis=0)
            if (grown == group).all():
                break
            group = grown
        found.append(group)
        left &= ~group
    return found


@dataclass(frozen=True)
class Collectives:
    """Matched collectives; times on the clock of each participant's own file.

    Attributes:
        trace, device: of each participant, shape (p,): index into the files, and into their GPUs.
        row: device event of collective k on each participant, -1 where it has none; shape (k, p).
        start, end: its times, 0 where there is none; shape (k, p).
        kind: `CollectiveKind`, shape (k,).
        size_bytes: what it works on, -1 unknown; shape (k,).
        step: number of the step, -1 without marked steps; shape (k,).
        expected: how many participants its communicator has in these traces, shape (k,).
        unmatched: collective kernels of each participant that no other one's were matched with, shape (p,).
        group: the communicator of each, shape (k,): index into ``groups``.
        groups: communicators by name, "" where the files name none; then all GPUs may seem to be one group.
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
    group: Int64
    groups: tuple[str, ...]

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
            self.size_bytes[rows], self.step[rows], self.expected[rows], self.unmatched, self.group[rows], self.groups,
        )  # fmt: skip


def match_collectives(files: Sequence[FileFacts]) -> Collectives | None:
    """Match the collectives of several files, or of the GPUs of one.

    Only what starts inside a file's window takes part, on GPUs that compute.

    Returns:
        None when there are fewer than two GPUs with collectives, or nothing matches.
    """
    parts, events, groups = _gather(files)
    if len(parts) < 2 or not len(events.part):
        return None
    total = np.bincount(events.part, minlength=len(parts))
    trace_of = np.array([which for which, _ in parts], np.int64)
    split = split_groups(events, trace_of, groups)
    if split is not None:
        events, groups = split
    identity = identities(events, trace_of)
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
    start, end = np.zeros_like(row), np.zeros_like(row)
    start[at, events.part], end[at, events.part] = events.start, events.end
    row, first, start, end = row[rows], first[rows], start[rows], end[rows]
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
        group=events.lane[first],
        groups=groups,
    )


def _gather(files: Sequence[FileFacts]) -> tuple[list[tuple[int, int]], Events, tuple[str, ...]]:
    """The participants as (file, device), their collective kernels, and the names of communicators."""
    marked = all(file.steps.source == "marked" and file.steps.count for file in files if file.window is not None)
    parts: list[tuple[int, int]] = []
    columns: list[tuple[Int64, ...]] = []
    # Numbers for communicators and for kinds of collectives that mean the same in all files.
    lanes: dict[Lane, int] = {}
    keys: dict[Key, int] = {}
    for which, file in enumerate(files):
        found = file.collectives
        if found is None:
            continue
        step_at, device, code = (np.array(column, np.int64) for column in (found.step, found.device, found.code))
        step = np.full(len(found.row), -1, np.int64)
        used = np.ones(len(found.row), np.bool_)
        if marked:
            used = step_at >= 0
            step = np.append(np.array(file.steps.numbers, np.int64), -1)[step_at]
        part = np.full(len(file.gpus), -1, np.int64)
        for index in np.intersect1d(np.array(found.computing, np.int64), device[used]).tolist():
            part[index] = len(parts)
            parts.append((which, index))
        rows = np.flatnonzero(used & (part[device] >= 0))
        lane_of, key_of, kind_of = (np.zeros(len(found.keys), np.int64) for _ in range(3))
        for number in distinct(code[rows]).tolist():
            lane_of[number] = lanes.setdefault(found.lanes[number], len(lanes))
            key_of[number] = keys.setdefault(found.keys[number], len(keys))
            kind_of[number] = found.keys[number][2]
        row, start, duration, size = (
            np.array(column, np.int64) for column in (found.row, found.start, found.duration, found.size_bytes)
        )
        whole = (part[device], step, lane_of[code], key_of[code], start, start + duration, row, kind_of[code], size)
        columns.append(tuple(column[rows] for column in whole))
    if not columns:
        return [], Events(*(np.zeros(0, np.int64) for _ in range(9))), ()
    made = Events(*(np.concatenate(column) for column in zip(*columns, strict=True)))
    names = tuple(" ".join(filter(None, texts)) for texts in lanes)
    return parts, made.only(np.lexsort((made.start, made.key, made.lane, made.step, made.part))), names


def _members(events: Events) -> Int64:
    """How many participants each lane has, by its number."""
    pairs = distinct(events.lane * (int(events.part.max()) + 1) + events.part)
    return np.bincount(pairs // (int(events.part.max()) + 1))
