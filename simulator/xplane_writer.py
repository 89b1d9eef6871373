"""A small protobuf wire writer for XSpace: no protobuf runtime, no TensorFlow.

Fields are written in the order of their numbers, as protobuf itself does, so the
metadata of a plane comes after its lines, as in real files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

VARINT, FIXED64, BYTES = 0, 1, 2
_MASK64 = (1 << 64) - 1


class Unsigned(int):
    """An integer stored as ``uint64_value``; a plain ``int`` is stored as ``int64_value``."""


class Ref(str):
    """A string stored once in the plane's stat metadata and referred to by ``ref_value``."""


StatValue: TypeAlias = "int | float | str | bytes"
Stats: TypeAlias = Mapping[str, StatValue]


def varint(value: int) -> bytes:
    """Base-128 encoding; negative numbers as their 64-bit two's complement (ten bytes)."""
    value &= _MASK64
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(number: int, wire_type: int) -> bytes:
    """The key that precedes a field."""
    return varint(number << 3 | wire_type)


def varint_field(number: int, value: int) -> bytes:
    """A varint field; zero is protobuf's default and takes no bytes."""
    return tag(number, VARINT) + varint(value) if value else b""


def bytes_field(number: int, value: bytes) -> bytes:
    """A length-delimited field, written even when empty."""
    return tag(number, BYTES) + varint(len(value)) + value


def text_field(number: int, value: str) -> bytes:
    """A string field; the empty string takes no bytes."""
    return bytes_field(number, value.encode()) if value else b""


def map_entry(number: int, key: int, value: bytes) -> bytes:
    """One entry of a ``map<int64, Message>`` field."""
    return bytes_field(number, varint_field(1, key) + bytes_field(2, value))


class Names:
    """Names to metadata ids, counted from 1 in order of first use."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def id(self, name: str) -> int:
        """The id of a name, new or known."""
        known = self._ids.get(name)
        if known is None:
            known = self._ids[name] = len(self._ids) + 1
        return known

    def encode(self, number: int, display_names: Mapping[str, str] | None = None) -> bytes:
        """All names as map entries of ``{id=1, name=2}`` (events: ``display_name=4``)."""
        shown = display_names or {}
        return b"".join(
            map_entry(number, key, varint_field(1, key) + text_field(2, name) + text_field(4, shown.get(name, "")))
            for name, key in self._ids.items()
        )


def encode_stat(names: Names, name: str, value: StatValue) -> bytes:
    """One XStat without its key; zero values are written out, since the field is a oneof."""
    head = varint_field(1, names.id(name))
    if isinstance(value, Ref):
        return head + tag(7, VARINT) + varint(names.id(value))
    if isinstance(value, str):
        return head + bytes_field(5, value.encode())
    if isinstance(value, bytes):
        return head + bytes_field(6, value)
    if isinstance(value, float):
        return head + tag(2, FIXED64) + struct.pack("<d", value)
    if isinstance(value, Unsigned):
        return head + tag(3, VARINT) + varint(value)
    return head + tag(4, VARINT) + varint(value)


@dataclass
class Line:
    """One XLine: a stream of a GPU or a host thread."""

    plane: Plane
    id: int
    name: str
    timestamp_ns: int = 0
    display_name: str = ""
    _events: list[bytes] = field(default_factory=list)

    def event(self, name: str, offset_ps: int, duration_ps: int, stats: Stats | None = None) -> None:
        """Adds an event that starts ``offset_ps`` after the line's ``timestamp_ns``."""
        self._add(name, varint_field(2, offset_ps) + varint_field(3, duration_ps), stats)

    def occurrences(self, name: str, count: int, duration_ps: int, stats: Stats | None = None) -> None:
        """Adds an aggregated event: how often it occurred and for how long, but not when."""
        self._add(name, varint_field(3, duration_ps) + tag(5, VARINT) + varint(count), stats)

    def _add(self, name: str, body: bytes, stats: Stats | None) -> None:
        self._events.append(
            varint_field(1, self.plane.event_names.id(name)) + body + self.plane.encode_stats(4, stats or {})
        )

    def encode(self) -> bytes:
        """The XLine message."""
        return b"".join(
            [
                varint_field(1, self.id),
                text_field(2, self.name),
                varint_field(3, self.timestamp_ns),
                *(bytes_field(4, event) for event in self._events),
                text_field(11, self.display_name),
            ]
        )


@dataclass
class Plane:
    """One XPlane; stat values and names are interned per plane."""

    name: str
    id: int = 0
    lines: list[Line] = field(default_factory=list)
    stats: dict[str, StatValue] = field(default_factory=dict)
    event_names: Names = field(default_factory=Names)
    stat_names: Names = field(default_factory=Names)
    display_names: dict[str, str] = field(default_factory=dict)

    def line(self, line_id: int, name: str, timestamp_ns: int = 0, display_name: str = "") -> Line:
        """Adds a line; ids may be negative and need not be unique."""
        self.lines.append(Line(self, line_id, name, timestamp_ns, display_name))
        return self.lines[-1]

    def encode_stats(self, number: int, stats: Stats) -> bytes:
        """Stats as repeated fields of the given number."""
        return b"".join(bytes_field(number, encode_stat(self.stat_names, k, v)) for k, v in stats.items())

    def encode(self) -> bytes:
        """The XPlane message."""
        stats = self.encode_stats(6, self.stats)  # before the names, which it adds to
        return b"".join(
            [
                varint_field(1, self.id),
                text_field(2, self.name),
                *(bytes_field(3, line.encode()) for line in self.lines),
                self.event_names.encode(4, self.display_names),
                self.stat_names.encode(5),
                stats,
            ]
        )


@dataclass
class Space:
    """One XSpace: a whole ``*.xplane.pb`` file."""

    planes: list[Plane] = field(default_factory=list)
    hostnames: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    def plane(self, name: str, plane_id: int = 0, stats: Mapping[str, StatValue] | None = None) -> Plane:
        """Adds a plane."""
        self.planes.append(Plane(name, plane_id, stats=dict(stats or {})))
        return self.planes[-1]

    def chunks(self) -> Iterable[bytes]:
        """The file in pieces, one plane at a time."""
        for plane in self.planes:
            yield bytes_field(1, plane.encode())
        for number, texts in ((2, self.errors), (3, self.warnings), (4, self.hostnames)):
            for text in texts:
                yield bytes_field(number, text.encode())

    def encode(self) -> bytes:
        """The whole file."""
        return b"".join(self.chunks())
