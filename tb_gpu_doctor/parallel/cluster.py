"""A Dask cluster behind the interface of `concurrent.futures`: each worker reads its own files.

Workers see the files by the same paths (a shared file system) and have the same version of the doctor installed.
Each sends the facts of its files, which are small, and keeps nothing. A worker that dies gives its files to others,
which read them anew; that is Dask's own doing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import threading
import time
import urllib.parse
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tb_gpu_doctor import __version__
from tb_gpu_doctor.analysis.facts import FileFacts
from tb_gpu_doctor.errors import ClusterError, ProfileError
from tb_gpu_doctor.parallel.one_file import ReadFile, read_file
from tb_gpu_doctor.parallel.packed_facts import pack, unpack
from tb_gpu_doctor.traces.sessions import ProfileFile

CONNECT_TIMEOUT_S = 5.0
# Batch systems start workers when there is work; longer without any is told.
PATIENCE_S = 60.0
# How often the scheduler is asked whether there are workers.
_ASK_S = 1.0
# A scheduler that hands out hundreds of files may take a while to answer.
_ANSWER_S = 30.0


class DaskCluster(Executor):
    """Runs the files of a session on the workers of a scheduler.

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

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As `concurrent.futures.Executor.submit`."""
        with self._talking():
            future: Future[Any] = self._executor.submit(fn, *args, **kwargs)
        return future

    def submit_file(self, file: ProfileFile) -> Future[bytes]:
        """Read a file on a worker; `outcome` says what became of it."""
        self._seen_s = time.monotonic()
        return self.submit(facts_to_send, everywhere(file), __version__)

    def outcome(self, future: Future[bytes], file: ProfileFile) -> ReadFile | ProfileError:
        """What became of a file whose future is done.

        Raises:
            ProfileError: the cluster is of no use for any file.
        """
        found = self._result(future, file.path)
        if isinstance(found, ProfileError):
            return found
        sent = sent_facts(found, file)
        if isinstance(sent, ProfileError):
            if sent.code == "cluster_other_version":
                raise sent
            return sent
        return ReadFile(sent)

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


def facts_to_send(file: ProfileFile, version: str) -> bytes:
    """The packed facts of a file, or the reason why there are none; runs on a worker.

    Args:
        file: with a path that means the same everywhere.
        version: the doctor's that asks; another one could give other numbers.
    """
    return packed_facts(_facts_of(file, version))


def packed_facts(facts: FileFacts | ProfileError) -> bytes:
    """The bytes of facts, or of the reason why there are none."""
    return pack(facts)


def _facts_of(file: ProfileFile, version: str) -> FileFacts | ProfileError:
    here = socket.gethostname()
    if version != __version__:
        return ProfileError("cluster_other_version", file.path, worker=here, theirs=__version__, ours=version)
    try:
        if "://" not in file.path:
            os.stat(file.path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return ProfileError("file_not_on_worker", file.path, worker=here, reason=reason)
    try:
        return read_file(file).facts
    except ProfileError as error:
        return error if error.path else error.with_path(file.path)
    except MemoryError:
        return ProfileError("file_out_of_memory", file.path)
    except Exception as error:
        return ProfileError("file_failed", file.path, reason=f"{type(error).__name__}: {error}")


def sent_facts(packed: bytes, file: ProfileFile) -> FileFacts | ProfileError:
    """What `facts_to_send` sent, under the path that the caller gave."""
    found: FileFacts | ProfileError = unpack(packed)
    return found.with_path(file.path) if isinstance(found, ProfileError) else replace(found, path=file.path)


def everywhere(file: ProfileFile) -> ProfileFile:
    """The file by a path that does not depend on the current folder."""
    return file if "://" in file.path else replace(file, path=os.path.abspath(file.path))


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
