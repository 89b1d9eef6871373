"""The companion of training: `GpuMonitor` records how every GPU is doing beside the loss curves.

It never raises into training, never waits for a disk there, and never makes a GPU wait: NVML is asked from
a thread of its own, and none of the questions synchronises with the GPU's work.
"""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from tb_gpu_doctor.monitor.capture import Capture, CaptureOptions
from tb_gpu_doctor.monitor.environment_fact import EnvironmentFact
from tb_gpu_doctor.monitor.session import Session
from tb_gpu_doctor.monitor.steps import StepHooks


class GpuMonitor:
    """Records GPU utilization, memory, power, temperature, clocks and more, once a second.

        with GpuMonitor("logs"):
            train()

        with GpuMonitor("logs", capture=CaptureOptions(profile_steps=(50, 60))) as monitor:
            for step, batch in enumerate(batches):
                with monitor.train_step(step, batch_size=256):
                    train_step(batch)

    TensorBoard's Scalars tab shows one run a GPU, ``gpu_doctor/<host>/gpu<NVML index>``; the GPU Doctor tab
    shows all samples. Whatever goes wrong is one line in the log of ``tb_gpu_doctor``, and training goes on.
    A process that is forked from this one does not record; give it a monitor of its own if it trains.

    Args:
        logdir: where TensorBoard looks; a path, or an address such as ``gs://...``.
        interval_s: seconds from one sample to the next, at least 0.05.
        gpus: ``"visible"`` to CUDA in this process, ``"all"`` of the machine, or a list of NVML indices or UUIDs.
        step_hook: True where `step` will be called: then no point is written before the first step.
            By default where ``capture`` asks for profiles; else points count samples until the first step.
        capture: when to take profiles, at the borders of `train_step`; by default none.
        framework: ``tensorflow``, ``jax`` or ``torch``, whose profiler and memory are meant; by default the
            one that training has loaded.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        interval_s: float = 1.0,
        gpus: str | Sequence[int | str] = "visible",
        *,
        step_hook: bool | None = None,
        capture: CaptureOptions | None = None,
        framework: str | None = None,
    ) -> None:
        self._arguments = (_path(logdir), interval_s, gpus, step_hook)
        self._capture_options, self._framework = capture, framework
        self._hooks: StepHooks | None = None
        self._environment: EnvironmentFact | None = None
        self._session: Session | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._last_step_ns: int | None = None

    def start(self) -> GpuMonitor:
        """Begin to record; does nothing while it records."""
        if self._current() is None:
            self._last_step_ns = None
            options = self._capture_options
            logdir, interval_s, gpus, step_hook = self._arguments
            if step_hook is None and options is not None and not options.idle:
                step_hook = True  # profiles are taken at the borders of steps: there will be some
            self._session = Session(logdir, interval_s, gpus, step_hook)
            self._hooks = StepHooks(weakref.proxy(self), framework=self._framework)
            if options is not None and not options.idle:
                self._hooks.capture = Capture(weakref.proxy(self), self._arguments[0], options, self._hooks.frameworks)
                self._session.watch = self._hooks.capture.observe
            self._session.start()
            self._environment = EnvironmentFact(self._session.facts)
            self._hooks.on_first_step = self._environment.start
            self._hooks.start()
            # A monitor that nobody holds any more (a notebook cell run again) ends; so does one at exit.
            self._finalizer = weakref.finalize(self, self._session.stop)
            # Registered later, so called earlier: a profile that runs at exit is written first.
            atexit.register(_stop_hooks, weakref.ref(self))
        return self

    def stop(self, timeout_s: float = 10.0) -> None:
        """Write what is left and end; does nothing where it does not record.

        Args:
            timeout_s: how long a disk that does not answer may hold this up.
        """
        session = self._current()
        if session is not None:
            if self._hooks is not None:
                self._hooks.close()
            if self._environment is not None:
                self._environment.finish()
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

    @property
    def hooks(self) -> StepHooks:
        """Steps and spans of this process; they do nothing that is recorded while the monitor does not record."""
        if self._hooks is None:
            self._hooks = StepHooks(weakref.proxy(self), framework=self._framework)
        return self._hooks

    def train_step(self, step: int | None = None, batch_size: int | None = None) -> AbstractContextManager[None]:
        """One step of an own training loop: timed, marked for profilers, profiled where that is due.

        Args:
            step: its number; by default one more than the last one.
            batch_size: samples of all replicas together.

        The step counts from the end of the one before it, so that waiting for a batch is a part of it.
        """
        return self.hooks.train_step(step, batch_size)

    def checkpoint(self, note: str = "") -> AbstractContextManager[None]:
        """Around saving, so that it is no part of a step."""
        return self.hooks.span("checkpoint", note)

    def validation(self, note: str = "") -> AbstractContextManager[None]:
        """Around evaluating, so that it is no part of a step."""
        return self.hooks.span("validation", note)

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

    def tell(self, key: str, **params: Any) -> None:
        """Like `note`, the sentence being ``monitor.<key>`` of the catalogues: it can be shown in any language."""
        session = self._current()
        if session is not None:
            session.tell(key, **params)


def _stop_hooks(monitor: weakref.ref[GpuMonitor]) -> None:
    """At exit: end what a training that ended by an exception left open."""
    found = monitor()
    if found is not None and found.recording:
        found.hooks.close()


def _path(logdir: Any) -> str:
    """The path as a string; what is none is told when it is written to, not here, in training."""
    try:
        return os.fsdecode(logdir)
    except TypeError:
        return str(logdir)
