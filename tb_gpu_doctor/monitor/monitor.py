"""The companion of training: `GpuMonitor` records how every GPU is doing beside the loss curves.

It never raises into training, never waits for a disk there, and never makes a GPU wait: NVML is asked from
a thread of its own, and none of the questions synchronises with the GPU's work.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from tb_gpu_doctor.monitor.capture import Capture, CaptureOptions
from tb_gpu_doctor.monitor.notes import LOG, Notes, describe_error, never_raises
from tb_gpu_doctor.monitor.step_hooks import StepHooks
from tb_gpu_doctor.monitor.watchdog import OnHang, Watchdog

# What the network time daemon slews is far below; what a person or a resumed virtual machine sets is above.
JUMP_NS = 1_000_000_000
# How long the end of training waits for the environment report.
ENVIRONMENT_WAIT_S = 3.0
SHORTEST_INTERVAL_S = 0.05
LONGEST_INTERVAL_S = 3600.0
# The share of an interval that a tick may take before slow questions wait.
BUDGET = 0.5
# So many samples in a row that fail in an unforeseen way end the recording of GPUs.
MOST_FAILURES = 20
# At exit a disk that does not answer holds the process up for no longer.
EXIT_TIMEOUT_S = 5.0
# What the dump of a hang says of each GPU.
_STATE = ("utilization_percent", "power_watts", "memory_used_bytes", "sm_clock_mhz", "temperature_celsius")


class WallClock:
    """Unix time in nanoseconds, strictly growing.

    A jump forward is followed: the machine slept, or its clock was wrong. After a jump backwards time goes on
    from where it was, at the pace of the monotonic clock, until the machine's clock has caught up: series
    that turn back cannot be drawn, and TensorBoard would drop what it knows.

    Args:
        on_jump: called with the size of each jump in seconds, negative for backwards.
    """

    def __init__(
        self,
        on_jump: Callable[[float], None] = lambda seconds: None,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._on_jump = on_jump
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._offset = wall_ns() - monotonic_ns()
        self._held_back = False
        self._last = 0

    def now_ns(self) -> int:
        """The time now, later than any told before."""
        wall, monotonic = self._wall_ns(), self._monotonic_ns()
        jump = wall - monotonic - self._offset
        if jump <= -JUMP_NS:
            if not self._held_back:
                self._held_back = True
                self._on_jump(jump / 1e9)
            now = monotonic + self._offset
        else:
            if jump >= JUMP_NS and not self._held_back:
                self._on_jump(jump / 1e9)
            self._held_back = False
            self._offset = wall - monotonic
            now = wall
        self._last = max(now, self._last + 1)
        return self._last


class EnvironmentFact:
    """Puts the environment report into the recording, once, from a thread of its own: it reads many small files.

    Args:
        write: takes ``environment`` and the report.
    """

    def __init__(self, write: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._write = write
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to collect; call it when training has begun."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._collect, name="gpu-doctor-environment", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Collect where no step was ever seen, and wait a little for the report."""
        try:
            self.start()
            if self._thread is not None:
                self._thread.join(ENVIRONMENT_WAIT_S)
        except RuntimeError:  # no thread can be started while Python ends
            return

    def failed(self, part: str, error: Exception) -> None:
        """Only of use to whoever looks for it: nothing of the recording depends on the report."""
        LOG.debug("no environment report", exc_info=error)

    @never_raises("environment")
    def _collect(self) -> None:
        from tb_gpu_doctor.monitor.environment import collect

        self._write("environment", collect(in_process=True))


