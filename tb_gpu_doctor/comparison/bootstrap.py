"""How sure a change of the mean step is: confidence intervals by resampling steps.

Steps in a row resemble each other (a slow disk, a hot GPU), so blocks of neighbours are drawn, not single
steps: the circular block bootstrap of Politis and Romano (1992), with the block length of Carlstein (1986) for a
first-order autoregressive series, and at least the cube root of many steps. Blocks of few steps hold too little of
the correlation, so the draws of each column are spread around the mean until they vary as the mean of such a series
does, (1 + rho) / (1 - rho) times as much as that of independent steps; rho itself comes out too small of few steps,
by (1 + 3 rho) / n (Kendall, 1954). Percentiles are widened for few steps as Hesterberg (2015) describes: plain
percentile intervals are too narrow by the factor sqrt((n - 1) / n) and by the normal in place of the t quantile,
which takes n as what it is worth: n (1 - rho) / (1 + rho). What coverage comes of it is measured in
benchmarks/COMPARING.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
RESAMPLES = 4_000
CONFIDENCE = 0.95
# Fewer steps than this cannot show how much steps vary.
LEAST_STEPS = 5
_SEED = 20_260_101
# A series that resembles itself more than this shows its mean in no number of steps that anybody profiles.
_MOST_RHO = 0.9
_LEAST_DRAWN = 1e-3  # of the mean
_MANY_STEPS = 40


@dataclass(frozen=True)
class Interval:
    """A value with the bounds it lies between at `CONFIDENCE`."""

    value: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the sign is certain."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Resampled:
    """Means of one run's columns over many resamples of its steps.

    Attributes:
        mean: of each column, shape (columns,).
        means: shape (resamples, columns).
        draws: how many independent steps the steps amount to, for each column, shape (columns,).
    """

    mean: Float64
    means: Float64
    draws: NDArray[np.int64]


def resample(columns: Float64, seed: int, resamples: int = RESAMPLES) -> Resampled:
    """Draw blocks of steps, the same ones for all columns; each column's means then spread as its own series demands.

    Args:
        columns: shape (steps, columns); the first one decides the length of blocks.
        seed: the same seed gives the same draws.
        resamples: how many.
    """
    steps = len(columns)
    length = block_length(columns[:, 0])
    if steps >= _MANY_STEPS:  # what lasts long shows little in neighbours: where steps allow, blocks hold more of it
        length = max(length, round(steps ** (1 / 3)))
    random = np.random.default_rng((_SEED, seed))
    blocks = -(-steps // length)
    start = random.integers(0, steps, size=(resamples, blocks))
    # sums over blocks that begin at each step, around the end to the beginning
    around = np.concatenate((columns, columns[: length - 1])) if length > 1 else columns
    total = np.concatenate((np.zeros((1, columns.shape[1])), np.cumsum(around, axis=0)))
    of_block = (total[length:] - total[:-length])[:steps] / length
    means = np.empty((resamples, columns.shape[1]))
    for column in range(columns.shape[1]):  # a column at a time: little memory however many parts
        means[:, column] = of_block[:, column][start].mean(axis=1)
    mean = columns.mean(axis=0)
    rho = np.array([correlation(columns[:, column]) for column in range(columns.shape[1])])
    wanted = columns.std(axis=0) / math.sqrt(steps) * np.sqrt((1 + rho) / (1 - rho))
    drawn = means.std(axis=0)
    factor = np.where((drawn > 0) & (drawn < wanted), wanted / np.where(drawn > 0, drawn, 1.0), 1.0)
    draws = np.floor(steps * (1 - rho) / (1 + rho) + 0.5).clip(2 if steps > 1 else 1)
    return Resampled(mean, mean + (means - mean) * factor, draws.astype(np.int64))


def correlation(series: Float64) -> float:
    """Correlation of neighbouring steps, mended for how few they are; 0 where they rather alternate."""
    steps = len(series)
    centred = series - series.mean()
    squares = float((centred**2).sum())
    if steps < LEAST_STEPS or squares <= 0:
        return 0.0
    rho = float((centred[1:] * centred[:-1]).sum()) / squares
    return min(max(rho + (1 + 3 * rho) / steps, 0.0), _MOST_RHO)


def block_length(series: Float64) -> int:
    """Length of the blocks: 1 unless neighbours are correlated beyond chance."""
    steps = len(series)
    centred = series - series.mean()
    variance = float((centred**2).sum())
    if steps < 2 * LEAST_STEPS or variance <= 0:
        return 1
    rho = float((centred[1:] * centred[:-1]).sum()) / variance
    if rho < 2 / math.sqrt(steps):
        return 1
    rho = min(rho, 0.95)
    best = math.pow(2 * rho**2 / (1 - rho**2) ** 2 * steps, 1 / 3)
    return max(1, min(round(best), steps // 3))


def variance_of_mean(series: Float64) -> float:
    """Variance that the mean of a run's steps has by chance, neighbours being alike."""
    rho = correlation(series)
    return float(series.var(ddof=1)) / len(series) * (1 + rho) / (1 - rho) if len(series) > 1 else 0.0


def difference(before: Resampled, after: Resampled, column: int) -> Interval:
    """After minus before of one column."""
    value = float(after.mean[column] - before.mean[column])
    draws = int(min(before.draws[column], after.draws[column]))
    return _interval(value, after.means[:, column] - before.means[:, column], draws)


def relative_difference(before: Resampled, after: Resampled, column: int) -> Interval:
    """After over before, minus one; the column is positive in every step."""
    value = float(after.mean[column] / before.mean[column]) - 1
    # A mean that hardly exceeds its own scatter may be drawn near nothing: then the change may be any.
    old = np.maximum(before.means[:, column], before.mean[column] * _LEAST_DRAWN)
    new = np.maximum(after.means[:, column], 0.0)
    draws = int(min(before.draws[column], after.draws[column]))
    return _interval(value, new / old - 1, draws)


def _interval(value: float, drawn: Float64, draws: int) -> Interval:
    tail = _widened_tail(draws)
    low, high = np.quantile(drawn, (tail, 1 - tail))
    return Interval(value, min(float(low), value), max(float(high), value))


def _widened_tail(draws: int) -> float:
    """The tail to cut on each side so that few draws do not look surer than they are."""
    wanted = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    if draws < 2:
        return 0.0
    return NormalDist().cdf(-math.sqrt(draws / (draws - 1)) * t_quantile(wanted, draws - 1))


def t_quantile(z: float, freedom: float) -> float:
    """Quantile of Student's t from the normal one: Cornish and Fisher's expansion (Abramowitz and Stegun 26.7.5)."""
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + terms[0] / freedom + terms[1] / freedom**2 + terms[2] / freedom**3
