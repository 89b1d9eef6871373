"""Who encloses and who caused whom, against trying all pairs."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.host_tree import enclosing, nearest_with, producer_of
from tb_gpu_doctor.traces.columns import Trace, host_events
from tests.analysis import brute_force
from tests.analysis.small_traces import traces


@given(traces())
def test_enclosers(trace: Trace) -> None:
    assert enclosing(trace.host_events).tolist() == brute_force.enclosing(trace.host_events)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 12)), max_size=40))
def test_enclosers_in_crowded_threads(rows: list[tuple[int, int, int]]) -> None:
    events = host_events(
        len(rows), thread=[r[0] for r in rows], start=[r[1] for r in rows], duration=[r[2] for r in rows]
    )
    assert enclosing(events).tolist() == brute_force.enclosing(events)


@given(traces(), st.data())
def test_nearest_marked_encloser(trace: Trace, data: st.DataObject) -> None:
    parent = enclosing(trace.host_events)
    count = len(parent)
    mark = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_)
    assert nearest_with(mark, parent).tolist() == brute_force.nearest_with(mark.tolist(), parent.tolist())


@given(traces())
def test_producers(trace: Trace) -> None:
    found = producer_of(trace.host_events).tolist()
    for row, possible in zip(found, brute_force.producer_of(trace.host_events), strict=True):
        assert row in possible if possible else row == -1


def test_a_pair_that_is_used_again_belongs_to_its_latest_producer() -> None:
    events = host_events(
        4,
        thread=[0, 0, 1, 1],
        start=[0, 100, 50, 150],
        duration=[10, 10, 10, 10],
        producer_type=[3, 3, -1, -1],
        producer_id=[7, 7, -1, -1],
        consumer_type=[-1, -1, 3, 3],
        consumer_id=[-1, -1, 7, 7],
    )
    assert producer_of(events).tolist() == [-1, -1, 0, 1]


def test_no_host_events() -> None:
    nothing = host_events(0)
    assert len(enclosing(nothing)) == len(producer_of(nothing)) == 0


def test_many_kinds_of_producers_stay_apart() -> None:
    count = 600
    events = host_events(
        2 * count,
        thread=[0] * count + [1] * count,
        start=[0] * count + [10] * count,
        duration=[1] * (2 * count),
        producer_type=[*range(count), *[-1] * count],
        producer_id=[*(i % 3 for i in range(count)), *[-1] * count],
        consumer_type=[*[-1] * count, *range(count)],
        consumer_id=[*[-1] * count, *((i + 1) % 3 for i in range(count))],
    )
    assert (producer_of(events) == -1).all()


@pytest.mark.parametrize(
    "shape",
    [
        "flat",
        "deep",
        "staircase",
        "deep_then_long",
    ],
)
def test_enclosers_take_no_quadratic_time(shape: str) -> None:
    count = 20_000
    number = np.arange(count)
    start, duration = {
        "flat": (number * 10, np.full(count, 5)),
        "deep": (number, 4 * count - 2 * number),
        "staircase": (number, np.full(count, count)),
        "deep_then_long": (
            np.where(number < count // 2, number, number * 10),
            np.where(number < count // 2, 4 * count - 2 * number, 20 * count + number),
        ),
    }[shape]
    events = host_events(count, thread=np.zeros(count, int), start=start, duration=duration)
    began = time.perf_counter()
    enclosing(events)
    assert time.perf_counter() - began < 1.0
