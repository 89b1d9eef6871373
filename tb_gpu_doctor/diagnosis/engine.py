"""Runs the rules over a session and draws the conclusion."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace

from tb_gpu_doctor.analysis.facts import FileFacts
from tb_gpu_doctor.analysis.filling import sm_efficiency
from tb_gpu_doctor.analysis.job import doubled_ranks, waits_in_windows
from tb_gpu_doctor.analysis.results import Cause, DeviceAccounting
from tb_gpu_doctor.diagnosis.context import Context, ref
from tb_gpu_doctor.diagnosis.merging import merge_findings
from tb_gpu_doctor.diagnosis.model import (
    SEVERITIES,
    Diagnosis,
    Finding,
    GpuRef,
    GpuReport,
    KernelReport,
    Phrase,
    StepsReport,
    Verdict,
)
from tb_gpu_doctor.diagnosis.rule import rules
from tb_gpu_doctor.diagnosis.rules import short_profile
from tb_gpu_doctor.diagnosis.telemetry_report import explain_slow_gpus, mark_inflated, noted_absences, report_telemetry
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.telemetry.joining import Joined

MAX_KERNELS = 50
_MAX_WARNINGS = 50
_MAX_RANKS = 16
# What file names end in behind the name of their worker.
_SUFFIX = re.compile(r"\.(?:xplane\.pb|(?:pt\.)?(?:trace\.)?json)(?:\.gz)?$")


def diagnose_files(
    files: Sequence[FileFacts],
    *,
    run: str = "",
    session: str = "",
    failures: Sequence[ProfileError] = (),
    thresholds: Thresholds | None = None,
    telemetry: Joined | None = None,
) -> Diagnosis:
    """The diagnosis of one session.

    Args:
        files: those that could be read.
        run: TensorBoard run, for the report.
        session: session name, for the report.
        failures: files that could not be read; the report lists them.
        thresholds: another table than the default one.
        telemetry: what was recorded of the GPUs of these files.
    """
    context = Context(tuple(files), thresholds or Thresholds(), telemetry or Joined())
    return diagnose_context(context, run=run, session=session, failures=failures)


def diagnose_context(
    context: Context, *, run: str = "", session: str = "", failures: Sequence[ProfileError] = ()
) -> Diagnosis:
    """As `diagnose_files`, for who wants to know afterwards what the rules have read, the job above all."""
    files = context.files
    findings = finish_findings(context, [f for rule in rules() if rule.beside_profile for f in rule.check(context)])
    unread = _unread(context, failures)
    reasons = (*_doubts(context, findings), *((unread,) if unread else ()))
    waits = _communication_waits(context)
    windows = [file.window.length for file in files if file.window is not None]
    recordings = [file.recorded[1] - file.recorded[0] for file in files if file.recorded is not None]
    return Diagnosis(
        verdict=_verdict(context, findings, reasons),
        reasons=reasons,
        run=run,
        session=session,
        format=files[0].format if files else "xplane",
        hosts=tuple(file.label for file in files),
        window=max(windows, default=None),
        recorded=max(recordings, default=None),
        warnings=_warnings(context, failures),
        incomplete=unread,
        gpus=tuple(
            _gpu(context, which, index, waits.get((which, index)))
            for which, file in enumerate(files)
            for index in range(len(file.gpus))
        ),
        steps=_steps(context),
        kernels=_kernels(files),
        findings=findings,
        telemetry=report_telemetry(context),
        what_if=context.what_if,
    )


def finish_findings(context: Context, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """What the rules found: joined where it is one story, with what telemetry adds, in order."""
    found = explain_slow_gpus(context, merge_findings(context, findings))
    ordered = order_findings(mark_inflated(context, found))  # by what is saved on the mean, whatever is shown
    return tuple(_of_typical_step(context, finding) for finding in ordered)


def _of_typical_step(context: Context, finding: Finding) -> Finding:
    saving = finding.saving_ps_per_step
    return finding if saving is None else replace(finding, saving_ps_per_step=context.of_typical_step(saving))


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
    if short_profile.proves_nothing(context):
        return "cannot_tell"
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
    parts = [file.label for file in context.files if file.cut]
    if parts:
        doubts.append(Phrase("report.doubts.part_of_file", {"hosts": tuple(parts[:_MAX_RANKS]), "count": len(parts)}))
    present = {finding.kind for finding in findings}
    doubts += [
        Phrase(f"findings.{rule.kind}.doubt") for rule in rules() if rule.proves_no_health and rule.kind in present
    ]
    if context.has_gpu_work and present & {"no_gpu_plane", "empty_gpu_plane"}:
        doubts.append(Phrase("report.doubts.some_hosts"))
    early = [file.early for file in context.files if file.early is not None]
    if early:
        facts = {"count": sum(e.count for e in early), "total": sum(e.total for e in early)}
        doubts.append(Phrase("report.doubts.early_work", {**facts, "longest": max(e.longest for e in early)}))
    limits = context.thresholds
    accounts = [gpu.account for gpu in context.working_gpus]
    if context.has_gpu_work and not accounts:
        doubts.append(Phrase("report.doubts.no_window"))
    untold = untold_parts(context, findings)
    share = sum(untold.values())
    if share > limits.untold:
        part = max(untold, key=untold.__getitem__)
        kind = part if part in ("communication", "transfer") else "idle"
        words = Phrase(f"report.causes.{part}") if kind == "idle" else Phrase(f"report.parts.{part}")
        doubts.append(Phrase(f"report.doubts.untold_{kind}", {"share": share, "part": words, "most": untold[part]}))
    return tuple(doubts)


def _unread(context: Context, failures: Sequence[ProfileError]) -> Phrase | None:
    """Which files of the session could not be read: a worker that nobody saw may be the one that is late."""
    if not failures:
        return None
    names = tuple(_SUFFIX.sub("", os.path.basename(error.path)) or error.path for error in failures[:_MAX_RANKS])
    names += ("…",) if len(failures) > _MAX_RANKS else ()
    facts = {"count": len(failures), "total": len(failures) + len(context.files), "hosts": names}
    return Phrase("report.doubts.files_missing", facts)


def untold_parts(context: Context, findings: Sequence[Finding]) -> dict[str, float]:
    """What part of the GPUs' windows is neither computing nor told by a finding that asks for a change.

    Returns:
        The share of the window by category or cause of idle time, mean over the GPUs that worked; 0..1, those with
        nothing left out. A GPU's part is told where a finding of severity warning or worse that accounts for it names
        the GPU as culprit or victim.
    """
    told: dict[GpuRef | None, set[str]] = {}
    asking = [part for finding in findings if finding.severity != "info" for part in (finding, *finding.absorbed)]
    for finding in asking:
        for concerned in (*finding.gpus, *finding.victims) or (None,):
            told.setdefault(concerned, set()).update(finding.rule.told_parts)
    found: dict[str, float] = {}
    gpus = context.working_gpus
    for gpu in gpus:
        account, known = gpu.account, told.get(gpu.ref, set()) | told.get(None, set())
        parts = {"communication": account.communication, "transfer": account.transfer}
        parts |= {cause.id: account.idle_of(cause) for cause in Cause}
        for part, time in parts.items():
            if time and part not in known:
                found[part] = found.get(part, 0.0) + time / account.wall / len(gpus)
    return found


def _warnings(context: Context, failures: Sequence[ProfileError]) -> tuple[str | Phrase, ...]:
    found: list[str | Phrase] = []
    missing = context.job.missing_ranks
    if missing:
        some = tuple(str(rank) for rank in missing[:_MAX_RANKS]) + (("…",) if len(missing) > _MAX_RANKS else ())
        found.append(Phrase("report.missing_ranks", {"ranks": some, "count": len(missing)}))
    for rank, count in list(doubled_ranks(context.files).items())[:_MAX_RANKS]:
        found.append(Phrase("report.doubled_rank", {"rank": str(rank), "count": count}))
    for shared in context.perhaps_one_gpu[:_MAX_RANKS]:
        names = {"labels": shared.labels[:_MAX_RANKS], "count": len(shared.labels)}
        found.append(Phrase("report.perhaps_one_gpu", {**names, "host": shared.host, "gpu": shared.number}))
    # behind the ranks: many bad files must not hide them
    for error in failures:
        found.append(Phrase("report.unreadable_file", {"error": error}))
    if not context.telemetry.gpus:
        found += noted_absences(context)
    found += _start_up(context)
    for file in context.files:
        found += file.errors
        found += file.warnings
        found += file.notes
    return tuple(found[:_MAX_WARNINGS])


def _start_up(context: Context) -> tuple[Phrase, ...]:
    """What was left out as start-up, of the file where that took longest."""
    every = [file.start_up for file in context.files if file.start_up is not None]
    if not every:
        return ()
    worst = max(every, key=lambda start: start.extra)
    count = len(worst.numbers)
    facts = {"count": count, "numbers": worst.numbers, "length": (worst.end - worst.start) / count}
    facts |= {"usual": worst.usual}
    found = [Phrase("report.start_up", facts)]
    if worst.delays and worst.delays[0].lost >= worst.extra / 2:
        most = worst.delays[0]
        named = {"cause": Phrase(f"report.causes.{most.cause.id}"), "lost": most.lost, "name": most.name}
        found.append(Phrase(f"report.start_up_{'in' if most.name else 'cause'}", named))
    return tuple(found)


def _gpu(context: Context, which: int, index: int, communication_wait: int | None) -> GpuReport:
    file = context.files[which]
    gpu = file.gpus[index]
    account, window = gpu.account, file.window
    if account is None and window is not None:
        # A GPU without events was idle throughout, and nothing in the profile says why.
        causes = tuple(window.length if cause is Cause.NO_EVIDENCE else 0 for cause in Cause)
        account = DeviceAccounting(index, window.length, 0, 0, 0, window.length, causes)
    return GpuReport(
        gpu=ref(file, index),
        rank=file.rank,
        name=gpu.device.name,
        wall=account.wall if account else None,
        compute=account.compute if account else None,
        communication=account.communication if account else None,
        communication_wait=communication_wait,
        transfer=account.transfer if account else None,
        idle=account.idle if account else None,
        idle_by_cause=account.idle_by_cause if account else None,
        occupancy=gpu.occupancy,
        achieved_occupancy=gpu.fill.achieved_occupancy if gpu.fill else None,
        sm_efficiency=sm_efficiency(gpu.fill, account) if gpu.fill else None,
    )


def _communication_waits(context: Context) -> dict[tuple[int, int], int]:
    """Time inside collectives before the last GPU of the job entered them, by file and GPU, where that is known."""
    found = waits_in_windows(context.files, context.job)
    for which, file in enumerate(context.files):
        if file.arrivals is not None:
            for device, wait in zip(file.arrivals.devices, file.arrivals.wait, strict=True):
                found.setdefault((which, device), wait)
    return found


def _steps(context: Context) -> StepsReport:
    sources = [file.steps.source for file in context.files]
    # Where no GPU is seen at work the host's markers still tell how fast steps come.
    counts = [file.steps.count if context.has_gpu_work else file.steps.paced for file in context.files]
    return StepsReport(
        count=max(counts, default=0),
        source="marked" if "marked" in sources else "inferred" if "inferred" in sources else "none",
        median=context.median_step if context.has_gpu_work else context.host_step,
        samples=context.batch,
    )


def _kernels(files: Sequence[FileFacts]) -> tuple[KernelReport, ...]:
    """The longest kernels over all GPUs and launch shapes; occupancy weighted by time where known."""
    calls: dict[str, int] = {}
    total: dict[str, int] = {}
    known: dict[str, int] = {}
    weighted: dict[str, float] = {}
    limiters: dict[str, dict[str, int]] = {}
    kinds: dict[str, tuple[str, str | None]] = {}
    for file in files:
        for row in file.kernels:
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
