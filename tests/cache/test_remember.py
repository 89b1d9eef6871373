"""A second opening gives the same answers without reading the profile again, until a file changes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tb_gpu_doctor.cache.remember import recalled, remembered
from tb_gpu_doctor.cache.session_state import state_of
from tb_gpu_doctor.cache.store import Store, default_store
from tb_gpu_doctor.comparing import summary_of_path
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.plugin.session_view import analyse
from tb_gpu_doctor.traces.sessions import Session, find_sessions

OLD = 1_700_000_000


@pytest.fixture
def logdir(demo_logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPU_DOCTOR_CACHE_DIR", str(tmp_path / "cache"))
    shutil.copytree(demo_logs / "slow_gpu", tmp_path / "logs")
    for path in (tmp_path / "logs").rglob("*"):
        os.utime(path, (OLD, OLD))
    return tmp_path / "logs"


def session_of(logdir: Path) -> Session:
    return next(session for session in find_sessions(str(logdir)).sessions if not session.is_telemetry)


def open_view(logdir: Path) -> tuple[object, list[str]]:
    stages: list[str] = []
    view = analyse(session_of(logdir), lambda stage, _done: stages.append(stage), os.path.basename)
    return view, stages


def test_a_view_is_opened_from_the_cache_and_answers_alike(logdir: Path) -> None:
    first, stages = open_view(logdir)
    assert stages and default_store().usage().entries == 2, "the view and its summary"
    again, stages = open_view(logdir)
    assert not stages, "nothing was read again"
    for view in (first, again):
        assert hasattr(view, "timeline")
    low, high = first.timeline.meta()["start_ps"], first.timeline.meta()["end_ps"]  # type: ignore[attr-defined]
    for answer in (
        lambda v: v.diagnosis_json("es"), lambda v: v.meta_json, lambda v: v.steps_json, lambda v: v.collectives_json,
        lambda v: v.timeline.bins(low, high, 300), lambda v: v.timeline.events(low, high, 10_000),
        lambda v: v.timeline.at(0, (low + high) // 2), lambda v: v.kernels.table_json("gpu"),
        lambda v: v.kernels.csv("gpu"),
        lambda v: v.gaps.answer(50, None, None), lambda v: v.ranges.accounting(low, high),
        lambda v: v.telemetry.answer("en"), lambda v: v.ranges.streams(0, low, high, 100),
    ):  # fmt: skip
        assert repr(answer(first)) == repr(answer(again))  # NaN is not equal to itself


def test_nothing_is_written_into_the_logdir(logdir: Path) -> None:
    before = sorted((str(path), path.stat().st_mtime_ns) for path in logdir.rglob("*"))
    open_view(logdir)
    summary_of_path(logdir)
    assert sorted((str(path), path.stat().st_mtime_ns) for path in logdir.rglob("*")) == before


def test_a_changed_file_is_read_again(logdir: Path) -> None:
    session = session_of(logdir)
    state = state_of(session)
    assert state is not None and state_of(session) == state
    os.utime(session.files[0].path, (OLD + 1, OLD + 1))
    assert state_of(session) not in (None, state)
    os.utime(session.files[0].path)
    assert state_of(session) is None, "it may be in the middle of being written"


def test_telemetry_that_grows_makes_a_new_state(logdir: Path) -> None:
    session = session_of(logdir)
    recordings = [path for path in logdir.rglob("*.gpu_doctor")]
    if not session.homes or not recordings:
        pytest.fail("the demo run has no telemetry: run make demo-logs")
    state = state_of(session)
    with open(recordings[0], "ab") as file:
        file.write(b"x")
    os.utime(recordings[0], (OLD + 5, OLD + 5))
    assert state_of(session) not in (None, state)


def test_failures_and_partial_results_are_not_kept(logdir: Path, tmp_path: Path) -> None:
    store, session = Store(tmp_path / "other"), session_of(logdir)
    assert remembered(session, "x", int, lambda: (1, False), store) == 1
    assert remembered(session, "x", int, lambda: (2, True), store) == 2
    assert remembered(session, "x", int, lambda: (3, True), store) == 2
    assert remembered(session, "x", str, lambda: ("other class", True), store) == "other class"

    def fail() -> tuple[int, bool]:
        raise ProfileError("malformed", "x")

    with pytest.raises(ProfileError):
        remembered(session, "y", int, fail, store)
    assert remembered(session, "y", int, lambda: (4, True), store) == 4


def test_what_could_not_be_opened_is_another_state_than_what_can_be(
    logdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of(logdir)
    state = state_of(session)
    (recording,) = (path for path in logdir.rglob("*.gpu_doctor") if path.is_file())
    real = os.access

    def access(path: str, mode: int) -> bool:  # the super-user of a CI machine may open everything
        return os.path.basename(path) != recording.name and real(path, mode)

    monkeypatch.setattr(os, "access", access)
    assert state_of(session) not in (None, state)
    monkeypatch.undo()
    assert state_of(session) == state


def test_what_comes_with_a_value_is_kept_for_the_same_files_only(logdir: Path, tmp_path: Path) -> None:
    store, session = Store(tmp_path / "other"), session_of(logdir)
    beside = lambda value: {"double": 2 * value}  # noqa: E731
    assert recalled(session, "x", int, store) is None
    assert remembered(session, "x", int, lambda: (1, False), store, beside) == 1
    assert recalled(session, "double", int, store) is None, "a part is no whole"

    def rewritten() -> tuple[int, bool]:
        os.utime(session.files[0].path, (OLD + 1, OLD + 1))
        return 2, True

    assert remembered(session, "x", int, rewritten, store, beside) == 2
    assert recalled(session, "x", int, store) is None and recalled(session, "double", int, store) is None
    assert remembered(session, "x", int, lambda: (3, True), store, beside) == 3
    assert recalled(session, "x", int, store) == 3 and recalled(session, "double", int, store) == 6
    assert recalled(session, "double", str, store) is None, "another class is none"
    os.utime(session.files[0].path, (OLD + 2, OLD + 2))
    assert recalled(session, "double", int, store) is None
