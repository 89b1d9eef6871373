from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from werkzeug.test import Client, TestResponse

from tb_gpu_doctor.analysis.file_columns import FileColumns
from tb_gpu_doctor.analysis.job import analyse_job
from tb_gpu_doctor.api import SessionResult
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.plugin import answer_memory, routes
from tb_gpu_doctor.plugin.analyses import Analyses, Report
from tb_gpu_doctor.plugin.answer_memory import AnswerMemory
from tb_gpu_doctor.plugin.lanes import LANE_CATEGORIES
from tb_gpu_doctor.plugin.logdir import Root, Scanner
from tb_gpu_doctor.plugin.routes import Routes
from tb_gpu_doctor.plugin.session_view import SessionView
from tb_gpu_doctor.report.diagnosis_report import DiagnosisReport
from tb_gpu_doctor.traces.columns import device_events
from tb_gpu_doctor.traces.sessions import Session, SessionScan
from tests.hosts import AnalysedFile, diagnosed
from tests.plugin.examples import analysis_of, gaps_of, trace_of
from tests.plugin.test_logdir import add_session

SESSION_ROUTES = (
    "diagnosis",
    "timeline/meta",
    "timeline/bins?start_ps=0&end_ps=100&width=10",
    "timeline/events?start_ps=0&end_ps=100",
    "timeline/at?lane=0&time_ps=5",
    "timeline/range?start_ps=0&end_ps=100",
    "timeline/find?query=k0&start_ps=0&end_ps=100",
    "timeline/next_gap?time_ps=0",
    "timeline/waits?start_ps=0&end_ps=100&width=10",
    "timeline/streams?lane=0&start_ps=0&end_ps=100",
    "kernels",
    "steps",
    "gaps",
    "gaps?limit=5&cause=input",
    "collectives",
    "input",
)


def view_of(session: Session, report: Report) -> SessionView:
    """A view of two busy GPUs; what the file holds does not matter."""
    events = device_events(2, device=[0, 1], stream=[0, 1], start=[0, 20], duration=[50, 50], klass=[0, 1], name=[0, 1])
    trace = trace_of(events, 2)
    analysis = analysis_of(events, gaps_of([0], [50], [70], [[20, *[0] * 11]]), 2)
    made = AnalysedFile("worker0", trace, analysis)
    diagnosis = DiagnosisReport.of(diagnosed([made], run=session.run, session=session.session))
    columns = (FileColumns(trace, analysis),)
    return SessionView(session, SessionResult(diagnosis, (made.facts,), columns, (), analyse_job([made.facts])))


class Site:
    """The routes over one logdir, asked as a browser would."""

    def __init__(
        self,
        logdir: Path,
        analyse: Callable[[Session, Report], SessionView] | None = None,
        find: Callable[[str], SessionScan] | None = None,
    ) -> None:
        self.scanner = Scanner([Root("", str(logdir))], find=find, min_interval_s=0.0)
        self.apps = Routes(self.scanner, Analyses(), str(logdir), analyse).apps()

    def get(self, address: str, **options: Any) -> TestResponse:
        path = "/" + address.partition("?")[0]
        return Client(self.apps[path]).open("/" + address, **options)

    def ready(self, address: str, **options: Any) -> TestResponse:
        """Follow 202 answers until the work is done."""
        deadline = time.monotonic() + 60
        while (answer := self.get(address, **options)).status_code == 202:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return answer

    def session(self, route: str, run: str = "a", session: str = "s") -> TestResponse:
        mark = "&" if "?" in route else "?"
        return self.ready(f"{route}{mark}run={run}&session={session}")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    add_session(tmp_path, "a", "s")
    return Site(tmp_path, view_of)


def error_of(answer: TestResponse) -> dict[str, str]:
    assert answer.mimetype == "application/json"
    assert set(answer.json) == {"error"} and set(answer.json["error"]) == {"code", "message", "path"}
    error: dict[str, str] = answer.json["error"]
    assert " " in error["message"]
    return error


