"""Runs the rules over a session and draws the conclusion."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tb_gpu_doctor.analysis.filling import sm_efficiency
from tb_gpu_doctor.analysis.results import Cause, DeviceAccounting, Window
from tb_gpu_doctor.diagnosis.asking import ask
from tb_gpu_doctor.diagnosis.context import Context, HostProfile
from tb_gpu_doctor.diagnosis.merging import merge_findings
from tb_gpu_doctor.diagnosis.model import (
    SEVERITIES,
    Diagnosis,
    Finding,
    GpuReport,
    KernelReport,
    Phrase,
    StepsReport,
    Verdict,
)
from tb_gpu_doctor.diagnosis.registry import rules
from tb_gpu_doctor.diagnosis.step_gains import together
from tb_gpu_doctor.diagnosis.telemetry_marks import explain_slow_gpus, mark_inflated
from tb_gpu_doctor.diagnosis.telemetry_report import report_telemetry
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.telemetry.joining import Joined
from tb_gpu_doctor.traces.columns import PART, Int64

MAX_KERNELS = 50
_MAX_WARNINGS = 50
_MAX_RANKS = 16


def diagnose_profiles(
    profiles: Sequence[HostProfile],
    *,
    run: str = "",
    session: str = "",
    failures: Sequence[ProfileError] = (),
    thresholds: Thresholds | None = None,
    telemetry: Joined | None = None,
) -> Diagnosis:
    """The diagnosis of one session.

    Args:
        profiles: one per file that could be read.
        run: TensorBoard run, for the report.
        session: session name, for the report.
        failures: files that could not be read; the report lists them.
        thresholds: another table than the default one.
        telemetry: what was recorded of the GPUs of these profiles.
    """
    context = Context(tuple(profiles), thresholds or Thresholds(), telemetry or Joined())
    return diagnose_context(context, run=run, session=session, failures=failures)


def diagnose_context(
    context: Context, *, run: str = "", session: str = "", failures: Sequence[ProfileError] = ()
) -> Diagnosis:
    """As `diagnose_profiles`, for who wants to know afterwards what the rules have read, the job above all."""
    context = together(context)
    profiles = context.profiles
    findings = finish_findings(context, [f for rule in rules() if rule.beside_profile for f in rule.check(context)])
    reasons = _doubts(context, findings)
    waits = _communication_waits(context)
    windows = [p.analysis.window.length for p in profiles if p.analysis.window is not None]
    recordings = [p.analysis.recorded[1] - p.analysis.recorded[0] for p in profiles if p.analysis.recorded is not None]
    return Diagnosis(
        verdict=_verdict(context, findings, reasons),
        reasons=reasons,
        run=run,
        session=session,
        format=profiles[0].trace.format if profiles else "xplane",
        hosts=tuple(profile.label for profile in profiles),
        window=max(windows, default=None),
        recorded=max(recordings, default=None),
        warnings=_warnings(context, failures),
        gpus=tuple(
            _gpu(context, which, index, waits.get((which, index)))
            for which, profile in enumerate(profiles)
            for index in range(len(profile.trace.devices))
        ),
        steps=_steps(context),
        kernels=_kernels(profiles),
        findings=findings,
        telemetry=report_telemetry(context),
    )


def finish_findings(context: Context, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """What the rules found: joined where it is one story, with what telemetry adds, in order."""
    found = explain_slow_gpus(context, merge_findings(context.unclaimed, findings))
    return order_findings(mark_inflated(context, found))


def order_findings(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """What costs time first, by saving per step, then share; then occupancy, then the profile's own."""

    def rank(finding: Finding) -> tuple[float, ...]:
        saving, share = finding.saving_ps_per_step or 0.0, finding.share or 0.0
        if finding.rule.lengthens_steps:
            return (0, -saving, -share)
        behind = finding.rule.remarks_last and finding.severity == "info"
        return (1, finding.is_about_profile, SEVERITIES.index(finding.severity), behind, -share)

    return tuple(sorted(findings, key=rank))


