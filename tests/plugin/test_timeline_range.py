"""Questions about a stretch of the timeline, against pictures painted picosecond by picosecond."""

from __future__ import annotations

import dataclasses
import json
import math
import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.job import Meetings
from tb_gpu_doctor.analysis.results import Gaps
from tb_gpu_doctor.plugin.lanes import LANE_CATEGORIES
from tb_gpu_doctor.plugin.timeline import Timeline
from tb_gpu_doctor.plugin.timeline_range import MAX_THREADS, RangeView
from tb_gpu_doctor.traces.columns import PS_PER_MS, DeviceEvents, HostThread, device_events, host_events
from tests.plugin.examples import CAUSES, analysis_of, gaps_of, gpu_pictures, trace_of

Picture = tuple[DeviceEvents, Gaps, list[list[int]]]
COMMUNICATION = LANE_CATEGORIES.index("communication")


def view_of(events: DeviceEvents, gaps: Gaps, devices: int = 2, meetings: Any = None) -> RangeView:
    trace, analysis = trace_of(events, devices), analysis_of(events, gaps, devices)
    timeline = Timeline([trace], [analysis], ["worker0"], ["worker0"])
    job: Any = SimpleNamespace(meetings=meetings or {})
    return RangeView([trace], job, timeline)


def meetings_of(events: DeviceEvents, devices: int, waits: list[int]) -> dict[tuple[int, int], Meetings]:
    """A wait for each event of communication, at most its own duration."""
    found = {}
    for device in range(devices):
        rows = events.of_device(device)
        mine = [row for row in range(rows.start, rows.stop) if events.klass[row] == 1]
        wait = [min(waits[row % len(waits)], int(events.duration[row])) for row in mine]
        found[0, device] = Meetings(np.array(mine, np.int64), np.array(wait, np.int64), np.zeros(len(mine), np.int64))
    return found


@given(gpu_pictures(), st.integers(-3, 70), st.integers(1, 90))
def test_the_accounting_of_a_stretch_counts_its_picoseconds(drawn: Picture, start: int, length: int) -> None:
    events, gaps, pictures = drawn
    end = start + length
    answer = view_of(events, gaps).accounting(start, end)
    json.dumps(answer, allow_nan=False)
    for lane, picture in enumerate(pictures):
        shown = [picture[time] for time in range(start, end) if 0 <= time < len(picture)]
        expected = {
            name: pytest.approx(shown.count(index) / PS_PER_MS)
            for index, name in enumerate(LANE_CATEGORIES)
            if shown.count(index)
        }
        assert answer["lanes"][lane] == {"lane": lane, "ms": expected, "communication_wait_ms": 0.0}
    counted: dict[str, list[int]] = {}
    for row in range(len(events)):
        low, high = int(events.start[row]), int(events.start[row] + events.duration[row])
        if low < end and high > start:
            entry = counted.setdefault(f"k{int(events.name[row])}", [0, 0])
            entry[0] += min(high, end) - max(low, start)
            entry[1] += 1
    assert {k["name"]: [round(k["total_ms"] * PS_PER_MS), k["calls"]] for k in answer["kernels"]} == (
        counted if len(counted) <= 12 else dict(sorted(counted.items(), key=lambda e: (-e[1][0], e[0]))[:12])
    )


@given(
    gpu_pictures(),
    st.integers(0, 70),
    st.integers(1, 40),
    st.integers(1, 12),
    st.lists(st.integers(0, 30), min_size=1, max_size=5),
)
def test_waiting_is_where_the_lane_shows_a_collective_that_waits(
    drawn: Picture, start: int, length: int, width: int, waits: list[int]
) -> None:
    events, gaps, pictures = drawn
    meetings = meetings_of(events, 2, waits)
    view = view_of(events, gaps, meetings=meetings)
    data = view.wait_bins(start, start + length, width)
    assert struct.unpack_from("<III", data) == (2, 1, width)
    cells = np.frombuffer(data, np.uint8, offset=12).reshape(2, width)
    answer = view.accounting(start, start + length)
    for device, picture in enumerate(pictures):
        # Which event of communication a lane shows: the one that began first (of several, the earlier row).
        waiting = [False] * len(picture)
        met = meetings[0, device]
        wait = dict(zip(met.row.tolist(), met.wait.tolist(), strict=True))
        rows = events.of_device(device)
        for time in range(len(picture)):
            if picture[time] != COMMUNICATION:
                continue
            row = next(
                r
                for r in range(rows.start, rows.stop)
                if events.klass[r] == 1 and events.start[r] <= time < events.start[r] + events.duration[r]
            )
            waiting[time] = time < events.start[row] + wait[row]
        total = sum(waiting[max(0, start) : start + length])
        assert answer["lanes"][device]["communication_wait_ms"] == pytest.approx(total / PS_PER_MS)
        for pixel in range(width):
            low, high = start + pixel * length // width, start + (pixel + 1) * length // width
            part = sum(waiting[low:high])
            assert cells[device, pixel] == (math.ceil(255 * part / (high - low)) if high > low else 0)


