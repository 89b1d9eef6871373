"""Decoder and diagnosis against the stock Profiler, on files written for the purpose.

    python -m benchmarks.run                 1 M device + 1 M host events
    python -m benchmarks.run --large         also 5 M + 5 M events
    python -m benchmarks.run --huge          also a file past 2 GiB
    python -m benchmarks.run --no-job        without the job of 64 ranks

Each measurement is a process of its own; the cases take turns, so that a busy machine slows all of
them alike; a table shows medians and ratios within one run. Tables go to the terminal and into their
sections of benchmarks/RESULTS.md. The big files lie in a temporary folder and are removed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import version
from pathlib import Path

from benchmarks.cases import Measurement
from simulator.large_xplane import Shape, generate

RESULTS = Path(__file__).parent / "RESULTS.md"
REFERENCE = "kernel_stats"
LABELS = {
    "read_only": "read the file, nothing more",
    "decode_compiled": "decode to columns, compiled",
    "decode_numpy": "decode to columns, numpy twin",
    "read_trace": "decode to a trace (classified, sorted)",
    "diagnose": "whole diagnosis",
    "kernel_stats": "xprof `kernel_stats`",
}


@dataclass(frozen=True)
class Goal:
    """A bound on one number of a case, relative to the stock Profiler's ``kernel_stats``."""

    case: str
    quantity: str  # a field of Measurement
    bound: float


GOALS = (
    Goal("decode_compiled", "seconds", 0.10),
    Goal("decode_numpy", "seconds", 1.5),
    Goal("diagnose", "seconds", 0.40),
    Goal("diagnose", "peak_bytes", 0.5),
)


@dataclass(frozen=True)
class Suite:
    """One file and what is measured on it."""

    title: str
    device_events: int
    host_events: int
    rounds: int
    cases: tuple[str, ...]
    goals: tuple[Goal, ...] = ()
    timeout_s: float = 1800.0


@dataclass
class Runs:
    """The measurements of one case, or why there are none."""

    measured: list[Measurement] = field(default_factory=list)
    failure: str = ""

    def median(self, quantity: str) -> float | None:
        """The median of one quantity over the rounds."""
        values = [float(getattr(run, quantity)) for run in self.measured]
        return statistics.median(values) if values else None


def run_case(case: str, source: Path, timeout_s: float) -> Measurement | str:
    """One measurement in a fresh process, or what it said when it failed."""
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        # The stock Profiler leaves caches beside the file: a second run would only read those.
        link = Path(folder) / "host.xplane.pb"
        os.link(source, link)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.cases", case, str(link)],
                cwd=Path(__file__).parent.parent,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"longer than {timeout_s:.0f} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return f"exit {done.returncode}: {lines[-1][:120] if lines else ''}"
    return Measurement(**json.loads(done.stdout.splitlines()[-1]))


def measure(suite: Suite, path: Path) -> dict[str, Runs]:
    """All rounds of a suite; the cases take turns."""
    runs = {case: Runs() for case in suite.cases}
    for number in range(suite.rounds):
        for case in suite.cases:
            if runs[case].failure:
                continue
            print(f"  round {number + 1}/{suite.rounds}: {LABELS[case]} ...", end="", flush=True, file=sys.stderr)
            outcome = run_case(case, path, suite.timeout_s)
            if isinstance(outcome, str):
                runs[case].failure = outcome
                print(f" failed: {outcome}", file=sys.stderr)
            else:
                runs[case].measured.append(outcome)
                print(f" {outcome.seconds:.2f} s", file=sys.stderr)
    return runs


def ratio(runs: dict[str, Runs], case: str, quantity: str) -> float | None:
    """Median of a case over the median of the reference."""
    mine = runs[case].median(quantity)
    theirs = runs[REFERENCE].median(quantity) if REFERENCE in runs else None
    return mine / theirs if mine is not None and theirs else None


