"""The answer of ``steps``: where each GPU's time went, step by step, and who was late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tb_gpu_doctor.analysis.job import NO_MEETINGS, Job, Meetings
from tb_gpu_doctor.analysis.results import Steps
from tb_gpu_doctor.analysis.step_costs import PART_IDS, step_parts
from tb_gpu_doctor.analysis.steps import order_of_steps, step_keys
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.plugin.timeline import Timeline
from tb_gpu_doctor.traces.columns import Int64, Trace

# GPUs x columns: about so many numbers a part are sent; more steps than that share columns.
MAX_CELLS = 1 << 14
# No picture shows more columns than this.
MAX_COLUMNS = 4_096


def steps_answer(
    traces: Sequence[Trace], analyses: Sequence[TraceAnalysis], job: Job, timeline: Timeline
) -> dict[str, Any]:
    """The answer of ``steps``.

    Args:
        traces: of the session.
        analyses: of the same traces.
        job: of all of them.
        timeline: whose lanes and clocks the answer refers to.
    """
    sources = [a.steps.source for a in analyses if a.steps.count]
    source = "marked" if "marked" in sources else "inferred" if sources else "none"
    usable = [a.steps.count > 0 and a.steps.source == source for a in analyses]
    keys = [
        step_keys(a.steps.number[a.steps.complete].tolist(), source == "inferred") if use else []
        for a, use in zip(analyses, usable, strict=True)
    ]
    order = order_of_steps(keys)
    gpus = len(timeline.sources)
    each = _steps_per_column(len(order), gpus)
    columns = -(-len(order) // each)
    table = _Table(gpus, columns)
    start, end = np.full(columns, np.iinfo(np.int64).max), np.full(columns, np.iinfo(np.int64).min)
    compared = False
    for lane, where in enumerate(timeline.sources):
        trace, analysis, device = traces[where.trace], analyses[where.trace], where.device.index
        if not usable[where.trace] or device >= analysis.steps.start.shape[1]:
            continue
        met = job.meetings.get((where.trace, device))
        rows = trace.device_events.of_device(device)
        wall, parts = step_parts(trace, analysis, device, (met or NO_MEETINGS).wait_of_events(rows))
        at = np.array([order[key] for key in keys[where.trace]], np.int64) // each
        late = None
        if met is not None:
            compared = True
            late = _late(analysis.steps, met)
        table.add(lane, at, wall, parts, late)
        used = np.flatnonzero(wall >= 0)
        complete = np.flatnonzero(analysis.steps.complete)[used]
        np.minimum.at(start, at[used], analysis.steps.start[complete, device] + where.shift.offset)
        np.maximum.at(end, at[used], analysis.steps.end[complete, device] + where.shift.offset)
    numbers = [key[0] for key in order]
    # where the host cuts the steps, nothing was concluded from kernels that are alike
    alike = [a.steps.confidence for a in analyses if a.steps.confidence is not None and a.steps.cut_at is None]
    return {
        "source": source,
        "confidence": min(alike, default=None) if source == "inferred" else None,
        "gpus": [{"lane": lane, "host": s.host, "gpu": s.device.id} for lane, s in enumerate(timeline.sources)],
        "steps": [
            {
                "number": numbers[column * each],
                "count": min(each, len(numbers) - column * each),
                "start_ps": int(start[column]) if start[column] <= end[column] else 0,
                "end_ps": int(end[column]) if start[column] <= end[column] else 0,
            }
            for column in range(columns)
        ],
        "steps_per_column": each,
        "total_steps": len(order),
        "parts": list(PART_IDS),
        **table.to_json(compared),
    }


class _Table:
    """Sums by GPU and column."""

    def __init__(self, gpus: int, columns: int) -> None:
        shape = (gpus, columns)
        self._steps = np.zeros(shape, np.int64)
        self._wall, self._longest, self._late = (np.zeros(shape, np.int64) for _ in range(3))
        self._parts = np.zeros((*shape, len(PART_IDS)), np.int64)
        self._compared = np.zeros(gpus, np.bool_)

    def add(self, gpu: int, at: Int64, wall: Int64, parts: Int64, late: Int64 | None) -> None:
        """One GPU's complete steps, each with the column that it belongs to."""
        used = wall >= 0
        at, wall, parts = at[used], wall[used], parts[used]
        np.add.at(self._steps[gpu], at, 1)
        np.add.at(self._wall[gpu], at, wall)
        np.maximum.at(self._longest[gpu], at, wall)
        np.add.at(self._parts[gpu], at, parts)
        if late is not None:
            self._compared[gpu] = True
            np.add.at(self._late[gpu], at, late[used])

    def to_json(self, compared: bool) -> dict[str, Any]:
        """The tables as lists, null where a GPU has no such step."""
        there = self._steps > 0
        occurs = [index for index in range(len(PART_IDS)) if self._parts[:, :, index].any()]
        return {
            "wall_ps": _lists(self._wall, there),
            "longest_ps": _lists(self._longest, there),
            "late_ps": _lists(self._late, there & self._compared[:, None]) if compared else None,
            "parts_ps": {PART_IDS[index]: _lists(self._parts[:, :, index], there) for index in occurs},
        }


def _lists(values: Int64, there: np.ndarray) -> list[list[int | None]]:
    return [
        [value if known else None for value, known in zip(row, line, strict=True)]
        for row, line in zip(values.tolist(), there.tolist(), strict=True)
    ]


def _steps_per_column(steps: int, gpus: int) -> int:
    columns = max(1, min(MAX_COLUMNS, MAX_CELLS // max(1, gpus)))
    return max(1, -(-steps // columns))


def _late(steps: Steps, met: Meetings) -> Int64:
    """How far a GPU was behind the first one in each complete step, summed over the step's collectives."""
    complete = np.flatnonzero(steps.complete)
    late = np.zeros(len(steps.number) + 1, np.int64)  # the last element: outside steps
    np.add.at(late, steps.event_step[met.row], met.behind)
    return late[complete]
