"""Findings of two runs by kind: solved, new, better, worse, unchanged, or not to be told."""

from __future__ import annotations

from tb_gpu_doctor.comparison.results import FindingChange, FindingComparison
from tb_gpu_doctor.comparison.summary import FindingSum, RunSummary

# A cost changed when it moved by this part of itself and by this part of the step: findings are estimates.
_BY_ITSELF = 0.2
_BY_STEP = 0.01
_RANK = {"info": 0, "warning": 1, "critical": 2}
_ORDER: tuple[FindingChange, ...] = ("solved", "new", "worse", "better", "cannot_tell", "unchanged")


def compare_findings(before: RunSummary, after: RunSummary) -> tuple[FindingComparison, ...]:
    """All kinds that either run has.

    What one run alone shows is ``solved`` or ``new`` only where the other one's profile could have shown it; a profile
    without GPU data shows nothing.
    """
    ours, theirs = _by_kind(before), _by_kind(after)
    found = []
    for kind in [*ours, *(kind for kind in theirs if kind not in ours)]:
        old, new = ours.get(kind), theirs.get(kind)
        found.append(
            FindingComparison(
                kind=kind,
                change=_change(old, new, before, after),
                severity_before=old.severity if old else None,
                severity_after=new.severity if new else None,
                cost_before=old.saving_ps_per_step if old else None,
                cost_after=new.saving_ps_per_step if new else None,
                share_before=old.share if old else None,
                share_after=new.share if new else None,
                cause_before=old.cause if old else None,
                cause_after=new.cause if new else None,
            )
        )
    return tuple(sorted(found, key=lambda entry: _ORDER.index(entry.change)))


def _by_kind(summary: RunSummary) -> dict[str, FindingSum]:
    """The first, that is the costliest, finding of each kind."""
    found: dict[str, FindingSum] = {}
    for finding in summary.findings:
        found.setdefault(finding.kind, finding)
    return found


def _change(old: FindingSum | None, new: FindingSum | None, before: RunSummary, after: RunSummary) -> FindingChange:
    if old is None or new is None:
        blind = before if old is None else after
        if blind.verdict == "cannot_tell" and not blind.gpu_count:
            return "cannot_tell"
        return "new" if old is None else "solved"
    if old.severity != new.severity:
        return "worse" if _RANK.get(new.severity, 0) > _RANK.get(old.severity, 0) else "better"
    if old.saving_ps_per_step is not None and new.saving_ps_per_step is not None:
        step = max(before.mean_ps or 0.0, after.mean_ps or 0.0)
        return _moved(old.saving_ps_per_step, new.saving_ps_per_step, _BY_STEP * step)
    if old.share is not None and new.share is not None:
        return _moved(old.share, new.share, _BY_STEP)
    return "unchanged"


def _moved(old: float, new: float, least: float) -> FindingChange:
    if abs(new - old) <= max(least, _BY_ITSELF * max(abs(old), abs(new))):
        return "unchanged"
    return "worse" if new > old else "better"
