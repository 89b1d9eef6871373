"""The collective kernels of one file: all that matching them with those of other files needs to know of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.collective_kinds import NEEDS_ALL, CollectiveKind, kinds, sizes
from tb_gpu_doctor.analysis.collective_matching import packed
from tb_gpu_doctor.analysis.results import Steps, TraceAnalysis, Window
from tb_gpu_doctor.traces.columns import NO_STAT, CopyKind, EventClass, Int32, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct

Lane = tuple[bytes, bytes]
Key = tuple[bytes, bytes, int, int]


@dataclass(frozen=True)
class Candidates:
    """The collective kernels that start inside a file's window, in the order of the device events.

    Attributes:
        row: of the device event; ``device``, ``start`` and ``end`` are its columns, shape (n,).
        step: index into `Steps`, -1 for none, shape (n,).
        kind: `CollectiveKind`; ``size_bytes`` of it, -1 unknown; shape (n,).
        code: index into ``lanes`` and ``keys``, shape (n,).
        lanes: process group and ranks, as far as the file names them.
        keys: what is the same on all that take part: name, HLO op, kind, size (-1 where that may differ).
        computing: devices with compute kernels, rising.
    """

    row: Int64
    device: Int32
    start: Int64
    end: Int64
    step: Int32
    kind: Int64
    size_bytes: Int64
    code: Int64
    lanes: tuple[Lane, ...]
    keys: tuple[Key, ...]
    computing: Int32

    def step_of(self, rows: Int64) -> Int32:
        """Index into `Steps` of device events that are among the candidates, shape (rows,)."""
        return self.step[np.searchsorted(self.row, rows)]


def candidates_of(trace: Trace, analysis: TraceAnalysis) -> Candidates | None:
    """The candidates of an analysed file, None without a window."""
    if analysis.window is None:
        return None
    return analysis.candidates or find_candidates(trace, analysis.window, analysis.steps)


def find_candidates(trace: Trace, window: Window, steps: Steps) -> Candidates:
    """The candidates of a file."""
    events = trace.device_events
    row = np.flatnonzero(
        (events.klass == EventClass.COMMUNICATION)
        & (events.copy_kind == CopyKind.NONE)
        & (events.start >= window.start)
        & (events.start < window.end)
    )
    kind, size = kinds(trace, row), sizes(trace, row)
    code, lanes, keys = _lanes_and_keys(trace, row, kind, size)
    step = steps.event_step[row] if len(steps.event_step) else np.full(len(row), -1, np.int32)
    return Candidates(
        row, events.device[row], events.start[row], events.end[row], step, kind, size, code, lanes, keys,
        distinct(events.device[events.klass == EventClass.COMPUTE]),
    )  # fmt: skip


def _lanes_and_keys(
    trace: Trace, rows: Int64, kind: Int64, size: Int64
) -> tuple[Int64, tuple[Lane, ...], tuple[Key, ...]]:
    """A number for each sort of collective, and the texts behind the numbers."""
    events, stats = trace.device_events, trace.device_stats
    process_group = stats.get("process_group", NO_STAT).at(rows)
    ranks = stats.get("group_ranks", NO_STAT).at(rows)
    # PyTorch's word says more than the kernel's name, which may differ by algorithm.
    word = stats.get("collective", NO_STAT).at(rows)
    name = np.where(word >= 0, word, events.name[rows]).astype(np.int64)
    hlo = events.hlo_op[rows].astype(np.int64)
    # sizes of the others may differ between participants
    same_size = np.where(np.isin(kind, NEEDS_ALL) & (kind != CollectiveKind.ALL_TO_ALL), size, -1)
    code = packed(process_group, ranks, name, hlo, kind, same_size)
    example = np.zeros(int(code.max()) + 1 if len(code) else 0, np.int64)
    example[code] = np.arange(len(code))

    def texts(ids: Int64) -> Sequence[bytes]:
        return [trace.strings.raw(i) if i >= 0 else b"" for i in ids[example].tolist()]

    lanes = tuple(zip(texts(process_group), texts(ranks), strict=True))
    keys = zip(texts(name), texts(hlo), kind[example].tolist(), same_size[example].tolist(), strict=True)
    return code, lanes, tuple(keys)
