"""The plane decoder against protobuf's own parser and TensorFlow's schema."""

from __future__ import annotations

import itertools
import math
from random import Random
from types import ModuleType
from typing import Any

import pytest

from simulator.xplane_writer import BYTES, VARINT
from tb_gpu_doctor.traces import wire
from tb_gpu_doctor.traces.wire import SLOTS, RawPlane, SlotKind
from tests.conftest import DEMO_LOGS, SHARED_TRACES
from tests.traces.wire_checks import bits, damaged, files, outcome_compiled, planes_of, resolved, slot_values
from tests.traces.wire_writing import PlaneWriter, damage_fields, fields_of

pytestmark = pytest.mark.slow


def slot_by_protobuf(space_plane: Any, event: Any, name: str, kind: SlotKind) -> Any:
    """What the contract says about one slot of one event, from parsed messages."""
    found: Any = None
    for stat in event.stats:
        if stat.metadata_id not in space_plane.stat_metadata:
            continue
        if space_plane.stat_metadata[stat.metadata_id].name != name:
            continue
        which = stat.WhichOneof("value")
        value = getattr(stat, which) if which else None
        if kind is SlotKind.STR:
            if which == "str_value":
                found = value.encode()
            elif which == "bytes_value":
                found = value
            elif which == "ref_value":
                key = value - (1 << 64) if value >> 63 else value
                if key in space_plane.stat_metadata:
                    found = space_plane.stat_metadata[key].name.encode()
        elif which in ("uint64_value", "int64_value", "double_value"):
            if kind is SlotKind.FLOAT:
                found = float(value)
            elif which != "double_value":
                found = value - (1 << 64) if value >> 63 == 1 else value
            elif -(2.0**63) <= value < 2.0**63:
                found = math.trunc(value)
    if kind is SlotKind.FLOAT and found is not None and math.isnan(found):
        return None
    return None if kind is SlotKind.INT and found == -1 else found


def assert_as_protobuf(plane: RawPlane, parsed: Any) -> None:
    assert (plane.name.decode(), plane.id) == (parsed.name, parsed.id)
    assert plane.line_id.tolist() == [line.id for line in parsed.lines]
    assert [name.decode() for name in plane.line_name] == [line.name for line in parsed.lines]
    assert [name.decode() for name in plane.line_display_name] == [line.display_name for line in parsed.lines]
    assert plane.line_timestamp_ns.tolist() == [line.timestamp_ns for line in parsed.lines]
    assert plane.line_duration_ps.tolist() == [line.duration_ps for line in parsed.lines]
    assert plane.line_events.tolist() == [len(line.events) for line in parsed.lines]
    events = [(index, event) for index, line in enumerate(parsed.lines) for event in line.events]
    names = {key: value.name.encode() for key, value in parsed.event_metadata.items()}
    assert plane.line.tolist() == [index for index, _ in events]
    assert resolved(plane, plane.event_name) == [names.get(event.metadata_id) for _, event in events]
    assert plane.offset.tolist() == [event.offset_ps for _, event in events]
    assert plane.duration.tolist() == [event.duration_ps for _, event in events]
    assert plane.has_start.tolist() == [event.WhichOneof("data") != "num_occurrences" for _, event in events]
    known = {metadata.name for metadata in parsed.stat_metadata.values()}
    for index, (name, kind) in enumerate(SLOTS):
        if name in known:
            expected = [slot_by_protobuf(parsed, event, name, kind) for _, event in events]
            assert slot_values(plane, index) == expected, name
        else:
            assert plane.slots[index] is None
    stats = []
    for stat in parsed.stats:
        which = stat.WhichOneof("value")
        if which and stat.metadata_id in parsed.stat_metadata:
            value = getattr(stat, which)
            if which == "ref_value":
                key = value - (1 << 64) if value >> 63 else value
                if key not in parsed.stat_metadata:
                    continue
                value = parsed.stat_metadata[key].name
            value = value.encode() if isinstance(value, str) else value
            stats.append((parsed.stat_metadata[stat.metadata_id].name.encode(), bits(value)))
    assert [(name, bits(value)) for name, value in plane.stats] == stats


@pytest.fixture(scope="session")
def xplane_pb2() -> Any:
    return pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2", reason="TensorFlow is not installed")


def test_files_as_protobuf_reads_them(built: ModuleType, xplane_pb2: Any) -> None:
    paths = files(SHARED_TRACES) + files(DEMO_LOGS)
    if not paths:
        pytest.skip("neither real profiles nor demo_logs are present")
    for path in paths:
        for data in planes_of(path):
            if len(data) < 3_000_000:
                assert_as_protobuf(wire.decode_plane_compiled(built, data), xplane_pb2.XPlane.FromString(data))


def has_unusual_map_entry(data: bytes) -> bool:
    """Python's protobuf drops map entries that hold unknown fields whole; C++'s and ours skip the field."""
    return any(
        (inner, inner_wire) not in ((1, VARINT), (2, BYTES))
        for number, wire, payload in fields_of(data)
        if number in (4, 5) and wire == BYTES
        for inner, inner_wire, _ in fields_of(payload)
    )


def test_generated_as_protobuf_reads_them(built: ModuleType, xplane_pb2: Any) -> None:
    """Odd planes too, wherever protobuf accepts them: it refuses strings that are not UTF-8, we do not."""
    from google.protobuf.message import DecodeError

    random = Random(77)
    compared = 0
    for round_ in itertools.count():
        assert round_ < 10_000, "protobuf accepts too few of these planes to compare"
        data = PlaneWriter(random, (0.0, 0.02, 0.1)[round_ % 3]).plane()
        for _ in range(round_ % 4):
            data = damage_fields(random, data)
        outcome = outcome_compiled(built, data)
        assert not isinstance(outcome, str), "every length is right"
        try:
            parsed = xplane_pb2.XPlane.FromString(data)
        except DecodeError:
            continue
        if has_unusual_map_entry(data):
            continue
        assert_as_protobuf(outcome, parsed)
        compared += 1
        if compared == 800:
            break


def test_protobuf_accepts_no_less(built: ModuleType, xplane_pb2: Any) -> None:
    """What is refused as malformed protobuf refuses as well, but for groups, which no XPlane has."""
    from google.protobuf.message import DecodeError

    planes = damaged(99)
    for _ in range(1500):
        data = next(planes)
        if outcome_compiled(built, data) != "malformed":
            continue
        try:
            parsed = xplane_pb2.XPlane.FromString(data)
        except DecodeError:
            continue
        # Then a group stands somewhere: protobuf keeps it as an unknown field.
        assert any(byte & 7 in (3, 4) for byte in data), parsed
