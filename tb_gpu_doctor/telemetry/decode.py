"""One recording's records to one `Recording`: what has been read so far, and its assembly to columns."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor import recording_format as form
from tb_gpu_doctor.recording_format import DamagedBlock, SampleBlock
from tb_gpu_doctor.telemetry.columns import ColumnStore
from tb_gpu_doctor.telemetry.records import Record
from tb_gpu_doctor.telemetry.series import (
    BatchPoint,
    BatchSweep,
    GpuFacts,
    GpuSeries,
    Recording,
    Span,
    StepTimes,
)

# What one recording may hold in memory beside its samples: ten steps a second for four days.
MAX_STEPS = 4_000_000
MAX_SPANS = 200_000
MAX_NOTES = 1_000
MAX_FACTS = 200
MAX_GPUS = form.MAX_GPUS
# Blocks that came before the head that tells of their GPUs: so many, and so large together.
_MOST_EARLY = 1_000
_MOST_EARLY_BYTES = 64 << 20

FACT_SWEEP = "batch_sweep"
FACT_ENVIRONMENT = "environment"


class RecordingState:
    """What was read of one file so far; grows with the file.

    Attributes:
        damaged: records that were passed over.
        truncated: whether something was left out since there is too much of it.
    """

    def __init__(self) -> None:
        self.header: dict[str, Any] = {}
        self._gpus: list[dict[str, Any]] = []
        self.damaged = 0
        self.truncated = False
        self.sweeps: list[dict[str, Any]] = []
        self._store: ColumnStore | None = None
        self._early: deque[SampleBlock] = deque(maxlen=_MOST_EARLY)
        self._steps: deque[NDArray[np.int64]] = deque()
        self._step_count = 0
        self._spans: list[Span] = []
        self._facts: dict[str, Any] = {}
        self._notes: list[dict[str, Any]] = []

    def take(self, record: Record) -> None:
        """Add a record; one that cannot be right is counted and passed over."""
        try:
            self._take(record)
        except (DamagedBlock, ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError):
            self.damaged += 1

    def _take(self, record: Record) -> None:
        if record.tag == form.TAG_SAMPLES:
            block = form.decode_samples(record.content)
            if self._store is None:
                self._keep_early(block)
            else:
                self._store.add(block)
        elif record.tag == form.TAG_STEPS:
            rows = form.step_deltas(record.content)
            self._steps.append(rows)
            self._step_count += rows.shape[1]
            while self._step_count > MAX_STEPS:
                self.truncated = True
                self._step_count -= self._steps.popleft().shape[1]
        elif record.tag == form.TAG_RECORDING:
            self._take_header(_mapping(json.loads(record.content)))
        elif record.tag == form.TAG_SPANS:
            for kind, start, end, step, note in json.loads(record.content):
                if len(self._spans) >= MAX_SPANS:
                    self.truncated = True
                    break
                self._spans.append(Span(str(kind), _int64(start), _int64(end), _int64(step), str(note)))
        elif record.tag == form.TAG_NOTES:
            self._notes += [_mapping(note) for note in json.loads(record.content)][: MAX_NOTES - len(self._notes)]
        elif record.tag.startswith(form.TAG_FACTS):
            name = record.tag[len(form.TAG_FACTS) :]
            values = _mapping(json.loads(record.content))
            if name == FACT_SWEEP:
                self.sweeps.append(values)
            elif len(self._facts) < MAX_FACTS or name in self._facts:
                self._facts[name] = values

    def _keep_early(self, block: SampleBlock) -> None:
        self._early.append(block)
        while sum(map(_block_bytes, self._early)) > _MOST_EARLY_BYTES:
            self._early.popleft()

    def _take_header(self, header: dict[str, Any]) -> None:
        gpus = [_mapping(gpu) for gpu in header.get("gpus", [])][:MAX_GPUS]
        metrics = [str(metric) for metric in header.get("metrics", [])][: form.MAX_COLUMNS]
        self.header = header
        self._gpus = gpus
        if gpus and (self._store is None or (self._store.gpus, self._store.metrics) != (len(gpus), metrics)):
            self._store = ColumnStore(metrics, len(gpus))
            while self._early:
                self._store.add(self._early.popleft())

    @property
    def ticks_a_sample(self) -> int:
        """How many samples were folded to one, since the recording is longer than fits."""
        return 1 if self._store is None else self._store.ticks_a_sample

    def recording(self, run: str, words: Words) -> Recording:
        """Assemble what was read.

        Args:
            run: folder of the file below the logdir.
            words: makes a note's sentence.

        Raises:
            DamagedBlock: there is no head to go by.
        """
        header = self.header
        if not header:
            raise DamagedBlock("no head")
        steps = form.join_steps(self._steps)
        environment = _mapping(self._facts.get(FACT_ENVIRONMENT) or {})
        growth = header.get("memory_growth", environment.get("memory_growth"))
        return Recording(
            run=run,
            host=str(header.get("host", "")),
            process_id=_int64(header.get("process_id", 0)),
            gpus=self._series(run),
            spans=tuple(self._spans),
            steps=StepTimes(steps[0], steps[1], steps[2], steps[3], steps[4] != 0),
            environment=environment,
            notes=tuple(dict.fromkeys(words(note) for note in self._notes)),
            simulated=bool(header.get("simulated", False)),
            memory_growth=growth if isinstance(growth, bool) else None,
            facts={name: value for name, value in self._facts.items() if name != FACT_ENVIRONMENT},
        )

    def _series(self, run: str) -> tuple[GpuSeries, ...]:
        if self._store is None:
            return ()
        parent = run.rsplit("/", 1)[0] if "/" in run else ""
        columns = self._store.columns()
        series = []
        for number, gpu in enumerate(self._gpus):
            values = {name: column[number] for name, column in columns.values.items()}
            series.append(
                GpuSeries(
                    run=_gpu_run(parent, str(gpu.get("run") or gpu.get("label") or f"gpu{number}")),
                    facts=_gpu_facts(gpu, number),
                    wall_ns=columns.wall_ns,
                    step=columns.step,
                    values={name: column for name, column in values.items() if not np.isnan(column).all()},
                )
            )
        return tuple(series)


class Words:
    """Makes sentences of notes in one language."""

    def __init__(self, language: str) -> None:
        self._language = language

    def __call__(self, note: Mapping[str, Any]) -> str:
        """The catalogue's text where there is one, else what the monitor wrote."""
        from tb_gpu_doctor import texts
        from tb_gpu_doctor.texts.numbers import MAX_SENTENCE, clean

        key, params = note.get("key"), note.get("params")
        if isinstance(key, str) and isinstance(params, Mapping) and texts.has_text(key):
            try:
                return texts.text(key, self._language, **{str(name): value for name, value in params.items()})
            except Exception:  # parameters of another version's text
                pass
        return clean(str(note.get("sentence", "")), MAX_SENTENCE)


