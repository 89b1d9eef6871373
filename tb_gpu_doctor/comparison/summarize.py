"""From a diagnosed session to its `RunSummary`: what each file tells, put together over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.job import NO_MEETINGS, Job, Meetings
from tb_gpu_doctor.analysis.kernels import UNKNOWN, parse_kernel_details
from tb_gpu_doctor.analysis.step_costs import PART_IDS, step_parts, window_parts
from tb_gpu_doctor.analysis.steps import order_of_steps, step_keys
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis, outline_of
from tb_gpu_doctor.comparison.summary import FindingSum, Float64, KernelSum, RunSummary, fold_kernels, fold_steps
from tb_gpu_doctor.diagnosis.asking import ask
from tb_gpu_doctor.diagnosis.context import HostProfile
from tb_gpu_doctor.diagnosis.model import Diagnosis, Finding
from tb_gpu_doctor.diagnosis.registry import rules
from tb_gpu_doctor.diagnosis.rule import Fact
from tb_gpu_doctor.diagnosis.rules.step_outliers import Limits as OutlierLimits
from tb_gpu_doctor.telemetry.joining import Joined
from tb_gpu_doctor.telemetry.step_times import global_batch
from tb_gpu_doctor.traces.columns import PART, PS_PER_MS, CopyKind, EventClass, Int64, Trace

_Shape = tuple[int, int, int] | None
# A kernel's name, grid and block.
KernelKey = tuple[str, _Shape, _Shape]


@dataclass(frozen=True)
class FileParts:
    """One file in short.

    Attributes:
        steps: of each GPU the length of each complete step and its parts, see `step_parts`; none where the
            file's steps do not count.
        windows: of each GPU that worked in its window: device, and the window's parts, see `window_parts`.
        kernels: calls and time of each kernel, in the ``units``.
        units: how many steps of a GPU, or milliseconds of its window, the kernels were counted in.
    """

    steps: tuple[tuple[Int64, Int64], ...]
    windows: tuple[tuple[int, Int64], ...]
    kernels: dict[KernelKey, tuple[int, float]]
    units: float


def summarize(
    diagnosis: Diagnosis,
    traces: Sequence[Trace],
    analyses: Sequence[TraceAnalysis],
    job: Job,
    telemetry: Joined,
    label: str,
) -> RunSummary:
    """The session in short.

    Args:
        diagnosis: of the session.
        traces: one per file that could be read.
        analyses: of the same files.
        job: over all files.
        telemetry: what was recorded of the GPUs.
        label: how reports shall call it.
    """
    wanted = _source(analyses)
    of_files = _parts(traces, analyses, job, wanted)
    source, wall, parts = _steps(analyses, of_files, wanted)
    window_ps, shares, models = _windows(traces, analyses, of_files)
    folded_wall, folded_parts = fold_steps(wall, parts)
    # What is told as a part of another finding is there all the same, and not solved.
    findings: list[tuple[Finding, str | None]] = [(finding, None) for finding in diagnosis.findings]
    findings += [(part, finding.kind) for finding in diagnosis.findings for part in finding.absorbed]
    hosts = sorted({ref.host for finding, _ in findings for ref in finding.gpus})
    blind = [kinds_not_shown(trace, analysis) for trace, analysis in zip(traces, analyses, strict=True)]
    known = [(row.occupancy, row.total) for row in diagnosis.kernels if row.occupancy is not None and row.total > 0]
    return RunSummary(
        label=label,
        format=diagnosis.format,
        verdict=diagnosis.verdict,
        models=models,
        hosts=len(traces),
        batch=_batch(telemetry),
        step_source=source,
        step_count=len(wall),
        median_ps=float(np.median(wall)) if len(wall) else None,
        wall_ps=folded_wall,
        parts_ps=folded_parts,
        window_ps=window_ps,
        window_parts=shares,
        kernels=fold_kernels(_kernels(analyses, of_files)),
        findings=tuple(
            FindingSum(
                finding.kind,
                finding.cause,
                finding.severity,
                finding.share,
                finding.saving_ps_per_step,
                tuple(f"{hosts.index(ref.host)}/{ref.id}" if len(hosts) > 1 else str(ref.id) for ref in finding.gpus),
                part_of,
            )
            for finding, part_of in findings
            if not finding.is_about_profile
        ),
        doubts=tuple(sorted({f.kind for f in diagnosis.findings if f.is_about_profile})),
        occupancy=sum(o * t for o, t in known) / sum(t for _, t in known) if known else None,
        telemetry=_telemetry(diagnosis),
        sm_count=_sm_count(traces),
        cut=sum(any(note.key == PART for note in trace.notes) for trace in traces),
        not_shown=tuple(sorted(frozenset.intersection(*blind))) if blind else (),
    )


def _source(analyses: Sequence[TraceAnalysis]) -> str:
    """Where the session's steps come from: marked ones go before inferred ones."""
    sources = [analysis.steps.source for analysis in analyses if analysis.steps.count]
    return "marked" if "marked" in sources else "inferred" if "inferred" in sources else "none"


