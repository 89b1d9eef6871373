"""Take the pictures in docs/images: a real TensorBoard on the demo runs, in headless Chromium.

    make screenshots

TensorBoard gets a copy of the runs, since the stock Profiler writes caches beside them.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

REPOSITORY = Path(__file__).resolve().parent.parent
IMAGES = REPOSITORY / "docs" / "images"
START_TIMEOUT_S = 120


def free_port() -> int:
    """A port on localhost that nothing listens on now."""
    with socket.socket() as sock:
        sock.bind(("localhost", 0))
        return int(sock.getsockname()[1])


@contextmanager
def tensorboard(logdir: Path) -> Iterator[str]:
    """A running TensorBoard; yields its address."""
    url = f"http://localhost:{free_port()}"
    command = [str(Path(sys.executable).parent / "tensorboard"), "--logdir", str(logdir)]
    command += ["--host", "localhost", "--port", url.rsplit(":", 1)[1]]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with urllib.request.urlopen(f"{url}/data/plugins_listing", timeout=5):
                    break
            except (urllib.error.URLError, OSError):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("TensorBoard did not start") from None
                time.sleep(0.5)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=20)


def shoot(page: Page, url: str, name: str) -> None:
    """Open the tab, wait until findings and timeline are drawn, and save what is seen."""
    page.goto(url)
    frame = page.frame_locator("iframe[src*='gpu_doctor'], iframe").last
    frame.locator("canvas").first.wait_for(state="visible", timeout=60_000)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1000)
    page.screenshot(path=IMAGES / name)
    print(IMAGES / name)


def main() -> int:
    """Take all pictures."""
    browser_path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser_path is None:
        print("No Chromium on the PATH.", file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        logdir = Path(folder) / "demo_logs"
        shutil.copytree(REPOSITORY / "demo_logs", logdir)
        with tensorboard(logdir) as url:
            browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
            for scheme in ("light", "dark"):
                page = browser.new_page(viewport={"width": 1280, "height": 1000}, color_scheme=scheme)
                shoot(page, f"{url}/#gpu_doctor", "tab.png" if scheme == "light" else f"tab_{scheme}.png")
                page.close()
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
