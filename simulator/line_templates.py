"""Events of one fixed size, filled by numpy; and the lines and names that they make up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from simulator.xplane_writer import BYTES, bytes_field, map_entry, tag, text_field, varint, varint_field

CHUNK_EVENTS = 262_144
FIRST_WIDE_ID = 128  # metadata ids of two bytes


class Template:
    """An event of fixed size; columns of numbers go into its slots."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._slots: dict[str, tuple[int, int]] = {}

    def fixed(self, data: bytes) -> Template:
        """Appends bytes that all events share."""
        self._body += data
        return self

    def slot(self, name: str, width: int) -> Template:
        """Appends a varint of the given width."""
        self._slots[name] = (len(self._body), width)
        self._body += bytes(width)
        return self

    def number(self, field_number: int, name: str, width: int) -> Template:
        """Appends a varint field with a slot."""
        return self.fixed(tag(field_number, 0)).slot(name, width)

    def stat(self, stat_id: int, field_number: int, name: str, width: int) -> Template:
        """Appends a stat whose value is a varint slot."""
        head = bytes_field(4, varint_field(1, stat_id) + tag(field_number, 0) + bytes(width))
        return self.fixed(head[:-width]).slot(name, width)

    def constant(self, stat_id: int, value: bytes) -> Template:
        """Appends a stat with the same value in all events."""
        return self.fixed(bytes_field(4, varint_field(1, stat_id) + value))

    def double(self, stat_id: int, name: str) -> Template:
        """Appends a stat with a double from a column of raw bytes."""
        head = bytes_field(4, varint_field(1, stat_id) + tag(2, 1) + bytes(8))
        self.fixed(head[:-8])
        self._slots[name] = (len(self._body), -8)
        return self.fixed(bytes(8))

    @property
    def size(self) -> int:
        """Bytes of one event, its key and length included."""
        return len(bytes_field(4, bytes(self._body)))

    def fill(self, columns: dict[str, NDArray[np.generic]]) -> NDArray[np.uint8]:
        """The events as rows of bytes."""
        head = self.size - len(self._body)
        whole = np.frombuffer(bytes_field(4, bytes(self._body)), dtype=np.uint8)
        rows = np.tile(whole, (len(next(iter(columns.values()))), 1))
        for name, (at, width) in self._slots.items():
            values = columns[name]
            at += head
            if width < 0:
                rows[:, at : at + 8] = np.ascontiguousarray(values, dtype="<f8").view(np.uint8).reshape(-1, 8)
                continue
            left = values.astype(np.uint64)
            for i in range(width):
                more = 0x80 if i < width - 1 else 0
                rows[:, at + i] = (left & np.uint64(0x7F)).astype(np.uint8) | more
                left = left >> np.uint64(7)
            if left.any():
                raise ValueError(f"{name} does not fit into a varint of {width} bytes")
        return rows


@dataclass(frozen=True)
class LineJob:
    """One line to write: its head, its template and its columns."""

    head: bytes
    template: Template
    columns: dict[str, NDArray[np.generic]]

    @property
    def count(self) -> int:
        """Events of the line."""
        return len(self.columns["offset"])

    @property
    def size(self) -> int:
        """Bytes of the encoded line."""
        return len(self.head) + self.count * self.template.size

    def write(self, out: BinaryIO) -> None:
        """Write the line, piece by piece."""
        out.write(tag(3, BYTES) + varint(self.size) + self.head)
        for low in range(0, self.count, CHUNK_EVENTS):
            part = {name: column[low : low + CHUNK_EVENTS] for name, column in self.columns.items()}
            out.write(self.template.fill(part).data)


def line_head(line_id: int, name: str, timestamp_ns: int) -> bytes:
    """What precedes the events of a line."""
    return varint_field(1, line_id) + text_field(2, name) + varint_field(3, timestamp_ns)


class Metadata:
    """Names of a plane: stats below 128, everything else from 128 on, so that ids have known widths."""

    def __init__(self, stats: Sequence[str]) -> None:
        self.stat = {name: i + 1 for i, name in enumerate(stats)}
        self._strings: dict[str, int] = {}
        self._events: dict[str, int] = {}

    def ref(self, text: str) -> int:
        """The id under which a string is stored."""
        return self._strings.setdefault(text, FIRST_WIDE_ID + len(self._strings))

    def event(self, name: str) -> int:
        """The id of an event's name."""
        return self._events.setdefault(name, FIRST_WIDE_ID + len(self._events))

    def encode(self) -> bytes:
        """The metadata, as fields of a plane."""
        stats = {**self.stat, **self._strings}
        return b"".join(
            map_entry(number, key, varint_field(1, key) + text_field(2, name))
            for number, names in ((4, self._events), (5, stats))
            for name, key in names.items()
        )