def table(suite: Suite, runs: dict[str, Runs], size_bytes: int) -> str:
    """A suite's results as Markdown."""
    against = REFERENCE in runs and bool(runs[REFERENCE].measured)
    header = ["", "seconds", "CPU seconds", "peak MB", "result"]
    if against:
        header = ["", "seconds", "ratio", "CPU seconds", "ratio", "peak MB", "ratio", "result"]
    rows = [header, ["---"] + ["---:"] * (len(header) - 2) + ["---"]]
    for case, found in runs.items():
        if not found.measured:
            rows.append([LABELS[case], *["–"] * (len(header) - 2), f"failed: {found.failure}"])
            continue
        cells = [LABELS[case]]
        for quantity, unit, digits in (("seconds", 1.0, 2), ("cpu_seconds", 1.0, 2), ("peak_bytes", 1e6, 0)):
            value = found.median(quantity)
            assert value is not None
            cells.append(f"{value / unit:.{digits}f}")
            if against:
                share = ratio(runs, case, quantity)
                cells.append("–" if share is None else f"{share:.2f}")
        rows.append([*cells, found.measured[-1].note])
    lines = [
        f"{suite.device_events:,} device and {suite.host_events:,} host events, {size_bytes / 1e6:,.0f} MB; "
        f"medians of {suite.rounds} fresh process{'es' if suite.rounds > 1 else ''} each.",
        "",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    if suite.goals:
        lines += ["", "Goals, relative to `kernel_stats`:", ""]
        for goal in suite.goals:
            share = ratio(runs, goal.case, goal.quantity)
            verdict = "not measured" if share is None else f"{share:.3f}: {'met' if share <= goal.bound else 'MISSED'}"
            what = "peak memory" if goal.quantity == "peak_bytes" else "time"
            lines.append(f"- {LABELS[goal.case]}, {what} <= {goal.bound}: {verdict}")
    return "\n".join(lines)


def machine() -> str:
    """What was measured on, in one line."""
    model = platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        model = found.group(1) if found else model
    tools = ", ".join(f"{name} {version(name)}" for name in ("numpy", "xprof"))
    load = f"load {os.getloadavg()[0]:.1f} before the run" if hasattr(os, "getloadavg") else ""
    return f"{date.today()}, {os.cpu_count()} cores ({model}), Python {platform.python_version()}, {tools}, {load}"


def put_section(title: str, body: str, path: Path = RESULTS) -> None:
    """Writes one section of the results; the others stay."""
    text = path.read_text(encoding="utf-8") if path.exists() else "# Benchmarks\n"
    parts = re.split(r"(?m)^(?=## )", text)
    section = f"## {title}\n\n{body.strip()}\n\n"
    at = next((i for i, part in enumerate(parts) if part.startswith(f"## {title}\n")), None)
    if at is None:
        parts.append(section)
    else:
        parts[at] = section
    path.write_text("\n\n".join(part.strip() for part in parts) + "\n", encoding="utf-8")


HOW = """Repeat with `make bench`, or

    python -m benchmarks.run --rounds 5       # 1 M device + 1 M host events
    python -m benchmarks.run --large --huge   # also 5 M + 5 M, and a file past 2 GiB (9 GB of memory, 3 GB of disk)

The files are written by `simulator/large_xplane.py` (8 GPUs of 5 streams, 8-10 stats an event). Each number is the
median over fresh processes, imports not counted, file in the page cache; the cases take turns. Machines differ
and are seldom idle: compare the ratios. CPU seconds count all threads. Peak is the largest resident size of the
whole process, interpreter and libraries included."""


def suites(arguments: argparse.Namespace) -> list[Suite]:
    """What the command line asks for."""
    small = ("read_only", "decode_compiled", "decode_numpy", "read_trace", "diagnose", "kernel_stats")
    chosen = [
        Suite("1 M + 1 M events", arguments.events, arguments.events, arguments.rounds, small, GOALS),
    ]
    if arguments.large:
        cases = ("read_only", "decode_compiled", "read_trace", "diagnose", "kernel_stats")
        chosen.append(Suite("5 M + 5 M events", 5_000_000, 5_000_000, 1, cases))
    if arguments.huge:
        # Past protobuf's limit the stock Profiler fails, after it took some 15 GB: not tried.
        cases = ("read_only", "decode_compiled", "read_trace", "diagnose")
        chosen.append(Suite("A file past 2 GiB", 17_000_000, 17_000_000, 1, cases))
    return chosen


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the suites; 1 when a goal is missed."""
    from benchmarks import job  # which imports this module

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes per case (default 3)")
    parser.add_argument("--events", type=int, default=1_000_000, help="device events, and as many host events")
    parser.add_argument("--large", action="store_true", help="also 5 M + 5 M events, one round")
    parser.add_argument("--huge", action="store_true", help="also a file past 2 GiB, one round")
    parser.add_argument("--no-job", action="store_true", help="without the job of many ranks (benchmarks.job)")
    parser.add_argument("--only", metavar="TITLE", help="only suites whose title holds this text")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the tables go")
    arguments = parser.parse_args(argv)
    put_section("How to repeat", HOW, arguments.results)
    missed = False
    for suite in suites(arguments):
        if arguments.only and arguments.only not in suite.title:
            continue
        where = machine()
        print(f"\n{suite.title} ({where})", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="gpu-doctor-bench-") as folder:
            path = Path(folder) / "source.xplane.pb"
            generate(path, Shape(suite.device_events, suite.host_events))
            size = path.stat().st_size
            runs = measure(suite, path)
        body = table(suite, runs, size)
        put_section(suite.title, f"{body}\n\n{where}", arguments.results)
        print(f"\n## {suite.title}\n\n{body}\n")
        missed |= any((ratio(runs, goal.case, goal.quantity) or 0.0) > goal.bound for goal in suite.goals)
    if not arguments.no_job and (not arguments.only or arguments.only in job.TITLE):
        job.main(["--results", str(arguments.results)])
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
