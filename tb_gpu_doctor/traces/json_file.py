"""Read a ``.json`` or ``.json.gz`` trace into memory, within bounds.

A packed file may unpack to a thousand times its size. So it is unpacked piece by piece, and the
reading ends as soon as the result is larger than any trace, or grows as no trace does.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from typing import BinaryIO

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.files.opening import open_regular

# Some 6 million events; the decoded ones take two to three times as much.
MAX_BYTES = 2 << 30
# Real traces pack to between 1/8 and 1/40. Small files may be as regular as they like.
MAX_RATIO = 200
FREE_BYTES = 32 << 20
_PIECE = 1 << 20
# What the unpacker is given and gives at a time: what stays in the processor's cache costs least.
_FED, _GIVEN = 1 << 16, 1 << 17
_GZIP_MAGIC = b"\x1f\x8b"
# The second byte of that, replaced or encoded as if it were text.
_GZIP_AS_TEXT = (b"\xef\xbf\xbd", b"\xc2\x8b", b"\xe2\x80\xb9")
_AUTO_HEADER = zlib.MAX_WBITS | 16


def read_json_bytes(path: str, progress: Callable[[float], None] | None = None) -> tuple[bytearray, bool]:
    """The unpacked content of a file, and whether its packing ended early; what is packed is told from its first bytes.

    Args:
        path: the file.
        progress: called with the share of the file that is read, 0..1.

    Raises:
        ProfileError: ``missing_path``, ``no_permission``, ``io_error``, ``empty_file``, ``cut_off`` (before anything
            could be unpacked), ``malformed``, ``too_large`` or ``gzip_bomb``.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise ProfileError("empty_file", path)
            head = file.read(2)
            file.seek(0)
            if head[:1] == _GZIP_MAGIC[:1] and file.read(4)[1:].startswith(_GZIP_AS_TEXT):
                raise ProfileError("saved_as_text", path)
            file.seek(0)
            if head == _GZIP_MAGIC:
                return _unpack(file, size, path, progress)
            if size > MAX_BYTES:
                raise ProfileError("too_large", path, size_bytes=size, limit_bytes=MAX_BYTES)
            return _plain(file, size, path, progress), False
    except FileNotFoundError:
        raise ProfileError("missing_path", path) from None
    except PermissionError:
        raise ProfileError("no_permission", path) from None
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise ProfileError("io_error", path, reason=getattr(error, "strerror", None) or str(error)) from None


def _plain(file: BinaryIO, size: int, path: str, progress: Callable[[float], None] | None) -> bytearray:
    out = bytearray()
    while piece := file.read(_PIECE):
        out += piece
        if len(out) > MAX_BYTES:  # it grew meanwhile
            raise ProfileError("too_large", path, size_bytes=len(out), limit_bytes=MAX_BYTES)
        if progress is not None:
            progress(min(len(out) / size, 1.0))
    return out


def _unpack(file: BinaryIO, size: int, path: str, progress: Callable[[float], None] | None) -> tuple[bytearray, bool]:
    """The content as far as it can be unpacked, and whether that is not all."""
    out = bytearray()
    packed = 0
    unpacker = zlib.decompressobj(_AUTO_HEADER)
    started = False  # whether the current gzip member has begun
    while block := file.read(_PIECE):
        packed += len(block)
        for at in range(0, len(block), _FED):
            piece = block[at : at + _FED]
            while piece:
                if unpacker.eof:  # several packed files, one behind the other, are one; padding is none
                    piece = piece.lstrip(b"\0")
                    if not piece:
                        break
                    unpacker, started = zlib.decompressobj(_AUTO_HEADER), False
                try:
                    out += unpacker.decompress(piece, _GIVEN)
                except zlib.error:
                    if out and not started and not piece.startswith(_GZIP_MAGIC):
                        return out, False  # something else behind the end
                    if not out:
                        raise ProfileError("malformed", path) from None
                    return out, True  # damaged from here on
                started = True
                _check_size(len(out), packed, path)
                piece = unpacker.unconsumed_tail or (unpacker.unused_data if unpacker.eof else b"")
        if progress is not None:
            progress(min(packed / size, 1.0))
    if not unpacker.eof:
        # what the unpacker still holds back
        while len(tail := unpacker.decompress(b"", _PIECE)):
            out += tail
            _check_size(len(out), packed, path)
        if not unpacker.eof and not out:
            raise ProfileError("cut_off", path)
    return out, not unpacker.eof


def _check_size(unpacked: int, packed: int, path: str) -> None:
    if unpacked > MAX_BYTES:
        raise ProfileError("too_large", path, size_bytes=unpacked, limit_bytes=MAX_BYTES)
    if unpacked > FREE_BYTES and unpacked > MAX_RATIO * packed:
        raise ProfileError("gzip_bomb", path, size_bytes=unpacked, limit_bytes=MAX_RATIO * packed)
