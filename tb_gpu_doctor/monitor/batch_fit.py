"""What a batch-size sweep says: time of a step = fixed + per sample x batch, and the batch to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# The smallest batch that has this share of the best throughput is recommended.
ENOUGH = 0.95


@dataclass(frozen=True)
class Point:
    """One batch size.

    Attributes:
        batch_size: samples of one step.
        samples_per_s, step_seconds: None where it could not be measured.
        spread: half the range of the middle half of the repeats, as a share of ``step_seconds``.
        peak_bytes: of the GPU that used most, or of the process where there is no GPU; None where unknown.
        limit_bytes: what it may use.
        problem: why it could not be measured: ``out_of_memory``, ``killed``, ``timeout`` or an error's words.
    """

    batch_size: int
    samples_per_s: float | None = None
    step_seconds: float | None = None
    spread: float | None = None
    peak_bytes: int | None = None
    limit_bytes: int | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Fit:
    """Time of a step = ``fixed_seconds`` + ``per_sample_seconds`` x batch.

    ``error`` is the mean of the absolute deviations, as a share of the measured times.
    """

    fixed_seconds: float
    per_sample_seconds: float
    error: float


def fit(points: Sequence[Point]) -> Fit | None:
    """The line with the least sum of relative deviations, neither part below 0; None for under 2 sizes.

    Relative ones, since noise grows with the time and small batches must count; absolute instead of
    squared ones, so that one disturbed size does not move the line. Such a line goes through two of the
    points, or through one and an end of the allowed range, so that trying them all is exact.
    """
    measured = [(point.batch_size, point.step_seconds) for point in points if point.step_seconds]
    if len({batch for batch, _ in measured}) < 2:
        return None
    lines: list[tuple[float, float]] = []
    for index, (batch, seconds) in enumerate(measured):
        lines += [(0.0, seconds / batch), (seconds, 0.0)]
        for other, other_seconds in measured[index + 1 :]:
            if other != batch:
                slope = (other_seconds - seconds) / (other - batch)
                lines.append((seconds - slope * batch, slope))
    best: Fit | None = None
    for fixed, slope in lines:
        if fixed < 0 or slope < 0:
            continue
        error = sum(abs(fixed + slope * batch - seconds) / seconds for batch, seconds in measured) / len(measured)
        if best is None or error < best.error:
            best = Fit(fixed, slope, error)
    return best


def recommend(points: Sequence[Point]) -> Point | None:
    """The smallest batch within 5 % of the best throughput; None where nothing was measured."""
    measured = [point for point in points if point.samples_per_s]
    if not measured:
        return None
    enough = ENOUGH * max(point.samples_per_s or 0.0 for point in measured)
    return min((p for p in measured if (p.samples_per_s or 0.0) >= enough), key=lambda point: point.batch_size)


def predicted_peak(points: Sequence[Point], batch: int) -> float | None:
    """Bytes that ``batch`` will need, by the line through the two largest sizes; None where that cannot be told."""
    known = [(point.batch_size, point.peak_bytes) for point in points if point.peak_bytes and not point.problem]
    if len(known) < 2:
        return None
    (small, small_bytes), (large, large_bytes) = sorted(known)[-2:]
    slope = max(large_bytes - small_bytes, 0) / (large - small)
    return large_bytes + slope * (batch - large)
