"""Entries of a plane's two tables of names, as they lie in the file."""

from __future__ import annotations

from dataclasses import dataclass, field

from tb_gpu_doctor.traces.wire_plain import BYTES, VARINT, MalformedError, fields, signed


@dataclass
class Metadata:
    """An entry of one of the two tables of names; ``blob`` is an event's metadata or a stat's description."""

    name: bytes = b""
    display: bytes = b""
    blob: bytes = b""
    stats: list[bytes] = field(default_factory=list)
    children: list[int] = field(default_factory=list)


def read_entry(data: bytes, start: int, end: int) -> tuple[int, Metadata]:
    """Key and value of a map's entry; a value that comes in parts is merged, as protobuf does."""
    key, entry = 0, Metadata()
    for number_, wire, low, value in fields(data, start, end):
        if number_ == 1 and wire == VARINT:
            key = signed(value)
        elif number_ == 2 and wire == BYTES:
            for inner, inner_wire, inner_low, inner_value in fields(data, low, value):
                content = data[inner_low:inner_value] if inner_wire == BYTES else b""
                if inner == 2 and inner_wire == BYTES:
                    entry.name = content
                elif inner == 3 and inner_wire == BYTES:
                    entry.blob = content
                elif inner == 4 and inner_wire == BYTES:
                    entry.display = content
                elif inner == 5 and inner_wire == BYTES:
                    entry.stats.append(content)
                elif inner == 6 and inner_wire == VARINT:
                    entry.children.append(inner_value)
                elif inner == 6 and inner_wire == BYTES:  # packed
                    entry.children += _packed(content)
    return key, entry


def _packed(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        value = shift = 0
        while True:
            if at >= len(data) or shift >= 70:
                raise MalformedError(at)
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        found.append(value)
    return found
