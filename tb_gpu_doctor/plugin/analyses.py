"""Run each analysis once, in the background, and keep the results within bounds.

Two people who open the same run share one analysis. Its result is kept under a key that names the files' content, so a
rewritten profile is read anew. Viewers who wait keep asking, which tells what somebody still looks at: each viewer's
latest request goes before their earlier ones, and between viewers the one who came first goes first. Requests that
nobody repeats are dropped, and so are those that do not fit into the queue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
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
_RETRIED = frozenset({*PASSING_FAILURES, *OWN_FAILURES, "worker_died", "read_stalled"})
RETRY_S = 10.0
# Asked for so recently: somebody looks at it. The tab asks every second or two.
NOW_S = 5.0
# Nobody has asked for it for so long: nobody waits. Browsers let hidden pages ask once a minute.
LEASE_S = 90.0
# How many may wait for their turn.
MAX_QUEUED = 128

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
    """How far an analysis has come; ``progress`` runs from 0 to 1 over all stages.

    Attributes:
        ahead: while it is queued, how many come before it.
        queued: while it is queued, how many wait for their turn in all.
    """

    state: State = "unknown"
    stage: str = "reading"
    progress: float = 0.0
    ahead: int = 0
    queued: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The progress object of docs/http_api.md."""
        told = {"state": self.state, "stage": self.stage, "progress": round(self.progress, 4)}
        return told | ({"ahead": self.ahead, "queued": self.queued} if self.queued else {})


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
        # Who waits, and when each of them asked last.
        self.waiting: dict[str, float] = {}
        self.first_asked_at = time.monotonic()
        self.last_asked_at = self.first_asked_at

    def ask(self, viewer: str) -> None:
        """Note that somebody waits for it now."""
        self.last_asked_at = self.waiting[viewer] = time.monotonic()

    def waits(self, now: float) -> list[str]:
        """Who still waits for it."""
        return [viewer for viewer, asked_at in self.waiting.items() if now - asked_at <= LEASE_S]

    @property
    def is_over(self) -> bool:
        """Whether it failed, wholly or in part, for a reason that may be gone by now: nobody has asked for a while."""
        failed = self.error is not None and self.error.code in _RETRIED
        passing = failed or bool(getattr(self.result, "is_provisional", False))
        rested_s = time.monotonic() - max(self.finished_at, self.last_asked_at)
        return passing and self.finished.is_set() and rested_s > RETRY_S

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
        self._queue: list[Job[R]] = []
        self._running: set[Job[R]] = set()
        self._changed = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []

    def submit(self, key: str, owner: str, run: Callable[[Report], R], viewer: str = "") -> Job[R]:
        """Return the job of ``key``, put into the queue if there is none.

        Args:
            key: names the content to analyse.
            owner: names its place; what is cached of its earlier content is dropped.
            run: the analysis; raises `ProfileError` where the content cannot be read.
            viewer: who waits for it.
        """
        with self._lock:
            job = self._jobs.get(key)
            if job is not None and not job.is_over:
                job.ask(viewer)
                self._jobs.move_to_end(key)
                return job
            self._start_thread()
            for old in [j for j in self._jobs.values() if j.owner == owner and j.progress.state != "running"]:
                self._forget(old)  # finished, or still queued: then it is never run
            job = Job(key, owner, run)
            job.ask(viewer)
            self._jobs[key] = job
            self._queue.append(job)
            self._make_room()
            self._changed.notify()
        return job

    def _start_thread(self) -> None:
        if len(self._threads) >= self._max_workers:
            return
        # Daemon threads: Ctrl-C must end TensorBoard in the middle of an analysis.
        thread = threading.Thread(target=self._work, name="gpu-doctor-analysis", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system lets us have no more of them: one does the work of all
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def _forget(self, job: Job[R]) -> None:
        """Drop a job; a queued one is thereby never run."""
        if self._jobs.get(job.key) is job:
            del self._jobs[job.key]
        if job in self._queue:
            self._queue.remove(job)

    def _in_order(self) -> list[Job[R]]:
        """What is queued and waited for, in the order in which it is to run; the rest is dropped."""
        now = time.monotonic()
        for job in [job for job in self._queue if not job.waits(now)]:
            self._forget(job)
        wishes: Counter[str] = Counter()
        rank: dict[Job[R], int] = {}
        for job in sorted(self._queue, key=lambda job: -job.first_asked_at):
            viewers = job.waits(now)
            rank[job] = min(wishes[viewer] for viewer in viewers)
            wishes.update(viewers)
        return sorted(self._queue, key=lambda job: (now - job.last_asked_at > NOW_S, rank[job], job.first_asked_at))

    def _make_room(self) -> None:
        """Drop what the queue has no room for, and end work that nobody waits for while others do."""
        for job in self._in_order()[MAX_QUEUED:]:
            self._forget(job)
        if not self._queue or len(self._running) < self._max_workers:
            return
        now = time.monotonic()
        for job in [job for job in self._running if not job.waits(now)]:
            self._end(job)

    def _end(self, job: Job[R]) -> None:
        job.cancelled = True
        # From now on asking means a new analysis.
        self._forget(job)

    def progress(self, job: Job[R]) -> Progress:
        """How far a job has come; one that is queued, behind how many others."""
        with self._lock:
            if job.progress.state != "queued":
                return job.progress
            order = self._in_order()
            ahead = order.index(job) if job in order else len(order)
            return replace(job.progress, ahead=ahead, queued=max(1, len(order)))

    def peek(self, key: str) -> Job[R] | None:
        """Return the job of ``key`` without starting one."""
        with self._lock:
            return self._jobs.get(key)

    def cancel(self, key: str, viewer: str = "") -> bool:
        """Note that a viewer waits no longer; ends the analysis at its next report unless somebody else does.

        Whoever wants it later starts it anew by asking. Returns whether it ends.
        """
        with self._lock:
            job = self._jobs.get(key)
            if job is None or job.finished.is_set():
                return False
            job.waiting.pop(viewer, None)
            if job.waits(time.monotonic()):
                return False
            self._end(job)
            return True

    def retry(self, key: str) -> bool:
        """Forget that the analysis of ``key`` failed, so that asking starts it anew; returns whether it had."""
        with self._lock:
            job = self._jobs.get(key)
            if job is None or job.error is None or not job.finished.is_set():
                return False
            self._forget(job)
            return True

    def _next(self) -> Job[R]:
        """Wait for a job and take it."""
        with self._lock:
            while True:
                order = self._in_order()
                if order:
                    job = order[0]
                    self._queue.remove(job)
                    self._running.add(job)
                    job.progress = Progress("running")
                    job.thread = threading.get_ident()
                    return job
                del order
                self._changed.wait()

    def _work(self) -> None:
        while True:
            job = self._next()
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
            with self._lock:
                self._running.discard(job)
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
