"""From the bytes of one recording to one `Recording`, however long, cut off, damaged or hostile the file is.

An event file is a sequence of ``length (uint64), masked crc32c of the length, bytes, masked crc32c of the bytes``.
TensorBoard's own reader verifies the second checksum in Python, which would take longer than everything else
here. Blocks of samples carry a checksum of their own, and damaged JSON or messages no longer parse.

Memory stays bounded: ten hours of 8 GPUs are thousands of small blocks, which are gathered into larger pieces
as they arrive. Where the pieces outgrow the bound, neighbouring samples are folded two to one, each metric by
its own rule.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor import recording_format as form
from tb_gpu_doctor.files.secrets import all_without_secrets, without_secrets
from tb_gpu_doctor.metrics import BY_ID
from tb_gpu_doctor.recording_format import MAX_BLOCK_BYTES, PLUGIN_NAME, DamagedBlock, HistoryBlock, SampleBlock
from tb_gpu_doctor.telemetry.series import (
    BatchPoint,
    BatchSweep,
    GpuFacts,
    GpuSeries,
    Rank,
    Recording,
    Span,
    StepTimes,
    ToldNote,
)

_HEAD = struct.Struct("<QI")
_FOOT_BYTES = 4
# Far above what the writer makes of one flush, far below what hurts.
MAX_RECORD_BYTES = MAX_BLOCK_BYTES


class DamagedFile(Exception):
    """A file from whose record on nothing can be read."""


@dataclass(frozen=True)
class Record:
    """A record under the plugin's own name."""

    tag: str
    content: bytes


@lru_cache(maxsize=1 << 14)
def _check_of(length: bytes) -> int:
    """The checksum of a length; lengths repeat, and it is computed in Python."""
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    return int(masked_crc32c(length))


def read_records(path: str, offset: int, take: Callable[[Record], None]) -> int:
    """Hand all whole records from ``offset`` on to ``take`` and return where the next one begins.

    A record that is cut off at the file's end is still being written: it is left for the next time.

    Raises:
        OSError: the file cannot be read.
        DamagedFile: a record's head cannot be right.
    """
    from tensorboard.compat.proto import event_pb2

    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(offset)
        while offset + _HEAD.size + _FOOT_BYTES <= size:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                break
            length, check = _HEAD.unpack(head)
            if _check_of(head[:8]) != check:
                raise DamagedFile(f"at byte {offset}")
            if offset + _HEAD.size + length + _FOOT_BYTES > size:
                break
            if length > MAX_RECORD_BYTES:
                raise DamagedFile(f"at byte {offset}")
            data = file.read(length + _FOOT_BYTES)
            if len(data) < length + _FOOT_BYTES:
                break
            offset += _HEAD.size + length + _FOOT_BYTES
            try:
                event = event_pb2.Event.FromString(data[:length])
            except Exception:  # protobuf's own exceptions differ by implementation
                raise DamagedFile(f"before byte {offset}") from None
            for value in event.summary.value:
                if value.tag.startswith(f"{PLUGIN_NAME}/") and value.tensor.string_val:
                    take(Record(value.tag, value.tensor.string_val[0]))
    return offset


# 8 GPUs once a second for two days; half a gigabyte.
MAX_VALUES = 60_000_000
_BLOCKS_A_PIECE = 256
# As `series.seconds`: a longer time before a sample is a pause.
_LONGEST_TICKS = 5.0
# Blocks are small for what they unpack to: a piece is made before they hold more than this.
_VALUES_A_PIECE = 4_000_000

Times = NDArray[np.int64]
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """Samples of all GPUs.

    Attributes:
        wall_ns, step: int64[ticks].
        values: float64[GPUs, ticks] by metric id; only metrics that any block held.
    """

    wall_ns: Times
    step: Times
    values: dict[str, Values]


def joined(parts: Sequence[Columns]) -> Columns:
    """Columns one behind the other; a metric that one of them lacks is NaN there."""
    names = {name: part.values[name].shape[0] for part in parts for name in part.values}
    values = {
        name: np.concatenate(
            [part.values.get(name, np.full((gpus, len(part.wall_ns)), np.nan)) for part in parts], axis=1
        )
        for name, gpus in names.items()
    }
    wall_ns, step = (np.concatenate([getattr(part, name) for part in parts]) for name in ("wall_ns", "step"))
    if bool((np.diff(wall_ns) > 0).all()):
        return Columns(wall_ns, step, values)
    order = np.unique(wall_ns, return_index=True)[1]
    return Columns(wall_ns[order], step[order], {name: column[:, order] for name, column in values.items()})


