"""Unpacking: all that is there, and no more than a trace can be."""

from __future__ import annotations

import gzip
import tempfile
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces import json_file
from tb_gpu_doctor.traces.json_file import read_json_bytes


def put(folder: Path, content: bytes) -> str:
    path = folder / "trace.json.gz"
    path.write_bytes(content)
    return str(path)


def unpacked(path: str) -> bytes:
    content, is_cut = read_json_bytes(path)
    assert not is_cut
    return bytes(content)


def code_of(path: str) -> str:
    with pytest.raises(ProfileError) as error:
        read_json_bytes(path)
    assert error.value.path == path
    return error.value.code


@given(content=st.binary(min_size=1, max_size=5000), level=st.integers(0, 9), members=st.integers(1, 3))
def test_unpacked_as_gzip_does(content: bytes, level: int, members: int) -> None:
    packed = b"".join(gzip.compress(content, level) for _ in range(members))
    with tempfile.TemporaryDirectory() as folder:
        assert unpacked(put(Path(folder), packed)) == content * members


def test_a_name_does_not_make_it_packed(tmp_path: Path) -> None:
    assert unpacked(put(tmp_path, b'{"traceEvents":[]}')) == b'{"traceEvents":[]}'


def test_larger_than_one_piece(tmp_path: Path) -> None:
    content = b"".join(b"%d," % (i * i) for i in range(600_000))
    seen: list[float] = []
    assert bytes(read_json_bytes(put(tmp_path, gzip.compress(content, 1)), seen.append)[0]) == content
    assert seen == sorted(seen) and 0 < seen[-1] <= 1


@pytest.mark.parametrize("behind", [b"\0" * 512, b"garbage", b"\0\0more"])
def test_what_stands_behind_the_end_is_left(tmp_path: Path, behind: bytes) -> None:
    assert unpacked(put(tmp_path, gzip.compress(b"{}") + behind)) == b"{}"


@pytest.mark.parametrize("kept", [3, 10, 11])
def test_a_packed_file_that_ends_before_anything_is_in_it(tmp_path: Path, kept: int) -> None:
    packed = gzip.compress(bytes(range(256)) * 30)
    assert code_of(put(tmp_path, packed[:kept])) == "cut_off"


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_packed_file_that_ends_early_is_read_up_to_its_end(tmp_path: Path, share: float) -> None:
    content = b"".join(b"%d," % (i * i) for i in range(90_000))
    packed = gzip.compress(content)
    found, is_cut = read_json_bytes(put(tmp_path, packed[: int(len(packed) * share)]))
    assert is_cut and content.startswith(found) and len(found) > 0.8 * share * len(content)


def test_damaged_inside(tmp_path: Path) -> None:
    content = b"".join(b"%d," % (i * i) for i in range(90_000))
    packed = bytearray(gzip.compress(content))
    packed[len(packed) // 2] ^= 0xFF
    found, is_cut = read_json_bytes(put(tmp_path, bytes(packed)))
    assert is_cut and found[: len(content) // 4] == content[: len(content) // 4]
    assert code_of(put(tmp_path, b"\x1f\x8b" + b"no gzip at all")) == "malformed"


@pytest.mark.slow
def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(300)) + packer.flush()
    assert len(packed) < 400_000
    tracemalloc.start()
    try:
        assert code_of(put(tmp_path, packed)) == "gzip_bomb"
        assert tracemalloc.get_traced_memory()[1] < 150 << 20  # of 300 MiB
    finally:
        tracemalloc.stop()


def test_larger_than_any_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_file, "MAX_BYTES", 100_000)
    content = b"".join(b"%d," % (i * i) for i in range(30_000))
    assert code_of(put(tmp_path, gzip.compress(content))) == "too_large"
    assert code_of(put(tmp_path, content)) == "too_large"


def test_files_that_are_not_there(tmp_path: Path) -> None:
    assert code_of(put(tmp_path, b"")) == "empty_file"
    assert code_of(str(tmp_path / "no")) == "missing_path"
    assert code_of(str(tmp_path)) == "io_error"
    assert code_of("a\0b") == "io_error"
