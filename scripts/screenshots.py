"""Take the pictures in docs/images: a real TensorBoard on the demo runs, in headless Chromium.

    make screenshots

TensorBoard gets a copy of the runs, since the stock Profiler writes caches beside them.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.e2e.visit import ARGUMENTS, Visit
from tests.regressing import GOOD, RUN, write_regressing
from tests.tensorboard_server import tensorboard

REPOSITORY = Path(__file__).resolve().parent.parent
IMAGES = REPOSITORY / "docs" / "images"
WINDOW = None
VIEW = ".view"
# file name, demo run, view, what else the link says, colour scheme, height of the window, the element shown
PICTURES: tuple[tuple[str, str, str, dict[str, str], str, int, str | None], ...] = (
    ("tab.png", "input_bound", "verdict", {}, "light", 1180, WINDOW),
    ("tab_dark.png", "input_bound", "verdict", {}, "dark", 1180, WINDOW),
    ("timeline.png", "slow_gpu", "timeline", {"streams": "2", "selection": "230~340"}, "light", 1420, VIEW),
    ("gaps.png", "input_bound", "gaps", {}, "light", 1500, VIEW),
    ("steps.png", "slow_gpu", "steps", {}, "light", 1700, VIEW),
    ("gpus.png", "slow_gpu", "gpus", {}, "dark", 2000, VIEW),
    ("kernels.png", "slow_gpu", "kernels", {}, "light", 1700, WINDOW),
    ("input.png", "input_bound", "input", {}, "light", 1200, VIEW),
    ("compare.png", RUN, "compare", {}, "light", 1560, WINDOW),
    ("history.png", RUN, "history", {}, "light", 1320, WINDOW),
    ("telemetry.png", "slow_gpu", "telemetry", {}, "dark", 1300, WINDOW),
)


def main() -> int:
    browser_path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser_path is None:
        print("No Chromium on the PATH.", file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        logdir = Path(folder) / "demo_logs"
        shutil.copytree(REPOSITORY / "demo_logs", logdir)
        before = write_regressing(logdir)[GOOD - 1]
        with tensorboard(f"--logdir={logdir}") as server, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=browser_path, args=ARGUMENTS)
            for name, run, view, state, scheme, height, element in PICTURES:
                page = browser.new_page(viewport={"width": 1280, "height": height}, color_scheme=scheme, locale="en-US")
                if view == "compare":
                    state = {"compare_with": f"{run}~{before}"}
                frame = Visit(page, server.url).open_run(run, view, **state)
                page.wait_for_timeout(1500)  # the last details and fade-ins
                (frame.locator(element) if element else page).screenshot(path=IMAGES / name)
                print(IMAGES / name)
                page.close()
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
