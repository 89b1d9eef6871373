"""One analysed file, with the small questions that several facts ask of its columns.

Among them, who called what on the host: the events around an event, what they mean, and what the host was busy with.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from tb_gpu_doctor.analysis.callers import enclosing
from tb_gpu_doctor.analysis.host_names import Kind, kind_of
from tb_gpu_doctor.analysis.results import DeviceAccounting
from tb_gpu_doctor.analysis.torch_host_names import USER_FRAME
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.traces.columns import NO_STAT, UNNAMED, HostEvents, Int64, Trace, UInt8
from tb_gpu_doctor.traces.grouping import group

_MAX_DEPTH = 200
# A Python frame (`$file.py:line function`, PyTorch's `file.py(line): function`) or a framework op (`name:Type`).
_CALLER = re.compile(r"^\$|^[\w./\-]+:\w+$|\.py\(\d+\): |^aten::\w+$")
_MODULE = re.compile(r"\bmodule=([\w.\-]+)")
_JITTED = re.compile(r"^PjitFunction\(([^)]+)\)")
# What stands around a compilation without being its function.
_NO_FUNCTION = re.compile(r"^(?:train|step|train_step|Execut\w*|TFE_\w+|Eager\w+.*|[A-Z]\w*::.*)$")
# Bookkeeping of the thread pools and of the profiler, no work of its own.
_IGNORED = (UNNAMED, "ThreadpoolListener", "ThreadPool::", "StartRegion", "StopRegion")


class HostCalls:
    """The host events of one trace with their meaning and enclosers, computed when first asked for."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._parents: dict[int, Int64] = {}

    @cached_property
    def outermost_rows(self) -> Int64:
        """Rows of the events that no earlier one of their thread encloses or overlaps."""
        events = self.trace.host_events
        outermost = np.zeros(len(events), dtype=np.bool_)
        for thread in self.trace.threads:
            span = events.of_thread(thread.index)
            if span.stop > span.start:
                reached = np.maximum.accumulate(events.end[span])
                outermost[span] = np.concatenate(([True], events.start[span][1:] >= reached[:-1]))
        return np.flatnonzero(outermost)

    def busiest(self, spans: Sequence[tuple[int, int]], limit: int = 3) -> tuple[tuple[str, int], ...]:
        """Names of outermost events with the most time inside ``spans``, and that time in picoseconds."""
        events, rows = self.trace.host_events, self.outermost_rows
        if not len(rows):
            return ()
        start, end = events.start[rows], events.end[rows]
        inside = np.zeros(len(rows), dtype=np.int64)
        for low, high in spans:
            if high > low:
                inside += np.maximum(0, np.minimum(end, high) - np.maximum(start, low))
        totals = np.zeros(int(events.name.max()) + 1, dtype=np.int64)
        np.add.at(totals, events.name[rows], inside)
        found: list[tuple[str, int]] = []
        for name in np.argsort(-totals, kind="stable")[: limit + 20]:
            if totals[name] <= 0 or len(found) == limit:
                break
            label = self.trace.strings[int(name)]
            if label and not label.startswith(_IGNORED):
                found.append((label, int(totals[name])))
        return tuple(found)

    @cached_property
    def kind(self) -> UInt8:
        """`Kind` of each host event by its name alone; markers of steps are neutral; shape (host events,)."""
        host = self.trace.host_events
        if not len(host):
            return np.zeros(0, np.uint8)
        names, index = group(host.name)
        launching = np.zeros(len(names), np.bool_)
        launching[index[host.correlation > 0]] = True
        pairs = zip(names.tolist(), launching.tolist(), strict=True)
        by_name = np.array([kind_of(self.trace.strings[name], calls) for name, calls in pairs], np.uint8)
        kind = by_name[index]
        operators = self.trace.host_stats.get("operator", NO_STAT).rows
        kind[operators] = np.where(kind[operators] == Kind.UNKNOWN_NAME, np.uint8(Kind.LAUNCH), kind[operators])
        return np.where(host.step_num >= 0, np.uint8(Kind.NEUTRAL), kind)

    def parent(self, row: int) -> int:
        """Row of the innermost encloser of a host event, -1 for none; worked out a thread at a time."""
        host = self.trace.host_events
        thread = int(host.thread[row])
        rows = host.of_thread(thread)
        if thread not in self._parents:
            mine = HostEvents(**{spec.name: getattr(host, spec.name)[rows] for spec in fields(HostEvents)})
            self._parents[thread] = enclosing(mine)
        found = int(self._parents[thread][row - rows.start])
        return found + rows.start if found >= 0 else -1

    def name(self, row: int) -> str:
        """Recorded name of a host event."""
        return self.trace.strings[int(self.trace.host_events.name[row])]

    def thread(self, row: int) -> str:
        """Name of the thread of a host event."""
        return self.trace.threads[int(self.trace.host_events.thread[row])].name

    def stack(self, row: int) -> Iterator[int]:
        """The event itself and its enclosers, from the inside out."""
        for _ in range(_MAX_DEPTH):
            if row < 0:
                return
            yield row
            row = self.parent(row)

    def outermost(self, row: int, kind: Kind) -> int:
        """The outermost of the event and its enclosers that is of ``kind``; the event itself when none is."""
        found = row
        for at in self.stack(row):
            if self.kind[at] == kind:
                found = at
        return found

    def caller(self, row: int) -> str | None:
        """Python frame or framework op that encloses an event most closely."""
        kind = self.kind[row]
        for at in self.stack(row):
            if at != row and self.kind[at] != kind and _CALLER.match(self.name(at)):
                return self.name(at)
        return None

    def user_frame(self, row: int) -> str | None:
        """The frame of the user's own code that encloses an event most closely."""
        for at in self.stack(row):
            if at != row and (
                self.kind[at] == Kind.HOST_OTHER
                or (self.kind[at] == Kind.UNKNOWN_NAME and USER_FRAME.match(self.name(at)))
            ):
                return self.name(at)
        return None

    def compiled_function(self, row: int) -> str | None:
        """The function that a compilation or tracing event works for; None where no name tells."""
        names = [self.name(at) for at in self.stack(row)]
        for pattern in (_MODULE, _JITTED):
            for name in names:
                match = pattern.search(name)
                if match:
                    return match.group(1)
        for at in self.stack(row):
            name = self.name(at)
            if self.kind[at] in (Kind.COMPILE, Kind.NEUTRAL) or name.startswith("$") or _NO_FUNCTION.match(name):
                continue
            return name
        return self.user_frame(row)


