"""Who is late again and again: a split of GPUs into late and early ones that noise cannot fake."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.diagnosis.thresholds import Thresholds

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Split:
    """The late devices (columns of the lateness matrix) against the others.

    Attributes:
        late, early: column numbers.
        excess: lateness of each late device over the median early one, shape (units, late).
        persistence: share of the units in which the late devices were late, the mean over them.
    """

    late: tuple[int, ...]
    early: tuple[int, ...]
    excess: Float64
    persistence: float


def split_late(lateness: Float64, unit_length: float, limits: Thresholds) -> Split | None:
    """Split devices at the largest gap of their median lateness; None when nobody is late for sure.

    Args:
        lateness: picoseconds behind the earliest device, shape (units, devices); a unit is a
            step, or a collective where there are no steps.
        unit_length: length of a typical unit; the threshold is a share of it.
        limits: thresholds.

    A device is late when its median excess over the early ones reaches the threshold, when it
    was late in most units, and when the excess stands out of its own scatter. The median
    needs no model of the noise, and one bad step cannot move it.
    """
    units, devices = lateness.shape
    if units < limits.imbalance_min_units or devices < 2 or unit_length <= 0:
        return None
    typical = np.median(lateness, axis=0)
    order = np.argsort(typical, kind="stable")
    cut = int(np.argmax(np.diff(typical[order]))) + 1
    early, candidates = order[:cut], order[cut:]
    reference = np.median(lateness[:, early], axis=1)
    late: list[int] = []
    persistences: list[float] = []
    for device in candidates:
        excess = lateness[:, device] - reference
        middle = float(np.median(excess))
        persistence = float(np.mean(excess >= limits.imbalance_warning / 2 * unit_length))
        scatter = 1.4826 * float(np.median(np.abs(excess - middle))) / np.sqrt(units)
        if middle < limits.imbalance_warning * unit_length or persistence < limits.imbalance_persistence:
            continue
        if middle < limits.imbalance_min_score * scatter:
            continue
        late.append(int(device))
        persistences.append(persistence)
    if not late:
        return None
    late.sort()
    others = tuple(device for device in range(devices) if device not in late)
    return Split(tuple(late), others, lateness[:, late] - reference[:, None], float(np.mean(persistences)))
