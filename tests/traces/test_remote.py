"""Profiles behind addresses are found and read as those on this machine are."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import fsspec
import numpy as np
import pytest

import tb_gpu_doctor
from tb_gpu_doctor.cache.remember import remembered
from tb_gpu_doctor.cache.session_state import state_of
from tb_gpu_doctor.cache.store import Store
from tb_gpu_doctor.errors import ProfileError, RemoteError
from tb_gpu_doctor.files.backends import open_backend
from tb_gpu_doctor.telemetry.recordings import read_telemetry
from tb_gpu_doctor.traces.read import read_trace
from tb_gpu_doctor.traces.sessions import Session, SessionScan, find_sessions
from tests.remote_stores import S3, OddStore, files_below, in_memory, odd_store, s3_server, web_server
from tests.telemetry.recorded import Recorded

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as store:
        yield store


@pytest.fixture
def odd() -> Iterator[type[OddStore]]:
    with odd_store() as store:
        yield store


def told(scan: SessionScan) -> list[tuple[Any, ...]]:
    """What a scan says, without places and times."""
    return [
        (
            session.run, session.session, session.problem, session.size_bytes, session.is_telemetry,
            [(file.host, file.format, file.size_bytes, os.path.basename(file.path)) for file in session.files],
            [home.run for home in session.homes],
        )
        for session in scan.sessions
    ]  # fmt: skip


def everything(trace: Any) -> Any:
    """All fields of a trace, arrays as lists."""
    if dataclasses.is_dataclass(trace) and not isinstance(trace, type):
        return {
            field.name: everything(getattr(trace, field.name))
            for field in dataclasses.fields(trace)
            if field.name != "path"
        }
    if isinstance(trace, np.ndarray):
        return (str(trace.dtype), trace.tobytes() if trace.dtype != object else trace.tolist())
    if isinstance(trace, dict):
        return {key: everything(value) for key, value in trace.items()}
    if isinstance(trace, (list, tuple)):
        return [everything(value) for value in trace]
    return trace if isinstance(trace, (int, float, str, bytes, bool, type(None))) else repr(type(trace))


def test_the_demos_are_found_in_every_store(demo_logs: Path, s3: S3) -> None:
    files = {name: content for name, content in files_below(demo_logs).items() if not name.endswith(".md")}
    here = sorted(told(find_sessions(str(demo_logs))), key=repr)
    assert len(here) >= 6
    for address in (in_memory(files), s3.put(files, "demos")):
        for given in (address, address + "/"):
            scan = find_sessions(given)
            assert sorted(told(scan), key=repr) == here and not scan.problems
        assert all(file.path.startswith(address) for session in scan.sessions for file in session.files)


@pytest.mark.parametrize("below", ["", "/run", "/run/plugins", "/run/plugins/profile", "/run/plugins/profile/s1"])
def test_any_place_may_be_named(tmp_path: Path, below: str) -> None:
    files = {
        f"run/plugins/profile/{name}/{host}.xplane.pb": b"x" * 10
        for name in ("s1", "s2")
        for host in ("h1", "h10", "h2")
    }
    files |= {"run/gpu_doctor/h1/p/events.out.tfevents.1.h.1.0.gpu_doctor": b"", "run/checkpoints/a/b": b"1"}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert sorted(told(find_sessions(f"{in_memory(files)}{below}")), key=repr) == sorted(
        told(find_sessions(f"{tmp_path}{below}")), key=repr
    )


def test_one_file_may_be_named(demo_logs: Path, s3: S3) -> None:
    path = next((demo_logs / "slow_gpu").rglob("*.xplane.pb"))
    here = find_sessions(str(path))
    below = path.relative_to(demo_logs).as_posix()
    there = find_sessions(f"{s3.put({below: path.read_bytes()}, 'one')}/{below}")
    assert there.sessions[0].session == here.sessions[0].session
    assert there.sessions[0].files[0].host == here.sessions[0].files[0].host
    assert there.sessions[0].files[0].size_bytes == path.stat().st_size
    for address in (f"file://{path}", f"file://localhost{path}", f"file://{demo_logs}"):
        scan = find_sessions(address)
        assert scan.sessions and all("://" not in file.path for s in scan.sessions for file in s.files)


def test_traces_are_equal(demo_logs: Path, s3: S3) -> None:
    for name in ("slow_gpu", "pytorch_ddp"):
        files = files_below(demo_logs / name)
        here = find_sessions(str(demo_logs / name)).sessions[0]
        for address in (in_memory(files), s3.put(files, name)):
            there = find_sessions(address).sessions[0]
            assert len(there.files) == len(here.files)
            local, remote = here.files[0], there.files[0]
            shares: list[float] = []
            trace = read_trace(remote, shares.append)
            assert trace.path == remote.path and shares == sorted(shares) and shares[-1] <= 1.0
            assert everything(trace) == everything(read_trace(local))


def test_recordings_are_read(demo_logs: Path, s3: S3) -> None:
    folder = demo_logs / "slow_gpu"
    here = read_telemetry(folder)
    assert here.recordings
    for address in (in_memory(files_below(folder)), s3.put(files_below(folder), "telemetry")):
        there = read_telemetry(address)
        assert [recording.run for recording in there.recordings] == [recording.run for recording in here.recordings]
        assert there.problems == here.problems
        for mine, other in zip(here.recordings, there.recordings, strict=True):
            assert everything(mine.gpus) == everything(other.gpus)


def test_what_the_monitor_writes_to_a_store_is_read(tmp_path: Path) -> None:
    root = in_memory({})
    for place in (root, str(tmp_path)):
        # str of a Path would lose a slash of the address
        recorded = Recorded(cast(Path, place))
        for step in range(30):
            recorded.sample(step, utilization_percent=[50.0 + step, 90.0])
        recorded.writer.write_now(True)
    there, here = read_telemetry(root), read_telemetry(tmp_path)
    assert not there.problems and len(there.recordings) == len(here.recordings) == 1
    assert [len(gpu.wall_ns) for gpu in there.recordings[0].gpus] == [30, 30]
    for mine, other in zip(here.recordings[0].gpus, there.recordings[0].gpus, strict=True):
        assert everything(dataclasses.replace(mine, run="")) == everything(dataclasses.replace(other, run=""))
    session = find_sessions(root).sessions[0]
    assert session.is_telemetry and session.files[0].host == "node1"
    assert tb_gpu_doctor.diagnose(root).verdict == tb_gpu_doctor.diagnose(tmp_path).verdict


def test_a_web_server_that_lists_its_folders(demo_logs: Path, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    content = next((demo_logs / "slow_gpu").rglob("*.xplane.pb")).read_bytes()
    session = tmp_path / "logs" / "my run" / "plugins" / "profile" / "2026_01_01_00_00_00"
    session.mkdir(parents=True)
    (session / "h.xplane.pb").write_bytes(content)
    (tmp_path / "logs" / "loop").symlink_to(tmp_path / "logs")
    with web_server(tmp_path) as place:
        scan = find_sessions(f"http://me:hidden@{place}/logs")
        found = [session for session in scan.sessions if "loop" not in session.run]
        assert [(s.session, [(f.host, f.size_bytes) for f in s.files]) for s in found] == [
            ("2026_01_01_00_00_00", [("h", len(content))])
        ]
        assert "hidden" not in repr(scan)
        assert len(read_trace(found[0].files[0]).devices) == 4
        signed = find_sessions(
            f"http://{place}/logs/my%20run/plugins/profile/2026_01_01_00_00_00/h.xplane.pb?sig=hidden"
        )
        assert "hidden" not in repr(signed) and signed.sessions[0].files[0].address.endswith("?sig=hidden")
        assert len(read_trace(signed.sessions[0].files[0]).devices) == 4


@pytest.mark.parametrize(("status", "code"), [(401, "remote_denied"), (403, "remote_denied"), (404, "missing_path")])
def test_what_a_server_refuses(tmp_path: Path, status: int, code: str) -> None:
    pytest.importorskip("aiohttp")
    with web_server(tmp_path, status) as place, pytest.raises(ProfileError) as raised:
        find_sessions(f"http://me:hidden@{place}/logs")
    assert raised.value.code == code and raised.value.path == f"http://{place}/logs"
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("gpudoctor://bucket/x", "remote_unknown"),
        ("zip://a::memory://b", "remote_chained"),
        ("memory://no/such/place", "missing_path"),
        ("http://127.0.0.1:9/logs", "remote_unreachable"),
    ],
)
def test_addresses_that_cannot_be_opened(address: str, code: str) -> None:
    with pytest.raises(ProfileError) as raised:
        find_sessions(address)
    assert (raised.value.code, raised.value.path) == (code, address)


def test_missing_credentials(s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ProfileError) as raised:
        find_sessions("s3://a-bucket-nobody-looked-at/logs")
    assert raised.value.code == "remote_credentials" and raised.value.params["scheme"] == "s3"


def test_a_backend_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    with pytest.raises(RemoteError) as missing:
        open_backend("s3://bucket/x")
    assert missing.value.code == "remote_backend"
    assert missing.value.params["command"] == "pip install 'tb-gpu-doctor[s3]'"
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(RemoteError) as missing:
        open_backend("gs://bucket/x")
    assert missing.value.params["command"] == "pip install 'tb-gpu-doctor[gcs]'"


def test_broken_files_are_named_by_their_address() -> None:
    root = in_memory({"plugins/profile/s/a.xplane.pb": b"no profile", "plugins/profile/s/b.xplane.pb": b"",
                      "plugins/profile/s/c.trace.json.gz": gzip.compress(b"{}")[:-3]})  # fmt: skip
    session = find_sessions(root).sessions[0]
    for file, code in zip(session.files, ("not_xplane", "empty_file", "cut_off"), strict=True):
        with pytest.raises(ProfileError) as raised:
            read_trace(file)
        assert (raised.value.code, raised.value.path) == (code, file.path)
        assert "/proc/" not in str(raised.value) and "/tmp" not in str(raised.value)
    fsspec.filesystem("memory").rm(root.removeprefix("memory:/"), recursive=True)
    with pytest.raises(ProfileError) as raised:
        read_trace(session.files[0])
    assert raised.value.code == "missing_path"


def test_a_cut_listing_is_told(odd: type[OddStore], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tb_gpu_doctor.files.looking.MAX_FOLDERS", 50)
    odd.endless = True
    began = time.monotonic()
    scan = find_sessions("oddstore://endless")
    assert [error.code for error in scan.problems] == ["remote_cut"] and time.monotonic() - began < 5


def test_listing_happens_once_a_scan(odd: type[OddStore]) -> None:
    def folder(name: str) -> dict[str, Any]:
        return {"name": name, "type": "directory", "size": 0}

    odd.listings = {"logs": [folder(f"logs/r{i}") for i in range(20)]}
    for index in range(20):
        run = f"logs/r{index}"
        odd.listings |= {
            run: [folder(f"{run}/plugins"), folder(f"{run}/gpu_doctor")],
            f"{run}/plugins": [folder(f"{run}/plugins/profile")],
            f"{run}/plugins/profile": [folder(f"{run}/plugins/profile/s")],
            f"{run}/plugins/profile/s": [
                {"name": f"{run}/plugins/profile/s/h{host}.xplane.pb", "type": "file", "size": 3, "mtime": 1e9}
                for host in range(5)
            ],
            f"{run}/gpu_doctor": [],
        }
    scan = find_sessions("oddstore://logs")
    assert len(scan.sessions) == 20 and all(len(session.files) == 5 for session in scan.sessions)
    assert len(odd.listed) == len(set(odd.listed)) == 1 + 20 * 5


def state_test_session(content: bytes = b"x") -> tuple[str, Session]:
    root = in_memory(
        {"plugins/profile/s/a.xplane.pb": content, "gpu_doctor/h/p/events.out.tfevents.1.0.gpu_doctor": b""}
    )
    return root, find_sessions(root).sessions[0]


def test_the_cache_knows_when_remote_files_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, session = state_test_session()
    assert state_of(session) is None  # just written
    monkeypatch.setattr("tb_gpu_doctor.cache.session_state._SETTLED_S", 0.0)
    state = state_of(session)
    assert state is not None and state == state_of(session)
    store = Store(tmp_path / "cache")
    made: list[int] = []

    def make() -> tuple[str, bool]:
        made.append(1)
        return "value", True

    assert [remembered(session, "k", str, make, store) for _ in range(3)] == ["value"] * 3 and len(made) == 1
    memory = fsspec.filesystem("memory")
    memory.pipe_file(f"{root.removeprefix('memory:/')}/gpu_doctor/h/p/events.out.tfevents.2.0.gpu_doctor", b"")
    assert (second := state_of(session)) not in (None, state)
    memory.pipe_file(f"{root.removeprefix('memory:/')}/plugins/profile/s/a.xplane.pb", b"y")
    assert state_of(session) not in (None, state, second)
    memory.rm(f"{root.removeprefix('memory:/')}/plugins", recursive=True)
    assert state_of(session) is None


def test_local_paths_need_no_fsspec(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from tb_gpu_doctor.traces.sessions import find_sessions\n"
        "from tb_gpu_doctor.traces.read import read_trace\n"
        "from tb_gpu_doctor.telemetry.recordings import read_telemetry\n"
        f"find_sessions({str(tmp_path)!r}); find_sessions('file://' + {str(tmp_path)!r})\n"
        f"read_telemetry({str(tmp_path)!r})\n"
        "assert 'fsspec' not in sys.modules and 'tb_gpu_doctor.files.remote' not in sys.modules, 'imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_hosts_of_a_remote_session_are_read_in_processes_of_their_own(
    demo_logs: Path, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = demo_logs / "pytorch_ddp"
    address = s3.put(files_below(folder), "ddp")
    before = s3.names()
    monkeypatch.setenv("GPU_DOCTOR_WORKERS", "2")
    stages: list[tuple[str, float]] = []
    there = json.loads(tb_gpu_doctor.diagnose(address, progress=lambda *told: stages.append(told)).to_json())
    assert [share for _, share in stages] == sorted(share for _, share in stages)
    assert list(dict.fromkeys(stage for stage, _ in stages)) == ["reading", "decoding", "analysing", "diagnosing"]
    here = json.loads(tb_gpu_doctor.diagnose(folder).to_json())
    assert there == here
    assert s3.names() == before, "something was written into the logdir"
