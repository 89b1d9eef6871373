"""Distinct values and their rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.traces.grouping import distinct, group, rows_by

COLUMNS = st.lists(st.one_of(st.integers(-3, 3), st.integers(-(1 << 62), 1 << 62)))


@given(COLUMNS)
def test_as_found_one_by_one(values: list[int]) -> None:
    column = np.array(values, np.int64)
    expected = {v: [i for i, w in enumerate(values) if w == v] for v in sorted(set(values))}
    assert distinct(column).tolist() == list(expected)
    known, index = group(column)
    assert known.tolist() == list(expected) and known[index].tolist() == values
    assert {value: rows.tolist() for value, rows in rows_by(column)} == expected
    assert [value for value, _ in rows_by(column)] == list(expected)
