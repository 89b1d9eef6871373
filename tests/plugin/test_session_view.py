"""What is kept of a session: of one with very many files a part, which is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.large_job import write_job
from tb_gpu_doctor.api import diagnose_session
from tb_gpu_doctor.plugin import session_view
from tb_gpu_doctor.plugin.session_view import analyse
from tb_gpu_doctor.traces.sessions import Session, find_sessions


@pytest.fixture
def session(tmp_path: Path) -> Session:
    write_job(tmp_path, "xplane", 3, 2_000)
    (found,) = find_sessions(str(tmp_path)).sessions
    return found


def diagnosis(session: Session, lang: str = "en") -> dict:
    view = analyse(session, lambda stage, done: None, lambda path: path)
    return json.loads(view.diagnosis_json(lang))


def test_all_files_of_a_session_that_fits_are_read(session: Session) -> None:
    answer = diagnosis(session)
    assert answer["profile"]["incomplete"] is None and len(answer["profile"]["hosts"]) == 3


def test_of_very_many_files_the_first_are_shown_and_the_rest_is_said(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPU_DOCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("tb_gpu_doctor.cache.session_state._SETTLED_S", 0.0)
    monkeypatch.setattr(session_view, "MOST_FILES", 2)
    for lang in ("en", "es"):
        answer = diagnosis(session, lang)
        assert "1 " in answer["profile"]["incomplete"] and "gpu-doctor diagnose" in answer["profile"]["incomplete"]
        assert answer["profile"]["incomplete"] in answer["profile"]["warnings"]
        assert len(answer["profile"]["hosts"]) == 2 and answer["verdict"] != "ok"
    # the command does not take the tab's part for the whole
    assert len(diagnose_session(session).diagnosis.hosts) == 3
