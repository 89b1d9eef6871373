"""The snapshot behind the report of one file: the routes' own answers, and no more than fits."""

from __future__ import annotations

import base64
import gzip
import json
import re
import struct
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tb_gpu_doctor.api import choose_session
from tb_gpu_doctor.plugin import html_report as html_report_module
from tb_gpu_doctor.plugin.html_report import html_report, inline_module, key, page_html, take_snapshot
from tb_gpu_doctor.plugin.session_view import SessionView, analyse
from tb_gpu_doctor.traces.sessions import Session, find_sessions

Made = tuple[Session, SessionView]


def make(path: Path, run: str | None = None) -> Made:
    session = choose_session(find_sessions(str(path)), run)
    return session, analyse(session, lambda _stage, _done: None, lambda shown: shown)


@pytest.fixture(scope="module")
def made(demo_logs: Path) -> Made:
    return make(demo_logs, "slow_gpu")


def unpack(packed: bytes) -> tuple[dict[str, object], dict[str, bytes]]:
    content = gzip.decompress(packed)
    [length] = struct.unpack_from("<I", content)
    header = json.loads(content[4 : 4 + length])
    body = content[4 + length :]
    return header, {name: body[at : at + size] for name, (at, size) in header["answers"].items()}


@pytest.mark.slow
def test_it_holds_what_the_view_answers(made: Made):
    session, view = made
    found = take_snapshot(session, view, page_html)
    assert found.left_out == ()
    header, answers = unpack(found.packed("es"))
    assert (header["version"], header["lang"], header["left_out"]) == (1, "es", [])
    assert answers == found.answers
    for lang in ("en", "es"):
        assert answers[key("diagnosis", lang=lang)] == view.diagnosis_json(lang)
        pages = {finding["docs"] for finding in json.loads(view.diagnosis_json(lang))["findings"]}
        for page in pages - {None}:
            assert "<h1" in json.loads(answers[key("doc", page=page, lang=lang)])["html"]
    assert answers["steps"] == view.steps_json and answers["timeline/meta"] == view.meta_json
    assert json.loads(answers["gaps"]) == view.gaps.answer(html_report_module.MAX_GAPS)
    assert answers[key("kernels", by="kernel")] == view.kernels.table_json("kernel")
    assert answers[key("kernels/tree", device=3)] == view.kernels.tree_json(3)
    meta = json.loads(view.meta_json)
    start, end = meta["start_ps"], meta["end_ps"]
    assert answers["timeline/bins"] == view.timeline.bins(start, end, 4096)
    assert answers["timeline/events"] == view.timeline.events(start, end, 10**6)
    for metric in json.loads(answers[key("telemetry", lang="en")])["metrics"]:
        assert key("telemetry/series", metric=metric["id"]) in answers
    assert json.loads(answers["sessions"])["sessions"][0]["run"] == "slow_gpu"
    assert found.packed("es") == take_snapshot(session, view, page_html).packed("es")


def test_waits_are_those_of_the_lanes(made: Made):
    _, view = made
    waits = view.ranges.waits()
    meta = json.loads(view.meta_json)
    whole = view.ranges.accounting(meta["start_ps"], meta["end_ps"])
    for lane in range(view.timeline.lane_count):
        rows = zip(waits["lane"], waits["start_ps"], waits["end_ps"], strict=True)
        total = sum(end - start for at, start, end in rows if at == lane)
        assert total / 1e9 == pytest.approx(whole["lanes"][lane]["communication_wait_ms"], abs=1e-9)
    assert waits["lane"], "the demo has a slow GPU that the others wait for"


def test_steps_of_intervals_are_those_of_the_moment(made: Made):
    session, view = made
    steps = json.loads(take_snapshot(session, view, page_html).answers["interval_steps"])
    at = 0
    for index, lane in enumerate(view.timeline.lanes):
        own = steps["lanes"][index]
        for row in range(0, len(lane.start), 7):
            time = int(lane.start[row])
            moment = view.timeline.at(index, time)
            number = steps["step"][at + row]
            if moment["kind"] == "gap":
                ends = zip(own["start_ps"], own["end_ps"], own["number"], strict=True)
                number = next((step for start, end, step in ends if start <= time < end), None)
            assert number == moment["step"]
        at += len(lane.start)
    assert at == len(steps["step"])


