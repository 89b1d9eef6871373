"""The two plane decoders give equal columns for every input, good or bad."""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.xplane_writer import Line, Plane, bytes_field, varint
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces import wire
from tb_gpu_doctor.traces.wire import SLOTS
from tb_gpu_doctor.traces.wire_numpy import decode_plane_numpy
from tests.conftest import DEMO_LOGS, SHARED_TRACES
from tests.traces.wire_checks import (
    assert_equal,
    damaged,
    files,
    outcome_compiled,
    outcome_numpy,
    planes_of,
    realistic_plane,
    resolved,
    slot_values,
)
from tests.traces.wire_writing import PlaneWriter


def test_installed_decoder_is_compiled() -> None:
    """Where there is a compiler an install builds the decoder: its being optional must not hide a broken build."""
    if wire.compiled() is None:
        if os.environ.get("CI"):
            pytest.fail("tb_gpu_doctor.traces._wire is not built")
        pytest.skip("tb_gpu_doctor.traces._wire is not built: pip install -e . builds it")
    plane = wire.decode_plane(Plane("/device:GPU:0", 3).encode())
    assert (plane.name, plane.id) == (b"/device:GPU:0", 3)


@pytest.mark.slow
def test_realistic_plane(built: ModuleType) -> None:
    plane = wire.decode_plane_compiled(built, realistic_plane())
    assert plane.stats == ((b"core_count", 108), (b"device_vendor", b"Nvidia"), (b"gpu", b"A100"))
    assert plane.line_name[1] == b"Stream #1(Compute)"
    assert plane.line_display_name[1] == b"stream 1"
    assert plane.line_timestamp_ns.tolist() == [1_700_000_000_000_000_000] * 3
    assert plane.line_events.tolist() == [21] * 3
    row = 21 + 3
    assert resolved(plane, plane.event_name)[row] == b"kernel_3"
    assert (plane.line[row], plane.offset[row]) == (1, 30_000_000)
    assert (plane.duration[row], plane.has_start[row]) == (9_000_000, 1)
    assert plane.has_start.tolist() == ([1] * 20 + [0]) * 3
    values = {name: slot_values(plane, index)[row] for index, (name, _) in enumerate(SLOTS)}
    assert {name: value for name, value in values.items() if value is not None} == {
        "correlation_id": 1003,
        "kernel_details": b"regs:35 static_shared:0 dynamic_shared:0 grid:3,1,1 block:128,1,1 occ_pct:75",
        "theoretical_occupancy_pct": 75.0,
        "tf_op": b"layer/op3:MatMul",
        "group_id": 0,
    }
    assert_equal(plane, decode_plane_numpy(realistic_plane()))


@pytest.mark.parametrize("folder", [SHARED_TRACES, DEMO_LOGS], ids=["real", "demo"])
def test_equal_on_files(built: ModuleType, folder: Path) -> None:
    if not files(folder):
        pytest.skip(f"no profiles present in {folder}")
    for path in files(folder):
        for plane in planes_of(path):
            assert_equal(outcome_compiled(built, plane), outcome_numpy(plane))


@pytest.mark.slow
@given(random=st.randoms(use_true_random=False), oddness=st.sampled_from((0.0, 0.05, 0.2, 0.5)))
def test_equal_on_generated(built: ModuleType, random: Random, oddness: float) -> None:
    plane = PlaneWriter(random, oddness).plane()
    outcome = outcome_compiled(built, plane)
    assert not isinstance(outcome, str), "a sound plane, if an odd one"
    assert_equal(outcome, outcome_numpy(plane))


@given(data=st.binary(max_size=64))
def test_equal_on_any_bytes(built: ModuleType, data: bytes) -> None:
    assert_equal(outcome_compiled(built, data), outcome_numpy(data))


@pytest.mark.slow
def test_equal_on_damaged(built: ModuleType) -> None:
    sound = refused = 0
    planes = damaged(20_240_607)
    for _ in range(4000):
        plane = next(planes)
        outcome = outcome_compiled(built, plane)
        assert_equal(outcome, outcome_numpy(plane))
        refused += isinstance(outcome, str)
        sound += not isinstance(outcome, str)
    assert sound > 1000 and refused > 500, "the damage is neither all fatal nor all harmless"


@pytest.mark.slow
@pytest.mark.parametrize("cut", range(1, 300, 7))
def test_truncated_plane(built: ModuleType, cut: int) -> None:
    plane = realistic_plane()[:-cut]
    assert_equal(outcome_compiled(built, plane), outcome_numpy(plane))


# -- rules of the contract, each on its own --------------------------------------------------------------------

KEY = {"int": 1, "text": 2, "ref": 3, "float": 4}


def one_event(event: bytes, *, entries: bytes = b"") -> bytes:
    """A plane with one event and stat metadata for an INT, a STR and a FLOAT slot."""
    names = {KEY["int"]: "correlation_id", KEY["text"]: "tf_op", KEY["ref"]: "referred", KEY["float"]: SLOTS[9][0]}
    maps = b"".join(
        bytes_field(5, b"\x08" + varint(key) + bytes_field(2, bytes_field(2, name.encode())))
        for key, name in names.items()
    )
    return bytes_field(3, bytes_field(4, event)) + maps + entries


