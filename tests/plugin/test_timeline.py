from __future__ import annotations

import dataclasses
import json
import math
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.job import analyse_job
from tb_gpu_doctor.analysis.results import Cause, Gaps
from tb_gpu_doctor.plugin.lanes import LANE_CATEGORIES
from tb_gpu_doctor.plugin.timeline import Timeline, fill_levels, pixel_edges, time_unit
from tb_gpu_doctor.traces.columns import DeviceEvents, device_events
from tests.analysis.jobs import random_job
from tests.analysis.small_traces import US
from tests.hosts import facts_of
from tests.plugin.examples import analysis_of, gaps_of, gpu_pictures, trace_of

CATEGORIES = len(LANE_CATEGORIES)
Picture = tuple[DeviceEvents, Gaps, list[list[int]]]


def timeline_of(events: DeviceEvents, gaps: Gaps, devices: int, borders: tuple[int, ...] = ()) -> Timeline:
    trace, analysis = trace_of(events, devices), analysis_of(events, gaps, devices, borders)
    return Timeline([trace], [analysis], ["worker0"], ["worker0"])


def parse_bins(data: bytes) -> np.ndarray:
    lanes, categories, width = struct.unpack_from("<III", data)
    assert len(data) == 12 + lanes * categories * width
    return np.frombuffer(data, np.uint8, offset=12).reshape(lanes, categories, width)


