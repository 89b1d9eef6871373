"""Asking a server: opened once, by as many threads as there are, with an end to every wait."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from tb_gpu_doctor.errors import RemoteError
from tb_gpu_doctor.files.addresses import scheme_of, split_address
from tb_gpu_doctor.files.backend_errors import translated
from tb_gpu_doctor.files.backends import call, open_backend, secrets_of
from tb_gpu_doctor.files.lines import Lines, another_sftp
from tb_gpu_doctor.files.parallel_calls import waited_for, within
from tb_gpu_doctor.files.patience import ask_timeout_s, call_timeout_s

Result = TypeVar("Result")

# The server is part of the address, and what follows it the path, whatever signs are in that.
_HOSTS = frozenset({"ftp", "sftp", "ssh", "smb", "hdfs", "arrow_hdfs", "webhdfs"})
# The user is part of the address that the backend reads.
_USER_IN_PATH = frozenset({"http", "https"})
# One line to the server, which breaks when it is idle for long: it is opened anew, once.
_LINES = frozenset({"ftp", "sftp", "ssh", "smb"})
# How many lines that carry one question at a time; servers allow few.
_MOST_LINES = {"ftp": 1, "sftp": 4, "ssh": 4}
# There is nothing to be read without the name of a bucket or server.
_NEED_A_PLACE = frozenset({"gs", "gcs", "s3", "s3a", "az", "abfs", "abfss", "http", "https", "webhdfs", "smb"}) | _LINES
# Opening that takes this many times as long as is waited for it is begun anew.
_STUCK_FACTOR = 6.0


class Connection:
    """A server or bucket, and the credentials of the addresses that name it; they are kept here and nowhere else."""

    def __init__(self, place: str) -> None:
        self.scheme = scheme_of(place) or ""
        self._place = place
        self._user = ""
        self._queries: dict[str, str] = {}
        self._lock = threading.Lock()
        self._opening: Future[Lines] | None = None
        self._since = 0.0

    def learn(self, user: str, path: str, query: str) -> bool:
        """Take the credentials of an address; whether its user is another one than before."""
        with self._lock:
            if query:
                self._queries[path] = query
            if not user or user == self._user:
                return False
            self._user, self._opening = user, None
            return True

    def address(self, path: str) -> str:
        """The address behind a shown path, with its credentials: to open it, never to show it."""
        scheme, _, place, _ = split_address(path)
        query, longest = "", -1
        for root, found in list(self._queries.items()):
            if (path == root or path.startswith(root.rstrip("/") + "/")) and len(root) > longest:
                query, longest = found, len(root)
        return f"{scheme}{self._user}{place}{query}"

    def translated(self, error: BaseException, seconds: float = 0.0) -> OSError:
        """What a backend's exception means, see `errors.translated`; ``seconds`` is how long we waited for it."""
        secrets = (*secrets_of(f"{self.scheme}://{self._user}host/"), self._user, *list(self._queries.values()))
        return translated(error, self.scheme, secrets, seconds)

    def ask(self, name: str, path: str, **named: Any) -> Any:
        """A short answer about a path: `call` with little patience.

        Raises:
            OSError: as `errors.translated` has it.
        """
        return self.call(name, path, ask_timeout_s(), **named)

    def call(self, name: str, path: str, timeout_s: float, **named: Any) -> Any:
        """What a method of the backend answers about a shown path.

        Args:
            name: of the method.
            path: a shown one.
            timeout_s: no longer than this is waited.
            named: further arguments.

        Raises:
            OSError: as `errors.translated` has it.
        """
        ends = time.monotonic() + timeout_s

        def work(lines: Lines) -> Any:
            with lines.one(ends - time.monotonic()) as backend:
                left = max(0.1, ends - time.monotonic())
                return call(backend, name, self._inner(backend, path), timeout_s=left, **named)

        return self._with_lines(work, timeout_s)

    def opened(self, path: str, open_file: Callable[[Any, str], Result]) -> Result:
        """A reader of a file.

        Args:
            path: a shown one.
            open_file: gets the backend and the path as it names it.

        Raises:
            OSError: as `errors.translated` has it.
        """
        self._check_place()
        if self.scheme not in _MOST_LINES:
            return self._with_lines(
                lambda lines: open_file(lines.backend, self._inner(lines.backend, path)), call_timeout_s()
            )

        def work() -> Result:
            backend = open_backend(self.address(self._place))  # a line of its own, closed with the file
            return open_file(backend, self._inner(backend, path))

        with self._said(call_timeout_s()):
            return within(call_timeout_s(), work)

    @contextlib.contextmanager
    def _said(self, timeout_s: float) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self.translated(error, timeout_s) from None

    def _check_place(self) -> None:
        if self.scheme in _NEED_A_PLACE and not split_address(self._place)[2]:
            raise FileNotFoundError(self._place)

    def _with_lines(self, work: Callable[[Lines], Result], timeout_s: float) -> Result:
        self._check_place()
        tries = 2 if self.scheme in _LINES else 1
        ends = time.monotonic() + timeout_s
        while True:
            tries -= 1
            opening = self._opened_lines()
            try:
                # Opening is a short question, whatever is asked then.
                lines = waited_for(opening, min(ask_timeout_s(), ends - time.monotonic()))
            except Exception as error:
                raise self.translated(error, ask_timeout_s()) from None
            try:
                return within(ends - time.monotonic(), lambda found=lines: work(found))  # type: ignore[misc]
            except Exception as error:
                said = self.translated(error, timeout_s)
                broken = isinstance(said, RemoteError) and said.code != "remote_denied" and self.scheme in _LINES
                if broken:
                    self._drop(opening)
                if not broken or not tries or time.monotonic() >= ends:
                    raise said from None

    def _opened_lines(self) -> Future[Lines]:
        """The backend, now or later: many may wait for it, and it is opened once."""
        with self._lock:
            opening = self._opening
            # One that failed is done with, and one that hangs for so long will not come any more.
            is_stuck = time.monotonic() - self._since > _STUCK_FACTOR * ask_timeout_s()
            if opening is not None and not (opening.exception() if opening.done() else is_stuck):
                return opening
            opening = self._opening = Future()
            self._since = time.monotonic()
        address = self.address(self._place)

        def work() -> None:
            try:
                opening.set_result(Lines(open_backend(address), _MOST_LINES.get(self.scheme), another_sftp))
            except BaseException as error:
                opening.set_exception(error)

        threading.Thread(target=work, name="gpu-doctor-remote", daemon=True).start()
        return opening

    def _drop(self, opening: Future[Lines]) -> None:
        """Open another one the next time, and end what still waits for this one."""
        with self._lock:
            if self._opening is opening:
                self._opening = None
        hang_up(opening.result().backend)

    def inner(self, path: str) -> str:
        """The path as the backend names it.

        Raises:
            OSError: the backend cannot be opened.
        """
        return self._with_lines(lambda lines: self._inner(lines.backend, path), ask_timeout_s())

    def _inner(self, backend: Any, path: str) -> str:
        """The path as the backend names it."""
        if self.scheme in _HOSTS:
            return "/" + split_address(path)[2].partition("/")[2]
        if self.scheme in _USER_IN_PATH:
            return self.address(path)
        scheme, user, place, query = split_address(self.address(path))
        keeps_user = self.scheme not in ("s3", "s3a")
        return str(backend._strip_protocol(f"{scheme}{user if keeps_user else ''}{place}{query}"))


def hang_up(backend: Any) -> None:
    """Close the line of a backend that has one, without a goodbye that might wait."""
    for name in ("client", "ftp"):
        holder: Any = getattr(backend, name, None)
        if hasattr(holder, "close"):
            with contextlib.suppress(Exception):
                holder.close()
