"""Profiles taken at the right moment: on a schedule, or when training gets slow, idle or hot.

A profile is written by the framework into a folder of its own on a local disk and moved into the
logdir when it is complete: so nobody reads half a file, the session's name can say which steps it
holds, and the workers of one job meet in one session.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from tb_gpu_doctor.metrics import THROTTLE_BITS
from tb_gpu_doctor.monitor.capture_files import Delivery, deliver, free_bytes, session_name
from tb_gpu_doctor.monitor.frameworks import Framework, Frameworks
from tb_gpu_doctor.monitor.notes import tell

if TYPE_CHECKING:
    from tb_gpu_doctor.monitor.notes import Recorder

# A GPU under full load is often at its power limit, and syncing boost clocks is a setting: neither is news.
_NEWS = ("hardware_slowdown", "software_thermal", "hardware_thermal", "power_brake")


@dataclass(frozen=True)
class CaptureOptions:
    """When to take a profile, and how much at most.

    Attributes:
        profile_steps: first and last step of a profile, or several such pairs; also one step or ``"10,20"``, as
            Keras takes them. Taken even during the warm-up.
        profile_every: take one whenever this many steps have passed.
        profile_slower: take one when the median step time has risen by this share (0.3: by 30 %).
        profile_below: take one when a GPU's utilization was below ``(percent, samples)`` that many samples in a row.
        profile_throttling: take one when a GPU begins to throttle for heat or a hardware limit; or names of
            `metrics.THROTTLE_BITS` to look for.
        length: steps of each profile that has no given last step.
        warmup: steps of this process, compilation among them, before which neither ``profile_every`` nor a
            trigger acts.
        max_profiles: as many at most; 0 for none.
        max_seconds: a profile is ended at the first step border after this time.
        max_bytes: no profile is begun when those before it take this much together.
        min_free_bytes: nor when the disk has less left.
        min_distance: steps between the end of one profile and the next that a trigger asks for.
    """

    profile_steps: int | str | tuple[int, int] | Sequence[tuple[int, int]] | None = None
    profile_every: int | None = None
    profile_slower: float | None = None
    profile_below: tuple[float, int] | None = None
    profile_throttling: bool | Sequence[str] = False
    length: int = 10
    warmup: int = 20
    max_profiles: int = 10
    max_seconds: float = 60.0
    max_bytes: int = 2 << 30
    min_free_bytes: int = 1 << 30
    min_distance: int = 200

    def __post_init__(self) -> None:
        """Refuse what makes no sense where it is written, not a thousand steps later."""
        for first, last in self.ranges():
            if first < 0 or last < first:
                raise ValueError(f"profile_steps: ({first}, {last}) is no range of steps (first, last)")
        if self.profile_every is not None and self.profile_every < max(self.length, 1):
            raise ValueError(f"profile_every must be at least length ({self.length}), not {self.profile_every}")
        if self.profile_slower is not None and not self.profile_slower > 0:
            raise ValueError(f"profile_slower must be above 0, such as 0.3 for 30 %, not {self.profile_slower}")
        if self.profile_below is not None:
            percent, samples = self.profile_below
            if not 0 < percent <= 100 or samples < 1:
                raise ValueError(f"profile_below must be (percent, samples), not {self.profile_below}")
        unknown = set(self.reasons()) - set(THROTTLE_BITS)
        if unknown:
            raise ValueError(f"profile_throttling: {', '.join(sorted(unknown))} unknown; of {', '.join(THROTTLE_BITS)}")
        if self.length < 1:
            raise ValueError(f"length must be at least 1, not {self.length}")

    def ranges(self) -> list[tuple[int, int]]:
        """The scheduled profiles as pairs, in order."""
        given = self.profile_steps
        # As Keras's TensorBoard callback takes them: one step, 0 for none, or the first and the last with a comma.
        steps: Any = [int(step) for step in given.split(",")] if isinstance(given, str) else given
        if not steps:
            return []
        if isinstance(steps, int):
            steps = [steps]
        if len(steps) <= 2 and all(isinstance(step, int) for step in steps):
            steps = [(steps[0], steps[-1])]
        return sorted((int(first), int(last)) for first, last in steps)

    def reasons(self) -> tuple[str, ...]:
        """Names of the throttle reasons to look for."""
        if isinstance(self.profile_throttling, str):
            return (self.profile_throttling,)
        if isinstance(self.profile_throttling, Sequence):
            return tuple(self.profile_throttling)
        return _NEWS if self.profile_throttling else ()

    @property
    def idle(self) -> bool:
        """Whether no profile will ever be taken."""
        asked = (self.ranges(), self.profile_every, self.profile_slower, self.profile_below, self.reasons())
        return self.max_profiles <= 0 or not any(asked)


# Steps whose medians are compared; fewer would take noise for a rise.
_RECENT = 30
_BASELINE = 60
_CHECK_EVERY = 5
# How PyTorch, TensorFlow and JAX say that somebody else's profiler is running.
_BUSY = ("already", "another profiler", "only one profile")


@dataclass
class _Running:
    framework: Framework
    folder: str
    first: int
    last: int
    reason: str
    scheduled: bool
    start_ns: int
    deadline: float
    reached: int = -1


class Capture:
    """Takes profiles at step borders. Its methods may raise; `StepHooks`, which calls them, does not.

    Args:
        recorder: is told of each profile and why it was taken.
        logdir: profiles go to ``<logdir>/plugins/profile`` (PyTorch's to ``<logdir>``).
        options: when and how much.
        frameworks: whose profiler is used.
    """

    def __init__(
        self, recorder: Recorder, logdir: str, options: CaptureOptions, frameworks: Frameworks | None = None
    ) -> None:
        self._recorder = recorder
        self._logdir = os.fspath(logdir)
        self.options = options
        self._frameworks = frameworks or Frameworks()
        self._ranges = deque(options.ranges())
        self._running: _Running | None = None
        self._ending = threading.Lock()  # a profile ends once, at a step's border or by the watch over it
        self._last_step_at = 0.0
        self._taken = 0
        self._bytes = 0
        self._warm = False
        self._full_told = False
        self._steps_seen = 0
        self._next_every: int | None = None
        self._not_before = 0
        self.paused = False  # in validation and the like, where a GPU may rest
        # Written by the sampler's thread, read at step borders; a plain attribute is enough.
        self._asked: str | None = None
        self._low: dict[int, int] = {}
        self._throttled: dict[int, bool] = {}
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._first_times: list[int] = []
        self._baseline: float | None = None

    @property
    def running(self) -> bool:
        """Whether one of our profiles is being recorded."""
        return self._running is not None

    # --- from the training thread --------------------------------------------------------------

    def wants(self, number: int, count: int = 1) -> bool:
        """Whether a profile has to begin (or end) before step ``number``; cheap."""
        if self._running is not None:
            return number > self._running.last or number < self._running.first
        ranges = self._ranges
        while ranges and ranges[0][1] < number:
            first, last = ranges.popleft()
            tell(self._recorder, "steps_are_past", first=first, last=last, step=number)
        if ranges and ranges[0][0] < number + count:
            return True
        options = self.options
        if self._steps_seen < options.warmup:
            return False
        if options.profile_every:
            if self._next_every is None or self._next_every > number + options.profile_every:
                self._next_every = number + options.profile_every - number % options.profile_every
                if number % options.profile_every == 0:
                    self._next_every = number
            if self._next_every < number + count:
                return True
        return self._asked is not None and number >= self._not_before

    def before_step(self, number: int, count: int = 1) -> None:
        """Begin what `wants` found due."""
        if self._running is not None:
            self.finish()
        options = self.options
        every = options.profile_every
        if self._ranges and self._ranges[0][0] < number + count:
            last = self._ranges.popleft()[1]
            self._start(number, max(last, number), f"steps {number} {last}", scheduled=True)
        elif every and self._next_every is not None and self._next_every < number + count:
            self._next_every = number - number % every + every
            self._start(number, number + options.length - 1, f"every {every}", scheduled=True)
        elif self._asked is not None:
            self._start(number, number + options.length - 1, self._asked, scheduled=False)
            self._asked = None

    def after_step(self, number: int, duration_ns: int, profiled: bool = False) -> bool:
        """Count the step; True when `finish` is due."""
        self._steps_seen += 1
        if self._running is not None:
            self._running.reached = number
            self._last_step_at = time.monotonic()
            return number >= self._running.last or time.monotonic() >= self._running.deadline
        if self.options.profile_slower is not None and not profiled and self._steps_seen > self.options.warmup:
            self._watch_time(duration_ns)
        return False

    def _watch_time(self, duration_ns: int) -> None:
        self._recent.append(duration_ns)
        if self._baseline is None:
            self._first_times.append(duration_ns)
            if len(self._first_times) >= _BASELINE:
                self._baseline = median(self._first_times)
                self._first_times = []
                self._recent.clear()
            return
        if len(self._recent) < _RECENT or self._steps_seen % _CHECK_EVERY:
            return
        now = median(self._recent)
        slower = self.options.profile_slower
        if slower is not None and now > self._baseline * (1 + slower):
            self._ask(f"step_time {now / self._baseline - 1:.3f} {self._baseline / 1e6:.3f} {now / 1e6:.3f}")
            self._baseline = now  # the next rise counts from here
            self._recent.clear()
        elif slower is not None and now * (1 + slower) < self._baseline:
            self._baseline = now  # faster for good: a compilation came late, or a neighbour left

    def finish(self) -> None:
        """End the running profile and put it into the logdir."""
        with self._ending:
            running, self._running = self._running, None
        if running is None:
            return
        self._recent.clear()
        self._not_before = max(running.reached, running.first) + self.options.min_distance
        stop_ns = time.time_ns()
        with contextlib.suppress(Exception):
            # What was launched in these steps shall be in the profile.
            running.framework.synchronize()
        try:
            running.framework.stop_profile()
            delivery = deliver(
                running.folder,
                self._logdir,
                session_name(running.start_ns, running.first, running.last),
                f"{running.reason} {running.first}-{running.last}" if running.scheduled else None,
                running.start_ns,
            )
        except Exception as error:
            tell(self._recorder, "profile_not_written", reason=_reason(error))
            delivery = Delivery("", (), 0)
        finally:
            _remove(running.folder)
        self._bytes += delivery.size_bytes
        self._recorder.span("profile", running.start_ns, stop_ns, running.first, running.reason)
        self._recorder.facts(
            f"profile_{self._taken}",
            {
                "reason": running.reason,
                "first_step": running.first,
                "last_step": max(running.reached, running.first),
                "framework": running.framework.name,
                "session": delivery.session,
                "files": list(delivery.files),
                "size_bytes": delivery.size_bytes,
                "start_unix_ns": running.start_ns,
                "end_unix_ns": stop_ns,
            },
        )

    def close(self) -> None:
        """Training ends: end what runs, keeping what was recorded, and say which profiles are short or never came."""
        running = self._running
        if running is not None:
            if running.scheduled and running.reached < running.last:
                reached = max(running.reached, running.first)
                tell(self._recorder, "profile_cut_short", first=running.first, last=running.last, step=reached)
            self.finish()
        for first, last in self._ranges:
            tell(self._recorder, "profile_never_came", first=first, last=last)
        self._ranges.clear()

    def _start(self, first: int, last: int, reason: str, scheduled: bool) -> None:
        framework = self._frameworks.training()
        if framework is None:
            tell(self._recorder, "no_profiler")
            return
        if not self._has_room():
            return
        folder = tempfile.mkdtemp(prefix="gpu-doctor-")
        try:
            if not self._warm:
                # The first start loads the tracing library, for which a step would have to wait.
                self._warm = True
                if framework.name == "tensorflow":
                    framework.start_profile(folder)
                    framework.stop_profile(save=False)
            with contextlib.suppress(Exception):
                framework.synchronize()  # TensorFlow cannot while it trains over several workers
            framework.start_profile(folder)
        except Exception as error:
            _remove(folder)
            self._not_before = first + self.options.min_distance
            busy = any(sign in str(error).lower() for sign in _BUSY)
            if busy:
                tell(self._recorder, "profiler_busy", step=first)
            else:
                tell(self._recorder, "profiler_failed", step=first, reason=_reason(error))
            return
        self._taken += 1
        deadline = time.monotonic() + self.options.max_seconds
        self._last_step_at = time.monotonic()
        running = _Running(framework, folder, first, last, reason, scheduled, time.time_ns(), deadline)
        self._running = running
        if framework.name != "torch":  # whose profiler ends on its own thread only
            self._watch_over(running)

    def _watch_over(self, running: _Running) -> None:
        """End a profile whose training has ended by an exception: in a notebook it would fill the memory."""

        def look() -> None:
            if self._running is not running:
                return
            if time.monotonic() - self._last_step_at < self.options.max_seconds:
                self._watch_over(running)
                return
            with contextlib.suppress(Exception):
                self.finish()

        timer = threading.Timer(self.options.max_seconds, look)
        timer.daemon = True
        timer.start()

    def _has_room(self) -> bool:
        options = self.options
        free = free_bytes(self._logdir)
        params: dict[str, int]
        if self._taken >= options.max_profiles:
            key, params = "enough_profiles", {"count": self._taken}
        elif self._bytes >= options.max_bytes:
            key, params = "profiles_too_large", {"size": self._bytes, "limit": options.max_bytes}
        elif free is not None and free < options.min_free_bytes:
            key, params = "disk_nearly_full", {"free": free, "limit": options.min_free_bytes}
        else:
            return True
        if not self._full_told:
            self._full_told = True
            tell(self._recorder, key, **params)
        return False

    # --- from the sampler's thread -------------------------------------------------------------

    def observe(self, gpu: int, values: Mapping[str, float]) -> None:
        """One sample of a GPU, values by metric id (`tb_gpu_doctor.metrics`); called at every tick."""
        if self._steps_seen < self.options.warmup or self.paused or self._running is not None:
            self._low.clear()
            return
        utilization = values.get("utilization_percent")
        if self.options.profile_below is not None and utilization is not None and utilization == utilization:
            percent, samples = self.options.profile_below
            low = self._low.get(gpu, 0) + 1 if utilization < percent else 0
            self._low[gpu] = low
            if low == samples:
                self._ask(f"utilization {gpu} {percent:g} {samples}")
        wanted = self.options.reasons()
        bits = values.get("clock_event_reasons")
        if wanted and bits is not None and bits == bits:
            active = [name for name in wanted if int(bits) & THROTTLE_BITS[name]]
            if active and not self._throttled.get(gpu, False):
                self._ask(f"throttling {gpu} {active[0]}")
            self._throttled[gpu] = bool(active)

    def _ask(self, reason: str) -> None:
        if self._asked is None and self._running is None:
            self._asked = reason


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
