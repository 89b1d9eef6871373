"""Small traces and analyses made by hand or drawn by hypothesis, for the plugin's tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.kernel_results import KernelTable
from tb_gpu_doctor.analysis.results import Cause, Gaps, Steps, Window
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.traces.columns import (
    Device,
    DeviceEvents,
    HostThread,
    Stream,
    StringTable,
    Trace,
    device_events,
    host_events,
)

CAUSES = len(Cause)


def gaps_of(device: Sequence[int], start: Sequence[int], end: Sequence[int], by_cause: Sequence[Sequence[int]]) -> Gaps:
    """Gaps with nothing known but their times and causes."""
    count = len(start)
    parts = np.array(by_cause, dtype=np.int64).reshape(count, CAUSES)
    unknown = np.full(count, -1, dtype=np.int64)
    return Gaps(
        device=np.array(device, dtype=np.int32),
        start=np.array(start, dtype=np.int64),
        end=np.array(end, dtype=np.int64),
        before=unknown,
        after=unknown,
        launch=unknown,
        by_cause=parts,
        cause=parts.argmax(axis=1).astype(np.uint8) if count else np.zeros(0, dtype=np.uint8),
        evidence=unknown,
    )


def busy_picture(events: DeviceEvents, device: int, length: int) -> list[int]:
    """For every picosecond in [0, length) the category that wins (0, 1, 2), or -1: computed one by one."""
    picture = [-1] * length
    category_of = {0: 0, 1: 1, 2: 2, 3: 2}
    for row in range(len(events)):
        if events.device[row] != device:
            continue
        category = category_of[int(events.klass[row])]
        for time in range(int(events.start[row]), int(events.start[row] + events.duration[row])):
            if picture[time] == -1 or category < picture[time]:
                picture[time] = category
    return picture


@st.composite
def gpu_pictures(draw: st.DrawFn, devices: int = 2, length: int = 80) -> tuple[DeviceEvents, Gaps, list[list[int]]]:
    """Events, the gaps between them with drawn causes, and what each lane must show at each picosecond."""
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, devices - 1),
                st.integers(0, length - 1),
                st.integers(0, length // 3),
                st.integers(0, 3),
            ),
            max_size=24,
        )
    )
    rows = [(d, s, min(n, length - s), k) for d, s, n, k in rows]
    columns = list(zip(*rows, strict=True)) if rows else [()] * 4
    events = device_events(
        len(rows),
        device=columns[0],
        start=columns[1],
        duration=columns[2],
        klass=columns[3],
        name=list(range(len(rows))),
        stream=columns[0],
    )
    low = draw(st.integers(0, length - 1))
    high = draw(st.integers(low + 1, length))
    found: list[tuple[int, int, int, list[int]]] = []
    pictures = []
    for device in range(devices):
        picture = busy_picture(events, device, length)
        time = low
        while time < high:
            if picture[time] != -1:
                time += 1
                continue
            end = time
            while end < high and picture[end] == -1:
                end += 1
            cuts = sorted(draw(st.lists(st.integers(0, end - time), min_size=CAUSES - 1, max_size=CAUSES - 1)))
            parts = np.diff([0, *cuts, end - time]).tolist()
            found.append((device, time, end, parts))
            for cause, part in enumerate(parts):
                for _ in range(part):
                    picture[time] = 3 + cause
                    time += 1
        pictures.append(picture)
    gaps = gaps_of([g[0] for g in found], [g[1] for g in found], [g[2] for g in found], [g[3] for g in found])
    return events, gaps, pictures


def steps_of(events: DeviceEvents, devices: int, borders: Sequence[int] = ()) -> Steps:
    """Steps between ``borders``, the same for each device; event steps by the event's start."""
    count = max(0, len(borders) - 1)
    edges = np.array(borders, dtype=np.int64)
    step = np.full(len(events), -1, dtype=np.int32)
    if count:
        index = np.searchsorted(edges, events.start, side="right") - 1
        step = np.where((index >= 0) & (index < count), index, -1).astype(np.int32)
    start = np.repeat(edges[:-1, np.newaxis], devices, axis=1) if count else np.zeros((0, devices), dtype=np.int64)
    end = np.repeat(edges[1:, np.newaxis], devices, axis=1) if count else np.zeros((0, devices), dtype=np.int64)
    return Steps(
        source="marked" if count else "none",
        number=np.arange(7, 7 + count),
        marker_start=edges[:-1] if count else np.zeros(0, dtype=np.int64),
        marker_end=edges[1:] if count else np.zeros(0, dtype=np.int64),
        complete=np.ones(count, dtype=np.bool_),
        start=start,
        end=end,
        event_step=step,
    )


def analysis_of(events: DeviceEvents, gaps: Gaps, devices: int, borders: Sequence[int] = ()) -> TraceAnalysis:
    """An analysis that holds what the timeline reads: steps, window and gaps."""
    window = Window(int(events.start.min()), int(events.end.max())) if len(events) else None
    return TraceAnalysis(
        steps=steps_of(events, devices, borders),
        window=window,
        recorded=None,
        accounting=(),
        gaps=gaps,
        summaries=(),
        lateness=None,
        kernels=KernelTable((), (None,) * devices, (0.0,) * devices),
        launches=(),
    )


def trace_of(events: DeviceEvents, devices: int, names: Sequence[str] = (), host: str = "worker0") -> Trace:
    """A trace around device events; names default to k0, k1, ..., with two host events to point at."""
    table = list(names) or [f"k{index}" for index in range(max(1, len(events)))]
    first = len(table)
    table += ["IteratorGetNextOp::DoCompute", "cuLaunchKernel"]
    return Trace(
        path=f"{host}.xplane.pb",
        host=host,
        format="xplane",
        strings=StringTable.of(table),
        devices=tuple(Device(index, host, index, name="NVIDIA H100") for index in range(devices)),
        streams=tuple(Stream(index, index, 10 + index, f"Stream #{10 + index}(Compute)") for index in range(devices)),
        device_events=events,
        threads=(HostThread(0, 1, "python"),),
        host_events=host_events(2, thread=[0, 0], start=[0, 5], duration=[4, 4], name=[first, first + 1]),
    )
