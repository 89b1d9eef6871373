"""One recording from its start to its end: the sampling thread, and what training hands over."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tb_gpu_doctor.monitor.clock import WallClock
from tb_gpu_doctor.monitor.notes import LOG, Notes

SHORTEST_INTERVAL_S = 0.05
LONGEST_INTERVAL_S = 3600.0
# The share of an interval that a tick may take before slow questions wait.
BUDGET = 0.5
# So many samples in a row that fail in an unforeseen way end the recording of GPUs.
MOST_FAILURES = 20
# At exit a disk that does not answer holds the process up for no longer.
EXIT_TIMEOUT_S = 5.0


class Session:
    """Samples and writes until it is stopped. No method raises.

    Args:
        logdir: as for `GpuMonitor`, like the other arguments.
    """

    def __init__(
        self, logdir: str, interval_s: float, gpus: str | Sequence[int | str], step_hook: bool | None = None
    ) -> None:
        self.process_id = os.getpid()
        self._gpus = gpus
        self._stop = threading.Event()
        self._step = -1
        self._allocator: dict[int, tuple[int, int]] = {}
        self._allocator_limits: dict[int, int] = {}
        self._writer: Any = None
        self._early: list[dict[str, Any]] = []
        self._notes = Notes(self._keep_note)
        self._interval_s = self._sane_interval(interval_s)
        self._clock = WallClock(lambda seconds: self._notes.tell("clock_jumped", seconds=f"{seconds:.0f}"))
        self._logdir, self._step_hook = logdir, step_hook
        # Is shown each sample of each GPU: the framework's (else NVML's) number, values by metric id.
        self.watch: Callable[[int, Mapping[str, float]], None] | None = None
        self._thread = threading.Thread(target=self._run, name="gpu-doctor-sampler", daemon=True)

    def start(self) -> None:
        """Start writing and sampling."""
        try:
            # Here: numpy and TensorBoard's messages are not for those who only import the package. And in this
            # thread: whoever forks while another thread imports has a child that can never import the same.
            import tb_gpu_doctor.monitor.gpu_source  # noqa: F401
            from tb_gpu_doctor.metrics import METRICS
            from tb_gpu_doctor.monitor.origin import host_name
            from tb_gpu_doctor.monitor.writer import RecordingWriter
            from tb_gpu_doctor.recording_format import FORMAT_VERSION

            with contextlib.suppress(ImportError):
                import pynvml  # noqa: F401

            header = {
                "version": FORMAT_VERSION,
                "host": host_name(),
                "process_id": self.process_id,
                "start_ns": self._clock.now_ns(),
                "interval_s": self._interval_s,
                "metrics": [metric.id for metric in METRICS],
            }
            self._writer = RecordingWriter(self._logdir, header, self._notes, self._step_hook)
            self._writer.notes.extend(self._early)
            self._writer.start()
            self._thread.start()
        except Exception as error:  # whatever is wrong with the installation, training goes on
            self._notes.tell("cannot_start", reason=f"{type(error).__name__}: {error}")

    def stop(self, timeout_s: float = EXIT_TIMEOUT_S) -> None:
        """End sampling, write what is left."""
        if os.getpid() != self.process_id:
            return  # a forked child leaves its parent's files alone
        try:
            deadline = time.monotonic() + timeout_s
            self._stop.set()
            # Garbage is collected in any thread, and with it a monitor that nobody holds any more: in its own too.
            if self._thread.is_alive() and self._thread is not threading.current_thread():
                self._thread.join(min(timeout_s, 2.0 + self._interval_s))
            if self._writer is not None and not self._writer.stop(max(0.0, deadline - time.monotonic())):
                LOG.warning("GPU Doctor: %s", self._notes.words("still_writing", logdir=self._logdir))
        except Exception:  # at exit much of Python may be gone
            LOG.debug("stopping failed", exc_info=True)

    def step(
        self, number: int, end_ns: int | None, duration_ns: int | None, samples: int | None, profiled: bool
    ) -> None:
        """See `GpuMonitor.step`."""
        try:
            number = int(number)
            if number < self._step:
                self._notes.tell("steps_began_anew", logging.INFO)
            self._step = number
            if duration_ns is not None and self._writer is not None:
                end = time.time_ns() if end_ns is None else int(end_ns)
                batch = -1 if samples is None else int(samples)
                self._writer.steps.append((number, end, int(duration_ns), batch, int(profiled)))
        except Exception as error:
            self._notes.tell("bad_call", call="step", reason=str(error))

    def span(self, kind: str, start_ns: int, end_ns: int, step: int, note: str) -> None:
        """See `GpuMonitor.span`."""
        try:
            if self._writer is not None:
                self._writer.spans.append((str(kind), int(start_ns), int(end_ns), int(step), str(note)))
        except Exception as error:
            self._notes.tell("bad_call", call="span", reason=str(error))

    def allocator(self, gpu: int, used_bytes: int, peak_bytes: int, limit_bytes: int | None) -> None:
        """See `GpuMonitor.allocator`."""
        try:
            self._allocator[int(gpu)] = (int(used_bytes), int(peak_bytes))
            if limit_bytes is not None:
                self._allocator_limits[int(gpu)] = int(limit_bytes)
        except Exception as error:
            self._notes.tell("bad_call", call="allocator", reason=str(error))

    def facts(self, name: str, values: Mapping[str, Any]) -> None:
        """See `GpuMonitor.facts`."""
        try:
            if self._writer is not None:
                self._writer.facts.append((str(name), dict(values)))
        except Exception as error:
            self._notes.tell("bad_call", call="facts", reason=str(error))

    def note(self, sentence: str) -> None:
        """See `GpuMonitor.note`."""
        try:
            self._notes.sentence(str(sentence))
        except Exception as error:
            self._notes.tell("bad_call", call="note", reason=str(error))

    def tell(self, key: str, **params: Any) -> None:
        """See `GpuMonitor.tell`."""
        self._notes.tell(key, **params)

    def flush(self) -> None:
        """See `GpuMonitor.flush`."""
        if self._writer is not None:
            self._writer.flush()

    def _keep_note(self, note: dict[str, Any]) -> None:
        (self._early if self._writer is None else self._writer.notes).append(note)

    def _sane_interval(self, interval_s: float) -> float:
        try:
            if math.isfinite(interval_s) and SHORTEST_INTERVAL_S <= interval_s <= LONGEST_INTERVAL_S:
                return float(interval_s)
        except TypeError:
            pass
        self._notes.tell("bad_interval", given=str(interval_s))
        return 1.0

    def _run(self) -> None:
        try:
            from tb_gpu_doctor.monitor.gpu_source import GpuSource

            source = GpuSource(self._gpus, self._interval_s, self._notes, self._writer)
            try:
                self._sample(source)
            finally:
                source.close()
        except Exception as error:
            self._notes.tell("sampler_ended", reason=f"{type(error).__name__}: {error}")
            LOG.debug("the sampler ended", exc_info=True)

    def _sample(self, source: Any) -> None:
        next_tick, failures = time.monotonic(), 0
        while True:
            try:
                self._tick(source)
                failures = 0
            except Exception:
                failures += 1
                if failures >= MOST_FAILURES:
                    raise
                LOG.debug("a sample failed", exc_info=True)
            next_tick += self._interval_s
            now = time.monotonic()
            if next_tick < now:
                # A tick that took too long is not made up for by two quick ones.
                next_tick = now + self._interval_s - (now - next_tick) % self._interval_s
            # Here, not before the first one: the shortest recording has a sample too.
            if self._stop.wait(next_tick - now):
                return

    def _tick(self, source: Any) -> None:
        values = source.sample(self._interval_s * BUDGET, self._allocator, self._allocator_limits)
        if values is None:
            return
        self._writer.samples.append((self._clock.now_ns(), self._step, values))
        if self.watch is not None:
            for gpu, row in source.by_gpu(values):
                self.watch(gpu, row)
