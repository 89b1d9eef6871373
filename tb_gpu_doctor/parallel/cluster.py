"""A Dask cluster behind the interface of `concurrent.futures`: each worker reads its own files.

Workers see the files by the same paths (a shared file system) and have the same version of the doctor installed.
Each keeps the columns of its files, tells them in short and answers questions about them. A worker that dies gives
its files to others, which decode them anew; that is Dask's own doing.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
import time
import urllib.parse
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tb_gpu_doctor import __version__
from tb_gpu_doctor.errors import ClusterError, ProfileError
from tb_gpu_doctor.parallel.compact import unpack
from tb_gpu_doctor.parallel.remote import answer, everywhere, hold, question_of, tell, told_of
from tb_gpu_doctor.parallel.sketch import Sketch, connected
from tb_gpu_doctor.traces.elsewhere import Elsewhere
from tb_gpu_doctor.traces.sessions import ProfileFile

CONNECT_TIMEOUT_S = 5.0
# Batch systems start workers when there is work; longer without any is told.
PATIENCE_S = 60.0
# Waiting with a limit lets Ctrl-C through on every system.
_PULSE_S = 0.2
# How often the scheduler is asked whether there are workers.
_ASK_S = 1.0
# Dask warns of tasks of 10 MB; questions about very many files of one worker are parted.
_QUESTION_BYTES = 4_000_000
# A scheduler that hands out hundreds of files may take a while to answer.
_ANSWER_S = 30.0


@dataclass(frozen=True, eq=False)
class _Place:
    """A file in the memory of some worker: `elsewhere.Elsewhere`, known by the Dask future of what is held."""

    desk: DaskCluster
    held: Any
    path: str


def _held(place: Elsewhere) -> Any:
    assert isinstance(place, _Place)
    return place.held


class DaskCluster(Executor):
    """Runs the files of a session on the workers of a scheduler, which keep them as long as they are asked about.

    Args:
        address: of the scheduler, ``tcp://host:8786``.
        patience_s: how long to wait for a first worker, or for another one where all have gone.

    Raises:
        ProfileError: ``dask_missing``, ``cluster_unreachable``.
    """

    def __init__(self, address: str, patience_s: float = PATIENCE_S) -> None:
        try:
            import distributed  # noqa: F401
        except ImportError:
            raise ClusterError("dask_missing") from None
        address = address if "://" in address else f"tcp://{address}"
        self.address = address
        self.received_bytes = 0
        self._patience_s = patience_s
        _knock(address)
        _hush()
        self._client = _client_of(address)
        self._executor = self._client.get_executor(pure=False)
        self._asked_s = 0.0
        self._seen_s = time.monotonic()
        # Weak, since who stops early never asks what became of the rest.
        self._held: weakref.WeakKeyDictionary[Future[bytes], Any] = weakref.WeakKeyDictionary()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As `concurrent.futures.Executor.submit`."""
        with self._talking():
            future: Future[Any] = self._executor.submit(fn, *args, **kwargs)
        return future

    def submit_file(self, file: ProfileFile) -> Future[bytes]:
        """Decode and analyse a file, which the worker keeps; `outcome` reads what it tells."""
        self._seen_s = time.monotonic()
        with self._talking():
            held = self._client.submit(hold, everywhere(file), __version__, pure=False)
        told = self.submit(tell, held)
        self._held[told] = held
        return told

    def outcome(self, future: Future[bytes], file: ProfileFile) -> Sketch | ProfileError:
        """What became of a file whose future is done; its columns stay where they are.

        Raises:
            ProfileError: the cluster is of no use for any file.
        """
        held = self._held.pop(future, None)
        found = self._result(future, file.path)
        if isinstance(found, ProfileError):
            return found
        told = told_of(found, file)
        if isinstance(told, ProfileError):
            if told.code == "cluster_other_version":
                raise told
            return told
        return connected(told, _Place(self, held, file.path))

    def work(self, function: Callable[..., Any], calls: Sequence[tuple[Elsewhere, tuple[Any, ...]]]) -> list[Any]:
        """As `elsewhere.Desk.work`: one task for all files of a worker, as a rule.

        Raises:
            ProfileError: the cluster is of no use any more, or a file is lost that nobody can read again.
        """
        self._seen_s = time.monotonic()
        places = [place for place, _ in calls]
        answers: list[Any] = [None] * len(calls)
        asked: dict[Future[bytes], list[int]] = {}
        groups = self._by_worker([_held(place) for place in places])
        while groups:
            indices = groups.pop()
            question = question_of(function, [calls[index][1] for index in indices])
            if len(question) > _QUESTION_BYTES and len(indices) > 1:
                half = len(indices) // 2
                groups += [indices[:half], indices[half:]]
                continue
            asked[self.submit(answer, [_held(places[index]) for index in indices], question)] = indices
        pending = set(asked)
        while pending:
            done, pending = wait(pending, _PULSE_S, FIRST_COMPLETED)
            self.check()
            for future in done:
                indices = asked[future]
                found = self._result(future, str(getattr(places[indices[0]], "path", "")))
                told = found if isinstance(found, ProfileError) else unpack(found)
                if isinstance(told, ProfileError):
                    raise told
                for index, item in zip(indices, told, strict=True):
                    answers[index] = item
        return answers

    def _by_worker(self, held: Sequence[Any]) -> list[list[int]]:
        """Indices of files, those that the same worker has together; a lost one is decoded anew by whoever asks."""
        if len(held) == 1:
            return [[0]]
        keys = [future.key for future in held]
        try:
            # With a limit of time, which Dask's own `who_has` does not take.
            where = self._client.sync(self._client.scheduler.who_has, keys=keys, callback_timeout=_ANSWER_S)
        except Exception:
            raise ClusterError("cluster_lost", address=self.address) from None
        groups: dict[str, list[int]] = {}
        for index, future in enumerate(held):
            # Lost ones each alone, so that one worker need not have all of them.
            groups.setdefault(str(next(iter(where.get(future.key, ())), index)), []).append(index)
        return list(groups.values())

    def _result(self, future: Future[bytes], path: str) -> bytes | ProfileError:
        """What a worker sent; an error where the file has killed its workers.

        Raises:
            ProfileError: the cluster is of no use.
        """
        from distributed.scheduler import KilledWorker

        with self._talking():
            try:
                packed = future.result()
            except KilledWorker as error:
                worker = getattr(error.last_worker, "address", "") or ""
                return ClusterError("cluster_worker_died", path, worker=str(worker))
        self.received_bytes += len(packed)
        return packed

    @contextmanager
    def _talking(self) -> Iterator[None]:
        """Whatever Dask raises, as what it means here."""
        try:
            yield
        except CancelledError:  # nobody here cancels what he waits for: the scheduler has forgotten it
            raise ClusterError("cluster_lost", address=self.address) from None
        except Exception as error:
            self.check(force=True)
            raise ClusterError("cluster_failed", address=self.address, reason=_first_line(error)) from error

    def check(self, force: bool = False) -> None:
        """See that there is a scheduler, and a worker within patience.

        Raises:
            ProfileError: ``cluster_lost``, ``cluster_no_workers``.
        """
        now = time.monotonic()
        if now - self._asked_s < _ASK_S and not force:
            return
        self._asked_s = now
        if self._client.status != "running":
            raise ClusterError("cluster_lost", address=self.address)
        try:
            workers = self._client.sync(self._client.scheduler.ncores, callback_timeout=_ANSWER_S)
        except Exception:
            raise ClusterError("cluster_lost", address=self.address) from None
        if workers:
            self._seen_s = time.monotonic()
        elif time.monotonic() - self._seen_s > self._patience_s:
            raise ClusterError("cluster_no_workers", address=self.address, seconds=round(self._patience_s))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, which goes on for others."""
        with contextlib.suppress(Exception):
            self._client.close(timeout=2)


@contextmanager
def dask_cluster(address: str, patience_s: float = PATIENCE_S) -> Iterator[DaskCluster]:
    """A connection to a cluster, for as long as the block runs."""
    cluster = DaskCluster(address, patience_s)
    try:
        yield cluster
    finally:
        cluster.shutdown()


def _hush() -> None:
    """Dask logs every attempt, on loggers that it gives a level of their own; what matters is said once, by us."""
    known = [name for name in logging.root.manager.loggerDict if name.startswith("distributed.")]
    for name in ("distributed", "tornado.application", "asyncio", *known):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _knock(address: str) -> None:
    """See that something listens: Dask's own client is slow to give up, and loud.

    Raises:
        ProfileError: ``cluster_unreachable``.
    """
    reason = "host:port?"
    with contextlib.suppress(ValueError):
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("tcp", "tls"):
            return
        if parts.hostname and parts.port:
            try:
                socket.create_connection((parts.hostname, parts.port), CONNECT_TIMEOUT_S).close()
                return
            except OSError as error:
                reason = error.strerror or str(error)
    raise ClusterError("cluster_unreachable", address=address, reason=reason)


def _client_of(address: str) -> Any:
    """A client of what listens at an address, unless that answers unlike a scheduler, or not at all.

    Raises:
        ProfileError: ``cluster_unreachable``.
    """
    import distributed

    class Client(distributed.Client):
        def __del__(self) -> None:
            """Nothing: a client that was never connected would wait here, and complain."""

    made: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def connect() -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of other versions of this or that library on the workers
                made.put(Client(address, timeout=CONNECT_TIMEOUT_S, set_as_default=False))  # type: ignore[no-untyped-call]
        except BaseException as error:  # what no scheduler sent can be taken for anything, for a huge length too
            made.put(error)

    # In a thread, since Dask's own limit of time holds for a scheduler that keeps silent only.
    threading.Thread(target=connect, name="gpu-doctor-dask", daemon=True).start()
    try:
        client = made.get(timeout=CONNECT_TIMEOUT_S + 2)
    except queue.Empty:
        raise ClusterError("cluster_unreachable", address=address, reason="no answer") from None
    if isinstance(client, MemoryError):
        raise ClusterError("cluster_unreachable", address=address, reason="no Dask") from None
    if isinstance(client, BaseException):
        raise ClusterError("cluster_unreachable", address=address, reason=_first_line(client)) from None
    return client


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0] or type(error).__name__
