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
    for thread in driver:
        mine = host.of_thread(thread)
        calls = rows[mine][host.correlation[mine] > 0]
        if not len(calls):
            continue
        best = _best_caller(trace, parent, calls, others)
        if best >= 0:
            inside = _innermost_at(trace, parent, best, host.start[calls])
            rows[calls] = np.where(inside >= 0, inside, calls)
    return rows


def _best_caller(trace: Trace, parent: Int64, calls: Int64, others: list[int]) -> int:
    host = trace.host_events
    sample = calls[:: max(len(calls) // _SAMPLE, 1)]
    scores = []
    for thread in others:
        inside = _innermost_at(trace, parent, thread, host.start[sample])
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


def _innermost_at(trace: Trace, parent: Int64, thread: int, instant: Int64) -> Int64:
    """Row of the innermost event of a thread at each instant, -1 for none."""
    host = trace.host_events
    rows = host.of_thread(thread)
    at = np.searchsorted(host.start[rows], instant, side="right") - 1 + rows.start
    at = np.where(at >= rows.start, at, -1)
    while True:
        over = (at >= 0) & (host.end[np.maximum(at, 0)] <= instant)
        if not over.any():
            return np.asarray(at, dtype=np.int64)
        at = np.where(over, parent[np.maximum(at, 0)], at)
