"""Offsets between clocks: the planted truth lies inside the interval, and the estimate is near it.

Bounds of clocks over hubs against the same bounds between all pairs, closed by the cube of them.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tb_gpu_doctor.analysis import clocks as clocks_module
from tb_gpu_doctor.analysis.clocks import UNBOUNDED, ClockBounds, Clocks, find_clocks
from tb_gpu_doctor.analysis.collectives import CollectiveKind
from tb_gpu_doctor.analysis.job_collectives import Collectives, match_collectives
from tests.analysis.jobs import Job, random_job
from tests.analysis.small_traces import US
from tests.hosts import facts_of


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


def clocks_of(job: Job) -> tuple[Clocks, Collectives]:
    found = match_collectives(facts_of(*job.analysed()))
    assert found is not None
    return find_clocks(found, len(job.offsets)), found


def truth(job: Job, reference: int) -> np.ndarray:
    """What must be added to each file's times."""
    return np.array([(job.offsets[reference] - own) * US for own in job.offsets], np.int64)


def pairwise(found: Collectives, a: int, b: int) -> tuple[int, int]:
    """Bounds of (offset a - offset b) by looking at every pair of GPUs of every collective alone."""
    low, high = -(1 << 62), 1 << 62
    for k in range(len(found)):
        for i in np.flatnonzero(found.trace == a).tolist():
            for j in np.flatnonzero(found.trace == b).tolist():
                if found.present[k, i] and found.present[k, j]:
                    low = max(low, int(found.start[k, j] - found.end[k, i]))
                    high = min(high, int(found.end[k, j] - found.start[k, i]))
    return low, high


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(1, 3), st.integers(0, 40))
def test_the_truth_lies_inside_the_interval(seed: int, hosts: int, gpus: int, spread: int) -> None:
    job = random_job(seed, hosts, gpus, end_spread=spread)
    clocks, found = clocks_of(job)
    assert clocks.all_known and clocks.tolerance == 0 and clocks.problem is None
    true = truth(job, clocks.reference)
    assert (clocks.low <= true).all() and (true <= clocks.high).all()
    assert (clocks.low <= clocks.offset).all() and (clocks.offset <= clocks.high).all()
    assert clocks.offset[clocks.reference] == 0 == clocks.error[clocks.reference]
    # the median of ends that scatter evenly is far better than the bounds
    assert (np.abs(clocks.offset - true) <= (spread / 2 + 1) * US).all()
    for host in range(hosts):
        low, high = pairwise(found, host, clocks.reference)
        assert low <= clocks.low[host] and clocks.high[host] <= high, "third files only narrow it"
    if hosts == 2:
        other = 1 - clocks.reference
        assert (clocks.low[other], clocks.high[other]) == pairwise(found, other, clocks.reference)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_all_pairs_agree_with_causality(seed: int) -> None:
    clocks, found = clocks_of(random_job(seed, hosts=4, gpus=2, end_spread=30))
    start, end = found.start + clocks.offset[found.trace], found.end + clocks.offset[found.trace]
    assert (start.max(axis=1) <= end.min(axis=1)).all()


def test_an_estimate_beyond_the_bounds_is_moved_inside() -> None:
    """One rank always ends late by more than it can: only causality knows."""
    job = Job([0, 0])
    for k in range(10):
        base = 100 * k
        # ends of file 1 are 30 late, yet it starts 5 before the other's end in each second one
        job.collective([base + 20, base + 35], [base + 40, base + 70])
    clocks, _ = clocks_of(job)
    assert clocks.low[1] <= 0 <= clocks.high[1]
    assert clocks.low[1] == -50 * US and clocks.high[1] == 5 * US
    assert clocks.offset[1] == -30 * US


def test_times_that_are_a_few_microseconds_wrong_are_forgiven() -> None:
    job = random_job(1, hosts=2, count=20)
    job.collective([job.ends[-1][0] + 100, job.ends[-1][1] + 103], [job.ends[-1][0] + 101, job.ends[-1][1] + 110])
    job.ends[-1][0] = job.starts[-1][1] - 4
    job.starts[-1][0] = job.ends[-1][0] - 1
    clocks, _ = clocks_of(job)
    assert clocks.all_known
    assert clocks.low[1] - 5 * US <= truth(job, 0)[1] <= clocks.high[1] + 5 * US