def test_sessions_lists_what_there_is(tmp_path: Path):
    add_session(tmp_path, "a/b", "2024_01_01_00_00_00", content=b"12345")
    add_session(tmp_path, "", "2025_01_01_00_00_00", host="h1")
    add_session(tmp_path, "", "2025_01_01_00_00_00", host="h2")
    answer = Site(tmp_path).get("sessions").json
    assert answer["scanning"] is False
    assert answer["logdir"] == str(tmp_path)
    assert answer["problems"] == []
    assert "plugins/profile/*/*.xplane.pb" in answer["searched"]
    newest, oldest = answer["sessions"]
    assert (newest["run"], newest["label"], newest["hosts"]) == ("", "2025_01_01_00_00_00", ["h1", "h2"])
    assert oldest["modified_unix_s"] == pytest.approx(time.time(), abs=60)
    assert oldest == {
        "run": "a/b",
        "session": "2024_01_01_00_00_00",
        "label": "a/b · 2024_01_01_00_00_00",
        "hosts": ["worker0"],
        "format": "xplane",
        "size_bytes": 5,
        "modified_unix_s": oldest["modified_unix_s"],
        "recorded_unix_s": time.mktime((2024, 1, 1, 0, 0, 0, 0, 0, -1)),
        "verdict": None,
        "problem": None,
        "related": None,
    }


def test_an_empty_logdir_says_what_was_searched(tmp_path: Path):
    answer = Site(tmp_path).get("sessions").json
    assert answer["sessions"] == [] and answer["problems"] == [] and len(answer["searched"]) >= 2


@pytest.mark.parametrize("lang", ["en", "es"])
def test_what_cannot_be_read_is_said_in_a_sentence(tmp_path: Path, lang: str):
    riegeli = tmp_path / "r" / "plugins" / "profile" / "s" / "h.xplane.riegeli"
    riegeli.parent.mkdir(parents=True)
    riegeli.write_bytes(b"x")
    answer = Site(tmp_path).get(f"sessions?lang={lang}").json
    [session] = answer["sessions"]
    assert "riegeli" in session["problem"] and " " in session["problem"]
    missing = Site(tmp_path / "nothing").get(f"sessions?lang={lang}").json
    assert missing["sessions"] == []
    assert " " in missing["problems"][0]["message"]
    assert str(tmp_path) not in json.dumps(missing["problems"])


def test_sessions_never_waits_for_a_slow_logdir(tmp_path: Path):
    release = threading.Event()

    def find(path: str) -> SessionScan:
        release.wait(30)
        return SessionScan(path, (), (), ())

    site = Site(tmp_path, find=find)
    began = time.monotonic()
    answer = site.get("sessions")
    assert time.monotonic() - began < 1.0
    assert answer.json["scanning"] is True and answer.json["sessions"] == []
    # A shared link may be opened before the first scan has ended: not an error yet.
    waiting = site.get("diagnosis?run=a&session=s")
    assert (waiting.status_code, waiting.json["state"]) == (202, "queued")
    release.set()
    assert site.ready("diagnosis?run=a&session=s").status_code == 404


@pytest.mark.parametrize("route", SESSION_ROUTES)
@pytest.mark.parametrize(
    ("run", "session"),
    [
        ("", "s"), ("a", ""), ("a", "S"), ("a/", "s"), ("a/.", "s"),
        ("../a", "s"), ("a", "../s"), ("a", "s%00"), ("/etc", "passwd"),
    ],
)  # fmt: skip
def test_only_the_exact_names_of_the_scan_are_served(site: Site, route: str, run: str, session: str):
    answer = site.session(route, run, session)
    assert answer.status_code == 404
    assert error_of(answer)["code"] == "unknown_session"


