"""What the session needs to know of a file's communication: its collectives, and what of them nothing hides.

Who waits in a collective and who moves data is told by the arrivals of all GPUs, which are in other files. So a file
tells when each collective ran and which stretches of its GPUs' communication no computation hides; the session splits
these (`exposed_layers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.file_columns import FileColumns, Place
from tb_gpu_doctor.analysis.intervals import IntervalSet
from tb_gpu_doctor.analysis.trace_analysis import candidates_of
from tb_gpu_doctor.traces.columns import PS_PER_US, CopyKind, EventClass, Int64

Stretches = tuple[tuple[int, ...], tuple[int, ...]]
# A kernel that waits for a collective may seem to begin so long before it is done.
_GOES_ON = 5 * PS_PER_US
# So many stretches of exposed communication are told as they are, and one more for eight collectives. Of more, the
# short ones between them become one: computation that covers a collective leaves thousands of slivers.
_MOST_STRETCHES = 64


@dataclass(frozen=True)
class CollectiveFacts:
    """The collective kernels that start inside a file's window, in the order of the device events; shape (n,) each.

    Attributes:
        row: of the device event, for who has the columns.
        device: index of the GPU.
        start, duration: picoseconds on the file's clock.
        step: index of the complete step, -1 for none.
        size_bytes: -1 unknown.
        code: index into ``lanes`` and ``keys``.
        lanes: process group and ranks, as far as the file names them.
        keys: what is the same on all that take part: name, HLO op, `CollectiveKind`, size (-1 where that may differ).
        computing: GPUs with compute kernels, rising.
    """

    row: tuple[int, ...]
    device: tuple[int, ...]
    start: tuple[int, ...]
    duration: tuple[int, ...]
    step: tuple[int, ...]
    size_bytes: tuple[int, ...]
    code: tuple[int, ...]
    lanes: tuple[tuple[str, str], ...]
    keys: tuple[tuple[str, str, int, int], ...]
    computing: tuple[int, ...]


@dataclass(frozen=True)
class ArrivalFacts:
    """Collectives that all computing GPUs of one file entered, matched by order, inside the window.

    Attributes:
        devices: indices of the GPUs, shape (d,).
        first: when the first of them entered, shape (k,).
        behind: how much later each entered, shape (k, d).
        step: index of the complete step, -1 for none, shape (k,).
        wait: of each GPU, time inside before the last had entered, over the window; shape (d,).
    """

    devices: tuple[int, ...]
    first: tuple[int, ...]
    behind: tuple[tuple[int, ...], ...]
    step: tuple[int, ...]
    wait: tuple[int, ...]


@dataclass(frozen=True)
class ExposedFacts:
    """The communication of one GPU that no computation hides, as stretches (starts, lengths).

    Attributes:
        whole: all of it. Where computation covers a collective in many places, stretches close together are one here.
        hidden: how much of each stretch is not exposed after all: none, but where several became one.
        moving: copies between GPUs, which move data from their start on.
        unmatched: kernels that cannot be matched, since they start outside the window.
        longest: the longest communication inside the window, the longest first.
    """

    whole: Stretches
    hidden: tuple[int, ...]
    moving: Stretches
    unmatched: Stretches
    longest: tuple[Place, ...]


def collective_facts(file: FileColumns) -> CollectiveFacts | None:
    """The collectives of a file, None without a window."""
    found = candidates_of(file.trace, file.analysis)
    if found is None:
        return None
    place = np.full(len(file.analysis.steps.number) + 1, -1, np.int64)  # the last one serves -1
    place[file.complete] = np.arange(len(file.complete))

    def words(raw: bytes) -> str:
        return raw.decode("utf-8", "replace")

    return CollectiveFacts(
        row=tuple(found.row.tolist()),
        device=tuple(found.device.tolist()),
        start=tuple(found.start.tolist()),
        duration=tuple((found.end - found.start).tolist()),
        step=tuple(place[found.step].tolist()),
        size_bytes=tuple(found.size_bytes.tolist()),
        code=tuple(found.code.tolist()),
        lanes=tuple((words(group), words(ranks)) for group, ranks in found.lanes),
        keys=tuple((words(name), words(op), kind, size) for name, op, kind, size in found.keys),
        computing=tuple(found.computing.tolist()),
    )


def arrival_facts(file: FileColumns) -> ArrivalFacts | None:
    """Who entered the collectives of a file when; None where they cannot be matched by order."""
    lateness, window, steps = file.analysis.lateness, file.analysis.window, file.analysis.steps
    if lateness is None or window is None or not len(lateness.start):
        return None
    stop = np.minimum(lateness.start + lateness.wait, window.end)
    wait = np.maximum(0, stop - np.maximum(lateness.start, window.start)).sum(axis=0)
    inside = (lateness.start.max(axis=1) < window.end) & (lateness.end.max(axis=1) > window.start)
    start, index = lateness.start[inside], lateness.step[inside]
    place = np.full(len(steps.number) + 1, -1, np.int64)
    place[file.complete] = np.arange(len(file.complete))
    first = start.min(axis=1)
    return ArrivalFacts(
        devices=tuple(lateness.devices.tolist()),
        first=tuple(first.tolist()),
        behind=tuple(map(tuple, (start - first[:, None]).tolist())),
        step=tuple(place[index].tolist()),
        wait=tuple(wait.tolist()),
    )


def exposed_facts(
    file: FileColumns, device: int, compute: IntervalSet, kernels: IntervalSet, limit: int
) -> ExposedFacts:
    """The exposed communication of one GPU.

    Args:
        file: the columns, with a window.
        device: index of the GPU.
        compute: when it computes.
        kernels: when it computes or communicates.
        limit: how many of the longest to keep.
    """
    window, steps, events = file.analysis.window, file.analysis.steps, file.trace.device_events
    assert window is not None
    used = file.complete[steps.end[file.complete, device] >= 0]
    low = min(window.start, int(steps.start[used, device].min(initial=window.start)))
    high = max(window.end, int(steps.end[used, device].max(initial=window.end)))
    whole = intervals.intersect(intervals.clip(kernels, low, high), intervals.complement(compute, low, high))
    rows = events.of_device(device)
    sent = np.flatnonzero(events.klass[rows] == EventClass.COMMUNICATION) + rows.start
    start, end, copies = events.start[sent], events.end[sent], events.copy_kind[sent] != CopyKind.NONE
    outside = ~copies & ((start < window.start) | (start >= window.end))

    def part(chosen: Int64) -> Stretches:
        return _as_lengths(intervals.intersect(whole, intervals.union(start[chosen], end[chosen])))

    inside = sent[(start < window.end) & (end > window.start)]
    longest = inside[np.argsort(-events.duration[inside], kind="stable")[:limit]]
    most_told = _MOST_STRETCHES + int(np.count_nonzero(~copies)) // 8
    start_of, length, hidden = _told(whole, intervals.union(start, end), most_told)
    return ExposedFacts(
        whole=(tuple(start_of.tolist()), tuple(length.tolist())),
        hidden=tuple(hidden.tolist()),
        moving=part(np.flatnonzero(copies)),
        unmatched=part(np.flatnonzero(outside)),
        longest=tuple(file.device_place(row) for row in longest.tolist()),
    )


def _told(whole: IntervalSet, sent: IntervalSet, limit: int) -> tuple[Int64, Int64, Int64]:
    """Start, length and hidden amount of stretches: the ``limit`` longest ones, and between them the others joined.

    Only what lies in one stretch of communication is joined, so that no step and no collective gets another one's time.
    """
    start, end = whole
    if len(start) <= limit:
        return start, end - start, np.zeros(len(start), np.int64)
    kept = np.zeros(len(start), np.bool_)
    kept[np.argsort(start - end, kind="stable")[:limit]] = True
    within = np.searchsorted(sent[0], start, side="right")
    first = np.flatnonzero(np.concatenate(([True], kept[1:] | kept[:-1] | (np.diff(within) != 0))))
    last = np.append(first[1:] - 1, len(start) - 1)
    length = end[last] - start[first]
    return start[first], length, length - np.add.reduceat(end - start, first)


@dataclass(frozen=True)
class Exposed:
    """Exposed communication that has been split.

    Attributes:
        start, end: stretches in rising order, shape (n,).
        amount: how much of each is meant, shape (n,).
    """

    start: Int64
    end: Int64
    amount: Int64

    def inside(self, start: Int64, end: Int64) -> Int64:
        """How much of it lies in each [start, end)."""
        return self._before(end) - self._before(start)

    def _before(self, at: Int64) -> Int64:
        if not len(self.start):
            return np.zeros(len(at), np.int64)
        total = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.amount)))
        index = np.searchsorted(self.start, at, side="right")
        last = np.maximum(index - 1, 0)
        length, amount = self.end[last] - self.start[last], self.amount[last]
        beyond = np.where(index > 0, np.maximum(self.end[last] - at, 0), 0)
        # of a stretch that is exposed as a whole, to the picosecond
        part = np.where(amount == length, beyond, (beyond * (amount / np.maximum(length, 1))).astype(np.int64))
        return np.asarray(total[index] - part, dtype=np.int64)


def split_communication(facts: ExposedFacts, start: Int64, end: Int64, wait: Int64) -> tuple[Exposed, Exposed, Exposed]:
    """The exposed communication of one GPU, each part holding the one before it.

    Args:
        facts: of the GPU.
        start: of its collectives (`CollectiveFacts`), shape (n,).
        end: of them.
        wait: time inside each before the last GPU had entered, -1 where it was not matched with others'; shape (n,).

    Returns:
        Data that moves; and collectives that cannot be split; and waiting in collectives.
    """
    begin, stop = as_intervals(facts.whole)
    whole = Exposed(begin, stop, stop - begin - np.array(facts.hidden, np.int64))
    matched = wait >= 0
    moves = _joined([as_intervals(facts.moving), (start[matched] + wait[matched], end[matched])])
    unsplit = _joined([moves, as_intervals(facts.unmatched), (start[~matched], end[~matched])])
    held_up = waits_that_hold_up(start[matched], wait[matched], end[matched], (begin, stop))
    if len(begin) and len(held_up[0]):
        free = intervals.complement(held_up, int(begin[0]), int(stop[-1]))
        moves, unsplit = intervals.intersect(moves, free), intervals.intersect(unsplit, free)
    return _part(whole, moves), _part(whole, unsplit), whole


def waits_that_hold_up(start: Int64, wait: Int64, end: Int64, exposed: IntervalSet) -> IntervalSet:
    """When a GPU waits in a collective because it can do nothing else before that is done.

    A GPU that does nothing but communicate goes on when what it needs is done. Where several collectives run at once on
    streams of their own, that is the last of them that ends before it goes on: a reduction of gradients that waits
    or moves in the background holds nobody up who waits for its neighbour meanwhile.

    Args:
        start: of the GPU's collectives, rising, shape (n,).
        wait: time inside each before the last GPU had entered, shape (n,).
        end: of them, shape (n,).
        exposed: when the GPU communicates and computes nothing.
    """
    pieces: list[tuple[int, int]] = []
    reach = np.maximum.accumulate(end) if len(end) else end
    firsts, lasts = np.searchsorted(reach, exposed[0], side="right"), np.searchsorted(start, exposed[1])
    for begin, stop, first, last in zip(*(a.tolist() for a in (*exposed, firsts, lasts)), strict=True):
        held = end[first:last] <= stop + _GOES_ON
        rows = np.flatnonzero(held) + first
        here = []
        free = stop
        for row in rows[np.argsort(-end[rows], kind="stable")].tolist():
            low, high = max(begin, int(start[row])), min(int(start[row] + wait[row]), free)
            if low < high:
                here.append((low, high))
            free = min(free, int(start[row]))
        pieces += here[::-1]
    found = np.array(pieces, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def exposed_within(facts: ExposedFacts, found: IntervalSet) -> Exposed:
    """What of some intervals is exposed communication."""
    begin, stop = as_intervals(facts.whole)
    return _part(Exposed(begin, stop, stop - begin - np.array(facts.hidden, np.int64)), found)


def _part(whole: Exposed, found: IntervalSet) -> Exposed:
    start, end = intervals.intersect((whole.start, whole.end), found)
    at = np.maximum(np.searchsorted(whole.start, start, side="right") - 1, 0)
    if not len(whole.start):
        return whole
    length, amount = whole.end[at] - whole.start[at], whole.amount[at]
    share = ((end - start) * (amount / np.maximum(length, 1))).astype(np.int64)
    return Exposed(start, end, np.where(end - start == length, amount, np.where(amount == length, end - start, share)))


def as_intervals(stretches: Stretches) -> IntervalSet:
    """Stretches as arrays of starts and ends."""
    start = np.array(stretches[0], np.int64)
    return start, start + np.array(stretches[1], np.int64)


def _as_lengths(found: IntervalSet) -> Stretches:
    return tuple(found[0].tolist()), tuple((found[1] - found[0]).tolist())


def _joined(parts: Sequence[IntervalSet]) -> IntervalSet:
    start = np.concatenate([part[0] for part in parts])
    end = np.concatenate([part[1] for part in parts])
    order = np.argsort(start, kind="stable")
    return intervals.union(start[order], end[order])
