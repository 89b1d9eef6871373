"""What the browser tests share: one browser, copies of the demo, a clean page for each test."""

from __future__ import annotations

import os
import shutil
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


@pytest.fixture
def visit(browser: Browser, contexts: Contexts) -> Iterator[Callable[..., Visit]]:
    """Opens pages that remember nothing of earlier tests: ``visit(server, color_scheme="dark")``."""
    pages = []

    def start(server: TensorBoard, **options: str) -> Visit:
        key = tuple(sorted(options.items()))
        if key not in contexts:
            settings = {"viewport": WIDE, "reduced_motion": "reduce", "locale": "en-US", **options}
            contexts[key] = browser.new_context(**settings)
        page = contexts[key].new_page()
        pages.append(page)
        return Visit(page, server.url)

    yield start
    for page in pages:
        # The tab remembers the last view: the next test starts afresh.
        page.evaluate("localStorage.clear()")
        page.close()


@pytest.fixture(scope="session")
def axe() -> None:
    """axe-core comes with the frontend's packages; where CI has them it must run."""
    if not AXE.is_file():
        message = "axe-core not installed: run npm ci in frontend"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
