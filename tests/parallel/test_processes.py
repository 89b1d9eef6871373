"""Worker processes: real ones, that fail, die, and are left alone."""

from __future__ import annotations

import operator
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Future, wait
from pathlib import Path

import numpy as np
import pytest

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.parallel.processes import WorkerDied, WorkerProcesses, WorkersCannotStart
from tb_gpu_doctor.traces.read import read_trace
from tb_gpu_doctor.traces.sessions import ProfileFile

pytestmark = pytest.mark.slow

WORKER = b"tb_gpu_doctor.parallel.worker"


def workers_of(parent: int) -> list[int]:
    """Process ids of the workers that a process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(state[1]) == parent and WORKER in command:
                found.append(int(entry.name))
    return found


def gone(pids: list[int], within_s: float = 10.0) -> bool:
    """Whether processes end, in time."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not any(Path(f"/proc/{pid}/cmdline").exists() and _alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition, within_s: float = 30.0):
    """The first true answer."""
    deadline = time.monotonic() + within_s
    while not (answer := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return answer


@pytest.fixture(autouse=True)
def no_processes_of_others():
    """Those that analysed for the plugin in other tests wait for a while."""
    from tb_gpu_doctor.plugin.worker_process import end_idle

    end_idle()


@pytest.fixture
def pool():
    pool = WorkerProcesses(1)
    yield pool
    pool.kill()
    assert not workers_of(os.getpid())


def test_calls_their_results_and_their_exceptions(pool: WorkerProcesses):
    assert pool.submit(operator.add, 2, 3).result(60) == 5
    assert list(pool.map(abs, [-1, 2, -3], timeout=60)) == [1, 2, 3]
    array = pool.submit(np.arange, 10).result(60)
    assert array.tolist() == list(range(10))
    with pytest.raises(ZeroDivisionError) as raised:
        pool.submit(operator.truediv, 1, 0).result(60)
    assert "truediv" in str(raised.value.__cause__) or "division" in str(raised.value.__cause__)
    with pytest.raises(FileNotFoundError):
        pool.submit(os.stat, "/no/such/file").result(60)
    with pytest.raises(ProfileError) as unread:
        pool.submit(read_trace, ProfileFile("/no/such/file", "h", "xplane", 1, 0.0)).result(60)
    assert (unread.value.code, unread.value.path) == ("missing_path", "/no/such/file")
    assert pool.submit(os.getppid).result(60) == os.getpid()
    with pytest.raises((AttributeError, TypeError, pickle.PicklingError)):
        pool.submit(lambda: 1).result(60)
    assert pool.submit(abs, -4).result(60) == 4, "what cannot be sent harms nobody"
    assert pool.submit(print, "between the messages").result(60) is None


def test_a_worker_that_dies_takes_only_its_own_task_with_it(pool: WorkerProcesses):
    dying: Future[None] = pool.submit(os._exit, 3)
    after = pool.submit(abs, -1)
    with pytest.raises(WorkerDied) as died:
        dying.result(60)
    assert died.value.reason == "exit status 3" and isinstance(died.value, BrokenExecutor)
    assert after.result(60) == 1
    sleeping = pool.submit(time.sleep, 100)
    os.kill(until(lambda: workers_of(os.getpid()))[0], signal.SIGKILL)
    with pytest.raises(WorkerDied) as killed:
        sleeping.result(60)
    assert killed.value.reason == "SIGKILL"


def told_and_named(name: str, report) -> str:
    report("decoding", 0.5)
    return name


def test_a_listener_that_fails_does_not_leave_its_answer_to_the_next_task(pool: WorkerProcesses):
    def fail(_stage: str, _fraction: float) -> None:
        raise BrokenPipeError("nobody reads what is shown")

    with pytest.raises(BrokenPipeError):
        pool.submit_reporting(fail, told_and_named, "first").result(60)
    assert pool.submit_reporting(lambda *_: None, told_and_named, "second").result(60) == "second"
    assert len(workers_of(os.getpid())) == 1


@pytest.mark.parametrize("alive", [0, 1])
def test_where_no_thread_can_start_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch, alive: int):
    pool = WorkerProcesses(alive + 1)
    for _ in range(alive):
        assert pool.submit(abs, -1).result(60) == 1

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        if alive:
            assert [pool.submit(abs, -2).result(60) for _ in range(2)] == [2, 2], "one does the work of all"
        else:
            for _ in range(2):
                with pytest.raises(WorkersCannotStart):
                    pool.submit(abs, -2)
    pool.kill()


@pytest.mark.parametrize("printed", ["coverage\nis on\n", "hello", "N."])
def test_an_interpreter_that_says_other_things_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, printed: str):
    talking = tmp_path / "python"
    talking.write_text(f"#!/bin/sh\nprintf '{printed}'\nexec '{sys.executable}' \"$@\"\n")
    talking.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(talking))
    pool = WorkerProcesses(1)
    with pytest.raises(WorkersCannotStart):
        pool.submit(abs, -1).result(20)
    pool.kill()
    assert gone(workers_of(os.getpid()))


