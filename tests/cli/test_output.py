from __future__ import annotations

import os
import pty
import select
import sys

import pytest

from tb_gpu_doctor.cli import output
from tb_gpu_doctor.cli.output import progress_bar


def shown(monkeypatch: pytest.MonkeyPatch, patience_s: float, **options) -> str:
    """What a terminal got."""
    monkeypatch.setattr(output, "_PATIENCE_S", patience_s)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress_bar(**options) as report:
            for stage, done in (("reading", 0.0), ("decoding", 0.5), ("analysing", 0.9), ("diagnosing", 1.0)):
                report(stage, done)
        terminal.flush()
        found = b""
        while select.select([master], [], [], 0.2)[0]:
            found += os.read(master, 100_000)
    os.close(master)
    return found.decode()


def test_a_bar_in_the_users_language_that_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch):
    text = shown(monkeypatch, -1.0, lang="es")
    assert "leyendo archivos" in text and "100%" in text
    assert "\x1b[2K" in text, "the line is cleared"


def test_no_color_holds_for_the_bar(monkeypatch: pytest.MonkeyPatch):
    assert "\x1b[9" not in shown(monkeypatch, -1.0, lang="en", no_color=True)


def test_what_is_quick_shows_none(monkeypatch: pytest.MonkeyPatch):
    assert shown(monkeypatch, 60.0, lang="en") == ""


def test_nothing_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(output, "_PATIENCE_S", -1.0)
    with progress_bar("en") as report:
        report("decoding", 0.5)
    assert capsys.readouterr().err == ""
