"""Is a series of runs of one level: the tests behind change points, for few and many runs, and what scatter they allow.

A candidate is a shape that the level may have: one step, a step up and down again, a slow drift. Each is a unit vector
across the level, so that its product with the series is what the shape explains. Neighbouring runs resemble each other
(the same machine on the same day), so series and shapes are first filtered by an autoregressive model of first order
(Cochrane and Orcutt 1949); its coefficient is taken from what the best shape leaves, mended for few runs and drawn
towards one that is usual, since few runs hardly tell it.

The best of many shapes is judged by the distribution of the best of them: of normal scatter by drawing, which needs
neither the level nor the size of the scatter, and from ten runs on by permutation of the runs too, which holds for any
distribution (Westfall and Young 1993). Where the step lies is told by its posterior probability with flat priors on
place, levels and logarithm of the scatter (Smith 1975).
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
