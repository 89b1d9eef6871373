"""One recording's records to one `Recording`: what has been read so far, and its assembly to columns."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor import recording_format as form
from tb_gpu_doctor.metrics import BY_ID
from tb_gpu_doctor.recording_format import DamagedBlock, SampleBlock
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

# What one recording may hold in memory. Ten hours of 8 GPUs once a second are a tenth of the samples.
MAX_VALUES = 120_000_000
MAX_STEPS = 20_000_000
MAX_SPANS = 200_000
MAX_NOTES = 1_000
MAX_FACTS = 200
MAX_GPUS = form.MAX_GPUS

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
        self.damaged = 0
        self.truncated = False
        self.sweeps: list[dict[str, Any]] = []
        self._blocks: list[SampleBlock] = []
        self._values = 0
        self._steps: list[NDArray[np.int64]] = []
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
            self._values += sum(column.size for column in block.columns.values()) + 2 * len(block.wall_ns)
            if self._values > MAX_VALUES:
                self.truncated = True
                return
            self._blocks.append(block)
        elif record.tag == form.TAG_STEPS:
            rows = form.decode_steps(record.content)
            self._step_count += rows.shape[1]
            if self._step_count > MAX_STEPS:
                self.truncated = True
                return
            self._steps.append(rows)
        elif record.tag == form.TAG_RECORDING:
            self.header = _mapping(json.loads(record.content))
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
        steps = np.concatenate(self._steps, axis=1) if self._steps else np.zeros((5, 0), np.int64)
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
        gpus = [_mapping(gpu) for gpu in self.header.get("gpus", [])][:MAX_GPUS]
        metrics = [str(metric) for metric in self.header.get("metrics", [])]
        # A recording whose head was written before its GPUs were known has blocks of this many only.
        blocks = [block for block in self._blocks if block.gpus == len(gpus)]
        parent = run.rsplit("/", 1)[0] if "/" in run else ""
        wall_ns = np.concatenate([block.wall_ns for block in blocks]) if blocks else np.zeros(0, np.int64)
        step = np.concatenate([block.step for block in blocks]) if blocks else np.zeros(0, np.int64)
        # The writer's time grows; a file made by others may not.
        order = None if bool((np.diff(wall_ns) > 0).all()) else np.unique(wall_ns, return_index=True)[1]
        columns = _columns(blocks, metrics, len(gpus), order)
        if order is not None:
            wall_ns, step = wall_ns[order], step[order]
        series = []
        for number, gpu in enumerate(gpus):
            values = {name: column[number] for name, column in columns.items()}
            series.append(
                GpuSeries(
                    run=_gpu_run(parent, str(gpu.get("run") or gpu.get("label") or f"gpu{number}")),
                    facts=_gpu_facts(gpu, number),
                    wall_ns=wall_ns,
                    step=step,
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


def _columns(
    blocks: list[SampleBlock], metrics: list[str], gpus: int, order: NDArray[np.intp] | None
) -> dict[str, NDArray[np.float64]]:
    """float64[GPUs, ticks] by metric, of the metrics that any block holds."""
    present = {index for block in blocks for index in block.columns}
    ticks = sum(len(block.wall_ns) for block in blocks)
    found: dict[str, NDArray[np.float64]] = {}
    for index in sorted(present):
        if index >= len(metrics) or metrics[index] not in BY_ID:
            continue  # of a later version
        column = np.full((gpus, ticks), np.nan)
        at = 0
        for block in blocks:
            part = block.columns.get(index)
            if part is not None:
                column[:, at : at + part.shape[1]] = part
            at += len(block.wall_ns)
        found[metrics[index]] = column if order is None else column[:, order]
    return found


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