def test_kill_ends_everything_at_once():
    pool = WorkerProcesses(2)
    futures = [pool.submit(time.sleep, 100) for _ in range(3)]
    until(lambda: len(workers_of(os.getpid())) == 2)
    started = time.monotonic()
    pool.kill()
    assert time.monotonic() - started < 5
    assert not workers_of(os.getpid())
    wait(futures, 5)
    assert futures[2].cancelled() and all(future.done() for future in futures)
    with pytest.raises(RuntimeError):
        pool.submit(abs, 1)


def test_shutdown_waits_for_what_was_asked_for():
    with WorkerProcesses(1) as pool:
        future = pool.submit(abs, -2)
    assert future.result(0) == 2
    assert gone(workers_of(os.getpid()))


@pytest.mark.parametrize("interpreter", ["/bin/false", "/no/such/python", ""])
def test_where_no_process_can_start_the_caller_is_told(monkeypatch: pytest.MonkeyPatch, interpreter: str):
    monkeypatch.setattr(sys, "executable", interpreter)
    pool = WorkerProcesses(1)
    try:
        with pytest.raises(WorkersCannotStart):
            pool.submit(abs, -1).result(60)
    finally:
        pool.kill()


def test_what_cannot_start_is_not_tried_for_every_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    broken = tmp_path / "python"
    broken.write_text(f"#!/bin/sh\necho >> {tmp_path}/started\n")
    broken.chmod(0o755)
    working = sys.executable
    monkeypatch.setattr(sys, "executable", str(broken))
    pool = WorkerProcesses(1)
    futures = [pool.submit(abs, -1) for _ in range(5)]
    assert all(isinstance(future.exception(60), WorkersCannotStart) for future in futures)
    assert (tmp_path / "started").read_text() == "\n"
    pool.shutdown()
    # one that runs does the work of those that cannot start
    monkeypatch.setattr(sys, "executable", working)
    pool = WorkerProcesses(2)
    first = pool.submit(time.sleep, 0.5)
    until(lambda: len(workers_of(os.getpid())) == 1)
    monkeypatch.setattr(sys, "executable", str(broken))
    assert [future.result(60) for future in [pool.submit(abs, -number) for number in range(5)]] == list(range(5))
    first.result(60)
    pool.kill()


def test_a_parent_that_is_killed_leaves_no_orphans(tmp_path: Path):
    script = (
        "import time\n"
        "from tb_gpu_doctor.parallel.processes import WorkerProcesses\n"
        "pool = WorkerProcesses(2)\n"
        "[pool.submit(time.sleep, 100) for _ in range(2)]\n"
        "time.sleep(100)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script])
    pids = until(lambda: (found := workers_of(parent.pid)) and len(found) == 2 and found)
    until(lambda: all(b"numpy" in Path(f"/proc/{pid}/maps").read_bytes() for pid in pids))
    parent.kill()
    parent.wait()
    assert gone(pids)


def test_modules_beside_the_profiles_are_not_taken_for_ours(tmp_path: Path):
    for name in ("pickle", "numpy", "tb_gpu_doctor", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("open('taken', 'w').close()\nraise SystemExit\n")
    script = (
        "import sys; sys.path[:] = [entry for entry in sys.path if entry]\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tb_gpu_doctor.parallel.processes import WorkerProcesses\n"
        "pool = WorkerProcesses(1); print(pool.submit(abs, -7).result()); pool.shutdown()\n"
    )
    runner = [sys.executable, "-I", "-c", script]
    done = subprocess.run(runner, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "7\n", done.stderr
    assert not (tmp_path / "taken").exists()


def test_background_workers_stand_back_and_end_when_idle():
    pool = WorkerProcesses(1, background=True, idle_s=0.4)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    pid = pool.submit(os.getpid).result(60)
    assert pool.submit(os.getpriority, os.PRIO_PROCESS, 0).result(60) == min(19, own + 2)
    array = pool.submit(np.arange, 1_000_000).result(60)
    assert array.sum() == 499_999_500_000 and not list(Path(f"/proc/{pid}/fd").glob("*gpu-doctor*"))
    assert gone([pid])
    again = pool.submit(os.getpid).result(60)
    assert again != pid, "the next task starts another"
    pool.kill()
    assert gone([again])


def test_background_workers_give_memory_back():
    pool = WorkerProcesses(1, background=True)
    try:
        pid = pool.submit(os.getpid).result(60)

        def resident() -> int:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))

        before = resident()
        # small strings: from glibc's heap, not pages of their own
        assert len(pool.submit(_many_small, 200_000).result(60)) == 200_000
        until(lambda: resident() < before + 60_000)
    finally:
        pool.kill()


def _many_small(count: int) -> list[bytes]:
    return [bytes(700) for _ in range(count)]
