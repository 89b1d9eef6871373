""""""

from __future__ import annotations

import os
import threading
import time
from argparse import Namespace
from pathlib import Path

import pytest

from tb_gpu_doctor.plugin import logdir as logdir_module
from tb_gpu_doctor.plugin.logdir import (
    Root,
    Scanner,
    parse_logdir_spec,
    roots_of,
    session_key,
    shown_path,
    telemetry_state,
)
from tb_gpu_doctor.traces.sessions import SessionScan, find_sessions


def add_session(logdir: Path, run: str, session: str, host: str = "worker0", content: bytes = b"x") -> Path:
    folder = logdir / run / "plugins" / "profile" / session
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{host}.xplane.pb"
    file.write_bytes(content)
    return file


def names(scanner: Scanner) -> list[tuple[str, str]]:
    return [(found.run, found.session.session) for found in scanner.snapshot(wait_s=5).sessions]


@pytest.mark.parametrize(
    ("logdir", "spec", "context_logdir", "expected"),
    [
        ("/logs", "", "/logs", ("/logs", [("", "/logs")])),
        ("", "a:/x,/y:b", "a:/x,/y:b", ("a:/x,/y:b", [("a", "/x"), ("", "/y:b")])),
        ("", "", "/logs", ("/logs", [("", "/logs")])),
        (None, None, None, ("", [])),
    ],
)
def test_roots_come_from_whichever_field_is_set(logdir, spec, context_logdir, expected):
    context = Namespace(flags=Namespace(logdir=logdir, logdir_spec=spec), logdir=context_logdir)
    shown, roots = roots_of(context)
    assert (shown, [(root.name, root.path) for root in roots]) == expected


def test_any_field_of_the_context_may_be_missing():
    assert roots_of(Namespace()) == ("", ())
    assert roots_of(Namespace(flags=None, logdir=None)) == ("", ())


def test_logdir_spec_is_split_as_tensorboard_does():
    from tensorboard.backend.event_processing.data_ingester import _parse_event_files_spec

    spec = "a:/x/y,/p:q/r,rel,b:c:d,gs://bucket/path,n:s3://b/c,~"
    assert {root.path: root.name or None for root in parse_logdir_spec(spec)} == _parse_event_files_spec(spec)


def test_sessions_of_several_roots_carry_their_names(tmp_path: Path):
    add_session(tmp_path / "one", "train", "2024_01_01_00_00_00")
    add_session(tmp_path / "two", "train", "2024_01_01_00_00_00")
    add_session(tmp_path / "three", "train", "2024_01_01_00_00_00")
    scanner = Scanner(
        [Root("a", str(tmp_path / "one")), Root("", str(tmp_path / "two")), Root("", str(tmp_path / "three"))]
    )
    assert sorted(names(scanner)) == [
        ("a/train", "2024_01_01_00_00_00"),
        ("train", "2024_01_01_00_00_00"),
        ("train (2)", "2024_01_01_00_00_00"),
    ]
    found = scanner.snapshot().find("train (2)", "2024_01_01_00_00_00")
    assert found is not None and found.root.path.endswith("three")
    assert scanner.snapshot().find("three/train", "2024_01_01_00_00_00") is None


def test_newest_comes_first_over_all_roots(tmp_path: Path):
    add_session(tmp_path / "one", "", "2024_01_01_00_00_00")
    add_session(tmp_path / "two", "", "2025_01_01_00_00_00")
    scanner = Scanner([Root("a", str(tmp_path / "one")), Root("b", str(tmp_path / "two"))])
    assert [run for run, _ in names(scanner)] == ["b", "a"]


