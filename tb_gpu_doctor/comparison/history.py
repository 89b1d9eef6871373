"""All sessions of a logdir in order of time: trends, and the session in which a regression first appears."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.step_parts import PART_IDS
from tb_gpu_doctor.analysis.vocabulary import CAUSE_IDS
from tb_gpu_doctor.comparison.bootstrap import LEAST_STEPS
from tb_gpu_doctor.comparison.change_points import ChangePoint, Float64, find_changes
from tb_gpu_doctor.comparison.compare import FEW_COMMON, LEAST_CHANGE
from tb_gpu_doctor.comparison.kernels import common_share, grid_growth
from tb_gpu_doctor.comparison.summary import RunSummary
from tb_gpu_doctor.diagnosis.model import Phrase

# Series that are looked at: the whole step, and the parts that regress by themselves.
METRICS = ("step", "idle", "waiting")
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
        point: where and how sure.
        before, after: mean per step of the sessions on its two sides, picoseconds.
    """

    metric: str
    entry: int
    point: ChangePoint
    before: float
    after: float

    @property
    def is_regression(self) -> bool:
        """Whether it made the run slower."""
        return self.point.change.value > 0


@dataclass(frozen=True)
class History:
    """Sessions in order of time, and where their level changed."""

    entries: tuple[HistoryEntry, ...]
    changes: tuple[Change, ...]

    @property
    def first_regression(self) -> Change | None:
        """The first session that is slower than those before it, by the step time."""
        return next((change for change in self.changes if change.metric == "step" and change.is_regression), None)


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
    changes: list[Change] = []
    for metric in METRICS:
        series = [_series(ordered[index].summary, metric) for index in compared]
        # a metric that is next to nothing has no level that could change
        if len(series) < 2 or min(float(values.mean()) for values in series) <= 0:
            continue
        points = find_changes(series, LEAST_CHANGE)
        step = max(float(_series(ordered[index].summary, "step").mean()) for index in compared)
        for point in points:
            before, after = (
                float(np.mean([values.mean() for values in part])) for part in _sides(series, point, points)
            )
            if metric == "step" or abs(after - before) >= LEAST_CHANGE * step:
                changes.append(Change(metric, compared[point.index], point, before, after))
    return History(tuple(ordered), tuple(sorted(changes, key=lambda change: (change.entry, change.metric != "step"))))


def _sides(
    series: Sequence[Float64], point: ChangePoint, points: Sequence[ChangePoint]
) -> tuple[Sequence[Float64], Sequence[Float64]]:
    """The runs between the change before and this one, and between this one and the next."""
    before = max((other.index for other in points if other.index < point.index), default=0)
    after = min((other.index for other in points if other.index > point.index), default=len(series))
    return series[before : point.index], series[point.index : after]


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
