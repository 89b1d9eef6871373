"""XPlane files without names, checked with protobuf's own reader and with the analyses."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.packing.names import Names
from tb_gpu_doctor.packing.xplane_rewrite import rewrite_xplane
from tb_gpu_doctor.traces.columns import DeviceEvents, HostEvents, Trace
from tb_gpu_doctor.traces.xplane import read_xplane
from tests.packing.spaces import SECRETS, planted, schema, with_unknown_fields
from tests.real_traces import XPLANE_FOLDERS, xplane_path

# Columns that hold ids of texts.
_TEXTS = {"name", "op", "details", "hlo_op", "hlo_module"}


def rewritten(path: Path, names: Names | None, slim: bool) -> bytes:
    out = io.BytesIO()
    rewrite_xplane(str(path), out, names, slim)
    return out.getvalue()


@pytest.fixture
def space_path(tmp_path: Path) -> Path:
    path = tmp_path / "zebra-node-7.xplane.pb"
    path.write_bytes(with_unknown_fields(planted().SerializeToString()))
    return path


def assert_equal_but_for_names(before: Trace, after: Trace) -> None:
    """All numbers but those of processes are the same, and equal texts stay equal ones."""
    assert len(before.devices) == len(after.devices)
    assert [(s.device, s.line_id) for s in before.streams] == [(s.device, s.line_id) for s in after.streams]
    is_process = before.format == "kineto"  # whose main thread has its number
    assert is_process or [t.line_id for t in before.threads] == [t.line_id for t in after.threads]
    assert len(before.threads) == len(after.threads)
    pairs = (
        (before.device_events, after.device_events, DeviceEvents),
        (before.host_events, after.host_events, HostEvents),
    )
    for one, other, kind in pairs:
        for column in kind.__dataclass_fields__:
            left, right = getattr(one, column), getattr(other, column)
            if column not in _TEXTS:
                assert np.array_equal(left, right, equal_nan=left.dtype.kind == "f"), column
                continue
            known: dict[str, str] = {}
            for a, b in set(zip(left.tolist(), right.tolist(), strict=True)):
                assert (a < 0) == (b < 0)
                assert known.setdefault(before.strings[a], after.strings[b]) == after.strings[b]
            assert len(set(known.values())) == len(known)
    assert before.recorded == after.recorded and before.wall_start_unix_ns == after.wall_start_unix_ns


def test_no_name_is_left_in_any_byte(space_path: Path) -> None:
    for slim in (False, True):
        data = rewritten(space_path, Names(), slim)
        assert not [secret for secret in SECRETS if secret.encode() in data]


def test_protobuf_reads_the_same_numbers(space_path: Path) -> None:
    before = schema().XSpace.FromString(space_path.read_bytes())
    after = schema().XSpace.FromString(rewritten(space_path, Names(), False))
    kept = [plane for plane in before.planes if plane.name != "/host:metadata"]
    assert [plane.name for plane in after.planes] == [plane.name for plane in kept]
    assert after.planes[0].stats[0].str_value == "NVIDIA H100 80GB HBM3"
    for one, other in zip(kept, after.planes, strict=True):
        assert one.id == other.id
        assert set(one.stat_metadata) == set(other.stat_metadata)
        assert [(line.id, line.timestamp_ns, line.duration_ps, line.display_id) for line in one.lines] == [
            (line.id, line.timestamp_ns, line.duration_ps, line.display_id) for line in other.lines
        ]
        for line, new in zip(one.lines, other.lines, strict=True):
            assert [(e.metadata_id, e.offset_ps, e.duration_ps) for e in line.events] == [
                (e.metadata_id, e.offset_ps, e.duration_ps) for e in new.events
            ]
            for event, copy in zip(line.events, new.events, strict=True):
                assert plain(event) == plain(copy)
        for key, metadata in one.event_metadata.items():
            assert list(metadata.child_id) == list(other.event_metadata[key].child_id)
    names = {metadata.name for plane in after.planes for metadata in plane.event_metadata.values()}
    assert {"cuLaunchKernel", "ncclDevKernel_AllReduce_Sum_f32"} <= names
    assert "insufficient privilege" in after.errors[0] and "12 events dropped" in after.warnings[0]
    assert after.hostnames[0] == "host1"


def plain(event: Any) -> list[tuple[int, float]]:
    found = []
    for stat in event.stats:
        which = stat.WhichOneof("value")
        if which in ("double_value", "uint64_value", "int64_value", "ref_value"):
            found.append((stat.metadata_id, getattr(stat, which)))
    return found


@pytest.mark.parametrize("slim", [False, True])
@pytest.mark.parametrize("redact", [False, True])
def test_the_reader_sees_the_same_run(space_path: Path, tmp_path: Path, redact: bool, slim: bool) -> None:
    path = tmp_path / "new.xplane.pb"
    path.write_bytes(rewritten(space_path, Names() if redact else None, slim))
    before, after = read_xplane(str(space_path)), read_xplane(str(path))
    assert_equal_but_for_names(before, after)
    assert np.array_equal(analyse(before).gaps.cause, analyse(after).gaps.cause)


def test_nothing_but_copying_changes_nothing_that_is_known(space_path: Path) -> None:
    before = schema().XSpace.FromString(space_path.read_bytes())
    before.DiscardUnknownFields()
    after = schema().XSpace.FromString(rewritten(space_path, None, False))
    for one, other in zip(before.planes, after.planes, strict=True):
        assert one == other
    assert list(before.errors) == list(after.errors) and list(before.hostnames) == list(after.hostnames)


@pytest.mark.slow
@pytest.mark.parametrize("folder", XPLANE_FOLDERS)
def test_real_files_stay_equal_but_for_names(folder: str, tmp_path: Path) -> None:
    source = xplane_path(folder)
    before = read_xplane(str(source), "host")
    for names, slim in ((Names(), True), (None, True)):
        path = tmp_path / f"{slim}.xplane.pb"
        path.write_bytes(rewritten(source, names, slim))
        assert_equal_but_for_names(before, read_xplane(str(path), "host"))
        assert path.stat().st_size < source.stat().st_size * 1.15


def test_damaged_files_are_refused_or_written_and_never_break(space_path: Path, tmp_path: Path) -> None:
    data = space_path.read_bytes()
    rng = random.Random(7)
    path = tmp_path / "broken.xplane.pb"
    refused = 0
    for _ in range(400):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 6)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        path.write_bytes(bytes(broken[: rng.randint(1, len(broken))] if rng.random() < 0.3 else broken))
        try:
            rewritten(path, Names(), rng.random() < 0.5)
        except ProfileError:
            refused += 1
    assert refused


def test_a_metadata_entry_that_comes_in_parts_is_merged(tmp_path: Path) -> None:
    pb2 = schema()
    whole = planted().planes[1]
    space = b"\x0a" + varint(len(whole.SerializeToString())) + whole.SerializeToString()
    # the same key again, as an entry whose value only holds the id: the later entry counts, without a name
    entry = b"\x08\x04\x12\x02\x08\x04"
    plane = whole.SerializeToString() + b"\x22" + varint(len(entry)) + entry
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(b"\x0a" + varint(len(plane)) + plane)
    after = pb2.XSpace.FromString(rewritten(path, None, False))
    assert after.planes[0].event_metadata[4].name == ""
    path.write_bytes(space)
    assert pb2.XSpace.FromString(rewritten(path, None, False)).planes[0].event_metadata[4].name == "giraffe"


def test_nothing_hides_behind_a_number(tmp_path: Path) -> None:
    # a stat that is a number, and behind it a text, which counts, and a field that no schema has
    stat = b"\x08\x01\x18\x05" + b"\x2a\x06s3cr3t" + b"\x9a\x06\x06s3cr3t"
    event = b"\x08\x01" + b"\x22" + varint(len(stat)) + stat + b"\x9a\x06\x06s3cr3t"
    line = b"\x22" + varint(len(event)) + event
    name = b"\x12\x09/host:CPU"
    metadata = b"\x2a\x0c\x08\x01\x12\x08\x08\x01\x12\x04name"
    plane = name + b"\x1a" + varint(len(line)) + line + metadata
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(b"\x0a" + varint(len(plane)) + plane)
    new = schema().XSpace.FromString(rewritten(path, Names(), False))
    assert b"s3cr3t" not in new.SerializeToString()
    assert new.planes[0].lines[0].events[0].stats[0].str_value == "n1"


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
