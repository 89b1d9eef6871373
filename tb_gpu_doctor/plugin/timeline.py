"""The timeline of a profile: lanes, and the answers that the tab draws from.

Keeps only the columns that those answers need, so that the decoded trace can go.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.clocks import Clocks
from tb_gpu_doctor.analysis.results import CAUSE_IDS, Gaps, Steps, Window
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.plugin.lanes import (
    FIRST_CAUSE,
    LANE_CATEGORIES,
    ClockShift,
    Lane,
    build_lane,
    clock_shifts,
    times_before,
)
from tb_gpu_doctor.traces.columns import PS_PER_MS, Device, Int32, Int64, Trace

MAX_STEPS = 20_000
# Lanes whose pixels are worked out together: more would need more memory at once.
_LANES_AT_ONCE = 32
# Kernel names from a file can be 100 KB long; a label needs less than a tooltip.
MAX_NAME_CHARS = 4_000
MAX_LABEL_CHARS = 300
NO_NAME = 65_535


def shorten(name: str, limit: int) -> str:
    """``name`` within ``limit`` characters, the cut marked."""
    return name if len(name) <= limit else name[: limit - 1] + "…"


@dataclass(frozen=True)
class Names:
    """The strings that a trace's timeline mentions; id -1 reads as None."""

    values: tuple[str, ...]

    def get(self, index: int) -> str | None:
        """The string of an id."""
        return self.values[index] if index >= 0 else None


@dataclass(frozen=True)
class TraceTimeline:
    """What is kept of one trace, on its own clock. String columns hold ids into ``names``.

    ``evidence_*`` are of the host event that explains a gap, of the gaps' shape; -1 for none.
    """

    names: Names
    streams: tuple[str, ...]
    threads: tuple[str, ...]
    steps: Steps
    gaps: Gaps
    event_start: Int64
    event_duration: Int64
    event_name: Int32
    event_op: Int32
    event_stream: Int32
    evidence_name: Int32
    evidence_thread: Int32
    evidence_start: Int64
    evidence_end: Int64

    @property
    def size_bytes(self) -> int:
        """Approximate memory held."""
        columns = [value for value in vars(self).values() if isinstance(value, np.ndarray)]
        for part in (self.gaps, self.steps):
            columns += [value for value in vars(part).values() if isinstance(value, np.ndarray)]
        return sum(column.nbytes for column in columns) + sum(len(name) for name in self.names.values)


def _slim(trace: Trace, analysis: TraceAnalysis) -> TraceTimeline:
    events, host, gaps = trace.device_events, trace.host_events, analysis.gaps
    known = gaps.evidence >= 0
    evidence_name = np.full(len(gaps), -1, dtype=np.int32)
    evidence_thread = np.full(len(gaps), -1, dtype=np.int32)
    evidence_start, evidence_end = np.full(len(gaps), -1, np.int64), np.full(len(gaps), -1, np.int64)
    evidence_name[known] = host.name[gaps.evidence[known]]
    evidence_start[known] = host.start[gaps.evidence[known]]
    evidence_end[known] = host.end[gaps.evidence[known]]
    evidence_thread[known] = host.thread[gaps.evidence[known]]
    used = np.zeros(len(trace.strings) + 1, dtype=np.bool_)  # the last element stands for id -1
    for column in (events.name, events.op, evidence_name):
        used[column] = True
    ids = np.flatnonzero(used[:-1])
    place = np.full(len(used), -1, dtype=np.int32)
    place[ids] = np.arange(len(ids), dtype=np.int32)
    return TraceTimeline(
        names=Names(tuple(shorten(trace.strings[int(index)], MAX_NAME_CHARS) for index in ids)),
        streams=tuple(shorten(stream.name, MAX_LABEL_CHARS) for stream in trace.streams),
        threads=tuple(shorten(thread.name, MAX_LABEL_CHARS) for thread in trace.threads),
        steps=analysis.steps,
        gaps=gaps,
        event_start=events.start,
        event_duration=events.duration,
        event_name=place[events.name],
        event_op=place[events.op],
        event_stream=events.stream,
        evidence_name=place[evidence_name],
        evidence_thread=evidence_thread,
        evidence_start=evidence_start,
        evidence_end=evidence_end,
    )


