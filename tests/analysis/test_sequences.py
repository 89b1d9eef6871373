"""The longest common subsequence against the textbook table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.sequences import MAX_DIFFERENCES, common_subsequence

SEQUENCES = st.lists(st.integers(0, 3), max_size=14)


def longest(a: Sequence[int], b: Sequence[int]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def check(a: Sequence[int], b: Sequence[int]) -> int:
    """It is a common subsequence; its length."""
    x, y = common_subsequence(np.array(a, np.int64), np.array(b, np.int64))
    assert x.shape == y.shape
    assert (np.diff(x) > 0).all() and (np.diff(y) > 0).all()
    assert [a[i] for i in x] == [b[j] for j in y]
    return len(x)


@given(SEQUENCES, SEQUENCES)
def test_it_is_a_longest_common_subsequence(a: list[int], b: list[int]) -> None:
    assert check(a, b) == longest(a, b)


def test_a_few_lost_ones_among_many() -> None:
    rng = np.random.default_rng(1)
    whole = rng.integers(0, 5, 20_000)
    lost = rng.choice(20_000, 40, replace=False)
    assert check(np.delete(whole, lost).tolist(), whole.tolist()) == 20_000 - 40


def test_what_differs_everywhere_is_not_worth_the_time() -> None:
    a, b = [0, 0, *[1, 2] * MAX_DIFFERENCES, 3], [0, 0, *[4, 5] * MAX_DIFFERENCES, 3]
    assert check(a, b) == 3, "the common beginning and end"
