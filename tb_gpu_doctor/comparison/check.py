"""Does a run pass: each limit judged by itself, and what cannot be judged never passes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tb_gpu_doctor.analysis.results import CAUSE_IDS
from tb_gpu_doctor.analysis.step_costs import PART_IDS
from tb_gpu_doctor.comparison.bootstrap import LEAST_STEPS
from tb_gpu_doctor.comparison.compare import Batches, Comparison, compare, could_show
from tb_gpu_doctor.comparison.summary import FindingSum, RunSummary
from tb_gpu_doctor.diagnosis.model import SEVERITIES, Phrase
from tb_gpu_doctor.diagnosis.rule import rule_of
from tb_gpu_doctor.errors import DocumentError
from tb_gpu_doctor.files.addresses import scheme_of
from tb_gpu_doctor.traces.columns import PS_PER_MS

Failure = Literal["regression", "finding", "limit_exceeded"]
Status = Literal["pass", "regression", "finding", "limit_exceeded", "cannot_tell"]
# What fails a check, the weightiest first: worse than the baseline, a finding that is not allowed, a limit.
FAILURES: tuple[Failure, ...] = ("regression", "finding", "limit_exceeded")
EXIT_STATUS: dict[Status, int] = {"pass": 0, "regression": 1, "finding": 1, "limit_exceeded": 1, "cannot_tell": 2}
DEFAULT_FILE = "gpu-doctor.toml"
_MAX_BYTES = 1 << 20
_NOT_WORSE = ("unchanged", "better")
# Why a comparison may be inconclusive that still bounds the change.
_UNSURE = ("compare.reasons.small", "compare.reasons.noise")


@dataclass(frozen=True)
class Limits:
    """Limits of a check; None checks nothing.

    Attributes:
        step_time_ms: longest mean step.
        step_time_increase: largest relative increase of the mean step over the baseline, 0.05 is 5 %; above zero.
        idle_share: largest share of the window that GPUs may be idle, mean over them.
        idle_by_cause: the same by cause.
        waiting_share: largest share of the window that GPUs may wait for one another.
        occupancy: least occupancy, weighted by time.
        severities: findings of these fail, even if the baseline has them; None: critical ones that it lacks.
        kinds: findings of these kinds fail whatever their severity.
        allowed: findings of these kinds never fail.
        new_findings: findings of these severities fail if the baseline lacks their kind at such a severity.
        baseline: file or logdir to compare with, as the file names it.
    """

    step_time_ms: float | None = None
    step_time_increase: float = 0.05
    idle_share: float | None = None
    idle_by_cause: Mapping[str, float] = field(default_factory=dict)
    waiting_share: float | None = None
    occupancy: float | None = None
    severities: tuple[str, ...] | None = None
    kinds: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    new_findings: tuple[str, ...] = ("critical", "warning")
    baseline: str | None = None


def read_limits(path: str, known_kinds: frozenset[str]) -> Limits:
    """Read a TOML file; unknown names are errors, since a misspelt limit would check nothing.

    Raises:
        DocumentError: ``unreadable_file``, ``bad_toml``, ``unknown_setting``, ``bad_setting`` or ``bad_share``.
    """
    content = _read(path)
    sections: dict[str, dict[str, Any]] = {}
    for name, value in content.items():
        if name not in ("check", "limits", "findings") or not isinstance(value, dict):
            raise DocumentError("unknown_setting", path, name=name, known=["[check]", "[limits]", "[findings]"])
        sections[name] = dict(value)
    check, limits, findings = (sections.get(name, {}) for name in ("check", "limits", "findings"))
    idle = limits.pop("idle", {})
    if not isinstance(idle, dict):
        raise DocumentError("bad_setting", path, name="limits.idle", value=str(idle))
    _only(path, "check", check, ("baseline",))
    numbers = ("step_time_ms", "step_time_increase", "idle_share", "waiting_share", "occupancy")
    _only(path, "limits", limits, numbers, "idle")
    _only(path, "limits.idle", idle, CAUSE_IDS)
    _only(path, "findings", findings, ("severities", "kinds", "allowed", "new"))
    baseline = check.get("baseline")
    if baseline is not None:
        if not isinstance(baseline, str):
            raise DocumentError("bad_setting", path, name="[check] baseline", value=str(baseline))
        if scheme_of(baseline) is None:
            baseline = os.path.join(os.path.dirname(os.path.abspath(path)), baseline)
    values: dict[str, Any] = {
        name: _number(path, f"limits.{name}", value, maximum=1e15 if name == "step_time_ms" else 1.0)
        for name, value in limits.items()
    }
    if values.get("step_time_increase") == 0:
        # No measurement shows that nothing changed at all: every check would end as "cannot tell".
        raise DocumentError("bad_setting", path, name="limits.step_time_increase", value="0")
    for setting, name, allowed in (
        ("severities", "severities", frozenset(SEVERITIES)),
        ("kinds", "kinds", known_kinds),
        ("allowed", "allowed", known_kinds),
        ("new", "new_findings", frozenset(SEVERITIES)),
    ):
        if setting in findings:
            values[name] = _names(path, f"findings.{setting}", findings[setting], allowed)
    return Limits(
        baseline=baseline,
        idle_by_cause={
            cause: _number(path, f"limits.idle.{cause}", value, maximum=1.0) for cause, value in idle.items()
        },
        **values,
    )


def _read(path: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise DocumentError("unreadable_file", path, reason=error.strerror or str(error)) from error
    if len(content) > _MAX_BYTES:
        raise DocumentError("bad_toml", path, reason=f"> {_MAX_BYTES} bytes")
    try:
        return tomllib.loads(content.decode("utf-8-sig"))  # some editors begin with a mark
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise DocumentError("bad_toml", path, reason=str(error)) from error


def _only(path: str, section: str, found: Mapping[str, Any], known: tuple[str, ...], *tables: str) -> None:
    """Refuse other names than the ``known`` ones; ``tables`` have been taken out and are known as well."""
    for name in found:
        if name not in known:
            raise DocumentError("unknown_setting", path, name=f"{section}.{name}", known=[*known, *tables])


def _number(path: str, name: str, value: Any, maximum: float) -> float:
    """A share above 1 is meant as percent, and would never be exceeded."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= maximum:
        is_percent = maximum == 1.0 and isinstance(value, int | float) and 1 < value <= 100
        raise DocumentError("bad_share" if is_percent else "bad_setting", path, name=name, value=str(value))
    return float(value)