def within(columns: Columns, after_ns: int, before_ns: int) -> Columns:
    """Those between two times."""
    keep = (columns.wall_ns > after_ns) & (columns.wall_ns < before_ns)
    return Columns(columns.wall_ns[keep], columns.step[keep], {n: c[:, keep] for n, c in columns.values.items()})


def _lengths(wall_ns: Times, intervals: slice) -> Values:
    """How long each row stands for, in seconds: an interval for itself, a sample for the time before it but pauses."""
    passed = np.diff(wall_ns, prepend=wall_ns[:1]) / 1e9
    sample = np.ones(len(wall_ns), np.bool_)
    sample[intervals] = False
    ticks = passed[1:][sample[1:] & sample[:-1]]
    tick = float(np.median(ticks)) if len(ticks) else 1.0
    passed[:1] = tick
    return np.where(sample, np.minimum(passed, _LONGEST_TICKS * tick), passed)


@dataclass(frozen=True)
class _Intervals:
    """What is left of old samples: their rows, and the extremes in each.

    Attributes:
        lengths_s: of all rows.
    """

    rows: slice
    low: Columns
    high: Columns
    lengths_s: Values


@dataclass(frozen=True)
class _Piece:
    wall_ns: Times
    step: Times
    values: Values  # [metrics, GPUs, ticks]


class ColumnStore:
    """Takes blocks, gives columns.

    Args:
        metrics: names of the blocks' columns.
        gpus: how many the blocks tell of; others are passed over.

    Attributes:
        ticks_a_sample: how many ticks a sample was folded from.
    """

    def __init__(self, metrics: Sequence[str], gpus: int) -> None:
        self.metrics, self.gpus = list(metrics), gpus
        self.ticks_a_sample = 1
        self._known = [index for index, metric in enumerate(self.metrics) if metric in BY_ID]
        self._row_of = np.full(1 << 16, -1, np.int64)
        self._row_of[self._known] = np.arange(len(self._known))
        self._waiting: list[SampleBlock] = []
        self._waiting_values = 0
        self._pieces: list[_Piece] = []
        self._seen = np.zeros(1 << 16, np.bool_)

    def add(self, block: SampleBlock) -> None:
        """Take a block; of another number of GPUs it is passed over.

        Raises:
            DamagedBlock: it alone has more samples than a recording may have.
        """
        if block.gpus != self.gpus:
            return
        # As columns, where a block that leaves most of them out takes as much room as any other.
        values = max(len(self._known), len(block.ids32) + len(block.ids64)) * block.gpus * len(block.wall_ns)
        if values > MAX_VALUES:
            raise DamagedBlock(f"a block of {len(block.wall_ns)} ticks of {block.gpus} GPUs")
        if self._waiting_values + values > _VALUES_A_PIECE:
            self._gather()
        self._waiting.append(block)
        self._waiting_values += values
        if len(self._waiting) >= _BLOCKS_A_PIECE:
            self._gather()

    def _gather(self) -> None:
        """Lay the waiting blocks into one piece."""
        blocks, self._waiting, self._waiting_values = self._waiting, [], 0
        if not blocks:
            return
        ticks = sum(len(block.wall_ns) for block in blocks)
        values = np.full((len(self._known), self.gpus, ticks), np.nan)
        at = 0
        for block in blocks:
            count = len(block.wall_ns)
            for ids, part in ((block.ids32, block.values32), (block.ids64, block.values64)):
                self._seen[ids] = True
                rows = self._row_of[ids]
                if len(rows) and rows.min() < 0:  # metrics of a later version
                    rows, part = rows[rows >= 0], part[rows >= 0]
                values[rows, :, at : at + count] = part
            at += count
        piece = _Piece(
            np.concatenate([block.wall_ns for block in blocks]),
            np.concatenate([block.step for block in blocks]),
            values,
        )
        for _ in range(self.ticks_a_sample.bit_length() - 1):
            piece = self._halved(piece)
        self._pieces.append(piece)
        while sum(piece.values.size for piece in self._pieces) > MAX_VALUES:
            if max(len(piece.wall_ns) for piece in self._pieces) <= 1:
                break
            self._pieces = [self._halved(piece) for piece in self._pieces]
            self.ticks_a_sample *= 2

    def _halved(self, piece: _Piece) -> _Piece:
        """Two samples to one, each metric by its rule; the later one's time and step."""
        ticks = len(piece.wall_ns)
        last = np.minimum(np.arange(1, ticks + 1, 2), ticks - 1)
        values = np.empty((len(self._known), self.gpus, len(last)))
        for row, index in enumerate(self._known):
            one, other = piece.values[row][:, 0::2], piece.values[row][:, last]
            values[row] = _folded(self.metrics[index], one, other)
        return _Piece(piece.wall_ns[last], piece.step[last], values)

    def columns(self) -> Columns:
        """What has come so far."""
        self._gather()
        pieces = self._pieces
        none = np.zeros(0, np.int64)
        wall_ns = np.concatenate([piece.wall_ns for piece in pieces]) if pieces else none
        step = np.concatenate([piece.step for piece in pieces]) if pieces else none
        # The writer's time grows; that of a file from elsewhere may not.
        order = None if bool((np.diff(wall_ns) > 0).all()) else np.unique(wall_ns, return_index=True)[1]
        values: dict[str, Values] = {}
        for row, index in enumerate(self._known):
            if self._seen[index]:
                column = np.concatenate([piece.values[row] for piece in pieces], axis=1)
                values[self.metrics[index]] = column if order is None else column[:, order]
        if order is not None:
            wall_ns, step = wall_ns[order], step[order]
        return Columns(wall_ns, step, values)


