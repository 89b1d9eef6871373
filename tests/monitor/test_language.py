"""What the monitor says: every sentence is in the catalogues, in the process's language, once."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

import tb_gpu_doctor
from tb_gpu_doctor.monitor import language
from tb_gpu_doctor.texts import has_text
from tests.monitor.memory import MemoryRecorder

MONITOR = Path(tb_gpu_doctor.__file__).parent / "monitor"


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
    assert language.spoken() == "en"
    monkeypatch.setenv("LANG", "es_ES.UTF-8")
    recorder = MemoryRecorder()
    language.tell(recorder, "no_profiler")
    assert recorder.notes[0].startswith("No se tomó")


def test_without_a_recorder_it_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tb_gpu_doctor"):
        for _ in range(3):
            language.complain("hook_failed", part="test", reason="only here")
    assert len(caplog.records) == 1
