"""How often a history raises a false alarm, and how often it finds a real change: ``python -m benchmarks.history``.

Whole histories are simulated and judged as `gpu-doctor history` judges them: step time, idle time and waiting
together. The result goes to ``benchmarks/HISTORY.md``. Constants of the tests were chosen on the seeds from 0 on; what
is reported are those from `REPORTED` on. A few minutes; more histories make the shares more exact.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pool
from multiprocessing.pool import Pool as PoolOfProcesses
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.step_costs import PART_IDS
from tb_gpu_doctor.comparison.history import History, HistoryEntry, build_history
from tb_gpu_doctor.comparison.summary import RunSummary
from tb_gpu_doctor.traces.columns import PS_PER_MS

Float64 = NDArray[np.float64]
OUT = Path(__file__).with_name("HISTORY.md")
_COMMAND = "python -m benchmarks.history"
REPORTED = 1_000_000
COUNTS = (2, 4, 6, 8, 10, 12, 16, 25, 40, 60)
SCATTERS = (0.01, 0.03, 0.05, 0.10)
CHANGES = (0.05, 0.10, 0.20, 0.50)
SIDES = ((3, 3), (4, 3), (5, 5), (3, 8), (8, 3), (10, 10), (30, 5), (30, 30))
REAL_SCATTERS = (0.01, 0.02, 0.03)
# Steps of a session, how much they vary within it, and parts of the step: idle and waiting.
_STEPS, _WITHIN = 20, 0.02
_IDLE, _WAIT = 0.10, 0.05
_OUTLIER = 0.30
_WAITS, _LONGEST_WAIT = 0.3, 0.15


@dataclass(frozen=True)
class Past:
    """What the sessions of one history were.

    Attributes:
        step: mean step of each relative to a level of 1, waiting apart, shape (sessions,).
        idle: part of the step that is idle, shape (sessions,).
        wait: waiting, in steps of the level 1, shape (sessions,); comes on top.
    """

    step: Float64
    idle: Float64
    wait: Float64


Noise = Callable[[np.random.Generator, int, float], Past]


def _past(logs: Float64, idle: Float64 | None = None, wait: Float64 | None = None) -> Past:
    step = np.exp(logs)
    return Past(step, np.full(len(step), _IDLE) if idle is None else idle, step * _WAIT if wait is None else wait)


def normal(random: np.random.Generator, count: int, scatter: float) -> Past:
    """Sessions that differ by a normal distribution."""
    return _past(scatter * random.standard_normal(count))


def heavy(random: np.random.Generator, count: int, scatter: float) -> Past:
    """Student's distribution with three degrees of freedom, of the same standard deviation."""
    return _past(scatter * random.standard_t(3, count) / math.sqrt(3))


def skewed(random: np.random.Generator, count: int, scatter: float) -> Past:
    """An exponential distribution: never much faster, now and then much slower."""
    return _past(scatter * (random.exponential(size=count) - 1))


def alike(rho: float, random: np.random.Generator, count: int, scatter: float) -> Past:
    """Sessions that resemble the ones before them (first-order autoregressive)."""
    values = np.empty(count)
    values[0] = random.standard_normal()
    for index, push in enumerate(random.standard_normal(count - 1)):
        values[index + 1] = rho * values[index] + math.sqrt(1 - rho * rho) * push
    return _past(scatter * values)


def outlier(random: np.random.Generator, count: int, scatter: float) -> Past:
    """One session, any of them, is slower by 30 %."""
    logs = scatter * random.standard_normal(count)
    logs[random.integers(count)] += math.log1p(_OUTLIER)
    return _past(logs)


def drifting(size: float, settles: bool, random: np.random.Generator, count: int, scatter: float) -> Past:
    """A slow drift over the whole history: straight, or settling with a quarter of it as time constant."""
    at = np.arange(count)
    curve = 1 - np.exp(-at / (count / 4)) if settles else at / max(count - 1, 1)
    return _past(scatter * random.standard_normal(count) + size * curve)


def rare_waits(random: np.random.Generator, count: int, scatter: float) -> Past:
    """Three of ten sessions wait for other GPUs, up to 15 % of the step; the others never."""
    waits = (random.random(count) < _WAITS) * random.random(count) * _LONGEST_WAIT
    return _past(scatter * random.standard_normal(count), wait=waits)


def loose_idle(random: np.random.Generator, count: int, scatter: float) -> Past:
    """Idle time differs much between sessions, with a long tail (lognormal)."""
    idle = np.minimum(_IDLE * np.exp(0.7 * random.standard_normal(count)), 0.8)
    step = np.exp(scatter * random.standard_normal(count)) * (1 - _IDLE) / (1 - idle)
    return _past(np.log(step), idle=idle)


