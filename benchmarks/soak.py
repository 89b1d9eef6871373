"""Many browsers on one TensorBoard while files come, change and break: errors, latency, memory.

    python -m benchmarks.soak                             50 browsers, 200 sessions, ten minutes, and the control
    python -m benchmarks.soak --minutes 0.2 --control-minutes 0.2 --browsers 5 --sessions 20

Each browser does what the tab does: it lists the sessions, opens one, asks again while it is analysed, and goes
through the views; most look at the same few runs. Meanwhile sessions are added and deleted, and files rewritten,
cut off in the middle and made whole again. One more asks for every session without waiting, a session has 5,000 files,
and one profile is a pipe that nobody writes to. An answer of 5xx, a broken connection and a traceback in the log are
errors. No answer is left out of the latencies: an unfinished analysis answers 202 at once, and such an answer has a
second like every other one. Each answer that took longer is listed.

The control is the same with browsers that never open the tab: how TensorBoard's own memory grows.

Writes benchmarks/SOAK.md; exits with 1 after errors and where a limit is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.run import machine
from benchmarks.soak_browsers import SLOW_S, TIMEOUT_S, Browser, Everything, Seen, StockBrowser
from benchmarks.soak_logdir import Logdir
from benchmarks.soak_watch import STILL_S, Heartbeats, Memory, memory_of
from simulator.large_job import write_job
from tests.tensorboard_server import TensorBoard, tensorboard

RESULTS = Path(__file__).parent / "SOAK.md"
DEMO_LOGS = Path(__file__).resolve().parent.parent / "demo_logs"
CHANGE_EVERY_S = 0.7
SAMPLE_EVERY_S = 1.0
TABLE_EVERY_S = 30.0
# Sessions come and go, and so does what is kept of them: less than this over the second half is no growth. Judged is
# TensorBoard's own process: those that analyse end and start again, each step some 60 MB.
PLATEAU_MB_PER_MINUTE = 3.0
MAX_LISTED = 200
# Of the session with very many.
MANY_FILES = 5_000


def soak(minutes: float, browsers: int, sessions: int, seed: int = 1, person: type[Browser] = Browser) -> Seen:
    """Run it; what was seen.

    Args:
        minutes: how long.
        browsers: how many at the same time.
        sessions: in the logdir at first.
        seed: of all chance.
        person: what the browsers do.
    """
    seen, stop = Seen(), threading.Event()
    with tempfile.TemporaryDirectory(prefix="gpu-doctor-soak-") as name:
        root = Path(name) / "logs"
        logdir = Logdir(root, sessions, random.Random(seed))
        write_job(root / "torch", "kineto", 4, 2_000)
        logdir.add_hard_ones(MANY_FILES)
        if DEMO_LOGS.is_dir():  # with telemetry
            shutil.copytree(DEMO_LOGS, root / "demo")
        with _variable("GPU_DOCTOR_CACHE_DIR", str(Path(name) / "cache")), tensorboard(f"--logdir={root}") as server:
            if person is Browser:
                _wait_for_scan(server, sessions)
            people = [person(server, seen, stop, seed * 1_000 + number) for number in range(browsers)]
            if person is Browser:
                people.append(Everything(server, seen, stop, seed))
            with Heartbeats() as beats:
                began = time.monotonic()
                for one in people:  # not all in one instant
                    one.start()
                    time.sleep(min(0.1, 6 * minutes / browsers))
                next_sample = next_change = began
                while (now := time.monotonic()) < began + 60 * minutes:
                    if now >= next_sample:
                        seen.memory.append(memory_of(server.pid, now - began))
                        next_sample = now + SAMPLE_EVERY_S
                    if now >= next_change:
                        seen.changes[logdir.change()] += 1
                        next_change = now + CHANGE_EVERY_S
                    time.sleep(0.1)
                stop.set()
                for one in people:
                    one.join(TIMEOUT_S)
                seen.still = [
                    f"{one.start - began:.0f} s: {one.who} stood still for {one.end - one.start:.2f} s"
                    for one in beats.still
                ]
                for answer in seen.slow:
                    reason = beats.during(answer.began, answer.began + answer.seconds)
                    seen.slow_words.append(
                        f"{answer.began - began:.0f} s: {answer.route} {answer.seconds:.2f} s ({answer.status})"
                        + (f"; meanwhile {reason}" if reason else "")
                    )
            log = server.log.read_text(errors="replace")
            if "Traceback" in log:
                seen.errors.append("TensorBoard's log: ..." + log[log.index("Traceback") :][:1500])
    return seen


class _variable:
    """An environment variable for a while; one that the user has set stays."""

    def __init__(self, name: str, value: str) -> None:
        self._name, self._value = name, value

    def __enter__(self) -> None:
        self._is_ours = self._name not in os.environ
        os.environ.setdefault(self._name, self._value)

    def __exit__(self, *_: object) -> None:
        if self._is_ours:
            del os.environ[self._name]


def _wait_for_scan(server: TensorBoard, sessions: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"{server.plugin_url}sessions", timeout=TIMEOUT_S) as answer:
            if len(json.loads(answer.read())["sessions"]) >= sessions:
                return
        time.sleep(0.2)


def growth_mb_per_minute(memory: Sequence[Memory], of: Callable[[Memory], int] = lambda one: one.total) -> float:
    """By how much memory grew over the second half: the slope of the straight line through it."""
    half = memory[len(memory) // 2 :]
    if len(half) < 3:
        return 0.0
    seconds, sizes = np.array([one.at_s for one in half]), np.array([of(one) for one in half], float)
    return float(np.polyfit(seconds, sizes, 1)[0] * 60 / 1e6)


def page(seen: Seen, minutes: float, browsers: int, sessions: int, control: Seen | None = None) -> str:
    """What SOAK.md says."""
    answers = sum(seen.statuses.values())
    lines = [
        "# Soak", "",
        f"Written by `python -m benchmarks.soak`: {browsers} browsers on one TensorBoard with {sessions} sessions for "
        f"{minutes:g} minutes, while files were added, rewritten, cut off and deleted; one more client asked for every "
        f"session without waiting, one session had {MANY_FILES:,} files, and one profile was a pipe without a writer.",
        "",
        f"- {answers:,} answers, {answers / (60 * minutes):.0f} a second: "
        + ", ".join(f"{count:,} with {status}" for status, count in sorted(seen.statuses.items())),
        f"- {len(seen.errors)} errors (5xx, broken connections, tracebacks)",
        f"- {len(seen.slow)} answers took longer than {SLOW_S:g} s ({100 * len(seen.slow) / max(1, answers):.2f} %). "
        "None is left out: an analysis that is not done answers 202 at once, and that counts like every other answer",
        f"- {_firsts(seen)}",
        "- changes to files: " + ", ".join(f"{count} {what}" for what, count in sorted(seen.changes.items())),
        *_memory_lines(seen, control),
        f"- {len(seen.still)} times a process that only sleeps, or a thread beside the browsers, came back more than "
        f"{STILL_S:g} s late: the machine was busy, not the server", "",
        "| route | answers | median, ms | 99 %, ms | longest, ms |", "|---|---:|---:|---:|---:|",
    ]  # fmt: skip
    for route, times in sorted(seen.latency.items()):
        p50, p99, worst = (1e3 * float(value) for value in np.quantile(times, (0.5, 0.99, 1.0)))
        lines.append(f"| `{route}` | {len(times):,} | {p50:.0f} | {p99:.0f} | {worst:.0f} |")
    lines += _memory_table(seen, control, minutes)
    for title, entries in (
        ("Errors", seen.errors), ("Slow answers", seen.slow_words),
        ("Moments in which the machine was busy", seen.still),
    ):  # fmt: skip
        if entries:
            lines += ["", f"## {title}", "", *(f"- `{entry}`" for entry in entries[:MAX_LISTED])]
            lines += [f"- and {len(entries) - MAX_LISTED} more"] if len(entries) > MAX_LISTED else []
    load = os.getloadavg()
    lines += [
        "",
        f"Browsers and server share the machine, and times include waiting for a core; load {load[0]:.1f} at the end. "
        + machine(),
    ]
    return "\n".join(lines) + "\n"


def _firsts(seen: Seen) -> str:
    """How long it took until what was not there yet was there; all requests on the way were answered at once."""
    histories = seen.firsts.get("history", [])
    sessions = [wait for route, waits in seen.firsts.items() if route != "history" for wait in waits]
    said = [
        f"{len(waits):,} times {what} (median {np.median(waits):.2f} s, at most {max(waits):.2f} s until it was there)"
        for what, waits in (
            ("a session that was new, rewritten or forgotten", sessions),
            ("a history of a dozen sessions", histories),
        )
        if waits
    ]
    return "asked for before it was analysed, and again until it was: " + (", ".join(said) or "nothing")


def _memory_lines(seen: Seen, control: Seen | None) -> list[str]:
    def said(name: str, memory: Sequence[Memory], of: Callable[[Memory], int]) -> str:
        sizes = [of(one) / 1e6 for one in memory] or [0.0]
        return (
            f"- memory of {name}: {sizes[0]:,.0f} MB at first, {max(sizes):,.0f} MB at most, {sizes[-1]:,.0f} MB at "
            f"last; over the second half it changed by {growth_mb_per_minute(memory, of):+.1f} MB a minute"
        )

    lines = [
        said("all processes together, no pages of files", seen.memory, lambda one: one.total),
        said("TensorBoard's own process", seen.memory, lambda one: one.server),
        said("the processes that analyse", seen.memory, lambda one: one.workers),
    ]
    if control is not None:
        lines.append(
            said("TensorBoard's own process while nobody opened the tab", control.memory, lambda one: one.server)
        )
    return lines


def _memory_table(seen: Seen, control: Seen | None, minutes: float) -> list[str]:
    """Means over half minutes."""
    lines = [
        "", "## Memory", "",
        "Resident, without pages of files, mean of each half minute, MB. The control is TensorBoard with as many "
        "browsers, on a logdir that changes alike, that never open the tab.", "",
        "| until, min | TensorBoard | analysing processes | its reader of event files | all | control: TensorBoard | "
        "control: all |", "|---:|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for start in np.arange(0.0, 60 * minutes, TABLE_EVERY_S):

        def mean(run: Seen | None, of: Callable[[Memory], int], start: float = start) -> str:
            here = [of(one) for one in run.memory if start <= one.at_s < start + TABLE_EVERY_S] if run else []
            return f"{np.mean(here) / 1e6:,.0f}" if here else ""

        cells = [
            mean(seen, lambda one: one.server), mean(seen, lambda one: one.workers),
            mean(seen, lambda one: one.data_server), mean(seen, lambda one: one.total),
            mean(control, lambda one: one.server), mean(control, lambda one: one.total),
        ]  # fmt: skip
        lines.append(f"| {min((start + TABLE_EVERY_S) / 60, minutes):g} | " + " | ".join(cells) + " |")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--control-minutes", type=float, default=5.0, help="of the control; 0 leaves it out")
    parser.add_argument("--browsers", type=int, default=50)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the page goes")
    options = parser.parse_args(argv)
    shape = (options.browsers, options.sessions)
    seen = soak(options.minutes, *shape)
    control = soak(options.control_minutes, *shape, person=StockBrowser) if options.control_minutes > 0 else None
    text = page(seen, options.minutes, *shape, control)
    options.results.write_text(text, encoding="utf-8")
    print(text)
    growing = growth_mb_per_minute(seen.memory, lambda one: one.server) > PLATEAU_MB_PER_MINUTE
    return 1 if seen.errors or seen.slow or growing else 0


if __name__ == "__main__":
    sys.exit(main())
