"""Results of another process, without copying their columns.

A result is pickled with its arrays left out of the stream (pickle protocol 5). Where both processes share a
scratch file, the arrays lie in it and the receiver maps them: they are read-only pages of a file that has
no name, which the system may drop and read again, so many results need little memory. Where there is no
such file, or its disk is full, the arrays travel with the stream.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import pickle
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from tb_gpu_doctor.traces.columns import DeviceEvents, HostEvents

_ALIGN = 64
# A mapping reaches beyond what is written, so that a file needs few: each holds a file descriptor.
_FIRST_MAPPING = 64 << 20


@dataclass(frozen=True)
class Message:
    """A pickled value: the stream, and its arrays, or where in the scratch file these lie (offset, length)."""

    stream: bytes
    arrays: tuple[bytes, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()


class _Pickler(pickle.Pickler):
    """Leaves out what columns have computed of themselves: it is quicker made again than moved."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, (DeviceEvents, HostEvents)):
            return type(value), tuple(getattr(value, spec.name) for spec in fields(value))
        return NotImplemented


class Writer:
    """The sending end; ``scratch`` is the descriptor of the shared file."""

    def __init__(self, scratch: int | None) -> None:
        self._scratch = scratch
        self._end = 0

    def pack(self, value: Any) -> Message:
        """Pickle a value, its arrays into the scratch file if there is one and room in it."""
        buffers: list[pickle.PickleBuffer] = []
        stream = io.BytesIO()
        _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
        arrays = [buffer.raw() for buffer in buffers]
        if self._scratch is not None and arrays:
            with contextlib.suppress(OSError):  # the disk is full
                return Message(stream.getvalue(), spans=self._write(self._scratch, arrays))
        return Message(stream.getvalue(), tuple(bytes(array) for array in arrays))

    def _write(self, scratch: int, arrays: list[memoryview]) -> tuple[tuple[int, int], ...]:
        spans, at = [], self._end
        for array in arrays:
            spans.append((at, array.nbytes))
            done = 0
            while done < array.nbytes:
                done += os.pwrite(scratch, array[done:], at + done)
            at += -(-array.nbytes // _ALIGN) * _ALIGN
        self._end = at
        return tuple(spans)


class Reader:
    """The receiving end of one `Writer`."""

    def __init__(self, scratch: int | None) -> None:
        self._scratch = scratch
        self._mapped: memoryview = memoryview(b"")

    def unpack(self, message: Message) -> Any:
        """The value; its arrays are read-only."""
        if not message.spans:
            return pickle.loads(message.stream, buffers=message.arrays)
        end = max(offset + length for offset, length in message.spans)
        try:
            if end > len(self._mapped):
                self._map(end)
        except OSError:  # limits of the system: on files, mappings, addresses
            return pickle.loads(message.stream, buffers=[self._copied(at, length) for at, length in message.spans])
        return pickle.loads(message.stream, buffers=[self._mapped[at : at + length] for at, length in message.spans])

    def _copied(self, at: int, length: int) -> bytes:
        assert self._scratch is not None
        parts = []
        while length > 0 and (part := os.pread(self._scratch, length, at)):
            parts.append(part)
            at, length = at + len(part), length - len(part)
        return b"".join(parts)

    def _map(self, end: int) -> None:
        assert self._scratch is not None
        size = _FIRST_MAPPING
        while size < end:
            size *= 2
        if os.fstat(self._scratch).st_size < size:
            os.ftruncate(self._scratch, size)  # a hole: it takes no room
        # Earlier mappings live as long as the arrays in them.
        self._mapped = memoryview(mmap.mmap(self._scratch, size, access=mmap.ACCESS_READ))


T = TypeVar("T")


def with_own_arrays(value: T, *names: str) -> T:
    """A dataclass with its mapped arrays copied into memory, so that it does not keep the scratch file.

    Args:
        value: the dataclass.
        names: of the fields to copy; by default all that hold an array.
    """
    arrays = {name: getattr(value, name) for name in names or [spec.name for spec in fields(value)]}  # type: ignore[arg-type]
    return replace(
        value,  # type: ignore[type-var]
        **{name: array.copy() for name, array in arrays.items() if isinstance(array, np.ndarray) and _is_mapped(array)},
    )


def _is_mapped(array: np.ndarray) -> bool:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, (memoryview, mmap.mmap))
