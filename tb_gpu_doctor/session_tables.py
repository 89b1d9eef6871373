"""The tables of a session: its GPUs, steps, gaps, kernels and collectives as columns.

GPUs are in the diagnosis itself. The others need what a diagnosis does not keep, so the files are read once more when
the first of them is asked for; all four are made then, and remembered where diagnoses are.

Times are milliseconds on the clock of the row's host, as in the trace viewer; unknown values are NaN or missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.collectives import CollectiveKind
from tb_gpu_doctor.analysis.facts import FileFacts
from tb_gpu_doctor.analysis.file_columns import FileColumns
from tb_gpu_doctor.analysis.job import Job, parts_of_steps
from tb_gpu_doctor.analysis.results import CAUSE_IDS, Steps
from tb_gpu_doctor.analysis.step_costs import PART_IDS
from tb_gpu_doctor.api import SessionResult, diagnose_session
from tb_gpu_doctor.cache.remember import remembered
from tb_gpu_doctor.diagnosis.model import GpuReport
from tb_gpu_doctor.report.diagnosis_report import MAX_NAME, DiagnosisReport
from tb_gpu_doctor.report.kernel_report import Listed, as_dict, kernel_list
from tb_gpu_doctor.tables import Column, Table, floats, integers, stacked, words
from tb_gpu_doctor.texts.numbers import clean
from tb_gpu_doctor.traces.columns import PS_PER_MS, Int64, StringTable
from tb_gpu_doctor.traces.grouping import group
from tb_gpu_doctor.traces.sessions import Session

_TABLES = "tables"


@dataclass(frozen=True, eq=False)
class SessionTables:
    """The tables that need the files, and the diagnosis that the same files gave."""

    diagnosis: DiagnosisReport
    steps: Table
    gaps: Table
    kernels: Table
    collectives: Table


def tables_of(session: Session) -> SessionTables:
    """The tables of a session, remembered from the last time where its files are the same.

    Raises:
        ProfileError: no file could be read; the first one's reason.
    """

    def make() -> tuple[SessionTables, bool]:
        result = diagnose_session(session, with_columns=True)
        return make_tables(result), not result.failures

    return remembered(session, _TABLES, SessionTables, make)


def make_tables(result: SessionResult) -> SessionTables:
    """The tables of a session that was read with its columns."""
    files, job = result.files, result.job
    return SessionTables(
        diagnosis=result.diagnosis,
        steps=_steps(files, job),
        gaps=_gaps(files, result.columns),
        kernels=_kernels(files),
        collectives=_collectives(files, job),
    )


def gpu_table(gpus: Sequence[GpuReport]) -> Table:
    """Where each GPU's window went, a row a GPU."""
    parts = ("wall", "compute", "communication", "communication_wait", "transfer", "idle")
    causes = {
        f"idle_{cause}_ms": _ms([None if gpu.idle_by_cause is None else gpu.idle_by_cause[index] for gpu in gpus])
        for index, cause in enumerate(CAUSE_IDS)
    }
    shares = ("occupancy", "achieved_occupancy", "sm_efficiency")
    return Table(
        "gpus",
        {
            "host": words(_name(gpu.gpu.host) for gpu in gpus),
            "gpu": integers(gpu.gpu.id for gpu in gpus),
            "rank": integers(gpu.rank for gpu in gpus),
            "name": words(None if gpu.name is None else _name(gpu.name) for gpu in gpus),
            **{f"{part}_ms": _ms([getattr(gpu, part) for gpu in gpus]) for part in parts},
            **causes,
            **{share: floats(getattr(gpu, share) for gpu in gpus) for share in shares},
        },
    )


def _name(value: str) -> str:
    return clean(value, MAX_NAME)


def _ms(values: Sequence[float | None] | Int64) -> Column:
    """Picoseconds as milliseconds; None is unknown."""
    if isinstance(values, np.ndarray):
        return Column(values / PS_PER_MS)
    return floats(None if value is None else value / PS_PER_MS for value in values)


def _same(value: str, count: int) -> Column:
    return Column(np.zeros(count, np.int32), (value,))


def _optional(values: Int64) -> Column:
    """Integers of which the negative ones are unknown."""
    known = values >= 0
    return Column(np.where(known, values, 0), None, None if known.all() else known)


def _names(strings: StringTable, idents: NDArray[np.integer]) -> Column:
    """Recorded names by their numbers, -1 for none; equal ones are one word."""
    values, inverse = group(idents.astype(np.int64))
    places: dict[str, int] = {}
    to = [-1 if ident < 0 else places.setdefault(_name(strings[ident]), len(places)) for ident in values.tolist()]
    return Column(np.array(to, np.int32)[inverse], tuple(places))


def _at(column: NDArray[np.integer], rows: Int64) -> Int64:
    """The elements of a column in ``rows``, -1 where a row is negative."""
    found = np.full(len(rows), -1, np.int64)
    known = rows >= 0
    found[known] = column[rows[known]]
    return found


