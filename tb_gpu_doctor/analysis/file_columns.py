"""One analysed file, with the small questions that several facts ask of its columns."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tb_gpu_doctor.analysis.host_calls import HostCalls
from tb_gpu_doctor.analysis.results import DeviceAccounting
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.traces.columns import Int64, Trace


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