def test_different_jobs_have_no_offset() -> None:
    first, second = random_job(1, hosts=2, count=40), random_job(2, hosts=2, count=40)
    first.starts = [[a[0], b[1]] for a, b in zip(first.starts, second.starts, strict=True)]
    first.ends = [[a[0], b[1]] for a, b in zip(first.ends, second.ends, strict=True)]
    clocks, _ = clocks_of(first)
    assert clocks.problem == "contradiction" and not clocks.known.all()
    assert (clocks.offset == 0).all()


def test_a_wrong_match_among_many_is_left_out() -> None:
    job = random_job(4, hosts=3, count=60)
    found = match_collectives(facts_of(*job.analysed()))
    assert found is not None
    found.start[30, 1] += 5_000 * US
    found.end[30, 1] += 5_000 * US
    clocks = find_clocks(found, 3)
    assert clocks.problem is None
    true = truth(job, clocks.reference)
    assert (clocks.low <= true).all() and (true <= clocks.high).all()


def test_a_contradiction_among_files_that_never_meet_the_others_takes_nothing_from_them() -> None:
    job = random_job(9, hosts=4, count=40)
    found = match_collectives(facts_of(*job.analysed()))
    assert found is not None and found.present.all()
    found.row[::2, 2:] = -1
    found.row[1::2, :2] = -1
    apart = find_clocks(found, 4)
    assert apart.known.tolist() == [True, True, False, False] and apart.problem is None
    found.start[1::4, 3] += 50_000 * US
    found.end[1::4, 3] += 50_000 * US
    clocks = find_clocks(found, 4)
    assert clocks.known.tolist() == [True, True, False, False] and clocks.problem is None
    for one, other in ((clocks.offset, apart.offset), (clocks.low, apart.low), (clocks.high, apart.high)):
        assert one.tolist() == other.tolist()


def test_what_need_not_meet_bounds_nothing() -> None:
    _, found = clocks_of(random_job(1, hosts=2))
    sent = dataclasses.replace(found, kind=np.full(len(found), CollectiveKind.SEND_RECEIVE))
    clocks = find_clocks(sent, 2)
    assert clocks.problem == "no_collectives" and clocks.known.tolist() == [True, False]


def test_files_that_meet_nobody() -> None:
    clocks = find_clocks(None, 3)
    assert clocks.problem == "no_collectives" and not clocks.all_known
    assert find_clocks(None, 1).problem is None and find_clocks(None, 1).all_known


def test_an_offset_over_a_third_file() -> None:
    """0 meets 1 and 1 meets 2: so 0 and 2 are bounded as well, less narrowly."""
    job = random_job(9, hosts=3, count=40)
    found = match_collectives(facts_of(*job.analysed()))
    assert found is not None and found.present.all()
    whole = find_clocks(found, 3)
    found.row[::2, 2] = -1
    found.row[1::2, 0] = -1
    clocks = find_clocks(found, 3)
    true = truth(job, clocks.reference)
    assert clocks.all_known
    assert (clocks.low <= true).all() and (true <= clocks.high).all()
    assert clocks.error.max() >= whole.error.max()
    assert pairwise(found, 0, 2) == (-(1 << 62), 1 << 62), "they never met"


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(20, 300))
def test_clocks_that_run_unevenly_are_straightened(seed: int, hosts: int, ppm: int) -> None:
    """A long job: without the drift the bounds contradict each other."""
    rng = np.random.default_rng(seed)
    job = random_job(seed, hosts, gpus=2, count=120, end_spread=2)
    found = match_collectives(facts_of(*job.analysed()))
    assert found is not None
    stretch = 1_000
    drift = np.concatenate(([0.0], rng.choice((-1, 1), hosts - 1) * ppm * 1e-6))
    ahead = np.array([job.offsets[trace] * US for trace in found.trace], np.int64)
    base = (found.start - ahead).min(axis=1, keepdims=True)

    def apart(times: np.ndarray) -> np.ndarray:
        """The same collectives far apart on the true clock, seen by clocks that drift."""
        true = times - ahead + base * (stretch - 1)
        return np.rint(true * (1 + drift[found.trace])).astype(np.int64) + ahead

    late = dataclasses.replace(found, start=apart(found.start), end=apart(found.end))
    clocks = find_clocks(late, hosts)
    assert clocks.all_known and clocks.problem is None and clocks.drift is not None
    start = late.start + clocks.shift(late.trace, late.start)
    end = late.end + clocks.shift(late.trace, late.end)
    true_behind = (found.start - ahead) - (found.start - ahead).min(axis=1, keepdims=True)
    behind = start - start.min(axis=1, keepdims=True)
    assert np.abs(behind - true_behind).max() <= int(clocks.error.max()) + 20 * US
    assert (start.max(axis=1) <= end.min(axis=1) + 2 * clocks.tolerance).all()
    relative = (1 + drift[clocks.reference]) / (1 + drift) - 1
    assert np.abs(clocks.drift - relative).max() <= 2e-6


