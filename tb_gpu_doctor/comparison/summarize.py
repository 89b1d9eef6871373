"""From a diagnosed session to its `RunSummary`: what each file tells, put together over all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tb_gpu_doctor.analysis.facts import FileFacts
from tb_gpu_doctor.analysis.job import Job, parts_of_steps, parts_of_window
from tb_gpu_doctor.analysis.step_costs import PART_IDS
from tb_gpu_doctor.analysis.steps import order_of_steps, step_keys
from tb_gpu_doctor.comparison.summary import FindingSum, Float64, KernelSum, RunSummary, fold_kernels, fold_steps
from tb_gpu_doctor.diagnosis.model import Diagnosis, Finding
from tb_gpu_doctor.diagnosis.rule import Fact, rules
from tb_gpu_doctor.diagnosis.rules.step_outliers import Limits as OutlierLimits
from tb_gpu_doctor.telemetry.joining import Joined
from tb_gpu_doctor.telemetry.progress import global_batch

_Shape = tuple[int, int, int] | None
# A kernel's name, grid and block.
KernelKey = tuple[str, _Shape, _Shape]


def summarize(
    diagnosis: Diagnosis,
    files: Sequence[FileFacts],
    job: Job,
    telemetry: Joined,
    label: str,
) -> RunSummary:
    """The session in short.

    Args:
        diagnosis: of the session.
        files: those that could be read.
        job: over all files.
        telemetry: what was recorded of the GPUs.
        label: how reports shall call it.
    """
    wanted = _source(files)
    source, wall, parts = _steps(files, job, wanted)
    window_ps, shares, models = _windows(files, job)
    folded_wall, folded_parts = fold_steps(wall, parts)
    blind = [kinds_not_shown(file) for file in files]
    known = [(row.occupancy, row.total) for row in diagnosis.kernels if row.occupancy is not None and row.total > 0]
    return RunSummary(
        label=label,
        format=diagnosis.format,
        verdict=diagnosis.verdict,
        models=models,
        hosts=len(files),
        batch=_batch(telemetry),
        step_source=source,
        step_count=len(wall),
        median_ps=float(np.median(wall)) if len(wall) else None,
        wall_ps=folded_wall,
        parts_ps=folded_parts,
        window_ps=window_ps,
        window_parts=shares,
        kernels=fold_kernels(_kernels(files, wanted)),
        findings=_findings(diagnosis),
        doubts=tuple(sorted({f.kind for f in diagnosis.findings if f.is_about_profile})),
        occupancy=sum(o * t for o, t in known) / sum(t for _, t in known) if known else None,
        telemetry=_telemetry(diagnosis),
        sm_count=_sm_count(files),
        cut=sum(file.cut for file in files),
        not_shown=tuple(sorted(frozenset.intersection(*blind))) if blind else (),
    )


def _findings(diagnosis: Diagnosis) -> tuple[FindingSum, ...]:
    """The findings about the run; those told as a part of another are there all the same, and not solved."""
    findings: list[tuple[Finding, str | None]] = [(finding, None) for finding in diagnosis.findings]
    findings += [(part, finding.kind) for finding in diagnosis.findings for part in finding.absorbed]
    hosts = sorted({ref.host for finding, _ in findings for ref in finding.gpus})
    return tuple(
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
    )


def _source(files: Sequence[FileFacts]) -> str:
    """Where the session's steps come from: marked ones go before inferred ones."""
    sources = [file.steps.source for file in files if file.steps.count]
    return "marked" if "marked" in sources else "inferred" if "inferred" in sources else "none"


