"""One GPU's time as a lane: sorted intervals that never overlap, each with one category.

Categories are `Category` without IDLE, followed by the `Cause` of idle time:
0 compute, 1 communication, 2 transfer, 3 + cause.

The lanes of a session are on one clock: `clock_shifts` says what is added to the times of each file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.clocks import Clocks
from tb_gpu_doctor.analysis.idle import Intervals, cut_gaps
from tb_gpu_doctor.analysis.results import CATEGORY_IDS, CAUSE_IDS, Category, Gaps
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.traces.columns import DeviceEvents, EventClass, Int32, Int64, UInt8

FIRST_CAUSE = int(Category.IDLE)
LANE_CATEGORIES: tuple[str, ...] = (*CATEGORY_IDS[:FIRST_CAUSE], *CAUSE_IDS)

_CATEGORY_OF_CLASS = np.zeros(len(EventClass), dtype=np.uint8)
_CATEGORY_OF_CLASS[EventClass.COMPUTE] = Category.COMPUTE
_CATEGORY_OF_CLASS[EventClass.COMMUNICATION] = Category.COMMUNICATION
_CATEGORY_OF_CLASS[[EventClass.COPY, EventClass.MEMSET]] = Category.TRANSFER


def flatten(start: Int64, end: Int64, row: Int64) -> Intervals:
    """Cut intervals, sorted by start, so that none overlaps: what began first keeps the time they share."""
    if not len(start):
        return Intervals(start, end, row)
    latest = np.maximum.accumulate(end)
    first = start.copy()
    np.maximum(start[1:], latest[:-1], out=first[1:])
    keep = end > first
    return Intervals(first[keep], end[keep], row[keep])


def union(parts: list[Intervals]) -> tuple[Int64, Int64]:
    """The union of several sets of intervals as sorted starts and ends; touching ones are merged."""
    start = np.concatenate([part.start for part in parts])
    end = np.concatenate([part.end for part in parts])
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start, latest = start[order], np.maximum.accumulate(end[order])
    opens = np.ones(len(start), dtype=np.bool_)
    opens[1:] = start[1:] > latest[:-1]
    last = np.append(np.flatnonzero(opens)[1:] - 1, len(start) - 1)
    return start[opens], latest[last]


def subtract(pieces: Intervals, start: Int64, end: Int64) -> Intervals:
    """What of disjoint ``pieces`` lies outside the sorted, disjoint intervals ``start``..``end``."""
    if not len(pieces.start) or not len(start):
        return pieces
    # The complement: free stretch i runs from the end of interval i - 1 to the start of interval i.
    free_start = np.concatenate(([min(pieces.start[0], start[0])], end))
    free_end = np.concatenate((start, [max(pieces.end[-1], end[-1])]))
    low = np.searchsorted(free_end, pieces.start, side="right")
    high = np.searchsorted(free_start, pieces.end, side="left")
    count = np.maximum(high - low, 0)
    piece = np.repeat(np.arange(len(count)), count)
    free = np.arange(len(piece)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(low, count)
    cut_start = np.maximum(pieces.start[piece], free_start[free])
    cut_end = np.minimum(pieces.end[piece], free_end[free])
    keep = cut_end > cut_start
    return Intervals(cut_start[keep], cut_end[keep], pieces.row[piece][keep])


@dataclass(frozen=True)
class Lane:
    """The intervals of one GPU, sorted by start; they never overlap.

    Attributes:
        start, end: picoseconds, shape (n,).
        category: index into `LANE_CATEGORIES`, shape (n,).
        row: the device event (categories below `FIRST_CAUSE`) or the gap it stands for, shape (n,).
        filled: for each category that occurs, its starts (k,) and the time before each of
            them plus the total, shape (k + 1,).
    """

    start: Int64
    end: Int64
    category: UInt8
    row: Int32
    filled: dict[int, tuple[Int64, Int64]]

    def __len__(self) -> int:
        return len(self.start)

    @property
    def size_bytes(self) -> int:
        """Memory of the columns."""
        filled = sum(starts.nbytes + total.nbytes for starts, total in self.filled.values())
        return self.start.nbytes + self.end.nbytes + self.category.nbytes + self.row.nbytes + filled

    def time_before(self, category: int, at: Int64) -> Int64:
        """How long the lane shows a category before each of the times ``at``."""
        if category not in self.filled:
            return np.zeros(len(at), dtype=np.int64)
        starts, total = self.filled[category]
        index = np.searchsorted(starts, at, side="right") - 1
        inside = np.maximum(index, 0)
        partial = np.minimum(at - starts[inside], total[inside + 1] - total[inside])
        return np.where(index < 0, 0, total[inside] + partial)

    def index_at(self, time: int) -> int:
        """The interval at an instant, -1 for none."""
        index = int(np.searchsorted(self.start, time, side="right")) - 1
        return index if index >= 0 and time < self.end[index] else -1

    def overlapping(self, start: int, end: int) -> slice:
        """The intervals that share time with [start, end)."""
        low = int(np.searchsorted(self.end, start, side="right"))
        high = int(np.searchsorted(self.start, end, side="left"))
        return slice(low, max(low, high))


def times_before(lanes: Sequence[Lane], at: Int64) -> Int64:
    """How long each lane shows each category before each of the times, in few steps whatever the number of lanes.

    Returns:
        As `Lane.time_before`, shape (lanes, categories, times).
    """
    found = np.zeros((len(lanes), len(LANE_CATEGORIES), len(at)), np.int64)
    rows = [(index, category) for index, lane in enumerate(lanes) for category in lane.filled]
    if not rows:
        return found
    columns = [lanes[index].filled[category] for index, category in rows]
    base = min(int(starts[0]) for starts, _ in columns)
    span = max(int(starts[-1] + total[-1] - total[-2]) for starts, total in columns) - base + 1
    if span * len(rows) >= 1 << 62:  # years on thousands of lanes do not fit into one row of numbers
        for index, category in rows:
            found[index, category] = lanes[index].time_before(category, at)
        return found
    # one search in all columns: those of each row lie behind those of the rows before it
    size = np.array([len(starts) for starts, _ in columns])
    first, row = (np.cumsum(size) - size)[:, np.newaxis], np.arange(len(rows))[:, np.newaxis]
    starts = np.concatenate([starts for starts, _ in columns]) - base + np.repeat(row[:, 0] * span, size)
    total = np.concatenate([total for _, total in columns])
    wanted = row * span + np.clip(at - base, 0, span - 1)
    at_or_before = np.searchsorted(starts, wanted.ravel(), side="right").reshape(wanted.shape) - 1
    inside = np.maximum(at_or_before, first)
    place = inside + row  # each row has one more total than starts
    partial = np.minimum(wanted - starts[inside], total[place + 1] - total[place])
    lane_of, category_of = np.array(rows).T
    found[lane_of, category_of] = np.where(at_or_before < first, 0, total[place] + partial)
    return found


def build_lane(events: DeviceEvents, gaps: Gaps, device: int, offset: int = 0) -> Lane:
    """Lay out what one GPU did: compute before communication before transfer, then its gaps by cause.

    Args:
        events: of the file.
        gaps: of the file.
        device: which GPU of it.
        offset: added to all times, picoseconds.
    """
    here = events.of_device(device)
    start, end = events.start[here], events.end[here]
    category = _CATEGORY_OF_CLASS[events.klass[here]]
    rows = np.arange(here.start, here.stop, dtype=np.int64)

    parts: list[Intervals] = []
    for which in (Category.COMPUTE, Category.COMMUNICATION, Category.TRANSFER):
        mine = category == which
        pieces = flatten(start[mine], end[mine], rows[mine])
        parts.append(subtract(pieces, *union(parts)) if parts else pieces)
    idle, causes = cut_gaps(gaps, np.flatnonzero(gaps.device == device))

    categories = [np.full(len(part.start), which, dtype=np.uint8) for which, part in enumerate(parts)]
    return _lane([*parts, idle], [*categories, causes + np.uint8(FIRST_CAUSE)], offset)


def _lane(parts: list[Intervals], categories: list[UInt8], offset: int) -> Lane:
    start = np.concatenate([part.start for part in parts])
    order = np.argsort(start, kind="stable")
    start = start[order] + offset
    end = np.concatenate([part.end for part in parts])[order] + offset
    row = np.concatenate([part.row for part in parts])[order].astype(np.int32)
    category = np.concatenate(categories)[order]
    filled = {}
    for which in range(len(LANE_CATEGORIES)):
        mine = category == which
        if mine.any():
            total = np.zeros(int(mine.sum()) + 1, dtype=np.int64)
            np.cumsum(end[mine] - start[mine], out=total[1:])
            filled[which] = (start[mine], total)
    return Lane(start, end, category, row, filled)


# Without steps: what part of the window an error may be that still makes a useful picture.
_OF_WINDOW = 0.1
# Times in JSON stay below 2^53; two clocks further apart than this (75 minutes) stay as they are.
_FARTHEST = 1 << 52


@dataclass(frozen=True)
class ClockShift:
    """Of one file.

    Attributes:
        offset: added to its times, picoseconds.
        error: how wrong that can be, picoseconds; None where the file stays on its own clock.
    """

    offset: int = 0
    error: int | None = 0


def clock_shifts(clocks: Clocks | None, analyses: Sequence[TraceAnalysis]) -> tuple[ClockShift, ...]:
    """Where an offset is better than none: bounded, and by less than a step, or a tenth of the window.

    Args:
        clocks: of the files; None where nothing is known.
        analyses: of the files, in the same order.
    """
    if len(analyses) < 2:
        return tuple(ClockShift() for _ in analyses)
    if clocks is None:
        return tuple(ClockShift(0, None) for _ in analyses)
    enough = _typical(analyses)
    found = []
    for index in range(len(analyses)):
        offset = int(clocks.offset[index])
        error = max(int(clocks.high[index]) - offset, offset - int(clocks.low[index]))
        window = analyses[index].window
        if clocks.drift is not None and clocks.pivot is not None and window is not None:
            # one offset for all of the recording: right in its middle, less so at its ends
            farthest = max(abs(window.start - int(clocks.pivot[index])), abs(window.end - int(clocks.pivot[index])))
            error += round(abs(float(clocks.drift[index])) * farthest)
        if index == clocks.reference:
            found.append(ClockShift())
        elif clocks.known[index] and error < enough and abs(offset) < _FARTHEST:
            found.append(ClockShift(offset, error))
        else:
            found.append(ClockShift(0, None))
    # A reference that nothing was put beside is a file on its own clock like the others.
    if not any(shift.error is not None for index, shift in enumerate(found) if index != clocks.reference):
        found[clocks.reference] = ClockShift(0, None)
    return tuple(found)


def _typical(analyses: Sequence[TraceAnalysis]) -> float:
    """The largest error that still shows who is late: a step, or a tenth of the window."""
    steps = [float(np.median(a.steps.durations())) for a in analyses if a.steps.count and a.steps.end.size]
    if steps:
        return float(np.median(steps))
    windows = [a.window.length for a in analyses if a.window is not None]
    return _OF_WINDOW * float(np.median(windows)) if windows else 0.0
