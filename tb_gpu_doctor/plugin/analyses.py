"""Run each analysis once, in the background, and keep the results within bounds.

Two people who open the same run share one analysis. A result is kept under a key that
names the files' content, so a rewritten profile is read anew.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from tb_gpu_doctor.errors import ProfileError

_LOG = logging.getLogger("tensorboard")

MAX_RESULTS = 16
MAX_RESULT_BYTES = 1 << 30
# Failures are small, but a logdir can hold any number of broken files.
MAX_FAILURES = 256
WORKERS = 2
# Codes of failures that say nothing of the file.
OWN_FAILURES = ("internal", "out_of_memory")
# The same of one file of several, by words of their own.
OWN_FAILURES_ON_FILES = ("file_failed", "file_out_of_memory", "worker_died")

# Failures of a server or of the way to it, which may be over: tried again when asked for after this time.
PASSING_FAILURES = (
    "remote_unreachable",
    "remote_timeout",
    "remote_changed",
    "remote_credentials",
    "remote_denied",
    "remote_no_room",
)
# Those that say nothing of the file may be over as well: others have given memory back.
_RETRIED = frozenset({*PASSING_FAILURES, *OWN_FAILURES, "worker_died"})
RETRY_S = 10.0

State = Literal["queued", "running", "done", "failed", "unknown"]


class Result(Protocol):
    """What an analysis returns: it must know about how much memory it holds."""

    @property
    def size_bytes(self) -> int:
        """Approximate memory held."""


R = TypeVar("R", bound=Result)
Report = Callable[[str, float], None]


@dataclass(frozen=True)
class Progress:
    """How far an analysis has come; ``progress`` runs from 0 to 1 over all stages."""

    state: State = "unknown"
    stage: str = "reading"
    progress: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The progress object of docs/http_api.md."""
        return {"state": self.state, "stage": self.stage, "progress": round(self.progress, 4)}


class Cancelled(BaseException):
    """Nobody waits for this analysis any more; no ``except Exception`` on its way may take it for a failure."""


class Job(Generic[R]):
    """One analysis. ``result`` is set when done, ``error`` when failed; neither when it was cancelled."""

    def __init__(self, key: str, owner: str, run: Callable[[Report], R]) -> None:
        self.key = key
        self.owner = owner
        self.run = run
        self.progress = Progress("queued")
        self.result: R | None = None
        self.error: ProfileError | None = None
        self.finished = threading.Event()
        self.finished_at = 0.0
        self.cancelled = False
        self.thread: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether it failed, wholly or in part, for a reason that may be gone by now."""
        failed = self.error is not None and self.error.code in _RETRIED
        passing = failed or bool(getattr(self.result, "is_provisional", False))
        return passing and self.finished.is_set() and time.monotonic() - self.finished_at > RETRY_S

    def report(self, stage: str, fraction: float) -> None:
        """Note the progress; the fraction never falls, whatever the stages report.

        Raises:
            Cancelled: to the analysis itself, never to a helper's thread, which could not end it.
        """
        if self.cancelled and threading.get_ident() == self.thread:
            raise Cancelled
        self.progress = Progress("running", stage, min(1.0, max(self.progress.progress, fraction)))


class Analyses(Generic[R]):
    """A few background threads, a queue, and a cache that forgets the least recently used results."""

    def __init__(
        self, max_results: int = MAX_RESULTS, max_bytes: int = MAX_RESULT_BYTES, workers: int = WORKERS
    ) -> None:
        self._max_results = max_results
        self._max_bytes = max_bytes
        self._max_workers = workers
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, Job[R]] = OrderedDict()
        self._queue: queue.SimpleQueue[Job[R]] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, key: str, owner: str, run: Callable[[Report], R]) -> Job[R]:
        """Return the job of ``key``, started if there is none.

        Args:
            key: names the content to analyse.
            owner: names its place; what is cached of its earlier content is dropped.
            run: the analysis; raises `ProfileError` where the content cannot be read.
        """
        with self._lock:
            job = self._jobs.get(key)
            if job is not None and not job.is_over:
                self._jobs.move_to_end(key)
                return job
            if len(self._threads) < self._max_workers:
                # Daemon threads: Ctrl-C must end TensorBoard in the middle of an analysis.
                thread = threading.Thread(target=self._work, name="gpu-doctor-analysis", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the system lets us have no more of them: one does the work of all
                    if not self._threads:
                        raise
                else:
                    self._threads.append(thread)
            for old in [j for j in self._jobs.values() if j.owner == owner and j.progress.state != "running"]:
                del self._jobs[old.key]  # finished, or still queued: then it is never run
            job = Job(key, owner, run)
            self._jobs[key] = job
        self._queue.put(job)
        return job

    def peek(self, key: str) -> Job[R] | None:
        """Return the job of ``key`` without starting one."""
        with self._lock:
            return self._jobs.get(key)

    def cancel(self, key: str) -> bool:
        """Stop the analysis of ``key`` at its next report; whoever still wants it starts it anew by asking.

        Returns whether there was one to stop.
        """
        with self._lock:
            job = self._jobs.get(key)
            if job is None or job.finished.is_set():
                return False
            job.cancelled = True
            # From now on asking means a new analysis; a queued one is thereby never run.
            del self._jobs[key]
            return True

    def _work(self) -> None:
        while True:
            job = self._queue.get()
            with self._lock:
                if self._jobs.get(job.key) is not job:
                    continue
                job.progress = Progress("running")
                job.thread = threading.get_ident()
            try:
                job.result = job.run(job.report)
                job.progress = Progress("done", "diagnosing", 1.0)
            except Cancelled:
                job.progress = Progress("unknown")
            except ProfileError as error:
                job.error = error
            except MemoryError:
                job.error = ProfileError("out_of_memory")
            except Exception as error:
                _LOG.exception("GPU Doctor: the analysis failed")
                job.error = ProfileError("internal", reason=f"{type(error).__name__}: {error}")
            job.finished_at = time.monotonic()
            if job.error is not None:
                # The frames that it came through hold what was read of the file.
                job.error.__traceback__ = job.error.__cause__ = job.error.__context__ = None
                job.progress = Progress("failed", job.progress.stage, job.progress.progress)
            job.run = _used  # what the analysis captured may go
            self._trim()
            job.finished.set()
            del job  # an idle thread must not keep a result that the cache forgot

    def _trim(self) -> None:
        with self._lock:
            candidates = [job for job in self._jobs.values() if job.result is not None]
        # Without the lock, for which requests wait.
        sizes = {job.key: job.result.size_bytes for job in candidates if job.result is not None}
        with self._lock:
            done = [job for job in self._jobs.values() if job.result is not None]
            held = sum(sizes.get(job.key, 0) for job in done)
            # The newest stays whatever its size: somebody waits for it.
            while len(done) > 1 and (len(done) > self._max_results or held > self._max_bytes):
                oldest = done.pop(0)
                held -= sizes.get(oldest.key, 0)
                del self._jobs[oldest.key]
            failed = [job for job in self._jobs.values() if job.error is not None]
            for job in failed[: max(0, len(failed) - MAX_FAILURES)]:
                del self._jobs[job.key]


def _used(_report: Report) -> Any:
    raise RuntimeError("an analysis runs once")