def _steps(files: Sequence[FileFacts], job: Job, source: str) -> tuple[str, Float64, Float64]:
    """Source, length and parts of the complete steps that all working GPUs have, mean over them."""
    usable = [file.steps.count > 0 and file.steps.source == source for file in files]
    keys = [
        step_keys(file.steps.numbers, source == "inferred") if use else []
        for file, use in zip(files, usable, strict=True)
    ]
    order = order_of_steps(keys)
    count, total = np.zeros(len(order)), np.zeros(len(order))
    sums, gpus = np.zeros((len(order), len(PART_IDS))), 0
    for which, (known, use) in enumerate(zip(keys, usable, strict=True)):
        at = np.array([order[key] for key in known], np.int64)
        for device in range(len(files[which].gpus)) if use else ():
            wall, split = parts_of_steps(files, which, device, job)
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


def _windows(files: Sequence[FileFacts], job: Job) -> tuple[float, Float64, tuple[str | None, ...]]:
    """Mean window, shares of its parts, and the names of the GPUs that worked in it."""
    walls: list[int] = []
    shares: list[Float64] = []
    models: list[str | None] = []
    for which, file in enumerate(files):
        for device, gpu in enumerate(file.gpus):
            if gpu.account is not None and gpu.account.wall > 0 and gpu.worked:
                walls.append(gpu.account.wall)
                shares.append(parts_of_window(files, which, device, job) / gpu.account.wall)
                models.append(gpu.device.name or None)
    models.sort(key=lambda name: name or "")
    if not walls:
        return 0.0, np.zeros(len(PART_IDS)), tuple(models)
    return float(np.mean(walls)), np.mean(shares, axis=0), tuple(models)


def _kernels(files: Sequence[FileFacts], source: str) -> list[KernelSum]:
    """Kernels by name and shape, per GPU and complete step; without steps per GPU and millisecond of the window."""
    calls: dict[KernelKey, float] = {}
    totals: dict[KernelKey, float] = {}
    occupancy: dict[KernelKey, float] = {}
    waves: dict[KernelKey, int | None] = {}
    units = 0.0
    for file in files:
        if source != "none" and not (file.steps.source == source and file.steps.count):
            continue
        units += file.kernel_units
        if not file.kernel_times:
            continue
        for kernel in file.kernel_times:
            key = (kernel.name, kernel.grid, kernel.block)
            calls[key] = calls.get(key, 0.0) + kernel.calls
            totals[key] = totals.get(key, 0.0) + kernel.time
        for row in file.kernels:
            if row.occupancy is not None:
                occupancy[(row.name, row.grid, row.block)] = row.occupancy
                waves[(row.name, row.grid, row.block)] = row.wave_blocks
    if units <= 0:
        return []
    return [
        KernelSum(*key, calls[key] / units, totals[key] / units, occupancy.get(key), waves.get(key)) for key in calls
    ]


def _sm_count(files: Sequence[FileFacts]) -> int | None:
    """Multiprocessors of every GPU, None where they differ or are unknown."""
    known = {gpu.device.sm_count for file in files for gpu in file.gpus}
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


def kinds_not_shown(file: FileFacts) -> frozenset[str]:
    """Kinds of findings that one file could not have shown; what no file of a session shows, the session does not.

    Formats differ in what they hold. A trace JSON file of TensorFlow, for one, names no GPU model and counts no
    multiprocessors, so nothing in it tells whether grids fill the chip. A finding that such a run lacks is not solved.
    """
    missing = facts_missing(file)
    return frozenset(rule.kind for rule in rules() if not missing.isdisjoint(rule.needs))


def facts_missing(file: FileFacts) -> frozenset[Fact]:
    """The facts, of those that any rule needs, which one file does not hold."""
    rows = [row for row in file.kernels if row.family != "communication"]
    held: dict[Fact, bool] = {
        "host_events": file.has_host_events,
        "multiprocessors": any(row.sm_share is not None for row in rows),
        "occupancy": any(row.occupancy is not None for row in rows),
        "tensor_cores": any(row.tensor_cores is not None for row in rows),
        # telemetry tells of memory as well: see `compare.could_show`
        "allocators": any(gpu.allocator is not None for gpu in file.gpus),
        "many_steps": file.steps.source != "none" and file.steps.count >= OutlierLimits().min_steps,
    }
    return frozenset(fact for fact, is_held in held.items() if not is_held)
