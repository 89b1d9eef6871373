"""How the clocks of several files lie to each other, from the collectives that their GPUs share.

What is certain: no GPU leaves an all-reduce (all-gather, reduce-scatter, all-to-all) before the last has entered it.
Each matched collective so bounds the offset between two clocks from both sides, and all of them together leave an
interval. What is likely: such collectives end on all GPUs at nearly the same time. The estimate is the median over the
ends, moved into the interval where it lies outside. GPUs of one file share its clock and are never shifted against
each other.

The bounds are difference constraints, whose solutions are shortest paths (Bellman 1958, Ford 1956). Written as a matrix
of all pairs they take the square of the number of traces, closed under combination the cube. Here a collective is one
hub instead: what it asks of a trace is the least that any *other* of its traces allows, so a round over all bounds
takes as long as the list of who took part in what. Contradictions show as a ring of traces each of which pulls the
next one down; rings are looked for among the traces that pulled last (Cherkassky and Goldberg 1999).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tb_gpu_doctor.analysis.collectives import NEEDS_ALL
from tb_gpu_doctor.analysis.job_collectives import Collectives
from tb_gpu_doctor.analysis.results import Float64
from tb_gpu_doctor.traces.columns import PS_PER_US, Int32, Int64

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


# Times of a GPU are converted to the host's clock by the profiler, with an error of a few microseconds.
TOLERANCES = (0, 5 * PS_PER_US, 20 * PS_PER_US)
_ROUNDS = 4
# What part of the collectives may contradict the others, and be left out.
_MAX_WRONG = 0.2
# Crystals are off by some ten millionths, never by a thousandth; and fewer collectives show no trend.
_MAX_DRIFT = 1e-3
_MIN_FOR_DRIFT = 9

ClockProblem = Literal["no_collectives", "contradiction"]


@dataclass(frozen=True)
class Clocks:
    """Offsets to add to a trace's times to get those of the reference trace.

    Attributes:
        reference: index of the trace that keeps its times.
        offset: per trace, shape (n,); 0 where unknown.
        low, high: what each offset must lie between for causality, shape (n,).
        known: whether the offset of a trace is bounded from both sides, shape (n,).
        collectives: how many bounded each offset, shape (n,).
        tolerance: how much the profiler's times had to be taken as uncertain for the bounds to agree.
        problem: why no offset could be told, None when some could.
        drift: by how much a trace's clock must be stretched besides, as a fraction, shape (n,); mostly 0.
        pivot: time on the trace's clock at which the offset is that without any stretching, shape (n,).
    """

    reference: int
    offset: Int64
    low: Int64
    high: Int64
    known: np.ndarray
    collectives: Int64
    tolerance: int
    problem: ClockProblem | None = None
    drift: Float64 | None = None
    pivot: Int64 | None = None

    def shift(self, trace: Int32 | Int64, time: Int64) -> Int64:
        """What to add to times of traces to get those of the reference; ``trace`` and ``time`` broadcast."""
        if self.drift is None or self.pivot is None:
            return np.asarray(np.broadcast_to(self.offset[trace], np.shape(time)), dtype=np.int64)
        stretched = np.rint(self.drift[trace] * (time - self.pivot[trace])).astype(np.int64)
        return np.asarray(self.offset[trace] + stretched, dtype=np.int64)

    @property
    def error(self) -> Int64:
        """Width of the interval that holds each offset, shape (n,); 0 for the reference."""
        return np.where(self.known, self.high - self.low, 0)

    @property
    def all_known(self) -> bool:
        """Whether every trace can be put on the reference's clock."""
        return bool(self.known.all())


def find_clocks(collectives: Collectives | None, traces: int) -> Clocks:
    """The offsets of ``traces`` clocks; the reference is the trace with most matched collectives.

    Where the bounds contradict each other beyond the profiler's own uncertainty, no offset is given.
    """
    nothing = np.zeros(traces, np.int64)
    if collectives is None:
        alone = np.arange(traces) == 0
        return Clocks(0, nothing, nothing, nothing, alone, nothing, 0, "no_collectives" if traces > 1 else None)
    used = collectives.only(np.isin(collectives.kind, NEEDS_ALL))
    start, last, first_end, here = _per_trace(used, traces)
    count = np.where(here.sum(axis=1, keepdims=True) >= 2, here, False).sum(axis=0).astype(np.int64)
    reference = int(np.argmax(count))
    alone = np.arange(traces) == reference
    if not count.any():
        return Clocks(reference, nothing, nothing, nothing, alone, count, 0, "no_collectives" if traces > 1 else None)
    bounds = ClockBounds.of(start, first_end, here)
    known = bounds.connected(reference)
    estimate = _estimate(last, here, reference, known)
    # what those who never meet the reference say of one another is nothing to it
    bounds = bounds.among(known)
    fitted = _fitted(bounds, estimate)
    drift = pivot = None
    if fitted is None:
        # Long recordings of clocks that do not run equally fast.
        slope, middle = _drifts(last, here, reference)
        straight = [_stretched(times, here, slope, middle) for times in (start, last, first_end)]
        bounds = ClockBounds.of(straight[0], straight[2], here).among(known)
        estimate = _estimate(straight[1], here, reference, known)
        fitted = _fitted(bounds, estimate)
        if fitted is not None:
            drift, pivot = slope, middle
    if fitted is None:
        # A few collectives may have been matched wrongly: those that do not even overlap once aligned.
        linked = here[:, [reference]].T @ here > 0
        offset = _estimate(last, here, reference, linked[0])
        latest = np.where(here, start + offset, -UNBOUNDED).max(axis=1)
        earliest = np.where(here, first_end + offset, UNBOUNDED).min(axis=1)
        sound = latest <= earliest + TOLERANCES[-1]
        if np.count_nonzero(~sound) <= _MAX_WRONG * len(sound):
            start, last, first_end, here = start[sound], last[sound], first_end[sound], here[sound]
            bounds = ClockBounds.of(start, first_end, here)
            known = bounds.connected(reference)
            bounds = bounds.among(known)
            fitted = _fitted(bounds, _estimate(last, here, reference, known))
    if fitted is None:
        return Clocks(reference, nothing, nothing, nothing, alone, count, 0, "contradiction")
    tolerance, offset = fitted
    low, high = _between(bounds, reference, tolerance)
    return Clocks(
        reference,
        np.where(known, offset - offset[reference], 0),
        np.where(known, low, 0),
        np.where(known, high, 0),
        known,
        count,
        tolerance,
        None if known.sum() > 1 or traces == 1 else "no_collectives",
        drift,
        pivot,
    )


