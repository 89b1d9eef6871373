"""Watches, from a thread of its own, what stands still without an error: training's steps, and calls of the driver.

It only reports, and neither ends nor delays anything. When training stops making steps, one line says so; on request,
the stacks of all Python threads and the GPUs' last values go into the recording, so that the ranks of a job can be
compared. A process that hangs while it holds Python's lock stops this thread as well. For that case a timer of
`faulthandler`, which needs no lock, writes the stacks into a file beside the recording; this thread winds it up again
as long as it runs.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from statistics import median
from types import FrameType
from typing import IO, Any, Literal

from tb_gpu_doctor.files.secrets import without_secrets
from tb_gpu_doctor.monitor.notes import LOG, Notes, never_raises
from tb_gpu_doctor.recording_format import STACKS_FILE, frame_text, parse_stacks

OnHang = Literal["dump", "log"]
# No step for so long, and for so many steps of the usual length, is a hang.
HANG_SECONDS = 60.0
HANG_STEPS = 20.0
_LEAST_STEPS = 3
# A question to the driver takes milliseconds.
DRIVER_CALL_SECONDS = 10.0
_TICK_SECONDS = 1.0
# How often the timer is wound up: it then runs out so much later than a hang is told.
_WIND_SECONDS = 5.0
_MOST_THREADS, _MOST_FRAMES = 200, 60


class Watchdog:
    """Is told of steps, and tells when they stop coming.

    Args:
        notes: takes the line.
        keep: takes a fact, such as ``hang``, for the recording.
        show: takes a text for TensorBoard, as Markdown.
        on_hang: ``dump`` for stacks and GPU values, ``log`` for the line alone, None for nothing.
    """

    def __init__(
        self,
        notes: Notes,
        keep: Callable[[str, Mapping[str, Any]], None],
        show: Callable[[str, str, int], None],
        on_hang: OnHang | None,
    ) -> None:
        self._notes, self._keep, self._show, self._on_hang = notes, keep, show, on_hang
        # Whether training does something beside stepping (validation, a profile being written)
        self.resting: Callable[[], bool] = lambda: False
        # Whether a step has begun and not ended; None where nobody knows.
        self.in_step: Callable[[], bool | None] = lambda: None
        # Name and beginning of the driver's call that runs, if one does.
        self.driver_call: Callable[[], tuple[str, float] | None] = lambda: None
        # The last sample: values by metric of each GPU.
        self.gpus: Callable[[], list[dict[str, float]]] = lambda: []
        self._durations_ns: deque[int] = deque(maxlen=100)
        self._number = -1
        self._since = time.monotonic()
        self._hang: dict[str, Any] | None = None
        self._told_call: float | None = None
        # The folder of the recording, None while there is none, or it is on no disk of this machine.
        self.folder: Callable[[], str | None] = lambda: None
        self._timer = LockTimer()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-doctor-watchdog", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread soon."""
        self._stop.set()
        with contextlib.suppress(Exception):
            self._timer.close()

    def step(self, number: int, duration_ns: int) -> None:
        """A step ended; called by training, so it only puts that down."""
        self._number, self._since = number, time.monotonic()
        self._durations_ns.append(duration_ns)

    def failed(self, part: str, error: Exception) -> None:
        """Only of use to whoever looks for it."""
        LOG.debug("%s failed", part, exc_info=error)

    def _run(self) -> None:
        while not self._stop.wait(_TICK_SECONDS):
            self.look()
            self._wind_up()

    @never_raises("watching")
    def look(self) -> None:
        """Look once."""
        self._look_at_driver()
        if self._on_hang is not None:
            self._look_at_steps()

    @never_raises("watching")
    def _wind_up(self) -> None:
        """Let the timer begin anew, and tell what it wrote meanwhile."""
        if self._on_hang != "dump" or self._stop.is_set():
            return
        lengths = list(self._durations_ns)
        if len(lengths) < _LEAST_STEPS or self.resting():
            self._timer.rest()
            return
        threads, seconds = self._timer.wind(self.folder(), max(HANG_SECONDS, HANG_STEPS * median(lengths) / 1e9))
        if threads:
            self._notes.tell("lock_held", step=self._number, seconds=round(seconds))
            self._keep("lock_held", {"step": self._number, "seconds": seconds, "resumed": True, "threads": threads})

    def _look_at_driver(self) -> None:
        call = self.driver_call()
        if call is None or call[1] == self._told_call or time.monotonic() - call[1] < DRIVER_CALL_SECONDS:
            return
        self._told_call = call[1]
        self._notes.tell("nvml_hangs", call=call[0], seconds=round(time.monotonic() - call[1]))

    def _look_at_steps(self) -> None:
        now, since = time.monotonic(), self._since
        if self.resting():
            if self._hang is None:
                self._since = now
            return
        if self._hang is not None:
            if since > self._hang["since"]:
                self._go_on(since)
            return
        lengths = list(self._durations_ns)
        if len(lengths) < _LEAST_STEPS:
            return
        usual = median(lengths) / 1e9
        if now - since >= max(HANG_SECONDS, HANG_STEPS * usual):
            self._tell_hang(since, now - since, usual)

    def _tell_hang(self, since: float, seconds: float, usual: float) -> None:
        number = self._number
        self._hang = {"since": since}
        self._notes.tell("no_step", step=number, seconds=round(seconds), usual=f"{usual:.3g}")
        values: dict[str, Any] = {
            "step": number,
            "since_unix_ns": time.time_ns() - round(seconds * 1e9),
            "usual_seconds": usual,
            "in_step": self.in_step(),
            "resumed": False,
        }
        if self._on_hang == "dump":
            values |= {"threads": stacks(), "gpus": self.gpus()}
            self._show("gpu_doctor/hang", hang_markdown(values), max(number, 0))
        self._hang |= values
        self._keep("hang", values)

    def _go_on(self, at: float) -> None:
        hang, self._hang = self._hang, None
        if hang is None:
            return
        seconds = at - hang.pop("since")
        self._notes.tell("steps_go_on", step=hang["step"], seconds=round(seconds))
        self._keep("hang", {**hang, "resumed": True, "seconds": seconds})


