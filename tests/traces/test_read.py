"""One way to read every file that a session lists."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.traces.read import read_trace
from tb_gpu_doctor.traces.sessions import ProfileFile, find_sessions
from tests.conftest import DEMO_LOGS
from tests.traces.json_writing import document, kernel, write


def only_file(path: str | Path) -> ProfileFile:
    (session,) = find_sessions(str(path)).sessions
    (file,) = session.files
    return file


def test_by_format(tmp_path: Path) -> None:
    seen: list[float] = []
    write(tmp_path / "run" / "rank0.pt.trace.json.gz", document(kernel("k", 0, 1)))
    trace = read_trace(only_file(tmp_path / "run"), seen.append)
    assert (trace.format, trace.host, len(trace.device_events)) == ("kineto", "rank0", 1)
    assert seen == sorted(seen) and seen[-1] == 1
    any_name = write(tmp_path / "my.json", document(kernel("k", 0, 1)))
    assert read_trace(only_file(any_name)).format == "kineto"


def test_xplane() -> None:
    found = sorted(DEMO_LOGS.glob("*/plugins/profile/*"))
    if not found:
        pytest.fail("demo_logs not present: run make demo-logs")
    file = only_file(found[0])
    trace = read_trace(file)
    assert (trace.format, trace.host) == ("xplane", file.host)


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.pt.trace.json", b"{", "cut_off"),
        ("a.pt.trace.json", b"", "empty_file"),
        ("a.pt.trace.json.gz", gzip.compress(b'{"a": 1}', mtime=0), "not_trace_json"),
        ("a.pt.trace.json.gz", gzip.compress(b"{}" * 99, mtime=0)[:-9], "cut_off"),
        ("a.json", b"[1, 2]", "not_trace_json"),
        ("a.tar.gz", gzip.compress(b"x", mtime=0), "unsupported_format"),
        ("a.xplane.pb", gzip.compress(b"x" * 99, mtime=0), "not_xplane"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path: Path, name: str, content: bytes, code: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ProfileError) as error:
        read_trace(only_file(path))
    assert (error.value.code, error.value.path) == (code, str(path))


def test_the_problem_of_a_file_comes_first(tmp_path: Path) -> None:
    file = only_file(write(tmp_path / "a.pt.trace.json", document()))
    for problem, form, code in (
        (Phrase("notes.riegeli", {"file": "a"}), "kineto", "riegeli"),
        (None, "x", "unsupported_format"),
    ):
        with pytest.raises(ProfileError) as error:
            read_trace(replace(file, problem=problem, format=form))
        assert error.value.code == code
