"""GPUs that keep the others waiting, step after step.

Reads: who enters the collectives late; without collectives, who computes longer. A late
arrival costs only what the others cannot hide behind their own compute, so the loss is
bounded by how much more time they spend in communication and waiting than the late GPU.
Each host is judged on its own clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.results import DeviceAccounting, DeviceSummary, Lateness
from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.diagnosis.context import Context, HostProfile
from tb_gpu_doctor.diagnosis.late_causes import Reason, late_reason
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, GpuRef, Phrase
from tb_gpu_doctor.diagnosis.stragglers import Split, split_late
from tb_gpu_doctor.diagnosis.thresholds import Thresholds

KIND = "imbalance"
# From this many kernels more on, their number is worth a sentence.
_DIFFERS = 1.01


@dataclass(frozen=True)
class _Case:
    """The imbalance of one host."""

    profile: HostProfile
    culprits: tuple[int, ...]
    victims: tuple[int, ...]
    shares: tuple[float, ...]
    per_step: float | None
    persistence: float
    by_steps: bool
    compute_ratio: float
    kernel_ratio: float
    reason: Reason
    evidence: tuple[Evidence, ...]


def check(context: Context) -> Iterator[Finding]:
    """One finding over all hosts."""
    cases = [case for profile in context.profiles if (case := _case(profile, context.thresholds)) is not None]
    if not cases:
        return
    share = float(np.mean([value for case in cases for value in case.shares]))
    savings = [case.per_step for case in cases if case.per_step is not None]
    culprits = _refs(cases, lambda case: case.culprits)
    victims = _refs(cases, lambda case: case.victims)
    compute_ratio = float(np.mean([case.compute_ratio for case in cases]))
    kernel_ratio = float(np.mean([case.kernel_ratio for case in cases]))
    facts = {
        "gpus": context.names(culprits),
        "victims": context.names(victims),
        "share": share,
        "persistence": float(np.mean([case.persistence for case in cases])),
        "more_compute": compute_ratio - 1,
        "more_kernels": kernel_ratio - 1,
    }
    sentence = "explanation" if all(case.by_steps for case in cases) else "explanation_collectives"
    # Hosts may differ; the one that loses most speaks for all.
    reason = max(cases, key=lambda case: max(case.shares)).reason
    facts["reason"] = reason.amount
    hint, order = _hint(reason.cause, kernel_ratio)
    yield Finding(
        kind=KIND,
        severity="critical" if share >= context.thresholds.imbalance_critical else "warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(Phrase(f"findings.{KIND}.{sentence}", facts), Phrase(f"findings.{KIND}.hints.{hint}", facts)),
        advice=context.advice(KIND, *order),
        gpus=culprits,
        victims=victims,
        cause=reason.cause,
        share=share,
        saving_ps_per_step=float(np.mean(savings)) if savings else None,
        evidence=tuple(item for case in cases for item in case.evidence)[: context.thresholds.max_evidence],
    )


def _hint(cause: str | None, kernel_ratio: float) -> tuple[str, tuple[str, ...]]:
    """What the facts say of the reason, and what to try first; only telemetry can prove a slow GPU."""
    if cause == "uneven_work":
        hint = "more_kernels" if kernel_ratio >= _DIFFERS else "larger_kernels"
        return hint, ("even_work@", "check_clocks", "pin_host")
    if cause == "slow_gpu":
        return "slower_kernels", ("check_clocks", "even_work@", "swap")
    if cause == "late_input":
        return "late_input", ("shard_input@", "pin_host")
    if cause == "late_host":
        return "late_host", ("pin_host", "shard_input@")
    return "starts_late", ("pin_host", "shard_input@", "check_clocks")


def _refs(cases: Sequence[_Case], pick: object) -> tuple[GpuRef, ...]:
    assert callable(pick)
    return tuple(sorted(case.profile.ref(device) for case in cases for device in pick(case)))


def _case(profile: HostProfile, limits: Thresholds) -> _Case | None:
    analysis = profile.analysis
    accounts = {account.device: account for account in analysis.accounting}
    if analysis.window is None or len(profile.active_devices) < 2:
        return None
    if analysis.lateness is not None and len(analysis.lateness.start):
        devices = [int(device) for device in analysis.lateness.devices]
        lateness, rows, by_steps = _by_unit(profile, analysis.lateness, limits)
        exposed = {device: _waiting(accounts[device]) for device in devices if device in accounts}
    else:
        compute = _compute_per_step(profile)
        if compute is None:
            return None
        devices, lateness = compute
        rows, by_steps = None, True
        exposed = {
            device: accounts[device].communication + accounts[device].idle for device in devices if device in accounts
        }
    if len(exposed) < len(devices) or not len(lateness):
        return None
    window = analysis.window.length
    split = split_late(lateness, window / len(lateness), limits)
    if split is None:
        return None
    late = [devices[column] for column in split.late]
    early = [devices[column] for column in split.early]
    typical_wait = float(np.median([exposed[device] for device in early]))
    # What the late arrival cost in all, at most what the others really waited longer.
    bounds = [max(0.0, typical_wait - exposed[device]) for device in late]
    lost = [min(float(total), bound) for total, bound in zip(split.excess.clip(0).sum(axis=0), bounds, strict=True)]
    shares = tuple(value / window for value in lost)
    # With more late than early GPUs the early ones are the odd ones: count the loss over all.
    weight = 1.0 if len(late) <= len(early) else len(early) / len(devices)
    if float(np.mean(shares)) * weight < limits.imbalance_warning:
        return None
    worst = min(float(split.excess.clip(0).max(axis=1).sum()), max(bounds))
    return _Case(
        profile=profile,
        culprits=tuple(late),
        victims=tuple(early),
        shares=shares,
        per_step=worst * profile.per_step if profile.per_step is not None else None,
        persistence=split.persistence,
        by_steps=by_steps,
        compute_ratio=_ratio(analysis.summaries, late, early, "compute"),
        kernel_ratio=_ratio(analysis.summaries, late, early, "kernels"),
        reason=late_reason(profile, late, early, float(np.mean(lost))),
        evidence=_evidence(profile, analysis.lateness, devices, split, rows, limits),
    )


def _waiting(account: DeviceAccounting) -> int:
    """Time a GPU shows in communication, or idle because of other GPUs."""
    return account.communication + account.idle_of(Cause.PEER) + account.idle_of(Cause.DEPENDENCY)


def _by_unit(
    profile: HostProfile, lateness: Lateness, limits: Thresholds
) -> tuple[NDArray[np.float64], NDArray[np.int64], bool]:
    """Lateness behind the earliest GPU, summed per unit; the unit of each collective; whether units are steps.

    A unit is a complete step; where there are too few of them, every collective is one of its own.
    """
    behind = (lateness.start - lateness.start.min(axis=1, keepdims=True)).astype(np.float64)
    window = profile.analysis.window
    assert window is not None
    inside = (lateness.start.max(axis=1) < window.end) & (lateness.end.max(axis=1) > window.start)
    complete = np.flatnonzero(profile.analysis.steps.complete)
    used = [step for step in complete if np.any(inside & (lateness.step == step))]
    if len(used) >= limits.imbalance_min_units:
        unit = np.full(len(behind), -1, dtype=np.int64)
        for row, step in enumerate(used):
            unit[inside & (lateness.step == step)] = row
        count = len(used)
    else:
        unit = np.where(inside, np.cumsum(inside) - 1, -1)
        count = int(np.count_nonzero(inside))
    summed = np.zeros((count, behind.shape[1]))
    np.add.at(summed, unit[unit >= 0], behind[unit >= 0])
    return summed, unit, len(used) >= limits.imbalance_min_units


def _compute_per_step(profile: HostProfile) -> tuple[list[int], NDArray[np.float64]] | None:
    """Compute per complete step behind the GPU with the least, for the GPUs that compute at all."""
    if profile.analysis.steps.source != "marked":
        return None  # inferred steps of one GPU need not be those of another
    rows = [s for s in profile.analysis.summaries if len(s.compute_per_step) and s.compute > 0]
    if len(rows) < 2:
        return None
    compute = np.stack([row.compute_per_step for row in rows], axis=1).astype(np.float64)
    return [row.device for row in rows], compute - compute.min(axis=1, keepdims=True)


def _ratio(summaries: Sequence[DeviceSummary], late: Sequence[int], early: Sequence[int], field: str) -> float:
    values = {summary.device: float(getattr(summary, field)) for summary in summaries}
    top = float(np.mean([values.get(device, 0.0) for device in late]))
    bottom = float(np.median([values.get(device, 0.0) for device in early]))
    return top / bottom if bottom > 0 else 1.0


def _evidence(
    profile: HostProfile,
    lateness: Lateness | None,
    devices: Sequence[int],
    split: Split,
    unit: NDArray[np.int64] | None,
    limits: Thresholds,
) -> tuple[Evidence, ...]:
    """The worst late arrivals, or the steps with the largest difference in compute."""
    found: list[tuple[int, Evidence]] = []
    steps = profile.analysis.steps
    for column in split.late:
        device = devices[column]
        gpu = profile.trace.devices[device].id
        if lateness is not None and unit is not None:
            first = lateness.start.min(axis=1)
            excess = np.where(unit >= 0, lateness.start[:, column] - first, -1)
            for row in np.argsort(-excess, kind="stable")[: limits.max_evidence]:
                if excess[row] <= 0:
                    break
                index = int(lateness.step[row])
                number = int(steps.number[index]) if index >= 0 else None
                what = Phrase("report.evidence.others_waited", {"count": len(split.early)})
                start, end = int(first[row]), int(lateness.start[row, column])
                found.append((end - start, Evidence(profile.label, gpu, start, end, None, number, what)))
        else:
            for row, index in enumerate(np.flatnonzero(steps.complete).tolist()):
                extra = int(split.excess[row, split.late.index(column)])
                if extra <= 0 or steps.end[index, device] < 0:
                    continue
                start, end = int(steps.start[index, device]), int(steps.end[index, device])
                what = Phrase("report.evidence.longer_compute", {"extra": extra})
                found.append((extra, Evidence(profile.label, gpu, start, end, None, int(steps.number[index]), what)))
    found.sort(key=lambda item: -item[0])
    return tuple(item for _, item in found[: limits.max_evidence])
