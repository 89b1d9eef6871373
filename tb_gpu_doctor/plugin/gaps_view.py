"""The answer of ``gaps``: which idle gaps are longest and why, and how long gaps are by cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tb_gpu_doctor.analysis.results import CAUSE_IDS
from tb_gpu_doctor.plugin.timeline import Timeline, describe_gap, step_at, step_number
from tb_gpu_doctor.traces.columns import PS_PER_MS, PS_PER_US, Int64

MAX_GAPS = 2_000
DEFAULT_GAPS = 200
# 1, 2, 5 of each decade up to 10 s, in microseconds; the first bin holds what is shorter than a microsecond.
EDGES_US: tuple[int, ...] = (0, *(digit * 10**power for power in range(7) for digit in (1, 2, 5)), 10**7)


@dataclass(frozen=True)
class _Columns:
    """All gaps of a session: file, row there, lane, and length."""

    trace: Int64
    row: Int64
    lane: Int64
    length: Int64


class GapsView:
    """Answers about the gaps that a timeline holds."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        lane_of = {(source.trace, source.device.index): lane for lane, source in enumerate(timeline.sources)}
        none = np.zeros(0, np.int64)
        trace_, row, lane_, length = ([none] for _ in range(4))
        for trace, part in enumerate(timeline.parts):
            gaps = part.gaps
            devices = max((d for t, d in lane_of if t == trace), default=-1) + 1
            lanes = np.array([lane_of.get((trace, device), -1) for device in range(devices)], np.int64)
            trace_.append(np.full(len(gaps), trace, np.int64))
            row.append(np.arange(len(gaps), dtype=np.int64))
            lane_.append(lanes[gaps.device] if len(gaps) else np.zeros(0, np.int32))
            length.append(gaps.end - gaps.start)
        self._all = _Columns(*(np.concatenate(parts) for parts in (trace_, row, lane_, length)))
        self._histogram = self._make_histogram()

    @property
    def size_bytes(self) -> int:
        """Approximate memory held beside the timeline."""
        return sum(column.nbytes for column in vars(self._all).values())

    def answer(self, limit: int = DEFAULT_GAPS, cause: int | None = None, lane: int | None = None) -> dict[str, Any]:
        """The answer of ``gaps``.

        Args:
            limit: how many gaps at most.
            cause: only gaps with time of this `Cause`, ordered by it.
            lane: only gaps of this lane.
        """
        found = self._all
        weight = found.length if cause is None else self._of_cause(cause)
        rows = np.arange(len(weight)) if cause is None else np.flatnonzero(weight > 0)
        if lane is not None:
            rows = rows[found.lane[rows] == lane]
        chosen = rows
        if len(rows) > limit:  # the longest without sorting all; ties at the border fall by chance of position
            chosen = rows[np.argpartition(-weight[rows], limit - 1)[:limit]] if limit else rows[:0]
        chosen = chosen[np.lexsort((chosen, -weight[chosen]))]
        return {
            "total": len(found.length),
            "total_ms": int(found.length.sum()) / PS_PER_MS,
            "matching": len(rows),
            "truncated": len(rows) > len(chosen),
            "gaps": [self._describe(int(index)) for index in chosen],
            "histogram": self._histogram,
        }

    def _of_cause(self, cause: int) -> Int64:
        parts = [part.gaps.by_cause[:, cause] for part in self._timeline.parts]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _describe(self, index: int) -> dict[str, Any]:
        trace, row, lane = (int(getattr(self._all, name)[index]) for name in ("trace", "row", "lane"))
        part, source = self._timeline.parts[trace], self._timeline.sources[lane]
        gaps, offset = part.gaps, source.shift.offset
        start, end = int(gaps.start[row]), int(gaps.end[row])
        seen = int(part.evidence_name[row]) >= 0
        return {
            "lane": lane,
            "host": source.host,
            "gpu": source.device.id,
            "start_ps": start + offset,
            "end_ps": end + offset,
            "duration_ms": (end - start) / PS_PER_MS,
            "step": step_number(part.steps, step_at(part.steps, source.device.index, start)),
            "cause": CAUSE_IDS[int(gaps.cause[row])],
            **describe_gap(part, row),
            "evidence_start_ps": int(part.evidence_start[row]) + offset if seen else None,
            "evidence_end_ps": int(part.evidence_end[row]) + offset if seen else None,
        }

    def _make_histogram(self) -> dict[str, Any]:
        bins = len(EDGES_US)
        at = np.searchsorted(np.array(EDGES_US, np.int64) * PS_PER_US, self._all.length, side="right") - 1
        main = [part.gaps.cause for part in self._timeline.parts]
        cause = np.concatenate(main) if main else np.zeros(0, np.uint8)
        causes = {}
        for index, name in enumerate(CAUSE_IDS):
            count = np.bincount(at[cause == index], minlength=bins)
            charged = self._of_cause(index)
            if not charged.any():
                continue
            total = np.zeros(bins, np.int64)
            np.add.at(total, at, charged)
            causes[name] = {"count": count.tolist(), "total_ms": (total / PS_PER_MS).tolist()}
        return {"edges_us": list(EDGES_US), "causes": causes}