def stat(key: str, value: bytes) -> bytes:
    return bytes_field(4, b"\x08" + varint(KEY[key]) + value)


def double(value: float) -> bytes:
    return b"\x11" + struct.pack("<d", value)


@pytest.mark.parametrize(
    ("event", "slot", "expected"),
    [
        (stat("int", b"\x18" + varint(7)), "correlation_id", 7),
        (stat("int", b"\x18" + varint(1 << 63)), "correlation_id", -(1 << 63)),
        (stat("int", b"\x20" + varint(-5)), "correlation_id", -5),
        (stat("int", double(-2.9)), "correlation_id", -2),
        (stat("int", double(2.0**63)), "correlation_id", None),
        (stat("int", double(-(2.0**63))), "correlation_id", -(1 << 63)),
        (stat("int", double(math.nan)), "correlation_id", None),
        (stat("int", bytes_field(5, b"7")), "correlation_id", None),
        (stat("int", b"\x38" + varint(KEY["ref"])), "correlation_id", None),
        (stat("int", b"\x18\x07\x20\x08"), "correlation_id", 8),
        (stat("int", b"\x18\x07" + bytes_field(5, b"x")), "correlation_id", None),
        (stat("int", b"\x18\x07") + stat("int", b"\x18\x09"), "correlation_id", 9),
        (stat("int", b"\x18\x07") + stat("int", bytes_field(5, b"x")), "correlation_id", 7),
        (stat("int", b""), "correlation_id", None),
        (stat("text", bytes_field(5, b"a")), "tf_op", b"a"),
        (stat("text", bytes_field(6, b"\xff\0")), "tf_op", b"\xff\0"),
        (stat("text", bytes_field(5, b"")), "tf_op", b""),
        (stat("text", b"\x38" + varint(KEY["ref"])), "tf_op", b"referred"),
        (stat("text", b"\x38" + varint(99)), "tf_op", None),
        (stat("text", bytes_field(5, b"a")) + stat("text", b"\x38" + varint(99)), "tf_op", b"a"),
        (stat("text", b"\x18\x07"), "tf_op", None),
        (stat("float", double(12.5)), SLOTS[9][0], 12.5),
        (stat("float", b"\x18" + varint((1 << 64) - 1)), SLOTS[9][0], 2.0**64),
        (stat("float", b"\x20" + varint(-3)), SLOTS[9][0], -3.0),
        (stat("float", bytes_field(5, b"1")), SLOTS[9][0], None),
    ],
)
def test_stat_values(built: ModuleType, event: bytes, slot: str, expected: Any) -> None:
    index = [name for name, _ in SLOTS].index(slot)
    for plane in (wire.decode_plane_compiled(built, one_event(event)), decode_plane_numpy(one_event(event))):
        assert slot_values(plane, index) == [expected]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (b"", (0, 0, 1)),
        (b"\x10\x05\x18\x07", (5, 7, 1)),
        (b"\x10\x05\x28\x03", (0, 0, 0)),
        (b"\x28\x03\x10\x05", (5, 0, 1)),
        (b"\x10\x05\x10\x06", (6, 0, 1)),
        (b"\x10" + varint(-5), (-5, 0, 1)),
        (b"\x15\0\0\0\0\x18\x02", (0, 2, 1)),  # offset_ps as fixed32: skipped
    ],
)
def test_event_times(built: ModuleType, event: bytes, expected: tuple[int, int, int]) -> None:
    for plane in (wire.decode_plane_compiled(built, one_event(event)), decode_plane_numpy(one_event(event))):
        assert (plane.offset[0], plane.duration[0], plane.has_start[0]) == expected


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (b"", None),
        (bytes_field(4, b""), None),
        (bytes_field(4, b"\x08\x05"), b""),
        (bytes_field(4, b"\x08\x05" + bytes_field(2, bytes_field(2, b"a") + bytes_field(2, b"b"))), b"b"),
        (bytes_field(4, b"\x08\x05" + bytes_field(2, bytes_field(2, b"a")) + bytes_field(2, b"\x08\x01")), b"a"),
        (bytes_field(4, b"\x08\x05" + bytes_field(2, bytes_field(2, b"a"))) + bytes_field(4, b"\x08\x05"), b""),
        (bytes_field(4, bytes_field(2, bytes_field(2, b"a")) + b"\x08\x07\x08\x05"), b"a"),
    ],
)
def test_event_names(built: ModuleType, entries: bytes, expected: bytes | None) -> None:
    data = one_event(b"\x08\x05", entries=entries)
    for plane in (wire.decode_plane_compiled(built, data), decode_plane_numpy(data)):
        assert resolved(plane, plane.event_name) == [expected]


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00",  # field number 0
        b"\x80\x80\x80\x80\x10\x00",  # a tag past 32 bits
        b"\x08",  # a varint that never comes
        b"\x08" + b"\x80" * 10 + b"\x01",  # eleven bytes
        b"\x0b\x0c",  # a group
        b"\x0e",
        b"\x0f",
        b"\x12\x05abc",  # a length past the end
        b"\x12" + varint((1 << 64) - 1),
        b"\x0d\0\0\0",  # fixed32 cut short
        b"\x09\0\0\0\0\0\0\0",  # fixed64 cut short
        bytes_field(3, b"\x22\x01"),
        bytes_field(3, bytes_field(4, b"\x08")),
        bytes_field(3, bytes_field(4, bytes_field(4, b"\x11\0"))),
        bytes_field(4, bytes_field(2, b"\x12\x01")),
        bytes_field(5, b"\x00"),
        bytes_field(6, b"\x2a\x02a"),
    ],
)
def test_malformed(built: ModuleType, data: bytes) -> None:
    for broken in (data, one_event(b"\x08\x01") + data):
        assert outcome_compiled(built, broken) == "malformed"
        assert outcome_numpy(broken) == "malformed"


