"""The report of one file, opened from the disk: the same picture and numbers as the tab, and no request to anybody."""

from __future__ import annotations

import csv
import io
import json
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Frame, Page

from tb_gpu_doctor.api import choose_session
from tb_gpu_doctor.plugin.html_report import html_report
from tb_gpu_doctor.plugin.session_view import SessionView, analyse
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.e2e.visit import axe_violations, colours

pytestmark = pytest.mark.browser
RUN = "slow_gpu"


@dataclass
class Report:
    path: Path
    view: SessionView
    run: str
    session: str

    def diagnosis(self, lang: str) -> dict[str, object]:
        return dict(json.loads(self.view.diagnosis_json(lang)))


@pytest.fixture(scope="module")
def report(demo_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    session = choose_session(find_sessions(str(demo_logs)), RUN)
    view = analyse(session, lambda _stage, _done: None, lambda path: path)
    path = tmp_path_factory.mktemp("report") / "report of #1.html"
    path.write_text(html_report(session, view).page, encoding="utf-8")
    return Report(path, view, session.run, session.session)


@dataclass
class Opened:
    page: Page
    frame: Frame
    errors: list[str]
    requests: list[str]

    def show(self, view: str) -> None:
        self.page.locator(f"#tab-{view}").click()
        self.page.locator(f".view[data-view={view}]").wait_for()
        self.page.wait_for_function("() => !document.querySelector('.view .state.loading, .view .stale')")

    def assert_clean(self) -> None:
        assert self.errors == []
        assert len(self.requests) == 1 and self.requests[0].startswith("file://")


@pytest.fixture
def start(browser: Browser, report: Report) -> Iterator[Callable[..., Opened]]:
    contexts = []

    def opened(state: dict[str, str] | None = None, **options: object) -> Opened:
        settings = {"viewport": {"width": 1280, "height": 1000}, "locale": "en-US", "reduced_motion": "reduce"}
        context = browser.new_context(**{**settings, **options})  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        there = Opened(page, page.main_frame, [], [])
        page.on("console", lambda message: there.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: there.errors.append(str(error)))
        page.on("request", lambda request: there.requests.append(request.url))
        link = {} if state is None else {"run": report.run, "session": report.session, **state}
        parts = [f"p.gpu_doctor.{name}={urllib.parse.quote(value)}" for name, value in link.items()]
        page.goto(report.path.as_uri() + (f"#gpu_doctor&{'&'.join(parts)}" if parts else ""))
        page.locator("[role=tablist]").wait_for()
        return there

    yield opened
    for context in contexts:
        context.close()


def test_it_says_what_the_tab_says_in_both_languages(report: Report, start: Callable[..., Opened]):
    there = start()
    for lang in ("en", "es"):
        there.page.locator(".language select").select_option(lang)
        for finding in report.diagnosis(lang)["findings"]:  # type: ignore[attr-defined]
            there.page.get_by_text(finding["title"]).last.wait_for()
    # The page of a finding is in it too.
    there.page.locator(".language select").select_option("en")
    there.page.get_by_role("button", name="Learn more").first.click()
    there.page.locator("dialog[open] h1").wait_for()
    there.page.keyboard.press("Escape")
    assert there.page.get_by_role("button", name="Refresh").count() == 0
    there.assert_clean()


@pytest.mark.usefixtures("axe")
def test_every_view_works_and_is_accessible(start: Callable[..., Opened]):
    there = start(color_scheme="dark")
    names = there.page.locator("[role=tab]").evaluate_all("tabs => tabs.map(tab => tab.id.replace('tab-', ''))")
    assert {"verdict", "timeline", "gaps", "steps", "gpus", "kernels"} <= set(names)
    assert not {"compare", "history"} & set(names)
    for name in names:
        there.show(name)
        assert there.page.get_by_role("alert").count() == 0, name
        assert there.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        # The others are the tab's own, which are looked at there.
        if name in ("verdict", "timeline"):
            assert axe_violations(there.frame) == [], name
    there.page.emulate_media(color_scheme="light")
    there.show("verdict")
    assert axe_violations(there.frame) == []
    there.assert_clean()


def test_the_timeline_answers_by_itself(report: Report, start: Callable[..., Opened]):
    low, high = 300_000_000_000, 420_000_000_000
    there = start({"view": "timeline", "selection": "300~420", "find": "allreduce"})
    frame = there.frame
    frame.wait_for_function("() => !document.querySelector('.tl-foot .hint').innerText.includes('loading')")
    assert colours(frame) > 4
    # A stretch is accounted for as the server does it.
    frame.locator(".range-panel .bar").first.wait_for()
    frame.locator(".range-panel details").first.evaluate("element => element.open = true")
    with there.page.expect_download() as download:
        frame.locator(".range-panel").get_by_role("button", name="CSV").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text("utf-8-sig"))))
    answer = report.view.ranges.accounting(low, high)
    for row, lane in zip(rows, answer["lanes"], strict=True):
        for category, ms in lane["ms"].items():
            assert float(row[f"{category}_ms"]) == pytest.approx(ms, abs=0.01)
        assert float(row["communication_wait_ms"]) == pytest.approx(lane["communication_wait_ms"], abs=0.01)
    # Kernels and gaps are found.
    found = report.view.ranges.find("allreduce", 0, 10**13, 10)
    frame.get_by_text(f"{found['matching']} hits").wait_for()
    frame.get_by_label("Next hit").click()
    frame.wait_for_function("() => location.hash.includes('p.gpu_doctor.mark=')")
    # Looking closer shows single intervals.
    frame.get_by_role("application").first.press("w")
    there.assert_clean()


def test_links_within_the_file_keep_the_view(start: Callable[..., Opened]):
    there = start({"view": "gaps", "gap_cause": "launch", "lang": "es"})
    there.page.locator("#gaps").wait_for()
    assert there.page.locator("#gaps select:has(option[value=launch])").input_value() == "launch"
    there.show("steps")
    there.page.wait_for_function("() => location.hash.includes('p.gpu_doctor.view=steps')")
    there.assert_clean()
