"""What is added to the times of each file, so that all lanes of a session are on one clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.clocks import Clocks
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis

# Without steps: what part of the window an error may be that still makes a useful picture.
_OF_WINDOW = 0.1
# Times in JSON stay below 2^53; two clocks further apart than this (75 minutes) stay as they are.
_FARTHEST = 1 << 52


@dataclass(frozen=True)
class ClockShift:
    """Of one file.

    Attributes:
        offset: added to its times, picoseconds.
        error: how wrong that can be, picoseconds; None where the file stays on its own clock.
    """

    offset: int = 0
    error: int | None = 0


def clock_shifts(clocks: Clocks | None, analyses: Sequence[TraceAnalysis]) -> tuple[ClockShift, ...]:
    """Where an offset is better than none: bounded, and by less than a step, or a tenth of the window.

    Args:
        clocks: of the files; None where nothing is known.
        analyses: of the files, in the same order.
    """
    if len(analyses) < 2:
        return tuple(ClockShift() for _ in analyses)
    if clocks is None:
        return tuple(ClockShift(0, None) for _ in analyses)
    enough = _typical(analyses)
    found = []
    for index in range(len(analyses)):
        offset = int(clocks.offset[index])
        error = max(int(clocks.high[index]) - offset, offset - int(clocks.low[index]))
        window = analyses[index].window
        if clocks.drift is not None and clocks.pivot is not None and window is not None:
            # one offset for all of the recording: right in its middle, less so at its ends
            farthest = max(abs(window.start - int(clocks.pivot[index])), abs(window.end - int(clocks.pivot[index])))
            error += round(abs(float(clocks.drift[index])) * farthest)
        if index == clocks.reference:
            found.append(ClockShift())
        elif clocks.known[index] and error < enough and abs(offset) < _FARTHEST:
            found.append(ClockShift(offset, error))
        else:
            found.append(ClockShift(0, None))
    # A reference that nothing was put beside is a file on its own clock like the others.
    if not any(shift.error is not None for index, shift in enumerate(found) if index != clocks.reference):
        found[clocks.reference] = ClockShift(0, None)
    return tuple(found)


def _typical(analyses: Sequence[TraceAnalysis]) -> float:
    """The largest error that still shows who is late: a step, or a tenth of the window."""
    steps = [float(np.median(a.steps.durations())) for a in analyses if a.steps.count and a.steps.end.size]
    if steps:
        return float(np.median(steps))
    windows = [a.window.length for a in analyses if a.window is not None]
    return _OF_WINDOW * float(np.median(windows)) if windows else 0.0
