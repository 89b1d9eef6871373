"""Questions about a stretch of the timeline: what filled it, which kernels match, which gap is next, who waited.

Everything is answered on timeline times, from columns that the timeline keeps anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.job import NO_MEETINGS, Job
from tb_gpu_doctor.analysis.launches import launch_of
from tb_gpu_doctor.analysis.results import CAUSE_IDS, Category
from tb_gpu_doctor.plugin.lanes import LANE_CATEGORIES, Lane, times_before
from tb_gpu_doctor.plugin.timeline import (
    MAX_LABEL_CHARS,
    Timeline,
    TraceTimeline,
    fill_levels,
    pixel_edges,
    shorten,
)
from tb_gpu_doctor.traces.columns import PS_PER_MS, EventClass, Int64, Trace, UInt8

TOP_KERNELS = 12
MAX_HITS = 2_000
DEFAULT_HITS = 500
MAX_STREAM_EVENTS = 20_000
DEFAULT_STREAM_EVENTS = 5_000
MAX_STREAMS = 64
# A GPU is launched by one thread, or a few; the busiest ones are shown.
MAX_THREADS = 4

_LANE_CATEGORY = np.zeros(len(EventClass), dtype=np.uint8)
_LANE_CATEGORY[EventClass.COMMUNICATION] = Category.COMMUNICATION
_LANE_CATEGORY[[EventClass.COPY, EventClass.MEMSET]] = Category.TRANSFER


@dataclass(frozen=True)
class _Waits:
    """Where a lane shows waiting inside collectives: sorted, disjoint intervals and the time before each, (k + 1,)."""

    start: Int64
    before: Int64

    def time_before(self, at: Int64) -> Int64:
        """How long the lane waits before each of the times ``at``."""
        if not len(self.start):
            return np.zeros_like(at)
        index = np.searchsorted(self.start, at, side="right") - 1
        inside = np.maximum(index, 0)
        partial = np.minimum(at - self.start[inside], self.before[inside + 1] - self.before[inside])
        total: Int64 = np.where(index < 0, 0, self.before[inside] + partial)
        return total


@dataclass(frozen=True)
class _Launches:
    """The host calls that launched a GPU's work, sorted by start; times of the timeline.

    Attributes:
        names: what the calls are called; ``name`` holds indices.
        threads: who called, the busiest first; ``thread`` holds indices, those beyond the list are left out.
    """

    names: tuple[str, ...]
    threads: tuple[str, ...]
    start: Int64
    end: Int64
    name: Int64
    thread: Int64

    @property
    def size_bytes(self) -> int:
        return sum(column.nbytes for column in (self.start, self.end, self.name, self.thread))


@dataclass(frozen=True)
class _Source:
    """What of a file belongs to a lane: device events, their lane categories, gaps (sorted by start), waits."""

    part: TraceTimeline
    offset: int
    rows: slice
    category: UInt8
    gaps: Int64
    waits: _Waits
    launches: _Launches

    def during(self, start: int, end: int) -> Int64:
        """Rows of the device events that share time with [start, end) of the timeline."""
        low = self.part.event_start[self.rows] + self.offset
        high = low + self.part.event_duration[self.rows]
        rows: Int64 = np.flatnonzero((low < end) & (high > start)) + self.rows.start
        return rows


class RangeView:
    """Answers about stretches of a timeline.

    Args:
        traces: of the timeline's files, in its order.
        job: of all of them: who waited inside collectives.
        timeline: whose lanes and clocks the answers refer to.
    """

    def __init__(self, traces: Sequence[Trace], job: Job, timeline: Timeline) -> None:
        self._timeline = timeline
        self._sources: list[_Source] = []
        launched = [launch_of(trace) for trace in traces]
        for lane, where in zip(timeline.lanes, timeline.sources, strict=True):
            part, device = timeline.parts[where.trace], where.device.index
            rows = traces[where.trace].device_events.of_device(device)
            wait = job.meetings.get((where.trace, device), NO_MEETINGS).wait_of_events(rows)
            gaps = np.flatnonzero(part.gaps.device == device)
            self._sources.append(
                _Source(
                    part=part,
                    offset=where.shift.offset,
                    rows=rows,
                    category=_LANE_CATEGORY[traces[where.trace].device_events.klass[rows]],
                    gaps=gaps[np.argsort(part.gaps.start[gaps], kind="stable")],
                    waits=_waits(lane, part, where.shift.offset, rows, wait),
                    launches=_launches(traces[where.trace], launched[where.trace][rows], where.shift.offset),
                )
            )

    @property
    def size_bytes(self) -> int:
        """Approximate memory held beside the timeline."""
        return sum(
            s.category.nbytes + s.gaps.nbytes + s.waits.start.nbytes + s.waits.before.nbytes + s.launches.size_bytes
            for s in self._sources
        )

    def accounting(self, start: int, end: int) -> dict[str, Any]:
        """The answer of ``timeline/range``: what each lane shows in [start, end), and its longest kernels."""
        edges = np.array([start, end], np.int64)
        lanes = []
        shown = np.diff(times_before(self._timeline.lanes, edges))[:, :, 0].tolist()
        for index, (times, source) in enumerate(zip(shown, self._sources, strict=True)):
            filled = dict(zip(LANE_CATEGORIES, times, strict=True))
            lanes.append(
                {
                    "lane": index,
                    "ms": {name: ps / PS_PER_MS for name, ps in filled.items() if ps > 0},
                    "communication_wait_ms": int(np.diff(source.waits.time_before(edges))[0]) / PS_PER_MS,
                }
            )
        return {"start_ps": start, "end_ps": end, "lanes": lanes, "kernels": self._top_kernels(start, end)}

    def _top_kernels(self, start: int, end: int) -> list[dict[str, Any]]:
        total: dict[str, list[int]] = {}
        for source in self._sources:
            rows = source.during(start, end)
            names = source.part.event_name[rows]
            low = source.part.event_start[rows] + source.offset
            inside = np.minimum(low + source.part.event_duration[rows], end) - np.maximum(low, start)
            # Position 0 stands for id -1. A loop over the names would look at all events for each of them.
            calls = np.bincount(names + 1, minlength=len(source.part.names.values) + 1)
            time = np.zeros(len(calls), np.int64)
            np.add.at(time, names + 1, inside)
            for index in np.flatnonzero(calls).tolist():
                entry = total.setdefault(source.part.names.get(index - 1) or "", [0, 0])
                entry[0] += int(time[index])
                entry[1] += int(calls[index])
        longest = sorted(total.items(), key=lambda item: (-item[1][0], item[0]))[:TOP_KERNELS]
        return [
            {"name": shorten(name, MAX_LABEL_CHARS), "total_ms": ps / PS_PER_MS, "calls": calls}
            for name, (ps, calls) in longest
        ]

    def find(
        self, query: str, start: int, end: int, limit: int = DEFAULT_HITS, lane: int | None = None, last: bool = False
    ) -> dict[str, Any]:
        """The answer of ``timeline/find``: device events whose name or op holds every word of ``query``.

        Args:
            query: words, in any order and case; without any nothing is found.
            start: only what shares time with the stretch that begins here
            end: and ends here.
            limit: how many at most, the first ones.
            lane: only this one.
            last: the last ones instead of the first.
        """
        words = query.lower().split()
        lanes: list[Int64] = []
        rows: list[Int64] = []
        for index, source in enumerate(self._sources):
            if not words or (lane is not None and lane != index):
                continue
            wanted = _matching(source.part, words)
            here = source.during(start, end)
            hit = here[wanted[source.part.event_name[here]] | wanted[source.part.event_op[here]]]
            lanes.append(np.full(len(hit), index, np.int64))
            rows.append(hit)
        which = np.concatenate(lanes) if lanes else np.zeros(0, np.int64)
        row = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        at = np.zeros(len(row), np.int64)
        for index, source in enumerate(self._sources):
            mine = which == index
            at[mine] = source.part.event_start[row[mine]] + source.offset
        order = np.lexsort((which, at))
        kept = (order[-limit:] if last else order[:limit]) if limit else order[:0]
        return {
            "matching": len(row),
            "truncated": len(row) > len(kept),
            "hits": [self._describe(int(which[i]), int(row[i])) for i in kept],
        }

    def _describe(self, lane: int, row: int) -> dict[str, Any]:
        source = self._sources[lane]
        part = source.part
        start = int(part.event_start[row]) + source.offset
        return {
            "lane": lane,
            "start_ps": start,
            "end_ps": start + int(part.event_duration[row]),
            "name": shorten(part.names.get(int(part.event_name[row])) or "", MAX_LABEL_CHARS),
            "op": shorten(part.names.get(int(part.event_op[row])) or "", MAX_LABEL_CHARS),
        }

    def next_gap(self, time: int, back: bool = False, shortest: int = 1, lane: int | None = None) -> dict[str, Any]:
        """The answer of ``timeline/next_gap``: the first gap that begins after ``time``, or the last one before it.

        Args:
            time: of the timeline.
            back: look to the left: gaps that begin before ``time``.
            shortest: pass over gaps below so many picoseconds.
            lane: only this one.
        """
        best: tuple[int, int, int] | None = None
        for index, source in enumerate(self._sources):
            if lane is not None and lane != index:
                continue
            gaps = source.part.gaps
            rows = source.gaps[gaps.end[source.gaps] - gaps.start[source.gaps] >= shortest]
            starts = gaps.start[rows] + source.offset
            at = (
                int(np.searchsorted(starts, time, side="left")) - 1
                if back
                else int(np.searchsorted(starts, time, side="right"))
            )
            if not 0 <= at < len(rows):
                continue
            found = (int(starts[at]), index, int(rows[at]))
            if best is None or (found[0] > best[0] if back else found[0] < best[0]):
                best = found
        if best is None:
            return {"gap": None}
        start, index, row = best
        gaps = self._sources[index].part.gaps
        return {
            "gap": {
                "lane": index,
                "start_ps": start,
                "end_ps": start + int(gaps.end[row] - gaps.start[row]),
                "cause": CAUSE_IDS[int(gaps.cause[row])],
            }
        }

    def wait_bins(self, start: int, end: int, width: int) -> bytes:
        """The answer of ``timeline/waits``: as `Timeline.bins` with one category, the waiting inside collectives."""
        edges = pixel_edges(start, end, width)
        cells = np.zeros((len(self._sources), 1, width), dtype=np.uint8)
        for index, source in enumerate(self._sources):
            if len(source.waits.start):
                cells[index, 0] = fill_levels(np.diff(source.waits.time_before(edges)), np.diff(edges))
        return np.array([len(self._sources), 1, width], dtype="<u4").tobytes() + cells.tobytes()

    def waits(self) -> dict[str, list[int]]:
        """All waiting inside collectives that the lanes show: ``lane``, ``start_ps`` and ``end_ps`` of each stretch."""
        starts = [source.waits.start for source in self._sources]
        lengths = [
            np.diff(source.waits.before) if len(source.waits.start) else source.waits.start for source in self._sources
        ]
        lanes = [np.full(len(start), index, np.int64) for index, start in enumerate(starts)]
        if not starts:
            return {"lane": [], "start_ps": [], "end_ps": []}
        start, length = np.concatenate(starts), np.concatenate(lengths)
        return {
            "lane": np.concatenate(lanes).tolist(),
            "start_ps": start.tolist(),
            "end_ps": (start + length).tolist(),
        }

    def streams(self, lane: int, start: int, end: int, limit: int = DEFAULT_STREAM_EVENTS) -> dict[str, Any]:
        """The answer of ``timeline/streams``: what each stream of one GPU ran in [start, end), and who launched when.

        With more than ``limit`` events or calls only the streams and threads are named.
        """
        source = self._sources[lane]
        part = source.part
        rows = source.during(start, end)
        streams, counts = np.unique(part.event_stream[source.rows], return_counts=True)
        place = {int(stream): index for index, stream in enumerate(streams[:MAX_STREAMS])}
        rows = rows[np.isin(part.event_stream[rows], streams[:MAX_STREAMS])]
        calls = source.launches
        called = np.flatnonzero((calls.start < end) & (calls.end > start))
        truncated = len(rows) > limit or len(called) > limit
        shown = rows[:0] if truncated else rows
        called = called[:0] if truncated else called
        names, name = np.unique(part.event_name[shown], return_inverse=True)
        low = part.event_start[shown] + source.offset
        return {
            "streams": [
                {"name": part.streams[stream] if stream < len(part.streams) else "", "events": int(count)}
                for stream, count in zip(streams[:MAX_STREAMS].tolist(), counts, strict=False)
            ],
            "events": {
                "stream": [place[stream] for stream in part.event_stream[shown].tolist()],
                "start_ps": low.tolist(),
                "end_ps": (low + part.event_duration[shown]).tolist(),
                "category": source.category[shown - source.rows.start].tolist(),
                "name": name.reshape(-1).tolist(),
            },
            "names": [shorten(part.names.get(int(index)) or "", MAX_LABEL_CHARS) for index in names],
            "launches": {
                "threads": list(calls.threads),
                "names": list(calls.names),
                "thread": calls.thread[called].tolist(),
                "start_ps": calls.start[called].tolist(),
                "end_ps": calls.end[called].tolist(),
                "name": calls.name[called].tolist(),
            },
            "count": len(rows),
            "truncated": truncated,
        }


def _launches(trace: Trace, launch: Int64, offset: int) -> _Launches:
    """The calls on the host that ``launch`` (host rows, -1 unknown) names, each once."""
    host = trace.host_events
    calls = np.unique(launch[launch >= 0])
    threads, thread, counts = np.unique(host.thread[calls], return_inverse=True, return_counts=True)
    busiest = np.argsort(-counts, kind="stable")[:MAX_THREADS]
    place = np.full(len(threads), -1, np.int64)
    place[busiest] = np.arange(len(busiest))
    thread = place[thread.reshape(-1)] if len(calls) else np.zeros(0, np.int64)
    calls, thread = calls[thread >= 0], thread[thread >= 0]
    order = np.argsort(host.start[calls], kind="stable")
    calls, thread = calls[order], thread[order]
    ids, name = np.unique(host.name[calls], return_inverse=True)
    return _Launches(
        names=tuple(shorten(trace.strings[int(index)], MAX_LABEL_CHARS) for index in ids),
        threads=tuple(shorten(trace.threads[int(threads[index])].name, MAX_LABEL_CHARS) for index in busiest),
        start=host.start[calls] + offset,
        end=host.end[calls] + offset,
        name=name.reshape(-1).astype(np.int64),
        thread=thread,
    )


def _matching(part: TraceTimeline, words: list[str]) -> NDArray[np.bool_]:
    """Which of a file's names hold all words; the last element stands for id -1 and never does."""
    found = np.zeros(len(part.names.values) + 1, np.bool_)
    for index, name in enumerate(part.names.values):
        lower = name.lower()
        found[index] = all(word in lower for word in words)
    return found


def _waits(lane: Lane, part: TraceTimeline, offset: int, rows: slice, wait: Int64) -> _Waits:
    """Where the lane shows an event of communication that, at that time, still waits for the last GPU.

    ``wait`` is, for each event in ``rows``, its time inside before the last GPU came; -1 where unknown.
    """
    pieces = np.flatnonzero(lane.category == Category.COMMUNICATION)
    row = lane.row[pieces]
    known = wait[row - rows.start] if len(row) else np.zeros(0, np.int64)
    pieces, row, known = pieces[known > 0], row[known > 0], known[known > 0]
    until = np.minimum(lane.end[pieces], part.event_start[row] + offset + known)
    start = lane.start[pieces]
    keep = until > start
    before = np.zeros(int(keep.sum()) + 1, np.int64)
    np.cumsum(until[keep] - start[keep], out=before[1:])
    return _Waits(start[keep], before)
