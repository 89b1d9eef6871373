"""Where a series of runs changed its level, how sure that is, and how sure the place is.

A change needs three runs on each side, a size that matters, and to be rarer in scatter alone than `TAIL_STEP`. It
must also explain the series clearly better than a slow drift does; where it does not, the level moved, but no run
can be named. Up and down again is looked for besides, and each part of a series is looked at again (Vostrikova
1981), with half the probability of a false alarm. A single run that is far from those on both sides is left aside:
it would draw the level, or the place, to itself. The newest one or two runs make no level yet; where they differ
from those before, that is said as such.

The tests work as follows. A candidate is a shape that the level may have: one step, a step up and down again, a slow
drift. Each is a unit vector across the level, so that its product with the series is what the shape explains.
Neighbouring runs resemble each other (the same machine on the same day), so series and shapes are first filtered by
an autoregressive model of first order (Cochrane and Orcutt 1949); its coefficient is taken from what the best shape
leaves, mended for few runs and drawn towards one that is usual, since few runs hardly tell it. The best of many
shapes is judged by the distribution of the best of them: of normal scatter by drawing, which needs neither the level
nor the size of the scatter, and from ten runs on by permutation of the runs too, which holds for any distribution
(Westfall and Young 1993). Where the step lies is told by its posterior probability with flat priors on place, levels
and logarithm of the scatter (Smith 1975).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.comparison.bootstrap import CONFIDENCE, Interval, t_quantile

Float64 = NDArray[np.float64]
Shape = Literal["step", "bump", "tail", "drift"]

# A level of fewer runs than this may be a bad day.
LEAST_RUNS = 3
# From so many runs on a permutation can be rare enough.
_PERMUTED = 10
# The newest runs that may differ though they are no level yet: up to so many.
TAIL = LEAST_RUNS - 1
# Of series longer than this, up and down again is looked for at each second place, or third, and so on.
_FINE = 70
# Drifts: straight, and settling within these parts of the series.
_SETTLING = (1 / 8, 1 / 4, 1 / 2)
_DRAWS, _DRAWS_FEW, _FEW = 4_000, 10_000, 12
_PERMUTATIONS = 2_000
_SEED = 20_260_101
# The autocorrelation that is assumed of unknown runs, how many runs that is worth, and the most.
_USUAL, _USUAL_RUNS, _MOST = 0.3, 8, 0.8
# A run that is farther from both sides than so many standard deviations is none of a level; too few runs tell none.
_FAR, _MANY_FOR_LONE = 6.0, 8
# The median of absolute differences of two normal values, in standard deviations of one.
_MEDIAN_OF_DIFFERENCE = NormalDist().inv_cdf(0.75) * math.sqrt(2)
# What a fitted level takes from the autocorrelation of what it leaves, times the runs.
_TAKEN = 3.0
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
    limit: int = 10,
) -> Levels:
    """The changes of level of a series.

    Args:
        values: of each run, in order of time, shape (runs,).
        least: smaller changes are not looked for.
        floor: variance that a run has for reasons known beforehand, such as its own steps.
        strictness: by what the probabilities of false alarms are divided.
        any_distribution: whether scatter may be far from normal, as of times that are mostly zero: then only
            permutation counts, and few runs show nothing.
        limit: how many changes at most.
    """
    tails = (TAIL_STEP / strictness, TAIL_BUMP / strictness)
    raw = values
    # of times that are mostly zero, those that are not are no exception
    alone = np.zeros(len(raw), np.bool_) if any_distribution else lone_runs(raw, floor)
    values = without_lone_runs(raw, alone)
    cuts, has_moved = _cuts(values, least, floor, tails, any_distribution)
    cuts = _large(values, least, floor, cuts, alone)[:limit]
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


@dataclass(frozen=True)
class Shapes:
    """Candidates of one kind for series of one length, filtered.

    Attributes:
        units: what each explains, unit vectors across the level, shape (k, runs).
        widths: length of each before it was made a unit, shape (k,).
        edges: first run of the step, and the run after its end (the number of runs for a step), shape (k, 2).
    """

    units: Float64
    widths: Float64
    edges: NDArray[np.int64]


@dataclass(frozen=True)
class Fit:
    """The best candidate for a series.

    Attributes:
        shape: its kind.
        edges: its first run and the run after its last.
        height: how far the level moved.
        share: absolute correlation with the series, 0..1.
        phi: autocorrelation that was assumed.
        scatter: standard deviation of the filtered runs around the fit.
        width: ``height`` has the standard deviation ``scatter / width``.
    """

    shape: Shape
    edges: tuple[int, int]
    height: float
    share: float
    phi: float
    scatter: float
    width: float


def filtered(values: Float64, phi: float) -> Float64:
    """Values without what each run takes from the one before; shape (runs,) or (runs, k)."""
    out = np.array(values, np.float64)
    out[1:] -= phi * values[:-1]
    out[0] *= math.sqrt(1 - phi * phi)
    return out


def across_level(values: Float64, phi: float) -> Float64:
    """The filtered values without their common level, shape as given."""
    return _without_level(filtered(values, phi), phi)


def _without_level(series: Float64, phi: float) -> Float64:
    level = filtered(np.ones(len(series)), phi)
    level /= np.linalg.norm(level)
    return np.asarray(series - np.multiply.outer(level, level @ series))


@lru_cache(maxsize=128)  # up to a megabyte each, of one kind in four
def shapes(runs: int, phi: float, shape: Shape) -> Shapes:
    """The candidates of a kind."""
    at = np.arange(runs)
    if shape == "drift":
        curves = [at / (runs - 1), *(1 - np.exp(-at / max(1.0, runs * part)) for part in _SETTLING)]
        columns, edges = np.stack(curves, axis=1), np.tile([[0, runs]], (len(curves), 1))
    else:
        edges = _edges(runs, shape)
        columns = ((at[:, None] >= edges[:, 0]) & (at[:, None] < edges[:, 1])).astype(np.float64)
    across = across_level(columns, phi)
    widths = np.linalg.norm(across, axis=0)
    return Shapes(np.ascontiguousarray((across / widths).T), widths, edges)


def _edges(runs: int, shape: Shape) -> NDArray[np.int64]:
    if shape == "tail":
        pairs = [(runs - count, runs) for count in range(1, TAIL + 1) if runs - count >= LEAST_RUNS]
    elif shape == "step":
        pairs = [(first, runs) for first in range(LEAST_RUNS, runs - LEAST_RUNS + 1)]
    else:
        # of long series not each place: a change that is found is moved to its likeliest place afterwards
        stride = max(1, math.ceil(runs / _FINE))
        firsts = range(LEAST_RUNS, runs - 2 * LEAST_RUNS + 1, stride)
        pairs = [(a, b) for a in firsts for b in range(a + LEAST_RUNS, runs - LEAST_RUNS + 1, stride)]
    return np.array(pairs, np.int64).reshape(-1, 2)


def best_fit(values: Float64, shape: Shape, floor: float = 0.0) -> Fit | None:
    """The candidate that explains most; None without candidates or where all runs are equal.

    Args:
        values: of each run, shape (runs,).
        shape: kind of candidates.
        floor: variance of a run that is known whatever the series shows.
    """
    runs = len(values)
    if runs < LEAST_RUNS + 1 or (shape != "drift" and not len(_edges(runs, shape))):
        return None
    plain, series = shapes(runs, 0.0, shape), across_level(values, 0.0)
    first = int(np.abs(plain.units @ series).argmax())
    if shape == "drift":
        phi = _mended(series - plain.units[first] * (plain.units[first] @ series), 2)
    else:
        phi = autocorrelation(values, [edge for edge in plain.edges[first].tolist() if edge < runs])
    candidates = shapes(runs, phi, shape)
    series = across_level(values, phi)
    length = float(np.linalg.norm(series))
    if length <= 1e-12 * max(1.0, float(np.abs(values).max())):
        return None
    scores = candidates.units @ series
    best = int(np.abs(scores).argmax())
    score = float(scores[best])
    freedom = runs - 2
    variance = max(length**2 - score**2, floor * freedom, 1e-18) / freedom
    t = abs(score) / math.sqrt(variance)
    edges = candidates.edges[best]
    return Fit(
        shape,
        (int(edges[0]), int(edges[1])),
        score / float(candidates.widths[best]),
        t / math.sqrt(freedom + t * t),
        phi,
        math.sqrt(variance),
        float(candidates.widths[best]),
    )


def autocorrelation(values: Float64, cuts: Sequence[int]) -> float:
    """Autocorrelation of runs around levels that change at ``cuts``, in tenths."""
    runs = len(values)
    left = np.array(values, np.float64)
    edges = [0, *cuts, runs]
    for low, high in pairwise(edges):
        left[low:high] -= left[low:high].mean()
    return _mended(left, len(cuts) + 1)


def _mended(left: Float64, fitted: int) -> float:
    """Autocorrelation of what ``fitted`` parameters leave, in tenths."""
    runs, variance = len(left), float(left @ left)
    seen = float(left[1:] @ left[:-1]) / variance if variance > 0 else 0.0
    seen += _TAKEN * fitted * (1 + seen) / runs
    drawn = (runs * seen + _USUAL_RUNS * _USUAL) / (runs + _USUAL_RUNS)
    return min(max(round(drawn * 10), 0) / 10, _MOST)


def lone_runs(values: Float64, floor: float = 0.0) -> NDArray[np.bool_]:
    """Runs that are far from those before and from those after them alike, so that they begin no level; shape (runs,).

    Far is measured by the median difference of neighbours, which a few jumps do not move, or by the variance ``floor``
    that a run has in any case.
    """
    runs = len(values)
    alone = np.zeros(runs, np.bool_)
    if runs < _MANY_FOR_LONE:
        return alone
    usual = float(np.median(np.abs(np.diff(values)))) / _MEDIAN_OF_DIFFERENCE
    usual = max(usual, math.sqrt(floor))
    for at in range(runs):
        sides = (values[max(0, at - LEAST_RUNS) : at], values[at + 1 : at + 1 + LEAST_RUNS])
        gaps = [float(values[at] - np.median(side)) for side in sides if len(side)]
        alone[at] = min(gaps) > _FAR * usual or max(gaps) < -_FAR * usual
    return alone


def without_lone_runs(values: Float64, alone: NDArray[np.bool_]) -> Float64:
    """The values with those of ``alone`` put between their neighbours' medians."""
    out = values.copy()
    for at in np.flatnonzero(alone).tolist():
        near = np.arange(max(0, at - LEAST_RUNS), min(len(values), at + 1 + LEAST_RUNS))
        near = near[~alone[near]]
        sides = [values[near[near < at]], values[near[near > at]]]
        out[at] = np.mean([np.median(side) for side in sides if len(side)]) if len(near) else np.median(values)
    return out


