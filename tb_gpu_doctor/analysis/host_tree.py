"""Who encloses whom on a host thread, and who caused whom across threads."""

from __future__ import annotations

import numpy as np

from tb_gpu_doctor.traces.columns import HostEvents, Int32, Int64
from tb_gpu_doctor.traces.grouping import group

# Real traces need about log2(events of a thread); crafted ones could need as many rounds as rows.
_MAX_ROUNDS = 64


def enclosing(events: HostEvents) -> Int64:
    """Row of the innermost event that encloses each event on its thread, -1 for none; shape (n,).

    Rows are sorted by (thread, start, longest first), so the encloser is the nearest earlier row
    of the thread that ends no sooner. Every row starts with the row before it as candidate and
    jumps to its candidate's candidate until it fits: all rows at once, about log2(n) rounds.
    """
    count = len(events)
    parent = np.arange(-1, count - 1, dtype=np.int64)
    end, thread = events.end, events.thread
    if count:
        parent[0] = -1
        parent[1:][thread[1:] != thread[:-1]] = -1
    active = np.flatnonzero(parent >= 0)
    for _ in range(_MAX_ROUNDS):
        if not len(active):
            return parent
        candidate = parent[active]
        short = end[candidate] < end[active]
        active, candidate = active[short], candidate[short]
        # A candidate's own candidate may not be final; it still skips only rows that end too soon.
        parent[active] = parent[candidate]
        active = active[parent[active] >= 0]
    return parent if not len(active) else _enclosing_by_stack(thread, end)


def _enclosing_by_stack(thread: Int32, end: Int64) -> Int64:
    """`enclosing` row by row: slower on real traces, but never worse than that."""
    found: list[int] = []
    stack: list[tuple[int, int]] = []
    current = -1
    for row, (mine, stop) in enumerate(zip(thread.tolist(), end.tolist(), strict=True)):
        if mine != current:
            stack.clear()
            current = mine
        while stack and stack[-1][0] < stop:
            stack.pop()
        found.append(stack[-1][1] if stack else -1)
        stack.append((stop, row))
    return np.array(found, np.int64)


def nearest_with(mark: np.ndarray, parent: Int64) -> Int64:
    """For each row the nearest of itself and its enclosers that is marked, -1 for none; shape (n,)."""
    found = np.where(mark, np.arange(len(parent), dtype=np.int64), -1)
    up = np.where(mark, -1, parent)
    while True:
        active = np.flatnonzero(up >= 0)
        if not len(active):
            return found
        target = up[active]
        hit = found[target]
        found[active] = hit
        up[active] = np.where(hit >= 0, -1, up[target])


def producer_of(events: HostEvents) -> Int64:
    """Row of the event that produced what each row consumes, -1 for none; shape (n,).

    Pairs (type, id) are used again over a recording: the latest producer that started before the
    consumer is the one.
    """
    found = np.full(len(events), -1, np.int64)
    producers = np.flatnonzero(events.producer_type >= 0)
    consumers = np.flatnonzero(events.consumer_type >= 0)
    if not len(producers) or not len(consumers):
        return found
    kinds = np.concatenate((events.producer_type[producers], events.consumer_type[consumers]))
    ids = np.concatenate((events.producer_id[producers], events.consumer_id[consumers]))
    starts = np.concatenate((events.start[producers], events.start[consumers]))
    # one rising number per (type, id), one per start: then (pair, start) is one sortable integer
    distinct_kinds, kind = group(kinds)
    pair = group(group(ids)[1] * len(distinct_kinds) + kind)[1]
    rank = group(starts)[1]
    key = pair * (int(rank.max()) + 1) + rank
    split = len(producers)
    order = np.argsort(key[:split], kind="stable")
    at = np.searchsorted(key[:split][order], key[split:], side="right") - 1
    candidate = order[np.maximum(at, 0)]
    good = (at >= 0) & (pair[:split][candidate] == pair[split:])
    found[consumers[good]] = producers[candidate[good]]
    return found
