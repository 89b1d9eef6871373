"""Traces and analyses put together by hand from the real dataclasses, so that a test says every number itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tb_gpu_doctor.analysis.kernel_results import KernelRow, KernelTable
from tb_gpu_doctor.analysis.results import (
    Cause,
    DeviceAccounting,
    DeviceSummary,
    Gaps,
    Lateness,
    LaunchStats,
    Steps,
    StepSource,
    Window,
)
from tb_gpu_doctor.analysis.step_costs import step_costs
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.traces.columns import (
    PS_PER_MS,
    Device,
    HostThread,
    Stream,
    StringTable,
    Trace,
    device_events,
    host_events,
)
from tests.hosts import AnalysedFile

MS = PS_PER_MS
KERNEL, HOST_EVENT = "step_kernel", "IteratorGetNextOp::DoCompute"


def trace(
    gpus: int = 2,
    working: Sequence[int] | None = None,
    names: Sequence[str] = (),
    errors: Sequence[str] = (),
    warnings: Sequence[str] = (),
    notes: Sequence[Phrase] = (),
    host: str = "worker0",
    steps: int = 10,
    step_ms: float = 100,
    thread: str = "python",
    host_event: str = HOST_EVENT,
    with_host_events: bool = True,
) -> Trace:
    """One kernel per step on each working GPU, one host event; ``names`` are further strings of the file."""
    working = range(gpus) if working is None else working
    pairs = [(gpu, step) for gpu in working for step in range(steps)]
    step_ps = int(step_ms * MS)
    return Trace(
        path=f"/logs/plugins/profile/s/{host}.xplane.pb",
        host=host,
        format="xplane",
        strings=StringTable.of([KERNEL, host_event, *names]),
        devices=tuple(Device(gpu, host, gpu, "Some GPU", "NVIDIA", sm_count=100) for gpu in range(gpus)),
        streams=tuple(Stream(gpu, gpu, 7, "Stream #7") for gpu in range(gpus)),
        device_events=device_events(
            len(pairs),
            device=[gpu for gpu, _ in pairs],
            stream=[gpu for gpu, _ in pairs],
            start=[step * step_ps + step_ps // 2 for _, step in pairs],
            duration=[step_ps // 2] * len(pairs),
            name=[0] * len(pairs),
        ),
        threads=(HostThread(0, 1, thread),),
        host_events=host_events(1, thread=[0], start=[0], duration=[step_ps], name=[1])
        if with_host_events
        else host_events(0),
        errors=tuple(errors),
        warnings=tuple(warnings),
        notes=tuple(notes),
    )


def marked_steps(gpus: int, count: int, step_ps: int, events: int, source: StepSource = "marked") -> Steps:
    starts = np.arange(count, dtype=np.int64) * step_ps
    shape = np.repeat(starts[:, None], gpus, axis=1)
    return Steps(
        source=source,
        number=np.arange(count, dtype=np.int64) + 20,
        marker_start=starts,
        marker_end=starts + step_ps,
        complete=np.ones(count, dtype=np.bool_),
        start=shape,
        end=shape + step_ps,
        event_step=np.tile(np.arange(max(count, 1), dtype=np.int32), events // max(count, 1))
        if count
        else np.full(events, -1, np.int32),
        confidence=1.0 if source == "inferred" else None,
    )


def profile(
    gpus: int = 2,
    *,
    working: Sequence[int] | None = None,
    steps: int = 10,
    step_ms: float = 100,
    source: StepSource = "marked",
    idle: Mapping[Cause, float] | Sequence[Mapping[Cause, float]] = (),
    communication: float | Sequence[float] = 0.0,
    gaps_per_step: int = 1,
    lateness: Lateness | None = None,
    kernels: Sequence[KernelRow] = (),
    compute_per_step: Sequence[Sequence[float]] | None = None,
    kernel_counts: Sequence[int] | None = None,
    recorded_ms: float | None = None,
    label: str = "worker0",
    **trace_options: Any,
) -> AnalysedFile:
    """A host whose GPUs spend the given shares of their window idle (by cause) and in communication."""
    working = list(range(gpus) if working is None else working)
    made = trace(gpus, working, steps=max(steps, 1), step_ms=step_ms, host=label, **trace_options)
    step_ps = int(step_ms * MS)
    wall = max(steps, 1) * step_ps
    shares = (
        [dict(idle)] * len(working) if isinstance(idle, Mapping) else [dict(i) for i in idle] or [{}] * len(working)
    )
    exposed = [communication] * len(working) if isinstance(communication, float | int) else list(communication)
    accounting, columns = [], []
    for gpu, by_share, comm in zip(working, shares, exposed, strict=True):
        by_cause = [0] * len(Cause)
        for cause, share in by_share.items():
            by_cause[cause] = round(share * wall)
            pieces = max(steps, 1) * gaps_per_step
            for piece in range(pieces):
                start = piece * (wall // pieces)
                row = [0] * len(Cause)
                row[cause] = by_cause[cause] // pieces + (by_cause[cause] % pieces if piece == pieces - 1 else 0)
                columns.append((gpu, start, start + row[cause], row, int(cause)))
        total = sum(by_cause)
        in_comm = round(comm * wall)
        accounting.append(DeviceAccounting(gpu, wall, wall - total - in_comm, in_comm, 0, total, tuple(by_cause)))
    columns.sort(key=lambda c: (c[0], c[1]))
    has_evidence = len(made.host_events) > 0
    gap_table = Gaps(
        device=np.array([c[0] for c in columns], np.int32),
        start=np.array([c[1] for c in columns], np.int64),
        end=np.array([c[2] for c in columns], np.int64),
        before=np.full(len(columns), -1, np.int64),
        after=np.zeros(len(columns), np.int64),
        launch=np.full(len(columns), -1, np.int64),
        by_cause=np.array([c[3] for c in columns], np.int64).reshape(-1, len(Cause)),
        cause=np.array([c[4] for c in columns], np.uint8),
        evidence=np.zeros(len(columns), np.int64) if has_evidence else np.full(len(columns), -1, np.int64),
    )
    summaries = []
    for index, account in enumerate(accounting):
        if compute_per_step is None:
            per_step = np.full(steps, account.compute // max(steps, 1), np.int64)
        else:
            per_step = (np.array(compute_per_step[index]) * MS).astype(np.int64)
        summaries.append(
            DeviceSummary(
                device=account.device,
                kernels=kernel_counts[index] if kernel_counts else 1000,
                copies=0,
                busy=account.busy,
                compute=int(per_step.sum()),
                idle=account.idle,
                compute_per_step=per_step,
                idle_per_step=np.full(steps, account.idle // max(steps, 1), np.int64),
            )
        )
    step_table = marked_steps(gpus, steps, step_ps, len(made.device_events), source if steps else "none")
    analysis = TraceAnalysis(
        steps=step_table,
        window=Window(0, wall) if working else None,
        recorded=None if recorded_ms is None else (0, int(recorded_ms * MS)),
        accounting=tuple(accounting) if working else (),
        gaps=gap_table,
        summaries=tuple(summaries),
        lateness=lateness,
        kernels=KernelTable(tuple(kernels), (0.5,) * gpus, (1.0,) * gpus),
        launches=tuple(LaunchStats(gpu, 5000, 4000, 2_000_000) for gpu in working),
        step_costs=step_costs(step_table, gap_table, lateness) if steps else None,
    )
    return AnalysedFile(label, made, analysis)


def arrivals(behind_ms: Sequence[Sequence[float]], step_ms: float = 100, each: float = 1) -> Lateness:
    """One collective per step; GPU d enters it ``behind_ms[step][d]`` after the earliest could."""
    late = (np.array(behind_ms, dtype=np.float64) * MS).astype(np.int64)
    count, devices = late.shape
    base = (np.arange(count, dtype=np.int64) * int(step_ms * MS) + int(step_ms * MS) // 2)[:, None]
    start = base + late
    end = np.repeat(start.max(axis=1, keepdims=True) + int(each * MS), devices, axis=1)
    median = np.stack(
        [np.median(np.delete(start, device, axis=1), axis=1).astype(np.int64) for device in range(devices)], axis=1
    )
    return Lateness(
        devices=np.arange(devices, dtype=np.int32),
        start=start,
        end=end,
        step=np.arange(count, dtype=np.int32),
        late=start - median,
        wait=start.max(axis=1, keepdims=True) - start,
    )


def kernel(
    name: str = "my_kernel",
    device: int = 0,
    *,
    share: float = 0.5,
    in_window_ms: float = 500,
    occupancy: float | None = 0.5,
    limiter: str | None = "registers",
    sm_share: float | None = 1.0,
    family: str = "other",
    persistent: bool = False,
) -> KernelRow:
    total = int(in_window_ms * MS)
    return KernelRow(
        device=device,
        name=name,
        calls=10,
        total_ps=total,
        min_ps=total // 10,
        max_ps=total // 10,
        share=share,
        registers=128,
        static_shared_bytes=0,
        dynamic_shared_bytes=2048,
        grid=(20, 1, 1),
        block=(256, 1, 1),
        occupancy=occupancy,
        limiter=limiter,
        waves=1.0,
        sm_share=sm_share,
        family=family,
        persistent=persistent,
        op="",
        in_window_ps=total,
    )