def chance(fit: Fit, runs: int) -> float:
    """How often normal scatter alone makes a best candidate as good, 0..1."""
    drawn = _drawn(runs, fit.phi, fit.shape)
    return (1 + len(drawn) - int(np.searchsorted(drawn, fit.share - 1e-12))) / (len(drawn) + 1)


def quantile(runs: int, phi: float, shape: Shape, tail: float) -> float:
    """The share that the best candidate exceeds in normal scatter with the probability ``tail``."""
    return float(np.quantile(_drawn(runs, phi, shape), 1 - tail))


@lru_cache(maxsize=256)
def _drawn(runs: int, phi: float, shape: Shape) -> Float64:
    """What the best candidate explains of normal scatter, sorted, shape (draws,)."""
    random = np.random.default_rng((_SEED, runs, round(phi * 10), len(shape)))
    draws = _DRAWS_FEW if runs <= _FEW else _DRAWS
    noise = _without_level(random.standard_normal((runs, draws)), phi)
    best = np.abs(shapes(runs, phi, shape).units @ noise).max(axis=0)
    return np.sort(best / np.linalg.norm(noise, axis=0))


def is_permutable(runs: int) -> bool:
    """Whether runs are many enough for `chance_by_permutation`."""
    return runs >= _PERMUTED