def test_a_missing_or_remote_logdir_is_a_problem_not_a_crash(tmp_path: Path):
    scanner = Scanner([Root("", str(tmp_path / "nothing")), Root("far", "gpudoctor://bucket/logs")])
    snapshot = scanner.snapshot(wait_s=5)
    assert snapshot.complete and not snapshot.sessions
    assert [(problem.path, problem.error.code) for problem in snapshot.problems] == [
        ("nothing", "missing_path"),
        ("far", "remote_unknown"),
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_without_permission_hides_nothing_else(tmp_path: Path):
    add_session(tmp_path, "good", "s")
    locked = tmp_path / "locked"
    locked.mkdir(mode=0)
    try:
        snapshot = Scanner([Root("", str(tmp_path))]).snapshot(wait_s=5)
    finally:
        locked.chmod(0o700)
    assert [found.run for found in snapshot.sessions] == ["good"]
    assert [(problem.path, problem.error.code) for problem in snapshot.problems] == [("locked", "no_permission")]


def test_a_crash_of_the_scan_leaves_the_scanner_usable():
    def find(_path: str) -> SessionScan:
        raise RuntimeError("broken")

    scanner = Scanner([Root("", "/logs")], find=find, min_interval_s=0.0)
    snapshot = scanner.snapshot(wait_s=5)
    assert snapshot.complete and not snapshot.sessions and not scanner.scanning
    scanner.start()


def test_a_scan_without_a_thread_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    add_session(tmp_path, "run", "one")
    scanner = Scanner([Root("", str(tmp_path))], min_interval_s=0.0)

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        assert not scanner.snapshot(wait_s=0.1).complete and not scanner.scanning
    assert names(scanner) == [("run", "one")]


def test_new_sessions_show_up_and_rewritten_ones_get_a_new_key(tmp_path: Path):
    file = add_session(tmp_path, "a", "s")
    scanner = Scanner([Root("", str(tmp_path))], min_interval_s=0.0)
    first = scanner.snapshot(wait_s=5).find("a", "s")
    add_session(tmp_path, "b", "s")
    file.write_bytes(b"rewritten")
    deadline = time.monotonic() + 5
    while len(scanner.snapshot(wait_s=1).sessions) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    second = scanner.snapshot().find("a", "s")
    assert first is not None and second is not None and first.key != second.key
    assert scanner.snapshot().find("b", "s") is not None


def test_the_key_names_every_file_of_the_session(tmp_path: Path):
    file = add_session(tmp_path, "a", "s")
    keys = set()

    def note() -> None:
        [session] = find_sessions(str(tmp_path)).sessions
        assert session_key(session) == session_key(session)
        keys.add(session_key(session))

    note()
    file.write_bytes(b"longer than before")
    note()
    os.utime(file, ns=(1, 1))
    note()
    add_session(tmp_path, "a", "s", host="worker1")
    note()
    replacement = file.with_name("new")
    replacement.write_bytes(file.read_bytes())
    os.utime(replacement, ns=(1, 1))
    replacement.rename(file)
    note()
    assert len(keys) == 5


def test_no_request_waits_for_a_slow_scan_and_only_one_runs():
    release, calls = threading.Event(), []

    def find(path: str) -> SessionScan:
        calls.append(threading.current_thread())
        release.wait(30)
        return SessionScan(path, (), (), ())

    scanner = Scanner([Root("", "/logs")], find=find, min_interval_s=0.0)
    scanner.start()
    began = time.monotonic()
    for _ in range(50):
        assert not scanner.snapshot().complete
    assert time.monotonic() - began < 0.2
    began = time.monotonic()
    assert not scanner.snapshot(wait_s=0.2).complete
    assert 0.15 < time.monotonic() - began < 1.0
    assert scanner.scanning and len(calls) == 1 and calls[0] is not threading.main_thread()
    release.set()
    assert scanner.snapshot(wait_s=5, refresh=False).complete


def test_scans_rest_in_between():
    calls = []

    def find(path: str) -> SessionScan:
        calls.append(path)
        return SessionScan(path, (), (), ())

    scanner = Scanner([Root("", "/logs")], find=find, min_interval_s=60.0)
    for _ in range(20):
        scanner.snapshot(wait_s=1)
    assert len(calls) == 1


def test_shown_paths_stay_below_the_logdir(tmp_path: Path):
    root = Root("", str(tmp_path))
    assert shown_path(str(tmp_path / "a" / "b"), root) == "a/b"
    assert shown_path("/etc/passwd", root) == "passwd"
    assert shown_path(str(tmp_path), root) == tmp_path.name
    assert shown_path(str(tmp_path / "a"), Root("group", str(tmp_path))) == "group/a"


def test_telemetry_that_grows_renews_a_profile_now_and_then(tmp_path: Path) -> None:
    recording = tmp_path / "gpu_doctor" / "host" / "process"
    recording.mkdir(parents=True)
    path = recording / "events.out.tfevents.1.host.1.0.gpu_doctor"
    now = 1_700_000_000.0

    def state(size: int, age_s: float) -> str:
        path.write_bytes(b"x" * size)
        os.utime(path, (now - age_s, now - age_s))
        return telemetry_state(str(tmp_path / "gpu_doctor"), now)

    growing = [state(size, 1.0) for size in range(1_000, 2_000, 100)]
    assert len(set(growing)) == 2, "once when it has doubled"
    assert len({*growing, state(1_900, 120.0), state(1_900, 121.0)}) == 4, "and by size and time when it is at rest"
    assert telemetry_state(str(tmp_path / "none"), now) == ""


def test_free_memory_goes_back_after_scans_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[float] = []
    monkeypatch.setattr(logdir_module, "return_free_memory", lambda: given_back.append(time.monotonic()))
    scanner = Scanner([Root("", str(tmp_path))], min_interval_s=0.0)

    def scan() -> None:
        scanner._not_before = 0.0
        scanner.start()
        scanner.snapshot(wait_s=20, refresh=False)

    scan()
    assert not given_back, "there is nothing yet"
    monkeypatch.setattr(logdir_module, "TIDY_EVERY_S", 0.0)
    scan()
    deadline = time.monotonic() + 20
    while not given_back:
        assert time.monotonic() < deadline
        time.sleep(0.01)
