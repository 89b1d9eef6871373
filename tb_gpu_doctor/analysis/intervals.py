"""Arithmetic on sets of half-open intervals [start, end) as sorted int64 arrays.

A "set" is a pair (starts, ends) of disjoint intervals in rising order, none empty.
"""

from __future__ import annotations

import numpy as np

from tb_gpu_doctor.traces.columns import Int64

IntervalSet = tuple[Int64, Int64]


def empty_set() -> IntervalSet:
    """No interval."""
    return np.zeros(0, np.int64), np.zeros(0, np.int64)


def union(start: Int64, end: Int64) -> IntervalSet:
    """Union of any intervals that are sorted by start; empty ones vanish, touching ones merge."""
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if not len(start):
        return empty_set()
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    last = np.append(first[1:] - 1, len(start) - 1)
    return start[first], reach[last]


def clip(intervals: IntervalSet, low: int, high: int) -> IntervalSet:
    """The part of a set inside [low, high)."""
    start, end = np.maximum(intervals[0], low), np.minimum(intervals[1], high)
    keep = end > start
    return start[keep], end[keep]


def complement(intervals: IntervalSet, low: int, high: int) -> IntervalSet:
    """What [low, high) holds beside a set."""
    start, end = clip(intervals, low, high)
    gap_start = np.concatenate((np.array([low], np.int64), end))
    gap_end = np.concatenate((start, np.array([high], np.int64)))
    keep = gap_end > gap_start
    return gap_start[keep], gap_end[keep]


def exact_sum(values: Int64) -> int:
    """Sum of non-negative numbers, right even past 64 bits: a week of a thousand threads does not fit in them."""
    if len(values) and int(values.max()) > np.iinfo(np.int64).max // len(values):
        return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())
    return int(values.sum())


def measure(intervals: IntervalSet) -> int:
    """Total length."""
    return int((intervals[1] - intervals[0]).sum())


def covered_before(intervals: IntervalSet, at: Int64) -> Int64:
    """How much of a set lies before each time ``at``; differences give the overlap with [x, y)."""
    start, end = intervals
    if not len(start):
        return np.zeros(len(at), np.int64)
    total = np.concatenate((np.zeros(1, np.int64), np.cumsum(end - start)))
    index = np.searchsorted(start, at, side="right")
    last = np.maximum(index - 1, 0)
    beyond = np.where(index > 0, np.maximum(end[last] - at, 0), 0)
    return np.asarray(total[index] - beyond, dtype=np.int64)


def intersect(one: IntervalSet, other: IntervalSet) -> IntervalSet:
    """What two sets have in common."""
    low = np.searchsorted(one[1], other[0], side="right")
    count = np.maximum(np.searchsorted(one[0], other[1], side="left") - low, 0)
    piece = np.repeat(np.arange(len(count)), count)
    at = np.arange(len(piece)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(low, count)
    return np.maximum(one[0][at], other[0][piece]), np.minimum(one[1][at], other[1][piece])
