"""Steps that become slower during a recording: from which step on, by how much, and which part of them grew.

The place is where a change of level explains the series best, the chance that of Pettitt's rank test (1979), which
asks nothing of how steps scatter. One step that is far longer than the others moves neither: it is an outlier.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tb_gpu_doctor.analysis.facts import FileFacts
from tb_gpu_doctor.analysis.job import Job
from tb_gpu_doctor.analysis.results import Float64
from tb_gpu_doctor.analysis.slow_steps import PARTS, own_time

_SCALE = 1.4826  # makes the median deviation that of a normal distribution
# Around the best place by rank, places so far away are weighed; steps beyond so many tell nothing more.
_NEAR = 200
# The place lies between the first and the last of the likeliest that make this together.
CONFIDENCE = 0.95
# What fitting two levels takes from the autocorrelation of what they leave, times the steps.
_TAKEN = 3.0
# A GPU is to blame from this part of the largest growth on.
_TO_BLAME = 0.5


class ShiftLimits(Protocol):
    """From when on steps have become slower: the thresholds of `slower_steps`."""

    @property
    def ratio(self) -> float:
        """How many times as long the later steps are, by their medians."""

    @property
    def apart(self) -> float:
        """Of all pairs of an earlier and a later step, how many have the longer one later."""

    @property
    def chance(self) -> float:
        """How often steps that merely scatter may look like it."""

    @property
    def far(self) -> float:
        """From how many scaled median deviations on a rise is no wandering of the level."""

    @property
    def min_side(self) -> int:
        """How many steps there must be before and after."""

    @property
    def min_confidence(self) -> float:
        """How sure inferred steps must be."""


@dataclass(frozen=True)
class Shift:
    """A series that rises to a higher level and stays there.

    Attributes:
        at: index of the first value of the new level.
        earliest, latest: between which that lies at `CONFIDENCE`.
        before, after: medians.
        chance: probability that scatter alone looks like it, an upper bound.
    """

    at: int
    earliest: int
    latest: int
    before: float
    after: float
    chance: float


@dataclass(frozen=True)
class SlowerSteps:
    """The rise in one file.

    Attributes:
        file: where it is.
        shift: in indices of the complete steps, picoseconds.
        share: what the later steps take longer than the earlier ones' median, of the time of all steps.
        devices: GPUs whose own work grew, not those that waited for them.
        parts: growth of the median of each of `PARTS` on the GPU whose own work grew most.
    """

    file: FileFacts
    shift: Shift
    share: float
    devices: tuple[int, ...]
    parts: tuple[float, ...]

    @property
    def grown(self) -> str:
        """The part that grew most."""
        return PARTS[self.parts.index(max(self.parts))]

    @property
    def growth(self) -> float:
        """By how much a step's own parts grew, picoseconds."""
        return sum(self.parts)

    def number(self, step: int) -> int:
        """Recorded number of a step."""
        return self.file.steps.numbers[step]


def ranks_of(values: Float64) -> Float64:
    """Ranks from 1 on; equal values share the mean of theirs."""
    _, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[inverse], np.float64)


def find_shift(values: Float64, limits: ShiftLimits) -> Shift | None:
    """The rise of a series; None where it rises by too little, to no lasting level or by chance.

    Args:
        values: in order of time, shape (n,).
        limits: see `ShiftLimits`.
    """
    n, side = len(values), limits.min_side
    if n < 2 * side:
        return None
    at = np.arange(1, n)
    # how many more pairs have the longer value later than earlier, for each place
    rises = at * (n + 1) - 2 * np.cumsum(ranks_of(values))[:-1]
    best = int(np.argmax(rises)) + 1
    left = np.concatenate([part - np.median(part) for part in (values[:best], values[best:])])
    jump = float(np.median(values[best:]) - np.median(values[:best]))
    exponent = 6 * max(float(rises.max()), 0.0) ** 2 / (n**3 + n**2)
    if jump < limits.far * _SCALE * float(np.median(np.abs(left))):
        # steps that resemble their neighbours tell less than as many that do not; no wandering goes that far at once
        phi = _likeness(left)
        exponent *= (1 - phi) / (1 + phi)
    chance = math.exp(-exponent)
    if chance > limits.chance:
        return None
    places = np.arange(max(side, best - _NEAR), min(n - side, best + _NEAR) + 1)
    if not len(places):
        return None
    apart_by = np.array([_left(values[:k]) + _left(values[k:]) for k in places])
    # scatter of unknown size around two medians, each place as likely beforehand
    weights = -n * np.log(np.maximum(apart_by, 1e-9 * max(float(np.abs(values).sum()), 1.0)))
    chances = np.exp(weights - weights.max())
    chances /= chances.sum()
    likely = np.argsort(-chances, kind="stable")
    likely = likely[: int(np.searchsorted(np.cumsum(chances[likely]), CONFIDENCE)) + 1]
    cut = int(places[int(np.argmax(chances))])
    before, after = float(np.median(values[:cut])), float(np.median(values[cut:]))
    pairs = cut * (n - cut)
    apart = (float(rises[cut - 1]) / pairs + 1) / 2
    if after < limits.ratio * before or apart < limits.apart:
        return None
    return Shift(cut, int(places[likely].min()), int(places[likely].max()), before, after, chance)


def _likeness(left: Float64) -> float:
    """Autocorrelation of neighbours in what two levels leave, 0..0.9; two fitted levels take some of it away."""
    whole = float(left @ left)
    found = float(left[:-1] @ left[1:]) / whole if whole > 0 else -1.0
    return min(max(found + _TAKEN / len(left) if found > 0 else 0.0, 0.0), 0.9)


def _left(values: Float64) -> float:
    return float(np.abs(values - np.median(values)).sum())


def find_slower_steps(files: Sequence[FileFacts], which: int, job: Job, limits: ShiftLimits) -> SlowerSteps | None:
    """The rise in one file; None without any, or where steps are inferred without much confidence."""
    file = files[which]
    steps = file.steps
    if steps.source == "none" or not steps.count or not any(gpu.steps for gpu in file.gpus):
        return None
    if steps.source == "inferred" and (steps.confidence or 0.0) < limits.min_confidence:
        return None
    durations = np.array(steps.durations, np.float64)
    shift = find_shift(durations, limits)
    if shift is None:
        return None
    own, table = own_time(files, which, job)
    cut = shift.at
    growth = np.median(own[cut:], axis=0) - np.median(own[:cut], axis=0)
    if growth.max() <= 0:
        return None
    blamed = int(np.argmax(growth))
    parts = (np.median(table[cut:, blamed], axis=0) - np.median(table[:cut, blamed], axis=0)).clip(0)
    excess = float((durations[cut:] - shift.before).clip(0).sum())
    return SlowerSteps(
        file,
        shift,
        excess / float(durations.sum()),
        tuple(np.flatnonzero(growth >= _TO_BLAME * growth.max()).tolist()),
        tuple(parts.tolist()),
    )
