"""Decode and analyse the files of a session, in processes of their own where that is quicker.

What comes out is the same either way, file for file and bit for bit.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.files.addresses import is_remote
from tb_gpu_doctor.parallel.cluster import DaskCluster
from tb_gpu_doctor.parallel.one_file import DECODING, ReadFile, read_file
from tb_gpu_doctor.parallel.plan import claimed, wanted_workers
from tb_gpu_doctor.parallel.processes import WorkerDied, WorkerProcesses, WorkersCannotStart
from tb_gpu_doctor.traces.read import FETCHING
from tb_gpu_doctor.traces.sessions import ProfileFile

_LOG = logging.getLogger("tb_gpu_doctor")
# Waiting with a limit lets Ctrl-C through on every system.
_PULSE_S = 0.2

Report = Callable[[str, float], None]
Outcome = ReadFile | ProfileError


# Where everything is read for as long as the command runs, see `working_on`.
_chosen: Executor | None = None


@contextmanager
def working_on(executor: Executor) -> Iterator[None]:
    """Read all files of this process on an executor; for the command, which has one place to say so."""
    global _chosen
    before, _chosen = _chosen, executor
    try:
        yield
    finally:
        _chosen = before


@dataclass
class _Progress:
    """The share of all files' bytes that is done; it never falls, whatever is done again."""

    files: Sequence[ProfileFile]
    report: Report
    _done: list[float] = field(init=False)
    _weights: list[float] = field(init=False)
    _fetched: float = field(init=False)
    _told: tuple[str, float] = ("reading", 0.0)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._done = [0.0] * len(self.files)
        self._fetched = DECODING * FETCHING if any(is_remote(file.path) for file in self.files) else 0.0
        sizes = [max(1, file.size_bytes) for file in self.files]
        self._weights = [size / sum(sizes) for size in sizes]

    def at(self, index: int, fraction: float) -> None:
        """One file has come so far."""
        with self._lock:  # files report in threads of their own, and what is told must rise
            self._done[index] = max(self._done[index], min(1.0, fraction))
            share = sum(weight * done for weight, done in zip(self._weights, self._done, strict=True))
            least = min(self._done)
            stage = "reading" if least < self._fetched else "decoding" if least < DECODING else "analysing"
            self._told = (stage, min(1.0, share))
            self.report(*self._told)

    def pulse(self) -> None:
        """Tell what is known already, from the caller's thread: a listener that wants to stop can raise there."""
        with self._lock:
            self.report(*self._told)

    def of(self, index: int) -> Report:
        """A listener for one file."""
        return lambda _stage, fraction: self.at(index, fraction)


def read_files(
    files: Sequence[ProfileFile], report: Report, executor: Executor | None = None, with_columns: bool = False
) -> list[Outcome]:
    """What became of each file, in order: its facts, or why there are none.

    Args:
        files: of a session.
        report: called with a stage and the share that is done, 0..1, rising; in any thread.
        executor: where to work; by default that of `working_on`, else processes of this machine, or this process
            where few or small files do not pay for others, or where none can be started.
            The arrays of what processes send are read-only.
        with_columns: whether the files' columns are wanted as well; a cluster sends none.

    Raises:
        ProfileError: a cluster is of no use: lost, without workers, of another version.
    """
    work = _Work(files, _Progress(files, report), with_columns)
    executor = executor or _chosen
    if executor is not None:
        return work.finished(work.spread(executor))
    with claimed(wanted_workers(files)) as workers:
        if not workers:
            return [work.here(index) for index in range(len(files))]
        pool = WorkerProcesses(workers)
        try:
            outcomes = work.finished(work.spread(pool))
            pool.shutdown(wait=False)
            return outcomes
        finally:
            pool.kill()


