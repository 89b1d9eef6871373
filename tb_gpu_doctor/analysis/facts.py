"""What rules want to know of one file: its facts, gathered once, where the file is read.

Facts are small and plain: frozen dataclasses of numbers, names and tuples. They grow with steps, collectives and
kernels by name, not with events; what a rule shows as evidence is among them. So a diagnosis needs no columns, and a
file can be read anywhere: in this process, in another one, on another machine.

A new fact is a field here (or of a part: `step_facts`, `idle_facts`, `copy_facts`, `communication_facts`) and the line
that computes it. Times are picoseconds on the file's own clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tb_gpu_doctor.analysis.accounting import busy_sets
from tb_gpu_doctor.analysis.communication_facts import (
    ArrivalFacts,
    CollectiveFacts,
    ExposedFacts,
    arrival_facts,
    collective_facts,
    exposed_facts,
)
from tb_gpu_doctor.analysis.copy_facts import BounceFacts, CopyFacts, bounce_facts, copy_facts
from tb_gpu_doctor.analysis.device_clock import EarlyWork
from tb_gpu_doctor.analysis.file_columns import FileColumns, Place
from tb_gpu_doctor.analysis.idle_facts import GpuIdle, IdleGathering
from tb_gpu_doctor.analysis.input_stages import InputPipeline
from tb_gpu_doctor.analysis.kernel_families import UNUSED
from tb_gpu_doctor.analysis.kernel_results import FusionCandidate, GpuFill, KernelRow
from tb_gpu_doctor.analysis.kernels import UNKNOWN, parse_kernel_details
from tb_gpu_doctor.analysis.launches import LaunchQueue
from tb_gpu_doctor.analysis.lost_events import LostEvents
from tb_gpu_doctor.analysis.replay.graph import ReplayGraph
from tb_gpu_doctor.analysis.results import DeviceAccounting, LaunchStats, Window
from tb_gpu_doctor.analysis.standstill import Standstills
from tb_gpu_doctor.analysis.start_up import StartUp
from tb_gpu_doctor.analysis.step_facts import GpuSteps, Pause, StepFacts, gpu_steps, pauses_of_slow_steps, step_facts
from tb_gpu_doctor.analysis.trace_analysis import AllocatorUse, Mark, TraceAnalysis, outline_of
from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.traces.columns import PART, PS_PER_MS, CopyKind, Device, EventClass, Trace
from tb_gpu_doctor.traces.torch_names import machine_of

# How many places are kept of whatever has a worst one: enough for the evidence of a finding about one GPU alone.
MAX_PLACES = 12
# Kernels of a smaller part of their GPU's kernel time are not shown where they run.
_LEAST_KERNEL = 0.005
# What the host did outside the window is worth a look where the window leaves so much of the recording out.
_COVERED = 0.9

_Shape = tuple[int, int, int] | None


@dataclass(frozen=True)
class PipelineFacts:
    """An input pipeline, and the thread on which its slowest stage works ("" where none is known)."""

    pipeline: InputPipeline
    slowest_thread: str


@dataclass(frozen=True)
class ContentionFacts:
    """How much longer the same calls take beside many input workers, see `launch_results.Contention`."""

    slowdown: float
    few: int
    many: int
    calls_few: int
    calls_many: int
    name: str
    typical_few: float
    typical_many: float
    lost: int
    by_step: tuple[int, ...]
    workers: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True)
class SerializedFacts:
    """Kernels of several streams that took turns, see `launch_results.StreamOverlap`.

    ``waiting`` and ``running`` are the longest such wait: the kernel that waited and the one before it, with the
    names of their streams.
    """

    streams: int
    handovers: int
    reversed: int
    waiting: Place
    waiting_stream: str
    running: Place
    running_stream: str


@dataclass(frozen=True)
class KernelTimes:
    """Calls and time of a kernel over all GPUs of a file; in `FileFacts.kernel_units`."""

    name: str
    grid: _Shape
    block: _Shape
    calls: int
    time: float


@dataclass(frozen=True)
class GpuFacts:
    """One GPU of a file; None stands for what cannot be told.

    Attributes:
        device: what the file says of the hardware.
        worked: whether it did anything in the recording.
        busy: for how long it did.
        account: where its window went; None without a window.
        kernels, compute: kernels in the window, and when any of them computed.
        steps: its complete steps.
        idle: why it waited.
        copies, bounces: what copies cost.
        exposed: communication that nothing hides.
        launches, queue: how the host launched, and how far ahead.
        contention: how much input workers slow launching down.
        serialized: whether its streams take turns.
        allocator: what the framework's allocator needed.
        occupancy: theoretical, weighted by time.
        fill: how kernels fill it.
    """

    device: Device
    worked: bool
    busy: int
    account: DeviceAccounting | None
    kernels: int
    compute: int
    steps: GpuSteps | None
    idle: GpuIdle | None
    copies: CopyFacts | None
    bounces: BounceFacts | None
    exposed: ExposedFacts | None
    launches: LaunchStats | None
    queue: LaunchQueue | None
    contention: ContentionFacts | None
    serialized: SerializedFacts | None
    allocator: AllocatorUse | None
    occupancy: float | None
    fill: GpuFill | None


@dataclass(frozen=True)
class FileFacts:
    """One file of a session, hence one clock.

    Attributes:
        label: names the file within its session, by its host where that is enough.
        path, host, format: of the file, see `Trace`.
        rank, world_size: of the process in its job, where the file says.
        wall_start_unix_ns: epoch time of the clock's zero, where the file says.
        declared: start and end of the recording, where the file says.
        recorded: the same, else from the first to the last host event; None without either.
        worked: from the first to the last event on any GPU; None without any.
        warnings, errors, notes: what the profiler and the reader say.
        cut: whether only a part of the file could be read.
        lost: work that was launched and is not in the file; None where nothing is missing.
        early: work that starts before its launch; None without any.
        start_up: leading steps that are left out of all other facts; None without any.
        window: the analysed stretch; None without work on a GPU.
        marks: which frameworks left their names.
        communicates: whether any GPU runs collectives.
        has_host_events: whether anything of the host was recorded.
        outside_window: what the host was busy with outside the window, where that is long; names and time.
        steps: the complete steps.
        pauses: what the host did in slow ones.
        gpus: by device index.
        collectives: None without a window.
        arrivals: None where they cannot be matched by order.
        pipelines: the input pipelines, the one that GPUs waited for longest first.
        kernels: the kernel table, longest total first.
        kernel_runs: the longest run inside the window of the kernels that matter: GPU and where.
        kernel_times: kernels by name and shape, in complete steps; without steps in the window.
        kernel_units: how many steps of a GPU, or milliseconds of its window, these were counted in.
        fusion, fusion_ps: runs of short kernels that could be one, see `KernelTable`.
        standstills: when no thread of the process moved on; None where that never happened.
        replay: what waited for what in some of its steps; None with too few of them.
    """

    label: str
    path: str
    host: str
    format: str
    rank: int | None
    world_size: int | None
    wall_start_unix_ns: int | None
    declared: tuple[int, int] | None
    recorded: tuple[int, int] | None
    worked: tuple[int, int] | None
    warnings: tuple[str, ...]
    errors: tuple[str, ...]
    notes: tuple[Phrase, ...]
    cut: bool
    lost: LostEvents | None
    early: EarlyWork | None
    start_up: StartUp | None
    window: Window | None
    marks: tuple[Mark, ...]
    communicates: bool
    has_host_events: bool
    outside_window: tuple[tuple[str, int], ...]
    steps: StepFacts
    pauses: tuple[Pause, ...]
    gpus: tuple[GpuFacts, ...]
    collectives: CollectiveFacts | None
    arrivals: ArrivalFacts | None
    pipelines: tuple[PipelineFacts, ...]
    kernels: tuple[KernelRow, ...]
    kernel_runs: tuple[tuple[int, Place], ...]
    kernel_times: tuple[KernelTimes, ...]
    kernel_units: float
    fusion: tuple[FusionCandidate, ...]
    fusion_ps: tuple[int, ...]
    standstills: Standstills | None = None
    replay: ReplayGraph | None = None

    @property
    def has_gpu_work(self) -> bool:
        """Whether any GPU did anything."""
        return self.worked is not None

    @property
    def per_step(self) -> float | None:
        """Factor from a total over the window to the mean per step; None without complete steps."""
        if not self.steps.count or self.window is None or self.window.length <= 0:
            return None
        if self.steps.source == "marked":
            return 1 / self.steps.count  # the window is the union of the marked complete steps
        return sum(self.steps.durations) / self.steps.count / self.window.length

    @property
    def machine(self) -> str:
        """The host, without the process that profilers write behind its name."""
        return machine_of(self.host)

    def named(self, label: str) -> FileFacts:
        """The same under another label."""
        return replace(self, label=label)


def file_facts(trace: Trace, analysis: TraceAnalysis, label: str = "") -> FileFacts:
    """The facts of one analysed file.

    Args:
        trace: the decoded file.
        analysis: of it.
        label: by default its host.
    """
    file = FileColumns(trace, analysis)
    outline = outline_of(trace, analysis)
    times, units = _kernel_times(file)
    return FileFacts(
        label=label or trace.host,
        path=trace.path,
        host=trace.host,
        format=trace.format,
        rank=trace.rank,
        world_size=trace.world_size,
        wall_start_unix_ns=trace.wall_start_unix_ns,
        declared=trace.recorded,
        recorded=analysis.recorded,
        worked=trace.device_events.extent(),
        warnings=trace.warnings,
        errors=trace.errors,
        notes=trace.notes,
        cut=any(note.key == PART for note in trace.notes),
        lost=analysis.lost,
        early=analysis.early,
        start_up=analysis.start_up,
        window=analysis.window,
        marks=tuple(sorted(outline.marks)),
        communicates=outline.communicates,
        has_host_events=len(trace.host_events) > 0,
        outside_window=_outside_window(file),
        steps=step_facts(file),
        pauses=pauses_of_slow_steps(file),
        gpus=_gpus(file),
        collectives=collective_facts(file),
        arrivals=arrival_facts(file),
        pipelines=tuple(_pipeline(file, pipeline) for pipeline in analysis.pipelines),
        kernels=analysis.kernels.rows,
        kernel_runs=_kernel_runs(file),
        kernel_times=times,
        kernel_units=units,
        fusion=analysis.kernels.fusion,
        fusion_ps=analysis.kernels.fusion_ps,
        standstills=analysis.standstills,
        replay=analysis.replay,
    )


def _gpus(file: FileColumns) -> tuple[GpuFacts, ...]:
    trace, analysis = file.trace, file.analysis
    outline, rows = outline_of(trace, analysis), trace.device_events.rows_of_devices()
    idle = IdleGathering(file, MAX_PLACES)
    summaries = {summary.device: summary for summary in analysis.summaries}
    allocators = {use.device: use for use in outline.allocators}
    launches = {stats.device: stats for stats in analysis.launches}
    queues = {queue.device: queue for queue in analysis.queues}
    found = []
    for device in trace.devices:
        index = device.index
        sets, summary = busy_sets(trace.device_events, index), summaries.get(index)
        worked = index in rows
        shows = worked and analysis.window is not None
        found.append(
            GpuFacts(
                device=device,
                worked=worked,
                busy=outline.busy[index],
                account=file.account(index),
                kernels=summary.kernels if summary is not None else 0,
                compute=summary.compute if summary is not None else 0,
                steps=gpu_steps(file, index, sets),
                idle=idle.of_gpu(index),
                copies=copy_facts(file, index, MAX_PLACES),
                bounces=bounce_facts(file, index, MAX_PLACES),
                exposed=exposed_facts(file, index, sets[0], sets[1], MAX_PLACES) if shows else None,
                launches=launches.get(index),
                queue=queues.get(index),
                contention=_contention(file, index),
                serialized=_serialized(file, index),
                allocator=allocators.get(index),
                occupancy=analysis.kernels.occupancy[index] if index < len(analysis.kernels.occupancy) else None,
                fill=analysis.kernels.fills[index] if index < len(analysis.kernels.fills) else None,
            )
        )
    return tuple(found)


def _contention(file: FileColumns, device: int) -> ContentionFacts | None:
    found = next((item for item in file.analysis.contention if item.device == device), None)
    if found is None:
        return None
    return ContentionFacts(
        found.slowdown, found.few, found.many, found.calls_few, found.calls_many, found.name, found.typical_few,
        found.typical_many, found.lost, tuple(found.step_part.tolist()), found.workers, found.start, found.end,
    )  # fmt: skip


def _serialized(file: FileColumns, device: int) -> SerializedFacts | None:
    found = next((item for item in file.analysis.serialized if item.device == device), None)
    if found is None:
        return None
    streams, stream_of = file.trace.streams, file.trace.device_events.stream
    return SerializedFacts(
        streams=found.streams,
        handovers=found.handovers,
        reversed=found.reversed,
        waiting=file.device_place(found.first),
        waiting_stream=streams[int(stream_of[found.first])].name,
        running=file.device_place(found.waited_for),
        running_stream=streams[int(stream_of[found.waited_for])].name,
    )


def _outside_window(file: FileColumns) -> tuple[tuple[str, int], ...]:
    window, recorded = file.analysis.window, file.analysis.recorded
    if window is None or recorded is None or window.length >= _COVERED * (recorded[1] - recorded[0]):
        return ()
    return file.calls.busiest([(recorded[0], window.start), (window.end, recorded[1])])


def _pipeline(file: FileColumns, pipeline: InputPipeline) -> PipelineFacts:
    stage = pipeline.slowest
    threads = stage.threads if stage is not None else ()
    return PipelineFacts(pipeline, file.trace.threads[threads[0]].name if threads else "")


def _kernel_runs(file: FileColumns) -> tuple[tuple[int, Place], ...]:
    """The longest run of each kernel that a rule may point at."""
    events, window = file.trace.device_events, file.analysis.window
    wanted: dict[int, dict[str, None]] = {}
    products: dict[int, int] = {}
    for row in file.analysis.kernels.rows:
        if row.family == "communication" or row.in_window_ps <= 0:
            continue
        matters = row.share >= _LEAST_KERNEL
        if row.tensor_cores == UNUSED and products.get(row.device, 0) < MAX_PLACES:
            products[row.device] = products.get(row.device, 0) + 1
            matters = True
        if matters:
            wanted.setdefault(row.device, {})[row.name] = None
    found = []
    for device, names in wanted.items():
        span = events.of_device(device)
        name, start, duration = events.name[span], events.start[span], events.duration[span]
        idents: dict[str, list[int]] = {}
        for ident in np.flatnonzero(np.bincount(name[name >= 0])).tolist():
            idents.setdefault(file.trace.strings[ident], []).append(ident)
        for text in names:
            mine = np.zeros(len(name), np.bool_)
            for ident in idents.get(text, ()):
                mine |= name == ident
            if window is not None:
                mine &= (start >= window.start) & (start < window.end)
            runs = np.flatnonzero(mine)
            if len(runs):
                found.append((device, file.device_place(span.start + int(runs[np.argmax(duration[runs])]))))
    return tuple(found)


def _kernel_times(file: FileColumns) -> tuple[tuple[KernelTimes, ...], float]:
    """Calls and time by name and shape; in complete steps, without any in the window."""
    trace, analysis = file.trace, file.analysis
    events, steps, units = trace.device_events, analysis.steps, 0.0
    chosen = (events.klass == EventClass.COMPUTE) | (events.klass == EventClass.COMMUNICATION)
    chosen &= events.copy_kind == CopyKind.NONE
    if steps.count:
        if not len(steps.event_step):
            return (), 0.0
        complete = np.append(steps.complete, False)  # the last element serves -1, outside steps
        chosen &= complete[steps.event_step]
        units = float((steps.end[steps.complete] >= 0).sum())
    elif analysis.window is not None:
        chosen &= (events.start >= analysis.window.start) & (events.start < analysis.window.end)
        active = sum(accounting.busy > 0 for accounting in analysis.accounting)
        units = active * analysis.window.length / PS_PER_MS
    rows = np.flatnonzero(chosen)
    width = len(trace.strings) + 1
    pair = (events.name[rows].astype(np.int64) + 1) * width + events.details[rows] + 1
    codes, index = np.unique(pair, return_inverse=True)
    count = np.bincount(index, minlength=len(codes))
    total = np.bincount(index, weights=events.duration[rows], minlength=len(codes))
    found: dict[tuple[str, _Shape, _Shape], tuple[int, float]] = {}
    for code, number, time in zip(codes.tolist(), count.tolist(), total.tolist(), strict=True):
        name, text = code // width - 1, code % width - 1
        details = parse_kernel_details(trace.strings.raw(text)) if text >= 0 else UNKNOWN
        key = (file.text(name) if name >= 0 else "", details.grid, details.block)
        calls, spent = found.get(key, (0, 0.0))
        found[key] = (calls + number, spent + time)
    return tuple(KernelTimes(*key, calls, time) for key, (calls, time) in found.items()), units
