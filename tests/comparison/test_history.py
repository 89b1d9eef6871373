"""Trends over sessions: order, what is compared with what, and where a regression first appears."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main
from tb_gpu_doctor.comparison.history import HistoryEntry, build_history
from tb_gpu_doctor.comparison.summary import RunSummary
from tb_gpu_doctor.diagnosis.model import Phrase
from tb_gpu_doctor.report.history_json import history_dict, history_headline
from tests.comparison.summaries import summary
from tests.comparison.test_compare import noisy


def entry(index: int, run: RunSummary | None, problem: Phrase | None = None) -> HistoryEntry:
    return HistoryEntry("run", f"s{index}", float(index), run, problem)


def test_a_regression_is_found_in_the_session_it_first_appears_in() -> None:
    entries = [entry(index, summary(noisy(100 if index < 5 else 125, seed=index))) for index in range(9)]
    history = build_history(entries[::-1])
    assert [e.session for e in history.entries] == [f"s{index}" for index in range(9)]
    first = history.first_regression
    assert first is not None and first.entry == 5 and first.point.change.value == pytest.approx(0.25, abs=0.02)
    assert {change.metric for change in history.changes} == {"step"}, "idle moved by less than 5 % of the step"
    for lang in ("en", "es"):
        assert "run/s5" in history_headline(history, lang)
        json.dumps(history_dict(history, lang), allow_nan=False)


def test_sessions_unlike_the_newest_are_left_out_and_say_why() -> None:
    runs = [
        summary(noisy(50), models=("GPU Y", "GPU Y")),
        summary(noisy(50), models=("GPU X",)),
        summary(noisy(50, 3)),
        summary([]),
        summary(noisy(50), batch=8),
        summary(noisy(100), batch=16),
        summary(noisy(100, seed=1), batch=16),
    ]
    unread = entry(9, None, Phrase("history.problems.unreadable", {"reason": "x"}))
    history = build_history([*(entry(i, run) for i, run in enumerate(runs)), unread])
    problems = [None if e.problem is None else e.problem.key.rpartition(".")[2] for e in history.entries]
    assert problems == ["models", "gpu_count", "few_steps", "few_steps", "batch", None, None, "unreadable"]
    assert history.changes == ()
    assert "2" in history_headline(history, "en")


def test_nothing_to_compare_is_said() -> None:
    assert "Fewer than two" in history_headline(build_history([entry(0, summary(noisy(100)))]), "en")
    assert "Fewer than two" in history_headline(build_history([entry(0, summary([]))]), "en")


def test_the_demos_have_a_history(demo_logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(demo_logs), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    times = [session["time_unix_s"] for session in data["sessions"]]
    assert times == sorted(times) and len(times) >= 6
    assert all(len(session["window_shares"]) == len(data["parts"]) for session in data["sessions"])
    assert main(["history", str(demo_logs), "--lang", "es", "--last", "2"]) == 0
    assert "Sesiones" in capsys.readouterr().out
    assert main(["history", str(demo_logs / "none"), "--lang", "en"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_runs_of_another_model_are_left_out_and_the_same_run_is_not() -> None:
    other = tuple(dataclasses.replace(row, name=row.name + "_other") for row in summary().kernels)
    old = summary(noisy(150), kernels=other)
    new = [HistoryEntry("run", f"s{index}", float(index), summary(noisy(100, seed=index))) for index in (1, 2)]
    history = build_history([HistoryEntry("elsewhere", "s0", 0.0, old), *new])
    problem = history.entries[0].problem
    assert problem is not None and problem.key == "history.problems.kernels" and history.changes == ()
    assert build_history([entry(0, old), *new]).entries[0].problem is None


def test_a_regression_that_rests_on_one_session_says_so() -> None:
    entries = [entry(index, summary(noisy(100 if index < 4 else 130, seed=index))) for index in range(6)]
    assert "one session" not in history_headline(build_history(entries), "en")
    headline = history_headline(build_history(entries[:5]), "en")
    assert "run/s4" in headline and "one session" in headline and ".." not in headline
