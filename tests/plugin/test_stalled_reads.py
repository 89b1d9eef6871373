"""Reads that never come back: they are given up, and nobody else waits for them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.plugin import stalled_reads, worker_process
from tb_gpu_doctor.plugin.analyses import Cancelled
from tb_gpu_doctor.plugin.logdir import Root, Scanner
from tb_gpu_doctor.plugin.stalled_reads import Watch, end, places_of, watched, within
from tb_gpu_doctor.plugin.worker_process import in_worker_process
from tb_gpu_doctor.traces.sessions import SessionScan, find_sessions
from tests.parallel.test_processes import gone, until
from tests.plugin import work
from tests.plugin.test_logdir import add_session


def nothing(_stage: str, _fraction: float) -> None:
    pass


def test_a_read_is_waited_for_so_long_and_no_longer(tmp_path: Path) -> None:
    assert within(5, "p", lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(5, "p", lambda: 1 // 0)
    pipe = tmp_path / "x.xplane.pb"
    os.mkfifo(pipe)
    before = stalled_reads._left_behind
    with pytest.raises(ProfileError) as stalled:
        within(0.1, str(pipe), pipe.read_bytes)
    assert (stalled.value.code, stalled.value.path) == ("read_stalled", str(pipe))
    assert stalled_reads._left_behind == before + 1
    pipe.write_bytes(b"at last")
    assert until(lambda: stalled_reads._left_behind == before)


def test_not_more_threads_than_there_may_be_wait_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalled_reads, "_left_behind", stalled_reads.MAX_LEFT_BEHIND)
    with pytest.raises(ProfileError):
        within(5, "p", lambda: 7)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system tells nothing of its processes")
@pytest.mark.parametrize(
    ("code", "stalls_"),
    [
        ("import sys; sys.stdin.read()", True),
        ("import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])", True),
        ("while True: sum(range(10000))", False),
        ("import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])", False),
        ("import time\nwhile True: open('/dev/zero', 'rb').read(1 << 20); time.sleep(0.05)", False),
    ],
)
def test_what_waits_has_stalled_and_what_works_has_not(code: str, stalls_: bool) -> None:
    process = subprocess.Popen([sys.executable, "-c", f"import sys\n{code}"], stdin=subprocess.PIPE)
    try:
        time.sleep(1.0)
        watch = Watch(lambda: places_of([process.pid]), stall_s=1.0)
        ends = time.monotonic() + (20 if stalls_ else 4)
        found = False
        while not found and time.monotonic() < ends:
            found = watch.has_stalled(("reading", 0.0))
            time.sleep(0.05)
        assert found is stalls_
        family = stalled_reads._family([process.pid])
        end([process.pid])
        assert gone(family[1:]) and process.wait(10) != 0
    finally:
        process.kill()


@pytest.mark.slow
def test_a_report_is_progress() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        watch = Watch(lambda: places_of([process.pid]), stall_s=0.5)
        ends = time.monotonic() + 2
        while time.monotonic() < ends:
            assert not watch.has_stalled(("reading", time.monotonic()))
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait(10)


@pytest.mark.slow
def test_work_that_gets_no_further_is_ended_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalled_reads, "STALL_S", 1.0)
    pipe = tmp_path / "x.xplane.pb"
    os.mkfifo(pipe)
    before = time.monotonic()
    with pytest.raises(ProfileError) as stalled:
        in_worker_process(nothing, str(pipe), work.read, str(pipe), os.getpid())
    assert stalled.value.code == "read_stalled" and time.monotonic() - before < 60
    assert worker_process._busy == 0 and not worker_process._idle
    assert in_worker_process(nothing, "p", work.whereabouts)[0] != os.getpid(), "the next one has a process of its own"
    worker_process.end_idle()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system tells nothing of its threads")
def test_without_processes_a_thread_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_DOCTOR_WORKERS", "1")
    monkeypatch.setattr(stalled_reads, "STALL_S", 1.0)
    pipe = tmp_path / "x.xplane.pb"
    os.mkfifo(pipe)
    with pytest.raises(ProfileError) as stalled:
        in_worker_process(nothing, str(pipe), work.read, str(pipe), 0)
    assert stalled.value.code == "read_stalled"
    pipe.write_bytes(b"")  # lets the thread go

    def busy(report: stalled_reads.Report) -> int:
        ends = time.monotonic() + 3
        while time.monotonic() < ends:
            sum(range(1000))
        return os.getpid()

    assert watched("p", nothing, busy) == os.getpid()


def test_who_loses_interest_ends_the_work_of_a_thread() -> None:
    ended = threading.Event()

    def run(report: stalled_reads.Report) -> None:
        try:
            while True:
                report("reading", 0.1)
                time.sleep(0.01)
        finally:
            ended.set()

    def listen(stage: str, fraction: float) -> None:
        if fraction:
            raise Cancelled

    with pytest.raises(Cancelled):
        watched("p", listen, run)
    assert ended.wait(10)


def test_a_root_that_does_not_answer_holds_up_nobody(tmp_path: Path) -> None:
    for name in ("good", "bad"):
        add_session(tmp_path / name, "run", "s")
    goes_on, calls = threading.Event(), []
    hangs = [False]

    def find(path: str) -> SessionScan:
        calls.append(Path(path).name)
        if hangs[0] and path.endswith("bad"):
            goes_on.wait(60)
        return find_sessions(path)

    roots = [Root("bad", str(tmp_path / "bad")), Root("good", str(tmp_path / "good"))]
    scanner = Scanner(roots, find=find, min_interval_s=0.0, deadline_s=0.5)
    assert len(scanner.snapshot(wait_s=30).sessions) == 2
    hangs[0] = True
    add_session(tmp_path / "good", "other", "s")
    for _ in range(3):
        scanner._not_before = 0.0
        scanner.start()
        snapshot = scanner.snapshot(wait_s=30, refresh=False)
        assert {found.run for found in snapshot.sessions} == {"bad/run", "good/run", "good/other"}
        assert [problem.error.code for problem in snapshot.problems] == ["read_stalled"]
    assert calls.count("bad") == 2, "no second thread waits for it"
    goes_on.set()
    hangs[0] = False

    def answers_again() -> bool:
        scanner._not_before = 0.0
        scanner.start()
        return not scanner.snapshot(wait_s=5, refresh=False).problems

    assert until(answers_again)
