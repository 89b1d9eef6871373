"""Parts of idle gaps: how much of each lies in a set of intervals, and to which step it belongs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.intervals import IntervalSet
from tb_gpu_doctor.analysis.results import Gaps, Steps
from tb_gpu_doctor.traces.columns import Int64, UInt8


class Intervals(NamedTuple):
    """Sorted, disjoint intervals [start, end) and the row that each came from, shape (n,)."""

    start: Int64
    end: Int64
    row: Int64


def cut_gaps(gaps: Gaps, rows: NDArray[np.intp]) -> tuple[Intervals, UInt8]:
    """Cut each gap into one piece a cause, in proportion and in the order of `Cause`.

    Returns:
        The pieces (``row`` is the gap's row) and the `Cause` of each.
    """
    parts = gaps.by_cause[rows]
    ends = gaps.start[rows, np.newaxis] + np.cumsum(parts, axis=1)
    which, cause = np.nonzero(parts > 0)
    end = ends[which, cause]
    pieces = Intervals(end - parts[which, cause], end, rows[which].astype(np.int64))
    return pieces, cause.astype(np.uint8)


def overlap(stretches: IntervalSet, start: Int64, end: Int64) -> Int64:
    """How much of a set lies in each [start, end)."""
    if not len(stretches[0]):
        return np.zeros(len(start), np.int64)
    return intervals.covered_before(stretches, end) - intervals.covered_before(stretches, start)


def gap_rows(gaps: Gaps, device: int) -> slice:
    """Rows of one GPU's gaps."""
    low, high = np.searchsorted(gaps.device, [device, device + 1])
    return slice(int(low), int(high))


def sum_by_step(steps: Steps, device: int, start: Int64, amount: Int64) -> Int64:
    """Sums amounts over the complete steps of one GPU, by where they start; shape (steps.count,).

    Steps of one GPU follow each other, and gaps never straddle their borders.
    """
    complete = np.flatnonzero(steps.complete)
    total = np.zeros(len(complete), np.int64)
    mine = np.flatnonzero(steps.end[complete, device] >= 0)
    if len(mine) and amount.any():
        rows = complete[mine]
        at = np.searchsorted(steps.start[rows, device], start, side="right") - 1
        inside = (at >= 0) & (start < steps.end[rows[np.maximum(at, 0)], device])
        np.add.at(total, mine[at[inside]], amount[inside])
    return total