def _steps(files: Sequence[FileFacts], job: Job) -> Table:
    """A row a complete step and GPU that did anything in it; the parts sum to ``duration_ms``."""
    parts = []
    for which, file in enumerate(files):
        for device, gpu in enumerate(file.gpus):
            if gpu.steps is None:
                continue
            wall, spent = parts_of_steps(files, which, device, job)
            used = np.flatnonzero(wall >= 0)
            end = np.array(gpu.steps.end, np.int64)
            numbers = np.array(file.steps.numbers, np.int64)
            parts.append(_step_columns(file.label, gpu.device.id, numbers[used], end[used], wall[used], spent[used]))
    none = np.zeros(0, np.int64)
    return stacked("steps", parts, _step_columns("", 0, none, none, none, np.zeros((0, len(PART_IDS)), np.int64)))


def _step_columns(host: str, gpu: int, number: Int64, end: Int64, wall: Int64, spent: Int64) -> Mapping[str, Column]:
    count = len(number)
    return {
        "host": _same(_name(host), count),
        "gpu": Column(np.full(count, gpu, np.int64)),
        "step": Column(number),
        "start_ms": _ms(end - wall),
        "duration_ms": _ms(wall),
        **{_part_name(part): _ms(spent[:, index]) for index, part in enumerate(PART_IDS)},
    }


def _part_name(part: str) -> str:
    return f"idle_{part}_ms" if part in CAUSE_IDS else f"{part}_ms"


def _gaps(files: Sequence[FileFacts], columns: Sequence[FileColumns]) -> Table:
    """A row an idle gap in the window of a GPU; what is charged to each cause sums to ``duration_ms``."""
    parts = [_gap_columns(file, found) for file, found in zip(files, columns, strict=True)]
    return stacked("gaps", parts, _no_gaps())


def _gap_columns(file: FileFacts, columns: FileColumns) -> Mapping[str, Column]:
    trace, gaps, steps = columns.trace, columns.analysis.gaps, columns.analysis.steps
    ids = np.array([device.id for device in trace.devices] or [0], np.int64)
    step = np.full(len(gaps), -1, np.int64)
    for device in range(len(trace.devices)):
        mine = np.flatnonzero(gaps.device == device)
        step[mine] = _steps_at(steps, device, gaps.start[mine])
    host, threads = trace.host_events, tuple(thread.name for thread in trace.threads)
    thread = _at(host.thread, gaps.evidence)
    names: dict[str, int] = {}
    place = np.array([*(names.setdefault(_name(name), len(names)) for name in threads), -1], np.int32)
    return {
        "host": _same(_name(file.label), len(gaps)),
        "gpu": Column(ids[gaps.device]),
        "step": Column(np.where(step >= 0, _at(steps.number, step), 0), None, None if (step >= 0).all() else step >= 0),
        "start_ms": _ms(gaps.start),
        "end_ms": _ms(gaps.end),
        "duration_ms": _ms(gaps.end - gaps.start),
        "cause": Column(gaps.cause.astype(np.int32), CAUSE_IDS),
        **{f"idle_{cause}_ms": _ms(gaps.by_cause[:, index]) for index, cause in enumerate(CAUSE_IDS)},
        "before": _names(trace.strings, _at(trace.device_events.name, gaps.before)),
        "after": _names(trace.strings, _at(trace.device_events.name, gaps.after)),
        "evidence": _names(trace.strings, _at(host.name, gaps.evidence)),
        "thread": Column(place[thread], tuple(names)),
    }


def _no_gaps() -> Mapping[str, Column]:
    text, number, time = words(()), integers(()), floats(())
    return {
        **{"host": text, "gpu": number, "step": number, "start_ms": time, "end_ms": time, "duration_ms": time},
        "cause": text,
        **{f"idle_{cause}_ms": time for cause in CAUSE_IDS},
        **{"before": text, "after": text, "evidence": text, "thread": text},
    }


def _steps_at(steps: Steps, device: int, time: Int64) -> Int64:
    """The row of the step of a GPU at each time, -1 for none."""
    if device >= steps.start.shape[1]:
        return np.full(len(time), -1, np.int64)
    used = np.flatnonzero(steps.end[:, device] >= 0)
    used = used[np.argsort(steps.start[used, device], kind="stable")]
    if not len(used):
        return np.full(len(time), -1, np.int64)
    at = used[np.maximum(np.searchsorted(steps.start[used, device], time, side="right") - 1, 0)]
    inside = (steps.start[at, device] <= time) & (time < steps.end[at, device])
    return np.where(inside, at, -1)