def _fitted(bounds: ClockBounds, estimate: Int64) -> tuple[int, Int64] | None:
    """The smallest tolerance with which the bounds agree, and the estimate moved into them; None if they do with none.

    The middle between the largest offsets that obey the bounds and are nowhere above the estimate, and the smallest
    ones that are nowhere below it (McShane 1934, Whitney 1934): no offsets that obey them lie nearer to it, but for a
    shift of all. An estimate that obeys them stays.
    """
    for tolerance in TOLERANCES:
        below = bounds.largest_below(estimate, tolerance)
        above = None if below is None else bounds.reversed().largest_below(-estimate, tolerance)
        if below is not None and above is not None:
            return tolerance, below + (-above - below) // 2
    return None


def _between(bounds: ClockBounds, reference: int, tolerance: int) -> tuple[Int64, Int64]:
    """What each offset lies between if that of the reference is 0; there is no contradiction."""
    top = np.full(bounds.traces, UNBOUNDED)
    top[reference] = 0
    high = bounds.largest_below(top, tolerance)
    low = bounds.reversed().largest_below(top, tolerance)
    assert high is not None and low is not None
    return -low, high


def _drifts(last: Int64, here: np.ndarray, reference: int) -> tuple[Float64, Int64]:
    """How much faster each trace's clock must run, as a fraction, and the middle of its collectives' ends.

    From the ends shared with the reference: their distance in the last third against that in the first.
    """
    traces = last.shape[1]
    slope, middle = np.zeros(traces), np.zeros(traces, np.int64)
    for trace in range(traces):
        mine = last[here[:, trace], trace]
        if len(mine):
            middle[trace] = _median(mine)
        shared = here[:, trace] & here[:, reference]
        if trace == reference or np.count_nonzero(shared) < _MIN_FOR_DRIFT:
            continue
        own = last[shared, trace]
        order = np.argsort(own, kind="stable")
        own, distance = own[order], (last[shared, reference] - last[shared, trace])[order]
        third = len(own) // 3
        span = _median(own[-third:]) - _median(own[:third])
        if span > 0:
            found = (_median(distance[-third:]) - _median(distance[:third])) / span
            slope[trace] = found if abs(found) <= _MAX_DRIFT else 0.0
    return slope, middle


def _stretched(times: Int64, here: np.ndarray, slope: Float64, middle: Int64) -> Int64:
    moved = np.rint(slope * np.where(here, times - middle, 0)).astype(np.int64)
    return np.where(here, times + moved, times)


def _per_trace(used: Collectives, traces: int) -> tuple[Int64, Int64, Int64, np.ndarray]:
    """Per collective and trace: last start, last end, first end over its GPUs; whether it took part."""
    shape = (len(used), traces)
    low, high = -UNBOUNDED, UNBOUNDED
    start, last, first = np.full(shape, low), np.full(shape, low), np.full(shape, high)
    here = np.zeros(shape, np.bool_)
    present = used.present
    for column, trace in enumerate(used.trace.tolist()):
        there = present[:, column]
        here[:, trace] |= there
        start[there, trace] = np.maximum(start[there, trace], used.start[there, column])
        last[there, trace] = np.maximum(last[there, trace], used.end[there, column])
        first[there, trace] = np.minimum(first[there, trace], used.end[there, column])
    return start, last, first, here


def _estimate(last: Int64, here: np.ndarray, reference: int, known: np.ndarray) -> Int64:
    """Offsets that bring the ends of each collective together, by medians, which outliers do not move."""
    traces = last.shape[1]
    offset = np.zeros(traces, np.int64)
    together = here & here[:, [reference]]
    for trace in range(traces):
        rows = together[:, trace]
        if rows.any():
            offset[trace] = _median(last[rows, reference] - last[rows, trace])
    for _ in range(_ROUNDS):
        common = np.where(here & known, (last + offset).astype(np.float64), np.nan)
        usable = np.flatnonzero((here & known).sum(axis=1) >= 2)
        if not len(usable):
            break
        base = np.nanmin(common[usable])
        center = np.nanmedian(common[usable] - base, axis=1)
        moved = offset.copy()
        for trace in np.flatnonzero(known).tolist():
            rows = here[usable, trace]
            if rows.any():
                moved[trace] = offset[trace] + _median(
                    np.rint(center[rows] - (common[usable[rows], trace] - base)).astype(np.int64)
                )
        moved -= moved[reference]
        if (moved == offset).all():
            break
        offset = moved
    return offset


def _median(values: Int64) -> int:
    ordered = np.sort(values)
    low, high = int(ordered[(len(ordered) - 1) // 2]), int(ordered[len(ordered) // 2])
    return low + (high - low) // 2
