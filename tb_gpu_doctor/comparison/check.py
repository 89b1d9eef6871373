"""Does a run pass: each limit judged by itself, and what cannot be judged never passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tb_gpu_doctor.analysis.results import CAUSE_IDS
from tb_gpu_doctor.analysis.step_costs import PART_IDS
from tb_gpu_doctor.comparison.bootstrap import LEAST_STEPS
from tb_gpu_doctor.comparison.compare import Batches, compare
from tb_gpu_doctor.comparison.findings import TELEMETRY_KINDS, could_show
from tb_gpu_doctor.comparison.limits import Limits
from tb_gpu_doctor.comparison.results import Comparison
from tb_gpu_doctor.comparison.summary import FindingSum, RunSummary
from tb_gpu_doctor.diagnosis.model import PROFILE_KINDS, SEVERITIES, Phrase
from tb_gpu_doctor.traces.columns import PS_PER_MS

Status = Literal["pass", "regression", "cannot_tell"]
EXIT_STATUS: dict[Status, int] = {"pass": 0, "regression": 1, "cannot_tell": 2}


_NOT_WORSE = ("unchanged", "better")
# Why a comparison may be inconclusive that still bounds the change.
_UNSURE = ("compare.reasons.small", "compare.reasons.noise")


@dataclass(frozen=True)
class CheckItem:
    """One limit: what it is called, how it went, and the sentence with the numbers.

    ``docs`` names the page that explains a finding, None for others.
    """

    id: str
    status: Status
    message: Phrase
    docs: str | None = None


@dataclass(frozen=True)
class CheckResult:
    """All limits; ``comparison`` is None without a baseline."""

    run: RunSummary
    items: tuple[CheckItem, ...]
    comparison: Comparison | None

    @property
    def status(self) -> Status:
        """A regression beats what cannot be told, which beats a pass; nothing checked is no pass."""
        found = {item.status for item in self.items}
        if "regression" in found:
            return "regression"
        return "cannot_tell" if "cannot_tell" in found or not found else "pass"


def check(
    run: RunSummary, limits: Limits, baseline: RunSummary | None = None, batches: Batches | None = None
) -> CheckResult:
    """Judge a run by limits and, where there is one, by a baseline."""
    comparison = None if baseline is None else compare(baseline, run, batches, limits.step_time_increase)
    items = [*_files(run), *_limits(run, limits), *_findings(run, limits, comparison)]
    if comparison is not None:
        items.insert(0, _step_time(comparison, limits.step_time_increase))
    return CheckResult(run, tuple(items), comparison)


def _step_time(comparison: Comparison, most: float) -> CheckItem:
    """The time against the baseline: only what is surely no slower by ``most`` passes."""
    status: Status = "cannot_tell"
    if comparison.outcome in ("faster", "same"):
        status = "pass"
    elif comparison.outcome == "slower":
        status = "regression"
    reason = comparison.obstacles[0] if comparison.outcome == "not_comparable" else comparison.reasons[0]
    change = comparison.change
    enough = min(len(comparison.before.wall_ps), len(comparison.after.wall_ps)) >= LEAST_STEPS
    if reason.key in _UNSURE and enough and change is not None and change.high < most:
        # Whether it is faster cannot be told, but that it is no slower can.
        status, reason = "pass", Phrase("compare.reasons.sure", reason.params)
    if change is None or comparison.time_before is None:
        return CheckItem("step_time", status, Phrase("check.step_time.unknown", {"reason": reason}))
    params = {
        "before": comparison.time_before,
        "after": comparison.time_after,
        "change": change.value,
        "reason": reason,
    }
    return CheckItem("step_time", status, Phrase(f"check.step_time.{comparison.unit}", params))


def _files(run: RunSummary) -> Iterator[CheckItem]:
    """What was not read was not checked."""
    if run.unread:
        yield CheckItem("files", "cannot_tell", Phrase("check.unread", {"count": run.unread}))


def _limits(run: RunSummary, limits: Limits) -> Iterator[CheckItem]:
    if limits.step_time_ms is not None:
        yield _absolute_step(run, limits.step_time_ms)
    shares = dict(zip(PART_IDS, run.window_parts.tolist(), strict=True))
    known = run.window_ps > 0
    if limits.idle_share is not None:
        idle = sum(shares[cause] for cause in CAUSE_IDS) if known else None
        yield _most("idle_share", idle, limits.idle_share, Phrase("check.names.idle"))
    for cause, most in limits.idle_by_cause.items():
        value = shares[cause] if known else None
        name = Phrase("check.names.idle_by", {"cause": Phrase(f"report.causes.{cause}")})
        yield _most(f"idle.{cause}", value, most, name)
    if limits.waiting_share is not None:
        # Communication that could not be matched between GPUs may be waiting or not.
        unsure = shares["communication_unsplit"] > 0
        value = shares["communication_wait"] if known else None
        if value is not None and unsure and value <= limits.waiting_share < value + shares["communication_unsplit"]:
            value = None
        yield _most("waiting_share", value, limits.waiting_share, Phrase("check.names.waiting"))
    if limits.occupancy is not None:
        if run.occupancy is None:
            yield CheckItem(
                "occupancy", "cannot_tell", Phrase("check.unknown", {"name": Phrase("check.names.occupancy")})
            )
        else:
            status: Status = "pass" if run.occupancy >= limits.occupancy else "regression"
            params = {"name": Phrase("check.names.occupancy"), "value": run.occupancy, "limit": limits.occupancy}
            yield CheckItem("occupancy", status, Phrase("check.at_least", params))


def _absolute_step(run: RunSummary, most_ms: float) -> CheckItem:
    if run.mean_ps is None or len(run.wall_ps) < LEAST_STEPS:
        params = {"count": run.step_count, "least": LEAST_STEPS}
        return CheckItem("step_time_ms", "cannot_tell", Phrase("check.few_steps", params))
    status: Status = "pass" if run.mean_ps <= most_ms * PS_PER_MS else "regression"
    numbers = {"value": run.mean_ps, "limit": most_ms * PS_PER_MS}
    return CheckItem("step_time_ms", status, Phrase("check.step_limit", numbers))


def _most(ident: str, value: float | None, most: float, name: Phrase) -> CheckItem:
    if value is None:
        return CheckItem(ident, "cannot_tell", Phrase("check.unknown", {"name": name}))
    status: Status = "pass" if value <= most else "regression"
    return CheckItem(ident, status, Phrase("check.at_most", {"name": name, "value": value, "limit": most}))


def _findings(run: RunSummary, limits: Limits, comparison: Comparison | None) -> Iterator[CheckItem]:
    """One item for each finding that fails; one that says so where none does."""
    failed = 0
    old = None if comparison is None else comparison.before
    # What was a remark and is a fault now is new as well.
    known = {finding.kind for finding in old.findings if finding.severity in limits.new_findings} if old else set()
    # ... unless it costs no more than then, as kernels do that are a larger part of steps that became shorter.
    harmless = {entry.kind for entry in comparison.findings if entry.change in _NOT_WORSE} if comparison else set()
    for finding in _once(run.findings):
        if finding.kind in limits.allowed:
            continue
        # What is told as a part of another finding weighs as much as that one, unless that one is allowed.
        is_own = finding.part_of is None or finding.part_of in limits.allowed
        if (finding.severity in limits.severities and is_own) or finding.kind in limits.kinds:
            key = "check.finding"
        elif old is not None and finding.kind not in known | harmless and finding.severity in limits.new_findings:
            if not could_show(finding.kind, old, run):
                failed += 1
                name = Phrase(f"compare.kinds.{finding.kind}")
                yield CheckItem(
                    f"findings.{finding.kind}", "cannot_tell", Phrase("check.baseline_blind", {"name": name})
                )
                continue
            key = "check.new_finding"
        else:
            continue
        failed += 1
        yield CheckItem(f"findings.{finding.kind}", "regression", _finding(key, finding), f"findings/{finding.kind}")
    found = {finding.kind for finding in run.findings}
    for kind in limits.kinds:
        if kind in limits.allowed or kind in found:
            continue
        name = Phrase(f"compare.kinds.{kind}")
        if kind in run.doubts:
            failed += 1
            yield CheckItem(
                f"findings.{kind}", "regression", Phrase("check.about_profile", {"name": name}), f"findings/{kind}"
            )
        elif kind not in PROFILE_KINDS and (kind in TELEMETRY_KINDS or run.gpu_count) and not could_show(kind, run):
            failed += 1
            key = "check.no_telemetry" if kind in TELEMETRY_KINDS else "check.not_shown"
            if kind == "low_utilization" and run.format != "telemetry":
                key = "check.profile_knows_better"
            yield CheckItem(f"findings.{kind}", "cannot_tell", Phrase(key, {"name": name}))
    if failed:
        return
    if not run.gpu_count and not run.doubts:
        yield CheckItem("findings", "cannot_tell", Phrase("compare.obstacles.no_gpu_work", {"runs": [run.label]}))
    elif run.verdict == "cannot_tell":
        doubts = [Phrase(f"compare.kinds.{kind}") for kind in run.doubts]
        key = "check.cannot_tell_because" if doubts else "check.cannot_tell"
        yield CheckItem("findings", "cannot_tell", Phrase(key, {"reason": doubts[0]} if doubts else {}))
    else:
        yield CheckItem("findings", "pass", Phrase("check.no_findings"))


def _once(findings: Sequence[FindingSum]) -> Iterator[FindingSum]:
    """One finding of each kind and of each that it is a part of: the loudest, of these the costliest."""
    worst: dict[tuple[str, str | None], FindingSum] = {}

    def weight(finding: FindingSum) -> tuple[int, float]:
        return -SEVERITIES.index(finding.severity), finding.saving_ps_per_step or 0.0

    for finding in findings:
        key = (finding.kind, finding.part_of)
        if key not in worst or weight(finding) > weight(worst[key]):
            worst[key] = finding
    yield from worst.values()


def _finding(key: str, finding: FindingSum) -> Phrase:
    name = Phrase(f"compare.kinds.{finding.kind}")
    severity = Phrase(f"report.severities.{finding.severity}")
    if finding.saving_ps_per_step is not None:
        return Phrase(f"{key}_cost", {"name": name, "severity": severity, "cost": finding.saving_ps_per_step})
    return Phrase(key, {"name": name, "severity": severity})