def _names(path: str, setting: str, value: Any, known: frozenset[str]) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise DocumentError("bad_setting", path, name=setting, value=str(value))
    for name in value:
        if not isinstance(name, str) or name not in known:
            raise DocumentError("bad_setting", path, name=setting, value=str(name))
    return tuple(value)


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
        """The weightiest failure, else what cannot be told, else a pass; nothing checked is no pass."""
        found = {item.status for item in self.items}
        for failure in FAILURES:
            if failure in found:
                return failure
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


def _step_time(comparison: Comparison, maximum: float) -> CheckItem:
    """The time against the baseline: only what is surely no slower by ``maximum`` passes."""
    status: Status = "cannot_tell"
    if comparison.outcome in ("faster", "same"):
        status = "pass"
    elif comparison.outcome == "slower":
        status = "regression"
    reason = comparison.obstacles[0] if comparison.outcome == "not_comparable" else comparison.reasons[0]
    change = comparison.change
    enough = min(len(comparison.before.wall_ps), len(comparison.after.wall_ps)) >= LEAST_STEPS
    if reason.key in _UNSURE and enough and change is not None and change.high < maximum:
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
    if run.cut:
        yield CheckItem("cut_files", "cannot_tell", Phrase("check.cut", {"count": run.cut}))


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
            status: Status = "pass" if run.occupancy >= limits.occupancy else "limit_exceeded"
            params = {"name": Phrase("check.names.occupancy"), "value": run.occupancy, "limit": limits.occupancy}
            yield CheckItem("occupancy", status, Phrase("check.at_least", params))


def _absolute_step(run: RunSummary, most_ms: float) -> CheckItem:
    if run.mean_ps is None or len(run.wall_ps) < LEAST_STEPS:
        params = {"count": run.step_count, "least": LEAST_STEPS}
        return CheckItem("step_time_ms", "cannot_tell", Phrase("check.few_steps", params))
    status: Status = "pass" if run.mean_ps <= most_ms * PS_PER_MS else "limit_exceeded"
    numbers = {"value": run.mean_ps, "limit": most_ms * PS_PER_MS}
    return CheckItem("step_time_ms", status, Phrase("check.step_limit", numbers))


def _most(ident: str, value: float | None, maximum: float, name: Phrase) -> CheckItem:
    if value is None:
        return CheckItem(ident, "cannot_tell", Phrase("check.unknown", {"name": name}))
    status: Status = "pass" if value <= maximum else "limit_exceeded"
    return CheckItem(ident, status, Phrase("check.at_most", {"name": name, "value": value, "limit": maximum}))


