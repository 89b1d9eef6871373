"""Runs of short elementwise kernels that a compiler could join into one.

A run is a sequence of at least three such kernels on one stream, in one step, with nothing else between them and no
longer pause than a short kernel. What one kernel in place of a run saves is at most all of it but its shortest kernel:
the joined one still has to be launched and to write what the last one wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.kernel_results import FusionCandidate
from tb_gpu_doctor.traces.columns import PS_PER_US, Int32, Int64

SHORT_KERNEL_PS = 10 * PS_PER_US
# A longer pause has another reason than the kernels themselves.
LONGEST_PAUSE_PS = 10 * PS_PER_US
SHORTEST_RUN = 3
# Candidates that are kept, and kernels of a run that are named.
MAX_CANDIDATES, MAX_NAMED = 200, 16


@dataclass(frozen=True)
class KernelEvents:
    """Columns of the kernels of a trace, sorted by (device, start); shape (n,).

    ``code`` is the group of the kernel table, ``step`` -1 where it belongs to none; ``complete`` says of each step
    whether it was recorded from its beginning to its end.
    """

    device: Int32
    stream: Int32
    start: Int64
    duration: Int64
    step: Int32 | None
    complete: NDArray[np.bool_] | None
    code: Int64
    op: Int64


def find_fusion(
    events: KernelEvents, fusible: NDArray[np.bool_], devices: int, row_of: Int64
) -> tuple[tuple[FusionCandidate, ...], tuple[int, ...]]:
    """Candidates with the largest saving first, and the saving of all runs per device.

    Args:
        events: all kernels of a trace.
        fusible: per group, whether its kernels are elementwise work that no compiler has written.
        devices: how many devices there are.
        row_of: per group, its row in the kernel table.
    """
    nothing: tuple[tuple[FusionCandidate, ...], tuple[int, ...]] = ((), (0,) * devices)
    if not len(events.code) or not fusible.any():
        return nothing
    short = fusible[events.code] & (events.duration < SHORT_KERNEL_PS)
    if np.count_nonzero(short) < SHORTEST_RUN:
        return nothing
    order = _by_stream(events.stream)
    short = short[order]
    # Where the kernel after this one carries on its run.
    joined = short[1:] & short[:-1]
    at = np.flatnonzero(joined)
    first, second = order[at], order[at + 1]
    end = events.start[first] + events.duration[first]
    good = (events.stream[first] == events.stream[second]) & (events.start[second] - end <= LONGEST_PAUSE_PS)
    if events.step is not None:
        good &= events.step[first] == events.step[second]
    at = at[good]
    if not len(at):
        return nothing
    # Consecutive links make a run; one link more than its length.
    begins = np.flatnonzero(np.concatenate(([True], np.diff(at) != 1)))
    links = np.diff(np.append(begins, len(at)))
    long = links + 1 >= SHORTEST_RUN
    low, length = at[begins[long]], links[long] + 1
    if not len(low):
        return nothing
    return _candidates(events, order, low, length, devices, row_of)


def _by_stream(stream: Int32) -> NDArray[np.int64]:
    """The kernels stream by stream, each by start."""
    high = int(stream.max(initial=0))
    keys = stream.astype(np.uint16) if int(stream.min(initial=0)) >= 0 and high < 1 << 16 else stream
    return np.argsort(keys, kind="stable")


def _candidates(
    events: KernelEvents, order: Int64, low: Int64, length: Int64, devices: int, row_of: Int64
) -> tuple[tuple[FusionCandidate, ...], tuple[int, ...]]:
    """Group runs of the same kernels; ``low`` is the place in ``order`` where a run begins."""
    borders = np.concatenate(([0], np.cumsum(length)))[:-1]
    place = np.arange(int(length.sum())) - np.repeat(borders, length)
    member = order[np.repeat(low, length) + place]
    duration, code = events.duration[member], events.code[member]
    first, last = order[low], order[low + length - 1]
    span = np.maximum.reduceat(events.start[member] + duration, borders) - events.start[first]
    saving = span - np.minimum.reduceat(duration, borders)
    device = events.device[first]
    per_device = [0] * devices
    for index in range(devices):
        per_device[index] = int(saving[device == index].sum())
    signature = np.add.reduceat(_mixed(code, place), borders)
    _, group, runs = np.unique(signature, return_inverse=True, return_counts=True)
    totals, savings = _sums(group, span, len(runs)), _sums(group, saving, len(runs))
    in_steps = _sums(group, np.where(_in_complete_steps(events, first), saving, 0), len(runs))
    by_group = np.lexsort((-span, group))  # the longest run of each group stands first
    example = by_group[np.searchsorted(group[by_group], np.arange(len(runs)))]
    kept = np.argsort(-savings, kind="stable")[:MAX_CANDIDATES]
    found = []
    for index in kept.tolist():
        run = int(example[index])
        shown = member[borders[run] : borders[run] + min(int(length[run]), MAX_NAMED)]
        found.append(
            FusionCandidate(
                device=int(device[run]),
                rows=tuple(row_of[events.code[shown]].tolist()),
                ops=tuple(events.op[shown].tolist()),
                kernels=int(length[run]),
                runs=int(runs[index]),
                total_ps=int(totals[index]),
                saving_ps=int(savings[index]),
                saving_in_steps_ps=int(in_steps[index]),
                start=int(events.start[first[run]]),
                end=int(events.start[last[run]] + events.duration[last[run]]),
            )
        )
    return tuple(found), tuple(per_device)


def _in_complete_steps(events: KernelEvents, rows: Int64) -> NDArray[np.bool_]:
    if events.step is None or events.complete is None or not len(events.complete):
        return np.zeros(len(rows), np.bool_)
    step = events.step[rows]
    return np.asarray((step >= 0) & events.complete[step], dtype=np.bool_)


def _mixed(code: Int64, place: Int64) -> NDArray[np.uint64]:
    """A hash of (kernel, place in the run) whose sum tells runs of different kernels apart."""
    mixed = (code.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= (place.astype(np.uint64) + np.uint64(1)) * np.uint64(0xC2B2AE3D27D4EB4F)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # the finaliser of splitmix64
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def _sums(group: NDArray[Any], values: Int64, count: int) -> Int64:
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, group, values)
    return sums