def _folded(metric: str, one: Values, other: Values) -> Values:
    if metric == "clock_event_reasons":
        both = ~np.isnan(one) & ~np.isnan(other)
        bits = _bits(np.where(both, one, 0)) | _bits(np.where(both, other, 0))
        return np.where(both, bits.astype(np.float64), np.fmax(one, other))
    fold = BY_ID[metric].fold
    if fold == "max":
        return np.fmax(one, other)
    if fold == "min":
        return np.fmin(one, other)
    if fold == "last":
        return np.where(np.isnan(other), one, other)
    return np.where(np.isnan(one), other, np.where(np.isnan(other), one, (one + other) / 2))


def _bits(values: Values) -> NDArray[np.int64]:
    # Bits beyond these are not NVML's; a float of a damaged file may be anything.
    return np.clip(np.nan_to_num(values), 0, 2**52).astype(np.int64)


# What one recording may hold in memory beside its samples: ten steps a second for four days.
MAX_STEPS = 4_000_000
MAX_HISTORY_BLOCKS = 20_000
MAX_SPANS = 200_000
MAX_NOTES = 1_000
MAX_FACTS = 200
MAX_GPUS = form.MAX_GPUS
# Blocks that came before the head that tells of their GPUs: so many, and so large together.
_MOST_EARLY = 1_000
_MOST_EARLY_BYTES = 64 << 20

FACT_SWEEP = "batch_sweep"
FACT_ENVIRONMENT = "environment"


@dataclass(frozen=True)
class LockStacks:
    """What `faulthandler` wrote beside a recording, and when, in Unix nanoseconds."""

    text: str
    written_ns: int


