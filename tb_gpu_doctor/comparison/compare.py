"""Two summaries into one verdict: faster, slower, the same, or not to be told, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tb_gpu_doctor.analysis.step_costs import PART_IDS
from tb_gpu_doctor.comparison.bootstrap import (
    CONFIDENCE,
    LEAST_STEPS,
    Interval,
    difference,
    relative_difference,
    resample,
)
from tb_gpu_doctor.comparison.kernel_changes import (
    BatchGrids,
    KernelChange,
    batch_grids,
    call_growth,
    common_share,
    compare_kernels,
    grid_growth,
    lacks_shapes,
)
from tb_gpu_doctor.comparison.summary import FindingSum, RunSummary
from tb_gpu_doctor.diagnosis.model import Phrase
from tb_gpu_doctor.diagnosis.rule import rule_of, rules

Outcome = Literal["faster", "slower", "same", "inconclusive", "not_comparable"]
Unit = Literal["step", "sample", "window"]
FindingChange = Literal["solved", "new", "better", "worse", "unchanged", "cannot_tell"]


# The field's figure: smaller changes are not worth a word, and thermal drift alone makes one or two percent.
LEAST_CHANGE = 0.05
# With less of the kernel time in common the runs may be of different models; mixed precision or XLA change as much.
FEW_COMMON = 0.3
# Findings about the profile that make its times unlike those without the profiler; of these, those that make steps
# longer than they are.
_DISTORTING = tuple(rule.kind for rule in rules() if rule.distorts != "nothing")
_LENGTHENING = tuple(rule.kind for rule in rules() if rule.distorts == "longer")
# A cost changed when it moved by this part of itself and by this part of the step: findings are estimates.
_BY_ITSELF = 0.2
_BY_STEP = 0.01
_RANK = {"info": 0, "warning": 1, "critical": 2}
_ORDER: tuple[FindingChange, ...] = ("solved", "new", "worse", "better", "cannot_tell", "unchanged")


@dataclass(frozen=True)
class PartChange:
    """One part of the unit's time, before and after; the parts' ``after - before`` sum to that of the whole.

    ``difference`` is None where steps are too few for an interval.
    """

    part: str
    before: float
    after: float
    difference: Interval | None


@dataclass(frozen=True)
class FindingComparison:
    """A finding kind in both runs; costs are savings per unit, None where not told.

    ``part_of_...`` is the kind that the diagnosis tells it as a part of.
    """

    kind: str
    change: FindingChange
    severity_before: str | None
    severity_after: str | None
    cost_before: float | None
    cost_after: float | None
    share_before: float | None
    share_after: float | None
    cause_before: str | None = None
    cause_after: str | None = None
    part_of_before: str | None = None
    part_of_after: str | None = None


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side.

    Attributes:
        before, after: what was compared.
        outcome: of the time per unit.
        unit: what times are per: a step; a sample where batches differ and are known; a millisecond of the window
            where there are no steps.
        reasons: why the outcome is what it is, the weightiest first.
        obstacles: what makes the runs hard or impossible to compare, loudest first.
        change: relative change of the mean time per unit, None without steps.
        time_before, time_after: mean time per unit, None without steps.
        parts: in the order of `step_parts.PART_IDS`, those that occur.
        kernels: largest change first.
        kernel_time_before, kernel_time_after: sums over all kernels.
        findings: solved ones first, then new and worse ones, then the rest.
        grids: from which batch on they fill the GPU, where two batches tell.
    """

    before: RunSummary
    after: RunSummary
    outcome: Outcome
    unit: Unit
    reasons: tuple[Phrase, ...]
    obstacles: tuple[Phrase, ...]
    change: Interval | None
    time_before: float | None
    time_after: float | None
    parts: tuple[PartChange, ...]
    kernels: tuple[KernelChange, ...]
    kernel_time_before: float
    kernel_time_after: float
    findings: tuple[FindingComparison, ...]
    grids: BatchGrids | None = None


@dataclass(frozen=True)
class Batches:
    """Global batch sizes that the user states, over what the runs recorded."""

    before: int | None = None
    after: int | None = None