def _verdict(context: Context, findings: Sequence[Finding], doubts: Sequence[Phrase]) -> Verdict:
    """The worst thing that is wrong with the run; what the profile lacks only takes the ``ok`` away."""
    severities = {finding.severity for finding in findings if not finding.is_about_profile}
    if "critical" in severities:
        return "critical"
    if "warning" in severities:
        return "warning"
    return "cannot_tell" if doubts else "ok"


def _doubts(context: Context, findings: Sequence[Finding]) -> tuple[Phrase, ...]:
    """Why a profile without findings still is no proof of health."""
    doubts = []
    if not context.has_gpu_work:
        doubts.append(Phrase("report.doubts.no_gpu_data"))
    parts = [p.label for p in context.profiles if any(note.key == PART for note in p.trace.notes)]
    if parts:
        doubts.append(Phrase("report.doubts.part_of_file", {"hosts": tuple(parts[:_MAX_RANKS]), "count": len(parts)}))
    present = {finding.kind for finding in findings}
    doubts += [
        Phrase(f"findings.{rule.kind}.doubt") for rule in rules() if rule.proves_no_health and rule.kind in present
    ]
    if context.has_gpu_work and present & {"no_gpu_plane", "empty_gpu_plane"}:
        doubts.append(Phrase("report.doubts.some_hosts"))
    early = [profile.analysis.early for profile in context.profiles if profile.analysis.early is not None]
    if early:
        facts = {"count": sum(e.count for e in early), "total": sum(e.total for e in early)}
        doubts.append(Phrase("report.doubts.early_work", {**facts, "longest": max(e.longest for e in early)}))
    limits = context.thresholds
    accounts = [account.accounting for account in context.accounts()]
    if context.has_gpu_work and not accounts:
        doubts.append(Phrase("report.doubts.no_window"))
    if accounts:
        idle = float(np.mean([account.idle / account.wall for account in accounts]))
        unexplained = float(np.mean([account.idle_of(Cause.NO_EVIDENCE) / account.wall for account in accounts]))
        if idle >= limits.idle_critical and unexplained >= limits.idle_unexplained * idle:
            doubts.append(Phrase("report.doubts.unexplained_idle", {"idle": idle, "unexplained": unexplained}))
        elif idle >= limits.idle_critical and not any(finding.rule.lengthens_steps for finding in findings):
            causes = np.mean([np.array(account.idle_by_cause) / account.wall for account in accounts], axis=0)
            cause = Phrase(f"report.causes.{Cause(int(np.argmax(causes))).id}")
            doubts.append(Phrase("report.doubts.idle_without_finding", {"idle": idle, "cause": cause}))
    return tuple(doubts)


def _warnings(context: Context, failures: Sequence[ProfileError]) -> tuple[str | Phrase, ...]:
    found: list[str | Phrase] = []
    missing = context.job.missing_ranks
    if missing:
        some = tuple(str(rank) for rank in missing[:_MAX_RANKS]) + (("…",) if len(missing) > _MAX_RANKS else ())
        found.append(Phrase("report.missing_ranks", {"ranks": some, "count": len(missing)}))
    # behind the ranks: many bad files must not hide them
    for error in failures:
        found.append(Phrase("report.unreadable_file", {"error": error}))
    for profile in context.profiles:
        found += profile.trace.errors
        found += profile.trace.warnings
        found += profile.trace.notes
    return tuple(found[:_MAX_WARNINGS])


def _gpu(context: Context, which: int, index: int, communication_wait: int | None) -> GpuReport:
    profile = context.profiles[which]
    device = profile.trace.devices[index]
    account = next((a for a in profile.analysis.accounting if a.device == index), None)
    window = profile.analysis.window
    if account is None and window is not None:
        # A GPU without events was idle throughout, and nothing in the profile says why.
        causes = tuple(window.length if cause is Cause.NO_EVIDENCE else 0 for cause in Cause)
        account = DeviceAccounting(index, window.length, 0, 0, 0, window.length, causes)
    occupancy, fills = profile.analysis.kernels.occupancy, profile.analysis.kernels.fills
    fill = fills[index] if index < len(fills) else None
    return GpuReport(
        gpu=profile.ref(index),
        rank=profile.trace.rank,
        name=device.name,
        wall=account.wall if account else None,
        compute=account.compute if account else None,
        communication=account.communication if account else None,
        communication_wait=communication_wait,
        transfer=account.transfer if account else None,
        idle=account.idle if account else None,
        idle_by_cause=account.idle_by_cause if account else None,
        occupancy=occupancy[index] if index < len(occupancy) else None,
        achieved_occupancy=fill.achieved_occupancy if fill else None,
        sm_efficiency=sm_efficiency(fill, account) if fill else None,
    )


