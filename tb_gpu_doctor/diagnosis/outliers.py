"""Steps that took far longer than the others, and which part of them grew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tb_gpu_doctor.analysis.results import CAUSE_IDS, Float64, StepCosts
from tb_gpu_doctor.diagnosis.context import HostProfile
from tb_gpu_doctor.traces.columns import Int64

if TYPE_CHECKING:
    from tb_gpu_doctor.diagnosis.rules.step_outliers import Limits

# The parts of a step that can grow: computing, moving data (collectives and copies), idle by cause.
PARTS: tuple[str, ...] = ("compute", "communication", *CAUSE_IDS)
_SCALE = 1.4826  # makes the median deviation that of a normal distribution
# A GPU is to blame from this part of the largest growth on.
_TO_BLAME = 0.5


@dataclass(frozen=True)
class Outliers:
    """The outlying steps of one host.

    Attributes:
        profile: the host.
        rows: outlying steps, indices into the complete steps.
        durations: wall time of all complete steps in picoseconds.
        median: of the durations.
        devices: GPUs whose own work grew, not those that waited for them.
        parts: growth of each of `PARTS` on the GPU to blame, summed over the outlying steps.
    """

    profile: HostProfile
    rows: Int64
    durations: Int64
    median: float
    devices: tuple[int, ...]
    parts: Float64

    @property
    def excess(self) -> Int64:
        """What each outlying step took longer than the median one."""
        return np.asarray(self.durations[self.rows] - self.median, dtype=np.int64)

    @property
    def grown(self) -> str:
        """The part that grew most."""
        return PARTS[int(np.argmax(self.parts))]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Recorded numbers of the outlying steps."""
        steps = self.profile.analysis.steps
        return tuple(steps.number[np.flatnonzero(steps.complete)[self.rows]].tolist())


def outlying(durations: Int64, limits: Limits) -> Int64:
    """Indices of the steps far above the median, by the median deviation; none where there are too few steps."""
    if len(durations) < limits.min_steps:
        return np.zeros(0, np.int64)
    median = float(np.median(durations))
    deviation = _SCALE * float(np.median(np.abs(durations - median)))
    border = max(median + limits.deviations * deviation, limits.ratio * median)
    return np.asarray(np.flatnonzero(durations > border), dtype=np.int64)


def find_outliers(profile: HostProfile, limits: Limits) -> Outliers | None:
    """The outlying steps of one host; None without any, or where steps are inferred without much confidence."""
    steps, costs = profile.analysis.steps, profile.analysis.step_costs
    if steps.source == "none" or costs is None or not costs.wall.size:
        return None
    if steps.source == "inferred" and (steps.confidence or 0.0) < limits.min_confidence:
        return None
    durations = steps.durations()
    rows = outlying(durations, limits)
    if not len(rows):
        return None
    own = costs.wall - costs.wait
    growth = (own[rows] - np.median(own, axis=0)).astype(np.float64)  # (outliers, devices)
    by_device = growth.clip(0).sum(axis=0)
    blamed = np.argmax(growth, axis=1)
    table = _parts(profile, costs)
    usual = np.median(table, axis=0)  # (devices, parts)
    parts = (table[rows, blamed] - usual[blamed]).clip(0).sum(axis=0)
    devices = np.flatnonzero(by_device >= _TO_BLAME * by_device.max())
    return Outliers(profile, rows, durations, float(np.median(durations)), tuple(devices.tolist()), parts)


def _parts(profile: HostProfile, costs: StepCosts) -> Float64:
    """Time of each part in each complete step on each GPU, waits inside collectives left out."""
    steps, devices = costs.wall.shape
    table = np.zeros((steps, devices, len(PARTS)))
    table[:, :, 2:] = costs.idle
    for summary in profile.analysis.summaries:
        if len(summary.compute_per_step) == steps:
            table[:, summary.device, 0] = summary.compute_per_step
    rest = costs.wall - costs.wait - costs.idle.sum(axis=2) - table[:, :, 0]
    table[:, :, 1] = rest.clip(0)
    return table
