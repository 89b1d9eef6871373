"""Findings of two runs by kind: solved, new, better, worse, unchanged, or not to be told."""

from __future__ import annotations

from dataclasses import replace

from tb_gpu_doctor.comparison.results import FindingChange, FindingComparison
from tb_gpu_doctor.comparison.summary import FindingSum, RunSummary

# A cost changed when it moved by this part of itself and by this part of the step: findings are estimates.
_BY_ITSELF = 0.2
_BY_STEP = 0.01
# What telemetry tells (of memory, a profile may tell as well).
TELEMETRY_KINDS = frozenset(
    ("thermal_throttle", "power_throttle", "memory_headroom", "memory_pressure", "low_utilization", "gpu_shared",
     "pcie_degraded")
)  # fmt: skip
# Their share is that of kernels in the window: it shrinks when the rest of the step grows, and nothing is better.
_OF_KERNELS = frozenset(("low_occupancy", "underfilled_gpu", "tensor_cores_unused"))
_RANK = {"info": 0, "warning": 1, "critical": 2}
_ORDER: tuple[FindingChange, ...] = ("solved", "new", "worse", "better", "cannot_tell", "unchanged")


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
    if kind == "low_utilization":  # silent beside a profile, which knows better
        return run.format == "telemetry"
    if kind in TELEMETRY_KINDS and (run.telemetry or other is None or other.telemetry):
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
    if old.kind in _OF_KERNELS and old.share is not None and new.share is not None and min(times) > 0:
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