def _communication_waits(context: Context) -> dict[tuple[int, int], int]:
    """Time inside collectives before the last GPU of the job entered them, by file and GPU, where that is known."""
    found: dict[tuple[int, int], int] = {}
    profiles, job = context.profiles, context.job.lateness
    if job is not None and bool(np.ptp(job.collectives.trace)):
        gpus = zip(job.collectives.trace.tolist(), job.collectives.device.tolist(), strict=True)
        for column, (which, device) in enumerate(gpus):
            window = profiles[which].analysis.window
            if window is not None:
                found[which, device] = _inside(window, job.collectives.start[:, column], job.wait[:, column])
    asked = []
    for which, profile in enumerate(profiles):
        lateness = profile.analysis.lateness
        if lateness is not None and any((which, device) not in found for device in lateness.devices.tolist()):
            asked.append(which)
    answers = ask(_waits_of_file, [(profiles[which],) for which in asked])
    for which, waits in zip(asked, answers, strict=True):
        for device, wait in waits.items():
            found.setdefault((which, device), wait)
    return found


def _waits_of_file(profile: HostProfile) -> dict[int, int]:
    """The same by GPU, for the collectives among the GPUs of one file."""
    window, lateness = profile.analysis.window, profile.analysis.lateness
    if window is None or lateness is None:
        return {}
    return {
        device: _inside(window, lateness.start[:, column], lateness.wait[:, column])
        for column, device in enumerate(lateness.devices.tolist())
    }


def _inside(window: Window, start: Int64, wait: Int64) -> int:
    return int(np.maximum(0, np.minimum(start + wait, window.end) - np.maximum(start, window.start)).sum())


def _steps(context: Context) -> StepsReport:
    sources = [profile.analysis.steps.source for profile in context.profiles]
    counts = [profile.analysis.steps.count for profile in context.profiles]
    return StepsReport(
        count=max(counts, default=0),
        source="marked" if "marked" in sources else "inferred" if "inferred" in sources else "none",
        median=context.median_step,
    )


def _kernels(profiles: Sequence[HostProfile]) -> tuple[KernelReport, ...]:
    """The longest kernels over all GPUs and launch shapes; occupancy weighted by time where known."""
    calls: dict[str, int] = {}
    total: dict[str, int] = {}
    known: dict[str, int] = {}
    weighted: dict[str, float] = {}
    limiters: dict[str, dict[str, int]] = {}
    kinds: dict[str, tuple[str, str | None]] = {}
    for profile in profiles:
        for row in profile.analysis.kernels.rows:
            calls[row.name] = calls.get(row.name, 0) + row.calls
            total[row.name] = total.get(row.name, 0) + row.total_ps
            kinds.setdefault(row.name, (row.family, row.tensor_cores))
            if row.occupancy is not None:
                known[row.name] = known.get(row.name, 0) + row.total_ps
                weighted[row.name] = weighted.get(row.name, 0.0) + row.occupancy * row.total_ps
            if row.limiter is not None:
                votes = limiters.setdefault(row.name, {})
                votes[row.limiter] = votes.get(row.limiter, 0) + row.total_ps
    longest = sorted(total, key=lambda name: (-total[name], name))[:MAX_KERNELS]
    return tuple(
        KernelReport(
            name=name,
            calls=calls[name],
            total=total[name],
            occupancy=weighted[name] / known[name] if known.get(name) else None,
            limiter=max(limiters[name], key=limiters[name].__getitem__) if name in limiters else None,
            family=kinds[name][0],
            tensor_cores=kinds[name][1],
        )
        for name in longest
    )
