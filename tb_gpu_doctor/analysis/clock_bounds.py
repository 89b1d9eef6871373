"""What collectives say for certain of clocks: bounds between any two of them, never written down one by one.

Nobody is done before the last has started: each collective bounds the offset of every trace that took part by that of
every other. These are difference constraints, whose solutions are shortest ways (Bellman 1958, Ford 1956). Written as
a matrix of all pairs they take the square of the traces, closed under combination the cube. Here a collective is one
hub instead: what it asks of a trace is the least that any *other* of its traces allows, so a round over all bounds
takes as long as the list of who took part in what. Contradictions show as a ring of traces each of which pulls the
next one down; rings are looked for in the traces that pulled last (Cherkassky and Goldberg 1999).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.traces.columns import Int64

UNBOUNDED = np.int64(1) << 61
# Rounds between looks for a ring.
_LOOK = 8


@dataclass(frozen=True)
class ClockBounds:
    """Who took part in which collective, and when; one entry for each, those of a collective together.

    Attributes:
        trace: which trace, shape (m,).
        hub: which collective, ascending, shape (m,).
        start: last start over the trace's GPUs, shape (m,).
        end: first end over the trace's GPUs, shape (m,).
        traces: how many there are.
    """

    trace: Int64
    hub: Int64
    start: Int64
    end: Int64
    traces: int

    @classmethod
    def of(cls, start: Int64, first_end: Int64, here: np.ndarray) -> ClockBounds:
        """From times by collective and trace, each of shape (collectives, traces); ``here`` tells who took part."""
        shared = np.flatnonzero(here.sum(axis=1) >= 2)
        hub, trace = np.nonzero(here[shared])
        rows = shared[hub]
        return cls(trace, hub, start[rows, trace], first_end[rows, trace], here.shape[1])

    def among(self, traces: np.ndarray) -> ClockBounds:
        """Those of some traces, shape (traces,), that meet no others."""
        kept = traces[self.trace]
        return ClockBounds(self.trace[kept], self.hub[kept], self.start[kept], self.end[kept], self.traces)

    def reversed(self) -> ClockBounds:
        """The same bounds for offsets with the sign turned."""
        return ClockBounds(self.trace, self.hub, -self.end, -self.start, self.traces)

    def connected(self, trace: int) -> np.ndarray:
        """Which traces are bounded against one, directly or over others, shape (traces,)."""
        top = np.full(self.traces, UNBOUNDED)
        top[trace] = 0
        reached = top < UNBOUNDED
        while len(self.hub):
            hubs = np.zeros(int(self.hub[-1]) + 1, np.bool_)
            hubs[self.hub[reached[self.trace]]] = True
            more = reached.copy()
            more[self.trace[hubs[self.hub]]] = True
            if (more == reached).all():
                break
            reached = more
        return reached

    def largest_below(self, top: Int64, tolerance: int) -> Int64 | None:
        """The largest offsets that are nowhere above ``top`` and obey all bounds; None where no offsets obey them.

        Args:
            top: shape (traces,); `UNBOUNDED` where nothing is asked, which stays where nothing follows either.
            tolerance: by how much each bound is eased.

        Returns:
            Offsets, shape (traces,). With 0 for one trace and nothing asked of the others: how much each can exceed it.
        """
        best = np.array(top, np.int64)
        if not len(self.hub):
            return best
        pull = _Pull(self, tolerance)
        puller = np.full(self.traces, -1, np.int64)
        for number in range(1, self.traces + 1):
            pulled, by = pull.once(best)
            lower = pulled < best
            if not lower.any():
                return best
            best = np.where(lower, pulled, best)
            puller = np.where(lower, by, puller)
            if number % _LOOK == 0 and _has_ring(puller):
                return None
        return None


class _Pull:
    """One round over all bounds."""

    def __init__(self, bounds: ClockBounds, tolerance: int) -> None:
        self._trace = bounds.trace
        self._end = bounds.end
        self._ease = tolerance - bounds.start
        first = np.flatnonzero(np.diff(bounds.hub, prepend=-1))
        self._hubs = first
        self._sizes = np.diff(first, append=len(bounds.hub))
        self._by_trace = np.argsort(bounds.trace, kind="stable")
        ordered = bounds.trace[self._by_trace]
        self._groups = np.flatnonzero(np.diff(ordered, prepend=-1))
        self._named = ordered[self._groups]
        self._group_sizes = np.diff(self._groups, append=len(ordered))
        self._traces = bounds.traces

    def once(self, offsets: Int64) -> tuple[Int64, Int64]:
        """The most that bounds allow each trace by the others' ``offsets``, and which one it is that allows no more."""
        own = offsets[self._trace]
        allowed = np.where(own < UNBOUNDED, self._end + own, UNBOUNDED)
        least, where = _least(allowed, self._hubs, self._sizes)
        # nobody is bounded by himself: to the one that allows least the second one counts
        others = allowed.copy()
        others[where] = UNBOUNDED
        second, second_where = _least(others, self._hubs, self._sizes)
        limit, by = np.repeat(least, self._sizes), np.repeat(where, self._sizes)
        limit[where], by[where] = second, second_where
        limit = np.where(limit < UNBOUNDED, limit + self._ease, UNBOUNDED)[self._by_trace]
        tightest, at = _least(limit, self._groups, self._group_sizes)
        pulled = np.full(self._traces, UNBOUNDED)
        pulled[self._named] = tightest
        puller = np.full(self._traces, -1, np.int64)
        puller[self._named] = self._trace[by[self._by_trace[at]]]
        return pulled, puller


def _least(values: Int64, first: Int64, sizes: Int64) -> tuple[Int64, Int64]:
    """The least of each group of neighbours, and where it stands first; both of shape (groups,)."""
    least = np.minimum.reduceat(values, first)
    hits = np.flatnonzero(values == np.repeat(least, sizes))
    group = np.repeat(np.arange(len(first)), sizes)[hits]
    leading = np.flatnonzero(np.diff(group, prepend=-1))
    return least, hits[leading]


def _has_ring(puller: Int64) -> bool:
    """Whether following who pulled whom never ends; -1 ends it."""
    stop = len(puller)
    ahead = np.append(np.where(puller < 0, stop, puller), stop)
    for _ in range(stop.bit_length()):
        ahead = ahead[ahead]
    return bool((ahead != stop).any())