@dataclass(frozen=True)
class _Work:
    """The files to read, and how far they are."""

    files: Sequence[ProfileFile]
    progress: _Progress
    with_columns: bool

    def here(self, index: int) -> Outcome:
        """One file in this process; the only file's failures that are not its own go on to the caller."""
        file = self.files[index]
        try:
            outcome: Outcome = read_file(file, self.with_columns, self.progress.of(index))
        except ProfileError as error:
            outcome = _located(error, file)
        except Exception as error:
            if len(self.files) == 1:
                raise
            outcome = _unexpected(error, file)
        self.progress.at(index, 1.0)
        return outcome

    def spread(self, executor: Executor) -> list[Outcome | BaseException]:
        """Every file's outcome, or the exception that is none of its own; large files go first."""
        files = self.files
        futures: dict[Future[Any], int] = {}
        results: list[Outcome | BaseException] = [WorkersCannotStart("not tried")] * len(files)
        try:
            for index in sorted(range(len(files)), key=lambda index: -files[index].size_bytes):
                try:
                    futures[self._submit(executor, index)] = index
                except RuntimeError as error:  # broken by an earlier task, or shut down
                    results[index] = error
            pending = set(futures)
            while pending:
                done, pending = wait(pending, _PULSE_S, FIRST_COMPLETED)
                self.progress.pulse()
                if isinstance(executor, DaskCluster) and not done:
                    executor.check()
                for future in done:
                    index = futures.pop(future)
                    results[index] = _taken(future, files[index], executor)
                    if not isinstance(results[index], BaseException) or isinstance(results[index], ProfileError):
                        self.progress.at(index, 1.0)
        finally:
            for future in futures:
                future.cancel()
        return results

    def _submit(self, executor: Executor, index: int) -> Future[Any]:
        file = self.files[index]
        if isinstance(executor, DaskCluster):
            return executor.submit_file(file)
        if isinstance(executor, WorkerProcesses):
            return executor.submit_reporting(self.progress.of(index), read_file, file, self.with_columns)
        return executor.submit(read_file, file, self.with_columns)

    def finished(self, results: Sequence[Outcome | BaseException]) -> list[Outcome]:
        """A second try for the files whose process died: alone, so that nothing else takes the memory."""
        outcomes: list[Outcome] = []
        for index, (file, result) in enumerate(zip(self.files, results, strict=True)):
            if isinstance(result, WorkersCannotStart):
                result = self.here(index)
            elif isinstance(result, (BrokenExecutor, MemoryError)):
                _LOG.info("GPU Doctor: the process that read %s ended (%s): trying again", file.path, result)
                result = self._alone(index)
            if isinstance(result, ProfileError) or not isinstance(result, BaseException):
                outcomes.append(result)
            else:
                outcomes.append(_unexpected(result, file))
            self.progress.at(index, 1.0)
        return outcomes

    def _alone(self, index: int) -> Outcome | BaseException:
        pool, file = WorkerProcesses(1), self.files[index]
        progress = _Progress([file], lambda _stage, done: self.progress.at(index, done))
        try:
            result = _Work([file], progress, self.with_columns).spread(pool)[0]
        finally:
            pool.kill()
        if isinstance(result, WorkersCannotStart):
            return self.here(index)
        if isinstance(result, WorkerDied):
            return ProfileError("worker_died", file.path, reason=result.reason)
        return result


def _taken(future: Future[Any], file: ProfileFile, executor: Executor) -> Outcome | BaseException:
    if isinstance(executor, DaskCluster):
        return executor.outcome(future, file)  # which raises what is wrong with the cluster
    try:
        result: ReadFile = future.result()
        return result
    except ProfileError as error:
        return _located(error, file)
    except Exception as error:
        return error


def _located(error: ProfileError, file: ProfileFile) -> ProfileError:
    # Kept with the diagnosis; the frames that it came through hold what was read of the file.
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error if error.path else error.with_path(file.path)


def _unexpected(error: BaseException, file: ProfileFile) -> ProfileError:
    """A failure of ours on one file of many: told, and no reason to hide the others."""
    if isinstance(error, MemoryError):
        return ProfileError("file_out_of_memory", file.path)
    if os.environ.get("GPU_DOCTOR_DEBUG"):
        _LOG.error("GPU Doctor: %s could not be analysed", file.path, exc_info=error)
    return ProfileError("file_failed", file.path, reason=f"{type(error).__name__}: {error}")