def compare(
    before: RunSummary, after: RunSummary, batches: Batches | None = None, least_change: float = LEAST_CHANGE
) -> Comparison:
    """Say what changed from one run to the other.

    The outcome is ``faster`` or ``slower`` where the mean time per unit changed by at least ``least_change`` and the
    interval excludes zero; ``same`` where the whole interval lies within ``least_change``; else ``inconclusive``.
    So is what a profiler may have done that made the steps of one run only longer.
    Runs on other GPUs, and runs whose steps hold other work that cannot be normalised, are ``not_comparable``.
    """
    stated = batches or Batches()
    batch_before, batch_after = stated.before or before.batch, stated.after or after.batch
    obstacles, fatal, unit = _obstacles(before, after, batch_before, batch_after)
    steps = before.step_count > 0 and after.step_count > 0
    scale_before = scale_after = 1.0
    if not steps:
        unit = "window"
    elif unit == "sample":
        assert batch_before and batch_after
        scale_before, scale_after = 1 / batch_before, 1 / batch_after

    change, parts = _times(before, after, scale_before, scale_after) if steps else (None, _shares(before, after))
    outcome, reasons = _outcome(before, after, change, least_change, fatal)
    doubt = _lengthened(before, after, outcome)
    if doubt is not None:
        outcome, reasons = "inconclusive", (doubt,)
    return Comparison(
        before=before,
        after=after,
        outcome=outcome,
        unit=unit,
        reasons=reasons,
        obstacles=obstacles,
        change=change,
        time_before=before.mean_ps * scale_before if steps and before.mean_ps is not None else None,
        time_after=after.mean_ps * scale_after if steps and after.mean_ps is not None else None,
        parts=parts,
        kernels=compare_kernels(before, after, scale_before, scale_after)
        if (before.step_source == "none") == (after.step_source == "none")
        else (),
        kernel_time_before=sum(row.total_ps for row in before.kernels) * scale_before,
        kernel_time_after=sum(row.total_ps for row in after.kernels) * scale_after,
        findings=compare_findings(before, after, scale_before, scale_after),
        grids=batch_grids(before, after, batch_before, batch_after),
    )


def _obstacles(
    before: RunSummary, after: RunSummary, batch_before: int | None, batch_after: int | None
) -> tuple[tuple[Phrase, ...], bool, Unit]:
    """What stands between the runs, whether it forbids a verdict, and what times are to be per."""
    if not before.gpu_count or not after.gpu_count:
        blind = dict.fromkeys(run.label for run in (before, after) if not run.gpu_count)
        return (Phrase("compare.obstacles.no_gpu_work", {"runs": list(blind)}),), True, "step"
    fatal: list[Phrase] = []
    found: list[Phrase] = []
    unit: Unit = "step"
    batches = batch_before is not None and batch_after is not None
    models_before, models_after = _models(before), _models(after)
    if models_before != models_after and models_before and models_after:
        fatal.append(Phrase("compare.obstacles.models", {"before": models_before, "after": models_after}))
    elif not models_before or not models_after:
        unnamed = dict.fromkeys(run.label for run in (before, after) if not _models(run))
        found.append(Phrase("compare.obstacles.models_unknown", {"runs": list(unnamed)}))
    if before.gpu_count != after.gpu_count:
        params = {"before": before.gpu_count, "after": after.gpu_count}
        if batches:
            found.append(Phrase("compare.obstacles.gpu_count_normalised", params))
            unit = "sample"
        else:
            fatal.append(Phrase("compare.obstacles.gpu_count", params))
    if batches and batch_before != batch_after:
        found.append(Phrase("compare.obstacles.batch", {"before": batch_before, "after": batch_after}))
        unit = "sample"
    if not batches:
        growth = grid_growth(before, after)
        if growth is not None and abs(growth - 1) > LEAST_CHANGE:
            fatal.append(Phrase("compare.obstacles.grids", {"factor": growth}))
        elif (batch_before is None) != (batch_after is None) or growth is None:
            found.append(Phrase("compare.obstacles.batch_unknown"))
    for run in (before, after):
        if run.unread:
            found.append(Phrase("compare.obstacles.unread", {"run": run.label, "count": run.unread}))
    common = common_share(before, after)
    if common is not None and common < FEW_COMMON:
        # Hardly a kernel in common, and only one of them says on which GPU: nothing shows that they belong together.
        strangers = bool(models_before) != bool(models_after)
        (fatal if strangers else found).append(Phrase("compare.obstacles.few_common", {"share": common}))
    if before.kernels and after.kernels and lacks_shapes(before) != lacks_shapes(after):
        label = before.label if lacks_shapes(before) else after.label
        found.append(Phrase("compare.obstacles.no_shapes", {"run": label}))
    for kind in _DISTORTING:
        marked = [kind in run.doubts for run in (before, after)]
        if marked[0] != marked[1]:
            label = before.label if marked[0] else after.label
            found.append(Phrase(f"findings.{kind}.obstacle", {"run": label}))
    sources = {before.step_source, after.step_source}
    if len(sources) > 1 and "none" not in sources:
        # A period that was found may be a part of a marked step, or several; kernels are launched as often if not.
        growth = call_growth(before, after)
        if growth is not None and abs(growth - 1) <= LEAST_CHANGE:
            found.append(Phrase("compare.obstacles.step_sources"))
        else:
            fatal.append(Phrase("compare.obstacles.other_steps"))
    return (*fatal, *found), bool(fatal), unit


