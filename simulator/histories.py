"""Whole histories of sessions, simulated, and how often `gpu-doctor history` is right about them.

Step time, idle time and waiting of each session are drawn, and judged together as the command judges them.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.step_costs import PART_IDS
from tb_gpu_doctor.comparison.history import History, HistoryEntry, build_history
from tb_gpu_doctor.comparison.summary import RunSummary
from tb_gpu_doctor.traces.columns import PS_PER_MS

Float64 = NDArray[np.float64]
# Steps of a session, how much they vary within it, and parts of the step: idle and waiting.
STEPS, WITHIN = 20, 0.02
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


TAILED = "heavy tails (Student's t, 3)"
ALIKE = "alike neighbours (0.5)"
NOISES: dict[str, Noise] = {
    "normal": normal,
    TAILED: heavy,
    "skewed (exponential)": skewed,
    "alike neighbours (0.3)": partial(alike, 0.3),
    ALIKE: partial(alike, 0.5),
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
    steps = past.step[index] * np.exp(WITHIN * random.standard_normal(STEPS)) * 100 * PS_PER_MS
    waits = np.full(STEPS, past.wait[index] * 100 * PS_PER_MS)
    parts = np.zeros((STEPS, len(PART_IDS)))
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
        step_count=STEPS,
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
