"""What a step would gain over all hosts: those that meet in collectives end it together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tb_gpu_doctor.analysis.job import Job, waits_per_step
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.analysis.step_costs import gain_per_step, joint_gain
from tb_gpu_doctor.diagnosis.context import Context, HostProfile
from tb_gpu_doctor.traces.columns import Int64


def together(context: Context) -> Context:
    """The same session; the step costs hold the waits for all GPUs of the job, not for those of the file alone.

    The matching over all files is also the one that knows what to do with lost collectives.
    """
    job = context.job
    profiles = list(context.profiles)
    for index in sorted({trace for trace, _ in job.meetings}):
        profile, costs = profiles[index], profiles[index].analysis.step_costs
        if costs is None:
            continue
        met = {device: found for (trace, device), found in job.meetings.items() if trace == index}
        costs = replace(costs, wait=waits_per_step(profile.analysis, met))
        profiles[index] = replace(profile, analysis=replace(profile.analysis, step_costs=costs))
    return replace(context, profiles=tuple(profiles), known_job=job)


def linked(job: Job) -> tuple[int, ...]:
    """The files whose GPUs meet GPUs of other files in collectives."""
    if job.lateness is None:
        return ()
    found = sorted(set(job.lateness.collectives.trace.tolist()))
    return tuple(found) if len(found) > 1 else ()


def gain(
    context: Context, profiles: Iterable[HostProfile], removed: Callable[[HostProfile], Int64 | None]
) -> float | None:
    """How much shorter the mean complete step could be, picoseconds; None without complete steps.

    An upper bound by each step's critical path (`analysis.critical_path`). Hosts that meet in collectives bound
    each other's gain; of hosts that do not, the largest gain is the bound for all.

    Args:
        context: of the session.
        profiles: the hosts concerned.
        removed: from a host to the time that its GPUs' own work would lose in each complete step, shape
            (steps, devices); None when that is not known.
    """
    gone: dict[str, Int64] = {}
    for profile in profiles:
        costs = profile.analysis.step_costs
        if costs is not None and len(costs.wall) and (found := removed(profile)) is not None:
            gone[profile.label] = found
    meeting = [context.profiles[index] for index in linked(context.job)]
    joint = _joint(meeting, gone) if any(profile.label in gone for profile in meeting) else None
    done = set() if joint is None else {profile.label for profile in meeting}
    gains = [] if joint is None else [joint]
    for profile in context.profiles:
        costs = profile.analysis.step_costs
        if profile.label in gone and profile.label not in done and costs is not None:
            gains.append(float(np.mean(gain_per_step(costs, gone[profile.label]))))
    return max(gains) if gains else None


def gain_of_causes(context: Context, profiles: Iterable[HostProfile], *causes: Cause) -> float | None:
    """`gain` of all idle time charged to the given causes."""

    def removed(profile: HostProfile) -> Int64 | None:
        costs = profile.analysis.step_costs
        return None if costs is None else np.asarray(costs.idle[:, :, list(causes)].sum(axis=2), dtype=np.int64)

    return gain(context, profiles, removed)


def _joint(meeting: Sequence[HostProfile], gone: Mapping[str, Int64]) -> float | None:
    costs, numbers, removed = [], [], []
    for profile in meeting:
        steps, known = profile.analysis.steps, profile.analysis.step_costs
        number = steps.number[steps.complete]
        if known is None or steps.source != "marked" or len(np.unique(number)) < len(number):
            return None
        costs.append(known)
        numbers.append(number)
        removed.append(gone.get(profile.label, np.zeros_like(known.wall)))
    return joint_gain(costs, numbers, removed)
