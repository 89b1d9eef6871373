"""Series of bounded length keep their extremes, their mean and their place in time; against a plain loop."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.telemetry.series import level

START = 1_700_000_000_000_000_000
VALUES = st.one_of(st.floats(-1e12, 1e12), st.just(math.nan))


def test_few_samples_stay_as_they_are() -> None:
    wall = np.array([1, 5, 9], np.int64)
    found = level(wall, np.array([0, 1, 2]), np.array([1.0, np.nan, 3.0]), 2)
    assert not found.folded and found.samples == 2
    assert found.wall_ns.tolist() == [1, 9] and found.mean.tolist() == [1, 3] and found.step.tolist() == [0, 2]


@given(
    st.lists(st.tuples(st.integers(1, 10**12), VALUES, st.integers(-1, 99)), min_size=1, max_size=120),
    st.integers(2, 9),
    st.sampled_from(["mean", "counter", "bits"]),
)
def test_parts_are_what_a_loop_makes_of_them(rows: list[tuple[int, float, int]], points: int, kind: str) -> None:
    wall = START + np.cumsum([row[0] for row in rows]).astype(np.int64)
    values = np.array([abs(row[1]) // 1e6 if kind == "bits" else row[1] for row in rows])
    step = np.array([row[2] for row in rows], np.int64)
    known = [(int(w), float(v), int(s)) for w, v, s in zip(wall, values, step, strict=True) if math.isfinite(v)]
    found = level(wall, step, values, points, counter=kind == "counter", bits=kind == "bits")
    assert found.samples == len(known) and len(found.mean) <= max(points, 0 if found.folded else len(known))
    if not found.folded:
        assert len(known) <= points
        return
    length = -(-(known[-1][0] - known[0][0] + 1) // points)
    parts: dict[int, list[tuple[int, float, int]]] = {}
    for row in known:
        parts.setdefault((row[0] - known[0][0]) // length, []).append(row)
    assert len(parts) == len(found.mean)
    for index, rows_ in enumerate(parts.values()):
        inside = [row[1] for row in rows_]
        steps = [row[2] for row in rows_ if row[2] >= 0]
        assert found.step[index] == (steps[-1] if steps else -1)
        assert rows_[0][0] <= found.wall_ns[index] <= rows_[-1][0]
        if kind == "bits":
            bits = 0
            for value in inside:
                bits |= int(value)
            assert found.low[index] == found.mean[index] == found.high[index] == bits
            continue
        assert found.low[index] == min(inside) and found.high[index] == max(inside)
        if kind == "counter":
            assert found.mean[index] == inside[-1]
        else:
            assert math.isclose(found.mean[index], math.fsum(inside) / len(inside), rel_tol=1e-9, abs_tol=1e-3)
            assert found.low[index] <= found.mean[index] <= found.high[index]


def test_a_window_cuts_and_its_parts_are_its_own() -> None:
    wall = START + np.arange(1000, dtype=np.int64) * 1_000_000_000
    found = level(wall, np.arange(1000), np.arange(1000.0), 10, (START + 100_000_000_000, START + 199_999_999_999))
    assert found.samples == 100 and found.folded
    assert found.low.tolist() == [100 + 10 * i for i in range(10)] and found.high.tolist() == [
        109 + 10 * i for i in range(10)
    ]
