"""Writes protobuf's wire format: what little of it an XSpace needs."""

from __future__ import annotations

from tb_gpu_doctor.traces.wire_plain import BYTES, VARINT

_SMALL = [bytes((value,)) for value in range(128)]


def varint(value: int) -> bytes:
    """An unsigned number; negative ones as their two's complement of 64 bits."""
    if 0 <= value < 128:
        return _SMALL[value]
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A varint field; zero is left out, as proto3 does."""
    return varint(field << 3 | VARINT) + varint(value) if value else b""


def chunk(field: int, data: bytes) -> bytes:
    """A field of bytes, text or a message, also when it is empty."""
    return varint(field << 3 | BYTES) + varint(len(data)) + data


def text(field: int, data: bytes) -> bytes:
    """A text field; an empty one is left out."""
    return chunk(field, data) if data else b""
