"""Where a series of runs changed its level, and how sure the place is.

A series of runs is cut where the squared deviations from the two levels are least (binary segmentation), in the
logarithm, so that a change of ten percent weighs the same at any level. A cut counts if the levels differ by
enough and the interval of their difference excludes zero. How sure the place is, is the share of resamples of the
runs' steps in which the same cut is the best one.

Runs differ by more than their steps tell: another machine, another temperature, other neighbours. That scatter is
taken from the differences of successive runs by their median, which few jumps do not move, together with what is
known beforehand (`_SCATTER`), since few runs tell little of it. The interval is Student's, and as wide as the number
of places among which the cut was chosen demands (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.comparison.bootstrap import CONFIDENCE, Interval, resample, t_quantile

Float64 = NDArray[np.float64]
RESAMPLES = 1_000
# By how much runs of the same work differ where nothing is known of them, and how many runs that knowledge is worth.
_SCATTER = 0.02
_SCATTER_RUNS = 4
_LEAST_DRAWN = 1e-3  # of the run's mean
# The median of absolute values of a normal distribution, in standard deviations.
_MEDIAN_OF_ABSOLUTE = NormalDist().inv_cdf(0.75)


@dataclass(frozen=True)
class ChangePoint:
    """A change of level.

    Attributes:
        index: the first run of the new level.
        change: relative, of the mean after over the mean before.
        confidence: share of resamples that put the change at this run, 0..1.
        runs_before, runs_after: how many runs the two levels rest on.
    """

    index: int
    change: Interval
    confidence: float
    runs_before: int
    runs_after: int


def find_changes(series: Sequence[Float64], least_change: float, most: int = 5) -> tuple[ChangePoint, ...]:
    """The changes of level in order of time.

    Args:
        series: positive values of each run's steps, runs in order of time.
        least_change: relative changes below this are not looked for.
        most: how many changes at most.
    """
    if len(series) < 2:
        return ()
    drawn = np.stack(
        [
            resample(np.asarray(run, np.float64)[:, None], index, RESAMPLES).means[:, 0]
            for index, run in enumerate(series)
        ]
    )
    means = np.array([float(np.mean(run)) for run in series])
    if (means <= 0).any():
        return ()
    # A run of a few long waits can be drawn without any of them; its logarithm must stay a number.
    drawn = np.maximum(drawn, means[:, None] * _LEAST_DRAWN)
    noise = _noise(np.log(means), np.log(drawn))
    found: list[ChangePoint] = []
    stretches = [(0, len(series))]
    while stretches and len(found) < most:
        low, high = stretches.pop(0)
        change = _best(means[low:high], drawn[low:high], noise, least_change)
        if change is not None:
            at = low + change.index
            found.append(ChangePoint(at, change.change, change.confidence, change.runs_before, change.runs_after))
            stretches += [(low, at), (at, high)]
    return tuple(sorted(found, key=lambda change: change.index))


@dataclass(frozen=True)
class _Noise:
    """Variance of a run's mean around its level, relative, and the degrees of freedom it is known with."""

    variance: float
    freedom: float


def _noise(logs: Float64, drawn: Float64) -> _Noise:
    """How much runs of one level differ, of all runs; ``drawn`` has the shape (runs, resamples), in logarithms."""
    steps = np.sort(np.abs(np.diff(logs)))[:-1]  # without the largest: that is the change, if there is one
    freedom, variance = float(_SCATTER_RUNS), _SCATTER**2
    if len(steps):
        # a difference of two runs varies twice as much as a run; the median knows half as much as the mean does
        seen = float(np.median(steps) / _MEDIAN_OF_ABSOLUTE) ** 2 / 2
        weight = len(steps) / 2
        variance = (_SCATTER_RUNS * variance + weight * seen) / (_SCATTER_RUNS + weight)
        freedom += weight
    # never less than what the steps within the runs alone make
    return _Noise(max(variance, float(np.median(drawn.var(axis=1)))), freedom)


def _best(means: Float64, drawn: Float64, noise: _Noise, least_change: float) -> ChangePoint | None:
    """The best cut of a stretch, None where no cut counts; ``drawn`` has the shape (runs, resamples)."""
    runs = len(means)
    if runs < 2:
        return None
    logs = np.log(means)
    cut = int(_cuts(logs[:, None])[0])
    value = float(means[cut:].mean() / means[:cut].mean()) - 1
    moved = float(logs[cut:].mean() - logs[:cut].mean())
    tail = (1 - CONFIDENCE) / 2 / (runs - 1)
    reach = t_quantile(-NormalDist().inv_cdf(tail), noise.freedom)
    reach *= math.sqrt(noise.variance * (1 / cut + 1 / (runs - cut)))
    change = Interval(value, min(math.expm1(moved - reach), value), max(math.expm1(moved + reach), value))
    if abs(value) < least_change or not change.excludes_zero:
        return None
    same = float(np.mean(_cuts(np.log(drawn)) == cut))
    return ChangePoint(cut, change, same, cut, runs - cut)


def _cuts(values: Float64) -> NDArray[np.int64]:
    """The cut with the least squared deviations from two levels; shape (runs, k) gives (k,), each in 1..runs-1."""
    runs = len(values)
    total = np.cumsum(values, axis=0)
    count = np.arange(1, runs)[:, None]
    left = total[:-1]
    right = total[-1] - left
    # the deviations fall by what the levels explain: the sums' squares over the counts
    explained = left**2 / count + right**2 / (runs - count)
    return np.asarray(explained.argmax(axis=0) + 1, np.int64)
