"""Worker processes behind the interface of `concurrent.futures`.

`concurrent.futures.ProcessPoolExecutor` does not fit where the doctor runs. It either forks, which is unsafe
beside TensorBoard's threads, or imports the caller's main module once more in every worker: that starts an
unguarded training script again, and all of TensorBoard. Its workers outlive a parent that is killed, and one
worker that dies takes everybody's work with it.

Here a worker is a plain new interpreter that imports the doctor and nothing of the caller's, talks through
pipes and ends with them. One that dies fails its own task only.

Workers of a server stand back behind it: they have a low priority, give the memory of a task back when it is done,
and end when there has been nothing to do for a while.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, field
from typing import Any

from tb_gpu_doctor.parallel.transport import Reader
from tb_gpu_doctor.parallel.worker import Done, Progress, Raised, Ready, Task

# Isolated: no module beside the profiles may be taken for one of ours. The path comes from this process.
_BOOT = (
    "import pickle, sys; sys.path[:], *how = pickle.load(sys.stdin.buffer);"
    " from tb_gpu_doctor.parallel.worker import main; main(*how)"
)
# Importing numpy from a cold network disk takes long; longer than this is no Python that works.
START_TIMEOUT_S = 60.0
_CLOSING_S = 2.0
_PIPE_BYTES = 1 << 20
# After so long without work a worker of a server ends; the next task starts another.
IDLE_S = 60.0

Report = Callable[[str, float], None]


class WorkersCannotStart(BrokenExecutor):
    """No worker process can be started here."""


class WorkerDied(BrokenExecutor):
    """A worker ended in the middle of a task; ``reason`` is the signal's name or the exit status."""

    def __init__(self, status: int | None) -> None:
        self.reason = _reason(status)
        super().__init__(self.reason)


