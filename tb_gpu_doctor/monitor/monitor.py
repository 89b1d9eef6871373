"""The companion of training: `GpuMonitor` records how every GPU is doing beside the loss curves.

It never raises into training, never waits for a disk there, and never makes a GPU wait: NVML is asked from
a thread of its own, and none of the questions synchronises with the GPU's work.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from tb_gpu_doctor.monitor.session import Session


class GpuMonitor:
    """Records GPU utilization, memory, power, temperature, clocks and more, once a second.

        with GpuMonitor("logs"):
            train()

        monitor = GpuMonitor("logs").start()
        for step, batch in enumerate(batches):
            train_step(batch)
            monitor.step(step)
        monitor.stop()

    TensorBoard's Scalars tab shows one run a GPU, ``gpu_doctor/<host>/gpu<NVML index>``; the GPU Doctor tab
    shows all samples. Whatever goes wrong is one line in the log of ``tb_gpu_doctor``, and training goes on.
    A process that is forked from this one does not record; give it a monitor of its own if it trains.

    Args:
        logdir: where TensorBoard looks; a path, or an address such as ``gs://...``.
        interval_s: seconds from one sample to the next, at least 0.05.
        gpus: ``"visible"`` to CUDA in this process, ``"all"`` of the machine, or a list of NVML indices or UUIDs.
        step_hook: True where `step` will be called: then no point is written before the first step.
            By default points count samples until the first step.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        interval_s: float = 1.0,
        gpus: str | Sequence[int | str] = "visible",
        *,
        step_hook: bool | None = None,
    ) -> None:
        self._arguments = (os.fspath(logdir), interval_s, gpus, step_hook)
        self._session: Session | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._last_step_ns: int | None = None

    def start(self) -> GpuMonitor:
        """Begin to record; does nothing while it records."""
        if self._current() is None:
            self._last_step_ns = None
            self._session = Session(*self._arguments)
            self._session.start()
            # A monitor that nobody holds any more (a notebook cell run again) ends; so does one at exit.
            self._finalizer = weakref.finalize(self, self._session.stop)
        return self

    def stop(self, timeout_s: float = 10.0) -> None:
        """Write what is left and end; does nothing where it does not record.

        Args:
            timeout_s: how long a disk that does not answer may hold this up.
        """
        session = self._current()
        if session is not None:
            session.stop(timeout_s)
        if self._finalizer is not None:
            self._finalizer.detach()
        self._session = self._finalizer = None

    def __enter__(self) -> GpuMonitor:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def recording(self) -> bool:
        """Whether it records, in this process."""
        return self._current() is not None

    def step(
        self,
        number: int,
        end_ns: int | None = None,
        duration_ns: int | None = None,
        samples: int | None = None,
        profiled: bool = False,
    ) -> None:
        """A training step ended.

        Args:
            number: the step.
            end_ns: when it ended, in Unix nanoseconds; now by default.
            duration_ns: how long it took; by default the time since the last call.
            samples: global batch size.
            profiled: whether a profile was being taken.
        """
        session = self._current()
        if session is None:
            return
        now = time.perf_counter_ns()
        if duration_ns is None and self._last_step_ns is not None:
            duration_ns = now - self._last_step_ns
        self._last_step_ns = now
        session.step(number, end_ns, duration_ns, samples, profiled)

    def span(self, kind: str, start_ns: int, end_ns: int, step: int, note: str = "") -> None:
        """Training did something beside stepping, such as ``checkpoint`` or ``validation``."""
        session = self._current()
        if session is not None:
            session.span(kind, start_ns, end_ns, step, note)

    def allocator(self, gpu: int, used_bytes: int, peak_bytes: int, limit_bytes: int | None) -> None:
        """The framework's own memory figures of one of its GPUs, by the framework's number."""
        session = self._current()
        if session is not None:
            session.allocator(gpu, used_bytes, peak_bytes, limit_bytes)

    def facts(self, name: str, values: Mapping[str, Any]) -> None:
        """Something that is written once, such as ``environment``."""
        session = self._current()
        if session is not None:
            session.facts(name, values)

    def note(self, sentence: str) -> None:
        """A sentence about what could not be recorded; each is kept and shown once."""
        session = self._current()
        if session is not None:
            session.note(sentence)

    def flush(self) -> None:
        """Write soon what has been recorded."""
        session = self._current()
        if session is not None:
            session.flush()

    def _current(self) -> Session | None:
        """The session of this process: a forked child has none."""
        session = self._session
        return session if session is not None and session.process_id == os.getpid() else None
