"""Pipelines: GPUs that hand activations on to each other in pairs, and how long they wait for the next microbatch.

A pipeline's stages meet in sends and receives, two at a time. Such a transfer ends on both sides together, and takes
shortest where both were ready: what others of its size take longer, they wait. The stage with most to compute waits
for nobody who is slower; it waits because the pipeline fills and drains. That much is the schedule's, on every stage.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.blame import components
from tb_gpu_doctor.analysis.collectives import CollectiveKind
from tb_gpu_doctor.analysis.communication_facts import as_intervals, exposed_within, waits_that_hold_up
from tb_gpu_doctor.analysis.facts import FileFacts
from tb_gpu_doctor.traces.columns import Int64

# Of the transfers of one size so many are at least half without a wait: in each pair one of the two comes last.
_WITHOUT_WAIT = 25


@dataclass(frozen=True)
class Stage:
    """One GPU of a pipeline.

    Attributes:
        which, device: its file, and its index in there.
        waiting: what it waits in sends and receives with nothing to compute, of its window.
        compute: what it computes, of its window.
    """

    which: int
    device: int
    waiting: float
    compute: float


@dataclass(frozen=True)
class Pipeline:
    """Stages that hand on to each other.

    Attributes:
        stages: in the order of their ranks.
        microbatches: how many pass in a step, None where that cannot be counted.
    """

    stages: tuple[Stage, ...]
    microbatches: int | None

    @property
    def bubble(self) -> float:
        """What the stage with the least waiting waits, of its window: nobody is slower than that one."""
        return min(stage.waiting for stage in self.stages)


def find_pipelines(files: Sequence[FileFacts]) -> tuple[Pipeline, ...]:
    """The pipelines of a job of which all members are here, each rank in a file of its own."""
    files_of: dict[int, list[int]] = {}
    for which, file in enumerate(files):
        if file.rank is not None:
            files_of.setdefault(file.rank, []).append(which)
    if any(len(found) > 1 for found in files_of.values()):
        return ()  # which of them is meant is anybody's guess
    meetings = [ranks for file in files for ranks in _partners(file)]
    if not meetings or any(rank not in files_of for ranks in meetings for rank in ranks):
        return ()
    present = np.zeros((len(meetings), len(files)), np.bool_)
    for row, ranks in enumerate(meetings):
        present[row, [files_of[rank][0] for rank in ranks]] = True
    moving = _moving(files)
    found = []
    for columns in components(present):
        members = sorted(columns.tolist(), key=lambda which: files[which].rank or 0)
        stages = [stage for which in members if (stage := _stage(files[which], which, moving)) is not None]
        if len(stages) == len(members):
            found.append(Pipeline(tuple(stages), _microbatches(files[members[0]])))
    return tuple(found)


def _codes(file: FileFacts) -> list[int]:
    """The sorts of collectives of a file that are sends or receives."""
    known = file.collectives
    keys = () if known is None else known.keys
    return [code for code, key in enumerate(keys) if key[2] == CollectiveKind.SEND_RECEIVE]


def _partners(file: FileFacts) -> list[tuple[int, ...]]:
    """The ranks of each group in which a file sends or receives, as far as they are recorded in full."""
    found = []
    for code in _codes(file):
        assert file.collectives is not None
        try:
            ranks = json.loads(file.collectives.lanes[code][1])
        except ValueError:
            continue
        if isinstance(ranks, list) and len(ranks) > 1 and all(type(rank) is int for rank in ranks):
            found.append(tuple(ranks))
    return found


def _transfers(file: FileFacts) -> tuple[Int64, Int64, Int64, Int64]:
    """Device, start, duration and size of a file's sends and receives."""
    known = file.collectives
    assert known is not None
    rows = np.flatnonzero(np.isin(np.array(known.code, np.int64), _codes(file)))
    device, start, duration, size = (
        np.array(column, np.int64)[rows] for column in (known.device, known.start, known.duration, known.size_bytes)
    )
    return device, start, duration, size


def _moving(files: Sequence[FileFacts]) -> dict[int, int]:
    """How long a transfer of each size takes where nobody waits."""
    tables = [_transfers(file) for file in files if file.collectives is not None]
    duration = np.concatenate([table[2] for table in tables])
    size = np.concatenate([table[3] for table in tables])
    values = np.unique(size).tolist()
    return {value: int(np.percentile(duration[size == value], _WITHOUT_WAIT)) for value in values}


def _stage(file: FileFacts, which: int, moving: Mapping[int, int]) -> Stage | None:
    if file.collectives is None or file.window is None:
        return None
    device, start, duration, size = _transfers(file)
    if not len(device) or (device != device[0]).any():
        return None
    gpu = file.gpus[int(device[0])]
    if gpu.exposed is None or gpu.account is None or gpu.account.wall <= 0:
        return None
    order = np.argsort(start, kind="stable")
    start, duration, size = start[order], duration[order], size[order]
    wait = np.maximum(0, duration - np.array([moving[value] for value in size.tolist()], np.int64))
    held_up = waits_that_hold_up(start, wait, start + duration, as_intervals(gpu.exposed.whole))
    low, high = np.array([file.window.start]), np.array([file.window.end])
    waiting = int(exposed_within(gpu.exposed, held_up).inside(low, high)[0])
    wall = gpu.account.wall
    return Stage(which, int(device[0]), waiting / wall, gpu.account.compute / wall)


def _microbatches(first: FileFacts) -> int | None:
    """How many microbatches the first stage hands on in a step: each is sent, or sent while a gradient comes back."""
    known = first.collectives
    if known is None or not first.steps.count:
        return None
    sends = [code for code in _codes(first) if known.keys[code][0].lower() in ("send", "coalesced")]
    step, code = np.array(known.step, np.int64), np.array(known.code, np.int64)
    counts = np.bincount(step[np.isin(code, sends) & (step >= 0)], minlength=first.steps.count)
    return int(counts[0]) if len(counts) and counts[0] > 0 and (counts == counts[0]).all() else None
