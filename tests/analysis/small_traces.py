"""Small traces by hand and at random, for tests of the analyses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from tb_gpu_doctor.traces.columns import (
    CopyKind,
    Device,
    DeviceEvents,
    EventClass,
    HostEvents,
    HostThread,
    Stream,
    StringTable,
    Trace,
    device_events,
    host_events,
)

US = 1_000_000  # picoseconds in a microsecond
STREAMS_PER_GPU = 4


@dataclass
class Recorder:
    """Writes a trace event by event; times in microseconds, threads and GPUs come to be when first named."""

    gpus: int = 1
    recorded: tuple[float, float] | None = None
    names: dict[str, int] = field(default_factory=dict)
    threads: list[str] = field(default_factory=list)
    device_rows: list[dict[str, int]] = field(default_factory=list)
    host_rows: list[dict[str, int]] = field(default_factory=list)
    unit: int = US

    def string(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names))

    def work(
        self,
        start: float,
        end: float,
        correlation: int = -1,
        *,
        gpu: int = 0,
        stream: int = 0,
        klass: EventClass = EventClass.COMPUTE,
        name: str = "kernel",
        copy_kind: CopyKind = CopyKind.NONE,
        graph: int = -1,
    ) -> None:
        """Something that a GPU does."""
        self.device_rows.append(
            {
                "device": gpu,
                "stream": gpu * STREAMS_PER_GPU + stream,
                "start": round(start * self.unit),
                "duration": round(end * self.unit) - round(start * self.unit),
                "name": self.string(name),
                "klass": klass,
                "correlation": correlation,
                "copy_kind": copy_kind,
                "graph": graph,
            }
        )

    def call(
        self, thread: str, name: str, start: float, end: float, correlation: int = -1, op: str = "", **columns: int
    ) -> None:
        """Something that a host thread does; ``columns`` as in `HostEvents`."""
        if thread not in self.threads:
            self.threads.append(thread)
        self.host_rows.append(
            {
                "thread": self.threads.index(thread),
                "start": round(start * self.unit),
                "duration": round(end * self.unit) - round(start * self.unit),
                "name": self.string(name),
                "correlation": correlation,
                "op": self.string(op) if op else -1,
                **columns,
            }
        )

    def launch(self, thread: str, call: float, start: float, end: float, correlation: int, **work: int) -> None:
        """A launch call of one microsecond and the kernel that it leads to."""
        self.call(thread, "cuLaunchKernel", call, call + 1, correlation)
        self.work(start, end, correlation, **work)  # type: ignore[arg-type]

    def step(self, thread: str, number: int, start: float, end: float, name: str = "train") -> None:
        """A step marker."""
        self.call(thread, name, start, end, step_num=number, is_root=1)

    def trace(self) -> Trace:
        return Trace(
            path="small",
            host="host",
            format="xplane",
            strings=StringTable.of(self.names),
            devices=tuple(Device(i, "host", i) for i in range(self.gpus)),
            streams=tuple(
                Stream(i, i // STREAMS_PER_GPU, 10 + i, f"Stream #{10 + i}(Compute)")
                for i in range(self.gpus * STREAMS_PER_GPU)
            ),
            device_events=device_events(len(self.device_rows), **_columns(self.device_rows)),
            threads=tuple(HostThread(i, 100 + i, name) for i, name in enumerate(self.threads)),
            host_events=host_events(len(self.host_rows), **_columns(self.host_rows)),
            recorded=None
            if self.recorded is None
            else (round(self.recorded[0] * self.unit), round(self.recorded[1] * self.unit)),
        )


def _columns(rows: list[dict[str, int]]) -> dict[str, list[int]]:
    names = {name for row in rows for name in row}
    return {name: [row.get(name, -1) for row in rows] for name in sorted(names)}


# Names whose meaning is beyond doubt, by what they mean.
INPUT, FETCH, LAUNCH, SYNC = "Iterator::Map", "IteratorGetNextOp::DoCompute", "cuLaunchKernel", "cuStreamSynchronize"
COMPILE, CHECKPOINT, WAIT, NEUTRAL = "XlaCompile", "SaveV2", "FunctionRun", "ThreadpoolListener::Record"
USER, MYSTERY = "$train.py:12 main", "algebraic-simplifier"
PLAIN_NAMES = (INPUT, FETCH, LAUNCH, SYNC, COMPILE, CHECKPOINT, WAIT, NEUTRAL, USER, MYSTERY)
THREADS = ("python", "tf_Compute/1", "Host Threads/7", "py_xla_execute/5")
KERNELS = ("kernel", "ncclDevKernel_AllReduce", "ncclDevKernel_AllGather", "MemcpyH2D")


@st.composite
def traces(draw: st.DrawFn, nested: bool = False, units: Iterable[int] = (1, US, 30 * US)) -> Trace:
    """Any small trace: overlaps inside a stream, zero durations, skew, missing and shared correlations,
    GPUs without work, markers, producers and consumers; with ``nested`` no host events overlap partly.
    """
    recorder = Recorder(gpus=draw(st.integers(1, 3)), unit=draw(st.sampled_from(tuple(units))))
    times, lengths = st.integers(0, 60), st.integers(0, 15)
    correlations = st.one_of(st.just(-1), st.integers(1, 8))
    for _ in range(draw(st.integers(0, 12))):
        start = draw(times)
        klass = draw(st.sampled_from(EventClass))
        recorder.work(
            start,
            start + draw(lengths),
            draw(correlations),
            gpu=draw(st.integers(0, recorder.gpus - 1)),
            stream=draw(st.integers(0, 2)),
            klass=klass,
            name=draw(st.sampled_from(KERNELS)),
            copy_kind=draw(st.sampled_from((CopyKind.NONE, CopyKind.P2P)))
            if klass == EventClass.COMMUNICATION
            else CopyKind.NONE,
            graph=draw(st.sampled_from((-1, 5))),
        )
    spans: list[tuple[str, int, int]] = []
    for _ in range(draw(st.integers(0, 14))):
        thread, start, length = draw(st.sampled_from(THREADS)), draw(times), draw(lengths)
        end = start + length
        if nested and any(t == thread and _cross(start, end, a, b) for t, a, b in spans):
            continue
        spans.append((thread, start, end))
        if draw(st.integers(0, 4)) == 0:
            recorder.step(thread, draw(st.integers(0, 3)), start, end)
            continue
        columns = {}
        if draw(st.integers(0, 3)) == 0:
            columns |= {"producer_type": draw(st.integers(1, 2)), "producer_id": draw(st.integers(0, 2))}
        if draw(st.integers(0, 3)) == 0:
            columns |= {"consumer_type": draw(st.integers(1, 2)), "consumer_id": draw(st.integers(0, 2))}
        if draw(st.booleans()):
            columns["group"] = draw(st.integers(0, 2))
        recorder.call(thread, draw(st.sampled_from(PLAIN_NAMES)), start, end, draw(correlations), **columns)
    if draw(st.booleans()):
        recorder.recorded = (0, draw(st.integers(1, 80)))
    return recorder.trace()


def _cross(start: int, end: int, other_start: int, other_end: int) -> bool:
    """Whether two intervals overlap and neither holds the other."""
    return start < other_end and other_start < end and (start - other_start) * (end - other_end) > 0


def host_rows(events: HostEvents) -> range:
    return range(len(events))


def rows_of(events: DeviceEvents, gpu: int) -> list[int]:
    return np.flatnonzero(events.device == gpu).tolist()
