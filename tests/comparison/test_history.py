"""Trends over sessions: order, what is compared with what, and where a regression first appears."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from tb_gpu_doctor.analysis.step_costs import PART_IDS
from tb_gpu_doctor.cli.main import main
from tb_gpu_doctor.comparison.history import HistoryEntry, build_history
from tb_gpu_doctor.comparison.summary import RunSummary
from tb_gpu_doctor.diagnosis.model import Phrase
from tb_gpu_doctor.report.history_report import history_dict, history_headline
from tests.comparison.summaries import MS, summary
from tests.comparison.test_compare import noisy


def entry(index: int, run: RunSummary | None, problem: Phrase | None = None) -> HistoryEntry:
    return HistoryEntry("run", f"s{index}", float(index), run, problem)


def test_a_regression_is_found_in_the_session_it_first_appears_in() -> None:
    entries = [entry(index, summary(noisy(100 if index < 5 else 125, seed=index))) for index in range(9)]
    history = build_history(entries[::-1])
    assert [e.session for e in history.entries] == [f"s{index}" for index in range(9)]
    first = history.first_regression
    assert first is not None and first.entry == 5 and first.change is not None
    assert first.change.value == pytest.approx(0.25, abs=0.02) and first.change.low < 0.25 < first.change.high
    assert (first.earliest, first.latest) == (5, 5) and first.confidence > 0.95
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


@pytest.mark.slow
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


def test_the_newest_sessions_are_no_regression_yet_and_that_is_said() -> None:
    entries = [entry(index, summary(noisy(100 if index < 6 else 140, seed=index))) for index in range(9)]
    for count, word in ((7, "session cannot tell"), (8, "too few so far")):
        history = build_history(entries[:count])
        newest = history.newest
        assert newest is not None and (newest.entry, newest.count) == (6, count - 6) and history.changes == ()
        assert newest.change.value == pytest.approx(0.4, abs=0.03)
        headline = history_headline(history, "en")
        assert "No regression" in headline and "run/s6" in headline and word in headline
        assert "run/s6" in history_headline(history, "es")
        assert history_dict(history)["newest"]["session_index"] == 6
    history = build_history(entries)
    assert history.first_regression is not None and history.first_regression.entry == 6 and history.newest is None


def test_too_few_sessions_cannot_tell() -> None:
    entries = [entry(index, summary(noisy(100 if index < 2 else 130, seed=index))) for index in range(5)]
    for count in (2, 3, 4, 5):
        headline = history_headline(build_history(entries[:count]), "en")
        assert "Cannot tell yet" in headline and "No regression" not in headline and "6" in headline
        assert "Aún no se puede decir" in history_headline(build_history(entries[:count]), "es")


def test_without_a_regression_it_is_said_what_would_have_been_noticed() -> None:
    history = build_history([entry(index, summary(noisy(100, seed=index))) for index in range(12)])
    assert history.changes == () and history.noticeable is not None and 0.03 < history.noticeable < 0.06
    assert "would have been noticed" in history_headline(history, "en")


def test_a_slow_drift_is_said_without_a_session() -> None:
    entries = [entry(index, summary(noisy(100 + index, seed=index))) for index in range(20)]
    history = build_history(entries)
    assert history.changes == () and history.drift is not None
    assert history.drift.before == pytest.approx(102.5 * MS, rel=0.01)
    assert history.drift.after == pytest.approx(116.5 * MS, rel=0.01)
    for lang, words in (("en", "no session can be named"), ("es", "no se puede nombrar")):
        headline = history_headline(history, lang)
        assert words in headline and "run/s" not in headline
    assert history_dict(history)["drift"]["before_ms"] == pytest.approx(102.5, rel=0.01)


def test_a_session_unlike_its_neighbours_is_left_aside() -> None:
    means = [100.0] * 6 + [115.0] * 6
    means[3] = 180
    history = build_history([entry(index, summary(noisy(mean, seed=index))) for index, mean in enumerate(means)])
    assert history.lone == (3,)
    (change,) = (change for change in history.changes if change.metric == "step")
    assert change.entry == 6 and change.before == pytest.approx(100 * MS, rel=0.01)


def test_a_session_left_aside_is_in_no_mean() -> None:
    means = [100.0] * 14
    means[5], means[13] = 1_000, 120
    history = build_history([entry(index, summary(noisy(mean, seed=index))) for index, mean in enumerate(means)])
    newest = history.newest
    assert history.lone == (5,) and newest is not None and newest.entry == 13
    assert newest.before == pytest.approx(100 * MS, rel=0.01)
    assert newest.change.value == pytest.approx(0.2, abs=0.02)
    assert newest.change.low < newest.change.value < newest.change.high
    means = [100.0 + index for index in range(21)]
    means[3] = 900
    history = build_history([entry(index, summary(noisy(mean, seed=index))) for index, mean in enumerate(means)])
    assert history.lone == (3,) and history.drift is not None
    assert history.drift.before == pytest.approx(103 * MS, rel=0.01)


def test_one_session_with_a_stalled_step_does_not_hide_what_the_others_show() -> None:
    steps = [noisy(100 if index < 10 else 120, seed=index) for index in range(20)]
    steps[4][7] = 10_000
    history = build_history([entry(index, summary(found)) for index, found in enumerate(steps)])
    assert history.lone == (4,)
    assert history.first_regression is not None and history.first_regression.entry == 10


def with_wait(wait_ms: float, seed: int, compute_ms: float = 100) -> RunSummary:
    """Steps that compute, and wait besides."""
    computing = np.array(noisy(compute_ms, seed=seed))
    parts = np.zeros((len(computing), len(PART_IDS)))
    parts[:, PART_IDS.index("compute")] = computing * MS
    parts[:, PART_IDS.index("communication_wait")] = wait_ms * MS
    return dataclasses.replace(summary(), wall_ps=parts.sum(axis=1), parts_ps=parts)


def test_a_part_that_changes_with_the_step_is_named_even_from_nothing() -> None:
    history = build_history([entry(index, with_wait(0 if index < 4 else 20, index)) for index in range(8)])
    assert [(change.metric, change.entry) for change in history.changes] == [("step", 4), ("waiting", 4)]
    waiting = history.changes[1]
    assert (waiting.before, waiting.after) == (0, pytest.approx(20 * MS)) and waiting.change is None
    assert waiting.is_regression and history_dict(history)["changes"][1]["change"] is None


def test_a_session_left_aside_hides_no_part_that_changed() -> None:
    waits = [10.0] * 8 + [35.0] * 8
    for lone_ms in (40.0, 300.0):
        waits[3] = lone_ms
        history = build_history([entry(index, with_wait(wait, index, 90)) for index, wait in enumerate(waits)])
        assert history.lone == (3,)
        assert [(change.metric, change.entry) for change in history.changes] == [("step", 8), ("waiting", 8)]
        waiting = history.changes[1]
        assert (waiting.before, waiting.after) == (pytest.approx(10 * MS), pytest.approx(35 * MS))
        assert waiting.change is not None and waiting.change.low <= waiting.change.value <= waiting.change.high
        assert waiting.change.value == pytest.approx(2.5)


def test_a_part_may_change_while_the_step_does_not() -> None:
    # waiting grows by what computing shrinks
    runs = [with_wait(5 if index < 8 else 15, index, 95 if index < 8 else 85) for index in range(16)]
    history = build_history([entry(index, run) for index, run in enumerate(runs)])
    (change,) = history.changes
    assert (change.metric, change.entry, change.is_regression) == ("waiting", 8, True)
    assert change.change is not None and change.change.value == pytest.approx(2.0)
    assert history.first_regression is None


def test_the_json_is_the_one_of_the_docs() -> None:
    entries = [entry(index, summary(noisy(100 if index < 5 else 125, seed=index))) for index in range(9)]
    data = history_dict(build_history(entries))
    text = Path("docs/history.md").read_text(encoding="utf-8")
    for name in (*data, *data["changes"][0], *data["sessions"][0]):
        assert f'"{name}"' in text, name