def _uses_steps(analysis: TraceAnalysis, source: str) -> bool:
    return analysis.steps.count > 0 and analysis.steps.source == source


def _parts(traces: Sequence[Trace], analyses: Sequence[TraceAnalysis], job: Job, source: str) -> list[FileParts]:
    """What the columns of each file tell."""
    met: list[dict[int, Meetings]] = [{} for _ in traces]
    for (which, device), found in job.meetings.items():
        met[which][device] = found
    return ask(
        file_parts,
        [
            (HostProfile(trace.path, trace, analysis), source, _uses_steps(analysis, source), met[which])
            for which, (trace, analysis) in enumerate(zip(traces, analyses, strict=True))
        ],
    )


def _steps(analyses: Sequence[TraceAnalysis], parts: Sequence[FileParts], source: str) -> tuple[str, Float64, Float64]:
    """Source, length and parts of the complete steps that all working GPUs have, mean over them."""
    usable = [_uses_steps(analysis, source) for analysis in analyses]
    keys = [step_keys(a.steps, source == "inferred") if use else [] for a, use in zip(analyses, usable, strict=True)]
    order = order_of_steps(keys)
    count, total = np.zeros(len(order)), np.zeros(len(order))
    sums, gpus = np.zeros((len(order), len(PART_IDS))), 0
    for known, of_file in zip(keys, parts, strict=True):
        at = np.array([order[key] for key in known], np.int64)
        for wall, split in of_file.steps:
            used = wall >= 0
            if not used.any():
                continue
            gpus += 1
            np.add.at(count, at[used], 1)
            np.add.at(total, at[used], wall[used])
            np.add.at(sums, at[used], split[used])
    # a step that some GPU lacks would shift the mean by who is in it
    whole = count == gpus if (count == gpus).any() else count > 0
    if not gpus:
        return "none", np.zeros(0), np.zeros((0, len(PART_IDS)))
    return source, total[whole] / count[whole], sums[whole] / count[whole, None]


def _windows(
    traces: Sequence[Trace], analyses: Sequence[TraceAnalysis], parts: Sequence[FileParts]
) -> tuple[float, Float64, tuple[str | None, ...]]:
    """Mean window, shares of its parts, and the names of the GPUs that worked in it."""
    walls: list[int] = []
    shares: list[Float64] = []
    models: list[str | None] = []
    for trace, analysis, of_file in zip(traces, analyses, parts, strict=True):
        wall_of = {accounting.device: accounting.wall for accounting in analysis.accounting}
        for device, split in of_file.windows:
            walls.append(wall_of[device])
            shares.append(split / wall_of[device])
            models.append(trace.devices[device].name or None)
    models.sort(key=lambda name: name or "")
    if not walls:
        return 0.0, np.zeros(len(PART_IDS)), tuple(models)
    return float(np.mean(walls)), np.mean(shares, axis=0), tuple(models)


def _kernels(analyses: Sequence[TraceAnalysis], parts: Sequence[FileParts]) -> list[KernelSum]:
    """Kernels by name and shape, per GPU and complete step; without steps per GPU and millisecond of the window."""
    calls: dict[KernelKey, float] = {}
    totals: dict[KernelKey, float] = {}
    occupancy: dict[KernelKey, float] = {}
    waves: dict[KernelKey, int | None] = {}
    for analysis, of_file in zip(analyses, parts, strict=True):
        if not of_file.kernels:
            continue
        for key, (number, time) in of_file.kernels.items():
            calls[key] = calls.get(key, 0.0) + number
            totals[key] = totals.get(key, 0.0) + time
        for row in analysis.kernels.rows:
            if row.occupancy is not None:
                occupancy[(row.name, row.grid, row.block)] = row.occupancy
                waves[(row.name, row.grid, row.block)] = row.wave_blocks
    units = sum(of_file.units for of_file in parts)
    if units <= 0:
        return []
    return [
        KernelSum(*key, calls[key] / units, totals[key] / units, occupancy.get(key), waves.get(key)) for key in calls
    ]


def _sm_count(traces: Sequence[Trace]) -> int | None:
    """Multiprocessors of every GPU, None where they differ or are unknown."""
    known = {device.sm_count for trace in traces for device in trace.devices}
    return known.pop() if len(known) == 1 else None


def _batch(telemetry: Joined) -> int | None:
    """Samples of a step over all GPUs: every process records the global batch."""
    known = {batch for recording in telemetry.recordings if (batch := global_batch(recording.steps)) is not None}
    return known.pop() if len(known) == 1 else None


