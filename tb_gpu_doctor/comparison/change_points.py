"""Where a series of runs changed its level, and how sure the place is.

A series of runs is cut where the squared deviations from the two levels are least (binary segmentation), in the
logarithm, so that a change of ten percent weighs the same at any level. A cut counts if the levels differ by
enough and the interval of their difference, by resampling runs and the steps within them, excludes zero. How
sure the place is, is the share of resamples in which the same cut is the best one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.comparison.bootstrap import CONFIDENCE, Interval, resample

Float64 = NDArray[np.float64]
RESAMPLES = 1_000
_SEED = 20_260_102


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
    found: list[ChangePoint] = []
    stretches = [(0, len(series))]
    while stretches and len(found) < most:
        low, high = stretches.pop(0)
        change = _best(means[low:high], drawn[low:high], least_change)
        if change is not None:
            at = low + change.index
            found.append(ChangePoint(at, change.change, change.confidence, change.runs_before, change.runs_after))
            stretches += [(low, at), (at, high)]
    return tuple(sorted(found, key=lambda change: change.index))


def _best(means: Float64, drawn: Float64, least_change: float) -> ChangePoint | None:
    """The best cut of a stretch, None where no cut counts; ``drawn`` has the shape (runs, resamples)."""
    if len(means) < 2:
        return None
    cut = int(_cuts(np.log(means)[:, None])[0])
    random = np.random.default_rng((_SEED, len(means), cut))
    before, after = _levels(drawn[:cut], random), _levels(drawn[cut:], random)
    value = float(means[cut:].mean() / means[:cut].mean()) - 1
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(after / before - 1, (tail, 1 - tail))
    change = Interval(value, min(float(low), value), max(float(high), value))
    if abs(value) < least_change or not change.excludes_zero:
        return None
    same = float(np.mean(_cuts(np.log(drawn)) == cut))
    return ChangePoint(cut, change, same, cut, len(means) - cut)


def _levels(drawn: Float64, random: np.random.Generator) -> Float64:
    """Means of a level over resampled runs, each with resampled steps; shape (resamples,)."""
    runs, resamples = drawn.shape
    chosen = random.integers(0, runs, size=(runs, resamples))
    return np.asarray(np.take_along_axis(drawn, chosen, axis=0).mean(axis=0), np.float64)


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
