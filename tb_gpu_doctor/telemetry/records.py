"""Read the records of an event file that may be growing, cut off, damaged or made to harm.

An event file is a row of ``length (uint64), masked crc32c of the length, bytes, masked crc32c of them``.
TensorBoard's own reader checks the second sum in Python, which takes longer than all the rest for blocks of
samples; these carry a checksum of their own, and so do JSON and messages that no longer parse.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from tb_gpu_doctor.recording_format import MAX_BLOCK_BYTES, PLUGIN_NAME

_HEAD = struct.Struct("<QI")
_FOOT_BYTES = 4
# Far above what the writer makes of one flush, far below what hurts.
MAX_RECORD_BYTES = MAX_BLOCK_BYTES


class DamagedFile(Exception):
    """A file from whose record on nothing can be read."""


@dataclass(frozen=True)
class Record:
    """A record under the plugin's own name."""

    tag: str
    content: bytes


@lru_cache(maxsize=1 << 14)
def _check_of(length: bytes) -> int:
    """The checksum of a length; lengths repeat, and it is computed in Python."""
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    return int(masked_crc32c(length))


def read_records(path: str, offset: int, take: Callable[[Record], None]) -> int:
    """Hand all whole records from ``offset`` on to ``take`` and return where the next one begins.

    A record that is cut off at the file's end is still being written: it is left for the next time.

    Raises:
        OSError: the file cannot be read.
        DamagedFile: a record's head cannot be right.
    """
    from tensorboard.compat.proto import event_pb2

    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(offset)
        while offset + _HEAD.size + _FOOT_BYTES <= size:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                break
            length, check = _HEAD.unpack(head)
            if _check_of(head[:8]) != check:
                raise DamagedFile(f"at byte {offset}")
            if offset + _HEAD.size + length + _FOOT_BYTES > size:
                break
            if length > MAX_RECORD_BYTES:
                raise DamagedFile(f"at byte {offset}")
            data = file.read(length + _FOOT_BYTES)
            if len(data) < length + _FOOT_BYTES:
                break
            offset += _HEAD.size + length + _FOOT_BYTES
            try:
                event = event_pb2.Event.FromString(data[:length])
            except Exception:  # protobuf's own exceptions differ by implementation
                raise DamagedFile(f"before byte {offset}") from None
            for value in event.summary.value:
                if value.tag.startswith(f"{PLUGIN_NAME}/") and value.tensor.string_val:
                    take(Record(value.tag, value.tensor.string_val[0]))
    return offset
