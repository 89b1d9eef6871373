"""A visit to the tab: a page of a real browser, with everything that goes wrong on it written down."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import ConsoleMessage, Frame, Locator, Page, Request

AXE = Path(__file__).resolve().parents[2] / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
TIMEOUT_MS = 60_000
# Nothing is loaded any more, and nothing begins to be: a view that has just come asks for its data a moment later.
QUIET = """since => {
    const quiet = !document.querySelector('.view .state.loading, .view.stale, .view .stale');
    if (!quiet || window.quietOf !== since) {
        window.quietOf = since;
        window.quietFrom = performance.now();
        return false;
    }
    return performance.now() - window.quietFrom > 60;
}"""
# The tab's frame within TensorBoard's page.
FRAME = "iframe[src*='plugin_entry.html?name=gpu_doctor']"
# No GPU, no sandbox (containers run as root), and none of the browser's own traffic.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_LENGTH = re.compile(r"\(([\d.,]+)\s(ns|µs|ms|s)\)")
_UNIT_MS = {"ns": 1e-6, "µs": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass
class Visit:
    """One page on one TensorBoard; ``url`` ends with a slash."""

    page: Page
    url: str
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    # Whether TensorBoard is open already, left by an earlier test.
    rested: bool = False
    _waits: int = 0

    def __post_init__(self) -> None:
        self.page.set_default_timeout(TIMEOUT_MS)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        self.page.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        address = message.location.get("url", "")
        # Under a path prefix TensorBoard's own style sheet asks for its fonts at the wrong place.
        if message.type == "error" and "/font-roboto/" not in address:
            self.errors.append(f"{message.text} ({address})")

    def _on_request(self, request: Request) -> None:
        origin = "/".join(self.url.split("/")[:3]) + "/"
        if not request.url.startswith((origin, "data:", "blob:")):
            self.foreign.append(request.url)

    def open(self, **state: str) -> Frame:
        """Go to the tab; ``state`` is what a shared link would hold. Returns the tab's own frame."""
        parts = ["gpu_doctor", *(f"p.gpu_doctor.{key}={urllib.parse.quote(value)}" for key, value in state.items())]
        element = self.page.query_selector(FRAME) if self.rested else None
        if element is None:
            self.page.goto("about:blank")  # the same address with another hash would not load anything
            self.page.goto(f"{self.url}#{'&'.join(parts)}")
            element = self.page.wait_for_selector(FRAME, state="attached")
            assert element is not None
        else:
            blank = element.content_frame()
            assert blank is not None
            source = element.get_attribute("src")
            blank.goto("about:blank")
            self.page.evaluate("hash => { localStorage.clear(); location.hash = hash; }", "&".join(parts))
            blank.goto(f"{self.url}{source}")
        self.rested = False
        frame = element.content_frame()
        assert frame is not None
        frame.wait_for_selector("h1")
        return frame

    def open_run(self, run: str, view: str = "verdict", **state: str) -> Frame:
        """Go to the tab with a link to a view of a run; waits until all of it is shown."""
        frame = self.open(run=run, session=self.session(run), view=view, **state)
        self.wait_until_shown(frame, run, view)
        return frame

    def choose_run(self, run: str) -> Frame:
        """Go to the tab and choose a run in the picker, as a user does; waits until all of it is shown."""
        # The view is named, since the tab may remember another one from the page before.
        frame = self.open(view="verdict")
        picker = frame.get_by_role("combobox", name="Profile session")
        frame.wait_for_selector(".view")
        if not (picker.get_attribute("placeholder") or "").startswith(f"{run} "):
            # What is shown now goes before what was chosen comes.
            frame.evaluate("document.querySelector('.view').toggleAttribute('data-before', true)")
        picker.click()
        picker.fill(run)
        frame.get_by_role("option").first.click()
        frame.wait_for_function("() => !document.querySelector('.view[data-before]')")
        self.wait_until_shown(frame, run)
        return frame

    def wait_until_shown(self, frame: Frame, run: str, view: str = "verdict") -> None:
        """Wait for a run and one of its views, all of it loaded and drawn."""
        frame.wait_for_function(
            "run => document.querySelector('[role=combobox]').placeholder.startsWith(run + ' ')", arg=run
        )
        frame.wait_for_selector(f".view[data-view={view}]")
        if view == "verdict":
            frame.wait_for_selector(".verdict")
        elif view == "timeline":
            # The overview is drawn, and the details for it have come.
            frame.wait_for_selector(".tl-foot li")
            frame.wait_for_function("() => !document.querySelector('.tl-foot .hint').innerText.includes('loading')")
        self._waits += 1
        frame.wait_for_function(QUIET, arg=self._waits)

    def show(self, frame: Frame, run: str, view: str) -> None:
        """Go to another view by its tab."""
        frame.locator(f"[role=tab]#tab-{view}").click()
        self.wait_until_shown(frame, run, view)

    def can_rest(self) -> bool:
        """Leave the page to a later test, if all went well and the tab is open still."""
        self.rested = not self.errors and self.page.query_selector(FRAME) is not None
        self.page.mouse.move(0, 0)
        self.foreign.clear()
        return self.rested

    def api(self, route: str, **params: str) -> Any:
        """The server's own JSON, to compare with what the page shows."""
        query = urllib.parse.urlencode(params)
        address = f"{self.url}data/plugin/gpu_doctor/{route}?{query}"
        while (answer := self.page.request.get(address)).status == 202:
            self.page.wait_for_timeout(100)
        assert answer.status == 200, answer.text()
        return answer.json()

    def diagnosis(self, run: str, lang: str = "en") -> Any:
        """The diagnosis of a run, once the page has had it made."""
        return self.api("diagnosis", run=run, session=self.session(run), lang=lang)

    def session(self, run: str) -> str:
        """The name of the newest profile of a run."""
        found = [each for each in self.api("sessions")["sessions"] if each["run"] == run]
        profile = next(each["session"] for each in found if each["format"] != "telemetry")  # the newest comes first
        return str(profile)

    def assert_clean(self) -> None:
        """Nothing on the console, nothing asked of anybody else."""
        assert self.errors == []
        assert self.foreign == []


def plot(frame: Frame) -> Locator:
    """The timeline's own element, which takes the keyboard."""
    return frame.get_by_role("application")


def shown_ms(frame: Frame) -> float:
    """How long the range is that the timeline shows, read off its toolbar."""
    text = frame.locator(".readout").inner_text()
    found = _LENGTH.search(text)
    assert found, text
    return float(found.group(1).replace(",", "")) * _UNIT_MS[found.group(2)]


def picture(frame: Frame) -> str:
    """The pixels of the lanes."""
    return str(frame.evaluate("document.querySelector('.tl-plot canvas').toDataURL()"))


def colours(frame: Frame) -> int:
    """How many different colours the lanes show, once they are drawn: background and steps alone are three."""
    count = """() => {
        const canvas = document.querySelector('.tl-plot canvas');
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(data.buffer)).size;
    }"""
    ends = time.monotonic() + 3
    while (found := int(frame.evaluate(count))) <= 3 and time.monotonic() < ends:
        frame.wait_for_timeout(50)
    return found


def axe_violations(frame: Frame) -> list[str]:
    """What axe finds wrong in the tab; evaluated, since the page's policy forbids foreign script tags."""
    frame.evaluate(AXE.read_text(encoding="utf-8"))
    result = frame.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{violation['id']}: {json.dumps([node['html'][:200] for node in violation['nodes'][:3]])}"
        for violation in result["violations"]
    ]
