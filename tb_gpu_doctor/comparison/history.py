"""All sessions of a logdir in order of time: trends, and the session in which a regression first appears."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.results import CAUSE_IDS
from tb_gpu_doctor.analysis.step_costs import PART_IDS
from tb_gpu_doctor.comparison.bootstrap import LEAST_STEPS, Interval, variance_of_mean
from tb_gpu_doctor.comparison.change_points import ChangePoint, Levels, find_levels, step_height, without_lone_runs
from tb_gpu_doctor.comparison.compare import FEW_COMMON, LEAST_CHANGE
from tb_gpu_doctor.comparison.kernel_changes import common_share, grid_growth
from tb_gpu_doctor.comparison.summary import RunSummary
from tb_gpu_doctor.diagnosis.model import Phrase

Float64 = NDArray[np.float64]
# Series that are looked at: the whole step, and the parts that regress by themselves.
METRICS = ("step", "idle", "waiting")
# Smaller changes of the level, in shares of the step, are not looked for. Less than what two sessions must differ by to
# be told apart, so that a change of that much is found in spite of scatter.
LEAST_LEVEL = 0.03
# The part of all false alarms that idle time and waiting may cause each: a tenth of what the step may.
_STRICTNESS = 10.0
# How sure a part of the step must be to have changed with it.
_ALONG = 0.99
# By how much sessions' means may vary for their own steps, times what is usual: few steps tell it no better.
_MOST_VARIED = 2.0
_CAUSES = [PART_IDS.index(cause) for cause in CAUSE_IDS]
_WAITING = PART_IDS.index("communication_wait")


@dataclass(frozen=True)
class HistoryEntry:
    """One session: its summary, or the problem that kept it from being read.

    Attributes:
        run, session: as the logdir names them.
        time_s: when it was recorded, Unix seconds.
        summary: None where it could not be read.
        problem: why it could not be read, or why it is not compared with the others; else None.
    """

    run: str
    session: str
    time_s: float
    summary: RunSummary | None
    problem: Phrase | None = None


@dataclass(frozen=True)
class Change:
    """A change of one metric.

    Attributes:
        metric: one of `METRICS`.
        entry: index into `History.entries` of the first session after it.
        earliest, latest: indices of the sessions between which it lies at `CONFIDENCE`.
        confidence: probability that it lies at this very session, 0..1.
        before, after: mean per step of the sessions on its two sides, picoseconds.
        change: relative to the level before, None where that is zero.
        sessions_before, sessions_after: how many sessions the two levels rest on.
    """

    metric: str
    entry: int
    earliest: int
    latest: int
    confidence: float
    before: float
    after: float
    change: Interval | None
    sessions_before: int
    sessions_after: int

    @property
    def is_regression(self) -> bool:
        """Whether it made the run slower."""
        return self.after > self.before


@dataclass(frozen=True)
class NewestSessions:
    """The newest one or two sessions have another step time than those before: too few for a change.

    Attributes:
        entry: index into `History.entries` of the first of them.
        count: how many they are.
        before, after: mean step of the sessions before and of them, picoseconds.
        change: relative.
    """

    entry: int
    count: int
    before: float
    after: float
    change: Interval


@dataclass(frozen=True)
class Drift:
    """The step time moved, but no session can be named in which: slowly, or scatter hides where.

    Attributes:
        before, after: mean step of the first and the last third of the sessions, picoseconds.
    """

    before: float
    after: float


@dataclass(frozen=True)
class History:
    """Sessions in order of time, and where their level changed.

    Attributes:
        entries: the sessions.
        changes: of all metrics.
        drift: of the step time, None where there is none.
        newest: see `NewestSessions`.
        noticeable: the least relative change of the step time that would have been found most times; None where the
            level moved, or with too few sessions.
        lone: indices of sessions whose step time is far from those before and after them: left aside.
    """

    entries: tuple[HistoryEntry, ...]
    changes: tuple[Change, ...]
    drift: Drift | None = None
    newest: NewestSessions | None = None
    noticeable: float | None = None
    lone: tuple[int, ...] = ()

    @property
    def first_regression(self) -> Change | None:
        """The first session that is slower than those before it, by the step time."""
        return next((change for change in self.changes if change.metric == "step" and change.is_regression), None)

    @property
    def compared(self) -> int:
        """How many sessions are compared with one another."""
        return sum(entry.problem is None and entry.summary is not None for entry in self.entries)


def build_history(entries: Sequence[HistoryEntry]) -> History:
    """Sort by time, leave out what is not like the newest session, and look for changes."""
    ordered = sorted(entries, key=lambda entry: (entry.time_s, entry.run, entry.session))
    usable = [index for index, entry in enumerate(ordered) if entry.summary is not None]
    with_steps = [index for index in usable if _steps(ordered[index]) >= LEAST_STEPS]
    compared: list[int] = []
    if with_steps:
        newest = ordered[with_steps[-1]]
        for index in usable:
            entry = ordered[index]
            problem = _unlike(entry, newest)
            if problem is None:
                compared.append(index)
            else:
                ordered[index] = HistoryEntry(entry.run, entry.session, entry.time_s, entry.summary, problem)
    else:
        for index in usable:
            entry = ordered[index]
            ordered[index] = HistoryEntry(
                entry.run, entry.session, entry.time_s, entry.summary, Phrase("history.problems.few_steps")
            )
    return _changes(ordered, compared)


def _changes(ordered: Sequence[HistoryEntry], compared: Sequence[int]) -> History:
    """What the compared sessions show; ``compared`` are indices into ``ordered``."""
    if not compared:
        return History(tuple(ordered), ())
    series = {metric: [_series(ordered[index].summary, metric) for index in compared] for metric in METRICS}
    means = {metric: np.array([float(values.mean()) for values in series[metric]]) for metric in METRICS}
    step = means["step"]
    if (step <= 0).any():
        return History(tuple(ordered), ())
    floor = _usual([variance_of_mean(values) / float(values.mean()) ** 2 for values in series["step"]])
    levels = find_levels(np.log(step), LEAST_LEVEL, floor)
    changes = [_step_change(step, point, levels.lone, compared) for point in levels.changes]
    for metric in METRICS[1:]:
        # parts may be zero, so they are taken in shares of the step, not in logarithms
        shares = means[metric] / float(step.mean())
        floor = float(np.mean([variance_of_mean(values) for values in series[metric]])) / float(step.mean()) ** 2
        changes += _part_changes(metric, means[metric], shares, floor, levels, compared)
    return History(
        tuple(ordered),
        tuple(sorted(changes, key=lambda change: (change.entry, METRICS.index(change.metric)))),
        None if levels.drift is None else _drift(step, levels.lone),
        _newest(step, levels, compared),
        None if levels.noticeable is None else math.expm1(levels.noticeable),
        tuple(compared[index] for index in levels.lone if levels.newest is None or index < levels.newest.index),
    )


def _step_change(step: Float64, point: ChangePoint, lone: Sequence[int], compared: Sequence[int]) -> Change:
    before, after = _sides(step, point, lone)
    return _at("step", point, compared, before, after, _relative(point.height, after / before - 1))


def _usual(variances: Sequence[float]) -> float:
    """Their mean, but not far above what most have: a session that stalled once tells nothing of the others."""
    return min(float(np.mean(variances)), _MOST_VARIED * float(np.median(variances)))


def _sides(means: Float64, point: ChangePoint, lone: Sequence[int]) -> tuple[float, float]:
    """Mean before and after, of the sessions that are not left aside."""
    low, high = point.index - point.runs_before, point.index + point.runs_after
    return _mean(means, low, point.index, lone), _mean(means, point.index, high, lone)


def _mean(means: Float64, low: int, high: int, lone: Sequence[int]) -> float:
    """Mean of sessions of a range that are not left aside; of all where that leaves none."""
    kept = np.ones(len(means), np.bool_)
    kept[list(lone)] = False
    return float(means[low:high][kept[low:high] | ~kept[low:high].any()].mean())


def _part_changes(
    metric: str, means: Float64, shares: Float64, floor: float, levels: Levels, compared: Sequence[int]
) -> Iterator[Change]:
    """Where a part changed: with the step, or by itself."""
    own = find_levels(shares, LEAST_LEVEL, floor, _STRICTNESS, any_distribution=True).changes
    with_step = []
    # sessions that are left aside of the step are so of its parts
    alone = np.isin(np.arange(len(shares)), levels.lone)
    usual = without_lone_runs(shares, alone)
    for point in levels.changes:
        low, high = point.index - point.runs_before, point.index + point.runs_after
        height = step_height(usual[low:high], point.runs_before, floor, _ALONG)
        if abs(height.value) >= LEAST_LEVEL and height.excludes_zero:
            with_step.append(replace(point, height=step_height(usual[low:high], point.runs_before, floor)))
    # a change of its own that lies where the step's may lie is the same one
    by_itself = [
        point
        for point in own
        if not any(other.earliest <= point.latest and point.earliest <= other.latest for other in with_step)
    ]
    for point, lone in (*((point, levels.lone) for point in with_step), *((point, ()) for point in by_itself)):
        before, after = _sides(means, point, lone)
        if abs(after - before) <= 0:
            continue
        change = None
        if before > 0:
            shift = point.height
            scale = (after / before - 1) / shift.value  # from shares of the step to shares of the part
            change = Interval(shift.value * scale, shift.low * scale, shift.high * scale)
        yield _at(metric, point, compared, before, after, change)


def _relative(height: Interval, value: float) -> Interval:
    """A difference of logarithms as a relative change; ``value`` is that of the means themselves."""
    return Interval(value, min(math.expm1(height.low), value), max(math.expm1(height.high), value))


def _at(
    metric: str, point: ChangePoint, compared: Sequence[int], before: float, after: float, change: Interval | None
) -> Change:
    return Change(
        metric,
        compared[point.index],
        compared[point.earliest],
        compared[point.latest],
        point.confidence,
        before,
        after,
        change,
        point.runs_before,
        point.runs_after,
    )


def _drift(step: Float64, lone: Sequence[int]) -> Drift:
    third, sessions = len(step) // 3, len(step)
    return Drift(_mean(step, 0, third, lone), _mean(step, sessions - third, sessions, lone))


def _newest(step: Float64, levels: Levels, compared: Sequence[int]) -> NewestSessions | None:
    newest = levels.newest
    if newest is None:
        return None
    before, after = _mean(step, newest.first_before, newest.index, levels.lone), float(step[newest.index :].mean())
    change = _relative(newest.height, after / before - 1)
    return NewestSessions(compared[newest.index], len(step) - newest.index, before, after, change)


def _steps(entry: HistoryEntry) -> int:
    return 0 if entry.summary is None else len(entry.summary.wall_ps)


def _unlike(entry: HistoryEntry, last: HistoryEntry) -> Phrase | None:
    """Why a session's times say nothing beside those of the ``last`` one."""
    summary, newest = entry.summary, last.summary
    assert summary is not None and newest is not None
    if _steps(entry) < LEAST_STEPS:
        return Phrase("history.problems.few_steps")
    if set(summary.models) != set(newest.models):
        return Phrase("history.problems.models", {"models": sorted({name or "?" for name in summary.models})})
    if summary.gpu_count != newest.gpu_count:
        return Phrase("history.problems.gpu_count", {"count": summary.gpu_count})
    common = common_share(summary, newest)
    if entry.run != last.run and common is not None and common < FEW_COMMON:
        return Phrase("history.problems.kernels", {"share": common})
    if summary.batch is not None and newest.batch is not None:
        if summary.batch != newest.batch:
            return Phrase("history.problems.batch", {"batch": summary.batch})
        return None
    growth = grid_growth(summary, newest)
    if growth is not None and abs(growth - 1) > LEAST_CHANGE:
        return Phrase("history.problems.grids")
    return None


def _series(summary: RunSummary | None, metric: str) -> Float64:
    """Values of a metric for each step, picoseconds."""
    assert summary is not None
    if metric == "step":
        return summary.wall_ps
    parts = summary.parts_ps
    return parts[:, _CAUSES].sum(axis=1) if metric == "idle" else parts[:, _WAITING]
