"""A remote file as a file of this machine, for as long as it is read."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO

from tb_gpu_doctor.errors import RemoteError
from tb_gpu_doctor.files.addresses import is_remote, local_path, shown
from tb_gpu_doctor.files.opening import open_regular

if TYPE_CHECKING:
    from tb_gpu_doctor.files.remote import RemoteFiles

_PIECE_BYTES = 8 << 20
# What stays free where the copy lies.
_RESERVE_BYTES = 64 << 20


@contextlib.contextmanager
def local_copy(path: str, progress: Callable[[float], None] | None = None) -> Iterator[str]:
    """The path of a file with the same content: the file itself, or of a remote one a copy that is gone afterwards.

    The copy lies in the folder for temporary files, where possible without a name, so that it is gone even
    where the process is killed.

    Args:
        path: a local path, or an address.
        progress: called with the share that is here, 0..1.

    Raises:
        OSError: the file cannot be read; a `RemoteError` of a remote one.
    """
    if not is_remote(path):
        yield path
        return
    # Windows opens no file a second time that will be deleted, so there it is deleted by hand.
    with _nameless() if os.path.isdir("/proc/self/fd") else _named() as (file, name):
        download(path, file, progress)
        file.flush()
        yield name


def read_head(path: str, max_bytes: int) -> bytes:
    """The first bytes of a local or remote file, ``max_bytes`` of them if there are so many.

    Raises:
        OSError: the file cannot be read; a `RemoteError` of a remote one.
    """
    path = local_path(path)
    if not is_remote(path):
        with open_regular(path) as file:
            return file.read(max_bytes)
    from tb_gpu_doctor.files.readers import reading
    from tb_gpu_doctor.files.remote import remote_at

    connection = remote_at(path).connection
    pieces, missing = [], max_bytes
    try:
        with reading(connection, shown(path), min(max_bytes, _PIECE_BYTES)) as source:
            while missing > 0 and (piece := source.read(min(missing, _PIECE_BYTES))):
                pieces.append(piece)
                missing -= len(piece)
    except Exception as error:
        raise connection.translated(error) from None
    return b"".join(pieces)


@contextlib.contextmanager
def _nameless() -> Iterator[tuple[BinaryIO, str]]:
    with tempfile.TemporaryFile(prefix="gpu-doctor-") as file:
        yield file, f"/proc/self/fd/{file.fileno()}"


@contextlib.contextmanager
def _named() -> Iterator[tuple[BinaryIO, str]]:
    descriptor, name = tempfile.mkstemp(prefix="gpu-doctor-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file, name
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)


def download(path: str, into: BinaryIO, progress: Callable[[float], None] | None = None) -> int:
    """Copy a remote file piece by piece and return its size in bytes.

    Raises:
        OSError: `RemoteError` ``remote_no_room``, ``remote_changed``, or what the backend says.
    """
    from tb_gpu_doctor.files.readers import reading
    from tb_gpu_doctor.files.remote import remote_at

    files = remote_at(path)
    path = shown(path)
    free = shutil.disk_usage(tempfile.gettempdir()).free - _RESERVE_BYTES
    try:
        with reading(files.connection, path, _PIECE_BYTES) as source:
            size = source.size
            if size is not None and size > free:
                raise RemoteError("remote_no_room", size_bytes=size, free_bytes=max(0, free))
            in_pieces = size is None or size > _PIECE_BYTES
            before = _version(files, path) if in_pieces else ""
            done = 0
            while piece := source.read(_PIECE_BYTES):
                done += len(piece)
                if size is not None and done > size:
                    raise RemoteError("remote_changed")
                if done > free:
                    raise RemoteError("remote_no_room", size_bytes=done, free_bytes=max(0, free))
                _write(into, piece)
                if progress is not None and size:
                    progress(done / size)
            # A file of the same size put in its place between two pieces would be read as half of each.
            if (size is not None and done != size) or (before and _version(files, path) not in (before, "")):
                raise RemoteError("remote_changed")
            return done
    except Exception as error:
        raise files.connection.translated(error) from None


def _version(files: RemoteFiles, path: str) -> str:
    """Names what a file holds now; "" where nothing tells."""
    try:
        return files.version(files.ask(path))
    except OSError:
        return ""


def _write(into: BinaryIO, piece: bytes) -> None:
    try:
        into.write(piece)
    except OSError as error:
        raise RemoteError("remote_no_room", size_bytes=len(piece), free_bytes=0, reason=str(error.strerror)) from None
