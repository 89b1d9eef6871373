"""Sessions are opened in another process or from the cache, and answer as if they had been analysed here."""

from __future__ import annotations

import dataclasses
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tb_gpu_doctor.cache.store import default_store
from tb_gpu_doctor.comparing import summary_of_session
from tb_gpu_doctor.comparison.summary import RunSummary
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.parallel.transport import _is_mapped
from tb_gpu_doctor.plugin import open_sessions, worker_process
from tb_gpu_doctor.plugin.logdir import Root, shown_path
from tb_gpu_doctor.plugin.session_view import SessionView, analyse
from tb_gpu_doctor.traces.sessions import Session, find_sessions

OLD = 1_700_000_000


@pytest.fixture
def logdir(demo_logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("GPU_DOCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("GPU_DOCTOR_WORKERS", raising=False)
    worker_process.own_version.cache_clear()  # the sources may have been edited since the tests began
    shutil.copytree(demo_logs / "slow_gpu", tmp_path / "logs" / "slow_gpu")
    for path in (tmp_path / "logs").rglob("*"):
        os.utime(path, (OLD, OLD))
    yield tmp_path / "logs"
    worker_process.end_idle()


def session_of(logdir: Path) -> Session:
    return next(session for session in find_sessions(str(logdir)).sessions if not session.is_telemetry)


def no_process(*_arguments: object) -> None:
    raise AssertionError("nothing is left to do")


def nothing(_stage: str, _fraction: float) -> None:
    """Nobody listens."""


def answers(view: SessionView) -> list[object]:
    low, high = view.timeline.meta()["start_ps"], view.timeline.meta()["end_ps"]
    return [
        view.diagnosis_json("es"), view.meta_json, view.steps_json, view.collectives_json, view.input_json,
        view.timeline.bins(low, high, 300), view.timeline.events(low, high, 10_000), view.kernels.table_json("kernel"),
        view.kernels.tree_json(None), view.kernels.csv("gpu"), view.gaps.answer(50, None, None),
        view.ranges.accounting(low, high), view.ranges.wait_bins(low, high, 50), view.ranges.streams(0, low, high, 100),
        view.telemetry.answer("en"),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_view_answers_alike_whichever_way_it_came(logdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session, root = session_of(logdir), Root("", str(logdir))
    other = open_sessions.open_view(session, root, nothing)
    assert default_store().usage().entries == 2, "the view and its summary, kept by the process"
    summary = open_sessions.open_summary(session, nothing)
    monkeypatch.setattr(worker_process, "in_worker_process", no_process)
    kept = open_sessions.open_view(session, root, nothing)
    assert isinstance(open_sessions.open_summary(session, nothing), RunSummary)
    monkeypatch.setenv("GPU_DOCTOR_CACHE_DIR", "")
    here = analyse(session, nothing, lambda path: shown_path(path, root))
    assert repr(answers(other)) == repr(answers(kept)) == repr(answers(here))
    whole = summary_of_session(session)
    for one in (summary, other.summary, kept.summary, here.summary):
        assert one.kernels == whole.kernels and np.array_equal(one.wall_ps, whole.wall_ps) and one.label == whole.label


def test_a_summary_does_not_hold_the_view_that_it_came_with(logdir: Path) -> None:
    session, root = session_of(logdir), Root("", str(logdir))
    open_sessions.open_view(session, root, nothing)
    kept = open_sessions.open_view(session, root, nothing)
    assert _is_mapped(kept.timeline.parts[0].event_start), "a part of the entry's buffer"
    assert not any(_is_mapped(value) for value in vars(kept.summary).values() if isinstance(value, np.ndarray))


def test_errors_come_through(logdir: Path) -> None:
    session = session_of(logdir)
    Path(session.files[0].path).write_bytes(b"no profile")
    alone = dataclasses.replace(session, files=session.files[:1])
    for open_it in (lambda: open_sessions.open_view(alone, Root("", str(logdir)), nothing),
                    lambda: open_sessions.open_summary(alone, nothing)):  # fmt: skip
        with pytest.raises(ProfileError) as error:
            open_it()
        assert error.value.code == "not_xplane" and error.value.path == session.files[0].path


def test_what_is_fetched_is_read_here(logdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(logdir)
    far = dataclasses.replace(session, files=(dataclasses.replace(session.files[0], path="memory://logs/a.xplane.pb"),))
    monkeypatch.setattr(worker_process, "in_worker_process", no_process)
    with pytest.raises(ProfileError):
        open_sessions.open_view(far, Root("", str(logdir)), nothing)
    with pytest.raises(ProfileError):
        open_sessions.open_summary(far, nothing)


@pytest.mark.parametrize(
    "opens",
    [
        lambda session: open_sessions.open_summary(session, nothing),
        lambda session: open_sessions.open_view(session, Root("", session.path), nothing),
    ],
    ids=["summary", "view"],
)
def test_a_session_whose_files_do_not_answer_holds_nobody_up(
    logdir: Path, monkeypatch: pytest.MonkeyPatch, opens: Callable[[Session], object]
) -> None:
    session, never = session_of(logdir), threading.Event()
    monkeypatch.setattr("tb_gpu_doctor.cache.remember.recalled", lambda *given: never.wait(30))
    monkeypatch.setattr("tb_gpu_doctor.plugin.open_sessions.STALL_S", 0.05)
    with pytest.raises(ProfileError) as caught:
        opens(session)
    assert caught.value.code == "read_stalled"
    never.set()
