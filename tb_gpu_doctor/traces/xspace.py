"""Walk an XSpace file plane by plane, so that a file past protobuf's 2 GiB works in bounded memory.

The file is read, not mapped: another process may truncate it meanwhile, and a mapped file
would then kill the reader with SIGBUS.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.files.opening import open_regular

# Planes of a real file: one a GPU and a few of the host. More is an attack on the reader.
MAX_PLANES = 65_536
# ... and so are more fields of all kinds: a file of fields of two bytes would take minutes.
_MAX_FIELDS = 1 << 18
_MAX_TEXT_BYTES = 1 << 16
_FIELD_PLANE, _FIELD_ERROR, _FIELD_WARNING, _FIELD_HOSTNAME = 1, 2, 3, 4
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# What is looked at to tell damage by a conversion of text, and so many signs beyond ASCII prove it.
_TEXT_BYTES, _LEAST_ODD = 1 << 16, 8
# First bytes that an XPlane message can have: the tags of its fields.
_PLANE_TAGS = frozenset({0x08, 0x12, 0x1A, 0x22, 0x2A, 0x32})


@dataclass(frozen=True)
class SpaceItem:
    """One field of the file: ``kind`` is ``plane``, ``error``, ``warning`` or ``hostname``."""

    kind: str
    data: bytes
    offset: int


_KINDS = {_FIELD_ERROR: "error", _FIELD_WARNING: "warning", _FIELD_HOSTNAME: "hostname"}


def walk(path: str) -> Iterator[SpaceItem]:
    """The planes and texts of a file, in file order.

    Raises:
        ProfileError: ``missing_path``, ``no_permission``, ``io_error``, ``empty_file``, ``not_xplane``,
            ``truncated`` (params: offset, missing_bytes) or ``malformed`` (params: offset).
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise ProfileError("empty_file", path)
            yield from _walk(file, size, path)
    except FileNotFoundError:
        raise ProfileError("missing_path", path) from None
    except PermissionError:
        raise ProfileError("no_permission", path) from None
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise ProfileError("io_error", path, reason=getattr(error, "strerror", None) or str(error)) from None


def _walk(file: BinaryIO, size: int, path: str) -> Iterator[SpaceItem]:
    planes = fields = 0
    while True:
        fields += 1
        start = file.tell()
        if start >= size:
            break
        if fields > _MAX_FIELDS:
            raise _broken(path, start, planes)
        tag = _varint(file)
        if tag is None or not 0 < tag >> 3 < 1 << 29:
            raise _broken(path, start, planes)
        number, wire = tag >> 3, tag & 7
        if wire == _BYTES:
            length = _varint(file)
            if length is None:
                raise _broken(path, start, planes)
            offset = file.tell()
            if length > size - offset:
                if planes or (number == _FIELD_PLANE and file.read(1)[:1] in map(_byte, _PLANE_TAGS)):
                    raise ProfileError("truncated", path, offset=size, missing_bytes=length - (size - offset))
                raise ProfileError("not_xplane", path)
            if number == _FIELD_PLANE:
                planes += 1
                if planes > MAX_PLANES:
                    raise ProfileError("malformed", path, offset=start)
                yield SpaceItem("plane", _read(file, length, path), offset)
            elif number in _KINDS:
                yield SpaceItem(_KINDS[number], _read(file, min(length, _MAX_TEXT_BYTES), path), offset)
            file.seek(offset + length)
        elif wire in (_FIXED64, _FIXED32):
            file.seek(8 if wire == _FIXED64 else 4, os.SEEK_CUR)
        elif wire != _VARINT or _varint(file) is None:
            raise _broken(path, start, planes)
    if file.tell() > size:
        raise _broken(path, size, planes)


def was_saved_as_text(path: str) -> bool:
    """Whether bytes that are no UTF-8 were replaced or encoded, as editors and copies between systems do with text.

    Binary data of this size is never valid UTF-8 by chance.
    """
    try:
        with open_regular(path) as file:
            head = file.read(_TEXT_BYTES)
    except (OSError, ValueError):
        return False
    for cut in range(4):  # the last character may be cut
        try:
            text = head[: len(head) - cut].decode("utf-8")
        except UnicodeDecodeError:
            continue
        odd = [sign for sign in text if sign >= "\x80"]
        return len(odd) >= _LEAST_ODD and ("\ufffd" in odd or max(odd) < "\u0180")
    return False


def _byte(value: int) -> bytes:
    return bytes((value,))


def _broken(path: str, offset: int, planes: int) -> ProfileError:
    """Bytes that are no field: behind good planes the file is damaged, before any it is something else."""
    return ProfileError("malformed", path, offset=offset) if planes else ProfileError("not_xplane", path)


def _read(file: BinaryIO, length: int, path: str) -> bytes:
    data = file.read(length)
    if len(data) < length:  # shortened by its writer since we looked at its size
        raise ProfileError("truncated", path, offset=file.tell(), missing_bytes=length - len(data))
    return data


def _varint(file: BinaryIO) -> int | None:
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            return None
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    return None
