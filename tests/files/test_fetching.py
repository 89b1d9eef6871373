"""Copies of remote files: whole, bounded, and gone afterwards."""

from __future__ import annotations

import collections
import http.server
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tb_gpu_doctor.errors import RemoteError
from tb_gpu_doctor.files import fetching, patience
from tb_gpu_doctor.files.fetching import local_copy, read_head
from tests.remote_stores import OddStore, in_memory, odd_store, web_server


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[OddStore]]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with odd_store() as store:
        yield store


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_a_copy_is_equal_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    content = os.urandom(size)
    root = in_memory({"a.pb": content})
    shares: list[float] = []
    with local_copy(f"{root}/a.pb", shares.append) as path:
        assert Path(path).read_bytes() == content == Path(path).read_bytes()
        assert os.path.getsize(path) == size
    assert os.listdir(tmp_path) == []
    assert not size or shares[-1] == 1.0
    with pytest.raises(ZeroDivisionError), local_copy(f"{root}/a.pb"):
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_a_copy_with_a_name_goes_too(odd: type[OddStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_nameless", fetching._named)
    odd.contents = {"h/a.pb": b"abc"}
    with local_copy("oddstore://h/a.pb") as path:
        assert Path(path).read_bytes() == b"abc" and Path(path).parent == tmp_path
    assert os.listdir(tmp_path) == []


def test_a_local_file_is_itself(tmp_path: Path) -> None:
    with local_copy(str(tmp_path / "x")) as path:
        assert path == str(tmp_path / "x")


def test_pieces_rise(odd: type[OddStore], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_PIECE_BYTES", 10)
    odd.contents = {"h/a.pb": bytes(95)}
    shares: list[float] = []
    with local_copy("oddstore://h/a.pb", shares.append) as path:
        assert os.path.getsize(path) == 95
    assert len(shares) == 10 and shares == sorted(shares)


@pytest.mark.parametrize("told", [10, 1000])
def test_a_size_that_lies(odd: type[OddStore], told: int) -> None:
    odd.contents, odd.sizes = {"h/a.pb": bytes(100)}, {"h/a.pb": told}
    with pytest.raises(RemoteError) as raised, local_copy("oddstore://h/a.pb"):
        pass
    assert raised.value.code == "remote_changed"


@pytest.mark.parametrize("told", [None, 1 << 40])
def test_no_room(odd: type[OddStore], monkeypatch: pytest.MonkeyPatch, told: int | None) -> None:
    odd.contents, odd.sizes = {"h/a.pb": bytes(100)}, {"h/a.pb": told}  # type: ignore[dict-item]
    usage = collections.namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(0, 0, fetching._RESERVE_BYTES + 50))
    with pytest.raises(RemoteError) as raised, local_copy("oddstore://h/a.pb"):
        pass
    assert raised.value.code == "remote_no_room" and raised.value.params["free_bytes"] == 50


def test_missing() -> None:
    with pytest.raises(FileNotFoundError), local_copy("memory://nothing/here.pb"):
        pass


def test_a_killed_process_leaves_nothing(tmp_path: Path) -> None:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")
    code = (
        "import fsspec, time\n"
        "from tb_gpu_doctor.files.fetching import local_copy\n"
        "fsspec.filesystem('memory').pipe_file('/a/b.pb', bytes(1000))\n"
        "with local_copy('memory://a/b.pb') as path:\n"
        "    print(len(open(path, 'rb').read()), flush=True)\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert process.stdout is not None and process.stdout.readline().strip() == "1000"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert os.listdir(tmp_path) == []


def test_the_head_of_a_file(tmp_path: Path) -> None:
    root = in_memory({"a.json": b"0123456789"})
    (tmp_path / "a.json").write_bytes(b"0123456789")
    for path in (f"{root}/a.json", str(tmp_path / "a.json"), f"file://{tmp_path}/a.json"):
        assert read_head(path, 4) == b"0123" and read_head(path, 100) == b"0123456789"


@pytest.mark.slow
def test_a_web_server_that_sends_no_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python's own: a file that is larger than a piece comes in one answer, asked for once."""
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(fetching, "_PIECE_BYTES", 1 << 20)
    content = os.urandom((3 << 20) + 5)
    (tmp_path / "a.xplane.pb").write_bytes(content)
    shares: list[float] = []
    with web_server(tmp_path) as place, local_copy(f"http://{place}/a.xplane.pb", shares.append) as path:
        assert Path(path).read_bytes() == content
    assert len(shares) == 4 and shares[-1] == 1.0


def test_a_web_server_that_stops_midway(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")

    class Short(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x" * 10)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Short)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(RemoteError) as raised, local_copy(f"http://127.0.0.1:{server.server_port}/a.pb"):
            pass
    finally:
        server.shutdown()
        server.server_close()
    assert raised.value.code in ("remote_changed", "remote_unreachable")


def test_a_file_replaced_between_two_pieces_is_no_mixture(odd: type[OddStore], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_PIECE_BYTES", 10)
    odd.contents = {"h/a.pb": bytes(95)}
    changed: list[float] = []

    def progress(share: float) -> None:
        changed.append(share)
        odd.times = {"h/a.pb": 1.8e9}

    with pytest.raises(RemoteError) as raised, local_copy("oddstore://h/a.pb", progress):
        pass
    assert raised.value.code == "remote_changed" and len(changed) == 10


@pytest.mark.slow
def test_a_server_that_falls_silent_is_given_up(odd: type[OddStore], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "CALL_TIMEOUT_S", 0.3)
    monkeypatch.setenv(patience.VARIABLE, "1")
    odd.contents, odd.read_wait_s = {"h/a.pb": bytes(95)}, 30.0
    began = time.monotonic()
    with pytest.raises(RemoteError) as raised, local_copy("oddstore://h/a.pb"):
        pass
    assert raised.value.code == "remote_timeout" and time.monotonic() - began < 10


def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp")
    asked: list[str] = []

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "7")
            self.end_headers()
            self.wfile.write(b"proxied")

        def log_message(self, *_arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("no_proxy", "")
    try:
        assert read_head("http://nowhere.invalid/a.pb", 100) == b"proxied"
    finally:
        server.shutdown()
        server.server_close()
    assert set(asked) == {"http://nowhere.invalid/a.pb"}