@pytest.mark.parametrize("route", [*SESSION_ROUTES, "progress", "sessions", "doc?page=x", "index.js"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_only_get_is_answered(site: Site, route: str, method: str):
    answer = site.get(route, method=method)
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "GET"


@pytest.mark.parametrize("route", ["cancel", "retry"])
def test_what_changes_anything_is_asked_by_post_from_the_tab(site: Site, route: str):
    address = f"{route}?run=a&session=s"
    answer = site.get(address)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST") and "POST" in error_of(answer)["message"]
    # A form of another site can be sent by POST, but with no header of ours.
    answer = site.get(address, method="POST")
    assert (answer.status_code, error_of(answer)["code"]) == (403, "foreign_page")
    for origin in ("cross-site", "same-site"):
        headers = {"X-GPU-Doctor-Viewer": "12345678", "Sec-Fetch-Site": origin}
        assert site.get(address, method="POST", headers=headers).status_code == 403
    for origin in ("same-origin", "none"):
        headers = {"X-GPU-Doctor-Viewer": "12345678", "Sec-Fetch-Site": origin}
        assert site.get(address, method="POST", headers=headers).status_code == 200


@pytest.mark.parametrize("route", [*SESSION_ROUTES, "sessions", "progress", "history", "kernels.csv"])
def test_pages_of_other_sites_start_nothing(site: Site, route: str):
    mark = "&" if "?" in route else "?"
    answer = site.get(f"{route}{mark}run=a&session=s", headers={"Sec-Fetch-Site": "cross-site"})
    assert (answer.status_code, error_of(answer)["code"]) == (403, "foreign_page")
    assert site.session("progress").json["state"] == "unknown"


def test_one_who_stops_waiting_does_not_end_what_another_waits_for(tmp_path: Path):
    add_session(tmp_path, "a", "s")
    release = threading.Event()

    def slow(session: Session, report: Report) -> SessionView:
        while not release.wait(0.01):
            report("decoding", 0.5)
        return view_of(session, report)

    site = Site(tmp_path, slow)
    one, two = ({"X-GPU-Doctor-Viewer": name * 8} for name in "12")
    address = "run=a&session=s"
    for viewer in (one, two):
        assert site.get(f"diagnosis?{address}", headers=viewer).status_code == 202
    while site.session("progress").json["state"] != "running":
        time.sleep(0.01)
    assert site.get(f"cancel?{address}", method="POST", headers=one).json["state"] == "running"
    assert site.get(f"cancel?{address}", method="POST", headers=two).json["state"] == "unknown"
    release.set()
    assert site.session("diagnosis").status_code == 200


def test_a_failed_analysis_is_tried_again_by_post(tmp_path: Path):
    add_session(tmp_path, "a", "s")
    calls = []

    def once(session: Session, report: Report) -> SessionView:
        calls.append(1)
        if len(calls) == 1:
            raise ProfileError("worker_died", session.path, reason="SIGKILL")
        return view_of(session, report)

    site = Site(tmp_path, once)
    for _ in range(3):
        assert site.session("diagnosis").status_code == 500
    assert site.get("retry?run=a&session=s", method="POST", headers={"X-GPU-Doctor-Viewer": "12345678"}).is_json
    assert site.session("diagnosis").status_code == 200 and len(calls) == 2


@pytest.mark.parametrize(
    "query",
    [
        "start_ps=0&end_ps=100", "start_ps=0&end_ps=100&width=0", "start_ps=0&end_ps=100&width=8193",
        "start_ps=0&end_ps=100&width=1e3", "start_ps=0&end_ps=100&width=%D9%A1", "start_ps=0.5&end_ps=100&width=10",
        "start_ps=100&end_ps=100&width=10", "start_ps=100&end_ps=0&width=10", "end_ps=100&width=10",
        "start_ps=-9223372036854775808&end_ps=9223372036854775807&width=10",
        "start_ps=0&end_ps=99999999999999999999&width=10", "start_ps=NaN&end_ps=Infinity&width=10",
    ],
)  # fmt: skip
@pytest.mark.parametrize("lang", ["en", "es"])
def test_bad_bins_parameters_are_named(site: Site, query: str, lang: str):
    answer = site.session(f"timeline/bins?{query}&lang={lang}")
    assert answer.status_code == 400
    assert error_of(answer)["code"] == "bad_parameter"


@pytest.mark.parametrize("query", ["limit=-1", "limit=2000001", "limit=x"])
def test_bad_event_limits_are_refused(site: Site, query: str):
    assert site.session(f"timeline/events?start_ps=0&end_ps=9&{query}").status_code == 400


@pytest.mark.parametrize("query", ["lane=-1&time_ps=0", "lane=0", "time_ps=0", "lane=0&time_ps=1.5"])
def test_bad_moments_are_refused(site: Site, query: str):
    assert site.session(f"timeline/at?{query}").status_code == 400


def test_a_lane_that_is_not_there(site: Site):
    answer = site.session("timeline/at?lane=2&time_ps=0")
    assert (answer.status_code, error_of(answer)["code"]) == (404, "unknown_lane")


def test_very_long_values_are_refused(site: Site):
    assert site.session("diagnosis", run="a" * 5000).status_code == 400


def test_the_extremes_of_time_do_not_overflow(site: Site):
    most = (1 << 62) - 1
    answer = site.session(f"timeline/bins?start_ps={-most}&end_ps={most}&width=8192")
    assert answer.status_code == 200
    cells = np.frombuffer(answer.data, np.uint8, offset=12).reshape(2, len(LANE_CATEGORIES), 8192)
    assert cells[0, 0].sum() == 1 and cells[1, 1].sum() == 1 and cells[0, 3].sum() == 1
    events = site.session(f"timeline/events?start_ps={-most}&end_ps={most}")
    assert events.status_code == 200


def test_the_answers_about_one_session(site: Site):
    assert site.session("diagnosis").json["profile"]["session"] == "s"
    assert site.session("diagnosis").json["profile"]["run"] == "a"
    meta = site.session("timeline/meta").json
    assert [lane["label"] for lane in meta["lanes"]] == ["GPU 0", "GPU 1"]
    bins = site.session("timeline/bins?start_ps=0&end_ps=100&width=10")
    assert bins.mimetype == "application/octet-stream"
    cells = np.frombuffer(bins.data, np.uint8, offset=12).reshape(2, len(LANE_CATEGORIES), 10)
    assert cells[0, 0].tolist() == [255] * 5 + [0] * 5
    assert cells[0, 3].tolist() == [0] * 5 + [255] * 2 + [0] * 3
    assert cells[1, 1].tolist() == [0] * 2 + [255] * 5 + [0] * 3
    events = site.session("timeline/events?start_ps=0&end_ps=100&limit=2").data
    length = int.from_bytes(events[:4], "little")
    assert json.loads(events[4 : 4 + length]) == {
        "count": 3, "base_ps": 0, "unit_ps": 1, "names": [], "truncated": True,
    }  # fmt: skip
    assert site.session("timeline/at?lane=0&time_ps=60").json["gap"]["causes_ms"] == {"input": 20e-9}
    kernels = site.session("kernels").json
    assert kernels["rows"] == [] and [device["id"] for device in kernels["devices"]] == [0, 1]


def test_languages(site: Site):
    assert site.session("diagnosis?lang=es").json["language"] == "es"
    assert site.session("diagnosis?lang=en").json["language"] == "en"
    assert site.session("diagnosis?lang=xx").json["language"] == "en"
    english = error_of(site.get("diagnosis?run=x&session=y&lang=en"))["message"]
    spanish = error_of(site.get("diagnosis?run=x&session=y&lang=es"))["message"]
    assert "x/y" in english and "x/y" in spanish and english != spanish


def test_bins_are_compressed_where_that_is_welcome(site: Site):
    route = "timeline/bins?start_ps=0&end_ps=100&width=1000&run=a&session=s"
    plain = site.ready(route)
    packed = site.ready(route, headers={"Accept-Encoding": "gzip, deflate, br"})
    assert packed.headers["Content-Encoding"] == "gzip" and len(packed.data) < len(plain.data) / 10
    assert gzip.decompress(packed.data) == plain.data
    refused = site.ready(route, headers={"Accept-Encoding": "gzip;q=0, br"})
    assert "Content-Encoding" not in refused.headers and refused.data == plain.data


def test_twenty_teammates_cost_one_analysis(tmp_path: Path):
    add_session(tmp_path, "a", "s")
    calls, barrier, answers = [], threading.Barrier(20), []

    def slow(session: Session, report: Report) -> SessionView:
        calls.append(session.session)
        report("decoding", 0.5)
        time.sleep(0.2)
        return view_of(session, report)

    site = Site(tmp_path, slow)

    def visit(route: str) -> None:
        barrier.wait(20)
        answers.append(site.session(route).status_code)

    threads = [threading.Thread(target=visit, args=(SESSION_ROUTES[i % len(SESSION_ROUTES)],)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == [200] * 20
    assert calls == ["s"]


def test_progress_starts_nothing(tmp_path: Path):
    add_session(tmp_path, "a", "s")
    release, started = threading.Event(), threading.Event()

    def slow(session: Session, report: Report) -> SessionView:
        report("decoding", 0.37)
        started.set()
        release.wait(30)
        return view_of(session, report)

    site = Site(tmp_path, slow)
    assert site.session("progress").json == {"state": "unknown", "stage": "reading", "progress": 0.0}
    assert not started.is_set()
    first = site.get("diagnosis?run=a&session=s")
    assert first.status_code == 202 and first.json["state"] in ("queued", "running")
    assert started.wait(30)
    assert site.session("progress").json == {"state": "running", "stage": "decoding", "progress": 0.37}
    release.set()
    assert site.session("diagnosis").status_code == 200
    assert site.session("progress").json["state"] == "done"


@pytest.mark.parametrize("lang", ["en", "es"])
def test_a_failed_analysis_answers_with_its_reason_and_the_path_below_the_logdir(tmp_path: Path, lang: str):
    file = add_session(tmp_path, "a", "s")
    add_session(tmp_path, "b", "s")
    calls = []

    def broken(session: Session, report: Report) -> SessionView:
        calls.append(session.run)
        if session.run == "a":
            raise ProfileError("truncated", str(file), missing_bytes=12)
        return view_of(session, report)

    site = Site(tmp_path, broken)
    for route in SESSION_ROUTES:
        mark = "&" if "?" in route else "?"
        answer = site.session(f"{route}{mark}lang={lang}")
        assert answer.status_code == 422
        error = error_of(answer)
        assert (error["code"], error["path"]) == ("truncated", "a/plugins/profile/s/worker0.xplane.pb")
        assert "worker0.xplane.pb" in error["message"] and str(tmp_path) not in error["message"]
    assert site.session("progress").json["state"] == "failed"
    assert site.session("diagnosis", run="b").status_code == 200
    assert calls == ["a", "b"]


def test_a_bug_in_an_analysis_tells_the_log_and_not_the_page(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    add_session(tmp_path, "a", "s")

    def broken(session: Session, report: Report) -> SessionView:
        raise ZeroDivisionError(f"in {session.path}")

    answer = Site(tmp_path, broken).session("diagnosis")
    assert (answer.status_code, error_of(answer)["code"]) == (500, "internal")
    assert str(tmp_path) not in answer.text and "Traceback" not in answer.text
    assert "ZeroDivisionError" in caplog.text


def test_a_bug_in_a_route_becomes_an_answer(site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(site.scanner, "snapshot", lambda **options: 1 / 0)
    answer = site.get("sessions")
    assert (answer.status_code, error_of(answer)["code"]) == (500, "internal")


def test_a_rewritten_profile_is_read_again(tmp_path: Path):
    file = add_session(tmp_path, "a", "s")
    sizes = []

    def note(session: Session, report: Report) -> SessionView:
        sizes.append(session.size_bytes)
        return view_of(session, report)

    site = Site(tmp_path, note)
    assert site.session("diagnosis").status_code == 200
    file.write_bytes(b"rewritten")
    deadline = time.monotonic() + 5
    while site.get("sessions").json["sessions"][0]["size_bytes"] != 9 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert site.session("diagnosis").status_code == 200
    assert sizes == [1, 9]


def test_gaps_by_cause_and_lane(site: Site):
    everything = site.session("gaps").json
    assert everything["total"] == 1 and everything["gaps"][0]["causes_ms"] == {"input": 20e-9}
    assert site.session("gaps?cause=input&lane=0").json["matching"] == 1
    assert site.session("gaps?cause=launch").json["gaps"] == []
    assert site.session("gaps?lane=1").json["matching"] == 0
    assert site.session("gaps?limit=0").json["truncated"] is True
    assert error_of(site.session("gaps?lane=2"))["code"] == "unknown_lane"
    for wrong in ("cause=hunger", "limit=-1", "limit=2001", "lane=x"):
        assert error_of(site.session(f"gaps?{wrong}"))["code"] == "bad_parameter"


def related(site: Site) -> dict[str, Any]:
    return {f"{entry['run']}/{entry['session']}": entry["related"] for entry in site.get("sessions").json["sessions"]}


@pytest.fixture
def workers(tmp_path: Path) -> Site:
    """Workers that named their own folders, in one run and in sibling runs, and a second capture of one."""
    for run, second, host in (("a", 0, "n0"), ("a", 3, "n1"), ("b/w0", 20, "n0"), ("b/w1", 20, "n2"), ("a", 59, "n1")):
        add_session(tmp_path, run, f"2026_01_01_00_00_{second:02d}", host)
    site = Site(tmp_path, view_of)
    site.scanner.snapshot(wait_s=5)
    return site


def test_sessions_that_may_be_one_job_are_offered(workers: Site):
    found = related(workers)
    both = found["a/2026_01_01_00_00_00"]
    assert both == {
        "session": "2026_01_01_00_00_00,2026_01_01_00_00_03",
        "sessions": [
            {"run": "a", "session": "2026_01_01_00_00_00"},
            {"run": "a", "session": "2026_01_01_00_00_03"},
        ],
        "hosts": ["n0", "n1"],
        "apart_s": 3.0,
    }
    assert found["a/2026_01_01_00_00_03"] == both
    assert found["a/2026_01_01_00_00_59"] is None
    assert found["b/w0/2026_01_01_00_00_20"]["session"] == "2026_01_01_00_00_20,b/w1/2026_01_01_00_00_20"


@pytest.mark.parametrize("route", SESSION_ROUTES)
def test_several_sessions_are_read_as_one(workers: Site, route: str):
    for run, session in (
        ("a", "2026_01_01_00_00_00,2026_01_01_00_00_03"),
        ("b/w0", "2026_01_01_00_00_20,b/w1/2026_01_01_00_00_20"),
        ("", "b/w0/2026_01_01_00_00_20,a/2026_01_01_00_00_59"),
    ):
        answer = workers.session(route, run, session)
        assert answer.status_code == 200, answer.text
        if route == "diagnosis":
            assert (answer.json["profile"]["run"], answer.json["profile"]["session"]) == (run, session)
        assert workers.session("progress", run, session).json["state"] == "done"


@pytest.mark.parametrize(
    ("run", "session", "status", "code"),
    [
        ("a", "2026_01_01_00_00_00,nope", 404, "unknown_session"),
        ("a", "2026_01_01_00_00_00,../../etc/passwd", 404, "unknown_session"),
        ("a", "2026_01_01_00_00_00,/2026_01_01_00_00_03", 404, "unknown_session"),
        ("a", "2026_01_01_00_00_00,", 404, "unknown_session"),
        ("a", "2026_01_01_00_00_00,2026_01_01_00_00_00", 404, "unknown_session"),
        ("a", ",", 404, "unknown_session"),
        ("a", "b/w1/2026_01_01_00_00_20", 404, "unknown_session"),
        ("a", "2026_01_01_00_00_03,2026_01_01_00_00_59", 422, "hosts_twice"),
        ("a", ",".join(["2026_01_01_00_00_00"] * 2000), 400, "bad_parameter"),
    ],
)
def test_only_sessions_that_were_found_are_read_together(workers: Site, run: str, session: str, status: int, code: str):
    answer = workers.session("diagnosis", run, session)
    assert (answer.status_code, error_of(answer)["code"]) == (status, code)


def test_a_rewritten_member_is_read_anew(workers: Site, tmp_path: Path):
    names = "2026_01_01_00_00_00,2026_01_01_00_00_03"
    before = workers.scanner.snapshot(wait_s=5).find("a", names)
    add_session(tmp_path, "a", "2026_01_01_00_00_03", "n1", content=b"longer than before")
    deadline = time.monotonic() + 10
    while (after := workers.scanner.snapshot(wait_s=5).find("a", names)).key == before.key:
        assert time.monotonic() < deadline
    assert after.owner == before.owner


def test_a_comma_in_a_name_is_no_list(tmp_path: Path):
    add_session(tmp_path, "a", "x,y", "n0")
    site = Site(tmp_path, view_of)
    assert site.session("diagnosis", "a", "x,y").status_code == 200
    assert related(site) == {"a/x,y": None}


@pytest.mark.parametrize("route", ["timeline/bins", "timeline/waits"])
def test_bins_take_no_more_bytes_than_an_answer_may_have(site: Site, monkeypatch: pytest.MonkeyPatch, route: str):
    categories = len(LANE_CATEGORIES) if route == "timeline/bins" else 1
    monkeypatch.setattr(routes, "MAX_BIN_BYTES", 2 * categories * 10 + 1)
    answer = site.session(f"{route}?start_ps=0&end_ps=100&width=8192")
    assert answer.status_code == 200 and len(answer.data) == 12 + 2 * categories * 10
    assert np.frombuffer(answer.data, "<u4", 3).tolist() == [2, categories, 10], "the header says how many there are"
    assert site.session(f"{route}?start_ps=0&end_ps=100&width=7").data[8:12] == b"\7\0\0\0"


def test_answers_on_their_way_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    add_session(tmp_path, "a", "s")
    monkeypatch.setattr(answer_memory, "MAX_BYTES", 1 << 20)
    monkeypatch.setattr(AnswerMemory.__init__, "__defaults__", (1 << 20,))
    site = Site(tmp_path, view_of)
    address = "timeline/bins?run=a&session=s&start_ps=0&end_ps=100&width=8192"
    site.ready(address).close()
    viewers = [{"X-GPU-Doctor-Viewer": f"viewer-{number}"} for number in range(4)]
    sending = [site.get(address, headers=viewer, buffered=False) for viewer in viewers]
    assert [answer.status_code for answer in sending] == [200, 200, 202, 202], "half a MiB each, twice for compressing"
    for answer in sending:
        answer.close()
    assert site.get(address, headers=viewers[3]).status_code == 200
    events = "timeline/events?run=a&session=s&start_ps=0&end_ps=100"
    assert site.get(events, headers=viewers[0]).status_code == 200
