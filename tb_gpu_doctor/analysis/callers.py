"""Who called what on the host: which event encloses an event, and what caused it across threads.

Drivers know threads by number and the framework's own events know them by name. Newer files keep the two apart:
`Host Threads/1083` holds the launches that `py_xla_execute/-4106831565636175816` made. What encloses a launch, and
what the thread did before it, is recorded on the latter only, so the named thread behind a numbered one is found first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.traces.columns import HostEvents, Int32, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, group

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


@dataclass(frozen=True)
class Causality:
    """Why host events happened, by row: who encloses, who produced, who stands for a driver call.

    Attributes:
        parent: innermost encloser (`host_tree.enclosing`), -1 none.
        producer: what made the work that the row consumes (`host_tree.producer_of`), -1 none.
        caller: the row that shows the surroundings (`caller_rows`), by default the row itself.
    """

    parent: Int64
    producer: Int64
    caller: Int64


def causality(trace: Trace) -> Causality:
    """The causal links of a trace's host events."""
    parent = enclosing(trace.host_events)
    return Causality(parent, producer_of(trace.host_events), caller_rows(trace, parent))


_DRIVER_THREAD = "Host Threads/"
# Calls looked at per thread; the share of them that an event of the other thread must enclose.
_SAMPLE = 2_000
_MIN_SHARE = 0.9
# Look-ups that the search may take in all, a step up the tree of events included; and pairs of threads. Real
# profiles need a few thousand; where these are used up, calls stand for themselves.
_MAX_LOOKUPS, _MAX_PAIRS = 30_000, 4_000_000


def caller_rows(trace: Trace, parent: Int64) -> Int64:
    """For each host row the row that stands for its surroundings: itself, or for a call on a
    driver-only thread the innermost event of the thread that made it; shape (host events,).

    The thread is the one whose events enclose most of the calls. Where several enclose as many (GPUs
    driven in lockstep), the one whose innermost events carry the ops' names decides; where
    that says nothing either, the call stands for itself.
    """
    host = trace.host_events
    rows = np.arange(len(host), dtype=np.int64)
    driver = [t.index for t in trace.threads if t.name.startswith(_DRIVER_THREAD)]
    if not driver:
        return rows
    is_driver = np.zeros(len(trace.threads), np.bool_)
    is_driver[driver] = True
    others = [t for t in distinct(host.thread).tolist() if not is_driver[t]]
    if len(driver) * len(others) > _MAX_PAIRS:
        return rows
    search = _Search(trace, parent, np.array(others, np.int64))
    for thread in driver:
        if search.left <= 0:
            break
        mine = host.of_thread(thread)
        calls = rows[mine][host.correlation[mine] > 0]
        if not len(calls):
            continue
        best = _best_caller(trace, search, calls)
        if best >= 0:
            inside = search.innermost_at(best, host.start[calls])
            rows[calls] = np.where(inside >= 0, inside, calls)
    return rows


def _best_caller(trace: Trace, search: _Search, calls: Int64) -> int:
    host = trace.host_events
    sample = calls[:: max(len(calls) // _SAMPLE, 1)]
    scores = []
    for thread in search.running_at(host.start[sample]):
        inside = search.innermost_at(thread, host.start[sample])
        if search.left <= 0:
            return -1
        enclosed = inside >= 0
        # an event that encloses all of it (a frame of the whole program) says nothing
        different = len(distinct(inside[enclosed]))
        share = float(enclosed.mean())
        if share < _MIN_SHARE or (different < 2 and len(sample) > 1):
            continue
        named = _same_name(trace, host.name[inside[enclosed]], host.op[sample[enclosed]])
        scores.append((named, share, different, thread))
    scores.sort(reverse=True)
    if not scores or (len(scores) > 1 and scores[0][:3] == scores[1][:3]):
        return -1
    return scores[0][3]


def _same_name(trace: Trace, names: np.ndarray, ops: np.ndarray) -> float:
    if not len(names):
        return 0.0
    hits = 0
    for name, op in zip(names[:200].tolist(), ops[:200].tolist(), strict=True):
        text = trace.strings[op]
        hits += bool(text) and trace.strings[name] in text
    return round(hits / len(names[:200]), 2)


class _Search:
    """Looks for the events of other threads around given instants, as long as ``left`` lasts."""

    def __init__(self, trace: Trace, parent: Int64, threads: Int64) -> None:
        self.host, self.parent, self.threads, self.left = trace.host_events, parent, threads, _MAX_LOOKUPS
        slices = [self.host.of_thread(thread) for thread in threads.tolist()]
        # threads are given because they have events: no slice is empty
        self.first = np.array([self.host.start[rows.start] for rows in slices], np.int64)
        self.last = np.array([self.host.end[rows].max() for rows in slices], np.int64)

    def running_at(self, instant: Int64) -> list[int]:
        """The threads whose first to last event spans `_MIN_SHARE` of the instants."""
        ordered = np.sort(instant)
        within = np.searchsorted(ordered, self.last) - np.searchsorted(ordered, self.first)
        running: list[int] = self.threads[within >= _MIN_SHARE * len(instant)].tolist()
        return running

    def innermost_at(self, thread: int, instant: Int64) -> Int64:
        """Row of the innermost event of a thread at each instant, -1 for none."""
        host = self.host
        rows = host.of_thread(thread)
        at = np.searchsorted(host.start[rows], instant, side="right") - 1 + rows.start
        at = np.where(at >= rows.start, at, -1)
        active = np.flatnonzero(at >= 0)
        while self.left > 0:
            self.left -= 1
            active = active[host.end[at[active]] <= instant[active]]
            if not len(active):
                return np.asarray(at, dtype=np.int64)
            at[active] = self.parent[at[active]]
            active = active[at[active] >= 0]
        return np.full(len(instant), -1, np.int64)
