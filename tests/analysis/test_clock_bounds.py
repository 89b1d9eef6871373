"""Bounds of clocks over hubs against the same bounds between all pairs, closed by the cube of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.clock_bounds import UNBOUNDED, ClockBounds


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 7), st.integers(1, 12))
def test_the_estimate_is_moved_as_little_as_all_pairs_demand(seed: int, traces: int, count: int) -> None:
    """Any times at all: what is found is what the closed bounds of all pairs give, or that there is none."""
    random = np.random.default_rng(seed)
    here = random.random((count, traces)) < 0.6
    start = random.integers(-40, 20, (count, traces))
    end = start + random.integers(-5, 60, (count, traces))
    wanted = random.integers(-60, 60, traces)
    far = 1 << 50
    bounds = np.full((traces, traces), far)
    for row in range(count):
        for a in np.flatnonzero(here[row]).tolist():
            for b in np.flatnonzero(here[row]).tolist():
                if a != b:
                    bounds[a, b] = min(bounds[a, b], end[row, b] - start[row, a])
    np.fill_diagonal(bounds, 0)
    for middle in range(traces):
        bounds = np.minimum(bounds, bounds[:, [middle]] + bounds[[middle], :])
    sparse = ClockBounds.of(start, end, here)
    below = sparse.largest_below(wanted, 0)
    assert (below is None) == bool((np.diagonal(bounds) < 0).any())
    if below is None:
        return
    assert below.tolist() == (bounds + wanted).min(axis=1).tolist()
    above = sparse.reversed().largest_below(-wanted, 0)
    assert above is not None and (-above).tolist() == (wanted - bounds.T).max(axis=1).tolist()
    moved = below + (-above - below) // 2
    apart = moved[:, None] - moved[None, :]
    assert (apart <= bounds).all()
    assert sparse.connected(0).tolist() == (bounds[:, 0] < far // 2).tolist()
    if (wanted[:, None] - wanted[None, :] <= bounds).all():
        assert moved.tolist() == wanted.tolist()


def test_a_long_ring_of_files_contradicts_itself_and_a_chain_does_not() -> None:
    """Each starts one after its neighbour's end allows: only all together are impossible."""
    files = 500
    here, start, end = (np.zeros((files, files), kind) for kind in (np.bool_, np.int64, np.int64))
    for at in range(files):
        # offset of the next is at least one more than that of this file, all around the ring
        here[at, [at, (at + 1) % files]] = True
        start[at, at], end[at, (at + 1) % files] = 1, 0
        start[at, (at + 1) % files], end[at, at] = -(1 << 40), 1 << 40
    top = np.zeros(files, np.int64)
    assert ClockBounds.of(start, end, here).largest_below(top, 0) is None
    assert ClockBounds.of(start, end, here).largest_below(top, 1) is not None
    chain = ClockBounds.of(start[:-1], end[:-1], here[:-1]).largest_below(top, 0)
    assert chain is not None and chain.tolist() == list(range(1 - files, 1))


def test_nobody_who_meets_is_bounded_by_nothing() -> None:
    here = np.eye(3, dtype=np.bool_)
    alone = ClockBounds.of(np.zeros((3, 3), np.int64), np.ones((3, 3), np.int64), here)
    top = np.array([4, UNBOUNDED, -4])
    found = alone.largest_below(top, 0)
    assert found is not None and found.tolist() == top.tolist()
    assert alone.connected(1).tolist() == [False, True, False]