@dataclass(frozen=True)
class LaneSource:
    """Which GPU a lane shows: index of its file, the host's names, the GPU, and its clock."""

    trace: int
    host: str
    hosts_file: str
    device: Device
    shift: ClockShift


class Timeline:
    """All GPUs of a session, on one clock as far as their files' clocks can be aligned.

    Args:
        traces: one a file.
        analyses: of the same traces, in the same order.
        hosts: per trace the label by which the diagnosis names its host.
        hosts_files: per trace the host name that the stock Profiler knows the file by.
        clocks: of the traces; None leaves each on its own.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        analyses: Sequence[TraceAnalysis],
        hosts: Sequence[str],
        hosts_files: Sequence[str],
        clocks: Clocks | None = None,
    ) -> None:
        shifts = clock_shifts(clocks, analyses)
        several = clocks is not None and len(traces) > 1
        self._reference = hosts[clocks.reference] if clocks is not None and several else None
        self.shifts = shifts
        self.parts = [_slim(trace, analysis) for trace, analysis in zip(traces, analyses, strict=True)]
        self._windows = [
            None if a.window is None else Window(a.window.start + shift.offset, a.window.end + shift.offset)
            for a, shift in zip(analyses, shifts, strict=True)
        ]
        self._lanes: list[Lane] = []
        self.sources: list[LaneSource] = []
        for index, (trace, analysis) in enumerate(zip(traces, analyses, strict=True)):
            for device in trace.devices:
                self._lanes.append(build_lane(trace.device_events, analysis.gaps, device.index, shifts[index].offset))
                self.sources.append(LaneSource(index, hosts[index], hosts_files[index], device, shifts[index]))

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """One a GPU, in the order of ``sources``."""
        return tuple(self._lanes)

    @property
    def lane_count(self) -> int:
        """How many GPUs there are."""
        return len(self._lanes)

    def cell_count(self, width: int) -> int:
        """How many bytes the bins of ``width`` pixels take."""
        return len(self._lanes) * len(LANE_CATEGORIES) * width

    @property
    def size_bytes(self) -> int:
        """Approximate memory held."""
        return sum(lane.size_bytes for lane in self._lanes) + sum(part.size_bytes for part in self.parts)

    def meta(self) -> dict[str, Any]:
        """The answer of ``timeline/meta``."""
        windows = [window for window in self._windows if window is not None]
        used = [lane for lane in self._lanes if len(lane)]
        starts = [int(lane.start[0]) for lane in used] + [window.start for window in windows]
        ends = [int(lane.end[-1]) for lane in used] + [window.end for window in windows]
        window = None
        if windows:
            window = {"start_ps": min(w.start for w in windows), "end_ps": max(w.end for w in windows)}
        return {
            "start_ps": min(starts, default=0),
            "end_ps": max(ends, default=0),
            "window": window,
            "profile_start_ms": 0.0,
            "categories": list(LANE_CATEGORIES),
            "clock": {
                "reference": self._reference,
                "common": all(shift.error is not None for shift in self.shifts),
            },
            "lanes": [self._describe(index) for index in range(len(self._lanes))],
            "steps": self._steps(),
        }

    def _describe(self, index: int) -> dict[str, Any]:
        source = self.sources[index]
        return {
            "id": index,
            "kind": "gpu",
            "host": source.host,
            "gpu": source.device.id,
            "label": f"GPU {source.device.id}",
            "name": source.device.name,
            "hosts_file": source.hosts_file,
            "intervals": len(self._lanes[index]),
            "offset_ps": source.shift.offset,
            "offset_error_ps": source.shift.error,
        }

    def _steps(self) -> list[dict[str, Any]]:
        """The steps of the first file that has any: other files may have none, or others."""
        for part, shift in zip(self.parts, self.shifts, strict=True):
            steps = part.steps
            if not len(steps.number):
                continue
            used = steps.end >= 0
            start = np.where(used, steps.start, np.iinfo(np.int64).max).min(axis=1, initial=np.iinfo(np.int64).max)
            end = np.where(used, steps.end, -1).max(axis=1, initial=-1)
            return [
                {
                    "number": int(steps.number[row]),
                    "complete": bool(steps.complete[row]),
                    "start_ps": int(start[row]) + shift.offset,
                    "end_ps": int(end[row]) + shift.offset,
                }
                for row in np.flatnonzero(used.any(axis=1))[:MAX_STEPS]
            ]
        return []

    def bins(self, start: int, end: int, width: int) -> bytes:
        """The answer of ``timeline/bins``: how full each of ``width`` pixels of [start, end) is.

        The cost grows with the pixels, not with the intervals.
        """
        edges = pixel_edges(start, end, width)
        cells = np.zeros((len(self._lanes), len(LANE_CATEGORIES), width), dtype=np.uint8)
        for low in range(0, len(self._lanes), _LANES_AT_ONCE):
            block = slice(low, low + _LANES_AT_ONCE)
            cells[block] = fill_levels(np.diff(times_before(self._lanes[block], edges)), np.diff(edges))
        header = np.array([len(self._lanes), len(LANE_CATEGORIES), width], dtype="<u4")
        return header.tobytes() + cells.tobytes()

    def event_count(self, start: int, end: int) -> int:
        """How many intervals share time with [start, end)."""
        windows = [lane.overlapping(start, end) for lane in self._lanes]
        return sum(window.stop - window.start for window in windows)

    def events(self, start: int, end: int, limit: int) -> bytes:
        """The answer of ``timeline/events``: the intervals of [start, end), cut to it, as columns."""
        unit = time_unit(end - start)
        header: dict[str, Any] = {"count": 0, "base_ps": start, "unit_ps": unit, "names": [], "truncated": False}
        windows = [lane.overlapping(start, end) for lane in self._lanes]
        header["count"] = sum(window.stop - window.start for window in windows)
        if header["count"] > limit:
            header["truncated"] = True
            return _with_header(header, [])
        name, header["names"] = self._name_column(windows)
        pairs = list(zip(self._lanes, windows, strict=True))
        starts = [np.maximum(lane.start[window], start) for lane, window in pairs]
        ends = [np.minimum(lane.end[window], end) for lane, window in pairs]
        lanes = [np.full(window.stop - window.start, index, dtype="<u2") for index, window in enumerate(windows)]
        categories = [lane.category[window] for lane, window in pairs]
        columns: list[NDArray[Any]] = [
            ((_joined(starts, np.int64) - start) // unit).astype("<u4"),
            ((_joined(ends, np.int64) - start) // unit).astype("<u4"),
            _joined(lanes, "<u2"),
            name,
            _joined(categories, np.uint8),
        ]
        return _with_header(header, columns)

    def _name_column(self, windows: list[slice]) -> tuple[NDArray[Any], list[str]]:
        labels: list[str] = []
        columns = []
        tables: dict[int, NDArray[Any]] = {}
        for lane, window, source in zip(self._lanes, windows, self.sources, strict=True):
            part = self.parts[source.trace]
            busy = lane.category[window] < FIRST_CAUSE
            ids = np.full(window.stop - window.start, -1, dtype=np.int64)
            ids[busy] = part.event_name[lane.row[window][busy]]
            table = tables.setdefault(source.trace, np.full(len(part.names.values) + 1, NO_NAME, dtype="<u2"))
            used = np.zeros(len(table), dtype=np.bool_)
            used[ids] = True
            for index in np.flatnonzero(used[:-1] & (table[:-1] == NO_NAME)):
                if len(labels) >= NO_NAME:
                    break
                table[index] = len(labels)
                labels.append(shorten(part.names.values[index], MAX_LABEL_CHARS))
            columns.append(table[ids])
        return _joined(columns, "<u2"), labels

    def at(self, lane_id: int, time: int) -> dict[str, Any]:
        """The answer of ``timeline/at``: what one lane does at an instant."""
        lane, source = self._lanes[lane_id], self.sources[lane_id]
        part, offset = self.parts[source.trace], source.shift.offset
        index = lane.index_at(time)
        answer: dict[str, Any] = dict.fromkeys(
            ("category", "start_ps", "end_ps", "name", "op", "stream", "step", "gap"), None
        )
        answer["kind"] = "none"
        if index < 0:
            return answer
        row, category = int(lane.row[index]), int(lane.category[index])
        answer["category"] = LANE_CATEGORIES[category]
        if category < FIRST_CAUSE:
            return answer | {
                "kind": "event",
                "start_ps": int(part.event_start[row]) + offset,
                "end_ps": int(part.event_start[row] + part.event_duration[row]) + offset,
                "name": part.names.get(int(part.event_name[row])),
                "op": part.names.get(int(part.event_op[row])),
                "stream": _item(part.streams, int(part.event_stream[row])),
                "step": step_number(part.steps, int(part.steps.event_step[row])),
            }
        gaps = part.gaps
        return answer | {
            "kind": "gap",
            "start_ps": int(gaps.start[row]) + offset,
            "end_ps": int(gaps.end[row]) + offset,
            "step": step_number(part.steps, step_at(part.steps, source.device.index, time - offset)),
            "gap": describe_gap(part, row),
        }


def describe_gap(part: TraceTimeline, row: int) -> dict[str, Any]:
    """Why a gap is there, and what stands around it."""
    gaps = part.gaps
    return {
        "causes_ms": {CAUSE_IDS[cause]: int(ps) / PS_PER_MS for cause, ps in enumerate(gaps.by_cause[row]) if ps > 0},
        "before": part.names.get(_item(part.event_name, int(gaps.before[row]), -1)),
        "after": part.names.get(_item(part.event_name, int(gaps.after[row]), -1)),
        "thread": _item(part.threads, int(part.evidence_thread[row])),
        "evidence": part.names.get(int(part.evidence_name[row])),
    }


def pixel_edges(start: int, end: int, width: int) -> Int64:
    """The borders of ``width`` pixels over [start, end) in whole picoseconds, shape (width + 1,).

    Integers all the way: an interval that ends on a border must not shine into the next pixel.
    """
    quotient, rest = divmod(end - start, width)
    pixels = np.arange(width + 1, dtype=np.int64)
    return start + pixels * quotient + pixels * rest // width


def fill_levels(filled: Int64, pixel: Int64) -> NDArray[np.uint8]:
    """``filled`` of ``pixel`` picoseconds as 0..255, rounded up, so that anything present is seen."""
    # 255 x filled must fit in 63 bits; pixels of hours lose their lowest picoseconds.
    shift = max(0, int(pixel.max(initial=1)).bit_length() - 54)
    part, whole = filled >> shift, np.maximum(pixel >> shift, 1)
    level = np.minimum(-(-255 * part // whole), 255)
    return np.asarray(np.maximum(level, filled > 0), dtype=np.uint8)


def time_unit(length: int) -> int:
    """The smallest power of ten of picoseconds in which ``length`` fits into 32 bits."""
    unit = 1
    while length // unit >= 1 << 32:
        unit *= 10
    return unit


def _joined(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=dtype)


def _item(values: Any, index: int, default: Any = None) -> Any:
    return values[index] if 0 <= index < len(values) else default


def step_number(steps: Steps, row: int) -> int | None:
    """The recorded number of a step."""
    return int(steps.number[row]) if 0 <= row < len(steps.number) else None


def step_at(steps: Steps, device: int, time: int) -> int:
    """The row of the step of a GPU at a time of its own clock, -1 for none."""
    if device >= steps.start.shape[1]:
        return -1
    inside = (steps.start[:, device] <= time) & (time < steps.end[:, device]) & (steps.end[:, device] >= 0)
    rows = np.flatnonzero(inside)
    return int(rows[0]) if len(rows) else -1


def _with_header(header: dict[str, Any], columns: list[NDArray[Any]]) -> bytes:
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-len(text) % 8)
    parts = [np.array([len(text)], dtype="<u4").tobytes(), text]
    for column in columns:
        data = np.ascontiguousarray(column).tobytes()
        parts += [data, b"\0" * (-len(data) % 4)]
    return b"".join(parts)
