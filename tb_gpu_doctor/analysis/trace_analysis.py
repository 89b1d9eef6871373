"""Everything computed from one trace, with an outline of what its file holds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.accounting import BusySets
from tb_gpu_doctor.analysis.collectives import Candidates, find_candidates
from tb_gpu_doctor.analysis.device_clock import EarlyWork
from tb_gpu_doctor.analysis.input_stages import InputPipeline
from tb_gpu_doctor.analysis.kernel_results import KernelTable
from tb_gpu_doctor.analysis.launches import Contention, LaunchQueue, StreamOverlap
from tb_gpu_doctor.analysis.lost_events import LostEvents
from tb_gpu_doctor.analysis.replay.graph import ReplayGraph
from tb_gpu_doctor.analysis.results import (
    DeviceAccounting,
    DeviceSummary,
    Gaps,
    Lateness,
    LaunchStats,
    StepCosts,
    Steps,
    Window,
)
from tb_gpu_doctor.analysis.standstill import Standstills
from tb_gpu_doctor.analysis.start_up import StartUp
from tb_gpu_doctor.analysis.transfers import Bounces, Transfers
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Trace

# `GPU_0_bfc` of TensorFlow and JAX, `gpu_async_0` of cuda_malloc_async; `gpu_host_bfc` is pinned host memory.
_ALLOCATOR = re.compile(r"^gpu_(?:async_)?(\d{1,4})(?:_bfc)?$", re.IGNORECASE)
# A cudaMallocAsync pool and a broken counter may claim anything.
_MOST_BYTES = 1 << 50


@dataclass(frozen=True)
class AllocatorUse:
    """The allocator of one GPU.

    Attributes:
        device: index into ``Trace.devices``.
        peak_bytes: the most that was in use since the process began, as last told.
        limit_bytes: what it may use in all.
    """

    device: int
    peak_bytes: int
    limit_bytes: int


def allocator_use(trace: Trace) -> tuple[AllocatorUse, ...]:
    """One for each GPU whose allocator left an event, in the order of the devices."""
    names = trace.host_stats.get("allocator_name")
    peaks, used, left = (
        trace.host_stats.get(name) for name in ("peak_bytes_in_use", "bytes_allocated", "bytes_available")
    )
    if names is None or peaks is None or used is None or left is None:
        return ()
    device_of = {device.id: device.index for device in trace.devices}
    found = []
    for ident in np.unique(names.values).tolist():
        match = _ALLOCATOR.match(trace.strings[ident])
        device = None if match is None else device_of.get(int(match.group(1)))
        if device is None:
            continue
        rows = names.rows[names.values == ident]
        peak = int(peaks.at(rows).max())
        limit = int(np.median(used.at(rows) + left.at(rows)))
        if 0 < peak <= limit < _MOST_BYTES:
            found.append(AllocatorUse(device, peak, limit))
    return tuple(sorted(found, key=lambda use: use.device))


Mark = Literal["jax", "tensorflow", "pytorch", "tf_data", "keras", "training", "inference"]

# Bytes that only one framework, or one part of it, leaves in the names of a profile.
_MARKS: dict[Mark, tuple[bytes, ...]] = {
    "jax": (b"PjitFunction", b"pjit", b"jax/", b"jax_", b"PjRtStreamExecutor", b"TSL:XlaModule:"),
    "tensorflow": (b"ExecutorState::Process", b"FunctionRun", b"EagerExecute", b"IteratorGetNext", b"TFE_Py_"),
    "pytorch": (b"at::native::", b"aten::", b"torch::autograd", b"c10d::"),
    "tf_data": (b"IteratorGetNext", b"Iterator::"),
    "keras": (b"Profiled batch", b"keras", b"train_function", b"model/"),
    # nobody runs these without learning
    "training": (
        b"Optimizer.",
        b"autograd::",
        b"Backward",
        b"train_",
        b"ApplyAdam",
        b"ApplyGradient",
        b"ApplyMomentum",
        b"transpose(jvp(",
    ),
    "inference": (
        *(b"PjitFunction(" + name for name in (b"predict", b"infer", b"generate", b"decode", b"forward", b"eval")),
        b"inference_mode",
        b"vllm/",
        b"vllm::",
        b"sglang/",
    ),
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


@dataclass(frozen=True)
class TraceAnalysis:
    """Everything computed from one trace; the input of the rules.

    ``window`` is None when the trace holds no device event; then ``accounting``,
    ``gaps`` (empty), ``summaries`` and ``launches`` hold nothing. ``recorded`` is the
    recorded time of the file, None when it cannot be told. ``pipelines`` are the input pipelines,
    the one that GPUs waited for longest first; they are found without a window as well. ``candidates`` and
    ``outline`` are None in analyses that were put together by hand: `candidates_of`, `outline_of`. ``lost`` and
    ``early`` are None where no work is missing and none starts before its launch, ``start_up`` where the steps
    show none, ``standstills`` where the process never stood still, ``replay`` where there are too few steps.
    """

    steps: Steps
    window: Window | None
    recorded: tuple[int, int] | None
    accounting: tuple[DeviceAccounting, ...]
    gaps: Gaps
    summaries: tuple[DeviceSummary, ...]
    lateness: Lateness | None
    kernels: KernelTable
    launches: tuple[LaunchStats, ...]
    step_costs: StepCosts | None = None
    pipelines: tuple[InputPipeline, ...] = ()
    transfers: Transfers | None = None
    bounces: Bounces | None = None
    queues: tuple[LaunchQueue, ...] = ()
    contention: tuple[Contention, ...] = ()
    serialized: tuple[StreamOverlap, ...] = ()
    candidates: Candidates | None = None
    outline: Outline | None = None
    lost: LostEvents | None = None
    early: EarlyWork | None = None
    start_up: StartUp | None = None
    standstills: Standstills | None = None
    replay: ReplayGraph | None = None


def outline_of(trace: Trace, analysis: TraceAnalysis) -> Outline:
    """The outline of an analysed file."""
    return analysis.outline or outline(trace)


def candidates_of(trace: Trace, analysis: TraceAnalysis) -> Candidates | None:
    """The candidates of an analysed file, None without a window."""
    if analysis.window is None:
        return None
    return analysis.candidates or find_candidates(trace, analysis.window, analysis.steps)
