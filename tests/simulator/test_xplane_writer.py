"""The wire writer against TensorFlow's own parser."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.xplane_writer import Ref, Space, StatValue, Unsigned, varint

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NAMES = st.text(max_size=12)
VALUES: st.SearchStrategy[StatValue] = st.one_of(
    INT64,
    st.integers(0, (1 << 64) - 1).map(Unsigned),
    st.floats(allow_nan=False),
    NAMES,
    NAMES.map(Ref),
    st.binary(max_size=12),
)
STATS = st.dictionaries(NAMES, VALUES, max_size=4)
EVENTS = st.tuples(NAMES, st.booleans(), st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 1), STATS)
LINES = st.tuples(INT64, NAMES, st.integers(0, (1 << 63) - 1), NAMES, st.lists(EVENTS, max_size=4))
PLANES = st.tuples(NAMES, INT64, STATS, st.lists(LINES, max_size=3))
TEXTS = st.lists(NAMES, max_size=2).map(tuple)


def parse(data: bytes) -> Any:
    """The bytes as TensorFlow's XSpace."""
    schema = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2", reason="tensorflow is not installed")
    space = schema.XSpace()
    space.ParseFromString(data)
    return space


def value_of(plane: Any, stat: Any) -> StatValue:
    kind = stat.WhichOneof("value")
    if kind == "ref_value":
        return Ref(plane.stat_metadata[stat.ref_value].name)
    value = getattr(stat, kind)
    return Unsigned(value) if kind == "uint64_value" else value


def stats_of(plane: Any, stats: Any) -> list[tuple[str, type, StatValue]]:
    found = [(plane.stat_metadata[stat.metadata_id].name, value_of(plane, stat)) for stat in stats]
    return [(name, type(value), value) for name, value in found]


def typed(stats: dict[str, StatValue]) -> list[tuple[str, type, StatValue]]:
    return [(name, type(value), value) for name, value in stats.items()]


@given(st.lists(PLANES, max_size=3), TEXTS, TEXTS, TEXTS)
def test_tensorflow_reads_what_was_written(
    planes: list[Any], hostnames: tuple[str, ...], warnings: tuple[str, ...], errors: tuple[str, ...]
) -> None:
    space = Space(hostnames=hostnames, warnings=warnings, errors=errors)
    for name, plane_id, stats, lines in planes:
        plane = space.plane(name, plane_id, stats)
        for line_id, line_name, timestamp_ns, shown, events in lines:
            line = plane.line(line_id, line_name, timestamp_ns, shown)
            for event_name, aggregated, first, duration, event_stats in events:
                if aggregated:
                    line.occurrences(event_name, first, duration, event_stats)
                else:
                    line.event(event_name, first, duration, event_stats)
    read = parse(space.encode())
    assert (tuple(read.hostnames), tuple(read.warnings), tuple(read.errors)) == (hostnames, warnings, errors)
    assert len(read.planes) == len(planes)
    for plane, (name, plane_id, stats, lines) in zip(read.planes, planes, strict=True):
        assert (plane.name, plane.id, len(plane.lines)) == (name, plane_id, len(lines))
        assert stats_of(plane, plane.stats) == typed(stats)
        assert all(key == entry.id for key, entry in plane.event_metadata.items())
        for line, (line_id, line_name, timestamp_ns, shown, events) in zip(plane.lines, lines, strict=True):
            assert (line.id, line.name, line.timestamp_ns, line.display_name) == (
                line_id, line_name, timestamp_ns, shown
            )  # fmt: skip
            assert len(line.events) == len(events)
            for event, (event_name, aggregated, first, duration, event_stats) in zip(line.events, events, strict=True):
                assert plane.event_metadata[event.metadata_id].name == event_name
                assert event.duration_ps == duration
                assert (event.num_occurrences if aggregated else event.offset_ps) == first
                assert stats_of(plane, event.stats) == typed(event_stats)


@given(st.integers(-(1 << 63), (1 << 64) - 1))
def test_varint_is_seven_bits_a_byte(value: int) -> None:
    data = varint(value)
    assert sum((byte & 0x7F) << 7 * i for i, byte in enumerate(data)) == value % (1 << 64)
    assert [byte >> 7 for byte in data] == [1] * (len(data) - 1) + [0]
    assert len(data) == max(1, math.ceil((value % (1 << 64)).bit_length() / 7))


def test_a_written_file_wastes_no_byte() -> None:
    space = Space(hostnames=("host",), warnings=("w",), errors=("e",))
    plane = space.plane("/host:CPU", 3, {"a": 0, "b": 0.0, "c": "", "d": b"", "e": Ref("a"), "f": Unsigned(0)})
    plane.line(-7, "python", 5, "python").event("train", 1, 2, {"step_num": 4, "_r": 1})
    data = space.encode()
    again = parse(data).SerializeToString(deterministic=True)  # the order of map entries is not defined
    assert len(again) == len(data)
    assert sorted(again) == sorted(data)
