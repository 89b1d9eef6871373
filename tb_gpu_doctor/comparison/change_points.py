"""Where a series of runs changed its level, how sure that is, and how sure the place is.

A change needs three runs on each side, a size that matters, and to be rarer in scatter alone than `TAIL_STEP`
(`level_tests` says how that is told). It must also explain the series clearly better than a slow drift does; where it
does not, the level moved, but no run can be named. Up and down again is looked for besides, and each part of a series
is looked at again (Vostrikova 1981), with half the probability of a false alarm.

A single run that is far from those on both sides is left aside: it would draw the level, or the place, to itself. The
newest one or two runs make no level yet; where they differ from those before, that is said as such.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.comparison.bootstrap import CONFIDENCE, Interval, t_quantile
from tb_gpu_doctor.comparison.level_tests import (
    LEAST_RUNS,
    Fit,
    Float64,
    Shape,
    autocorrelation,
    best_fit,
    chance,
    chance_by_permutation,
    drift_advantage,
    is_permutable,
    lone_runs,
    place_probabilities,
    quantile,
    shapes,
    without_lone_runs,
)

# Fewer runs cannot show a change: as many as a level needs, before and after.
LEAST_SERIES = 2 * LEAST_RUNS
# How often scatter alone may look like a step, like up and down again, like a drift, and the newest runs unlike others.
TAIL_STEP, TAIL_BUMP, TAIL_DRIFT, TAIL_NEWEST = 0.03, 0.01, 0.01, 0.01
# Doubled logarithm of how much likelier a step must be than a drift; few runs cannot show as much.
_OVER_DRIFT = 8.0
_POWER = NormalDist().inv_cdf(0.9)


@dataclass(frozen=True)
class ChangePoint:
    """A change of level, in the units of the series.

    Attributes:
        index: the first run of the new level.
        height: level after minus level before, with its interval given the place.
        confidence: probability that the new level begins at this very run, 0..1.
        earliest, latest: runs between which it begins at `CONFIDENCE`.
        runs_before, runs_after: how many runs the two levels rest on.
    """

    index: int
    height: Interval
    confidence: float
    earliest: int
    latest: int
    runs_before: int
    runs_after: int


@dataclass(frozen=True)
class Newest:
    """The newest runs, too few for a level, differ from those before.

    Attributes:
        index: the first of them.
        first_before: the first of the runs they are held against.
        height: by how much they differ.
    """

    index: int
    first_before: int
    height: Interval


@dataclass(frozen=True)
class Levels:
    """What a series shows.

    Attributes:
        changes: in order of time.
        drift: by how much the level moved where no run can be named for it, None where it did not.
        newest: see `Newest`; None where they are like the others.
        noticeable: the least change amid the series that would have been found most times; None with too
            few runs, or where the level moved.
        lone: runs that are far from those before and after them: left aside.
    """

    changes: tuple[ChangePoint, ...] = ()
    drift: float | None = None
    newest: Newest | None = None
    noticeable: float | None = None
    lone: tuple[int, ...] = ()


def find_levels(
    values: Float64,
    least: float,
    floor: float = 0.0,
    strictness: float = 1.0,
    any_distribution: bool = False,
    most: int = 10,
) -> Levels:
    """The changes of level of a series.

    Args:
        values: of each run, in order of time, shape (runs,).
        least: smaller changes are not looked for.
        floor: variance that a run has for reasons known beforehand, such as its own steps.
        strictness: by what the probabilities of false alarms are divided.
        any_distribution: whether scatter may be far from normal, as of times that are mostly zero: then only
            permutation counts, and few runs show nothing.
        most: how many changes at most.
    """
    tails = (TAIL_STEP / strictness, TAIL_BUMP / strictness)
    raw = values
    # of times that are mostly zero, those that are not are no exception
    alone = np.zeros(len(raw), np.bool_) if any_distribution else lone_runs(raw, floor)
    values = without_lone_runs(raw, alone)
    cuts, has_moved = _cuts(values, least, floor, tails, any_distribution)
    cuts = _large(values, least, floor, cuts, alone)[:most]
    changes = [_change(values, floor, cuts, index) for index in range(len(cuts))]
    judged = _with_newest(raw, values, alone)
    drift = None
    if has_moved and not cuts:
        third = max(len(values) // 3, 1)
        drift = float(values[-third:].mean() - values[:third].mean())
    return Levels(
        tuple(changes),
        drift,
        _newest(judged, cuts[-1] if cuts else 0, least, floor, TAIL_NEWEST / strictness),
        _noticeable(values, least, floor, tails[0]) if not cuts and drift is None else None,
        tuple(np.flatnonzero(alone).tolist()),
    )


def _cuts(
    values: Float64, least: float, floor: float, tails: tuple[float, float], any_distribution: bool
) -> tuple[list[int], bool]:
    """First runs of new levels; without any, whether the level moved all the same."""
    runs = len(values)
    if runs < LEAST_SERIES or (any_distribution and not is_permutable(runs)):
        return [], False
    kinds: tuple[tuple[Shape, float], ...] = (("step", tails[0]), ("bump", tails[1]))
    for shape, tail in kinds:
        fit = best_fit(values, shape, floor)
        if fit is None or abs(fit.height) < least or not _is_real(values, fit, tail):
            continue
        if drift_advantage(values, fit) < min(_OVER_DRIFT, runs - 1):
            return [], True
        found = [edge for edge in fit.edges if edge < runs]
        if shape == "bump":
            # of long series not each place was tried, and parts with runs of another level would be cut once more
            found = _settled(values, floor, found, np.zeros(runs, np.bool_))
        edges = [0, *found, runs]
        halved = (tails[0] / 2, tails[1] / 2)
        for low, high in pairwise(edges):
            inner, _ = _cuts(values[low:high], least, floor, halved, any_distribution)
            found += [low + cut for cut in inner]
        return sorted(found), False
    drift = best_fit(values, "drift", floor)
    # one that outgrows the scatter makes what steps leave look alike, so that none of them is found
    return [], drift is not None and abs(drift.height) >= least and _is_real(values, drift, TAIL_DRIFT)


def _is_real(values: Float64, fit: Fit, tail: float) -> bool:
    if chance(fit, len(values)) > tail:
        return False
    return not is_permutable(len(values)) or chance_by_permutation(values, fit) <= tail


def _with_newest(raw: Float64, values: Float64, alone: NDArray[np.bool_]) -> Float64:
    """The values that the newest are judged by: only older runs are left aside, unless the very newest one is as ever.

    One that differs by itself would otherwise make two newest ones of itself and the usual one after it.
    """
    judged = np.concatenate((values[:-1], raw[-1:]))
    if len(raw) > 1 and alone[-1] and (raw[-1] - values[-2]) * (raw[-2] - values[-2]) > 0:
        judged[-2] = raw[-2]
    return judged


def _settled(values: Float64, floor: float, cuts: list[int], alone: NDArray[np.bool_]) -> list[int]:
    """The cuts moved to where each is likeliest between its neighbours; none begins with a run that is left aside."""
    cuts = list(cuts)
    for index in range(len(cuts)):
        low, high = _between(cuts, index, len(values))
        chances = _places(values[low:high], cuts[index] - low, floor)
        allowed = chances[LEAST_RUNS - 1 : len(chances) - LEAST_RUNS + 1]
        first = low + LEAST_RUNS
        allowed = np.where(alone[first : first + len(allowed)], -1.0, allowed)
        if len(allowed) and allowed.max() >= 0:
            cuts[index] = first + int(allowed.argmax())
    return cuts


def _large(values: Float64, least: float, floor: float, cuts: list[int], alone: NDArray[np.bool_]) -> list[int]:
    """The settled cuts without those that change too little, smallest first: what else was found may leave some."""
    while cuts:
        cuts = _settled(values, floor, cuts, alone)
        levels = [float(values[low:high].mean()) for low, high in pairwise([0, *cuts, len(values)])]
        heights = [abs(after - before) for before, after in pairwise(levels)]
        if min(heights) >= least:
            break
        cuts.pop(heights.index(min(heights)))
    return cuts


def _between(cuts: list[int], index: int, runs: int) -> tuple[int, int]:
    return (cuts[index - 1] if index else 0), (cuts[index + 1] if index + 1 < len(cuts) else runs)


def _places(part: Float64, cut: int, floor: float) -> Float64:
    return place_probabilities(part, autocorrelation(part, [cut]), floor)


def _change(values: Float64, floor: float, cuts: list[int], index: int) -> ChangePoint:
    low, high = _between(cuts, index, len(values))
    part, cut = values[low:high], cuts[index] - low
    chances = _places(part, cut, floor)
    order = np.argsort(-chances, kind="stable")
    likely = order[: int(np.searchsorted(np.cumsum(chances[order]), CONFIDENCE)) + 1] + 1
    return ChangePoint(
        low + cut,
        step_height(part, cut, floor),
        float(chances[cut - 1]),
        low + min(int(likely.min()), cut),
        low + max(int(likely.max()), cut),
        cut,
        len(part) - cut,
    )


def step_height(values: Float64, cut: int, floor: float = 0.0, confidence: float = CONFIDENCE) -> Interval:
    """Mean from the run ``cut`` on minus mean before it, with the interval for a place that is known."""
    runs = len(values)
    phi = autocorrelation(values, [cut])
    value = float(values[cut:].mean() - values[:cut].mean())
    weights = np.where(np.arange(runs) < cut, -1 / cut, 1 / (runs - cut))
    apart = np.abs(np.subtract.outer(np.arange(runs), np.arange(runs)))
    # variance of the difference where a run's is 1, and what the runs' squares around the two levels then sum to
    likeness = phi**apart
    spread = float(weights @ likeness @ weights)
    within = [likeness[part, part] for part in (slice(0, cut), slice(cut, runs))]
    expected = sum(len(block) - float(block.sum()) / len(block) for block in within)
    left = sum(float(((part - part.mean()) ** 2).sum()) for part in (values[:cut], values[cut:]))
    variance = max(left / expected, floor) if expected > 0 else floor
    reach = t_quantile(NormalDist().inv_cdf(0.5 + confidence / 2), max(runs - 2, 1)) * math.sqrt(variance * spread)
    return Interval(value, value - reach, value + reach)


def _newest(values: Float64, first: int, least: float, floor: float, tail: float) -> Newest | None:
    level = values[first:]
    fit = best_fit(level, "tail", floor)
    if fit is None or abs(fit.height) < least or chance(fit, len(level)) > tail:
        return None
    return Newest(first + fit.edges[0], first, step_height(level, fit.edges[0], floor))


def _noticeable(values: Float64, least: float, floor: float, tail: float) -> float | None:
    runs = len(values)
    if runs < LEAST_SERIES:
        return None
    middle = runs // 2
    phi = autocorrelation(values, [])
    candidates = shapes(runs, phi, "step")
    width = float(candidates.widths[middle - LEAST_RUNS])
    fit = best_fit(values, "step", floor)
    scatter = math.sqrt(floor) if fit is None else fit.scatter
    # to be found it must be rare in scatter, and differ from a straight drift, which explains three quarters of a step
    over = math.exp(min(_OVER_DRIFT, runs - 1) / runs)
    share = max(quantile(runs, phi, "step", tail), math.sqrt((over - 1) / (over - 0.75)))
    t = math.sqrt((runs - 2) / (1 - share**2)) * share
    return max(t * scatter / width, least) + _POWER * scatter / width