@given(
    gpu_pictures(),
    st.integers(-3, 70),
    st.integers(1, 90),
    st.sampled_from(["", "K1", "k 1", "nothing", "k"]),
    st.integers(0, 6),
    st.sampled_from([None, 0, 1]),
    st.booleans(),
)
def test_kernels_are_found_by_every_word(
    drawn: Picture, start: int, length: int, query: str, limit: int, lane: int | None, last: bool
) -> None:
    events, gaps, _ = drawn
    end = start + length
    answer = view_of(events, gaps).find(query, start, end, limit, lane, last)
    words = query.lower().split()
    expected = sorted(
        (int(events.start[row]), int(events.device[row]), f"k{int(events.name[row])}")
        for row in range(len(events))
        if words
        and all(word in f"k{int(events.name[row])}" for word in words)
        and events.start[row] < end
        and events.start[row] + events.duration[row] > start
        and lane in (None, int(events.device[row]))
    )
    assert answer["matching"] == len(expected) and answer["truncated"] == (len(expected) > limit)
    shown = [(hit["start_ps"], hit["lane"]) for hit in answer["hits"]]
    kept = (expected[-limit:] if last else expected[:limit]) if limit else []
    assert shown == [(at, device) for at, device, _ in kept]


@given(gpu_pictures(), st.integers(-5, 90), st.booleans(), st.integers(1, 8), st.sampled_from([None, 0, 1]))
def test_the_next_gap(drawn: Picture, time: int, back: bool, shortest: int, lane: int | None) -> None:
    events, gaps, _ = drawn
    found = view_of(events, gaps).next_gap(time, back, shortest, lane)["gap"]
    known = [
        (int(gaps.start[row]), int(gaps.end[row]))
        for row in range(len(gaps))
        if gaps.end[row] - gaps.start[row] >= shortest and lane in (None, int(gaps.device[row]))
    ]
    starts = [low for low, _ in known if (low < time if back else low > time)]
    if not starts:
        assert found is None
        return
    assert found["start_ps"] == (max(starts) if back else min(starts))
    assert (found["start_ps"], found["end_ps"]) in known


@given(gpu_pictures(), st.integers(-3, 70), st.integers(1, 90), st.integers(0, 30))
def test_streams_hold_every_event_of_the_stretch(drawn: Picture, start: int, length: int, limit: int) -> None:
    events, gaps, _ = drawn
    end = start + length
    view = view_of(events, gaps)
    for device in range(2):
        answer = view.streams(device, start, end, limit)
        json.dumps(answer, allow_nan=False)
        expected = [
            (int(events.start[row]), int(events.start[row] + events.duration[row]), f"k{int(events.name[row])}")
            for row in range(len(events))
            if events.device[row] == device
            and events.start[row] < end
            and events.start[row] + events.duration[row] > start
        ]
        assert answer["count"] == len(expected) and answer["truncated"] == (len(expected) > limit)
        columns = answer["events"]
        shown = [
            (low, high, answer["names"][name])
            for low, high, name in zip(columns["start_ps"], columns["end_ps"], columns["name"], strict=True)
        ]
        assert sorted(shown) == (sorted(expected) if len(expected) <= limit else [])


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60), st.integers(0, 9), st.booleans()), max_size=25),
    st.integers(-3, 60),
    st.integers(1, 40),
    st.integers(0, 20),
)
def test_launches_are_the_calls_behind_the_events_of_the_busiest_threads(
    calls: list[tuple[int, int, int, bool]], start: int, length: int, limit: int
) -> None:
    """Call i, on a thread at a time, launches event i; or nothing that is known."""
    order = sorted(range(len(calls)), key=lambda i: (calls[i][0], calls[i][1], -calls[i][2]))
    n = len(calls)
    events = device_events(
        n, device=[0] * n, stream=[0] * n, start=list(range(100, 100 + n)), duration=[1] * n, klass=[0] * n,
        name=[0] * n, correlation=[i + 1 if calls[i][3] else 0 for i in range(n)],
    )  # fmt: skip
    trace = dataclasses.replace(
        trace_of(events, 1, names=["kernel"]),
        threads=tuple(HostThread(index, index, f"thread {index}") for index in range(6)),
        host_events=host_events(
            n, thread=[calls[i][0] for i in order], start=[calls[i][1] for i in order],
            duration=[calls[i][2] for i in order], name=[0] * n, correlation=[i + 1 for i in order],
        ),
    )  # fmt: skip
    timeline = Timeline([trace], [analysis_of(events, gaps_of([], [], [], []), 1)], ["w"], ["w"])
    job: Any = SimpleNamespace(meetings={})
    answer = RangeView([trace], job, timeline).streams(0, start, start + length, limit)
    json.dumps(answer, allow_nan=False)
    known = [call for call in calls if call[3]]
    counts = {thread: sum(1 for call in known if call[0] == thread) for thread in {call[0] for call in known}}
    busiest = sorted(counts, key=lambda thread: (-counts[thread], thread))[:MAX_THREADS]
    launches = answer["launches"]
    assert launches["threads"] == [f"thread {thread}" for thread in busiest]
    expected = sorted(
        (at, at + size, thread) for thread, at, size, _ in known
        if thread in busiest and at < start + length and at + size > start
    )  # fmt: skip
    in_window = sum(1 for i in range(n) if 100 + i < start + length and 101 + i > start)
    assert answer["truncated"] == (len(expected) > limit or in_window > limit)
    columns = zip(launches["start_ps"], launches["end_ps"], launches["thread"], strict=True)
    assert sorted((low, high, busiest[thread]) for low, high, thread in columns) == (
        [] if answer["truncated"] else expected
    )


def test_what_is_kept_is_counted() -> None:
    drawn = _example()
    view = view_of(*drawn[:2])
    assert view.size_bytes >= len(drawn[0])


def _example() -> Picture:
    events = device_events(2, device=[0, 1], stream=[0, 1], start=[0, 0], duration=[10, 5], klass=[0, 1], name=[0, 1])
    gaps = gaps_of([0], [10], [20], [[10, *[0] * (CAUSES - 1)]])
    return events, dataclasses.replace(gaps), []
