"""Notes: each once, in the log in the process's language, in the recording in any."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

import tb_gpu_doctor
from tb_gpu_doctor import texts
from tb_gpu_doctor.monitor.notes import MOST_NOTES, Notes, complain, process_language, tell
from tb_gpu_doctor.texts import has_text
from tests.monitor.memory import MemoryRecorder

MONITOR = Path(tb_gpu_doctor.__file__).parent / "monitor"
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in MONITOR.glob("*.py"))
KEYS = sorted(key.split(".", 1)[1] for key in texts.all_keys("en") if key.startswith("recording."))


@pytest.mark.parametrize("key", KEYS)
def test_every_text_is_told_somewhere(key: str) -> None:
    assert f'"{key}"' in SOURCE


def test_every_key_that_is_told_has_a_text() -> None:
    told = set(re.findall(r'(?:notes\.tell|notes\.words)\(\s*"(\w+)"', SOURCE))
    assert len(told) > 12
    for key in told:
        assert texts.has_text(f"recording.{key}"), key


def test_a_sentence_is_kept_and_shown_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "es_ES.UTF-8")
    kept: list[dict[str, Any]] = []
    notes = Notes(kept.append)
    with caplog.at_level(logging.INFO, "tb_gpu_doctor"):
        for _ in range(3):
            notes.tell("gpu_lost", gpu="gpu3", reason="GPU is lost")
        notes.tell("gpu_lost", gpu="gpu4", reason="GPU is lost")
        notes.sentence("a sentence")
        notes.sentence("a sentence")
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert "gpu3 ya no se registra" in caplog.text
    assert [note["key"] for note in kept] == ["recording.gpu_lost", "recording.gpu_lost", None]
    assert kept[0]["sentence"].startswith("gpu3 is recorded no more")
    assert kept[0]["params"] == {"gpu": "gpu3", "reason": "GPU is lost"}


def test_a_flood_of_notes_is_stopped_and_a_wrong_key_raises_nothing() -> None:
    kept: list[dict[str, Any]] = []
    notes = Notes(kept.append)
    notes.tell("no_such_text", number=3)
    notes.tell("gpu_lost")
    for number in range(2 * MOST_NOTES):
        notes.sentence(str(number))
    assert len(kept) == MOST_NOTES


def test_every_sentence_that_is_told_has_its_words() -> None:
    told = set()
    for path in MONITOR.glob("*.py"):
        source = path.read_text(encoding="utf-8")
        told |= set(re.findall(r'(?:tell|complain)\((?:self\._recorder, )?"(\w+)"', source))
    assert {"profiler_busy", "hook_failed", "steps_are_past"} <= told
    for key in told:
        assert has_text(f"monitor.{key}") or has_text(f"recording.{key}"), key


def test_it_speaks_the_language_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(variable, raising=False)
    assert process_language() == "en"
    monkeypatch.setenv("LANG", "es_ES.UTF-8")
    recorder = MemoryRecorder()
    tell(recorder, "no_profiler")
    assert recorder.notes[0].startswith("No se tomó")


def test_without_a_recorder_it_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tb_gpu_doctor"):
        for _ in range(3):
            complain("hook_failed", part="test", reason="only here")
    assert len(caplog.records) == 1