_timers: weakref.WeakSet[LockTimer] = weakref.WeakSet()


def _before_fork() -> None:
    for timer in list(_timers):
        timer.before_fork()


def _after_fork(child: bool) -> None:
    for timer in list(_timers):
        timer.after_fork(child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(False),
        after_in_child=lambda: _after_fork(True),
    )


class LockTimer:
    """`faulthandler`'s timer: where nobody winds it up any more, it writes all stacks without asking for Python's lock.

    There is one such timer in a process. It only writes; nothing is ended.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._wound = 0.0
        self._seconds = 0.0
        # Threads end it and others wind it.
        self._guard = threading.Lock()
        self._closed = False
        _timers.add(self)

    def before_fork(self) -> None:
        """Take the timer away: a child that had it, and not its thread, would wait for that thread at its end."""
        self._guard.acquire()
        if self._wound:
            faulthandler.cancel_dump_traceback_later()
            self._wound = 0.0

    def after_fork(self, child: bool) -> None:
        """Go on in the parent, where the timer is wound up at the next look."""
        if child:
            self._closed, self._file = True, None
        with contextlib.suppress(RuntimeError):  # made while another thread forked
            self._guard.release()

    def wind(self, folder: str | None, seconds: float) -> tuple[list[dict[str, Any]], float]:
        """Begin anew to count; returns what it has written since the last time, and after how long a silence."""
        with self._guard:
            now = time.monotonic()
            if self._closed or (self._file is not None and now - self._wound < _WIND_SECONDS):
                return [], 0.0
            if self._file is None:
                self._file = _stacks_file(folder)
            faulthandler.cancel_dump_traceback_later()
            told, silence = self._told(), now - (self._wound or now)
            faulthandler.dump_traceback_later(seconds, file=self._file)
            self._wound, self._seconds = now, seconds
            return told, silence

    def rest(self) -> None:
        """Count no further for now."""
        with self._guard:
            if self._wound:
                faulthandler.cancel_dump_traceback_later()
                self._wound = 0.0

    def close(self) -> None:
        """End it, and take the file away."""
        with self._guard:
            self._closed = True
            if self._file is None:
                return
            faulthandler.cancel_dump_traceback_later()
            self._file.close()
            with contextlib.suppress(OSError):
                os.unlink(self._file.name)
            self._file = None

    def _told(self) -> list[dict[str, Any]]:
        """What the file holds; it is empty afterwards."""
        assert self._file is not None
        if not os.fstat(self._file.fileno()).st_size:
            return []
        self._file.seek(0)
        told = parse_stacks(self._file.read().decode("utf-8", "replace"), threading.main_thread().ident)
        self._file.seek(0)
        self._file.truncate()
        return told


def _stacks_file(folder: str | None) -> IO[bytes]:
    """An empty file beside the recording; of a recording on a store, among this machine's temporary files."""
    if folder is None:
        return tempfile.NamedTemporaryFile("w+b", prefix="gpu_doctor_", suffix=f"_{STACKS_FILE}", delete=False)
    return open(os.path.join(folder, STACKS_FILE), "w+b")


def stacks() -> list[dict[str, Any]]:
    """Where every Python thread stands: ``name``, ``main``, and ``frames`` from the innermost outwards."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    found: list[dict[str, Any]] = []
    for ident, frame in list(sys._current_frames().items())[:_MOST_THREADS]:
        name = names.get(ident, str(ident))
        if not name.startswith("gpu-doctor-"):
            found.append({"name": name, "main": ident == main, "frames": _frames(frame)})
    return sorted(found, key=lambda thread: (not thread["main"], thread["name"]))


def _frames(frame: FrameType | None) -> list[str]:
    """``file:line function``; of the path only the end, since the rest tells of the machine and not of the program."""
    found: list[str] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        code = frame.f_code
        found.append(without_secrets(frame_text(code.co_filename, frame.f_lineno, code.co_name)))
        frame = frame.f_back
    return found


def hang_markdown(values: Mapping[str, Any]) -> str:
    """The dump as TensorBoard's Text tab shows it."""
    lines = [f"No step after step {values['step']}; steps usually took {values['usual_seconds']:.3g} s.", ""]
    for index, gpu in enumerate(values["gpus"]):
        shown = ", ".join(f"{name} {value:g}" for name, value in gpu.items() if value == value)
        lines += [f"- GPU {index}: {shown}"]
    for thread in values["threads"]:
        lines += ["", f"**{thread['name']}**", "", *(f"    {frame}" for frame in thread["frames"])]
    return "\n".join(lines)
