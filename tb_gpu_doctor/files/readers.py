"""Reading a remote file from its beginning to its end, each byte asked for once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from tb_gpu_doctor.errors import RemoteError
from tb_gpu_doctor.files.connection import Connection, hang_up
from tb_gpu_doctor.files.parallel_calls import within
from tb_gpu_doctor.files.patience import call_timeout_s

Result = TypeVar("Result")

# What SSH carries in one packet.
_PACKET_BYTES = 32 << 10


class Reader(Protocol):
    """A remote file, read forward; ``size`` is None where the server does not tell it."""

    size: int | None

    def read(self, max_bytes: int) -> bytes:
        """The next bytes, at most so many; none at the end."""

    def close(self) -> None:
        """Let go of it."""


@contextlib.contextmanager
def reading(connection: Connection, path: str, piece_bytes: int) -> Iterator[Reader]:
    """Open a remote file; every wait for it has an end.

    Args:
        connection: to its server.
        path: a shown one.
        piece_bytes: what will be asked for at a time.

    Raises:
        OSError: a `RemoteError`, or what the backend says in its own words.
    """
    reader = connection.opened(path, lambda backend, inner: _reader_of(backend, inner, piece_bytes))
    try:
        yield _Patient(reader)
    finally:
        with contextlib.suppress(Exception):
            reader.close()


class _Patient:
    """A reader whose reads are waited for so long and no longer."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        size = reader.size
        self.size = size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None

    def read(self, max_bytes: int) -> bytes:
        seconds = call_timeout_s()
        try:
            return within(seconds, lambda: self._reader.read(max_bytes))
        except TimeoutError:
            raise RemoteError("remote_timeout", seconds=seconds) from None

    def close(self) -> None:
        self._reader.close()


def _reader_of(backend: Any, inner: str, piece_bytes: int) -> Reader:
    kind = type(backend).__name__
    if kind == "FTPFileSystem":
        return _Ftp(backend, inner)
    if kind == "HTTPFileSystem":
        # In one piece: many web servers send no others, and say so only when asked for the second one.
        stream = backend.open(inner, "rb", block_size=0)
        answer: Any = getattr(stream, "r", None)
        packed = "Content-Encoding" in getattr(answer, "headers", ())
        return _Plain(stream, None if packed else getattr(answer, "content_length", None))
    file = _opened(backend, inner, piece_bytes)
    return _Sftp(backend, file) if hasattr(file, "readv") else _Plain(file)


def _opened(backend: Any, inner: str, piece_bytes: int) -> Any:
    """A file that asks for each piece once and keeps none."""
    try:
        return backend.open(inner, "rb", block_size=piece_bytes, cache_type="none")
    except TypeError:  # a backend that knows no such options
        return backend.open(inner, "rb")


class _Plain:
    """A file of fsspec, or an answer of a web server, which comes in pieces of its own."""

    def __init__(self, file: Any, size: int | None = None) -> None:
        self._file = file
        self.size: int | None = getattr(file, "size", None) if size is None else size

    def read(self, max_bytes: int) -> bytes:
        pieces, missing = [], max_bytes
        while missing > 0 and (piece := self._file.read(missing)):
            pieces.append(piece)
            missing -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        # Some are context managers and nothing else.
        close: Callable[[], object] | None = getattr(self._file, "close", None)
        if close is not None:
            close()


class _Sftp:
    """A file of paramiko, whose own read waits for each packet before it asks for the next one."""

    def __init__(self, backend: Any, file: Any) -> None:
        self._backend, self._file, self._at = backend, file, 0
        self.size: int | None = file.stat().st_size

    def read(self, max_bytes: int) -> bytes:
        left = max_bytes if self.size is None else min(max_bytes, self.size - self._at)
        if left <= 0:  # what was written behind the end meanwhile is seen by whoever compares sizes
            return bytes(self._file.read(1)) if self.size is not None else b""
        parts = [(self._at + at, min(_PACKET_BYTES, left - at)) for at in range(0, left, _PACKET_BYTES)]
        piece = b"".join(self._file.readv(parts))
        self._at += len(piece)
        return piece

    def close(self) -> None:
        hang_up(self._backend)  # and with it all of its files


class _Ftp:
    """A file of an FTP server, on a line of its own: one transfer from the beginning to the end."""

    def __init__(self, backend: Any, inner: str) -> None:
        self._backend = backend
        backend.ftp.voidcmd("TYPE I")
        self.size: int | None = None
        with contextlib.suppress(Exception):  # not every server has this command; what is not there is told below
            self.size = backend.ftp.size(inner)
        self._socket: Any = backend.ftp.transfercmd(f"RETR {inner}")

    def read(self, max_bytes: int) -> bytes:
        if self._socket is None:
            return b""
        pieces, missing = [], max_bytes
        while missing > 0 and (piece := self._socket.recv(min(missing, 1 << 18))):
            pieces.append(piece)
            missing -= len(piece)
        if missing:
            # Only the other line tells whether this was the end or a break.
            self._socket.close()
            self._socket = None
            self._backend.ftp.voidresp()
        return b"".join(pieces)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        hang_up(self._backend)