def parse_events(data: bytes) -> tuple[dict, dict[str, list[int]]]:
    (length,) = struct.unpack_from("<I", data)
    assert length % 8 == 0
    header = json.loads(data[4 : 4 + length])
    offset, columns = 4 + length, {}
    if header["truncated"]:
        assert len(data) == offset
        return header, {}
    for name, code, size in (
        ("start", "I", 4),
        ("end", "I", 4),
        ("lane", "H", 2),
        ("name", "H", 2),
        ("category", "B", 1),
    ):
        columns[name] = list(struct.unpack_from(f"<{header['count']}{code}", data, offset))
        offset += -(-header["count"] * size // 4) * 4
    assert offset == len(data)
    return header, columns


@given(gpu_pictures(), st.integers(-3, 70), st.integers(1, 90), st.integers(1, 40))
def test_bins_are_the_exact_fill_of_each_pixel(drawn: Picture, start: int, length: int, width: int):
    events, gaps, pictures = drawn
    cells = parse_bins(timeline_of(events, gaps, 2).bins(start, start + length, width))
    assert cells.shape == (2, CATEGORIES, width)
    for lane, picture in enumerate(pictures):
        for pixel in range(width):
            low, high = start + pixel * length // width, start + (pixel + 1) * length // width
            shown = [picture[time] for time in range(low, high) if 0 <= time < len(picture)]
            for category in range(CATEGORIES):
                expected = math.ceil(255 * shown.count(category) / (high - low)) if high > low else 0
                assert cells[lane, category, pixel] == expected


@given(gpu_pictures(), st.integers(-3, 70), st.integers(1, 90))
def test_events_of_a_window_draw_the_same_picture(drawn: Picture, start: int, length: int):
    events, gaps, pictures = drawn
    header, columns = parse_events(timeline_of(events, gaps, 2).events(start, start + length, 10_000))
    assert (header["base_ps"], header["unit_ps"], header["truncated"]) == (start, 1, False)
    shown = [[-1] * len(picture) for picture in pictures]
    for index in range(header["count"]):
        lane, category, name = columns["lane"][index], columns["category"][index], columns["name"][index]
        for time in range(start + columns["start"][index], start + columns["end"][index]):
            assert start <= time < start + length
            shown[lane][time] = category
        assert (name == 65535) == (category >= 3)
        if category < 3:
            source = next(row for row in range(len(events)) if header["names"][name] == f"k{events.name[row]}")
            assert events.device[source] == lane
    for lane, picture in enumerate(pictures):
        inside = slice(max(0, start), max(0, start + length))
        assert shown[lane][inside] == picture[inside]


@given(gpu_pictures(), st.integers(0, 20))
def test_more_events_than_the_limit_send_no_columns(drawn: Picture, limit: int):
    events, gaps, _ = drawn
    timeline = timeline_of(events, gaps, 2)
    everything, _ = parse_events(timeline.events(0, 80, 10_000))
    header, columns = parse_events(timeline.events(0, 80, limit))
    assert header["truncated"] == (everything["count"] > limit)
    assert header["count"] == everything["count"]
    assert bool(columns) != header["truncated"]


@given(gpu_pictures(), st.integers(0, 1), st.integers(-2, 82))
def test_at_says_what_the_lane_shows(drawn: Picture, lane: int, time: int):
    events, gaps, pictures = drawn
    answer = timeline_of(events, gaps, 2, borders=(0, 30, 60)).at(lane, time)
    shown = pictures[lane][time] if 0 <= time < 80 else -1
    if shown == -1:
        assert answer["kind"] == "none"
        return
    assert answer["category"] == LANE_CATEGORIES[shown]
    assert answer["start_ps"] <= time < answer["end_ps"]
    if shown < 3:
        assert answer["kind"] == "event"
        row = int(answer["name"][1:])
        source = next(index for index in range(len(events)) if events.name[index] == row)
        assert (answer["start_ps"], answer["end_ps"]) == (events.start[source], events.end[source])
        assert answer["stream"] == f"Stream #{10 + lane}(Compute)"
        assert answer["step"] == {0: 7, 1: 8}.get(events.start[source] // 30)
        assert answer["gap"] is None
    else:
        assert answer["kind"] == "gap"
        assert answer["step"] == {0: 7, 1: 8}.get(time // 30)
        assert sum(answer["gap"]["causes_ms"].values()) == pytest.approx((answer["end_ps"] - answer["start_ps"]) / 1e9)


def test_a_gap_names_its_neighbours_and_its_evidence():
    events = device_events(2, device=[0, 0], stream=[0, 0], start=[0, 90], duration=[10, 10], klass=[0, 0], name=[0, 1])
    gaps = gaps_of([0], [10], [90], [[60, 20, *[0] * (len(Cause) - 2)]])
    gaps = dataclasses.replace(gaps, before=np.array([0]), after=np.array([1]), evidence=np.array([0]))
    answer = timeline_of(events, gaps, 1).at(0, 75)
    assert answer["category"] == "launch"
    assert answer["gap"] == {
        "causes_ms": {"input": 60e-9, "launch": 20e-9},
        "before": "k0",
        "after": "k1",
        "thread": "python",
        "evidence": "IteratorGetNextOp::DoCompute",
    }


def test_meta_describes_lanes_steps_and_window():
    events = device_events(2, device=[0, 1], stream=[0, 1], start=[5, 20], duration=[10, 50], klass=[0, 1], name=[0, 1])
    meta = timeline_of(events, gaps_of([], [], [], []), 3, borders=(0, 30, 60)).meta()
    assert (meta["start_ps"], meta["end_ps"]) == (5, 70)
    assert meta["window"] == {"start_ps": 5, "end_ps": 70}
    assert [lane["intervals"] for lane in meta["lanes"]] == [1, 1, 0]
    assert meta["lanes"][1] == {
        "id": 1, "kind": "gpu", "host": "worker0", "gpu": 1, "label": "GPU 1", "name": "NVIDIA H100",
        "hosts_file": "worker0", "intervals": 1, "offset_ps": 0, "offset_error_ps": 0,
    }  # fmt: skip
    assert meta["steps"] == [
        {"number": 7, "complete": True, "start_ps": 0, "end_ps": 30},
        {"number": 8, "complete": True, "start_ps": 30, "end_ps": 60},
    ]
    json.dumps(meta, allow_nan=False)


def test_a_session_without_gpu_work_has_an_empty_timeline():
    events = device_events(0)
    timeline = timeline_of(events, gaps_of([], [], [], []), 0)
    meta = timeline.meta()
    assert (meta["start_ps"], meta["end_ps"], meta["window"], meta["lanes"], meta["steps"]) == (0, 0, None, [], [])
    assert parse_bins(timeline.bins(0, 10, 5)).shape == (0, CATEGORIES, 5)
    assert parse_events(timeline.events(0, 10, 5))[0]["count"] == 0


def test_two_hosts_give_lanes_that_name_them():
    events = device_events(1, device=[0], stream=[0], start=[5], duration=[10], klass=[0], name=[0])
    traces = [trace_of(events, 1, host=host) for host in ("a", "b")]
    analyses = [analysis_of(events, gaps_of([], [], [], []), 1) for _ in traces]
    timeline = Timeline(traces, analyses, ["a", "b"], ["a.file", "b.file"])
    lanes = timeline.meta()["lanes"]
    assert [(lane["host"], lane["label"]) for lane in lanes] == [("a", "GPU 0"), ("b", "GPU 0")]
    assert [lane["hosts_file"] for lane in lanes] == ["a.file", "b.file"]
    assert timeline.at(1, 7)["name"] == "k0"
    assert [lane["offset_error_ps"] for lane in lanes] == [None, None]
    assert timeline.meta()["clock"] == {"reference": None, "common": False}


@pytest.mark.parametrize("seed", range(3))
def test_hosts_with_clocks_that_can_be_told_are_on_one_clock(seed: int):
    planted = random_job(seed, hosts=3, gpus=2, steps=5)
    traces, analyses = planted.analysed()
    clocks = analyse_job(facts_of(traces, analyses)).clocks
    assert clocks.all_known
    own = Timeline(traces, analyses, ["a", "b", "c"], ["a", "b", "c"])
    common = Timeline(traces, analyses, ["a", "b", "c"], ["a", "b", "c"], clocks)
    meta = common.meta()
    assert meta["clock"] == {"reference": "abc"[clocks.reference], "common": True}
    true = [planted.offsets[clocks.reference] - offset for offset in planted.offsets]
    for lane, alone in zip(meta["lanes"], own.meta()["lanes"], strict=True):
        offset, error = lane["offset_ps"], lane["offset_error_ps"]
        assert alone["offset_ps"] == 0 and alone["intervals"] == lane["intervals"]
        assert abs(offset - true["abc".index(lane["host"])] * US) <= error
        assert (error == 0) == (lane["host"] == meta["clock"]["reference"])
        # the same event, found at the time on its own clock plus the offset
        source = common.sources[lane["id"]]
        row = traces[source.trace].device_events.of_device(source.device.index).start
        at = int(traces[source.trace].device_events.start[row])
        mine, moved = own.at(lane["id"], at), common.at(lane["id"], at + offset)
        assert moved["start_ps"] == mine["start_ps"] + offset and moved["end_ps"] == mine["end_ps"] + offset
        assert {key: value for key, value in mine.items() if not key.endswith("_ps")} == {
            key: value for key, value in moved.items() if not key.endswith("_ps")
        }
        low, high = at - 10 * US, at + 200 * US
        cells = [parse_bins(t.bins(low + o, high + o, 50))[lane["id"]] for t, o in ((own, 0), (common, offset))]
        assert (cells[0] == cells[1]).all()


def test_hostile_names_are_kept_short_and_more_than_65535_do_not_break_the_column():
    count = 70_000
    events = device_events(
        count, device=np.zeros(count), stream=np.zeros(count), start=np.arange(count) * 10, duration=np.full(count, 5),
        klass=np.zeros(count), name=np.arange(count),
    )  # fmt: skip
    names = ["<script>\x00" + "x" * 100_000, *(f"k{index}" for index in range(1, count))]
    trace = trace_of(events, 1, names)
    analysis = analysis_of(events, gaps_of([], [], [], []), 1)
    timeline = Timeline([trace], [analysis], ["worker0"], ["worker0"])
    header, columns = parse_events(timeline.events(0, count * 10, count))
    assert len(header["names"]) == 65_535
    assert header["names"][0].startswith("<script>\x00x") and len(header["names"][0]) == 300
    assert columns["name"][65_534:65_536] == [65_534, 65_535]
    assert len(timeline.at(0, 2)["name"]) == 4_000


@given(st.integers(0, 2**62), st.integers(1, 2**62 - 1), st.integers(1, 8192))
@example(0, 7 * 24 * 3600 * 10**12 * 2, 8192)
def test_pixel_edges_are_exact_at_any_size(start: int, length: int, width: int):
    edges = pixel_edges(start, start + length, width).tolist()
    assert edges == [start + pixel * length // width for pixel in range(width + 1)]


@given(st.integers(1, 2**62), st.data())
def test_fill_levels_round_up_and_never_overflow(pixel: int, data: st.DataObject):
    filled = data.draw(st.integers(0, pixel))
    level = int(fill_levels(np.array([filled]), np.array([pixel]))[0])
    exact = -(-255 * filled // pixel)
    assert level == exact if pixel < 2**54 else abs(level - exact) <= 1
    assert (level == 0) == (filled == 0)


def test_time_unit_fits_the_window_into_32_bits():
    assert time_unit(1) == 1
    assert time_unit(2**32 - 1) == 1
    assert time_unit(2**32) == 10
    for length in (10**12, 7 * 24 * 3600 * 10**12, 2**62):
        assert length // time_unit(length) < 2**32
        assert length // (time_unit(length) // 10) >= 2**32