def _findings(run: RunSummary, limits: Limits, comparison: Comparison | None) -> Iterator[CheckItem]:
    """One item for each finding that fails; one that says so where none does."""
    failed = 0
    old = None if comparison is None else comparison.before
    # What was a remark and is a fault now is new as well.
    known = {finding.kind for finding in old.findings if finding.severity in limits.new_findings} if old else set()
    # ... unless it costs no more than then, as kernels do that are a larger part of steps that became shorter.
    changes = {entry.kind: entry.change for entry in comparison.findings} if comparison else {}
    harmless = {kind for kind, change in changes.items() if change in _NOT_WORSE}
    before = {finding.kind for finding in old.findings} if old else set()
    for finding in _once(run.findings):
        if finding.kind in limits.allowed:
            continue
        # What is told as a part of another finding weighs as much as that one, unless that one is allowed.
        is_own = finding.part_of is None or finding.part_of in limits.allowed
        ident, page = f"findings.{finding.kind}", f"findings/{finding.kind}"
        status: Status = "finding"
        if finding.kind in limits.kinds or (is_own and finding.severity in (limits.severities or ())):
            key = "check.finding"
        elif is_own and limits.severities is None and finding.severity == "critical":
            key = "check.finding"
            if finding.kind in before:
                if changes[finding.kind] != "worse":
                    yield CheckItem(ident, "pass", _finding("check.known_finding", finding), page)
                    continue
                key, status = "check.worse_finding", "regression"
            elif old is not None and could_show(finding.kind, old, run):
                key, status = "check.new_finding", "regression"
        elif old is not None and finding.kind not in known | harmless and finding.severity in limits.new_findings:
            if not could_show(finding.kind, old, run):
                failed += 1
                name = Phrase(f"findings.{finding.kind}.name")
                yield CheckItem(ident, "cannot_tell", Phrase("check.baseline_blind", {"name": name}))
                continue
            key, status = "check.new_finding", "regression"
        else:
            continue
        failed += 1
        yield CheckItem(ident, status, _finding(key, finding), page)
    absent = list(_named_kinds(run, limits))
    yield from absent
    if not failed and not absent:
        yield from _without_findings(run)


def _named_kinds(run: RunSummary, limits: Limits) -> Iterator[CheckItem]:
    """One item for each kind that the limits name, that was not found, and that the run could not have shown."""
    found = {finding.kind for finding in run.findings}
    for kind in limits.kinds:
        if kind in limits.allowed or kind in found:
            continue
        name, rule = Phrase(f"findings.{kind}.name"), rule_of(kind)
        if kind in run.doubts:
            yield CheckItem(
                f"findings.{kind}", "finding", Phrase("check.about_profile", {"name": name}), f"findings/{kind}"
            )
        elif rule.about != "profile" and (rule.about == "telemetry" or run.gpu_count) and not could_show(kind, run):
            key = "check.no_telemetry" if rule.about == "telemetry" else "check.not_shown"
            if not rule.beside_profile and run.format != "telemetry":
                key = "check.profile_knows_better"
            yield CheckItem(f"findings.{kind}", "cannot_tell", Phrase(key, {"name": name}))


def _without_findings(run: RunSummary) -> Iterator[CheckItem]:
    """What a run is that fails by none of its findings: it passes where it could have had any."""
    doubts = [Phrase(f"findings.{kind}.name") for kind in run.doubts]
    if not run.gpu_count and not doubts:
        yield CheckItem("findings", "cannot_tell", Phrase("compare.obstacles.no_gpu_work", {"runs": [run.label]}))
    elif run.verdict != "cannot_tell":
        yield CheckItem("findings", "pass", Phrase("check.no_findings"))
    elif doubts:
        yield CheckItem("findings", "cannot_tell", Phrase("check.cannot_tell_because", {"reason": doubts[0]}))
    elif not run.unread and not run.cut:  # which `_files` has said
        yield CheckItem("findings", "cannot_tell", Phrase("check.cannot_tell"))


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
    name = Phrase(f"findings.{finding.kind}.name")
    severity = Phrase(f"report.severities.{finding.severity}")
    if finding.saving_ps_per_step is not None:
        return Phrase(f"{key}_cost", {"name": name, "severity": severity, "cost": finding.saving_ps_per_step})
    return Phrase(key, {"name": name, "severity": severity})
