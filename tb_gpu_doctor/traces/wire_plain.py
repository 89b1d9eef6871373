"""Plain Python reader of the XPlane wire format: slow, short, and the definition of what is right.

The numpy decoder uses it for what is rare or odd, and to find where things lie.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

_U64 = (1 << 64) - 1
VARINT, _FIXED64, BYTES, _FIXED32 = 0, 1, 2, 5
# XStat value tags: double, uint64, int64, str, bytes, ref.
DOUBLE, UINT, INT, STR, BYTES_VALUE, REF = 0x11, 0x18, 0x20, 0x2A, 0x32, 0x38

Value = tuple[int, int | float | bytes]  # (value tag, value) of one stat


class MalformedError(Exception):
    """Bytes that are no message, at ``offset``."""

    def __init__(self, offset: int) -> None:
        self.offset = offset


class TooManyPartsError(Exception):
    """More lines and stats than a plane may have: ``count``."""

    def __init__(self, count: int) -> None:
        self.count = count


@dataclass
class PlaneIndex:
    """Where things lie in a plane."""

    name: bytes = b""
    id: int = 0
    stats: list[tuple[int, int]] = field(default_factory=list)
    lines: list[tuple[int, int]] = field(default_factory=list)
    event_names: dict[int, bytes] = field(default_factory=dict)
    stat_names: dict[int, bytes] = field(default_factory=dict)


@dataclass
class LineTable:
    """Lines of a plane in wire order."""

    id: list[int] = field(default_factory=list)
    timestamp_ns: list[int] = field(default_factory=list)
    duration_ps: list[int] = field(default_factory=list)
    name: list[bytes] = field(default_factory=list)
    display_name: list[bytes] = field(default_factory=list)
    events: list[int] = field(default_factory=list)


def signed(value: int) -> int:
    """An unsigned 64-bit number as two's complement."""
    return value - (1 << 64) if value >> 63 else value


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """(value, position after it)."""
    value = shift = 0
    while True:
        if position >= end or shift >= 70:
            raise MalformedError(position)
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _U64, position
        shift += 7


def fields(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(field number, wire type, start of value, value or end of value) for each field."""
    while position < end:
        tag, position = read_varint(data, position, end)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise MalformedError(position)
        if wire == VARINT:
            value, after = read_varint(data, position, end)
            yield number, wire, position, value
            position = after
        elif wire == BYTES:
            length, position = read_varint(data, position, end)
            if length > end - position:
                raise MalformedError(position)
            yield number, wire, position, position + length
            position += length
        elif wire in (_FIXED64, _FIXED32):
            after = position + (8 if wire == _FIXED64 else 4)
            if after > end:
                raise MalformedError(position)
            yield number, wire, position, after
            position = after
        else:
            raise MalformedError(position)


def index_plane(data: bytes, most_parts: int) -> PlaneIndex:
    """Find the parts of a plane and read its metadata maps.

    Raises:
        MalformedError: outside the lines and stats.
        TooManyPartsError: more than ``most_parts`` lines and stats.
    """
    index = PlaneIndex()
    for number, wire, start, value in fields(data, 0, len(data)):
        if number == 1 and wire == VARINT:
            index.id = value
        elif wire != BYTES:
            continue
        elif number == 2:
            index.name = data[start:value]
        elif number in (3, 6):
            (index.lines if number == 3 else index.stats).append((start, value))
            if (count := len(index.lines) + len(index.stats)) > most_parts:
                raise TooManyPartsError(count)
        elif number == 4:
            _read_metadata(data, start, value, index.event_names)
        elif number == 5:
            _read_metadata(data, start, value, index.stat_names)
    return index


def _read_metadata(data: bytes, start: int, end: int, names: dict[int, bytes]) -> None:
    """One map entry: key and the name inside its value."""
    key, name = 0, b""
    for number, wire, low, value in fields(data, start, end):
        if number == 1 and wire == VARINT:
            key = value
        elif number == 2 and wire == BYTES:
            for inner, inner_wire, inner_low, inner_value in fields(data, low, value):
                if inner == 2 and inner_wire == BYTES:
                    name = data[inner_low:inner_value]
    names[signed(key)] = name


def read_line(data: bytes, start: int, end: int, lines: LineTable, starts: array[int], ends: array[int]) -> None:
    """Note a line's own fields and where its events lie."""
    ident = timestamp = duration = 0
    name = display = b""
    before = len(starts)
    add_start, add_end = starts.append, ends.append
    position = start
    while position < end:
        # Nearly all of a file is this: an event with a length of one byte.
        if data[position] == 0x22 and position + 1 < end and data[position + 1] < 0x80:
            position += 2
            after = position + data[position - 1]
            if after > end:
                raise MalformedError(position)
            add_start(position)
            add_end(after)
            position = after
            continue
        number, wire, low, value, position = _one_field(data, position, end)
        if number == 1 and wire == VARINT:
            ident = value
        elif number == 3 and wire == VARINT:
            timestamp = value
        elif number == 9 and wire == VARINT:
            duration = value
        elif wire == BYTES and number == 2:
            name = data[low:value]
        elif wire == BYTES and number == 11:
            display = data[low:value]
        elif wire == BYTES and number == 4:
            add_start(low)
            add_end(value)
    lines.id.append(signed(ident))
    lines.timestamp_ns.append(signed(timestamp))
    lines.duration_ps.append(signed(duration))
    lines.name.append(name)
    lines.display_name.append(display)
    lines.events.append(len(starts) - before)


def _one_field(data: bytes, position: int, end: int) -> tuple[int, int, int, int, int]:
    """The field at ``position`` as `fields` gives it, and the position after it."""
    number, wire, low, value = next(fields(data, position, end))
    if wire == VARINT:
        return number, wire, low, value, read_varint(data, low, end)[1]
    return number, wire, low, value, value


def read_stat(data: bytes, start: int, end: int) -> tuple[int, Value | None]:
    """(metadata id, value) of one stat."""
    metadata, found = 0, None
    for number, wire, low, value in fields(data, start, end):
        if number == 1 and wire == VARINT:
            metadata = signed(value)
        elif number == 2 and wire == _FIXED64:
            found = (DOUBLE, struct.unpack_from("<d", data, low)[0])
        elif wire == VARINT and number in (3, 4, 7):
            found = ({3: UINT, 4: INT, 7: REF}[number], value)
        elif wire == BYTES and number in (5, 6):
            found = (STR if number == 5 else BYTES_VALUE, data[low:value])
    return metadata, found
