"""Many browsers on one TensorBoard while files come, change and break: errors, latency, memory.

    python -m benchmarks.soak                             50 browsers, 200 sessions, ten minutes
    python -m benchmarks.soak --minutes 0.2 --browsers 5 --sessions 20

Each browser does what the tab does: it lists the sessions, opens one, asks again while it is analysed, and goes
through the views; most look at the same few runs. Meanwhile sessions are added and deleted, and files rewritten,
cut off in the middle and made whole again. An answer of 5xx, a broken connection, or an answer later than a
second (an unfinished analysis answers 202 at once) is an error. Writes benchmarks/SOAK.md; exits with 1 after errors.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.generate import Shape, generate
from benchmarks.job_files import write_job
from benchmarks.run import machine
from tests.tensorboard_server import TensorBoard, tensorboard

RESULTS = Path(__file__).parent / "SOAK.md"
DEMO_LOGS = Path(__file__).resolve().parent.parent / "demo_logs"
SLOW_S = 1.0
TIMEOUT_S = 60.0
# As the tab asks again while an analysis runs.
FIRST_POLL_S, LAST_POLL_S = 0.12, 1.5
# Somebody reads for a while before he turns to the next view.
THINKING_S = (1.0, 5.0)
CHANGE_EVERY_S = 0.7
SAMPLE_EVERY_S = 1.0
FAVOURITES = 8


@dataclass
class Seen:
    """What the browsers met; shared by their threads."""

    latency: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: Counter[int] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    changes: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[float, int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, route: str, status: int, seconds: float, body: bytes) -> None:
        """One answer."""
        with self.lock:
            self.statuses[status] += 1
            self.latency[route].append(seconds)
            if status >= 500 or status in (0, 400):
                self.errors.append(f"{route}: {status} {body[:300]!r}")
            if seconds > SLOW_S:
                self.slow.append(f"{route}: {seconds:.2f} s ({status})")


class Logdir:
    """A logdir whose sessions come, change, break and go."""

    def __init__(self, root: Path, sessions: int, chance: random.Random) -> None:
        self.root = root
        self._chance = chance
        self._wholes = _templates(root.parent / "templates")
        self._names: list[Path] = []
        self._number = 0
        for _ in range(sessions):
            self.add()

    def add(self) -> None:
        """A new session; its file appears whole, as profilers write it."""
        number = self._number
        self._number += 1
        run = f"run{number % 20:02d}"
        second = (
            f"2026_01_{1 + number // 400 % 28:02d}_{number // 20 % 24:02d}_{number % 60:02d}_{number // 60 % 60:02d}"
        )
        folder = self.root / run / "plugins" / "profile" / second
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"worker{number % 3}.xplane.pb"
        path.write_bytes(self._chance.choice(self._wholes))
        self._names.append(path)

    def change(self) -> str:
        """Do one thing to one session; what was done."""
        path = self._chance.choice(self._names)
        what = self._chance.choice(("add", "rewrite", "rewrite", "cut", "cut", "grow", "delete"))
        if what == "add" or len(self._names) < 10:
            self.add()
        elif what == "delete":
            self._names.remove(path)
            path.unlink(missing_ok=True)
            path.parent.rmdir()
        elif what == "rewrite":
            path.write_bytes(self._chance.choice(self._wholes))  # in place: a reader may see part of it
        elif what == "cut":
            size = path.stat().st_size
            os.truncate(path, self._chance.randrange(size + 1))
        else:
            whole = self._chance.choice(self._wholes)  # still being copied
            with path.open("wb") as file:
                for at in range(0, len(whole), max(1, len(whole) // 5)):
                    file.write(whole[at : at + max(1, len(whole) // 5)])
                    file.flush()
                    time.sleep(0.05)
        return what


def _templates(folder: Path) -> list[bytes]:
    """Different profiles: one GPU and eight, few events and more."""
    folder.mkdir(parents=True)
    found = []
    for seed, shape in enumerate((Shape(1_500, 1_500, gpus=1), Shape(6_000, 6_000), Shape(20_000, 20_000))):
        path = folder / f"{seed}.xplane.pb"
        generate(path, shape, seed)
        found.append(path.read_bytes())
    return found


class Browser(threading.Thread):
    """One person with the tab open."""

    def __init__(self, server: TensorBoard, seen: Seen, stop: threading.Event, seed: int) -> None:
        super().__init__(daemon=True)
        self._server, self._seen, self._stop_event = server, seen, stop
        self._chance = random.Random(seed)

    def run(self) -> None:
        """Open session after session until told to stop."""
        self.ask("index.js")
        while not self._stop_event.is_set():
            try:
                self._visit()
            except Exception as error:
                with self._seen.lock:
                    self._seen.errors.append(f"browser: {type(error).__name__}: {error}")

    def ask(self, route: str, **params: object) -> tuple[int, bytes]:
        """One request, measured until its last byte."""
        url = f"{self._server.plugin_url}{route}?{urllib.parse.urlencode(params)}"
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
        self._seen.note(route, status, seconds, body)
        return status, body

    def done(self, route: str, **params: object) -> tuple[int, bytes]:
        """Ask again while the answer is 202."""
        wait = FIRST_POLL_S
        while True:
            status, body = self.ask(route, **params)
            if status != 202 or self._stop_event.wait(wait):
                return status, body
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


def _others(*routes: str):
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


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and of those that it started, what files back left out."""
    total = 0
    with_children = [pid]
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            if parent == pid:
                with_children.append(int(entry))
    for one in with_children:
        try:
            for line in Path(f"/proc/{one}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    total += int(line.split()[1]) * 1024
        except OSError:
            continue
    return total


def soak(minutes: float, browsers: int, sessions: int, seed: int = 1) -> Seen:
    """Run it; what was seen."""
    seen, stop = Seen(), threading.Event()
    with tempfile.TemporaryDirectory(prefix="gpu-doctor-soak-") as name:
        root = Path(name) / "logs"
        logdir = Logdir(root, sessions, random.Random(seed))
        write_job(root / "torch", "kineto", 4, 2_000)
        if DEMO_LOGS.is_dir():  # with telemetry
            shutil.copytree(DEMO_LOGS, root / "demo")
        os.environ.setdefault("GPU_DOCTOR_CACHE_DIR", str(Path(name) / "cache"))
        with tensorboard(f"--logdir={root}") as server:
            url = f"{server.plugin_url}sessions"
            deadline = time.monotonic() + TIMEOUT_S
            while time.monotonic() < deadline:  # until the first scan is done
                with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
                    listed = json.loads(answer.read())
                if len(listed["sessions"]) >= sessions:
                    break
                time.sleep(0.2)
            people = [Browser(server, seen, stop, seed * 1_000 + number) for number in range(browsers)]
            began = time.monotonic()
            for one in people:  # not all in one instant
                one.start()
                time.sleep(min(0.1, 6 * minutes / browsers))
            next_sample = next_change = began
            while (now := time.monotonic()) < began + 60 * minutes:
                if now >= next_sample:
                    seen.memory.append((now - began, resident_bytes(server.pid)))
                    next_sample = now + SAMPLE_EVERY_S
                if now >= next_change:
                    seen.changes[logdir.change()] += 1
                    next_change = now + CHANGE_EVERY_S
                time.sleep(0.1)
            stop.set()
            for one in people:
                one.join(TIMEOUT_S)
            log = server.log.read_text(errors="replace")
            if "Traceback" in log:
                seen.errors.append("TensorBoard's log: ..." + log[log.index("Traceback") :][:1500])
    return seen


def growth_per_minute(memory: Sequence[tuple[float, int]]) -> float:
    """Bytes a minute by which memory grew over the second half."""
    half = memory[len(memory) // 2 :]
    if len(half) < 3:
        return 0.0
    seconds, sizes = np.array([t for t, _ in half]), np.array([size for _, size in half], float)
    return float(np.polyfit(seconds, sizes, 1)[0] * 60)


def page(seen: Seen, minutes: float, browsers: int, sessions: int) -> str:
    """What SOAK.md says."""
    answers = sum(seen.statuses.values())
    sizes = [size for _, size in seen.memory] or [0]
    lines = [
        "# Soak", "",
        f"Written by `python -m benchmarks.soak`: {browsers} browsers on one TensorBoard with {sessions} sessions for "
        f"{minutes:g} minutes, while files were added, rewritten, cut off and deleted.", "",
        f"- {answers:,} answers, {answers / (60 * minutes):.0f} a second: "
        + ", ".join(f"{count:,} with {status}" for status, count in sorted(seen.statuses.items())),
        f"- {len(seen.errors)} errors (5xx, broken connections, tracebacks)",
        f"- {len(seen.slow)} answers took longer than {SLOW_S:g} s ({100 * len(seen.slow) / max(1, answers):.2f} %)",
        "- changes to files: " + ", ".join(f"{count} {what}" for what, count in sorted(seen.changes.items())),
        f"- memory of TensorBoard and its workers, no files: {sizes[0] / 1e6:,.0f} MB at first, "
        f"{max(sizes) / 1e6:,.0f} MB at most, {sizes[-1] / 1e6:,.0f} MB at last; over the second half it changed by "
        f"{growth_per_minute(seen.memory) / 1e6:+.1f} MB a minute", "",
        "| route | answers | median, ms | 99 %, ms | longest, ms |", "|---|---:|---:|---:|---:|",
    ]  # fmt: skip
    for route, times in sorted(seen.latency.items()):
        p50, p99, worst = (1e3 * float(value) for value in np.quantile(times, (0.5, 0.99, 1.0)))
        lines.append(f"| `{route}` | {len(times):,} | {p50:.0f} | {p99:.0f} | {worst:.0f} |")
    for title, entries in (("Errors", seen.errors), ("Slow answers", seen.slow)):
        if entries:
            lines += ["", f"## {title}", "", *(f"- `{entry}`" for entry in entries[:20])]
    load = os.getloadavg()
    lines += [
        "",
        f"Browsers and server share the machine, and times include waiting for a core; load {load[0]:.1f} at the end. "
        + machine(),
    ]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--browsers", type=int, default=50)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the page goes")
    options = parser.parse_args(argv)
    seen = soak(options.minutes, options.browsers, options.sessions)
    text = page(seen, options.minutes, options.browsers, options.sessions)
    options.results.write_text(text, encoding="utf-8")
    print(text)
    return 1 if seen.errors else 0


if __name__ == "__main__":
    sys.exit(main())
