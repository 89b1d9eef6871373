"""Steps as the training process lives them: their times, their marks for profilers, and what lies between them.

`StepHooks` serves `GpuDoctorCallback` and ``with monitor.train_step(...)`` alike. Everything here runs
on the training thread, so it is short, it waits for nothing, and no failure of it reaches training.
"""

from __future__ import annotations

import gc
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from tb_gpu_doctor.monitor.frameworks import Frameworks, Mark
from tb_gpu_doctor.monitor.notes import describe_error, never_raises, tell

if TYPE_CHECKING:
    from tb_gpu_doctor.monitor.capture import Capture
    from tb_gpu_doctor.monitor.notes import Recorder

SpanKind = Literal["checkpoint", "validation", "garbage_collection", "profile"]
# A shorter garbage collection cannot be told from noise in a step, and young ones come by the hundred.
MIN_COLLECTION_NS = 1_000_000
# Nor does one matter that takes less of its step.
MIN_COLLECTION_SHARE = 0.02
ALLOCATOR_EVERY_NS = 1_000_000_000


class StepHooks:
    """Times and marks the steps of one process.

    A step lasts from the end of the step before it to its own end, less the spans in it
    (validation, checkpoints, profiles), so that waiting for a batch counts, wherever it is fetched.
    The first step, and the first after `interrupt`, counts from its own beginning.

    Args:
        recorder: where steps and spans go.
        capture: takes profiles at step borders.
        framework: ``tensorflow``, ``jax`` or ``torch``; default: whichever is loaded.
    """

    def __init__(self, recorder: Recorder, capture: Capture | None = None, framework: str | None = None) -> None:
        self._recorder = recorder
        self.capture = capture
        self.frameworks = Frameworks(framework)
        self._pid = os.getpid()
        self._number = -1
        self._marks: list[Mark] = []
        self._begin: int | None = None  # monotonic, of the step that runs
        self._border: int | None = None  # monotonic, where the step before ended
        self._paused_ns = 0  # in spans since the border, inside steps too
        self._open_spans = 0
        self._outside = False  # a profile is being started or written
        self._allocator_asked: int | None = None
        # Called once, when a step has ended: the framework has then begun to compute, so that asking it for
        # its settings no longer decides them.
        self.on_first_step: Callable[[], None] | None = None
        self._broken: set[str] = set()
        self._collections = _Collections()
        # A monitor that nobody holds any more must not be held by `gc.callbacks`.
        self._unwatch = weakref.finalize(self, self._collections.unwatch)

    def failed(self, part: str, error: Exception) -> None:
        """Told once for each part; one that fails is tried again at the next step."""
        if part not in self._broken:
            self._broken.add(part)
            tell(self._recorder, "hook_failed", part=part, reason=describe_error(error))

    @property
    def step(self) -> int:
        """Number of the last step that began, -1 before the first."""
        return self._number

    @property
    def resting(self) -> bool:
        """Whether training does something beside stepping."""
        return self._open_spans > 0 or self._outside

    @property
    def in_step(self) -> bool:
        """Whether a step has begun and not ended."""
        return self._begin is not None

    def start(self) -> None:
        """Watch garbage collections; `close` ends it."""
        self._collections.watch()

    @never_raises("close")
    def close(self) -> None:
        """End what is open: marks, a running profile, watching collections. May be called twice."""
        self._collections.unwatch()
        if os.getpid() != self._pid:
            return
        self._close_marks()
        if self.capture is not None:
            self.capture.close()
        self._hand_on_collections()

    # --- steps ---------------------------------------------------------------------------------

    @contextmanager
    def train_step(self, step: int | None = None, batch_size: int | None = None) -> Iterator[None]:
        """One step of an own loop: fetch the batch inside, or right before it.

        Args:
            step: its number; default: one more than the last one.
            batch_size: global batch, that is samples of all replicas together.

        An exception passes through; the step then counts as not done.
        """
        self.begin(self._number + 1 if step is None else step)
        try:
            yield
        except BaseException:
            self.abandon()
            raise
        self.end(samples=batch_size)

    @never_raises("begin")
    def begin(self, number: int, count: int = 1) -> None:
        """A step, or an execution of ``count`` steps whose first one is ``number``, begins."""
        if os.getpid() != self._pid:
            return
        self._close_marks()
        number = int(number)
        if self.capture is not None:
            self._begin_capture(self.capture, number, count)
        self._number = number
        self._begin = time.monotonic_ns()
        if self._border is None:
            self._paused_ns = 0
        for framework in self.frameworks.loaded():
            self._marks.append(framework.mark(number))

    @never_raises("end")
    def end(self, count: int = 1, samples: int | None = None) -> None:
        """It ended, after ``count`` steps of ``samples`` samples each."""
        if self._begin is None or os.getpid() != self._pid:
            return
        recorded = any(mark.recorded for mark in self._marks)
        self._close_marks()
        now, end_ns = time.monotonic_ns(), time.time_ns()
        since = self._begin if self._border is None else self._border
        count = max(int(count), 1)
        duration = max(now - since - self._paused_ns, 0) // count
        capture = self.capture
        profiled = recorded or (capture is not None and capture.running)
        self._begin, self._border, self._paused_ns = None, now, 0
        self._number += count - 1
        self._recorder.step(self._number, end_ns, duration, None if samples is None else int(samples), profiled)
        if capture is not None:
            self._end_capture(capture, duration, profiled)
        if self._collections.found:
            self._hand_on_collections(duration * count)
        if self.on_first_step is not None:
            first, self.on_first_step = self.on_first_step, None
            first()
        if self._allocator_asked is None or now - self._allocator_asked >= ALLOCATOR_EVERY_NS:
            self._allocator_asked = now
            self._read_allocators()

    @never_raises("abandon")
    def abandon(self) -> None:
        """It did not end: an exception, or no more data."""
        self._begin = None
        self._close_marks()

    def interrupt(self) -> None:
        """Something that is no step begins or ended here, an epoch for example: do not count it."""
        self._border = time.monotonic_ns()
        self._paused_ns = 0

    def _close_marks(self) -> None:
        marks, self._marks = self._marks, []
        for mark in reversed(marks):
            mark.close()

    @never_raises("capture")
    def _begin_capture(self, capture: Capture, number: int, count: int) -> None:
        if capture.wants(number, count):
            self._outside_step(capture.before_step, number, count)

    @never_raises("capture")
    def _end_capture(self, capture: Capture, duration_ns: int, profiled: bool) -> None:
        if capture.after_step(self._number, duration_ns, profiled):
            self._outside_step(capture.finish)

    def _outside_step(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Starting and ending a profile may take seconds; they are no part of a step."""
        begin = time.monotonic_ns()
        self._outside = True
        try:
            work(*arguments)
        finally:
            self._outside = False
            self._paused_ns += time.monotonic_ns() - begin

    # --- spans ---------------------------------------------------------------------------------

    @contextmanager
    def span(self, kind: SpanKind, note: str = "") -> Iterator[None]:
        """Something beside stepping, such as ``checkpoint`` or ``validation``; an inner one is part of the outer."""
        begin = self.begin_span()
        try:
            yield
        finally:
            self.end_span(kind, begin, note)

    def begin_span(self) -> int:
        """A span begins; the result goes to `end_span`."""
        self._open_spans += 1
        if self.capture is not None:
            self.capture.paused = True
        return time.monotonic_ns()

    @never_raises("span")
    def end_span(self, kind: SpanKind, begin: int, note: str = "") -> None:
        """A span ended."""
        self._open_spans = max(self._open_spans - 1, 0)
        if self._open_spans:
            return
        if self.capture is not None:
            self.capture.paused = False
        took = time.monotonic_ns() - begin
        self._paused_ns += took
        end_ns = time.time_ns()
        self._recorder.span(kind, end_ns - took, end_ns, max(self._number, 0), note)

    def _hand_on_collections(self, step_ns: int = 0) -> None:
        found = self._collections.found
        while found:
            end_ns, took, generation = found.popleft()
            if took < MIN_COLLECTION_SHARE * step_ns:
                continue
            note = f"generation {generation}"
            self._recorder.span("garbage_collection", end_ns - took, end_ns, max(self._number, 0), note)

    # --- memory --------------------------------------------------------------------------------

    @never_raises("allocator")
    def _read_allocators(self) -> None:
        # Of several frameworks the one that trains is meant: a GPU has one number in a recording.
        framework = self.frameworks.training()
        if framework is not None:
            for reading in framework.allocator():
                self._recorder.allocator(reading.gpu, reading.used_bytes, reading.peak_bytes, reading.limit_bytes)


class _Collections:
    """Long garbage collections, put down where they happen.

    One can begin inside any allocation, also while a recorder holds its lock; on any thread; in forked
    children too. So nothing is done here but to remember, and `StepHooks` hands it on at a step's end.
    """

    def __init__(self) -> None:
        self.found: deque[tuple[int, int, int]] = deque(maxlen=1024)
        self._begin: int | None = None

    def watch(self) -> None:
        if self.seen not in gc.callbacks:
            gc.callbacks.append(self.seen)

    def unwatch(self) -> None:
        if self.seen in gc.callbacks:
            gc.callbacks.remove(self.seen)

    def seen(self, phase: str, info: dict[str, int]) -> None:
        """What `gc` calls."""
        if phase == "start":
            self._begin = time.monotonic_ns()
        elif self._begin is not None:
            took = time.monotonic_ns() - self._begin
            self._begin = None
            if took >= MIN_COLLECTION_NS:
                self.found.append((time.time_ns(), took, info.get("generation", -1)))
