"""Give up reading what never comes: a stale mount, a pipe that nobody writes into.

A read of a local file cannot be given a timeout. So it happens in a thread of its own, which is left behind when it
stalls, or in a process, which is then ended. Slow is not stalled: a process that computes, or whose bytes keep coming
in, is left alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as NotDone
from typing import TypeVar

from tb_gpu_doctor.errors import ProfileError

# Without any progress for so long, a read is given up.
STALL_S = 30.0
# What counts as progress meanwhile: a share of one core, bytes read, pages brought in from a disk.
_CPU_SHARE = 0.01
_BYTES = 1 << 20
_PAGES = 64
_LOOK_EVERY_S = 2.0
# Where the system tells nothing of its processes only the reports of the work count, which may be far between.
_UNSEEN_STALL_S = 1800.0
# Threads that wait for what does not come; beyond that nothing is begun that could wait as well.
MAX_LEFT_BEHIND = 32

# How soon somebody who has lost interest can say so.
PULSE_S = 0.1

T = TypeVar("T")
Report = Callable[[str, float], None]

_left_behind = 0
_lock = threading.Lock()


def within(seconds: float, path: str, function: Callable[[], T]) -> T:
    """``function()``, waited for so long and no longer.

    Args:
        seconds: how long.
        path: what it reads, for the error.
        function: runs in a thread of its own.

    Raises:
        ProfileError: ``read_stalled``; and whatever ``function`` raises.
    """
    global _left_behind
    if _left_behind >= MAX_LEFT_BEHIND:
        raise ProfileError("read_stalled", path, seconds=seconds)
    future: Future[T] = Future()
    given_up = False

    def run() -> None:
        global _left_behind
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)
        with _lock:
            if given_up:
                _left_behind -= 1

    try:
        threading.Thread(target=run, name="gpu-doctor-read", daemon=True).start()
    except RuntimeError:  # the system lets us have no more threads
        return function()
    try:
        return future.result(seconds)
    except NotDone:
        with _lock:
            if future.done():
                return future.result()
            given_up = True
            _left_behind += 1
        raise ProfileError("read_stalled", path, seconds=seconds) from None


def watched(path: str, report: Report, function: Callable[[Report], T]) -> T:
    """``function(report)`` in a thread of its own, which is left behind once it gets no further.

    Args:
        path: what it reads, for the error.
        report: called all the time, in the thread that waits; what it raises ends the waiting, and the work at its
            next report.
        function: the work.

    Raises:
        ProfileError: ``read_stalled``; and whatever ``function`` or ``report`` raise.
    """
    future: Future[T] = Future()
    told = ("reading", 0.0)
    is_over = False

    def listen(stage: str, fraction: float) -> None:
        nonlocal told
        if is_over:
            raise _Over
        told = (stage, fraction)

    def run() -> None:
        try:
            future.set_result(function(listen))
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, name="gpu-doctor-read", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the system lets us have no more threads
        return function(report)
    watch = Watch(lambda: [f"/proc/self/task/{thread.native_id}"])
    try:
        while not wait((future,), PULSE_S).done:
            report(*told)
            if watch.has_stalled(told):
                raise ProfileError("read_stalled", path, seconds=STALL_S)
    finally:
        is_over = True
    return future.result()


class _Over(BaseException):
    """Nobody waits for this work any more; no ``except Exception`` on its way may take it for a failure."""


class Watch:
    """Whether work still gets anywhere.

    Args:
        places: where the system tells of the processes or threads that do it: folders of /proc.
        stall_s: without progress for so long it has stalled.
    """

    def __init__(self, places: Callable[[], Iterable[str]], stall_s: float | None = None) -> None:
        self._places = places
        self._stall_s = STALL_S if stall_s is None else stall_s
        self._since = self._looked = time.monotonic()
        self._told: object = None
        self._signs: tuple[float, int, int] | None = (-1.0, 0, 0)

    def has_stalled(self, told: object) -> bool:
        """Whether nothing has happened for too long; ``told`` is what the work has reported of itself."""
        now = time.monotonic()
        if told != self._told:
            self._told, self._since, self._signs = told, now, (-1.0, 0, 0)
        if now - self._looked < min(_LOOK_EVERY_S, self._stall_s / 4):
            return False
        self._looked = now
        signs = _signs_of(self._places())
        if signs is None:
            return now - self._since > max(self._stall_s, _UNSEEN_STALL_S)
        before = self._signs
        moved = before is None or (
            signs[0] - before[0] > _CPU_SHARE * self._stall_s
            or signs[1] - before[1] > _BYTES
            or signs[2] - before[2] > _PAGES
            or signs[0] < before[0]
        )
        if moved:
            self._since, self._signs = now, signs
        return now - self._since > self._stall_s


def places_of(pids: Iterable[int]) -> list[str]:
    """Where the system tells of processes and of all that they have started."""
    return [f"/proc/{pid}" for pid in _family(pids)]


def end(pids: Iterable[int]) -> None:
    """End processes with all their children, one of which may wait for ever."""
    for pid in _family(pids):
        with contextlib.suppress(OSError):
            os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))


def _family(pids: Iterable[int]) -> list[int]:
    """The processes and all that they have started, where the system tells."""
    found = list(pids)
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    children.setdefault(int(_stat(f"/proc/{name}")[1]), []).append(int(name))
    for pid in found:
        found += [child for child in children.get(pid, []) if child not in found]
    return found


def _stat(place: str) -> list[str]:
    """The fields of its ``stat`` from the state on: the name before them may hold anything."""
    with open(f"{place}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def _signs_of(places: Iterable[str]) -> tuple[float, int, int] | None:
    """Seconds of work, bytes read and pages brought in, of all together; None where the system does not tell."""
    if not os.path.exists("/proc/self/stat"):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    work, read, pages = 0.0, 0, 0
    for place in places:
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = _stat(place)
            pages += int(fields[9])
            work += (int(fields[11]) + int(fields[12])) / ticks
        with contextlib.suppress(OSError, ValueError), open(f"{place}/io", encoding="ascii") as file:
            read += int(file.readline().split()[1])
    return work, read, pages
