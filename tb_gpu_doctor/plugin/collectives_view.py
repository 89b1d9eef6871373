"""The answer of ``collectives``: what they cost, and who kept the others waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tb_gpu_doctor.analysis.intervals import clip, measure, union
from tb_gpu_doctor.analysis.job import CollectiveRow, Job, collective_table, last_to_come
from tb_gpu_doctor.analysis.results import Window
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.plugin.timeline import MAX_NAME_CHARS, Timeline, shorten
from tb_gpu_doctor.traces.columns import PS_PER_MS, EventClass, Trace

MAX_ROWS = 500
# Rows x GPUs: with more, only the first rows say what each GPU did.
MAX_CELLS = 20_000
_GB = 1e9


def collectives_answer(
    traces: Sequence[Trace], analyses: Sequence[TraceAnalysis], job: Job, timeline: Timeline
) -> dict[str, Any]:
    """The answer of ``collectives``.

    Args:
        traces: of the session.
        analyses: of the same traces.
        job: of all of them.
        timeline: whose lanes the answer refers to.
    """
    lateness = job.lateness
    rows = () if lateness is None else collective_table(traces, lateness)
    lanes = {(source.trace, source.device.index): lane for lane, source in enumerate(timeline.sources)}
    # participants of the job by column, as lanes
    columns = []
    if lateness is not None:
        found = lateness.collectives
        columns = [lanes[pair] for pair in zip(found.trace.tolist(), found.device.tolist(), strict=True)]
    full = MAX_CELLS // max(1, len(columns))
    return {
        "method": None if lateness is None else lateness.method,
        "error_ms": 0.0 if lateness is None else lateness.error / PS_PER_MS,
        "missing_ranks": list(job.missing_ranks[:MAX_ROWS]),
        "gpus": _gpus(traces, analyses, job, timeline, columns),
        "groups": _groups(rows, columns, job),
        "rows": [_describe(row, columns, place < full) for place, row in enumerate(rows[:MAX_ROWS])],
        "total_rows": len(rows),
        "truncated": len(rows) > MAX_ROWS,
    }


def _gpus(
    traces: Sequence[Trace], analyses: Sequence[TraceAnalysis], job: Job, timeline: Timeline, columns: list[int]
) -> list[dict[str, Any]]:
    lateness, found = job.lateness, job.collectives
    last = last_to_come(lateness).sum(axis=0) if lateness is not None else np.zeros(0, np.int64)
    unmatched = {}
    if found is not None:
        for trace, device, count in zip(
            found.trace.tolist(), found.device.tolist(), found.unmatched.tolist(), strict=True
        ):
            unmatched[trace, device] = count
    column_of = {lane: column for column, lane in enumerate(columns)}
    answers = []
    for lane, source in enumerate(timeline.sources):
        key = source.trace, source.device.index
        exposed, window = job.exposed.get(key), analyses[source.trace].window
        column = column_of.get(lane, -1)
        behind, matched = 0.0, 0
        if lateness is not None and column >= 0:
            there = lateness.collectives.present[:, column]
            matched = int(np.count_nonzero(there))
            behind = float(lateness.behind[there, column].mean()) if matched else 0.0
        hidden = 0
        if exposed is not None and window is not None:
            hidden = _communication(traces[source.trace], source.device.index, window) - exposed.total
        answers.append(
            {
                "lane": lane,
                "host": source.host,
                "gpu": source.device.id,
                "moving_ms": 0.0 if exposed is None else exposed.moving / PS_PER_MS,
                "waiting_ms": 0.0 if exposed is None else exposed.waiting / PS_PER_MS,
                "unsplit_ms": 0.0 if exposed is None else exposed.unsplit / PS_PER_MS,
                "hidden_ms": hidden / PS_PER_MS,
                "matched": matched,
                "unmatched": unmatched.get(key, 0),
                "last": int(last[column]) if column >= 0 else 0,
                "behind_ms": behind / PS_PER_MS,
            }
        )
    return answers


def _communication(trace: Trace, device: int, window: Window) -> int:
    """All communication of a GPU in its window, hidden behind computation or not."""
    events, rows = trace.device_events, trace.device_events.of_device(device)
    sent = events.klass[rows] == EventClass.COMMUNICATION
    alone = union(events.start[rows][sent], events.end[rows][sent])
    return measure(clip(alone, window.start, window.end))


def _groups(rows: Sequence[CollectiveRow], columns: list[int], job: Job) -> list[dict[str, Any]]:
    names = job.collectives.groups if job.collectives is not None else ()
    members: dict[int, set[int]] = {}
    for row in rows:
        members.setdefault(row.group, set()).update(columns[at] for at in np.flatnonzero(row.present).tolist())
    return [
        {"id": group, "name": shorten(names[group], MAX_NAME_CHARS) or None, "lanes": sorted(lanes)}
        for group, lanes in sorted(members.items())
    ]


def _describe(row: CollectiveRow, columns: list[int], full: bool) -> dict[str, Any]:
    there = np.flatnonzero(row.present).tolist()

    def mean_ms(values: Any) -> float:
        return float(values[there].mean()) / PS_PER_MS

    per_gpu = [
        {
            "lane": columns[at],
            "count": int(row.counts[at]),
            "inside_ms": int(row.inside[at]) / PS_PER_MS,
            "wait_ms": int(row.wait[at]) / PS_PER_MS,
            "moving_ms": int(row.inside[at] - row.wait[at]) / PS_PER_MS,
            "last": int(row.last[at]),
            "behind_ms": int(row.behind[at]) / max(1, int(row.counts[at])) / PS_PER_MS,
        }
        for at in (there if full else ())
    ]
    per_gpu.sort(key=lambda one: int(one["lane"]))
    return {
        "group": row.group,
        "kind": row.kind.name.lower(),
        "name": shorten(row.name, MAX_NAME_CHARS),
        "op": shorten(row.op, MAX_NAME_CHARS) or None,
        "size_bytes": row.size_bytes,
        "count": row.count,
        "inside_ms": mean_ms(row.inside),
        "wait_ms": mean_ms(row.wait),
        "moving_ms": mean_ms(row.inside - row.wait),
        "algorithm_gb_per_s": None if row.algorithm_bytes_per_s is None else row.algorithm_bytes_per_s / _GB,
        "bus_gb_per_s": None if row.bus_bytes_per_s is None else row.bus_bytes_per_s / _GB,
        "per_gpu": per_gpu,
    }
