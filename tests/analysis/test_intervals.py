"""Arithmetic on interval sets against counting every single picosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis import intervals

SPANS = st.lists(st.tuples(st.integers(-20, 40), st.integers(0, 12)), max_size=12)


def arrays(spans: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    spans = sorted(spans)
    start = np.array([s for s, _ in spans], np.int64)
    return start, start + np.array([d for _, d in spans], np.int64)


def points(pair: tuple[np.ndarray, np.ndarray]) -> set[int]:
    return {t for s, e in zip(*pair, strict=True) for t in range(int(s), int(e))}


def is_normal(pair: tuple[np.ndarray, np.ndarray], touching: bool = False) -> bool:
    """Disjoint, rising, none empty; ``touching``: neighbours may share a border."""
    start, end = pair
    between = start[1:] >= end[:-1] if touching else start[1:] > end[:-1]
    return bool((end > start).all() and between.all())


@given(SPANS)
def test_union_holds_every_covered_point_once(spans: list[tuple[int, int]]) -> None:
    given_ = arrays(spans)
    result = intervals.union(*given_)
    assert is_normal(result)
    assert points(result) == points(given_)
    assert intervals.measure(result) == len(points(given_))


@given(SPANS, st.integers(-30, 60), st.integers(0, 40))
def test_clip_and_complement_share_a_window_out(spans: list[tuple[int, int]], low: int, length: int) -> None:
    union = intervals.union(*arrays(spans))
    window = set(range(low, low + length))
    inside = intervals.clip(union, low, low + length)
    rest = intervals.complement(union, low, low + length)
    assert is_normal(inside) and is_normal(rest)
    assert points(inside) == points(union) & window
    assert points(rest) == window - points(union)
    assert intervals.measure(inside) + intervals.measure(rest) == length


@given(SPANS, st.lists(st.integers(-40, 70), max_size=20))
def test_covered_before_counts_points(spans: list[tuple[int, int]], at: list[int]) -> None:
    union = intervals.union(*arrays(spans))
    covered = intervals.covered_before(union, np.array(at, np.int64))
    assert covered.tolist() == [sum(t < instant for t in points(union)) for instant in at]


def test_the_empty_set() -> None:
    nothing = intervals.empty_set()
    assert intervals.measure(nothing) == 0
    assert intervals.covered_before(nothing, np.array([5], np.int64)).tolist() == [0]
    start, end = intervals.complement(nothing, 3, 9)
    assert (start.tolist(), end.tolist()) == ([3], [9])
    assert intervals.complement(nothing, 3, 3)[0].tolist() == []


def test_a_week_of_picoseconds_fits() -> None:
    week = 7 * 24 * 3600 * 10**12
    union = intervals.union(np.array([-week, 0], np.int64), np.array([-1, week], np.int64))
    assert intervals.measure(union) == 2 * week - 1


@given(st.lists(st.integers(0, (1 << 63) - 1)))
def test_sums_past_64_bits(values: list[int]) -> None:
    assert intervals.exact_sum(np.array(values, np.int64)) == sum(values)