def chance_by_permutation(values: Float64, fit: Fit) -> float:
    """How often the runs in any other order have a best candidate as good, 0..1."""
    runs = len(values)
    series = across_level(values, fit.phi)
    random = np.random.default_rng((_SEED, runs))
    orders = random.permuted(np.broadcast_to(series[:, None], (runs, _PERMUTATIONS)), axis=0)
    noise = _without_level(orders, fit.phi)
    length = np.maximum(np.linalg.norm(noise, axis=0), 1e-300)
    candidates = shapes(runs, fit.phi, fit.shape)
    best = np.abs(candidates.units @ noise).max(axis=0) / length
    found = float(np.abs(candidates.units @ series).max() / np.linalg.norm(series))
    return float(1 + np.count_nonzero(best >= found - 1e-9)) / (_PERMUTATIONS + 1)


def drift_advantage(values: Float64, fit: Fit) -> float:
    """By how much the logarithm of the likelihood, doubled, is greater for the steps than for the best slow drift.

    Further steps may be added where they pay for themselves (Schwarz 1978): a staircase is no drift.
    """
    runs = len(values)
    series = across_level(values, fit.phi)
    whole = float(series @ series)
    least = whole * 1e-12
    drift = max(whole - float(((shapes(runs, fit.phi, "drift").units @ series) ** 2).max()), least)
    steps = shapes(runs, fit.phi, "step").units
    if fit.shape == "step":
        basis = [steps[fit.edges[0] - LEAST_RUNS]]
    else:
        basis = _orthogonal([steps[edge - LEAST_RUNS] for edge in fit.edges])
    one = max(whole * (1 - fit.share**2), least)
    best = runs * math.log(drift / one)
    left = series - sum((unit * (unit @ series) for unit in basis), np.zeros(runs))
    while True:
        rest = max(float(left @ left), least)
        best = max(best, runs * math.log(drift / rest) - 2 * (len(basis) - 1) * math.log(runs))
        if len(basis) >= 4:
            return best
        across = steps - sum((np.multiply.outer(steps @ unit, unit) for unit in basis), np.zeros_like(steps))
        lengths = np.linalg.norm(across, axis=1)
        usable = lengths > 1e-6
        if not usable.any():
            return best
        scores = np.where(usable, np.abs(across @ left) / np.where(usable, lengths, 1.0), 0.0)
        unit = across[int(scores.argmax())] / lengths[int(scores.argmax())]
        basis.append(unit)
        left = left - unit * (unit @ left)


def _orthogonal(vectors: Sequence[Float64]) -> list[Float64]:
    basis: list[Float64] = []
    for vector in vectors:
        rest = vector - sum((unit * (unit @ vector) for unit in basis), np.zeros(len(vector)))
        length = float(np.linalg.norm(rest))
        if length > 1e-9:
            basis.append(rest / length)
    return basis


def place_probabilities(values: Float64, phi: float, floor: float = 0.0) -> Float64:
    """Probability that a series with one step has it at run 1, 2, ... runs - 1, shape (runs - 1,); sums to 1."""
    runs = len(values)
    at = np.arange(runs)
    across = across_level((at[:, None] >= at[1:]).astype(np.float64), phi)
    widths = np.linalg.norm(across, axis=0)
    series = across_level(values, phi)
    whole = float(series @ series)
    left = np.maximum(whole - ((across / widths).T @ series) ** 2, max(whole * 1e-12, floor * max(runs - 2, 1)))
    weights = -np.log(widths) - (runs - 2) / 2 * np.log(np.maximum(left, 1e-300))
    chances = np.exp(weights - weights.max())
    return np.asarray(chances / chances.sum())
