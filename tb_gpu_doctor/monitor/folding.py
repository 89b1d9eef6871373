"""Folds samples to the points that TensorBoard's Scalars tab shows.

TensorBoard drops points whose step does not grow within a run, and keeps a thousand of a series at most. So a
point is written when the step has grown, carries all samples since the point before, and points become rarer
as a run grows older: one a sample for the first 1,000 samples, then so many that their number grows with
the logarithm of time. Every sample stays in the recording itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.metrics import Metric

# Points are at least this share of the run's length apart.
DENSEST = 1_000


@dataclass(frozen=True)
class Point:
    """One point of all series.

    Attributes:
        values: float64[GPUs, metrics], NaN where no sample had a value.
    """

    step: int
    wall_ns: int
    values: NDArray[np.float64]


class PointClock:
    """Decides when a point is due, and which step it carries.

    Args:
        step_hook: whether training will tell its steps; None: as soon as it does.
    """

    def __init__(self, step_hook: bool | None = None) -> None:
        self._hook = bool(step_hook)
        self._samples = 0
        self._first_ns: int | None = None
        self._last_point_ns = 0
        self._last_point_step = -1
        self._last_step: int | None = None
        self._offset = 0

    def due(self, wall_ns: int, step: int) -> int | None:
        """The step of a point at this sample, None where the sample waits for the next one.

        Args:
            wall_ns: time of the sample.
            step: training step, -1 where training has not told any.
        """
        self._samples += 1
        if self._first_ns is None:
            self._first_ns = wall_ns
        if step >= 0:
            self._hook = True
            if self._last_step is not None and step < self._last_step:
                # Training began anew in the same process: its points follow the last ones.
                self._offset = self._last_point_step + 1 - step
            self._last_step = step
            number = step + self._offset
        elif self._hook:
            return None
        else:
            number = self._samples - 1
        apart_ns = (wall_ns - self._first_ns) / DENSEST
        # Half a sample of slack: ticks are not exactly one interval apart.
        early = self._last_point_step >= 0 and wall_ns - self._last_point_ns < apart_ns * 0.999
        if number <= self._last_point_step or early:
            return None
        self._last_point_step, self._last_point_ns = number, wall_ns
        return number

    def last(self) -> int | None:
        """The step for what is left at the end, None where it may not be told."""
        if self._last_step is not None and self._last_step + self._offset > self._last_point_step:
            return self._last_step + self._offset
        if not self._hook and self._samples - 1 > self._last_point_step:
            return self._samples - 1
        return None

    @property
    def restarted(self) -> bool:
        """Whether training's steps have begun anew."""
        return self._offset != 0


class Folder:
    """Folds the samples of all GPUs, each metric by its rule."""

    def __init__(self, gpus: int, metrics: Sequence[Metric]) -> None:
        self._shape = (gpus, len(metrics))
        self._mean = np.array([metric.fold == "mean" for metric in metrics], dtype=bool)
        self._max = np.array([metric.fold == "max" for metric in metrics], dtype=bool)
        self._min = np.array([metric.fold == "min" for metric in metrics], dtype=bool)
        self._last = np.array([metric.fold == "last" for metric in metrics], dtype=bool)
        self._clear()

    def _clear(self) -> None:
        self._sum = np.zeros(self._shape)
        self._count = np.zeros(self._shape)
        self._kept = np.full(self._shape, np.nan)

    def add(self, values: NDArray[np.float64]) -> None:
        """Take a sample: float64[GPUs, metrics], NaN where there is no value."""
        known = ~np.isnan(values)
        self._count += known
        self._sum += np.where(known & self._mean, values, 0.0)
        kept = self._kept
        # fmax and fmin pass over NaN.
        kept[:, self._max] = np.fmax(kept[:, self._max], values[:, self._max])
        kept[:, self._min] = np.fmin(kept[:, self._min], values[:, self._min])
        kept[:, self._last] = np.where(known[:, self._last], values[:, self._last], kept[:, self._last])

    def take(self) -> NDArray[np.float64]:
        """Return what the samples since the last call fold to, and begin anew."""
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = self._sum / self._count
        folded = np.where(self._mean, mean, self._kept)
        self._clear()
        return folded

    @property
    def empty(self) -> bool:
        """Whether no value came since the last `take`."""
        return not self._count.any()
