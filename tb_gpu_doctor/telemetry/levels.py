"""Series of bounded length for drawing: equal parts of time with the least, the mean and the most of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.telemetry.samples import Float64

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """One series over a range of time.

    Attributes:
        samples: how many with a value lie in the range.
        folded: whether parts of time stand for them; else every sample is there, and all three columns are the same.
        wall_ns: int64[m], middle of a part's samples.
        step: int64[m], the last known one, -1 without.
        low, mean, high: float64[m]; of a counter ``mean`` is the last value, of bits all three are those that were set.
    """

    samples: int
    folded: bool
    wall_ns: Int64
    step: Int64
    low: Float64
    mean: Float64
    high: Float64


def level(
    wall_ns: Int64,
    step: Int64,
    values: Float64,
    points: int,
    window_ns: tuple[int, int] | None = None,
    counter: bool = False,
    bits: bool = False,
) -> Level:
    """At most ``points`` points of a series.

    Args:
        wall_ns: int64[n], increasing.
        step: int64[n], -1 where unknown.
        values: float64[n], NaN where there is none.
        points: how many parts the range is cut into.
        window_ns: first and last time wanted; all by default.
        counter: whether the value only grows, so that a part's last value stands for it.
        bits: whether the value is a set of bits.
    """
    keep = np.isfinite(values)
    if bits:
        keep &= (values >= 0) & (values < float(1 << 53))
    if window_ns is not None:
        keep &= (wall_ns >= window_ns[0]) & (wall_ns <= window_ns[1])
    when, at, value = wall_ns[keep], step[keep], values[keep]
    if len(value) <= points:
        return Level(len(value), False, when, at, value, value, value)
    first, last = window_ns or (int(when[0]), int(when[-1]))
    # Exact in integers: nanoseconds since 1970 times points do not fit into 64 bits, so parts go by their length.
    length = max(1, -(-(last - first + 1) // points))
    part = (when - first) // length
    starts = np.flatnonzero(np.concatenate(([True], part[1:] != part[:-1])))
    ends = np.concatenate((starts[1:], [len(part)]))
    counts = ends - starts
    middle = when[starts] + (when[ends - 1] - when[starts]) // 2
    steps = np.maximum.accumulate(np.where(at >= 0, np.arange(len(at)), -1))[ends - 1]
    last_step = np.where(steps >= starts, at[np.maximum(steps, 0)], -1)
    if bits:
        together = np.bitwise_or.reduceat(value.astype(np.int64), starts).astype(np.float64)
        return Level(len(value), True, middle, last_step, together, together, together)
    low, high = np.minimum.reduceat(value, starts), np.maximum.reduceat(value, starts)
    # Sums of bytes over hours lose nothing that a drawing shows; the bounds hold for rounded means too.
    mean = value[ends - 1] if counter else np.clip(np.add.reduceat(value, starts) / counts, low, high)
    return Level(len(value), True, middle, last_step, low, mean, high)
