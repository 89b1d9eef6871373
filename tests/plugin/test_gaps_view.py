"""The answer of ``gaps``: the longest first, and a histogram that counts every one."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.results import CAUSE_IDS, Cause
from tb_gpu_doctor.plugin.gaps_view import EDGES_US, GapsView
from tb_gpu_doctor.plugin.timeline import Timeline
from tb_gpu_doctor.traces.columns import PS_PER_MS, PS_PER_US, device_events
from tests.plugin.examples import CAUSES, analysis_of, gaps_of, trace_of

Gap = tuple[int, int, int, int]


@st.composite
def some_gaps(draw: st.DrawFn) -> list[Gap]:
    """(device, start, cause, length), the lengths over all orders of magnitude."""
    found, at = [], 0
    for device, cause, length in draw(
        st.lists(
            st.tuples(st.integers(0, 1), st.integers(0, CAUSES - 1), st.integers(0, 44).map(lambda bit: 1 << bit)),
            max_size=30,
        )
    ):
        found.append((device, at, cause, length))
        at += length + 5
    return sorted(found)


def view_of(gaps: list[Gap]) -> GapsView:
    parts = [[length if index == cause else 0 for index in range(CAUSES)] for _, _, cause, length in gaps]
    columns = gaps_of([g[0] for g in gaps], [g[1] for g in gaps], [g[1] + g[3] for g in gaps], parts)
    events = device_events(2, device=[0, 1], stream=[0, 1], start=[0, 0], duration=[1, 1], klass=[0, 0], name=[0, 1])
    trace, analysis = trace_of(events, 2), analysis_of(events, columns, 2)
    return GapsView(Timeline([trace], [analysis], ["w"], ["w"]))


@given(some_gaps(), st.integers(0, 40), st.sampled_from([None, 0, 1]), st.sampled_from([None, *range(CAUSES)]))
def test_the_longest_that_match(gaps: list[Gap], limit: int, lane: int | None, cause: int | None) -> None:
    answer = view_of(gaps).answer(limit, cause, lane)
    json.dumps(answer, allow_nan=False)
    matching = [g for g in gaps if lane in (None, g[0]) and cause in (None, g[2])]
    assert (answer["total"], answer["matching"]) == (len(gaps), len(matching))
    assert answer["truncated"] == (len(matching) > limit)
    shown = [(g["end_ps"] - g["start_ps"]) for g in answer["gaps"]]
    assert shown == sorted((g[3] for g in matching), reverse=True)[:limit]
    for gap in answer["gaps"]:
        source = next(g for g in gaps if (g[0], g[1]) == (gap["lane"], gap["start_ps"]))
        assert (
            gap["causes_ms"] == {CAUSE_IDS[source[2]]: source[3] / PS_PER_MS} and gap["cause"] == CAUSE_IDS[source[2]]
        )


@given(some_gaps())
def test_the_histogram_counts_each_gap_once(gaps: list[Gap]) -> None:
    histogram = view_of(gaps).answer(0)["histogram"]
    assert histogram["edges_us"] == list(EDGES_US)
    counted: dict[tuple[str, int], tuple[int, int]] = {}
    for _, _, cause, length in gaps:
        place = max(i for i, edge in enumerate(EDGES_US) if edge * PS_PER_US <= length)
        count, total = counted.get((CAUSE_IDS[cause], place), (0, 0))
        counted[CAUSE_IDS[cause], place] = count + 1, total + length
    assert set(histogram["causes"]) == {cause for cause, _ in counted}
    for cause, bins in histogram["causes"].items():
        assert len(bins["count"]) == len(bins["total_ms"]) == len(EDGES_US)
        for place in range(len(EDGES_US)):
            count, total = counted.get((cause, place), (0, 0))
            assert bins["count"][place] == count and bins["total_ms"][place] == pytest.approx(total / PS_PER_MS)


def test_a_gap_says_what_stands_around_it() -> None:
    events = device_events(2, device=[0, 0], stream=[0, 0], start=[0, 90], duration=[10, 5], klass=[0, 0], name=[0, 1])
    gaps = gaps_of([0], [10], [90], [[60, 20, *[0] * (CAUSES - 2)]])
    gaps = dataclasses.replace(gaps, before=np.array([0]), after=np.array([1]), evidence=np.array([1]))
    trace, analysis = trace_of(events, 1), analysis_of(events, gaps, 1, borders=(0, 50, 95))
    (gap,) = GapsView(Timeline([trace], [analysis], ["w"], ["w"])).answer(5)["gaps"]
    assert gap == {
        "lane": 0, "host": "w", "gpu": 0, "start_ps": 10, "end_ps": 90, "duration_ms": 80e-9, "step": 7,
        "cause": Cause.INPUT.id, "causes_ms": {"input": 60e-9, "launch": 20e-9}, "before": "k0", "after": "k1",
        "thread": "python", "evidence": "cuLaunchKernel", "evidence_start_ps": 5, "evidence_end_ps": 9,
    }  # fmt: skip


def test_a_session_without_gpus_has_no_gaps() -> None:
    answer = GapsView(Timeline([], [], [], [])).answer()
    assert (answer["total"], answer["gaps"], answer["histogram"]["causes"]) == (0, [], {})