def _telemetry(diagnosis: Diagnosis) -> dict[str, float]:
    report = diagnosis.telemetry
    if report is None:
        return {}
    found: dict[str, float] = {}
    for name in ("utilization", "clock_mhz", "power_watts", "temperature_celsius", "memory_peak_bytes"):
        values = [value for gpu in report.gpus if (value := getattr(gpu, name)) is not None]
        if values:
            found[name] = float(max(values) if name == "temperature_celsius" else np.mean(values))
    throttled = [sum(share for _, share in gpu.throttled) for gpu in report.gpus]
    if throttled:
        found["throttled"] = float(np.mean(throttled))
    return found


def file_parts(profile: HostProfile, source: str, uses_steps: bool, meetings: Mapping[int, Meetings]) -> FileParts:
    """One file in short.

    Args:
        profile: the file.
        source: of the steps of the session.
        uses_steps: whether the file's steps are counted.
        meetings: by device index.
    """
    trace, analysis = profile.trace, profile.analysis

    def wait(device: int) -> Int64:
        return meetings.get(device, NO_MEETINGS).wait_of_events(trace.device_events.of_device(device))

    devices = range(analysis.steps.end.shape[1]) if uses_steps else ()
    active = [account.device for account in analysis.accounting if account.wall > 0]
    rows = trace.device_events.rows_of_devices()
    kernels, units = _kernels_of_file(profile, source)
    return FileParts(
        steps=tuple(step_parts(trace, analysis, device, wait(device)) for device in devices),
        windows=tuple((d, window_parts(trace, analysis, d, wait(d))) for d in active if d in rows),
        kernels=kernels,
        units=units,
    )


def _kernels_of_file(profile: HostProfile, source: str) -> tuple[dict[KernelKey, tuple[int, float]], float]:
    """Calls and time by name and shape; in complete steps, without steps in the window."""
    trace, analysis = profile.trace, profile.analysis
    events, units = trace.device_events, 0.0
    chosen = (events.klass == EventClass.COMPUTE) | (events.klass == EventClass.COMMUNICATION)
    chosen &= events.copy_kind == CopyKind.NONE
    if source != "none":
        if analysis.steps.source != source or not len(analysis.steps.event_step):
            return {}, 0.0
        complete = np.append(analysis.steps.complete, False)  # the last element serves -1, outside steps
        chosen &= complete[analysis.steps.event_step]
        units = float((analysis.steps.end[analysis.steps.complete] >= 0).sum())
    elif analysis.window is not None:
        chosen &= (events.start >= analysis.window.start) & (events.start < analysis.window.end)
        active = sum(accounting.busy > 0 for accounting in analysis.accounting)
        units = active * analysis.window.length / PS_PER_MS
    rows = np.flatnonzero(chosen)
    width = len(trace.strings) + 1
    pair = (events.name[rows].astype(np.int64) + 1) * width + events.details[rows] + 1
    codes, index = np.unique(pair, return_inverse=True)
    count = np.bincount(index, minlength=len(codes))
    total = np.bincount(index, weights=events.duration[rows], minlength=len(codes))
    found: dict[KernelKey, tuple[int, float]] = {}
    for code, number, time in zip(codes.tolist(), count.tolist(), total.tolist(), strict=True):
        name, text = code // width - 1, code % width - 1
        details = parse_kernel_details(trace.strings.raw(text)) if text >= 0 else UNKNOWN
        key = (trace.strings[name] if name >= 0 else "", details.grid, details.block)
        calls, spent = found.get(key, (0, 0.0))
        found[key] = (calls + number, spent + time)
    return found, units


def kinds_not_shown(trace: Trace, analysis: TraceAnalysis) -> frozenset[str]:
    """Kinds of findings that one file could not have shown; what no file of a session shows, the session does not.

    Formats differ in what they hold. A trace JSON file of TensorFlow, for one, names no GPU model and counts no
    multiprocessors, so nothing in it tells whether grids fill the chip. A finding that such a run lacks is not solved.
    """
    missing = facts_missing(trace, analysis)
    return frozenset(rule.kind for rule in rules() if not missing.isdisjoint(rule.needs))


def facts_missing(trace: Trace, analysis: TraceAnalysis) -> frozenset[Fact]:
    """The facts, of those that any rule needs, which one file does not hold."""
    rows = [row for row in analysis.kernels.rows if row.family != "communication"]
    steps = analysis.steps
    held: dict[Fact, bool] = {
        "host_events": len(trace.host_events) > 0,
        "multiprocessors": any(row.sm_share is not None for row in rows),
        "occupancy": any(row.occupancy is not None for row in rows),
        "tensor_cores": any(row.tensor_cores is not None for row in rows),
        # telemetry tells of memory as well: see `compare.could_show`
        "allocators": bool(outline_of(trace, analysis).allocators),
        "many_steps": steps.source != "none" and int(steps.complete.sum()) >= OutlierLimits().min_steps,
    }
    return frozenset(fact for fact, is_held in held.items() if not is_held)
