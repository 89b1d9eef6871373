"""Values over time for a chart: thinned to so many points, on the wall clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tb_gpu_doctor.metrics import BY_ID
from tb_gpu_doctor.telemetry.series import GpuSeries, Level, Recording, StepTimes, level

MAX_POINTS = 2_000
DEFAULT_POINTS = 600
_NS_PER_MS = 1e6


def curves(
    recordings: Sequence[Recording], metrics: Sequence[str], window_ns: tuple[int, int] | None, points: int
) -> dict[str, Any]:
    """The answer of ``telemetry/series``: each GPU's values of some metrics.

    Args:
        recordings: of a session.
        metrics: their ids.
        window_ns: from when to when, in Unix nanoseconds; None: all of it.
        points: how many of each series at most.
    """
    found, times = [], []
    for metric in metrics:
        for number, recording in enumerate(recordings):
            for gpu, series in enumerate(recording.gpus):
                drawn = level_of(series, metric, points, window_ns)
                if drawn is None:
                    continue
                times += [int(series.wall_ns[0]), int(series.wall_ns[-1])]
                found.append(
                    {
                        "recording": number,
                        "gpu": gpu,
                        "metric": metric,
                        "samples": drawn.samples,
                        "folded": drawn.folded,
                        "unix_ms": all_ms(drawn.wall_ns),
                        "step": [step if step >= 0 else None for step in drawn.step.tolist()],
                        **level_columns(drawn),
                    }
                )
    start, end = window_ns or ((min(times), max(times)) if times else (None, None))
    return {
        "start_unix_ms": None if start is None else unix_ms(start),
        "end_unix_ms": None if end is None else unix_ms(end),
        "series": found,
    }


def level_of(series: GpuSeries, metric: str, points: int, window_ns: tuple[int, int] | None) -> Level | None:
    """A metric of a GPU in ``points`` equal parts of time; None where nothing of it is known."""
    values = series.values.get(metric)
    if values is None or not len(series):
        return None
    known = BY_ID.get(metric)
    drawn = level(
        series.wall_ns,
        series.step,
        values,
        points,
        window_ns,
        counter=known is not None and known.counter,
        bits=metric == "clock_event_reasons",
        extremes=series.extremes(metric),
    )
    return drawn if drawn.samples else None


def widened(series: GpuSeries, metric: str, window: tuple[int, int]) -> tuple[int, int]:
    """The range with the last sample before it and the first one after it, so that a line crosses it."""
    values = series.values.get(metric)
    if values is None:
        return window
    when = series.wall_ns[np.isfinite(values)]
    before, after = when[when < window[0]], when[when > window[1]]
    return (
        int(before[-1]) if len(before) else window[0],
        int(after[0]) if len(after) else window[1],
    )


def level_columns(drawn: Level) -> dict[str, Any]:
    """Least, mean and most of each part; the mean alone where a part is one sample."""
    return {
        "min": drawn.low.tolist() if drawn.folded else None,
        "mean": drawn.mean.tolist(),
        "max": drawn.high.tolist() if drawn.folded else None,
    }


def step_curve(steps: StepTimes) -> dict[str, Any] | None:
    """Stretches of equally many steps, at most `MAX_POINTS` of them."""
    count = len(steps.number)
    if not count:
        return None
    size = -(-count // MAX_POINTS)
    starts = np.arange(0, count, size)
    ends = np.append(starts[1:], count)
    length = ends - starts
    total = np.add.reduceat(steps.duration_ns, starts)
    known = steps.samples > 0
    samples = np.add.reduceat(np.where(known, steps.samples, 0), starts)
    timed = np.add.reduceat(np.where(known, steps.duration_ns, 0), starts)
    rates: list[float | None] = [
        float(done) / (float(passed) / 1e9) if passed > 0 else None
        for done, passed in zip(samples.tolist(), timed.tolist(), strict=True)
    ]
    return {
        "count": count,
        "unix_ms": all_ms(steps.end_ns[ends - 1]),
        "step": steps.number[ends - 1].tolist(),
        "min_ms": all_ms(np.minimum.reduceat(steps.duration_ns, starts)),
        "mean_ms": (total / length / _NS_PER_MS).tolist(),
        "max_ms": all_ms(np.maximum.reduceat(steps.duration_ns, starts)),
        "samples_per_s": rates,
        "profiled": np.logical_or.reduceat(steps.profiled, starts).tolist(),
    }


def unix_ms(unix_ns: int) -> float:
    """Milliseconds of the wall clock."""
    return unix_ns / _NS_PER_MS


def all_ms(unix_ns: np.ndarray) -> list[float]:
    """Nanoseconds as milliseconds, one by one."""
    return [value / _NS_PER_MS for value in unix_ns.tolist()]
