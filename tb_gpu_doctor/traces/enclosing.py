"""Which of many intervals is the innermost around a point in time."""

from __future__ import annotations

import numpy as np

from tb_gpu_doctor.traces.columns import Int64


def last_above(values: Int64, last: Int64, bounds: Int64) -> Int64:
    """For each query the last index at or before ``last`` whose value is above ``bounds``; -1 for none.

    Where ``values`` are the ends of intervals sorted by start, that is the innermost one that still lasts.
    A tree of maxima: one row has the maxima of pairs of the row below. Up until a block holds such a value, then
    down to the last one in it, with all queries in step.

    Args:
        values: of any length.
        last: per query, from -1.
        bounds: per query.
    """
    answer = np.full(len(last), -1, np.int64)
    # The query's own place is nearly always the answer: a call is made by the operator begun last.
    near = last >= 0
    near[near] = values[last[near]] > bounds[near]
    answer[near] = last[near]
    open_ = np.flatnonzero(~near & (last > 0))
    if not len(open_):
        return answer
    levels = [values]
    at = last[open_] - 1
    waiting: list[tuple[Int64, Int64]] = []  # per level: the queries that go down from it, and their blocks
    while len(open_):
        level = levels[-1]
        single = at % 2 == 0  # the left one of its pair: all before it are whole pairs
        hit = single & (level[at] > bounds[open_])
        waiting.append((open_[hit], at[hit]))
        at = np.where(single, at - 1, at) >> 1  # -1 stays -1
        kept = ~hit & (at >= 0)
        open_, at = open_[kept], at[kept]
        levels.append(_pairs(level))
    found = block = np.zeros(0, np.int64)
    for level, (queries, blocks) in zip(levels[-2::-1], waiting[::-1], strict=True):
        # from the level above into the right half where that holds one, else into the left
        right = np.minimum(2 * block + 1, len(level) - 1)
        block = np.where(level[right] > bounds[found], right, 2 * block)
        found, block = np.append(found, queries), np.append(block, blocks)
    answer[found] = block
    return answer


def _pairs(values: Int64) -> Int64:
    """The maxima of pairs; an odd one out stays alone."""
    whole = len(values) // 2 * 2
    return np.append(np.maximum(values[:whole:2], values[1:whole:2]), values[whole:])
