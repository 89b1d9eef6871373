"""Collectives of one group, kind and size taken together: waiting, moving, bandwidth, and who came last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.collective_kinds import NEEDS_ALL, CollectiveKind, bus_factor
from tb_gpu_doctor.analysis.job import JobLateness
from tb_gpu_doctor.analysis.results import BoolArray, Float64
from tb_gpu_doctor.traces.columns import Int64, Trace
from tb_gpu_doctor.traces.grouping import group


@dataclass(frozen=True)
class CollectiveRow:
    """Collectives that differ only in time.

    Attributes:
        group: index into ``Collectives.groups``.
        kind: what they do.
        name, op: of the kernel, and of the HLO op ("" for none).
        size_bytes: what each works on, None where unknown.
        present: the participants that took part in any, shape (p,).
        count: how many there were; per participant in ``counts``, shape (p,).
        inside, wait: time inside, and before the last had come, summed per participant, shape (p,).
        last: how many each participant was the last to enter, by more than the error, shape (p,).
        behind: how far behind the first each came, summed, shape (p,).
        algorithm_bytes_per_s, bus_bytes_per_s: as nccl-tests define them, None where the size is unknown.
    """

    group: int
    kind: CollectiveKind
    name: str
    op: str
    size_bytes: int | None
    present: BoolArray
    count: int
    counts: Int64
    inside: Int64
    wait: Int64
    last: Int64
    behind: Int64
    algorithm_bytes_per_s: float | None
    bus_bytes_per_s: float | None


def collective_table(traces: Sequence[Trace], lateness: JobLateness) -> tuple[CollectiveRow, ...]:
    """One row for each group, kind, name and size; longest total time first."""
    found = lateness.collectives
    present = found.present
    inside = np.where(present, found.end - found.start, 0)
    last = last_to_come(lateness)
    first = present.argmax(axis=1)  # whose names the row goes by: the first participant's
    names, ops = _names(traces, lateness, first)
    name_ids, op_ids = _numbered(names), _numbered(ops)
    columns = np.stack([found.group, found.kind, found.size_bytes, name_ids, op_ids], axis=1)
    _, at = np.unique(columns, axis=0, return_inverse=True)
    at = at.reshape(-1)
    order = np.argsort(at, kind="stable")
    borders = np.flatnonzero(np.concatenate(([True], np.diff(at[order]) > 0, [True])))
    rows = []
    for low, high in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        mine = order[low:high]
        one = int(mine[0])
        size = int(found.size_bytes[one])
        rates = _rates(found.kind[mine], size, present[mine], inside[mine] - lateness.wait[mine]) if size > 0 else None
        rows.append(
            CollectiveRow(
                group=int(found.group[one]),
                kind=CollectiveKind(int(found.kind[one])),
                name=names[one],
                op=ops[one],
                size_bytes=size if size >= 0 else None,
                present=np.asarray(present[mine].any(axis=0)),
                count=len(mine),
                counts=present[mine].sum(axis=0),
                inside=inside[mine].sum(axis=0),
                wait=lateness.wait[mine].sum(axis=0),
                last=last[mine].sum(axis=0),
                behind=lateness.behind[mine].sum(axis=0),
                algorithm_bytes_per_s=None if rates is None else rates[0],
                bus_bytes_per_s=None if rates is None else rates[1],
            )
        )
    rows.sort(key=lambda row: -int(row.inside.sum()))
    return tuple(rows)


def last_to_come(lateness: JobLateness) -> BoolArray:
    """Who entered each collective last, behind the one before by more than the error; shape (k, p)."""
    behind = np.where(lateness.collectives.present, lateness.behind, -1)
    most = behind.max(axis=1, keepdims=True)
    second = np.sort(behind, axis=1)[:, -2:-1] if behind.shape[1] > 1 else np.zeros_like(most)
    result: BoolArray = (behind == most) & (most - np.maximum(second, 0) > lateness.error)
    return result


def _rates(kind: Int64, size: int, present: BoolArray, moving: Int64) -> tuple[float, float] | None:
    """Bytes per second of the algorithm and of the bus: over the median time without waiting of each."""
    if int(kind[0]) not in NEEDS_ALL:
        return None
    time: Float64 = np.array([np.median(m[p]) for m, p in zip(moving, present, strict=True)])
    useful = time > 0
    if not useful.any():
        return None
    factor = bus_factor(kind[useful], present[useful].sum(axis=1))
    seconds = float(time[useful].sum()) / 1e12
    return size * int(np.count_nonzero(useful)) / seconds, float(size * factor.sum()) / seconds


def _names(traces: Sequence[Trace], lateness: JobLateness, first: Int64) -> tuple[list[str], list[str]]:
    found = lateness.collectives
    names, ops = [""] * len(found), [""] * len(found)
    for column in sorted(set(first.tolist())):
        trace = traces[int(found.trace[column])]
        rows = np.flatnonzero(first == column)
        events = trace.device_events
        for ids, into in ((events.name, names), (events.hlo_op, ops)):
            values, inverse = group(ids[found.row[rows, column]].astype(np.int64))
            texts = [trace.strings[i] if i >= 0 else "" for i in values.tolist()]
            for row, which in zip(rows.tolist(), inverse.tolist(), strict=True):
                into[row] = texts[which]
    return names, ops


def _numbered(texts: Sequence[str]) -> Int64:
    known: dict[str, int] = {}
    return np.array([known.setdefault(text, len(known)) for text in texts], np.int64)
