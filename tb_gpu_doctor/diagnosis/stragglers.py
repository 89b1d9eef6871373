"""Who is late again and again: a split of GPUs into late and early ones that noise hardly ever fakes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.diagnosis.chance import binomial_tail, student_tail

if TYPE_CHECKING:
    from tb_gpu_doctor.diagnosis.rules.imbalance import Limits

Float64 = NDArray[np.float64]
# More units make the test no better, only slower.
_MAX_TESTED = 1_000


@dataclass(frozen=True)
class Split:
    """The late devices (columns of the lateness matrix) against the others.

    Attributes:
        late, early: column numbers.
        excess: lateness of each late device over the median early one, shape (units, late).
        persistence: share of the units in which the late devices were late, the mean over them.
        steady: whether they are late in most units, rather than often.
    """

    late: tuple[int, ...]
    early: tuple[int, ...]
    excess: Float64
    persistence: float
    steady: bool = True


def split_late(
    lateness: Float64, unit_length: float, limits: Limits, processes: NDArray[np.int64] | None = None
) -> Split | None:
    """Split devices into late and early ones; None when nobody is late for sure.

    Args:
        lateness: picoseconds behind the earliest device, shape (units, devices); a unit is a
            step, or a collective where there are no steps.
        unit_length: length of a typical unit; the threshold is a share of it.
        limits: thresholds.
        processes: number of the process that drives each device, shape (devices,); None where one drives all.

    Looked for are first devices that are late in most units, then such that are late often,
    by turns perhaps, and together cost as much.
    """
    units, devices = lateness.shape
    if units < limits.min_units or devices < 2 or unit_length <= 0:
        return None
    for steady in (True, False) if units >= limits.often_units else (True,):
        found = _split(lateness, unit_length, limits, steady)
        if processes is not None:
            found = _split_processes(lateness, unit_length, limits, steady, processes, found)
        if found is not None:
            return found
    return None


def _split_processes(
    lateness: Float64,
    unit_length: float,
    limits: Limits,
    steady: bool,
    processes: NDArray[np.int64],
    found: Split | None,
) -> Split | None:
    """The split of whole processes, where that names all that the devices' one does, and more.

    What makes a process late makes all its devices late together: eight of them are no eight coincidences.
    """
    numbers, sizes = np.unique(processes, return_counts=True)
    if len(numbers) < 2 or len(numbers) == len(processes) or sizes.max() == 1:
        return found
    together = np.stack([lateness[:, processes == number].mean(axis=1) for number in numbers], axis=1)
    whole = _split(together, unit_length, limits, steady)
    if whole is None:
        return found
    late = tuple(np.flatnonzero(np.isin(processes, numbers[list(whole.late)])).tolist())
    if found is not None and not set(found.late) <= set(late):
        return found
    early = tuple(device for device in range(len(processes)) if device not in late)
    middle = np.median if steady else np.mean
    reference = middle(lateness[:, list(early)], axis=1)
    excess = lateness[:, list(late)] - reference[:, None]
    # one slow device does not make its neighbours late
    if (middle(excess, axis=0) < limits.warning / 2 * unit_length).any():
        return found
    return Split(late, early, excess, whole.persistence, steady)


def _split(lateness: Float64, unit_length: float, limits: Limits, steady: bool) -> Split | None:
    """Split at the largest gap of the typical lateness: the median, which one bad unit cannot move, or the mean.

    A device is late when its typical excess over the early ones reaches the threshold, or half of it beside
    one that does, when it was late in enough units, and when chance is no explanation: see `_chance`.
    """
    middle = np.median if steady else np.mean
    typical = middle(lateness, axis=0)
    order = np.argsort(typical, kind="stable")
    # Among many that scatter somebody always is earliest: only a minority can be late by turns.
    least = 1 if steady else (len(order) + 1) // 2
    cut = int(np.argmax(np.diff(typical[order])[least - 1 :])) + least
    early, candidates = order[:cut], order[cut:]
    reference = middle(lateness[:, early], axis=1)
    needed = limits.persistence if steady else limits.often
    late: list[int] = []
    persistences: list[float] = []
    most = 0.0
    for device in candidates.tolist():
        excess = lateness[:, device] - reference
        persistence = float(np.mean(excess >= limits.warning / 2 * unit_length))
        if float(middle(excess)) < limits.warning / 2 * unit_length:
            continue
        if persistence < needed:
            continue
        if _chance(lateness, device, excess, len(candidates)) > limits.max_chance:
            continue
        late.append(device)
        persistences.append(persistence)
        most = max(most, float(middle(excess)))
    if most < limits.warning * unit_length:
        return None
    late.sort()
    others = tuple(device for device in range(lateness.shape[1]) if device not in late)
    excess = lateness[:, late] - reference[:, None]
    return Split(tuple(late), others, excess, float(np.mean(persistences)), steady)


def _chance(lateness: Float64, device: int, excess: Float64, late_count: int) -> float:
    """The probability that one of the devices looks as late as this one by chance.

    The smaller of two tests, each counted once per device since any could have stood out.
    By rank: were all devices alike, each would be among the ``late_count`` latest of a unit
    with the same probability. By size: were it not late on average, its mean excess would be
    near 0 on the scale of its scatter. Ranks see through rare outliers but need many units;
    sizes need few where the lateness is steady.
    """
    chosen = np.linspace(0, len(lateness) - 1, min(len(lateness), _MAX_TESTED)).astype(np.int64)
    rows, sample = lateness[chosen], excess[chosen]
    units, devices = rows.shape
    later = np.count_nonzero(rows >= rows[:, [device]], axis=1)  # itself included: ties count against it
    among_latest = int(np.count_nonzero(later <= late_count))
    by_rank = binomial_tail(among_latest, units, late_count / devices)
    scatter = float(np.std(sample, ddof=1)) / math.sqrt(units)
    mean = float(np.mean(sample))
    by_size = student_tail(mean / scatter if scatter > 0 else math.copysign(math.inf, mean), units - 1)
    return float(min(1.0, devices * min(by_rank, by_size)))