class Session:
    """Samples and writes until it is stopped. No method raises.

    Args:
        logdir: as for `GpuMonitor`, like the other arguments.
    """

    def __init__(
        self,
        logdir: str,
        interval_s: float,
        gpus: str | Sequence[int | str],
        step_hook: bool | None = None,
        on_hang: OnHang | None = "dump",
        central: tuple[str | None, int | None] = (None, None),
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
        self._source: Any = None
        self._last_sample: list[dict[str, float]] = []
        self.watchdog = Watchdog(self._notes, self.facts, self._show, on_hang)
        self.watchdog.driver_call = lambda: None if self._source is None else self._source.call()
        self.watchdog.gpus = lambda: self._last_sample
        self.watchdog.folder = lambda: None if self._writer is None else self._writer.folder
        self._peers: Any = None
        self.central: Any = None
        self._central = central
        self._thread = threading.Thread(target=self._run, name="gpu-doctor-sampler", daemon=True)

    def failed(self, part: str, error: Exception) -> None:
        """One line in the log and in the recording; what fails at the end may find no more log to write to."""
        LOG.debug("%s failed", part, exc_info=error)
        if part == "start":
            self._notes.tell("cannot_start", reason=describe_error(error))
        elif part == "sampling":
            self._notes.tell("sampler_ended", reason=describe_error(error))
        elif part != "stop":
            self._notes.tell("bad_call", call=part, reason=str(error))

    @never_raises("start")
    def start(self) -> None:
        """Start writing and sampling."""
        # Here: numpy and TensorBoard's messages are not for those who only import the package. And in this
        # thread: whoever forks while another thread imports has a child that can never import the same.
        import tb_gpu_doctor.monitor.sampler  # noqa: F401
        from tb_gpu_doctor.metrics import METRICS
        from tb_gpu_doctor.monitor.event_file import host_name
        from tb_gpu_doctor.monitor.peers import Peers
        from tb_gpu_doctor.monitor.rank import rank_of_process
        from tb_gpu_doctor.monitor.writer import RecordingWriter
        from tb_gpu_doctor.recording_format import FORMAT_VERSION

        with contextlib.suppress(ImportError):
            import pynvml  # noqa: F401

        host = host_name()
        header: dict[str, Any] = {
            "version": FORMAT_VERSION,
            "host": host,
            "process_id": self.process_id,
            "rank": rank_of_process(),
            "main_thread": threading.main_thread().ident,
            "start_ns": self._clock.now_ns(),
            "interval_s": self._interval_s,
            "metrics": [metric.id for metric in METRICS],
        }
        self._writer = RecordingWriter(self._logdir, header, self._notes, self._step_hook)
        self._writer.notes.extend(self._early)
        self._writer.start()
        self._peers = Peers(self._logdir, host, self._notes)
        self._peers.on_rank = lambda rank: self._writer.update_header(rank=rank)
        if self._central != (None, None):
            from tb_gpu_doctor.monitor.central import Central

            self.central = Central(*self._central, self._notes)
            self.central.start(host, header["rank"])
        self._thread.start()
        self.watchdog.start()

    @never_raises("stop")
    def stop(self, timeout_s: float = EXIT_TIMEOUT_S, ended: str | None = None) -> None:
        """End sampling, write what is left, and how training ended where that is known."""
        if os.getpid() != self.process_id:
            return  # a forked child leaves its parent's files alone
        deadline = time.monotonic() + timeout_s
        self._stop.set()
        self.watchdog.stop()
        if self._peers is not None:
            self._peers.stop()
        if self.central is not None:
            self.central.stop()
        if self._writer is not None and ended is not None:
            self._writer.update_header(ended=ended)
        # Garbage is collected in any thread, and with it a monitor that nobody holds any more: in its own too.
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(min(timeout_s, 2.0 + self._interval_s))
        if self._writer is not None and not self._writer.stop(max(0.0, deadline - time.monotonic())):
            LOG.warning("GPU Doctor: %s", self._notes.words("still_writing", logdir=self._logdir))

    @never_raises("step")
    def step(
        self, number: int, end_ns: int | None, duration_ns: int | None, samples: int | None, profiled: bool
    ) -> None:
        """See `GpuMonitor.step`."""
        number = _int64(number)
        if number < self._step:
            self._notes.tell("steps_began_anew", logging.INFO)
        self._step = number
        if duration_ns is not None and self._writer is not None:
            end = time.time_ns() if end_ns is None else _int64(end_ns)
            duration = _int64(duration_ns)
            batch = self._batch(samples)
            self._writer.steps.append((number, end, duration, batch, int(profiled)))
            self.watchdog.step(number, duration)
            if not profiled and self._peers is not None:
                self._peers.step(number, duration, batch)
            if self.central is not None:
                self.central.latest.step(number, duration, batch)

    @never_raises("span")
    def span(self, kind: str, start_ns: int, end_ns: int, step: int, note: str) -> None:
        """See `GpuMonitor.span`."""
        if self._writer is not None:
            self._writer.spans.append((str(kind), _int64(start_ns), _int64(end_ns), _int64(step), str(note)))

    @never_raises("allocator")
    def allocator(self, gpu: int, used_bytes: int, peak_bytes: int, limit_bytes: int | None) -> None:
        """See `GpuMonitor.allocator`."""
        self._allocator[_int64(gpu)] = (_int64(used_bytes), _int64(peak_bytes))
        if limit_bytes is not None:
            self._allocator_limits[_int64(gpu)] = _int64(limit_bytes)

    @never_raises("facts")
    def facts(self, name: str, values: Mapping[str, Any]) -> None:
        """See `GpuMonitor.facts`."""
        if self._writer is not None:
            self._writer.facts.append((str(name), dict(values)))

    @never_raises("note")
    def note(self, sentence: str) -> None:
        """See `GpuMonitor.note`."""
        self._notes.sentence(str(sentence))

    def tell(self, key: str, **params: Any) -> None:
        """See `GpuMonitor.tell`."""
        self._notes.tell(key, **params)

    def flush(self) -> None:
        """See `GpuMonitor.flush`."""
        if self._writer is not None:
            self._writer.flush()

    def _batch(self, samples: int | None) -> int:
        """Samples of a step; one that makes no sense costs its own value only, and not the step."""
        try:
            return -1 if samples is None else _int64(samples)
        except (TypeError, ValueError, OverflowError) as error:
            self.failed("step", error)
            return -1

    def _show(self, tag: str, markdown: str, step: int) -> None:
        if self._writer is not None:
            self._writer.texts.append((tag, markdown, step))

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

    @never_raises("sampling")
    def _run(self) -> None:
        from tb_gpu_doctor.monitor.sampler import GpuSource

        source = self._source = GpuSource(self._gpus, self._interval_s, self._notes, self._writer)
        try:
            self._sample(source)
        finally:
            source.close()

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
        if self._peers is not None:
            self._peers.start_when_due()
        values = source.sample(self._interval_s * BUDGET, self._allocator, self._allocator_limits)
        if values is None:
            return
        self._writer.samples.append((self._clock.now_ns(), self._step, values))
        rows = list(source.by_gpu(values))
        if self._peers is not None:
            self._peers.gpu.take(source.facts, [row for _, row in rows])
        if self.central is not None:
            self.central.latest.take(source.facts, [row for _, row in rows])
        self._last_sample = [{"gpu": float(gpu), **{name: row[name] for name in _STATE}} for gpu, row in rows]
        if self.watch is not None:
            for gpu, row in rows:
                self.watch(gpu, row)


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
        on_hang: what to do when no step has come for a minute and for 20 steps of the usual length: ``dump`` writes
            one line to the log and the stacks of all Python threads and the GPUs' state into the recording, ``log``
            the line alone, None nothing. Nothing is ever ended.
        otlp: pushes the same series to a collector of OpenTelemetry, such as ``http://collector:4317`` (gRPC) or
            ``http://collector:4318`` (HTTP); needs the extra ``[otlp]``. One that is down is told once.
        prometheus_port: answers Prometheus at this port, plus the local rank where several processes share a host;
            needs the extra ``[prometheus]``.

    Raises:
        TypeError: the logdir is None.
        ValueError: ``framework`` or ``on_hang`` is none of those.
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
        on_hang: OnHang | None = "dump",
        otlp: str | None = None,
        prometheus_port: int | None = None,
    ) -> None:
        if logdir is None:  # a variable that was never set, and no wish for a folder of this name
            raise TypeError("GpuMonitor needs a logdir, such as GpuMonitor('logs'), not None")
        if on_hang not in ("dump", "log", None):
            raise ValueError(f"on_hang must be 'dump', 'log' or None, not {on_hang!r}")
        self._on_hang = on_hang
        self._central = (otlp, prometheus_port)
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
            self._session = Session(logdir, interval_s, gpus, step_hook, self._on_hang, self._central)
            self._hooks = StepHooks(weakref.proxy(self), framework=self._framework)
            self._session.watchdog.resting = _asked_of(self._hooks, "resting", False)
            self._session.watchdog.in_step = _asked_of(self._hooks, "in_step", None)
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
        self._end(timeout_s, "normal")

    def _end(self, timeout_s: float, ended: str) -> None:
        session = self._current()
        if session is not None:
            session.watchdog.stop()  # what follows takes its time, and no step is due any more
            if self._hooks is not None:
                self._hooks.close()
            if self._environment is not None:
                self._environment.finish()
            session.stop(timeout_s, ended)
        if self._finalizer is not None:
            self._finalizer.detach()
        self._session = self._finalizer = None

    def __enter__(self) -> GpuMonitor:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(10.0, "normal" if kind is None else "error")

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


def _int64(value: Any) -> int:
    """An integer that a recording can hold."""
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError(f"{number:.3e} does not fit into 64 bits")
    return number


def _asked_of(hooks: StepHooks, name: str, otherwise: Any) -> Callable[[], Any]:
    """Reads an attribute without keeping the object alive."""
    found = weakref.ref(hooks)

    def read() -> Any:
        alive = found()
        return otherwise if alive is None else getattr(alive, name)

    return read


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
