"""The browsers of the soak: what each asks, when, and what they met."""

from __future__ import annotations

import gzip
import json
import random
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.soak_watch import Memory
from tests.tensorboard_server import TensorBoard

SLOW_S = 1.0
TIMEOUT_S = 60.0
# As the tab asks again while an analysis runs.
FIRST_POLL_S, LAST_POLL_S = 0.12, 1.5
# Somebody reads for a while before he turns to the next view.
THINKING_S = (1.0, 5.0)
FAVOURITES = 8


@dataclass(frozen=True)
class Answer:
    """One answer: ``began`` is a monotonic time."""

    route: str
    status: int
    began: float
    seconds: float


@dataclass
class Seen:
    """What the browsers met; shared by their threads.

    ``firsts`` are seconds from asking for the first time until the answer that was asked for, by route, of all who were
    answered 202 first: waits for an analysis.
    """

    latency: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: Counter[int] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    slow: list[Answer] = field(default_factory=list)
    firsts: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    changes: Counter[str] = field(default_factory=Counter)
    memory: list[Memory] = field(default_factory=list)
    still: list[str] = field(default_factory=list)
    slow_words: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, answer: Answer, body: bytes) -> None:
        """One answer."""
        with self.lock:
            self.statuses[answer.status] += 1
            self.latency[answer.route].append(answer.seconds)
            if answer.status >= 500 or answer.status in (0, 400):
                self.errors.append(f"{answer.route}: {answer.status} {body[:300]!r}")
            if answer.seconds > SLOW_S:
                self.slow.append(answer)

    def note_first(self, route: str, seconds: float) -> None:
        """One wait for an analysis."""
        with self.lock:
            self.firsts[route].append(seconds)


class Browser(threading.Thread):
    """One person with the tab open."""

    def __init__(self, server: TensorBoard, seen: Seen, stop: threading.Event, seed: int) -> None:
        super().__init__(daemon=True)
        self.base = server.plugin_url
        self._server, self._seen, self._stop_event = server, seen, stop
        self._chance = random.Random(seed)

    def run(self) -> None:
        """Open session after session until told to stop."""
        self.begin()
        while not self._stop_event.is_set():
            try:
                self._visit()
            except Exception as error:
                with self._seen.lock:
                    self._seen.errors.append(f"browser: {type(error).__name__}: {error}")

    def begin(self) -> None:
        """What is loaded first."""
        self.ask("index.js")

    def ask(self, route: str, **params: object) -> tuple[int, bytes]:
        """One request, measured until its last byte."""
        url = f"{self.base}{route}?{urllib.parse.urlencode(params)}"
        began, packed = time.monotonic(), False
        try:
            # packed, as browsers ask for it
            request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                status, body = answer.status, answer.read()
                packed = answer.headers.get("Content-Encoding") == "gzip"
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read()
            packed = error.headers.get("Content-Encoding") == "gzip"
        except OSError as error:
            status, body = 0, str(error).encode()
        seconds = time.monotonic() - began
        body = gzip.decompress(body) if packed else body
        self._seen.note(Answer(route, status, began, seconds), body)
        return status, body

    def done(self, route: str, **params: object) -> tuple[int, bytes]:
        """Ask again while the answer is 202: somebody's first analysis of what the files hold now."""
        wait, began, is_first = FIRST_POLL_S, time.monotonic(), False
        while True:
            status, body = self.ask(route, **params)
            if status != 202 or self._stop_event.wait(wait):
                if is_first and status != 202:
                    self._seen.note_first(route, time.monotonic() - began)
                return status, body
            is_first = True
            wait = min(LAST_POLL_S, wait * 1.5)
            if self._chance.random() < 0.3:
                self.ask("progress", **{name: params[name] for name in ("run", "session") if name in params})

    def think(self) -> bool:
        """Wait as a reader does; whether it is time to go."""
        return self._stop_event.wait(self._chance.uniform(*THINKING_S))

    def _visit(self) -> None:
        chance = self._chance
        status, body = self.ask("sessions", lang=chance.choice(("en", "es")))
        sessions = json.loads(body)["sessions"] if status == 200 else []
        if not sessions:
            self.think()
            return
        one = chance.choice(sessions[:FAVOURITES] if chance.random() < 0.8 else sessions)
        name = {"run": one["run"], "session": one["session"]}
        status, _ = self.done("diagnosis", **name, lang=chance.choice(("en", "es")))
        if status != 200:
            self.think()
            return
        for view in chance.sample(VIEWS, k=chance.randint(2, len(VIEWS))):
            if self.think():
                return
            view(self, name)
        if chance.random() < 0.3:
            other = chance.choice(sessions[:FAVOURITES])
            self.done(
                "compare", before_run=name["run"], before_session=name["session"],
                after_run=other["run"], after_session=other["session"], lang="en",
            )  # fmt: skip
        if chance.random() < 0.1:
            self.done("history", run=name["run"], lang="en")


