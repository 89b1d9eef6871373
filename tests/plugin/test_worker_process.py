"""Work in processes of their own: real ones, that fail, are killed, and that nobody waits for any more."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.parallel.plan import claimed
from tb_gpu_doctor.plugin import worker_process
from tb_gpu_doctor.plugin.analyses import Cancelled
from tb_gpu_doctor.plugin.worker_process import in_worker_process
from tests.parallel.test_processes import gone, until
from tests.plugin import work


@pytest.fixture(autouse=True)
def no_processes_of_others(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("GPU_DOCTOR_WORKERS", raising=False)
    worker_process.own_version.cache_clear()  # the sources may have been edited since the tests began
    worker_process.end_idle()
    yield
    worker_process.end_idle()


def nothing(_stage: str, _fraction: float) -> None:
    """Nobody listens."""


@pytest.mark.slow
def test_a_process_of_lower_priority_works_and_waits_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, float]] = []
    monkeypatch.setenv("GPU_DOCTOR_TEST", "one")
    pid, priority, variable = in_worker_process(lambda *step: told.append(step), "p", work.whereabouts)
    assert pid != os.getpid() and priority > os.getpriority(os.PRIO_PROCESS, 0) and variable == "one"
    assert ("decoding", 0.5) in told
    monkeypatch.setenv("GPU_DOCTOR_TEST", "two")
    assert in_worker_process(nothing, "p", work.whereabouts) == (pid, priority, "two"), (
        "what the user sets holds at once"
    )
    monkeypatch.delenv("GPU_DOCTOR_TEST")
    with pytest.raises(ProfileError) as failed:
        in_worker_process(nothing, "p", work.fail)
    assert (failed.value.code, failed.value.path) == ("truncated", "/logs/a")
    assert in_worker_process(nothing, "p", work.whereabouts) == (pid, priority, ""), (
        "a failure of the work harms no process"
    )


def test_two_at_once_have_a_process_each(tmp_path: Path) -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(in_worker_process(nothing, "p", work.whereabouts)[0]))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 2 and worker_process._busy == 0 and 1 <= len(worker_process._idle) <= 2


@pytest.mark.slow
def test_one_that_is_killed_is_tried_again_once(tmp_path: Path) -> None:
    (tmp_path / "once").mkdir()
    assert in_worker_process(nothing, "p", work.die, str(tmp_path / "once"), 1, os.getpid()) == 1
    (tmp_path / "always").mkdir()
    with pytest.raises(ProfileError) as died:
        in_worker_process(nothing, "/logs/run", work.die, str(tmp_path / "always"), 9, os.getpid())
    assert (died.value.code, died.value.path, died.value.params["reason"]) == ("worker_died", "/logs/run", "SIGKILL")
    assert len(os.listdir(tmp_path / "always")) == 2


def test_who_loses_interest_ends_the_process(tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    def report(_stage: str, _fraction: float) -> None:
        if threading.current_thread() is threading.main_thread() and mark.exists() and mark.read_text():
            raise Cancelled

    began = time.monotonic()
    with pytest.raises(Cancelled):
        in_worker_process(report, "p", work.sleep, str(mark), os.getpid())
    assert time.monotonic() - began < 30 and gone([int(mark.read_text())])
    assert worker_process._busy == 0 and not worker_process._idle


@pytest.mark.parametrize("how", ["wanted", "possible"])
def test_where_no_process_is_wanted_or_possible_it_is_done_here(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "wanted":
        monkeypatch.setenv("GPU_DOCTOR_WORKERS", "1")
    else:
        monkeypatch.setattr(sys, "executable", "")
    assert in_worker_process(nothing, "p", work.whereabouts)[0] == os.getpid()
    assert worker_process._busy == 0 and not worker_process._idle


@pytest.mark.parametrize(("others", "granted"), [(0, 8), (1, 4), (3, 2), (20, 1)])
def test_processes_share_the_cores(monkeypatch: pytest.MonkeyPatch, others: int, granted: int) -> None:
    monkeypatch.setattr(worker_process, "usable_cores", lambda: 8)

    def workers(_report: object) -> int:
        with claimed(8, 8) as count:
            return count

    version, variables = worker_process.own_version(), worker_process._variables()
    assert worker_process._work(version, variables, others, workers, nothing) == granted


def test_a_process_with_other_code_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    version = worker_process.own_version()
    monkeypatch.setattr(worker_process, "own_version", lambda: f"before {version}")
    assert in_worker_process(nothing, "p", work.whereabouts)[0] == os.getpid()
    assert not worker_process._idle, "nor kept"


def test_idle_ones_can_be_ended() -> None:
    pid = in_worker_process(nothing, "p", work.whereabouts)[0]
    worker_process.end_idle()
    assert gone([pid]) and until(lambda: not worker_process._idle)
