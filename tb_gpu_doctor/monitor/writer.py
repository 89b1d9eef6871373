"""Writes a recording from a thread of its own, so that neither training nor the sampler ever waits for a disk.

All samples go into the recording itself. TensorBoard's Scalars tab gets fewer points, since TensorBoard keeps a
thousand per series at most and drops those whose step does not grow: a point is written when the step has grown
and carries all samples since the point before. Points become rarer as a run grows older, one per sample for
the first 1,000 samples, then so many that their number grows with the logarithm of time.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor import recording_format as form
from tb_gpu_doctor.metrics import METRICS, Metric
from tb_gpu_doctor.monitor.event_file import EventFile, Origin, RunFolders, is_remote
from tb_gpu_doctor.monitor.long_recording import History, Parts
from tb_gpu_doctor.monitor.notes import Notes

# Points are at least this share of the run's length apart.
DENSEST = 1_000


@dataclass(frozen=True)
class Point:
    """One point of all series.

    Attributes:
        values: float64[GPUs, metrics], NaN where no sample had a value.
    """

    step: int
    wall_ns: int
    values: NDArray[np.float64]


class PointClock:
    """Decides when a point is due, and which step it carries.

    Args:
        step_hook: whether training will tell its steps; None: as soon as it does.
    """

    def __init__(self, step_hook: bool | None = None) -> None:
        self._hook = bool(step_hook)
        self._samples = 0
        self._first_ns: int | None = None
        self._last_point_ns = 0
        self._last_point_step = -1
        self._last_step: int | None = None
        self._offset = 0

    def due(self, wall_ns: int, step: int) -> int | None:
        """The step of a point at this sample, None where the sample waits for the next one.

        Args:
            wall_ns: time of the sample.
            step: training step, -1 where training has not told any.
        """
        self._samples += 1
        if self._first_ns is None:
            self._first_ns = wall_ns
        if step >= 0:
            self._hook = True
            if self._last_step is not None and step < self._last_step:
                # Training began anew in the same process: its points follow the last ones.
                self._offset = self._last_point_step + 1 - step
            self._last_step = step
            number = step + self._offset
        elif self._hook:
            return None
        else:
            number = self._samples - 1
        apart_ns = (wall_ns - self._first_ns) / DENSEST
        # Half a sample of slack: ticks are not exactly one interval apart.
        early = self._last_point_step >= 0 and wall_ns - self._last_point_ns < apart_ns * 0.999
        if number <= self._last_point_step or early:
            return None
        self._last_point_step, self._last_point_ns = number, wall_ns
        return number

    def last(self) -> int | None:
        """The step for what is left at the end, None where it may not be told."""
        if self._last_step is not None and self._last_step + self._offset > self._last_point_step:
            return self._last_step + self._offset
        if not self._hook and self._samples - 1 > self._last_point_step:
            return self._samples - 1
        return None


class Folder:
    """Folds the samples of all GPUs, each metric by its rule."""

    def __init__(self, gpus: int, metrics: Sequence[Metric]) -> None:
        self._shape = (gpus, len(metrics))
        self._mean = np.array([metric.fold == "mean" for metric in metrics], dtype=bool)
        self._max = np.array([metric.fold == "max" for metric in metrics], dtype=bool)
        self._min = np.array([metric.fold == "min" for metric in metrics], dtype=bool)
        self._last = np.array([metric.fold == "last" for metric in metrics], dtype=bool)
        self._clear()

    def _clear(self) -> None:
        self._sum = np.zeros(self._shape)
        self._count = np.zeros(self._shape)
        self._kept = np.full(self._shape, np.nan)

    def add(self, values: NDArray[np.float64]) -> None:
        """Take a sample: float64[GPUs, metrics], NaN where there is no value."""
        known = ~np.isnan(values)
        self._count += known
        self._sum += np.where(known & self._mean, values, 0.0)
        kept = self._kept
        # fmax and fmin pass over NaN.
        kept[:, self._max] = np.fmax(kept[:, self._max], values[:, self._max])
        kept[:, self._min] = np.fmin(kept[:, self._min], values[:, self._min])
        kept[:, self._last] = np.where(known[:, self._last], values[:, self._last], kept[:, self._last])

    def take(self) -> NDArray[np.float64]:
        """Return what the samples since the last call fold to, and begin anew."""
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = self._sum / self._count
        folded = np.where(self._mean, mean, self._kept)
        self._clear()
        return folded

    @property
    def empty(self) -> bool:
        """Whether no value came since the last `take`."""
        return not self._count.any()


FLUSH_S = 3.0
# TensorBoard's tab is there soon after training's begin.
FIRST_FLUSH_S = 1.0
# An object store takes a whole file at each flush, and counts them.
REMOTE_FLUSH_S = 30.0
RETRY_S = 20.0
# What training may hand over before the writer has taken it: some minutes of a fast loop.
MOST_QUEUED = 1_000_000
MOST_TICKS_QUEUED = 20_000
# Spans in one recording, and so many of them garbage collections.
MOST_SPANS, MOST_COLLECTIONS = 100_000, 20_000
_TICKS_A_BLOCK = 512
_STEPS_A_BLOCK = 65_536

Sample = tuple[int, int, NDArray[np.float64]]
StepRow = tuple[int, int, int, int, int]


class RecordingWriter:
    """Takes what the monitor hands over and writes it every few seconds.

    Args:
        logdir: a path, or an address that TensorBoard's file layer knows.
        header: what `tb_gpu_doctor.recording_format` calls the recording; GPUs are added later.
        notes: takes what cannot be written.
        step_hook: as for `PointClock`.
        flush_s: what a killed process loses at most; by default a few seconds.
        origin: who records; by default this process.
    """

    def __init__(
        self,
        logdir: str,
        header: Mapping[str, Any],
        notes: Notes,
        step_hook: bool | None = None,
        flush_s: float | None = None,
        origin: Origin | None = None,
    ) -> None:
        self._origin = origin or Origin()
        self.samples: deque[Sample] = deque(maxlen=MOST_TICKS_QUEUED)
        self.steps: deque[StepRow] = deque(maxlen=MOST_QUEUED)
        self.spans: deque[tuple[str, int, int, int, str]] = deque(maxlen=MOST_QUEUED)
        self.facts: deque[tuple[str, Any]] = deque(maxlen=MOST_QUEUED)
        self.notes: deque[dict[str, Any]] = deque(maxlen=MOST_QUEUED)
        self.texts: deque[tuple[str, str, int]] = deque(maxlen=1_000)
        self._logdir = logdir
        self._notes = notes
        self._flush_s = flush_s or (REMOTE_FLUSH_S if is_remote(logdir) else FLUSH_S)
        self._header = dict(header)
        self._gpus: list[dict[str, Any]] = []
        self._runs: dict[str, str] = {}
        self._told_facts: dict[str, Any] = {}
        self._header_changed = True
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._folders = RunFolders(logdir, self._origin)
        # Of this process's recording, where it is on a disk; known once the thread has opened it.
        self.folder: str | None = None
        self._process: EventFile | None = None
        self._files: list[EventFile] = []
        self._numbers: dict[str, int] = defaultdict(int)
        self._clock = PointClock(step_hook)
        self._fold: Folder | None = None
        self._parts: Parts | None = None
        self._history: History | None = None
        self._spans_written = 0
        # Of the training's own points: since when, and what came since the last one.
        self._training_first_ns: int | None = None
        self._training_last_ns = 0
        self._training_rows: list[StepRow] = []
        self._last_wall_ns = 0
        self._last_training_step = self._last_number = -1
        self._training_offset = 0
        self._failing = False
        self._not_before = 0.0
        self._thread = threading.Thread(target=self._run, name="gpu-doctor-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def set_gpus(self, gpus: Sequence[Mapping[str, Any]]) -> None:
        """Tell which GPUs the samples' rows are; once, and again with equal ``label`` when a fact of one changes."""
        with self._lock:
            self._gpus = [{**gpu, "limits": dict(gpu["limits"])} for gpu in gpus]
            self._header_changed = True

    def update_header(self, **values: Any) -> None:
        """Tell more of the recording."""
        with self._lock:
            self._header.update(values)
            self._header_changed = True

    def stop(self, timeout_s: float) -> bool:
        """Write what is left and close, waiting at most so long; False where the disk still holds it up."""
        self._stopping = True
        self._wake.set()
        if self._thread is threading.current_thread():
            return True  # collected as garbage in here: it ends by itself
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def flush(self) -> None:
        """Have the thread write soon."""
        self._wake.set()

    def write_now(self, last: bool = False) -> None:
        """Write in this thread; for a writer that was not started.

        Args:
            last: also what waits for a later point, and close.

        Raises:
            Exception: it cannot be written.
        """
        self._write(last)
        if last:
            self._close()

    def _run(self) -> None:
        wait_s = min(FIRST_FLUSH_S, self._flush_s)
        while True:
            self._wake.wait(wait_s)
            wait_s = self._flush_s
            # In this order: a stop that comes between them wakes the next round, and is not slept over.
            self._wake.clear()
            stopping = self._stopping
            try:
                self._write(stopping)
            except Exception as error:  # nothing of the recording may reach training
                self._failed(error)
            if stopping:
                self._close()
                return

    def _write(self, last: bool) -> None:
        if self._failing and not last and time.monotonic() < self._not_before:
            return
        self._open()
        self._drain(last)
        for file in [self._process, None if self._parts is None else self._parts.current, *self._files]:
            if file is not None:
                file.flush()
        if self._failing:
            self._failing = False
            self._notes.tell("writing_again", logdir=self._logdir)

    def _failed(self, error: Exception) -> None:
        self._not_before = time.monotonic() + RETRY_S
        if not self._failing:
            self._failing = True
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            self._notes.tell("cannot_write", logdir=self._logdir, reason=reason)

    def _open(self) -> None:
        if self._process is not None and self._process.vanished:
            self._start_over()
        if self._process is None:
            folder, run = self._folders.claim("process")
            self._process = EventFile(folder, self._origin, form.FILE_SUFFIX)
            self.folder = None if is_remote(folder) else folder
            self._parts, self._history = Parts(folder, self._origin, self._begin_part), None
            self.update_header(run=run)
        with self._lock:
            labels = [gpu["label"] for gpu in self._gpus]
        for label in labels:
            if label not in self._runs:
                folder, self._runs[label] = self._folders.claim(label)
                self._files.append(EventFile(folder, self._origin))
                self.update_header()
        if self._fold is None and labels:
            self._fold = Folder(len(labels), METRICS)

    def _start_over(self) -> None:
        """Somebody has deleted the logdir to begin anew, as one does beside a running notebook: so does this."""
        self._close()
        self._process, self._files = None, []
        self._runs.clear()
        self.facts.extendleft(reversed(self._told_facts.items()))

    def _begin_part(self, part: EventFile) -> None:
        """A part is read by itself, so it begins with the head."""
        if self._history is None:
            self._history = self._new_history()
        part.record(form.TAG_RECORDING, self._head(), 0, (self._last_wall_ns or self._origin.now_ns()) / 1e9)

    def _new_history(self) -> History:
        gpus = len(self._gpus)
        return History(lambda: Folder(gpus, METRICS), (gpus, len(METRICS)))

    def _head(self) -> bytes:
        with self._lock:
            return _json({**self._header, "gpus": [{**gpu, "run": self._runs.get(gpu["label"])} for gpu in self._gpus]})

    def _drain(self, last: bool) -> None:
        # First: what is read later needs to know the GPUs.
        with self._lock:
            changed, self._header_changed = self._header_changed, False
        if changed:
            self._record(form.TAG_RECORDING, self._head())
        self._drain_samples(last)
        self._drain_steps(last)
        if self._history is not None:
            intervals, steps = self._history.take(last)
            for tag, block in ((form.TAG_HISTORY, intervals), (form.TAG_HISTORY_STEPS, steps)):
                if block is not None:
                    self._record(tag, block)
        spans = [span for span in _take(self.spans) if self._has_room_for(span[0])]
        self._spans_written += len(spans)
        if spans:
            self._record(form.TAG_SPANS, _json(spans))
        for name, values in _take(self.facts):
            self._told_facts[name] = values
            self._record(form.TAG_FACTS + name, _json(values))
        for tag, markdown, step in _take(self.texts):
            assert self._process is not None
            self._process.text(tag, markdown, step, self._origin.now_ns() / 1e9)
        notes = _take(self.notes)
        if notes:
            self._record(form.TAG_NOTES, _json(notes))

    def _has_room_for(self, kind: str) -> bool:
        """Garbage is collected thousands of times a day: beyond so many spans only the others are kept."""
        return self._spans_written < MOST_SPANS and (
            kind != "garbage_collection" or self._spans_written < MOST_COLLECTIONS
        )

    def _drain_samples(self, last: bool) -> None:
        if self._fold is None:
            return
        if self._history is not None and self._history.gpus != len(self._gpus):
            self._history = self._new_history()  # the driver came late
        samples = _take(self.samples)
        for at in range(0, len(samples), _TICKS_A_BLOCK):
            block = samples[at : at + _TICKS_A_BLOCK]
            wall_ns = np.array([sample[0] for sample in block], np.int64)
            step = np.array([sample[1] for sample in block], np.int64)
            # As [metrics, GPUs, ticks], which lies like values beside each other and so compresses well.
            values = np.stack([sample[2] for sample in block]).transpose(2, 1, 0)
            self._last_wall_ns = int(wall_ns[-1])
            self._record(form.TAG_SAMPLES, form.encode_samples(wall_ns, step, values), part=True)
        for wall, number, row in samples:
            self._fold.add(row)
            if self._history is not None:
                self._history.add(wall, number, row)
            due = self._clock.due(wall, number)
            if due is not None:
                self._point(due, wall)
        if last and not self._fold.empty:
            due = self._clock.last()
            if due is not None:
                self._point(due, self._last_wall_ns)

    def _point(self, step: int, wall_ns: int) -> None:
        assert self._fold is not None
        for file, row in zip(self._files, self._fold.take().tolist(), strict=True):
            values = [(metric.tag, value) for metric, value in zip(METRICS, row, strict=True) if value == value]
            if values:
                file.scalars(values, step, wall_ns / 1e9)

    def _drain_steps(self, last: bool) -> None:
        rows = _take(self.steps)
        for at in range(0, len(rows), _STEPS_A_BLOCK):
            table = np.array(rows[at : at + _STEPS_A_BLOCK], np.int64).T
            self._record(form.TAG_STEPS, form.encode_steps(table), part=True)
        if self._history is not None and rows:
            self._history.add_steps(rows)
        self._training_rows += rows
        if self._training_rows and (last or self._training_due(self._training_rows[-1][1])):
            rows, self._training_rows = self._training_rows, []
            self._training_point(rows)

    def _training_due(self, end_ns: int) -> bool:
        """Whether a point may come: as those of the GPUs, they become rarer as the run grows older."""
        if self._training_first_ns is None:
            self._training_first_ns = end_ns
        if end_ns - self._training_last_ns < (end_ns - self._training_first_ns) / DENSEST:
            return len(self._training_rows) >= MOST_QUEUED
        self._training_last_ns = end_ns
        return True

    def _training_point(self, rows: list[StepRow]) -> None:
        """Mean step time and rate of the steps since the last point, in the process's own run."""
        for row in rows:
            if row[0] < self._last_number:
                # As in the GPUs' runs: training began anew, and its points go on counting.
                self._training_offset = self._last_training_step + 1 - row[0]
            self._last_number = row[0]
        number = self._last_number + self._training_offset
        if number <= self._last_training_step:
            return
        self._last_training_step = number
        end_ns, duration_ns = rows[-1][1], sum(row[2] for row in rows)
        values = [("training/step_ms", duration_ns / len(rows) / 1e6)]
        samples = [row[3] for row in rows if row[3] >= 0]
        if len(samples) == len(rows) and duration_ns > 0:
            values.append(("training/samples_per_second", sum(samples) / (duration_ns / 1e9)))
            values.append(("training/global_batch", sum(samples) / len(samples)))
        assert self._process is not None
        self._process.scalars(values, self._last_training_step, end_ns / 1e9)

    def _record(self, tag: str, content: bytes, part: bool = False) -> None:
        """Write a record into the recording's own file, or into its newest part where it may go there."""
        assert self._process is not None and self._parts is not None
        file = self._parts.file_for(self._process) if part else self._process
        file.record(tag, content, self._numbers[tag], (self._last_wall_ns or self._origin.now_ns()) / 1e9)
        self._numbers[tag] += 1

    def _close(self) -> None:
        for file in [self._process, None if self._parts is None else self._parts.current, *self._files]:
            if file is not None:
                try:
                    file.close()
                except Exception as error:  # told already, or told now; there is nobody left to handle it
                    self._failed(error)


def _take(queue: deque[Any]) -> list[Any]:
    """Everything that is queued now; others may go on appending meanwhile."""
    return [queue.popleft() for _ in range(len(queue))]


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":")).encode("utf-8", "replace")