class _There(Exception):
    """The traceback of another process, shown as the cause of an exception that came from there."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _reason(status: int | None) -> str:
    if status is not None and status < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-status).name
    return f"exit status {status}"


@dataclass
class _Job:
    task: Task
    report: Report | None = None
    future: Future[Any] = field(default_factory=Future)


class WorkerProcesses(Executor):
    """Runs calls in up to ``count`` processes, which start when they are needed.

    Functions and arguments must be picklable. Arrays in results are read-only.

    Args:
        count: of processes.
        background: they work for a server that must go on answering (see above).
        idle_s: when a background process ends that has nothing to do.
    """

    def __init__(self, count: int, background: bool = False, idle_s: float = IDLE_S) -> None:
        self._count = max(1, count)
        self._background = background
        self._idle_s = idle_s if background else None
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._workers: set[_Worker] = set()
        self._closed = self._killed = False
        self._unstartable: WorkersCannotStart | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As `concurrent.futures.Executor.submit`."""
        return self._put(_Job(Task(fn, args, kwargs)))

    def submit_reporting(self, report: Report, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """As `submit`; ``fn`` gets a function of (stage, fraction) as its last argument, which ends up at ``report``.

        ``report`` is called in a thread of this executor.
        """
        return self._put(_Job(Task(fn, args, {}, reports=True), report))

    def _put(self, job: _Job) -> Future[Any]:
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if len(self._threads) < self._count:
                # Daemon threads: the interpreter must be able to end in the middle of a task.
                thread = threading.Thread(target=self._serve, name="gpu-doctor-file", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the system lets us have no more of them
                    if not self._threads:
                        raise WorkersCannotStart(str(error)) from None
                else:
                    self._threads.append(thread)
            self._jobs.put(job)
        return job.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As `concurrent.futures.Executor.shutdown`."""
        with self._lock:
            self._closed = True
            if cancel_futures:
                self._cancel_waiting()
            for _ in self._threads:
                self._jobs.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    @property
    def pids(self) -> list[int]:
        """Of the processes that there are now."""
        with self._lock:
            return [worker.pid for worker in self._workers]

    def kill(self) -> None:
        """End at once: all processes are gone when this returns, tasks that ran fail with `WorkerDied`."""
        with self._lock:
            self._closed = self._killed = True
            self._cancel_waiting()
            workers = list(self._workers)
            for _ in self._threads:
                self._jobs.put(None)
        for worker in workers:
            worker.kill()
        for thread in self._threads:
            thread.join(_CLOSING_S)

    def _cancel_waiting(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                job = self._jobs.get_nowait()
                if job is not None and job.future.cancel():
                    job.future.set_running_or_notify_cancel()  # tells those who wait for it

    def _serve(self) -> None:
        worker: _Worker | None = None
        while True:
            try:
                job = self._jobs.get(timeout=None if worker is None else self._idle_s)
            except queue.Empty:
                assert worker is not None
                self._ended(worker)
                worker = None
                continue
            if job is None:
                break
            try:
                worker = worker or self._started()
            except BrokenExecutor as error:
                if self._left_to_others(job):
                    return
                if job.future.set_running_or_notify_cancel():
                    job.future.set_exception(error)
                continue
            if not job.future.set_running_or_notify_cancel():
                continue
            try:
                result = worker.run(job.task, job.report)
            except BaseException as error:
                if isinstance(error, BrokenExecutor) or not worker.is_idle:
                    self._ended(worker)
                    worker = None
                job.future.set_exception(error)
            else:
                job.future.set_result(result)
                del result
            del job  # an idle thread must not keep a result
        if worker is not None:
            self._ended(worker)

    def _left_to_others(self, job: _Job) -> bool:
        """Give a task to the processes that do run, when there can be no more of them."""
        with self._lock:
            if self._closed or not self._workers:
                return False
            self._jobs.put(job)
            return True

    def _started(self) -> _Worker:
        if self._unstartable is not None:  # not tried for every task: it can take a minute to find out
            raise self._unstartable
        try:
            worker = _Worker(self._background)
        except WorkersCannotStart as error:
            self._unstartable = error
            raise
        with self._lock:
            self._workers.add(worker)
            killed = self._killed
        if killed:
            self._ended(worker)
            raise WorkerDied(-int(signal.SIGTERM))
        try:
            worker.greet()
        except WorkersCannotStart as error:
            self._unstartable = error
            self._ended(worker)
            raise
        return worker

    def _ended(self, worker: _Worker) -> None:
        worker.close()
        with self._lock:
            self._workers.discard(worker)


class _Worker:
    """One process and the pipes to it.

    Raises:
        WorkersCannotStart: there can be no process.
    """

    def __init__(self, background: bool) -> None:
        if not sys.executable or getattr(sys, "frozen", False):
            raise WorkersCannotStart("no Python interpreter to start")
        # A scratch file only grows, and a background worker has no end.
        scratch = None if background else _scratch_file()
        number = None if scratch is None else scratch.fileno()
        command = [sys.executable, "-I", *(["-B"] if sys.flags.dont_write_bytecode else [])]
        command += [*(["-X", "utf8"] if sys.flags.utf8_mode else []), "-c", _BOOT]
        apart: dict[str, Any] = {"start_new_session": True}  # Ctrl-C in a terminal is not for it
        if sys.platform == "win32":
            low = subprocess.BELOW_NORMAL_PRIORITY_CLASS if background else 0
            apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW | low}
        elif number is not None:
            apart["pass_fds"] = (number,)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # One thread each for numpy's linear algebra, of which the analyses need none.
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
                **apart,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise WorkersCannotStart(str(error)) from None
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        _widen(self._output)
        self._scratch = scratch
        self._number = number
        self._background = background
        self._reader = Reader(number)
        # False in the middle of a task: whatever comes next through the pipe belongs to it.
        self.is_idle = True

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def greet(self) -> None:
        """Wait until the process can work; it is killed if that takes too long."""
        timer = threading.Timer(START_TIMEOUT_S, self.kill)
        timer.daemon = True
        try:
            timer.start()
            pickle.dump((list(sys.path), self._number, self._background), self._input, protocol=5)
            self._input.flush()
            if not isinstance(pickle.load(self._output), Ready):
                raise ValueError("a strange answer")
        except Exception as error:  # what else writes to the pipe, before the doctor has it, may read as anything
            raise WorkersCannotStart(f"{type(error).__name__}: {error}") from None
        finally:
            timer.cancel()

    def run(self, task: Task, report: Report | None) -> Any:
        """The result of a task, or its exception.

        Raises:
            WorkerDied: the process ended.
            Exception: also what ``report`` raises; then the process is not idle, and of no further use.
        """
        sent = pickle.dumps(task, protocol=5)  # its own failures are the caller's, not the pipe's
        self.is_idle = False
        try:
            self._input.write(sent)
            self._input.flush()
        except OSError:
            raise WorkerDied(self._status()) from None
        while True:
            try:
                message = pickle.load(self._output)
            except (OSError, EOFError, pickle.UnpicklingError):
                raise WorkerDied(self._status()) from None
            if isinstance(message, Progress):
                if report is not None:
                    report(message.stage, message.fraction)
                continue
            self.is_idle = True
            if isinstance(message, Raised):
                raise message.error from _There(message.where)
            if isinstance(message, Done):
                return self._reader.unpack(message.result)

    def kill(self) -> None:
        """End the process at once."""
        with contextlib.suppress(OSError):
            self._process.kill()

    def close(self) -> None:
        """Let the process end, and see that it does."""
        for pipe in (self._input, self._output):
            with contextlib.suppress(OSError, ValueError):
                pipe.close()
        self._status()
        if self._scratch is not None:
            self._scratch.close()  # mappings of it stay

    def _status(self) -> int | None:
        try:
            return self._process.wait(_CLOSING_S)
        except subprocess.TimeoutExpired:
            self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(_CLOSING_S)
        return None


def _widen(pipe: Any) -> None:
    """Let a pipe hold more, where the system can: at each refill the reader competes with all other threads."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _scratch_file() -> Any:
    """A file without a name, so that nothing can be left over; None where a process cannot inherit one."""
    if sys.platform == "win32":
        return None
    try:
        return tempfile.TemporaryFile(prefix="gpu-doctor-", buffering=0)
    except OSError:
        return None
