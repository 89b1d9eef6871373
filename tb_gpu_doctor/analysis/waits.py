"""Which wait of the host emptied the GPU's queue before a gap, and what the host did then.

A gap that follows a wait shows little of the wait itself: it ends when the gap begins. So it is
looked for on the thread that launched the work behind the gap, then on the others.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.file_columns import FileColumns
from tb_gpu_doctor.analysis.host_names import Kind
from tb_gpu_doctor.traces.columns import PS_PER_US, Int64

# A wait returns a little after the GPU is done; the clocks may differ by as much.
_TOLERANCE = 20 * PS_PER_US
# A range inside another one tells more if it fills this part of it.
_FILLS = 0.8
_OWN = (Kind.HOST_OTHER, Kind.UNKNOWN_NAME)
# Gaps looked at per GPU, the costliest first; nobody reads more names.
_MAX_GAPS = 200

# Names with the time that they stand for, picoseconds.
Weights = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class WaitedGap:
    """A gap after a synchronisation.

    Attributes:
        charge: time of the gap charged to the synchronisation.
        start, end: of the gap.
        step: recorded number of the step of what followed, None for none.
        name, thread: of the wait, the outermost event that is one; None when none was recorded.
        work: what the host did longest between the wait and the gap's end; None for nothing recorded.
    """

    charge: int
    start: int
    end: int
    step: int | None
    name: str | None
    thread: str | None
    work: str | None


@dataclass(frozen=True)
class Wait:
    """All waits of one name before the gaps of one GPU.

    Attributes:
        name: of the event.
        time: what the gaps behind it cost; ``threads`` and ``works`` share it out.
        threads: where it happened.
        works: what the host did longest after it, as far as recorded.
        longest: charge of the costliest of these gaps.
        caller: Python frame or framework op that asked for that one, None when not recorded.
        frame: the user's own code around it, None when not recorded.
    """

    name: str
    time: int
    threads: Weights
    works: Weights
    longest: int
    caller: str | None
    frame: str | None


@dataclass(frozen=True)
class Waits:
    """The costliest gaps of one GPU that are charged to a synchronisation.

    Attributes:
        examined: their charges in all.
        by_name: the waits that were found before them.
        worst: the costliest gaps, the costliest first.
    """

    examined: int
    by_name: tuple[Wait, ...]
    worst: tuple[WaitedGap, ...]


class WaitFinder:
    """Looks up the waits of one file."""

    def __init__(self, file: FileColumns) -> None:
        self._file = file
        host, kind = file.trace.host_events, file.calls.kind
        rows = np.flatnonzero((kind == Kind.SYNC) & (host.duration > 0))
        self._by_thread: dict[int, Int64] = {}
        for thread in np.flatnonzero(np.bincount(host.thread[rows])).tolist() if len(rows) else []:
            mine = rows[host.thread[rows] == thread]
            # outermost ones only: they do not overlap, so starts and ends both rise
            reached = np.maximum.accumulate(host.end[mine])
            self._by_thread[thread] = mine[np.concatenate(([True], host.start[mine][1:] >= reached[:-1]))]

    def before(self, gaps: Sequence[int], charges: Sequence[int], limit: int) -> Waits:
        """The waits before some gaps.

        Args:
            gaps: rows, the costliest first.
            charges: of each, what it costs.
            limit: how many of the worst gaps to keep.
        """
        file, table = self._file, self._file.analysis.gaps
        pairs = list(zip(gaps, charges, strict=True))[:_MAX_GAPS]
        worst: list[WaitedGap] = []
        times: dict[str, int] = {}
        threads: dict[str, dict[str, int]] = {}
        works: dict[str, dict[str, int]] = {}
        longest: dict[str, tuple[int, int]] = {}
        for gap, charge in pairs:
            event, after = self._around(gap)
            name = file.host_name(event) if event >= 0 else None
            thread = file.host_thread(event) if event >= 0 else None
            work = file.host_name(after) if after >= 0 else None
            if len(worst) < limit:
                start, end = int(table.start[gap]), int(table.end[gap])
                step = file.step_number(int(table.after[gap]))
                worst.append(WaitedGap(charge, start, end, step, name, thread, work))
            if name is None or thread is None:
                continue
            times[name] = times.get(name, 0) + charge
            own = threads.setdefault(name, {})
            own[thread] = own.get(thread, 0) + charge
            if work is not None:
                done = works.setdefault(name, {})
                done[work] = done.get(work, 0) + charge
            if name not in longest or charge > longest[name][0]:
                longest[name] = (charge, event)
        found = []
        for name, time in times.items():
            charge, event = longest[name]
            caller, frame = file.calls.caller(event), file.calls.user_frame(event)
            by_thread, by_work = tuple(threads[name].items()), tuple(works.get(name, {}).items())
            found.append(Wait(name, time, by_thread, by_work, charge, _interned(caller), _interned(frame)))
        return Waits(sum(charge for _, charge in pairs), tuple(found), tuple(worst))

    def _around(self, gap: int) -> tuple[int, int]:
        """(host row of the wait, host row of the work after it) of one gap; -1 for nothing found."""
        gaps, host = self._file.analysis.gaps, self._file.trace.host_events
        start, end, launch = int(gaps.start[gap]), int(gaps.end[gap]), int(gaps.launch[gap])
        launching = int(host.thread[launch]) if launch >= 0 else -1
        best, rank = -1, (False, False, 0)
        for thread, rows in self._by_thread.items():
            row = self._on_thread(rows, start, end)
            if row < 0:
                continue
            drained = int(host.start[row]) < start
            mine = (drained, thread == launching, int(min(host.end[row], end) - max(host.start[row], start)))
            if best < 0 or mine > rank:
                best, rank = row, mine
        return best, self._work_after(best, end) if best >= 0 else -1

    def _on_thread(self, rows: Int64, start: int, end: int) -> int:
        """The wait that the gap begins at the end of; else the one that covers most of the gap."""
        host = self._file.trace.host_events
        at = int(np.searchsorted(host.start[rows], start)) - 1
        if at >= 0 and host.end[rows[at]] >= start - _TOLERANCE:
            return int(rows[at])
        low, high = at + 1, int(np.searchsorted(host.start[rows], end))
        if low >= high:
            return -1
        inside = rows[low:high]
        return int(inside[np.argmax(np.minimum(host.end[inside], end) - host.start[inside])])

    def _work_after(self, wait: int, end: int) -> int:
        """What the waiting thread did longest between the wait and ``end``: the innermost range that fills that time.

        The user's own functions and ranges are looked into, the framework's are not.
        """
        host = self._file.trace.host_events
        begin = int(host.end[wait])
        rows = host.of_thread(int(host.thread[wait]))
        low, high = (np.searchsorted(host.start[rows], [begin, end]) + rows.start).tolist()
        inside = np.arange(low, high)
        inside = inside[self._file.calls.kind[inside] != Kind.NEUTRAL]
        if not len(inside):
            return -1
        starts, ends = host.start[inside], host.end[inside]
        outermost = np.concatenate(([True], starts[1:] >= np.maximum.accumulate(ends)[:-1]))
        spent = np.where(outermost, np.minimum(ends, end) - starts, -1)
        best = int(np.argmax(spent))
        if spent[best] <= 0:
            return -1
        filling = np.minimum(ends, end) - starts >= _FILLS * spent[best]
        own = np.flatnonzero(filling & np.isin(self._file.calls.kind[inside], _OWN))
        return int(inside[own[-1] if len(own) else best])


def _interned(name: str | None) -> str | None:
    return None if name is None else sys.intern(name)