_TAILED = "heavy tails (Student's t, 3)"
_ALIKE = "alike neighbours (0.5)"
NOISES: dict[str, Noise] = {
    "normal": normal,
    _TAILED: heavy,
    "skewed (exponential)": skewed,
    "alike neighbours (0.3)": partial(alike, 0.3),
    _ALIKE: partial(alike, 0.5),
    "one session 30 % slower": outlier,
    "drift to +5 %": partial(drifting, 0.05, False),
    "drift to +10 %": partial(drifting, 0.10, False),
    "warm-up to -5 %": partial(drifting, -0.05, True),
    "warm-up to -10 %": partial(drifting, -0.10, True),
    "heating to +10 %": partial(drifting, 0.10, True),
    "waits in 3 of 10 sessions": rare_waits,
    "loose idle time": loose_idle,
}
# Beyond what the tests promise; shown so that it is known.
HARSHER: dict[str, Noise] = {"alike neighbours (0.7)": partial(alike, 0.7)}


def simulated(past: Past, random: np.random.Generator) -> History:
    """The history of such a past."""
    return build_history([_entry(index, past, random) for index in range(len(past.step))])


def _entry(index: int, past: Past, random: np.random.Generator) -> HistoryEntry:
    steps = past.step[index] * np.exp(_WITHIN * random.standard_normal(_STEPS)) * 100 * PS_PER_MS
    waits = np.full(_STEPS, past.wait[index] * 100 * PS_PER_MS)
    parts = np.zeros((_STEPS, len(PART_IDS)))
    parts[:, PART_IDS.index("input")] = past.idle[index] * steps
    parts[:, PART_IDS.index("compute")] = (1 - past.idle[index]) * steps
    parts[:, PART_IDS.index("communication_wait")] = waits
    wall = steps + waits
    summary = RunSummary(
        label="run",
        format="xplane",
        verdict="ok",
        models=("GPU",),
        hosts=1,
        batch=None,
        step_source="marked",
        step_count=_STEPS,
        median_ps=float(np.median(wall)),
        wall_ps=wall,
        parts_ps=parts,
        window_ps=float(wall.sum()),
        window_parts=parts.sum(axis=0) / float(wall.sum()),
        kernels=(),
        findings=(),
    )
    return HistoryEntry("run", f"s{index:03}", float(index), summary)


def _random(*what: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(what).encode()))


@dataclass(frozen=True)
class Alarms:
    """Shares of histories of one level, 0..1.

    Attributes:
        any: a change of any metric.
        slower: a regression of the step time.
        drift: the step time is said to have moved, without a session.
        newest: the newest one or two sessions are said to differ so far.
    """

    any: float
    slower: float
    drift: float
    newest: float


def alarms(noise: str, scatter: float, count: int, seeds: Sequence[int]) -> Alarms:
    """What is said of histories without any change."""
    make = {**NOISES, **HARSHER}[noise]
    seen = np.zeros(4)
    for seed in seeds:
        random = _random(noise, scatter, count, seed)
        history = simulated(make(random, count, scatter), random)
        seen += (
            bool(history.changes),
            history.first_regression is not None,
            history.drift is not None,
            history.newest is not None,
        )
    return Alarms(*(seen / len(seeds)).tolist())


@dataclass(frozen=True)
class Found:
    """What is said of a real change, over the histories simulated.

    Attributes:
        change: share in which a change of the step was found near it (within two sessions), 0..1.
        exact: share in which the first session is right.
        told: share in which the step time is said to have moved at all: a change, or a drift.
        extra: share with further changes that there were not.
        places: (stated confidence in the session, whether it was right, whether the stated range holds the place,
            whether the stated interval holds the size) of each change found.
    """

    change: float
    exact: float
    told: float
    extra: float
    places: tuple[tuple[float, bool, bool, bool], ...]


def power(change: float, scatter: float, before: int, after: int, seeds: Sequence[int], noise: str = "normal") -> Found:
    """What is said of histories in which the step becomes slower by ``change`` after ``before`` sessions."""
    seen, places = np.zeros(4), []
    for seed in seeds:
        random = _random("change", noise, change, scatter, before, after, seed)
        past = NOISES[noise](random, before + after, scatter)
        factor = np.where(np.arange(before + after) < before, 1.0, 1 + change)
        past = Past(past.step * factor, past.idle, past.wait * factor)
        history = simulated(past, random)
        steps = [one for one in history.changes if one.metric == "step"]
        near = [one for one in steps if abs(one.entry - before) <= 2 and one.is_regression]
        exact = any(one.entry == before for one in near)
        seen += (bool(near), exact, bool(near) or history.drift is not None, len(steps) > 1)
        for one in near[:1]:
            assert one.change is not None
            places.append(
                (
                    one.confidence,
                    one.entry == before,
                    one.earliest <= before <= one.latest,
                    one.change.low <= change <= one.change.high,
                )
            )
    near_share, exact_share, told_share, extra_share = (seen / len(seeds)).tolist()
    return Found(near_share, exact_share, told_share, extra_share, tuple(places))


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
    found_odd = {noise: pool.starmap(partial(_power_of, seeds, noise), odd, chunksize=4) for noise in (_TAILED, _ALIKE)}
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
    yield f"one with step time, idle time and waiting, of sessions of {_STEPS} steps that vary by {_WITHIN:.0%} within"
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
