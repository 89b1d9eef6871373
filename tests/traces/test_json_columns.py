"""What is numbered in the order in which it is met, against a walk over the rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.traces.json_columns import Numbered, first_met


@pytest.mark.parametrize("bound", [21, 10**12])
@given(codes=st.lists(st.integers(0, 20), max_size=60))
def test_first_met(bound: int, codes: list[int]) -> None:
    distinct, which = first_met(np.array(codes, np.int64), bound)
    met = list(dict.fromkeys(codes))
    assert distinct.tolist() == met and which.tolist() == [met.index(code) for code in codes]


def test_numbered() -> None:
    numbered = Numbered()
    assert numbered.of(["b", None, "a", "b", (1, 2), (1, 2)], 6).tolist() == [0, 1, 2, 0, 3, 3]
    assert list(numbered) == ["b", None, "a", (1, 2)] and not len(numbered.of([], 0))
