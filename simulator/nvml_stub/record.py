"""Let the monitor record a scenario at the scenario's own time: hours in a second, the same at every run.

The real sampler asks the real pynvml over the stand-in library, and the real writer writes; only the clock,
the host and the process are the scenario's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulator.nvml_stub import LoadedStub
from tb_gpu_doctor.metrics import METRICS
from tb_gpu_doctor.monitor.event_file import Origin
from tb_gpu_doctor.monitor.notes import Notes
from tb_gpu_doctor.monitor.sampler import GpuSource
from tb_gpu_doctor.monitor.writer import RecordingWriter
from tb_gpu_doctor.recording_format import FORMAT_VERSION

# Seconds of the scenario between two writes, as in a real recording.
_FLUSH_S = 3.0


@dataclass(frozen=True)
class StepAt:
    """A training step; ``end_s`` is scenario time."""

    number: int
    end_s: float
    duration_s: float
    samples: int = -1
    profiled: bool = False


@dataclass(frozen=True)
class SpanAt:
    """Something beside the steps."""

    kind: str
    start_s: float
    end_s: float
    step: int
    note: str = ""


@dataclass(frozen=True)
class Training:
    """What the training process does while its GPUs play a scenario.

    Attributes:
        start_ns: Unix time of the scenario's zero.
        steps: in order of their end.
        allocator: ``(framework's number, used, peak, limit)`` of every GPU at a time.
        visible: ``CUDA_VISIBLE_DEVICES`` of the process.
    """

    host: str
    process_id: int
    start_ns: int
    duration_s: float
    interval_s: float = 1.0
    steps: Sequence[StepAt] = ()
    spans: Sequence[SpanAt] = ()
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    allocator: Callable[[float], Iterable[tuple[int, int, int, int | None]]] | None = None
    memory_growth: bool | None = None
    visible: str | None = None


def record(logdir: str | os.PathLike[str], stub: LoadedStub, scenario: str, training: Training) -> None:
    """Write a recording below a logdir.

    Args:
        logdir: where to.
        stub: the library, loaded into this process.
        scenario: the text.
        training: the process.
    """
    path = Path(os.environ["NVML_STUB_SCENARIO"])
    path.write_text(scenario, encoding="utf-8")
    time_s = 0.0

    def now_ns() -> int:
        return training.start_ns + round(time_s * 1e9)

    stub.set_time(0.0)
    header = {
        "version": FORMAT_VERSION,
        "host": training.host,
        "process_id": training.process_id,
        "start_ns": training.start_ns,
        "interval_s": training.interval_s,
        "metrics": [metric.id for metric in METRICS],
    }
    if training.memory_growth is not None:
        header["memory_growth"] = training.memory_growth
    kept: list[dict[str, Any]] = []
    notes = Notes(kept.append)
    origin = Origin(training.host, training.process_id, now_ns)
    writer = RecordingWriter(os.fspath(logdir), header, notes, bool(training.steps) or None, origin=origin)
    for name, values in training.facts.items():
        writer.facts.append((name, values))
    environment = {} if training.visible is None else {"CUDA_VISIBLE_DEVICES": training.visible}
    source = GpuSource(
        "visible",
        training.interval_s,
        notes,
        writer,
        monotonic_ns=lambda: round(time_s * 1e9),
        environment=environment,
        ask_cuda=False,
    )
    steps, spans = list(training.steps), list(training.spans)
    step, next_write, ticks = -1, 0.0, round(training.duration_s / training.interval_s)
    try:
        for tick in range(ticks + 1):
            time_s = tick * training.interval_s
            stub.set_time(time_s)
            while steps and steps[0].end_s <= time_s:
                done = steps.pop(0)
                step = done.number
                end_ns = training.start_ns + round(done.end_s * 1e9)
                writer.steps.append((step, end_ns, round(done.duration_s * 1e9), done.samples, int(done.profiled)))
            while spans and spans[0].end_s <= time_s:
                span = spans.pop(0)
                start_ns, end_ns = (training.start_ns + round(at * 1e9) for at in (span.start_s, span.end_s))
                writer.spans.append((span.kind, start_ns, end_ns, span.step, span.note))
            used = list(training.allocator(time_s)) if training.allocator else []
            values = source.sample(
                1e9,
                {gpu: (now, peak) for gpu, now, peak, _ in used},
                {gpu: limit for gpu, _, _, limit in used if limit is not None},
            )
            if values is not None:
                writer.samples.append((now_ns(), step, values))
            if time_s >= next_write:
                writer.notes.extend(kept)
                kept.clear()
                writer.write_now()
                next_write = time_s + _FLUSH_S
        writer.notes.extend(kept)
        writer.write_now(last=True)
    finally:
        source.close()
        stub.set_time(-1.0)