def _kernels(files: Sequence[FileFacts]) -> Table:
    """A row a kernel (by name and launch configuration) and GPU, longest first: the columns of `docs/kernels.md`."""
    gpus = [(file.label, gpu.device) for file in files for gpu in file.gpus]
    listed = kernel_list([([gpu.device for gpu in file.gpus], file.kernels) for file in files])
    data = [as_dict(kernel) for kernel in listed]

    def place(kernel: Listed) -> tuple[str, int]:
        host, device = gpus[kernel.gpus[0]]
        return _name(host), device.id

    def shape(value: tuple[int, int, int] | None) -> str | None:
        return None if value is None else "x".join(map(str, value))

    def text(column: str) -> Column:
        return words(_name(row[column]) if row[column] else None for row in data)

    def number(column: str) -> Column:
        return integers(row[column] for row in data)

    def real(column: str) -> Column:
        return floats(row[column] for row in data)

    times = ("total_ms", "in_window_ms", "mean_us", "min_us", "max_us", "share")
    counts = ("registers", "static_shared_bytes", "dynamic_shared_bytes")
    return Table(
        "kernels",
        {
            "host": words(place(kernel)[0] for kernel in listed),
            "gpu": integers(place(kernel)[1] for kernel in listed),
            "name": text("name"),
            "op": text("op"),
            "calls": number("calls"),
            **{name: real(name) for name in times},
            **{name: number(name) for name in counts},
            "grid": words(shape(row["grid"]) for row in data),
            "block": words(shape(row["block"]) for row in data),
            "occupancy": real("occupancy"),
            "limiter": text("limiter"),
            **{name: real(name) for name in ("achieved_occupancy", "waves", "tail", "sm_share")},
            "family": text("family"),
            "tensor_cores": text("tensor_cores"),
            "data_type": text("data_type"),
            "bound": text("bound"),
        },
    )


def _collectives(files: Sequence[FileFacts], job: Job) -> Table:
    """A row a collective and GPU in it; equal numbers in ``collective`` are one, a missing one is unmatched."""
    found = job.collectives
    columns: dict[tuple[int, int], int] = {}
    if found is not None:
        pairs = zip(found.trace.tolist(), found.device.tolist(), strict=True)
        columns = {pair: column for column, pair in enumerate(pairs)}
    parts = []
    for which, file in enumerate(files):
        facts = file.collectives
        if facts is None or not facts.row:
            continue
        row, device = np.array(facts.row, np.int64), np.array(facts.device, np.int64)
        number, wait, behind = (np.full(len(row), fill) for fill in (-1, np.nan, np.nan))
        for gpu in np.unique(device).tolist():
            mine = np.flatnonzero(device == gpu)
            column = columns.get((which, gpu))
            if found is not None and column is not None:
                there = np.flatnonzero(found.row[:, column] >= 0)
                _put(number, row, mine, found.row[there, column], there)
            met = job.meetings.get((which, gpu))
            if met is not None:
                _put(wait, row, mine, met.row, met.wait / PS_PER_MS)
                _put(behind, row, mine, met.row, met.behind / PS_PER_MS)
        step = np.array(facts.step, np.int64)
        inside = np.array(facts.duration, np.int64)
        lanes, keys = [facts.lanes[at] for at in facts.code], [facts.keys[at] for at in facts.code]
        numbers = np.array([*file.steps.numbers, 0], np.int64)
        parts.append(
            {
                "collective": _optional(number.astype(np.int64)),
                "host": _same(_name(file.label), len(row)),
                "gpu": Column(np.array([gpu.device.id for gpu in file.gpus], np.int64)[device]),
                "step": Column(numbers[step], None, None if (step >= 0).all() else step >= 0),
                "kind": words(CollectiveKind(key[2]).name.lower() for key in keys),
                "name": words(_name(key[0]) for key in keys),
                "op": words(_name(key[1]) or None for key in keys),
                "group": words(_name(lane[0]) or None for lane in lanes),
                "size_bytes": _optional(np.array(facts.size_bytes, np.int64)),
                "start_ms": _ms(np.array(facts.start, np.int64)),
                "inside_ms": _ms(inside),
                "wait_ms": Column(wait),
                "moving_ms": Column(inside / PS_PER_MS - wait),
                "behind_ms": Column(behind),
            }
        )
    text, whole, time = words(()), integers(()), floats(())
    empty = {
        **{"collective": whole, "host": text, "gpu": whole, "step": whole},
        **{"kind": text, "name": text, "op": text, "group": text, "size_bytes": whole},
        **{name: time for name in ("start_ms", "inside_ms", "wait_ms", "moving_ms", "behind_ms")},
    }
    return stacked("collectives", parts, empty)


def _put(into: NDArray[np.float64], row: Int64, mine: Int64, found: Int64, values: NDArray[np.generic]) -> None:
    """Write ``values`` of the device events ``found`` where ``row`` names them; ``row[mine]`` rises."""
    at = np.searchsorted(row[mine], found)
    inside = at < len(mine)
    inside[inside] = row[mine[at[inside]]] == found[inside]
    into[mine[at[inside]]] = values[inside]