@pytest.mark.slow
def test_what_does_not_fit_is_left_out_and_said(made: Made, monkeypatch: pytest.MonkeyPatch):
    session, view = made
    monkeypatch.setattr(html_report_module, "MAX_INTERVALS", 10)
    monkeypatch.setattr(html_report_module, "MAX_TREES", 1)
    monkeypatch.setattr(html_report_module, "MAX_STREAM_EVENTS", 5)
    found = take_snapshot(session, view, page_html)
    assert found.left_out == ("events", "trees", "streams")
    assert "timeline/events" not in found.answers and "timeline/bins" in found.answers
    monkeypatch.setattr(html_report_module, "_MAX_PACKED", 0)
    assert take_snapshot(session, view, page_html).left_out == ("events", "trees", "staircases", "streams")


def test_a_short_window_has_finer_bins(made: Made, monkeypatch: pytest.MonkeyPatch):
    session, view = made
    meta = json.loads(view.meta_json)
    first = meta["steps"][0]
    window = {"start_ps": first["start_ps"], "end_ps": first["end_ps"]}
    monkeypatch.setattr(view, "meta_json", json.dumps(meta | {"window": window}).encode())
    found = take_snapshot(session, view, page_html).answers
    [name] = [name for name in found if name.startswith("timeline/bins|")]
    end, start = (int(number) for number in re.findall(r"=(-?[0-9]+)", name))
    assert meta["start_ps"] <= start <= first["start_ps"] < first["end_ps"] <= end <= meta["end_ps"]
    assert found[name] == view.timeline.bins(start, end, 4096)
    assert found[name.replace("bins", "waits")] == view.ranges.wait_bins(start, end, 4096)


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.tags: list[str] = []
        self.metas: list[dict[str, str | None]] = []
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
            self._in_script = True
        if tag == "meta":
            self.metas.append(dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)


@pytest.mark.slow
def test_the_page_is_of_two_scripts_and_loads_nothing(made: Made):
    report = html_report(*made, "en")
    page = Page()
    page.feed(report.page)
    assert [attributes.get("type") for attributes, _ in page.scripts] == ["text/plain", "module"]
    assert not any("src" in attributes for attributes, _ in page.scripts)
    assert not {"link", "img", "iframe", "object", "base", "form"} & set(page.tags)
    [policy] = [meta["content"] for meta in page.metas if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy and policy.startswith("default-src 'none'; script-src 'sha256-") and "connect-src" not in policy
    header, _ = unpack(base64.b64decode(page.scripts[0][1]))
    assert header["lang"] == "en"
    assert len(report.page) < 2_000_000


@pytest.mark.slow
def test_names_of_a_profile_cannot_leave_their_place(tmp_path: Path, demo_logs: Path):
    evil = "</script><script>alert(1)</script><!--&'\""
    [source] = (demo_logs / "healthy").rglob("*.xplane.pb")
    folder = tmp_path / "x<script>y&'" / "plugins" / "profile" / "2026_01_01_00_00_00"
    folder.mkdir(parents=True)
    (folder / "h.xplane.pb").write_bytes(source.read_bytes())
    session, view = make(tmp_path)
    view._diagnosis_json["en"] = json.dumps(
        json.loads(view.diagnosis_json("en")) | {"findings": [{"title": evil, "explanation": evil, "docs": None}]}
    ).encode()
    page = Page()
    text = html_report(session, view, "en").page
    page.feed(text)
    assert [attributes.get("type") for attributes, _ in page.scripts] == ["text/plain", "module"]
    assert evil not in text and "x<script>" not in text
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in text


def test_a_module_stays_the_same_between_script_tags():
    source = 'const a = "</script>", b = `<!--`, c = /<\\/script/;'
    inline = inline_module(source)
    assert not re.search(r"</script|<!--", inline)
    assert inline.replace("<\\/", "</").replace("<\\!--", "<!--") == source.replace("<\\/", "</")
