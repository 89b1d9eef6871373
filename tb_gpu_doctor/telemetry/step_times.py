"""Training steps as the process timed them: with and without a profile being taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.telemetry.samples import Bool
from tb_gpu_doctor.telemetry.series import Recording, Span, StepTimes

# A first step compiles, the next ones fill caches and queues.
_WARM_UP_STEPS = 3
# Unprofiled steps this close to a profile, before and after it, are like the profiled ones but for the profiler.
_NEAR_STEPS = 200


@dataclass(frozen=True)
class Overhead:
    """What taking a profile did to the steps.

    Attributes:
        ratio: median of profiled over median of unprofiled steps.
        profiled_ns, unprofiled_ns: the medians.
        profiled, unprofiled: how many steps they rest on.
    """

    ratio: float
    profiled_ns: float
    unprofiled_ns: float
    profiled: int
    unprofiled: int


def overhead(
    recording: Recording, least_profiled: int, least_unprofiled: int, window_ns: tuple[int, int] | None = None
) -> Overhead | None:
    """Profiled against unprofiled steps; None where there are too few of either.

    Args:
        recording: one process.
        least_profiled: how many profiled steps there must be.
        least_unprofiled: how many others.
        window_ns: only the profile taken within this wall time; by default all of them.
    """
    steps = recording.steps
    usable = ordinary(steps, recording.spans)
    profiled = usable & steps.profiled
    if window_ns is not None:
        profiled &= (steps.end_ns >= window_ns[0]) & (steps.end_ns - steps.duration_ns <= window_ns[1])
    rows = np.flatnonzero(profiled)
    # The step that starts the profiler and the one that stops it hold that work as well.
    rows = rows[1:-1] if len(rows) > 2 else rows[:0]
    if len(rows) < least_profiled:
        return None
    near = np.zeros(len(steps.number), np.bool_)
    near[max(0, int(rows[0]) - _NEAR_STEPS) : int(rows[-1]) + _NEAR_STEPS + 1] = True
    others = np.flatnonzero(usable & ~steps.profiled & near)
    if len(others) < least_unprofiled:
        return None
    with_it, without = float(np.median(steps.duration_ns[rows])), float(np.median(steps.duration_ns[others]))
    if without <= 0:
        return None
    return Overhead(with_it / without, with_it, without, len(rows), len(others))


def ordinary(steps: StepTimes, spans: Sequence[Span]) -> Bool:
    """bool[n]: steps that neither warm up nor hold a save or a validation."""
    usable = steps.duration_ns > 0
    usable[:_WARM_UP_STEPS] = False
    start = steps.end_ns - steps.duration_ns
    for span in spans:
        if span.kind in ("checkpoint", "validation"):
            usable &= (steps.end_ns <= span.start_ns) | (start >= span.end_ns)
    return usable


def global_batch(steps: StepTimes) -> int | None:
    """Samples of the usual step, None where unknown."""
    known = steps.samples[steps.samples > 0]
    return int(np.median(known)) if len(known) else None
