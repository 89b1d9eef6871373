"""What a file holds, in a few numbers and words that rules ask of every file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.accounting import BusySets
from tb_gpu_doctor.analysis.allocators import AllocatorUse, allocator_use
from tb_gpu_doctor.analysis.results import TraceAnalysis
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Trace

Mark = Literal["jax", "tensorflow", "tf_data", "keras"]

# Bytes that only one framework, or one part of it, leaves in the names of a profile.
_MARKS: dict[Mark, tuple[bytes, ...]] = {
    "jax": (b"PjitFunction", b"pjit", b"jax/", b"jax_", b"PjRtStreamExecutor"),
    "tensorflow": (b"ExecutorState::Process", b"FunctionRun", b"EagerExecute", b"IteratorGetNext", b"TFE_Py_"),
    "tf_data": (b"IteratorGetNext", b"Iterator::"),
    "keras": (b"Profiled batch", b"keras", b"train_function", b"model/"),
}


@dataclass(frozen=True)
class Outline:
    """What a file holds.

    Attributes:
        busy: time with work on each GPU in the whole recording, by device index, picoseconds.
        communicates: whether any GPU runs collectives.
        marks: which frameworks' names are in it.
        allocators: what the framework's allocators needed, see `allocator_use`.
    """

    busy: tuple[int, ...]
    communicates: bool
    marks: frozenset[Mark]
    allocators: tuple[AllocatorUse, ...]


def outline_of(trace: Trace, analysis: TraceAnalysis) -> Outline:
    """The outline of an analysed file."""
    return analysis.outline or outline(trace)


def outline(trace: Trace, busy_of: BusySets | None = None) -> Outline:
    """The outline of a trace; ``busy_of`` are its `accounting.all_busy_sets`, where they are known."""
    events = trace.device_events
    busy = []
    for device in trace.devices:
        if busy_of is not None:
            found = busy_of[device.index][2]
        else:
            rows = events.of_device(device.index)
            found = intervals.union(events.start[rows], events.end[rows])
        busy.append(intervals.measure(found))
    sent = (events.klass == EventClass.COMMUNICATION) & (events.copy_kind == CopyKind.NONE)
    blob = trace.strings.blob
    marks = frozenset(name for name, texts in _MARKS.items() if any(text in blob for text in texts))
    return Outline(tuple(busy), bool(np.any(sent)), marks, allocator_use(trace))
