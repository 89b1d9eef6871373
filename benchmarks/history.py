"""How often a history raises a false alarm, and how often it finds a real change: ``python -m benchmarks.history``.

Whole histories are simulated and judged (`simulator/histories.py`). The result goes to ``benchmarks/HISTORY.md``.
Constants of the tests were chosen on the seeds from 0 on; what is reported are those from `REPORTED` on. A few minutes;
more histories make the shares more exact.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import Pool
from multiprocessing.pool import Pool as PoolOfProcesses
from pathlib import Path

import numpy as np

from simulator.histories import ALIKE, HARSHER, NOISES, STEPS, TAILED, WITHIN, Alarms, Found, alarms, power

OUT = Path(__file__).with_name("HISTORY.md")
_COMMAND = "python -m benchmarks.history"
REPORTED = 1_000_000
COUNTS = (2, 4, 6, 8, 10, 12, 16, 25, 40, 60)
SCATTERS = (0.01, 0.03, 0.05, 0.10)
CHANGES = (0.05, 0.10, 0.20, 0.50)
SIDES = ((3, 3), (4, 3), (5, 5), (3, 8), (8, 3), (10, 10), (30, 5), (30, 30))
REAL_SCATTERS = (0.01, 0.02, 0.03)


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulates, prints and writes the tables."""
    parser = argparse.ArgumentParser(prog=_COMMAND, description="Counts false alarms and found changes of histories.")
    parser.add_argument("--histories", type=int, default=100, metavar="N", help="of each kind (default: 100)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default: 2)")
    parser.add_argument("--tuning", action="store_true", help="on the seeds that constants were chosen on; not written")
    options = parser.parse_args(arguments)
    first = 0 if options.tuning else REPORTED
    seeds = range(first, first + options.histories)
    began = time.monotonic()
    with Pool(options.jobs) as pool:
        text = "\n".join(report(seeds, pool)) + "\n"
    print(text)
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    if not options.tuning:
        OUT.write_text(text, encoding="utf-8")
    return 0


def report(seeds: Sequence[int], pool: PoolOfProcesses) -> Iterator[str]:
    """Lines of Markdown."""
    false = [(noise, scatter, count) for noise in (*NOISES, *HARSHER) for scatter in SCATTERS for count in COUNTS]
    said = pool.starmap(partial(_alarms_of, seeds), false, chunksize=4)
    real = [(change, scatter, *sides) for change in CHANGES for scatter in REAL_SCATTERS for sides in SIDES]
    found = pool.starmap(partial(_power_of, seeds, "normal"), real, chunksize=4)
    odd = [(change, 0.02, *sides) for change in CHANGES for sides in SIDES]
    found_odd = {noise: pool.starmap(partial(_power_of, seeds, noise), odd, chunksize=4) for noise in (TAILED, ALIKE)}
    yield from _head(seeds)
    yield from _alarm_table(dict(zip(false, said, strict=True)))
    yield "## Real changes of the step time"
    yield ""
    yield "Found / with the right first session / said to have moved at all, though perhaps without a session."
    yield ""
    yield from _power_rows(dict(zip(real, found, strict=True)))
    for noise, results in found_odd.items():
        yield f"The same with {noise}:"
        yield ""
        yield from _power_rows(dict(zip(odd, results, strict=True)))
    yield "## Is the stated confidence right"
    yield ""
    yield "Of the changes found: how often the stated session was the first one of the new level."
    yield ""
    for noise, results in {"normal": found, **found_odd}.items():
        yield from _places(noise, [place for one in results for place in one.places])


def _alarms_of(seeds: Sequence[int], noise: str, scatter: float, count: int) -> Alarms:
    return alarms(noise, scatter, count, seeds)


def _power_of(seeds: Sequence[int], noise: str, change: float, scatter: float, before: int, after: int) -> Found:
    return power(change, scatter, before, after, seeds, noise)