View = Callable[["Browser", dict[str, str]], None]


def _timeline(browser: Browser, name: dict[str, str]) -> None:
    status, body = browser.done("timeline/meta", **name)
    if status != 200:
        return
    meta, chance = json.loads(body), browser._chance
    low, high = meta["start_ps"], meta["end_ps"]
    if high <= low:  # nothing but telemetry: the tab shows no timeline
        return
    lanes = len(meta["lanes"])
    for _ in range(3):  # zooming in
        span = {"start_ps": low, "end_ps": high}
        browser.done("timeline/bins", **name, **span, width=1_200)
        browser.done("timeline/waits", **name, **span, width=1_200)
        browser.done("timeline/range", **name, **span)
        middle = (low + high) // 2
        if lanes:
            lane = chance.randrange(lanes)
            browser.done("timeline/at", **name, lane=lane, time_ps=middle)
            browser.done("timeline/streams", **name, **span, lane=lane)
        browser.done("timeline/next_gap", **name, time_ps=middle)
        browser.done("timeline/telemetry", **name, **span, metric="utilization_percent")
        low, high = low + (high - low) // 4, high - (high - low) // 4
    browser.done("timeline/find", **name, start_ps=low, end_ps=high, query="gemm")
    browser.done("timeline/events", **name, start_ps=low, end_ps=high, limit=20_000)


def _kernels(browser: Browser, name: dict[str, str]) -> None:
    browser.done("kernels", **name, by=browser._chance.choice(("gpu", "kernel")))
    for route in ("kernels/tree", "kernels/filling", "kernels/fusion"):
        browser.done(route, **name)
    browser.done("kernels/staircase", **name, kernel=0)
    browser.done("kernels.csv", **name, by="kernel", lang="es")


def _others(*routes: str) -> View:
    def view(browser: Browser, name: dict[str, str]) -> None:
        for route in routes:
            browser.done(route, **name)

    return view


def _docs(browser: Browser, name: dict[str, str]) -> None:
    browser.ask("doc", page="findings/input_bound", lang="es")
    browser.ask("doc", page="findings/imbalance", lang="en")


VIEWS = (
    _timeline, _kernels, _docs, _others("steps"), _others("gaps"), _others("collectives"), _others("input"),
    _others("telemetry", "batch_sweeps"), _others("steps", "gaps"),
)  # fmt: skip


class StockBrowser(Browser):
    """Somebody who looks at TensorBoard, but never at this tab."""

    def begin(self) -> None:
        """What TensorBoard's own page loads first."""
        self.base = f"{self._server.url}data/"
        self.ask("environment")

    def _visit(self) -> None:
        for route in ("environment", "runs", "plugins_listing", "plugin/scalars/tags"):
            self.ask(route)
        self.think()


class Everything(Browser):
    """Somebody who asks for every session there is, and again, without waiting for any answer's content."""

    def _visit(self) -> None:
        status, body = self.ask("sessions")
        for session in json.loads(body)["sessions"] if status == 200 else []:
            if self._stop_event.is_set():
                return
            self.ask("diagnosis", run=session["run"], session=session["session"])
        self._stop_event.wait(FIRST_POLL_S)