def _block_bytes(block: SampleBlock) -> int:
    return 16 * len(block.wall_ns) + block.values32.nbytes + block.values64.nbytes


def _gpu_run(parent: str, run: str) -> str:
    """The GPU's run below the logdir that is read, which may be another than the one that was written to."""
    name = run.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{parent}/{name}" if parent else name


def _gpu_facts(gpu: Mapping[str, Any], number: int) -> GpuFacts:
    framework_id = gpu.get("framework_id")
    index = gpu.get("nvml_index")
    limits = {
        str(name): float(value)
        for name, value in _mapping(gpu.get("limits") or {}).items()
        if isinstance(value, int | float) and math.isfinite(value)
    }
    return GpuFacts(
        framework_id=framework_id if isinstance(framework_id, int) else None,
        nvml_index=index if isinstance(index, int) else number,
        uuid=_text(gpu.get("uuid")),
        pci_bus_id=_text(gpu.get("pci_bus_id")),
        name=_text(gpu.get("name")),
        limits=limits,
    )


def sweep_of(run: str, values: Mapping[str, Any]) -> BatchSweep:
    """A sweep as `find_batch_size` writes it.

    Raises:
        ValueError, TypeError, KeyError: it is none.
    """
    points = []
    for point in values["points"][:1000]:
        points.append(
            BatchPoint(
                batch_size=_int64(point["batch_size"]),
                samples_per_s=_number(point.get("samples_per_s")),
                step_seconds=_number(point.get("step_seconds")),
                peak_bytes=None if point.get("peak_bytes") is None else _int64(point["peak_bytes"]),
                problem=_text(point.get("problem")),
            )
        )
    recommended = values.get("recommended")
    return BatchSweep(
        run=run,
        wall_ns=_int64(values["wall_ns"]),
        points=tuple(points),
        fixed_seconds=_number(values.get("fixed_seconds")),
        per_sample_seconds=_number(values.get("per_sample_seconds")),
        recommended=None if recommended is None else _int64(recommended),
    )


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("no object")
    return value


def _int64(value: Any) -> int:
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError("beyond 64 bits")
    return number


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _text(value: Any) -> str | None:
    return str(value) if value not in (None, "") else None
