"""Distinct values of big integer columns.

numpy's own `unique` hashes, which is many times slower on columns of millions of rows than a
table (ids are dense) or a sort (times come in long sorted runs).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.traces.columns import Int64

_Column = TypeVar("_Column", bound=np.integer[Any])
_TABLE_SLACK = 4096


def distinct(values: NDArray[_Column]) -> NDArray[_Column]:
    """The distinct values, rising; of the same type."""
    if not len(values):
        return values[:0]
    low, span = _span(values)
    if span <= 4 * len(values) + _TABLE_SLACK:
        mark = np.zeros(span, np.bool_)
        mark[values.astype(np.int64) - low] = True
        return (np.flatnonzero(mark) + low).astype(values.dtype)
    ordered = np.sort(values, kind="stable")
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]


def group(values: NDArray[_Column]) -> tuple[NDArray[_Column], Int64]:
    """(distinct values rising, index into them per row)."""
    if not len(values):
        return values[:0], np.zeros(0, np.int64)
    low, span = _span(values)
    if span <= 4 * len(values) + _TABLE_SLACK:
        shifted = values.astype(np.int64) - low
        mark = np.zeros(span, np.bool_)
        mark[shifted] = True
        rank = np.cumsum(mark, dtype=np.int64) - 1
        return (np.flatnonzero(mark) + low).astype(values.dtype), rank[shifted]
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    new = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    index = np.empty(len(values), np.int64)
    index[order] = np.cumsum(new) - 1
    return ordered[new], index


def rows_by(values: NDArray[_Column]) -> Iterator[tuple[int, Int64]]:
    """(value, its rows in rising order) for each distinct value, rising; one sort however many there are."""
    if not len(values):
        return
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    for low, high in zip(first.tolist(), [*first[1:].tolist(), len(order)], strict=True):
        yield int(ordered[low]), order[low:high]


def _span(values: NDArray[np.integer[Any]]) -> tuple[int, int]:
    low, high = int(values.min()), int(values.max())
    return low, high - low + 1
