"""Lines to a server that carry one question at a time each, shared by many threads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any


class Lines:
    """A backend and what is opened beside it, so that several questions can be under way.

    Args:
        backend: the first line.
        limit: how many there may be; None for a backend that many threads may use at a time.
        another: opens one more beside the first.
    """

    def __init__(self, backend: Any, limit: int | None, another: Callable[[Any], Any]) -> None:
        self.backend = backend
        self._limit, self._another = limit, another
        self._spare, self._made = [backend], 1
        self._free = threading.Condition()

    @contextlib.contextmanager
    def one(self, timeout_s: float) -> Iterator[Any]:
        """A line of one's own, for as long as the block runs.

        Raises:
            TimeoutError: none was free in time.
        """
        if self._limit is None:
            yield self.backend
            return
        line = self._taken(time.monotonic() + timeout_s)
        try:
            yield line
        finally:
            with self._free:
                self._spare.append(line)
                self._free.notify()

    def _taken(self, ends: float) -> Any:
        while True:
            with self._free:
                while not self._spare and self._made >= (self._limit or 1):
                    left = ends - time.monotonic()
                    if left <= 0:
                        raise TimeoutError
                    self._free.wait(left)
                if self._spare:
                    return self._spare.pop()
                self._made += 1
            try:
                return self._another(self.backend)
            except Exception:  # the server allows no more, or the first one is broken, which its user will see
                with self._free:
                    self._made -= 1
                    self._limit = self._made


def another_sftp(backend: Any) -> Any:
    """One more channel of an SSH line: nobody logs in again, and all end together."""
    line = object.__new__(type(backend))
    line.__dict__.update(backend.__dict__)
    line.ftp = backend.client.open_sftp()
    line.ftp.get_channel().settimeout(backend.ftp.get_channel().gettimeout())
    return line
