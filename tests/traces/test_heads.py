"""What a file is and says by its beginning, whatever it is called."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.traces.heads import head_of, start_of_xspace
from tests.traces.kineto_files import BASE_S, kineto

TF = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [
    {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}}]}  # fmt: skip


def put(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("many", [3, 3000])
def test_pytorchs_own(tmp_path: Path, packed: bool, indent: int | None, many: int) -> None:
    text = json.dumps(
        kineto(rank=3, world=8, pid=4711, host="node-7", start_s=5.5, events=many), indent=indent
    ).encode()
    head = head_of(put(tmp_path / "whatever.json", gzip.compress(text) if packed else text))
    assert head is not None and head.format == "kineto"
    assert (head.rank, head.world_size, head.pid, head.host) == (3, 8, 4711, "node-7")
    assert head.start_unix_s == pytest.approx(BASE_S + 5.5)
    assert head.end_unix_s == pytest.approx(BASE_S + 5.5 + many * 1e-5) or (packed and head.end_unix_s is None)


def test_properties_behind_the_events(tmp_path: Path) -> None:
    content = kineto(rank=1, world=2)
    content["distributedInfo"] = content.pop("distributedInfo")
    content["baseTimeNanoseconds"] = content.pop("baseTimeNanoseconds")
    head = head_of(put(tmp_path / "trace", json.dumps(content).encode()))
    assert head is not None and (head.rank, head.world_size) == (1, 2) and head.start_unix_s is not None


def test_a_long_story_in_front_of_the_events(tmp_path: Path) -> None:
    content: dict[str, Any] = {"metadata": {"note": "x" * 200_000}} | kineto()
    assert head_of(put(tmp_path / "my_trace.json", json.dumps(content).encode())) is not None


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (json.dumps(TF).encode(), "trace_json"),
        (b'[{"name": "aten::mul", "ph": "X", "ts": 1, "dur": 2, "tid": 1, "pid": "CPU functions"}]', "kineto"),
        (json.dumps(kineto()).encode("utf-16"), "kineto"),
        (b"\xef\xbb\xbf" + json.dumps(kineto()).encode(), "kineto"),
        (json.dumps(kineto()).encode()[:700], "kineto"),
        (b"\n\x0d\x08\x01\x12\x09/host:CPU", "xplane"),
        (b"\n\x12\x12\x10Task Environment", "xplane"),
    ],
)  # fmt: skip
def test_other_forms(tmp_path: Path, content: bytes, form: str) -> None:
    for name in ("a", "b.gz"):
        head = head_of(put(tmp_path / name, content if name == "a" or form == "xplane" else gzip.compress(content)))
        assert head is not None and head.format == form


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"[1, 2]", b'{"a": {"rank": 3}}', b'{"traceEvents": []}', b"\x1f\x8b", b"\x1f\x8bnonsense",
     b'{"traceEvents": [{"ph": "X", "name": "ExecuteCompiler", "pid": 1, "ts": 1, "dur": 2}]}', b"\n", b"\n\xff",
     b"\n\x05hello", b"\n\x0d\n\x0bmain/MatMul", b"\x08\x01\x12\x02ab", b"\n\x0d\x08\x01\x12\x09not a ple",
     b"\0" * 100,
     b'{"version": 5, "truncation": null, "added_tokens": [{"id": 0, "special": true}]}',
     b'{"nodes": [{"name": "k"}]}'],
)  # fmt: skip
def test_what_is_no_profile(tmp_path: Path, content: bytes) -> None:
    assert head_of(put(tmp_path / "trace.json", content)) is None


@given(st.binary(max_size=300))
def test_any_bytes_end_in_an_answer(content: bytes) -> None:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"gpu-doctor-head-{os.getpid()}"
    try:
        for prefix in (b"", b"\n", b"{", b'{"schemaVersion":1,', b"\x1f\x8b\x08"):
            put(path, prefix + content)
            head_of(str(path)), start_of_xspace(str(path))
    finally:
        path.unlink(missing_ok=True)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace.json")
    (tmp_path / "folder.json").mkdir()
    for name in ("trace.json", "folder.json", "missing", "a\0b"):
        assert head_of(str(tmp_path / name)) is None and start_of_xspace(str(tmp_path / name)) is None


def test_a_file_written_anew_is_looked_at_anew(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert head_of(put(path, b"{}")) is None
    assert head_of(put(path, json.dumps(kineto()).encode())) is not None
