"""How likely chance alone would show as much: two tail probabilities, without a statistics package."""

from __future__ import annotations

import math

import numpy as np

_POINTS = 20_000


def binomial_tail(successes: int, trials: int, probability: float) -> float:
    """P(X >= successes) for X binomial; exact up to rounding."""
    if successes <= 0:
        return 1.0
    if probability >= 1.0:
        return 1.0
    if probability <= 0.0 or successes > trials:
        return 0.0
    logs = [
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(probability)
        + (trials - k) * math.log1p(-probability)
        for k in range(successes, trials + 1)
    ]
    return min(1.0, math.fsum(math.exp(value) for value in logs))


def student_tail(value: float, freedom: int) -> float:
    """P(T >= value) for Student's t with ``freedom`` >= 1 degrees.

    With t = sqrt(freedom) * tan(a) the density is a power of cos(a), so that the tail is
    the ratio of two integrals over a finite angle (midpoint rule).
    """
    if math.isinf(value):
        return 0.0 if value > 0 else 1.0
    from_angle = math.atan(value / math.sqrt(freedom))

    def integral(low: float, high: float) -> float:
        width = (high - low) / _POINTS
        angles = low + width * (np.arange(_POINTS) + 0.5)
        return float(np.sum(np.cos(angles) ** (freedom - 1)) * width)

    whole = integral(-math.pi / 2, math.pi / 2)
    return min(1.0, integral(from_angle, math.pi / 2) / whole)
