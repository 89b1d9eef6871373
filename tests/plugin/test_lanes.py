from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.results import Gaps
from tb_gpu_doctor.plugin.lanes import FIRST_CAUSE, LANE_CATEGORIES, build_lane, times_before
from tb_gpu_doctor.traces.columns import DeviceEvents, device_events
from tests.plugin.examples import gaps_of, gpu_pictures

Picture = tuple[DeviceEvents, Gaps, list[list[int]]]


def test_categories_are_those_of_the_interface():
    assert LANE_CATEGORIES == (
        "compute", "communication", "transfer",
        "input", "launch", "sync", "compile", "checkpoint", "host_other",
        "allocator", "dependency", "peer", "kernel_gap", "queued", "no_evidence",
    )  # fmt: skip


@given(gpu_pictures())
def test_a_lane_shows_one_category_at_every_picosecond(drawn: Picture):
    events, gaps, pictures = drawn
    for device, picture in enumerate(pictures):
        lane = build_lane(events, gaps, device)
        shown = [-1] * len(picture)
        for start, end, category in zip(lane.start, lane.end, lane.category, strict=True):
            assert end > start
            for time in range(start, end):
                assert shown[time] == -1, "two intervals overlap"
                shown[time] = int(category)
        assert shown == picture
        assert (np.diff(lane.start) > 0).all()


@given(gpu_pictures())
def test_each_interval_lies_inside_what_it_stands_for(drawn: Picture):
    events, gaps, pictures = drawn
    for device in range(len(pictures)):
        lane = build_lane(events, gaps, device)
        for start, end, category, row in zip(lane.start, lane.end, lane.category, lane.row, strict=True):
            if category < FIRST_CAUSE:
                assert events.device[row] == device
                assert min(int(events.klass[row]), 2) == category
                assert events.start[row] <= start < end <= events.end[row]
            else:
                assert gaps.device[row] == device
                assert gaps.start[row] <= start < end <= gaps.end[row]
                assert gaps.by_cause[row, category - FIRST_CAUSE] == end - start


@given(gpu_pictures(devices=1), st.lists(st.integers(-5, 90), min_size=1, max_size=20))
def test_time_before_and_index_at_agree_with_counting(drawn: Picture, times: list[int]):
    events, gaps, [picture] = drawn
    lane = build_lane(events, gaps, 0)
    at = np.array(sorted(times), dtype=np.int64)
    for category in range(len(LANE_CATEGORIES)):
        counted = [sum(shown == category for shown in picture[: max(0, time)]) for time in at]
        assert lane.time_before(category, at).tolist() == counted
    for time in times:
        index = lane.index_at(time)
        shown = picture[time] if 0 <= time < len(picture) else -1
        assert (int(lane.category[index]) if index >= 0 else -1) == shown


@given(gpu_pictures(), st.lists(st.integers(-5, 90), min_size=1, max_size=20), st.sampled_from([1, 10**3, 10**17]))
def test_all_lanes_at_once_say_what_each_says(drawn: Picture, times: list[int], unit: int):
    events, gaps, pictures = drawn
    events = replace(events, start=events.start * unit, duration=events.duration * unit)
    gaps = replace(gaps, start=gaps.start * unit, end=gaps.end * unit, by_cause=gaps.by_cause * unit)
    lanes = [build_lane(events, gaps, device) for device in range(len(pictures))]
    at = np.array(times, dtype=np.int64) * unit
    found = times_before(lanes, at)
    for index, lane in enumerate(lanes):
        for category in range(len(LANE_CATEGORIES)):
            assert found[index, category].tolist() == lane.time_before(category, at).tolist()
    assert times_before([], at).shape == (0, len(LANE_CATEGORIES), len(at))


@given(gpu_pictures(devices=1), st.integers(-5, 85), st.integers(1, 40))
def test_overlapping_finds_all_and_only_what_shares_time(drawn: Picture, start: int, length: int):
    events, gaps, _ = drawn
    lane = build_lane(events, gaps, 0)
    end = start + length
    expected = np.flatnonzero((lane.end > start) & (lane.start < end))
    found = lane.overlapping(start, end)
    assert list(range(found.start, found.stop)) == expected.tolist()


def test_a_gpu_without_events_has_an_empty_lane():
    lane = build_lane(device_events(0), gaps_of([], [], [], []), 3)
    assert len(lane) == 0
    assert lane.index_at(5) == -1
    assert lane.time_before(0, np.array([1, 2])).tolist() == [0, 0]


def test_a_million_intervals_are_laid_out():
    count = 1_000_000
    start = np.arange(count, dtype=np.int64) * 1_000
    events = device_events(
        count, device=np.zeros(count), stream=np.zeros(count), start=start, duration=np.full(count, 700),
        klass=np.arange(count) % 3, name=np.zeros(count),
    )  # fmt: skip
    lane = build_lane(events, gaps_of([], [], [], []), 0)
    assert len(lane) == count
    assert sum(int(total[-1]) for _, total in lane.filled.values()) == 700 * count
