"""The processes of a job side by side, by their recordings: who is slower than the others, and what their GPUs say.

Processes count as ranks of one job where their launcher says so; without its word, where they began within some
minutes, step through the same numbers with the same batch, and share a logdir.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.pace import BLOCK_STEPS, Condition, Reason, Slow, holds_up, in_lockstep, reason_of, slower
from tb_gpu_doctor.telemetry.progress import global_batch, ordinary
from tb_gpu_doctor.telemetry.series import Bool, GpuSeries, Recording, column, seconds, weighted_mean
from tb_gpu_doctor.telemetry.throttling import kind_masks

# Of a block so many steps must be there, or it is not judged.
_LEAST_OF_BLOCK = BLOCK_STEPS // 2
# Processes of one job start together.
_TOGETHER_NS = 300_000_000_000


@dataclass(frozen=True)
class SlowRank:
    """A process that is slower than the others of its job, or that they wait for.

    Attributes:
        recording: of the process.
        series: its GPU, None where that cannot be told.
        slow: its steps beside the others'; None where all step alike and only the GPUs tell.
        steps: first and last step that this holds for.
        reason: why, as far as known.
        own, others: the GPU of the process, and each of the others'.
    """

    recording: Recording
    series: GpuSeries | None
    slow: Slow | None
    steps: tuple[int, int]
    reason: Reason
    own: Condition
    others: tuple[Condition, ...]


def slow_ranks(recordings: Sequence[Recording]) -> list[SlowRank]:
    """The slow processes of a job, the slowest first; empty where there is none, or no job to compare."""
    job = {str(index): recording for index, recording in enumerate(_one_job(recordings))}
    paces = {key: pace for key, recording in job.items() if (pace := _pace(recording))}
    if len(paces) < 2:
        return []
    found = slower(paces)
    told = []
    for slow in found:
        span = (slow.first_step, slow.last_step)
        conditions = {key: _condition(job[key], span) for key in paces}
        own = conditions.pop(slow.rank)
        even = tuple(condition for key, condition in conditions.items() if all(key != other.rank for other in found))
        recording = job[slow.rank]
        told.append(SlowRank(recording, own_gpu(recording), slow, span, reason_of(own, even), own, even))
    if told:
        return told
    lockstep = in_lockstep(paces)
    if lockstep is None:
        return []
    conditions = {key: _condition(job[key], lockstep) for key in paces}
    held = holds_up(conditions)
    if held is None:
        return []
    key, reason = held
    own = conditions.pop(key)
    return [SlowRank(job[key], own_gpu(job[key]), None, lockstep, reason, own, tuple(conditions.values()))]


def own_gpu(recording: Recording) -> GpuSeries | None:
    """The GPU that a process trains on; None where it sees several and does not tell which it uses."""
    if len(recording.gpus) == 1:
        return recording.gpus[0]
    used = [
        series
        for series in recording.gpus
        if any(column(series, name) is not None for name in ("allocator_used_bytes", "memory_process_bytes"))
    ]
    if len(used) == 1:
        return used[0]
    local = recording.rank.local if recording.rank is not None else None
    by_number = [series for series in recording.gpus if local is not None and series.facts.framework_id == local]
    return by_number[0] if len(by_number) == 1 else None


def _one_job(recordings: Sequence[Recording]) -> list[Recording]:
    """The recordings that are ranks of one job; empty where they are not."""
    stepping = [recording for recording in recordings if len(recording.steps.number) >= BLOCK_STEPS]
    if len(stepping) < 2:
        return []
    ranks = [recording.rank for recording in stepping]
    if all(rank is not None for rank in ranks):
        numbers = {(rank.number, rank.of) for rank in ranks if rank is not None}
        # Two starts of one rank are no two ranks, and jobs of different sizes are two jobs.
        one = len(numbers) == len(stepping) and len({of for _, of in numbers}) == 1
        return stepping if one else []
    if any(rank is not None for rank in ranks):
        return []
    begins = [int(recording.steps.end_ns[0]) for recording in stepping]
    batches = {global_batch(recording.steps) for recording in stepping}
    together = max(begins) - min(begins) <= _TOGETHER_NS
    return stepping if together and len(batches) == 1 else []


def _pace(recording: Recording) -> Mapping[int, float]:
    """Median nanoseconds of a step by block."""
    steps = recording.steps
    use = ordinary(steps, recording.spans) & ~steps.profiled & (steps.number >= 0)
    numbers, lengths = steps.number[use] // BLOCK_STEPS, steps.duration_ns[use]
    order = np.argsort(numbers, kind="stable")
    numbers, lengths = numbers[order], lengths[order]
    starts = np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1]))) if len(numbers) else numbers[:0]
    ends = np.concatenate((starts[1:], [len(numbers)])) if len(numbers) else starts
    return {
        int(numbers[a]): float(np.median(lengths[a:b]))
        for a, b in zip(starts, ends, strict=True)
        if b - a >= _LEAST_OF_BLOCK
    }


def _condition(recording: Recording, steps: tuple[int, int]) -> Condition:
    """How the GPU of a process was during these steps."""
    series = own_gpu(recording)
    if series is None or not len(series):
        return Condition()
    numbers = recording.steps.number
    rows = np.flatnonzero((numbers >= steps[0]) & (numbers <= steps[1]))
    if not len(rows):
        return Condition(series.facts.name)
    first = int(recording.steps.end_ns[rows[0]] - recording.steps.duration_ns[rows[0]])
    inside = (series.wall_ns >= first) & (series.wall_ns <= int(recording.steps.end_ns[rows[-1]]))
    weight = seconds(series)

    def mean(metric: str) -> float | None:
        values = column(series, metric)
        return None if values is None else weighted_mean(values, weight, inside)

    def most(metric: str) -> float | None:
        values = column(series, metric)
        known = None if values is None else values[inside][np.isfinite(values[inside])]
        return None if known is None or not len(known) else float(known.max())

    masks = kind_masks(series)
    return Condition(
        series.facts.name,
        mean("sm_clock_mhz"),
        mean("utilization_percent"),
        mean("temperature_celsius"),
        _share(masks.get("thermal"), inside),
        _share(masks.get("power"), inside),
        most("other_processes"),
    )


def _share(mask: Bool | None, inside: Bool) -> float | None:
    return None if mask is None or not inside.any() else float(mask[inside].mean())