def _lengthened(before: RunSummary, after: RunSummary, outcome: Outcome) -> Phrase | None:
    """What lengthened the steps of one run, unless that run is the faster one even so."""
    for kind in _LENGTHENING:
        if (kind in before.doubts) == (kind in after.doubts):
            continue
        is_after = kind in after.doubts
        if outcome == "same" or outcome == ("slower" if is_after else "faster"):
            return Phrase(f"findings.{kind}.obstacle", {"run": (after if is_after else before).label})
    return None


def _models(run: RunSummary) -> list[str]:
    return sorted({name for name in run.models if name})


def _times(
    before: RunSummary, after: RunSummary, scale_before: float, scale_after: float
) -> tuple[Interval | None, tuple[PartChange, ...]]:
    """The relative change of the whole, and each part's own; intervals from the same draws."""
    enough = min(len(before.wall_ps), len(after.wall_ps)) >= 2
    old = np.column_stack((before.wall_ps, before.parts_ps)) * scale_before
    new = np.column_stack((after.wall_ps, after.parts_ps)) * scale_after
    drawn = (resample(old, 1), resample(new, 2)) if enough else None
    mean_old, mean_new = old.mean(axis=0), new.mean(axis=0)
    parts = []
    for index, part in enumerate(PART_IDS, 1):
        if old[:, index].any() or new[:, index].any():
            sure = difference(*drawn, index) if drawn else None
            parts.append(PartChange(part, float(mean_old[index]), float(mean_new[index]), sure))
    if mean_old[0] <= 0:
        return None, tuple(parts)
    if drawn is None:
        value = float(mean_new[0] / mean_old[0]) - 1
        return Interval(value, -np.inf, np.inf), tuple(parts)
    return relative_difference(*drawn, 0), tuple(parts)


def _shares(before: RunSummary, after: RunSummary) -> tuple[PartChange, ...]:
    """Without steps: shares of the window, 0..1."""
    return tuple(
        PartChange(part, float(old), float(new), None)
        for part, old, new in zip(PART_IDS, before.window_parts, after.window_parts, strict=True)
        if old or new
    )


def _outcome(
    before: RunSummary, after: RunSummary, change: Interval | None, least: float, fatal: bool
) -> tuple[Outcome, tuple[Phrase, ...]]:
    if fatal:
        return "not_comparable", (Phrase("compare.reasons.not_comparable"),)
    if change is None:
        runs = [run.label for run in (before, after) if not run.step_count]
        return "inconclusive", (Phrase("compare.reasons.no_steps", {"runs": list(dict.fromkeys(runs))}),)
    fewest = min(len(before.wall_ps), len(after.wall_ps))
    if fewest < LEAST_STEPS:
        params = {"before": before.step_count, "after": after.step_count, "least": LEAST_STEPS}
        return "inconclusive", (Phrase("compare.reasons.few_steps", params),)
    bounds = {"low": change.low, "high": change.high, "confidence": CONFIDENCE, "least": least}
    if change.excludes_zero and abs(change.value) >= least:
        outcome: Outcome = "slower" if change.value > 0 else "faster"
        return outcome, (Phrase("compare.reasons.sure", bounds),)
    if -least < change.low and change.high < least:
        return "same", (Phrase("compare.reasons.same", bounds),)
    if change.excludes_zero:
        return "inconclusive", (Phrase("compare.reasons.small", bounds),)
    return "inconclusive", (Phrase("compare.reasons.noise", bounds),)