class RecordingState:
    """What was read of one file so far; grows with the file.

    Attributes:
        damaged: records that were passed over.
        truncated: whether something was left out since there is too much of it.
        lock_stacks: where the process stood that holds Python's lock since then; None where it does not.
    """

    def __init__(self) -> None:
        self.header: dict[str, Any] = {}
        self._gpus: list[dict[str, Any]] = []
        self.damaged = 0
        self.truncated = False
        self.lock_stacks: LockStacks | None = None
        self.sweeps: list[dict[str, Any]] = []
        self._store: ColumnStore | None = None
        self._early: deque[SampleBlock] = deque(maxlen=_MOST_EARLY)
        # Of its parts, in their order; each has a head of its own.
        self.parts: list[RecordingState] = []
        self._history: list[HistoryBlock] = []
        self._history_steps: list[NDArray[np.int64]] = []
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
        elif record.tag == form.TAG_HISTORY:
            if len(self._history) < MAX_HISTORY_BLOCKS:
                self._history.append(form.decode_history(record.content))
        elif record.tag == form.TAG_HISTORY_STEPS:
            if len(self._history_steps) < MAX_HISTORY_BLOCKS:
                self._history_steps.append(form.step_deltas(record.content))
        elif record.tag == form.TAG_RECORDING:
            self._take_header(_mapping(json.loads(record.content)))
        elif record.tag == form.TAG_SPANS:
            for kind, start, end, step, note in json.loads(record.content):
                if len(self._spans) >= MAX_SPANS:
                    self.truncated = True
                    break
                safe = without_secrets(str(note))
                self._spans.append(Span(str(kind), _int64(start), _int64(end), _int64(step), safe))
        elif record.tag == form.TAG_NOTES:
            notes = all_without_secrets(json.loads(record.content))  # an older writer may have kept some
            self._notes += [_mapping(note) for note in notes][: MAX_NOTES - len(self._notes)]
        elif record.tag.startswith(form.TAG_FACTS):
            name = record.tag[len(form.TAG_FACTS) :]
            values = _mapping(all_without_secrets(json.loads(record.content)))
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
        steps = self._all_steps()
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
            facts=self._other_facts(),
            ended=_text(header.get("ended")),
            rank=_rank(header.get("rank")),
            is_log=header.get("is_log") is True,
            told=tuple(
                ToldNote(note["key"], note["params"])
                for note in self._notes
                if isinstance(note.get("key"), str) and isinstance(note.get("params"), dict)
            ),
        )

    def _other_facts(self) -> dict[str, Any]:
        facts = {name: value for name, value in self._facts.items() if name != FACT_ENVIRONMENT}
        if self.lock_stacks is not None:
            main = self.header.get("main_thread")
            threads = form.parse_stacks(self.lock_stacks.text, main if isinstance(main, int) else None)
            written = self.lock_stacks.written_ns
            facts[form.FACT_LOCK_HELD] = {"resumed": False, "written_unix_ns": written, "threads": threads}
        return facts

    def _all_steps(self) -> NDArray[np.int64]:
        """int64[5, steps]: of the recording's own file, some of those whose parts are deleted, and of its parts."""
        own = form.join_steps(self._steps)
        recent = np.concatenate([np.zeros((5, 0), np.int64), *(form.join_steps(p._steps) for p in self.parts)], axis=1)
        old = form.join_steps(self._history_steps)
        after = own[1, -1] if own.shape[1] else -(1 << 62)
        before = recent[1, 0] if recent.shape[1] else 1 << 62
        return np.concatenate((own, old[:, (old[1] > after) & (old[1] < before)], recent), axis=1)

    def _columns(self) -> tuple[Columns, _Intervals | None]:
        """All samples in a row, of a long recording with the intervals that are left of old ones."""
        assert self._store is not None
        own = self._store.columns()
        parts = [part._store.columns() for part in self.parts if part._store and part._store.gpus == self._store.gpus]
        if not self._history:
            return (joined([own, *parts]) if parts else own), None
        after = int(own.wall_ns[-1]) if len(own.wall_ns) else -(1 << 62)
        before = next((int(part.wall_ns[0]) for part in parts if len(part.wall_ns)), 1 << 62)
        found = []
        for which in ("folded", "low", "high"):
            store = ColumnStore(self._store.metrics, self._store.gpus)
            for block in self._history:
                store.add(getattr(block, which))
            found.append(within(store.columns(), after, before))
        folded, low, high = found
        everything = joined([own, folded, *parts])
        rows = np.flatnonzero((everything.wall_ns > after) & (everything.wall_ns < before))
        place = slice(int(rows[0]), int(rows[-1]) + 1) if len(rows) else slice(0, 0)
        if len(rows) != len(low.wall_ns) or place.stop - place.start != len(rows):
            return everything, None  # times that turn back: of another writer
        return everything, _Intervals(place, low, high, _lengths(everything.wall_ns, place))

    def _series(self, run: str) -> tuple[GpuSeries, ...]:
        if self._store is None:
            return ()
        parent = run.rsplit("/", 1)[0] if "/" in run else ""
        columns, old = self._columns()
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
                    intervals=(0, 0) if old is None else (old.rows.start, old.rows.stop),
                    low={} if old is None else {name: column[number] for name, column in old.low.values.items()},
                    high={} if old is None else {name: column[number] for name, column in old.high.values.items()},
                    weight_s=None if old is None else old.lengths_s,
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
    mig = gpu.get("mig")
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
        mig=mig if isinstance(mig, int) else None,
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


def _rank(told: Any) -> Rank | None:
    if not isinstance(told, dict):
        return None
    number, count, local = told.get("number"), told.get("of"), told.get("local")
    if not isinstance(number, int) or not isinstance(count, int) or not 0 <= number < count:
        return None
    return Rank(number, count, local if isinstance(local, int) else None)


def _text(value: Any) -> str | None:
    return str(value) if value not in (None, "") else None
