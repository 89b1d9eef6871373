"""The innermost interval around a point, against a search one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.traces.enclosing import last_above


@given(
    values=st.lists(st.integers(0, 20), max_size=70),
    queries=st.lists(st.tuples(st.integers(-1, 69), st.integers(-1, 21)), max_size=40),
)
def test_the_last_value_above_a_bound(values: list[int], queries: list[tuple[int, int]]) -> None:
    queries = [(min(last, len(values) - 1), bound) for last, bound in queries]
    last, bounds = np.array(queries, np.int64).reshape(-1, 2).T
    found = last_above(np.array(values, np.int64), last, bounds)
    wanted = [max((at for at in range(last + 1) if values[at] > bound), default=-1) for last, bound in queries]
    assert found.tolist() == wanted


def test_far_back() -> None:
    values = np.array([9] + [1] * 100_000, np.int64)
    assert last_above(values, np.array([100_000, 50, 0, -1]), np.array([5, 9, 8, 0])).tolist() == [0, -1, 0, -1]
