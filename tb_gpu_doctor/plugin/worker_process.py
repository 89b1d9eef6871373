"""Work that a request needs, in a process of its own.

Reading a profile would keep TensorBoard's interpreter busy, so that all its other requests, those of other plugins
included, would hardly get a turn, and would leave it with memory that the C library never gives back. So the work is
done elsewhere, and TensorBoard's process only gets the result.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tb_gpu_doctor.cache.store import own_version
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.parallel.plan import claimed, may_start_processes
from tb_gpu_doctor.parallel.processes import WorkerDied, WorkerProcesses, WorkersCannotStart
from tb_gpu_doctor.parallel.resources import usable_cores
from tb_gpu_doctor.plugin.stalled_reads import PULSE_S, STALL_S, Watch, end, places_of, watched

_OWN_VARIABLES = "GPU_DOCTOR_"

T = TypeVar("T")
Report = Callable[[str, float], None]

_lock = threading.Lock()
_idle: list[WorkerProcesses] = []
_busy = 0


def in_worker_process(report: Report, path: str, function: Callable[..., T], *arguments: Any) -> T:
    """``function(*arguments, report)``, computed in another process.

    Where none can be started, where the user wants none, and where the package has been replaced under this process,
    it is computed here.

    Args:
        report: called with a stage and the share that is done, in any thread; what it raises in this one ends the work.
        path: what the work is about, for errors.
        function: picklable, as are its arguments and its result.
        arguments: of it.

    Raises:
        ProfileError: ``worker_died``, twice; ``read_stalled`` where it gets no further.
        Exception: whatever ``function`` raises.
    """
    if not may_start_processes():
        return watched(path, report, functools.partial(function, *arguments))
    try:
        try:
            return _once(report, path, function, *arguments)
        except WorkerDied:  # ended from outside, perhaps for others' memory
            return _once(report, path, function, *arguments)
    except WorkerDied as error:
        raise ProfileError("worker_died", path, reason=error.reason) from None
    except WorkersCannotStart:
        return watched(path, report, functools.partial(function, *arguments))


def _once(report: Report, path: str, function: Callable[..., T], *arguments: Any) -> T:
    told = ("reading", 0.0)

    def listen(stage: str, fraction: float) -> None:
        nonlocal told
        told = (stage, fraction)
        report(stage, fraction)

    with _process() as lease:
        future = lease.pool.submit_reporting(
            listen, _work, own_version(), _variables(), lease.others, function, *arguments
        )
        watch = Watch(lambda: places_of(lease.pool.pids))
        while not wait((future,), PULSE_S).done:
            report(*told)  # here a caller that nobody waits for any more raises
            if watch.has_stalled(told):
                end(lease.pool.pids)
                raise ProfileError("read_stalled", path, seconds=STALL_S)
        lease.is_free = not isinstance(future.exception(), WorkersCannotStart)
        result: T = future.result()
        return result


@dataclass
class _Lease:
    """A process that nobody else uses meanwhile; ``others`` are in use beside it."""

    pool: WorkerProcesses
    others: int
    is_free: bool = False


@contextmanager
def _process() -> Iterator[_Lease]:
    """A process, kept for the next one who asks unless it was left in the middle of something."""
    global _busy
    with _lock:
        lease = _Lease(_idle.pop() if _idle else WorkerProcesses(1, background=True), _busy)
        _busy += 1
    try:
        yield lease
    finally:
        with _lock:
            _busy -= 1
            if lease.is_free:
                _idle.append(lease.pool)
        if not lease.is_free:
            lease.pool.kill()


def _variables() -> dict[str, str]:
    """What the user has set for the doctor: a process may be older than that."""
    return {name: value for name, value in os.environ.items() if name.startswith(_OWN_VARIABLES)}


def _work(version: str, variables: dict[str, str], others: int, function: Callable[..., T], *arguments: Any) -> T:
    """Run in the process; ``others`` work beside it, so that it takes its share of the cores only.

    Raises:
        WorkersCannotStart: this process has other code than the one that asks, which could not read its answer.
    """
    if own_version() != version:
        raise WorkersCannotStart("another version")
    for name in [name for name in os.environ if name.startswith(_OWN_VARIABLES)]:
        del os.environ[name]
    os.environ.update(variables)
    cores = usable_cores()
    with claimed(cores - max(1, cores // (others + 1)), cores):
        return function(*arguments)


def end_idle() -> None:
    """End the processes that wait for work."""
    with _lock:
        pools = _idle[:]
        _idle.clear()
    for pool in pools:
        pool.kill()