def _head(seeds: Sequence[int]) -> Iterator[str]:
    yield "# History: false alarms and found changes"
    yield ""
    yield f"Simulated and judged by `{_COMMAND} --histories {len(seeds)}`: so many histories of each kind, each a whole"
    yield f"one with step time, idle time and waiting, of sessions of {STEPS} steps that vary by {WITHIN:.0%} within"
    yield f"a session. Constants were chosen on the seeds from 0 on; these are the seeds from {seeds[0]:,} on."
    yield f"A share of 5 % has a standard error of {math.sqrt(0.05 * 0.95 / len(seeds)):.1%} here."
    yield ""


def _alarm_table(said: dict[tuple[str, float, int], Alarms]) -> Iterator[str]:
    yield "## Histories without a change: how often one is reported, of any metric"
    yield ""
    yield "By the scatter between sessions (standard deviation) and the number of sessions. Behind, over all numbers of"
    yield "sessions: how often a regression of the step time is reported, the step time said to have moved without a"
    yield "session that could be named (which a drift really does), and the newest sessions to differ so far."
    yield ""
    yield "| sessions | scatter | " + " | ".join(map(str, COUNTS)) + " | regression | moved | newest |"
    yield "|---|---|" + "---|" * (len(COUNTS) + 3)
    for noise in (*NOISES, *HARSHER):
        for scatter in SCATTERS:
            row = [said[noise, scatter, count] for count in COUNTS]
            shares = [one.any for one in row]
            for column in ([one.slower for one in row], [one.drift for one in row], [one.newest for one in row]):
                shares.append(float(np.mean(column)))
            yield f"| {noise} | {scatter:.0%} | " + " | ".join(f"{share:.1%}" for share in shares) + " |"
    yield ""
    promised = np.array([one.any for (noise, _, _), one in said.items() if noise in NOISES])
    yield f"Over all {len(promised)} kinds but those of the last noise: {promised.mean():.1%} on average,"
    yield f"{promised.max():.1%} at worst; {np.mean(promised > 0.05):.1%} of the kinds are above 5 %."
    yield ""


def _power_rows(found: dict[tuple[float, float, int, int], Found]) -> Iterator[str]:
    yield "| change | scatter | " + " | ".join(f"{a} + {b} sessions" for a, b in SIDES) + " |"
    yield "|---|---|" + "---|" * len(SIDES)
    for change, scatter in dict.fromkeys((change, scatter) for change, scatter, _, _ in found):
        row = [found[change, scatter, before, after] for before, after in SIDES]
        cells = [f"{one.change:.0%} / {one.exact:.0%} / {one.told:.0%}" for one in row]
        yield f"| +{change:.0%} | {scatter:.0%} | " + " | ".join(cells) + " |"
    yield ""
    yield f"Further changes that there were not: in {np.mean([one.extra for one in found.values()]):.1%} of them."
    yield ""


def _places(noise: str, places: Sequence[tuple[float, bool, bool, bool]]) -> Iterator[str]:
    yield f"| {noise}: stated confidence | changes | stated, mean | right |"
    yield "|---|---|---|---|"
    stated = np.array([place[0] for place in places])
    held = np.array([place[1:] for place in places], np.bool_)
    for low, high in ((0.0, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 0.9), (0.9, 0.99), (0.99, 1.01)):
        rows = (stated >= low) & (stated < high)
        if rows.any():
            right = float(held[rows, 0].mean())
            yield f"| {low:.0%} to {min(high, 1):.0%} | {rows.sum()} | {stated[rows].mean():.1%} | {right:.1%} |"
    yield ""
    yield f"The stated range of sessions held the first one in {held[:, 1].mean():.1%} of the cases (stated: 95 %),"
    yield f"the stated interval the size of the change in {held[:, 2].mean():.1%} (stated: 95 %)."
    yield ""


if __name__ == "__main__":
    sys.exit(main())