@dataclass(frozen=True)
class Place:
    """A stretch of a recording that shows something.

    Attributes:
        start, end: picoseconds on the file's clock.
        what: recorded name of what can be seen there, "" where it has none.
        thread: host thread to look at, None where it is about the GPU.
        step: recorded number of the step, None for none.
    """

    start: int
    end: int
    what: str = ""
    thread: str | None = None
    step: int | None = None


@dataclass(frozen=True, eq=False)
class FileColumns:
    """The columns of one file and what was computed from them; lives only while its facts are gathered."""

    trace: Trace
    analysis: TraceAnalysis

    @cached_property
    def calls(self) -> HostCalls:
        """The host's events with their meaning and enclosers."""
        return HostCalls(self.trace)

    @cached_property
    def complete(self) -> Int64:
        """Indices of the complete steps."""
        return np.flatnonzero(self.analysis.steps.complete)

    def account(self, device: int) -> DeviceAccounting | None:
        """Where the window of a GPU went."""
        return next((account for account in self.analysis.accounting if account.device == device), None)

    def step_number(self, device_event: int) -> int | None:
        """The recorded number of the step that a device event belongs to."""
        steps = self.analysis.steps
        if device_event < 0 or not len(steps.event_step):
            return None
        index = int(steps.event_step[device_event])
        return int(steps.number[index]) if index >= 0 else None

    def text(self, ident: int) -> str:
        """A recorded name, as one object however often it is asked for: facts repeat names."""
        return sys.intern(self.trace.strings[ident])

    def host_name(self, row: int) -> str:
        """Name of a host event."""
        return self.text(int(self.trace.host_events.name[row]))

    def host_thread(self, row: int) -> str:
        """Name of the thread of a host event."""
        return sys.intern(self.trace.threads[int(self.trace.host_events.thread[row])].name)

    def device_name(self, row: int) -> str:
        """Name of a kernel or copy."""
        return self.text(int(self.trace.device_events.name[row]))

    def device_place(self, row: int) -> Place:
        """Where a device event can be seen."""
        events = self.trace.device_events
        return Place(int(events.start[row]), int(events.end[row]), self.device_name(row), step=self.step_number(row))