def test_malformed_says_where(built: ModuleType) -> None:
    start = one_event(b"\x08\x01")
    with pytest.raises(ProfileError) as error:
        wire.decode_plane_compiled(built, start + b"\x00\x00")
    assert len(start) <= error.value.params["offset"] <= len(start) + 2


def test_amplification_is_refused(built: ModuleType) -> None:
    """Two bytes of event may not become 160 bytes of columns without end."""
    slots = b"".join(
        bytes_field(5, b"\x08" + varint(i + 1) + bytes_field(2, bytes_field(2, name.encode())))
        for i, (name, _) in enumerate(SLOTS)
    )
    data = bytes_field(3, b"\x22\x00" * 1_000_000) + slots
    for outcome in (outcome_compiled(built, data), outcome_numpy(data)):
        assert outcome == "too_many_events"
    few = bytes_field(3, b"\x22\x00" * 1000) + slots
    assert_equal(outcome_compiled(built, few), outcome_numpy(few))


def test_memory_cap_counts_the_slots_named(built: ModuleType) -> None:
    """The cap is rows times the bytes of a row, to the byte."""
    row = 20 * (wire.BASE_ROW_BYTES + 8 + 4 + 8)
    data = bytes_field(3, bytes_field(4, b"") * 19) + one_event(b"")
    spec = tuple((name.encode(), int(kind)) for name, kind in SLOTS)
    assert built.decode_plane(data, spec, row)
    with pytest.raises(ValueError, match="too_many_events") as error:
        built.decode_plane(data, spec, row - 1)
    assert error.value.args == ("too_many_events", 20)


@pytest.mark.slow
def test_memory_cap_counts_lines_and_stats(built: ModuleType) -> None:
    data = bytes_field(3, b"") * 3 + bytes_field(6, b"") * 2
    assert built.decode_plane(data, (), 5 * wire.PART_BYTES)
    with pytest.raises(ValueError, match="too_many_events") as error:
        built.decode_plane(data, (), 5 * wire.PART_BYTES - 1)
    assert error.value.args == ("too_many_events", 5)
    many = bytes_field(3, b"") * 1_000_000
    for outcome in (outcome_compiled(built, many), outcome_numpy(many)):
        assert outcome == "too_many_events"


def test_many_metadata_and_strings(built: ModuleType) -> None:
    """Tables grow; sparse, negative and huge ids are found."""
    random = Random(5)
    keys = random.sample(range(3000), 1500) + [random.getrandbits(64) for _ in range(1500)] + [(1 << 64) - 1, 1 << 63]
    plane = Plane("p")
    line = Line(plane, 1, "l")
    events = []
    for i, key in enumerate(keys):
        body = b"\x08" + varint(key) + b"\x22" + varint(len(text := b"\x08\x01\x2a" + varint(4) + b"%04d" % i)) + text
        events.append(bytes_field(4, body))
    data = (
        bytes_field(3, line.encode() + b"".join(events))
        + b"".join(bytes_field(4, b"\x08" + varint(k) + bytes_field(2, bytes_field(2, b"n%d" % k))) for k in keys)
        + bytes_field(5, b"\x08\x01" + bytes_field(2, bytes_field(2, b"tf_op")))
    )
    decoded = wire.decode_plane_compiled(built, data)
    assert resolved(decoded, decoded.event_name) == [b"n%d" % key for key in keys]
    assert slot_values(decoded, [n for n, _ in SLOTS].index("tf_op")) == [b"%04d" % i for i in range(len(keys))]
    assert_equal(decoded, decode_plane_numpy(data))


def test_bad_arguments(built: ModuleType) -> None:
    with pytest.raises(TypeError):
        built.decode_plane(bytearray(b""), (), 1)
    with pytest.raises(TypeError):
        built.decode_plane(b"", ((1, 2),), 1)
    with pytest.raises(OverflowError):
        built.decode_plane(b"", ((b"a", 3),), 1)
    with pytest.raises(OverflowError):
        built.decode_plane(b"", ((b"a", 0),) * 65, 1)