def compare_findings(
    before: RunSummary, after: RunSummary, scale_before: float = 1.0, scale_after: float = 1.0
) -> tuple[FindingComparison, ...]:
    """All kinds that either run has.

    What one run alone shows is ``solved`` or ``new`` only where the other one could have shown it, see `could_show`.

    Args:
        before: one run.
        after: the other one.
        scale_before: what its costs are multiplied by, to be per unit.
        scale_after: the same of the other one.
    """
    ours, theirs = _by_kind(before, scale_before), _by_kind(after, scale_after)
    times = (before.mean_ps or 0.0) * scale_before, (after.mean_ps or 0.0) * scale_after
    found = []
    for kind in [*ours, *(kind for kind in theirs if kind not in ours)]:
        old, new = ours.get(kind), theirs.get(kind)
        is_shown = could_show(kind, after, before) if new is None else could_show(kind, before, after)
        found.append(
            FindingComparison(
                kind=kind,
                change=_change(old, new, is_shown, times),
                severity_before=old.severity if old else None,
                severity_after=new.severity if new else None,
                cost_before=old.saving_ps_per_step if old else None,
                cost_after=new.saving_ps_per_step if new else None,
                share_before=old.share if old else None,
                share_after=new.share if new else None,
                cause_before=old.cause if old else None,
                cause_after=new.cause if new else None,
                part_of_before=old.part_of if old else None,
                part_of_after=new.part_of if new else None,
            )
        )
    return tuple(sorted(found, key=lambda entry: _ORDER.index(entry.change)))


def could_show(kind: str, run: RunSummary, other: RunSummary | None = None) -> bool:
    """Whether a run would have a finding of a kind if it were so.

    Not without GPU work, without telemetry, or where its profile does not hold what the kind is told by. Of memory some
    profiles tell as well: where the ``other`` run, which has the finding, has no telemetry either.
    """
    rule = rule_of(kind)
    if not rule.beside_profile:  # a profile knows better
        return run.format == "telemetry"
    if rule.about == "telemetry" and (run.telemetry or other is None or other.telemetry):
        return bool(run.telemetry)
    return run.gpu_count > 0 and kind not in run.not_shown


def _by_kind(summary: RunSummary, scale: float) -> dict[str, FindingSum]:
    """The first, that is the costliest, finding of each kind."""
    found: dict[str, FindingSum] = {}
    for finding in summary.findings:
        cost = finding.saving_ps_per_step
        found.setdefault(finding.kind, finding if cost is None else replace(finding, saving_ps_per_step=cost * scale))
    return found


def _change(
    old: FindingSum | None, new: FindingSum | None, is_shown: bool, times: tuple[float, float]
) -> FindingChange:
    """``is_shown``: whether the run that lacks it could have shown it; ``times``: of both per unit, 0 without steps."""
    step = max(times)
    if old is None or new is None:
        if not is_shown:
            return "cannot_tell"
        return "new" if old is None else "solved"
    # Of kernels it is a share of the window: it shrinks when the rest of the step grows, and nothing is better.
    if rule_of(old.kind).of_kernels and old.share is not None and new.share is not None and min(times) > 0:
        return _moved(old.share * times[0], new.share * times[1], _BY_STEP * step)
    if old.severity != new.severity:
        return "worse" if _RANK.get(new.severity, 0) > _RANK.get(old.severity, 0) else "better"
    if old.saving_ps_per_step is not None and new.saving_ps_per_step is not None:
        return _moved(old.saving_ps_per_step, new.saving_ps_per_step, _BY_STEP * step)
    if old.share is not None and new.share is not None:
        return _moved(old.share, new.share, _BY_STEP)
    return "unchanged"


def _moved(old: float, new: float, least: float) -> FindingChange:
    if abs(new - old) <= max(least, _BY_ITSELF * max(abs(old), abs(new))):
        return "unchanged"
    return "worse" if new > old else "better"
