"""What the browser tests share: one browser, copies of the demo, a clean page for each test."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from tests.e2e.visit import ARGUMENTS, AXE, Visit
from tests.tensorboard_server import TensorBoard, tensorboard

Contexts = dict[tuple[tuple[str, str], ...], BrowserContext]
WIDE = {"width": 1280, "height": 1000}


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    """One headless Chromium for all tests."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def logdir(demo_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the demo runs: the stock Profiler writes caches beside what it reads."""
    copy = tmp_path_factory.mktemp("demo") / "logs"
    shutil.copytree(demo_logs, copy)
    return copy


@pytest.fixture(scope="session")
def demo_copy(demo_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another copy, that no test adds to."""
    copy = tmp_path_factory.mktemp("demo") / "logs"
    shutil.copytree(demo_logs, copy)
    return copy


@pytest.fixture(scope="session")
def server(demo_copy: Path) -> Iterator[TensorBoard]:
    """One TensorBoard on the demo runs for all tests that change nothing."""
    with tensorboard(f"--logdir={demo_copy}") as running:
        yield running


@pytest.fixture(scope="module")
def contexts() -> Iterator[Contexts]:
    """Browser contexts by their options, kept for a module: TensorBoard's own script is large, and cached so."""
    opened: Contexts = {}
    yield opened
    for context in opened.values():
        context.close()


@pytest.fixture(scope="module")
def rested() -> dict[tuple[BrowserContext, str], list[Visit]]:
    """Pages that a test is done with, by context and server."""
    return defaultdict(list)


@pytest.fixture
def visit(
    browser: Browser, contexts: Contexts, rested: dict[tuple[BrowserContext, str], list[Visit]]
) -> Iterator[Callable[..., Visit]]:
    """Opens pages that remember nothing of earlier tests: ``visit(server, color_scheme="dark")``.

    TensorBoard around the tab takes four fifths of the time to open: its page is taken over from an
    earlier test, and the tab in it loaded anew.
    """
    visits: list[tuple[tuple[BrowserContext, str], Visit]] = []

    def start(server: TensorBoard, **options: str) -> Visit:
        key = tuple(sorted(options.items()))
        if key not in contexts:
            settings = {"viewport": WIDE, "reduced_motion": "reduce", "locale": "en-US", **options}
            contexts[key] = browser.new_context(**settings)
        place = contexts[key], server.url
        there = rested[place].pop() if rested[place] else Visit(contexts[key].new_page(), server.url)
        visits.append((place, there))
        return there

    yield start
    for place, there in visits:
        # The tab remembers the last view: the next test starts afresh.
        there.page.evaluate("localStorage.clear()")
        if there.can_rest():
            there.page.set_viewport_size(WIDE)
            rested[place].append(there)
        else:
            there.page.close()


@pytest.fixture(scope="session")
def axe() -> None:
    """axe-core comes with the frontend's packages; where CI has them it must run."""
    if not AXE.is_file():
        message = "axe-core not installed: run npm ci in frontend"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
