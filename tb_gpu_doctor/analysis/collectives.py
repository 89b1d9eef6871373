"""The collectives of a job, matched over all its GPUs, whatever file they are in.

Nothing in a trace says which kernels of two GPUs are one collective. They are matched step by step
(by the steps' numbers where they are marked in all files, else over the whole window): the n-th of
a kind on one GPU is the n-th on another one, a kind being the communicator, name and size as far as
they are recorded. Where a GPU ran more or fewer than the others, its sequence is first aligned
with theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.collective_candidates import Key, Lane, candidates_of
from tb_gpu_doctor.analysis.collective_groups import split_groups
from tb_gpu_doctor.analysis.collective_matching import Events, identities
from tb_gpu_doctor.analysis.results import TraceAnalysis
from tb_gpu_doctor.traces.columns import Int32, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, group


@dataclass(frozen=True)
class Collectives:
    """Matched collectives; times on the clock of each participant's own file.

    Attributes:
        trace, device: of each participant, shape (p,): index into the traces, and into ``Trace.devices``.
        row: device event of collective k on each participant, -1 where it has none; shape (k, p).
        start, end: its times, 0 where there is none; shape (k, p).
        kind: `CollectiveKind`, shape (k,).
        size_bytes: what it works on, -1 unknown; shape (k,).
        step: number of the step, -1 without marked steps; shape (k,).
        expected: how many participants its communicator has in these traces, shape (k,).
        unmatched: collective kernels of each participant that no other one's were matched with, shape (p,).
        group: the communicator of each, shape (k,): index into ``groups``.
        groups: communicators by name, "" where the files name none; then all GPUs may seem to be one group.
    """

    trace: Int32
    device: Int32
    row: Int64
    start: Int64
    end: Int64
    kind: Int64
    size_bytes: Int64
    step: Int64
    expected: Int64
    unmatched: Int64
    group: Int64
    groups: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.row)

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which participants a collective was found on, shape (k, p)."""
        return self.row >= 0

    def only(self, rows: Int64 | NDArray[np.bool_]) -> Collectives:
        """Some of the collectives."""
        return Collectives(
            self.trace, self.device, self.row[rows], self.start[rows], self.end[rows], self.kind[rows],
            self.size_bytes[rows], self.step[rows], self.expected[rows], self.unmatched, self.group[rows], self.groups,
        )  # fmt: skip


def match_collectives(traces: Sequence[Trace], analyses: Sequence[TraceAnalysis]) -> Collectives | None:
    """Match the collectives of several traces, or of the GPUs of one.

    Only what starts inside a trace's window takes part, on GPUs that compute.

    Returns:
        None when there are fewer than two GPUs with collectives, or nothing matches.
    """
    parts, events, groups = _gather(traces, analyses)
    if len(parts) < 2 or not len(events.part):
        return None
    total = np.bincount(events.part, minlength=len(parts))
    trace_of = np.array([which for which, _ in parts], np.int64)
    split = split_groups(events, trace_of, groups)
    if split is not None:
        events, groups = split
    identity = identities(events, trace_of)
    known = identity >= 0
    events, (_, at) = events.only(known), group(identity[known])
    if not len(at):
        return None
    row = np.full((int(at.max()) + 1, len(parts)), -1, np.int64)
    row[at, events.part] = events.row
    first = np.zeros(len(row), np.int64)
    first[at[::-1]] = np.arange(len(at))[::-1]
    rows = np.flatnonzero((row >= 0).sum(axis=1) >= 2)
    if not len(rows):
        return None
    start, end = np.zeros_like(row), np.zeros_like(row)
    start[at, events.part], end[at, events.part] = events.start, events.end
    row, first, start, end = row[rows], first[rows], start[rows], end[rows]
    return Collectives(
        trace=np.array([which for which, _ in parts], np.int32),
        device=np.array([device for _, device in parts], np.int32),
        row=row,
        start=start,
        end=end,
        kind=events.kind[first],
        size_bytes=events.size[first],
        step=events.step[first],
        expected=_members(events)[events.lane[first]],
        unmatched=np.asarray(total - (row >= 0).sum(axis=0), dtype=np.int64),
        group=events.lane[first],
        groups=groups,
    )


def _gather(
    traces: Sequence[Trace], analyses: Sequence[TraceAnalysis]
) -> tuple[list[tuple[int, int]], Events, tuple[str, ...]]:
    """The participants as (trace, device), their collective kernels, and the names of communicators."""
    marked = all(a.steps.source == "marked" and a.steps.count for a in analyses if a.window is not None)
    parts: list[tuple[int, int]] = []
    columns: list[tuple[Int64, ...]] = []
    # Numbers for communicators and for kinds of collectives that mean the same in all traces.
    lanes: dict[Lane, int] = {}
    keys: dict[Key, int] = {}
    for which, (trace, analysis) in enumerate(zip(traces, analyses, strict=True)):
        found = candidates_of(trace, analysis)
        if found is None:
            continue
        step = np.full(len(found.row), -1, np.int64)
        used = np.ones(len(found.row), np.bool_)
        if marked:
            used = (found.step >= 0) & analysis.steps.complete[found.step]
            step = analysis.steps.number[found.step]
        part = np.full(len(trace.devices), -1, np.int64)
        for device in np.intersect1d(found.computing, found.device[used]).tolist():
            part[device] = len(parts)
            parts.append((which, device))
        rows = np.flatnonzero(used & (part[found.device] >= 0))
        lane_of, key_of = np.zeros(len(found.keys), np.int64), np.zeros(len(found.keys), np.int64)
        for code in distinct(found.code[rows]).tolist():
            lane_of[code] = lanes.setdefault(found.lanes[code], len(lanes))
            key_of[code] = keys.setdefault(found.keys[code], len(keys))
        lane, key = lane_of[found.code], key_of[found.code]
        whole = (
            part[found.device], step, lane, key, found.start, found.end, found.row, found.kind, found.size_bytes
        )  # fmt: skip
        columns.append(tuple(column[rows] for column in whole))
    if not columns:
        return [], Events(*(np.zeros(0, np.int64) for _ in range(9))), ()
    made = Events(*(np.concatenate(column) for column in zip(*columns, strict=True)))
    names = tuple(b" ".join(filter(None, texts)).decode("utf-8", "replace") for texts in lanes)
    return parts, made.only(np.lexsort((made.start, made.key, made.lane, made.step, made.part))), names


def _members(events: Events) -> Int64:
    """How many participants each lane has, by its number."""
    pairs = distinct(events.lane * (int(events.part.max()) + 1) + events.part)
    return np.bincount(pairs // (int(events.part.max()) + 1))
