"""What travels comes back equal, whatever it holds."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.parallel.one_file import read_file
from tb_gpu_doctor.parallel.packed_facts import pack, unpack
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.conftest import DEMO_LOGS


@dataclass(frozen=True)
class Inner:
    share: float
    grid: tuple[int, int, int] | None


@dataclass(frozen=True)
class Outer:
    name: str
    at: int
    inner: Inner | None
    more: tuple[Any, ...] = ()


inners = st.builds(
    Inner, st.floats(allow_nan=False), st.none() | st.tuples(st.integers(), st.integers(0, 9), st.integers())
)
values = st.one_of(
    st.integers(), st.integers(-(1 << 62), 1 << 62), st.floats(allow_nan=False), st.integers(0, 9).map(float),
    st.text(max_size=5), st.booleans(), st.none(), inners,
    st.builds(Outer, st.text(max_size=3), st.integers(), st.none() | inners),
)  # fmt: skip
rows = st.one_of(*(st.lists(one, max_size=40).map(tuple) for one in (values, inners, st.floats(), st.integers())))


def same(one: Any, other: Any) -> bool:
    """Equal, of one type, signs of zeros and what is no number included."""
    return repr(one) == repr(other)


@given(st.one_of(values, rows, st.builds(Outer, st.text(), st.integers(), st.none(), rows)))
def test_anything_comes_back(value: Any) -> None:
    assert same(unpack(pack(value)), value)


@given(st.lists(st.builds(Outer, st.text(max_size=3), st.integers(0, 9), st.none() | inners, rows), max_size=30))
def test_records_come_back(found: list[Outer]) -> None:
    assert same(unpack(pack(tuple(found))), tuple(found))


def test_zeros_have_signs_and_nothing_is_no_number() -> None:
    assert same(unpack(pack((0.0, -0.0) * 20)), (0.0, -0.0) * 20)
    assert all(math.isnan(value) for value in unpack(pack((math.nan,) * 20)))


@pytest.mark.parametrize("run", ["slow_gpu", "pytorch_ddp"])
def test_facts_of_demo_runs_come_back_small(run: str) -> None:
    session = find_sessions(str(DEMO_LOGS / run)).sessions[0]
    facts = read_file(session.files[0]).facts
    content = pack(facts)
    assert unpack(content) == facts
    assert len(content) < 0.75 * len(pickle.dumps(facts))
