"""``compare`` and ``history`` over the routes, on real sessions."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main
from tb_gpu_doctor.comparing import compare_paths, history_of_path
from tb_gpu_doctor.comparison.history import HistoryEntry, build_history
from tb_gpu_doctor.diagnosis.model import Phrase
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.plugin import analyses
from tb_gpu_doctor.plugin.history_view import HistoryView, Summaries
from tb_gpu_doctor.report.comparison_report import comparison_dict
from tb_gpu_doctor.report.history_report import history_dict
from tests.comparison.summaries import summary
from tests.plugin.test_routes import Site

BEFORE, AFTER = "2026_03_02_09_14_05", "2026_03_06_16_33_48"


@pytest.fixture(scope="module")
def site(demo_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Site:
    logdir = tmp_path_factory.mktemp("logs")
    for name in ("input_bound", "healthy"):
        shutil.copytree(demo_logs / name / "plugins", logdir / name / "plugins")
    broken = logdir / "broken" / "plugins" / "profile" / "2026_01_01_00_00_00"
    broken.mkdir(parents=True)
    (broken / "host.xplane.pb").write_bytes(b"\x0a\xff\xff\xff")
    return Site(logdir)


def answer(site: Site, route: str) -> dict[str, object]:
    """The answer once the work is done."""
    for _ in range(600):
        response = site.get(route)
        if response.status_code != 202:
            assert response.status_code == 200, response.text
            return dict(response.json or {})
        time.sleep(0.02)
    raise AssertionError("never done")


@pytest.mark.slow
def test_compare_is_what_the_command_says(site: Site) -> None:
    route = f"compare?before_run=input_bound&before_session={BEFORE}&after_run=healthy&after_session={AFTER}&lang=es"
    found = answer(site, route)
    logdir = Path(site.scanner.snapshot().sessions[0].root.path)
    expected = comparison_dict(compare_paths(logdir / "input_bound", logdir / "healthy"), "es")
    for name in ("outcome", "change", "parts", "findings", "kernels", "reasons"):
        assert found[name] == json.loads(json.dumps(expected[name])), name
    assert found["outcome"] == "faster" and found["language"] == "es"


def test_history_is_what_the_command_says_and_names_what_is_broken(site: Site) -> None:
    found = answer(site, "history")
    expected = history_dict(history_of_path(Path(site.scanner.snapshot().sessions[0].root.path)))
    assert found["headline"] == expected["headline"] and found["changes"] == expected["changes"]
    sessions = found["sessions"]
    assert isinstance(sessions, list) and [s["run"] for s in sessions] == ["broken", "input_bound", "healthy"]
    assert sessions[0]["problem"] and "/" not in sessions[0]["problem"].replace("host.xplane.pb", "")
    one = answer(site, "history?run=healthy")
    assert isinstance(one["sessions"], list) and len(one["sessions"]) == 1


@pytest.mark.parametrize(
    ("route", "status"),
    [
        ("compare?before_run=none&before_session=x&after_run=healthy&after_session=" + AFTER, 404),
        ("compare", 404),
        (
            f"compare?before_run=healthy&before_session={AFTER}&after_run=healthy&after_session={AFTER}&batch_after=0",
            400,
        ),
        ("history?run=none", 404),
        ("history?run=../..", 404),
    ],
)
def test_what_is_not_there_is_said(site: Site, route: str, status: int) -> None:
    site.scanner.snapshot(wait_s=5)
    assert site.get(route).status_code == status


def test_telemetry_alone_has_an_empty_history_that_says_why(
    demo_logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(demo_logs / "launch_bound" / "gpu_doctor", tmp_path / "watched" / "gpu_doctor")
    shutil.copytree(demo_logs / "healthy" / "plugins", tmp_path / "profiled" / "plugins")
    site = Site(tmp_path)
    for lang, reason in (("en", "only telemetry"), ("es", "solo telemetría")):
        found = answer(site, f"history?run=watched&lang={lang}")
        assert found["sessions"] == [] and found["changes"] == [] and reason in str(found["headline"])
    shutil.rmtree(tmp_path / "profiled")
    alone = Site(tmp_path)
    assert "only telemetry" in str(answer(alone, "history")["headline"])
    assert alone.get("history?run=profiled").status_code == 404
    # the command says the same
    assert main(["history", str(tmp_path), "--lang", "en"]) == 0
    said = capsys.readouterr().out
    assert "only telemetry" in said and "Sessions" not in said


def test_a_session_that_could_not_be_reached_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyses, "RETRY_S", 0.0)
    pool = analyses.Analyses[HistoryView](workers=1)

    def view(code: str) -> HistoryView:
        problem = Phrase("history.problems.unreadable", {"reason": ProfileError(code, "x")})
        return HistoryView(build_history([HistoryEntry("run", "s", 0.0, None, problem)]))

    for code, again in (("remote_unreachable", True), ("malformed", False)):
        job = pool.submit(code, "all", lambda _report, code=code: view(code))  # type: ignore[misc]
        assert job.finished.wait(5) and job.result is not None and job.result.is_provisional is again
        time.sleep(0.01)
        assert (pool.submit(code, "all", lambda _report, code=code: view(code)) is not job) is again  # type: ignore[misc]


def test_summaries_are_bounded() -> None:
    kept = Summaries(limit=2)
    for name in ("a", "b"):
        kept.put(name, "1", summary())
    assert kept.get("a", "1") is not None
    kept.put("c", "1", summary())
    assert kept.get("b", "1") is None and kept.get("a", "1") is not None


def test_one_summary_is_kept_of_a_place() -> None:
    kept = Summaries(limit=2)
    kept.put("b", "1", summary())
    for key in ("1", "2", "3"):
        kept.put("a", key, summary())
    assert kept.get("a", "3") is not None and kept.get("a", "2") is None
    assert kept.get("b", "1") is not None, "earlier content of another place takes no room"