def test_nonsense_is_no_drift() -> None:
    """Collectives that are none contradict each other, whatever the clocks' speeds."""
    rng = np.random.default_rng(5)
    job = random_job(5, 2, count=60)
    found = match_collectives(facts_of(*job.analysed()))
    assert found is not None
    moved = rng.permutation(len(found))
    shuffled = dataclasses.replace(
        found,
        start=np.stack([found.start[:, 0], found.start[moved, 1]], axis=1),
        end=np.stack([found.end[:, 0], found.end[moved, 1]], axis=1),
    )
    clocks = find_clocks(shuffled, 2)
    assert clocks.problem == "contradiction" and clocks.drift is None


def closed(found: Collectives, traces: int, tolerance: int) -> list[list[int]] | None:
    """Between each two files the tightest bound that follows from all, by the cube of them; None if they contradict."""
    far = 1 << 61
    most = [[0 if a == b else far for b in range(traces)] for a in range(traces)]
    for a in range(traces):
        for b in range(traces):
            if a != b and pairwise(found, a, b)[1] < 1 << 62:
                most[a][b] = pairwise(found, a, b)[1] + tolerance
    for middle in range(traces):
        for a in range(traces):
            for b in range(traces):
                if most[a][middle] < far and most[middle][b] < far:
                    most[a][b] = min(most[a][b], most[a][middle] + most[middle][b])
    return None if any(most[a][a] < 0 for a in range(traces)) else most


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 2), st.integers(0, 40), st.sampled_from([0, 1, 4, 12, 40])
)
def test_bounds_are_those_of_all_pairs_closed(seed: int, hosts: int, gpus: int, spread: int, wrong: int) -> None:
    """Times that are wrong by some microseconds, within or beyond what is forgiven; not everybody meets everybody."""
    random = np.random.default_rng(seed)
    found = match_collectives(facts_of(*random_job(seed, hosts, gpus, count=12, end_spread=spread).analysed()))
    assume(found is not None)
    assert found is not None
    late = random.integers(0, wrong + 1, found.end.shape) * US
    found = dataclasses.replace(found, end=found.end - np.where(found.present, late, 0))
    if seed % 2:
        # of each collective two files only, so that some meet over others or not at all
        for row in range(len(found)):
            kept = random.choice(hosts, 2, replace=False)
            found.row[row, ~np.isin(found.trace, kept)] = -1
    clocks = find_clocks(found, hosts)
    agreeing = [(tolerance, closed(found, hosts, tolerance)) for tolerance in clocks_module.TOLERANCES]
    agreeing = [(tolerance, bounds) for tolerance, bounds in agreeing if bounds is not None]
    if not agreeing:
        return  # by other means: clocks that drift, collectives left out
    tolerance, bounds = agreeing[0]
    assert bounds is not None and clocks.tolerance == tolerance and clocks.drift is None
    own = clocks.reference
    for host in range(hosts):
        assert clocks.known[host] == (bounds[host][own] < 1 << 61)
        if clocks.known[host]:
            assert (int(clocks.low[host]), int(clocks.high[host])) == (-bounds[own][host], bounds[host][own])
            for other in np.flatnonzero(clocks.known).tolist():
                assert clocks.offset[host] - clocks.offset[other] <= bounds[host][other]
