"""Find the traced thread behind a thread that only shows driver calls.

Drivers know threads by number, the framework's own events by name, and newer files keep the two
apart: `Host Threads/1083` holds the launches that `py_xla_execute/-4106831565636175816` made. What
encloses a launch, and what the thread did before it, is recorded on the latter only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.host_tree import enclosing, producer_of
from tb_gpu_doctor.traces.columns import Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct


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
