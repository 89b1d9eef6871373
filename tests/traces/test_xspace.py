"""Walking a file field by field, whole, cut off or made of something else."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.xplane_writer import Space, bytes_field, tag, varint
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces import xspace
from tb_gpu_doctor.traces.xspace import SpaceItem, walk


def sample() -> Space:
    space = Space(hostnames=("node-7",), warnings=("events dropped",), errors=("No GPU detected.",))
    for i in range(3):
        plane = space.plane(f"/device:GPU:{i}", i + 1)
        line = plane.line(13, "Stream #13(Compute)", 5)
        for k in range(4):
            line.event("kernel", 1000 * k, 500, {"correlation_id": k + 1})
    return space


def items(path: Path) -> list[SpaceItem]:
    return list(walk(str(path)))


def code_of(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(ProfileError) as error:
        items(path)
    assert error.value.path == str(path)
    return error.value.code


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "host.xplane.pb"


def test_all_fields_in_order(path: Path) -> None:
    space = sample()
    path.write_bytes(space.encode())
    found = items(path)
    assert [i.kind for i in found] == ["plane"] * 3 + ["error", "warning", "hostname"]
    assert [i.data for i in found[:3]] == [p.encode() for p in space.planes]
    assert [i.data for i in found[3:]] == [b"No GPU detected.", b"events dropped", b"node-7"]
    content = path.read_bytes()
    assert all(content[i.offset : i.offset + len(i.data)] == i.data for i in found)


def test_unknown_fields_are_passed_over(path: Path) -> None:
    odd = (
        tag(9, 0) + varint(7), tag(10, 1) + b"12345678", tag(11, 5) + b"1234", bytes_field(12, b"later"),
        tag(1, 0) + varint(3), tag(2, 1) + b"12345678",
    )  # fmt: skip
    plane = bytes_field(1, sample().planes[0].encode())
    path.write_bytes(b"".join(piece + plane for piece in odd))
    assert [i.kind for i in items(path)] == ["plane"] * 6


def test_every_cut_is_noticed_unless_it_falls_between_two_fields(path: Path) -> None:
    space = sample()
    content = space.encode()
    between = {0}
    for chunk in space.chunks():
        between.add(max(between) + len(chunk))
    for size in range(1, len(content)):
        path.write_bytes(content[:size])
        if size in between:
            items(path)
            continue
        with pytest.raises(ProfileError) as error:
            items(path)
        first = bytes_field(1, space.planes[0].encode())
        if error.value.code == "truncated":
            assert error.value.params["offset"] == size
            assert 0 < error.value.params["missing_bytes"] <= len(content) - size
        else:  # the cut went through a key or a length
            assert error.value.code == ("malformed" if size > len(first) else "not_xplane")


@pytest.mark.parametrize(
    "content",
    [
        b"just some text\n",
        b"\n\nMore text, as people write it.\n" * 50,
        b'{"traceEvents": [], "displayTimeUnit": "ns"}',
        b'\n{"traceEvents": [{"name": "x"}]}\n' * 20,
        gzip.compress(b"x" * 1000, mtime=0),
        b"PK\x03\x04" + b"\0" * 100,
        b"\x7fELF" + b"\0" * 100,
        b"\x89PNG\r\n\x1a\n" + b"\0" * 100,
        b"<html><body>404</body></html>",
        b"\xff" * 100,
        b"\0" * 100,
        b"\n",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ],
)
def test_something_else_is_never_read_as_planes_without_a_word(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        found = items(path)
    except ProfileError as error:
        assert error.code in ("not_xplane", "malformed", "truncated")
    else:
        assert not any(i.kind == "plane" and i.data.startswith(b"\x12") for i in found)


def test_empty(path: Path) -> None:
    assert code_of(path, b"") == "empty_file"


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as error:
        items(tmp_path / "nowhere")
    assert error.value.code == "missing_path"


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as error:
        items(tmp_path)
    assert (error.value.code, error.value.path) == ("io_error", str(tmp_path))
    assert error.value.params["reason"]


def test_no_permission(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    path.write_bytes(sample().encode())
    monkeypatch.setattr(xspace, "open_regular", refuse)
    with pytest.raises(ProfileError) as error:
        items(path)
    assert error.value.code == "no_permission"


def test_a_file_that_shrinks_while_it_is_read(path: Path) -> None:
    space = sample()
    for plane in space.planes:
        for i in range(30_000):
            plane.lines[0].event("kernel", 1000 * i, 500)
    content = space.encode()
    path.write_bytes(content)
    walked = walk(str(path))
    next(walked)
    os.truncate(path, len(content) // 2)
    with pytest.raises(ProfileError) as error:
        list(walked)
    assert error.value.code in ("truncated", "malformed")


def test_a_length_of_exabytes_allocates_nothing(path: Path) -> None:
    assert code_of(path, tag(1, 2) + varint(1 << 60) + b"\x12" + b"x" * 50) == "truncated"
    assert code_of(path, bytes_field(1, b"\x12\x01a") + tag(3, 2) + varint((1 << 64) - 1)) == "truncated"


def test_very_many_planes_are_an_attack(path: Path) -> None:
    assert code_of(path, bytes_field(1, b"") * (xspace.MAX_PLANES + 1)) == "malformed"


def test_long_texts_are_cut(path: Path) -> None:
    path.write_bytes(bytes_field(3, b"w" * (3 << 20)) + bytes_field(1, b"\x12\x01a"))
    warning, plane = items(path)
    assert 0 < len(warning.data) <= 1 << 20
    assert plane.kind == "plane"


@given(st.binary(max_size=200))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.xplane.pb"
    path.write_bytes(content)
    try:
        found = items(path)
    except ProfileError as error:
        assert error.path == str(path)
    else:
        assert sum(len(i.data) for i in found) <= len(content)


@pytest.mark.parametrize("field", [b"\x50\x01", b"\x1a\x01A"], ids=["unknown", "warning"])
def test_very_many_small_fields_are_an_attack(path: Path, field: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xspace, "_MAX_FIELDS", 1_000)
    path.write_bytes(field * (xspace._MAX_FIELDS + 1))
    with pytest.raises(ProfileError, match="not_xplane"):
        list(walk(str(path)))
    path.write_bytes(bytes_field(1, b"") + field * xspace._MAX_FIELDS)
    with pytest.raises(ProfileError, match="malformed"):
        list(walk(str(path)))
