"""What a step would gain over all files of a session: those that meet in collectives end it together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tb_gpu_doctor.analysis.facts import FileFacts
from tb_gpu_doctor.analysis.job import Job
from tb_gpu_doctor.analysis.results import StepCosts
from tb_gpu_doctor.analysis.step_costs import gain_per_step, joint_gain
from tb_gpu_doctor.traces.columns import Int64

# From a file's place in the session and a GPU's in the file to picoseconds in each complete step.
StepTimes = Mapping[tuple[int, int], Sequence[int]]


def linked(job: Job) -> tuple[int, ...]:
    """The files whose GPUs meet GPUs of other files in collectives."""
    if job.lateness is None:
        return ()
    found = sorted(set(job.lateness.collectives.trace.tolist()))
    return tuple(found) if len(found) > 1 else ()


def mean_gain(files: Sequence[FileFacts], job: Job, removed: StepTimes) -> float | None:
    """How much shorter the mean complete step could be, picoseconds; None without complete steps.

    An upper bound by each step's critical path (`critical_path`). Files that meet in collectives bound each
    other's gain; of files that do not, the largest gain is the bound for all.

    Args:
        files: of the session.
        job: what they have in common.
        removed: time that GPUs' own work would lose in each complete step.
    """
    known: dict[int, StepCosts] = {}

    def costs(which: int) -> StepCosts:
        if which not in known:
            known[which] = _costs(files, which, job)
        return known[which]

    def gone(which: int) -> Int64:
        taken = np.zeros_like(costs(which).wall)
        for device in range(taken.shape[1]):
            times = removed.get((which, device), ())
            if len(times):
                taken[:, device] = times
        return taken

    concerned = {which for which, _ in removed if _has_steps(files[which])}
    meeting = linked(job)
    joint = None
    if concerned & set(meeting) and all(_is_comparable(files[which]) for which in meeting):
        numbers = [np.array(files[which].steps.numbers, np.int64) for which in meeting]
        joint = joint_gain([costs(which) for which in meeting], numbers, [gone(which) for which in meeting])
    done = set() if joint is None else set(meeting)
    gains = [] if joint is None else [joint]
    gains += [float(np.mean(gain_per_step(costs(which), gone(which)))) for which in sorted(concerned - done)]
    return max(gains) if gains else None


def _has_steps(file: FileFacts) -> bool:
    return any(gpu.steps is not None for gpu in file.gpus)


def _is_comparable(file: FileFacts) -> bool:
    """Whether the number of a step says which step of another file it is."""
    numbers = file.steps.numbers
    return _has_steps(file) and file.steps.source == "marked" and len(set(numbers)) == len(numbers)


def _costs(files: Sequence[FileFacts], which: int, job: Job) -> StepCosts:
    """Length of each complete step on each GPU, and the waits for GPUs of all files."""
    file = files[which]
    wall = np.zeros((file.steps.count, len(file.gpus)), np.int64)
    wait = np.zeros_like(wall)
    for device, gpu in enumerate(file.gpus):
        if gpu.steps is not None:
            wall[:, device] = gpu.steps.wall
            wait[:, device] = job.wait_of_steps(files, which, device)
    return StepCosts(wall, wait, np.zeros((*wall.shape, 0), np.int64))
