"""The tab in a real TensorBoard and a headless Chromium: first paint, and frames while zooming.

    python -m benchmarks.tab                   the demo, and 1,000,000 intervals on the timeline
    python -m benchmarks.tab --rounds 9        more visits

First paint counts from the moment TensorBoard starts the tab's iframe. Frames are counted by the
browser's own animation clock (60 a second at most) while every frame zooms the timeline a little, in
and out again: once as users get it (level-of-detail bins for so many intervals), and once with every
interval in the browser. The browser draws without a GPU. The table goes to the terminal and into its
section of benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Frame, sync_playwright

from benchmarks.run import RESULTS, machine, put_section
from simulator.large_xplane import Shape, generate
from tests.e2e.visit import ARGUMENTS, Visit, plot
from tests.tensorboard_server import tensorboard

DEMO_LOGS = Path(__file__).resolve().parent.parent / "demo_logs"
SESSION = "2026_01_01_00_00_00"
# Overlaps and the gaps in between bring these to a little over a million intervals.
DEVICE_EVENTS = 1_000_000
FIRST_PAINT_GOAL_MS = 500.0
FRAMES_GOAL = 50.0
ZOOM_SECONDS = 5
WIDE = {"width": 1600, "height": 1000}

FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN"
# The diagnosis in words is what the visit is for: when it is there, counted from the same moment.
WATCH_VERDICT = """
window.addEventListener('DOMContentLoaded', () => {
  new MutationObserver((_, observer) => {
    if (!document.querySelector('.verdict')) return;
    window.verdictAt = performance.now();
    observer.disconnect();
  }).observe(document.documentElement, { childList: true, subtree: true });
});
"""
ZOOM = """async seconds => {
  const plot = document.querySelector('.tl-plot');
  const box = plot.getBoundingClientRect();
  const frame = () => new Promise(requestAnimationFrame);
  const gaps = [];
  const started = await frame();
  let before = started;
  for (let i = 0; before - started < seconds * 1000; i++) {
    const deltaY = Math.floor(i / 60) % 2 ? 30 : -30;
    const at = { clientX: box.left + box.width * 0.4, clientY: box.top + 20 };
    plot.dispatchEvent(new WheelEvent('wheel', { deltaY, ctrlKey: true, ...at, bubbles: true, cancelable: true }));
    const now = await frame();
    gaps.push(now - before);
    before = now;
  }
  return { frames: gaps.length, seconds: (before - started) / 1000, gaps };
}"""


@dataclass(frozen=True)
class Zooming:
    """Frames while zooming: how many a second, and how long the slowest one in twenty took at least."""

    intervals: int
    frames_per_second: float
    slow_frame_ms: float


@contextmanager
def visiting(browser: Browser, url: str) -> Iterator[Visit]:
    """A page with nothing cached."""
    context = browser.new_context(viewport=WIDE, locale="en-US")
    context.add_init_script(WATCH_VERDICT)
    try:
        visit = Visit(context.new_page(), url)
        visit.page.set_default_timeout(600_000)
        yield visit
    finally:
        context.close()


def first_paint(browser: Browser, url: str) -> tuple[float, float]:
    """Milliseconds from the iframe's start to the first paint and to the verdict."""
    with visiting(browser, url) as visit:
        frame = visit.open()
        frame.wait_for_selector(".verdict")
        frame.wait_for_function(f"() => !Number.isNaN({FIRST_PAINT})")
        return float(frame.evaluate(FIRST_PAINT)), float(frame.evaluate("window.verdictAt"))


def zooming(browser: Browser, url: str, limit: int | None) -> Zooming:
    """Zoom the timeline of the generated run; ``limit`` is how many intervals the browser may hold."""
    with visiting(browser, url) as visit:
        state = {"run": "big", "session": SESSION} | ({} if limit is None else {"intervals": str(limit)})
        frame = visit.open(**state)
        frame.wait_for_selector(".verdict")
        frame.wait_for_selector(".tl-foot li")
        _wait_until_loaded(frame)
        plot(frame).scroll_into_view_if_needed()
        result = frame.evaluate(ZOOM, ZOOM_SECONDS)
        lanes = visit.api("timeline/meta", run="big", session=SESSION)["lanes"]
        return Zooming(
            intervals=sum(lane["intervals"] for lane in lanes),
            frames_per_second=result["frames"] / result["seconds"],
            slow_frame_ms=statistics.quantiles(result["gaps"], n=20)[-1],
        )


def _wait_until_loaded(frame: Frame) -> None:
    frame.wait_for_function(
        """async () => {
            const loading = () => document.querySelector('.tl-foot .hint').innerText.includes('loading');
            for (let i = 0; i < 10; i++) {
                if (loading()) return false;
                await new Promise(done => setTimeout(done, 50));
            }
            return true;
        }"""
    )


def mark(good: bool) -> str:
    """Whether a goal was met."""
    return "yes" if good else "**no**"


def measure(browser_path: str, rounds: int, device_events: int) -> str:
    """The table."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        logdir = Path(folder) / "logs"
        shutil.copytree(DEMO_LOGS, logdir)
        big = logdir / "big" / "plugins" / "profile" / SESSION / "generated.xplane.pb"
        browser = playwright.chromium.launch(executable_path=browser_path, args=ARGUMENTS)
        with tensorboard(f"--logdir={logdir}") as server:
            first_paint(browser, server.url)  # makes the analysis; later visits find it done
            paints, verdicts = zip(*(first_paint(browser, server.url) for _ in range(rounds)), strict=True)
        big.parent.mkdir(parents=True)
        generate(big, Shape(device_events, device_events // 10), 1)
        with tensorboard(f"--logdir={logdir}") as server:
            by_bins = zooming(browser, server.url, None)
            by_intervals = zooming(browser, server.url, 2_000_000)
        version = browser.version
        browser.close()
    paint, verdict = statistics.median(paints), statistics.median(verdicts)
    rows = [
        f"| first paint after the iframe starts, demo | {paint:.0f} ms (median of {rounds}, worst {max(paints):.0f})"
        f" | < {FIRST_PAINT_GOAL_MS:.0f} ms | {mark(paint < FIRST_PAINT_GOAL_MS)} |",
        f"| verdict in words, demo | {verdict:.0f} ms (worst {max(verdicts):.0f}) | | |",
    ]
    for what, seen in (("as users get it", by_bins), ("every interval in the browser", by_intervals)):
        rows.append(
            f"| zooming {seen.intervals:,} intervals, {what} | {seen.frames_per_second:.1f} frames/s"
            f" (95th percentile {seen.slow_frame_ms:.1f} ms) | >= {FRAMES_GOAL:.0f} frames/s"
            f" | {mark(seen.frames_per_second >= FRAMES_GOAL)} |"
        )
    head = ["| measured | result | goal | met |", "|---|---|---|---|"]
    about = f"Chromium {version}, headless, no GPU; {machine()}. Repeat: `python -m benchmarks.tab`."
    return "\n".join([*head, *rows, "", about])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure the tab in headless Chromium.")
    parser.add_argument("--rounds", type=int, default=7, help="visits for the first paint")
    parser.add_argument("--device-events", type=int, default=DEVICE_EVENTS, help="events in the generated file")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the table goes")
    options = parser.parse_args(argv)
    browser_path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser_path is None:
        print("No Chromium on the PATH: install it to measure the tab.", file=sys.stderr)
        return 2
    table = measure(browser_path, options.rounds, options.device_events)
    print(table)
    put_section("The tab", table, options.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
