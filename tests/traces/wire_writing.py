"""XPlanes as no profiler writes them, and damaged ones: food for the two decoders.

Everything draws from a `random.Random`, so that a seed repeats it and hypothesis
(``st.randoms``) can drive and shrink it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from simulator.xplane_writer import BYTES, FIXED64, VARINT, tag, varint
from tb_gpu_doctor.traces.wire import SLOTS

FIXED32 = 5
SLOT_NAMES = tuple(name.encode() for name, _ in SLOTS)

# Field numbers whose value is a message, by message: what `damage_fields` descends into.
_CHILDREN: dict[str, dict[int, str]] = {
    "plane": {3: "line", 4: "entry", 5: "entry", 6: "stat"},
    "line": {4: "event"},
    "entry": {2: "metadata"},
    "event": {4: "stat"},
}
_INTERESTING = (0, 1, 2, 127, 128, 16383, 16384, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_DOUBLES = (0.0, -0.0, 1.5, -2.75, 75.0, 2.0**53, 2.0**63, -(2.0**63), 1e300, -1e300)
_ODD_DOUBLES = (float("nan"), float("inf"), float("-inf"), 5e-324)


class PlaneWriter:
    """Draws XPlane messages; ``oddness`` is how often something is unusual, 0 gives what a profiler could write."""

    def __init__(self, random: Random, oddness: float = 0.1) -> None:
        self.random = random
        self.oddness = oddness

    def odd(self) -> bool:
        """Whether to do the unusual now."""
        return self.random.random() < self.oddness

    def number(self) -> int:
        """64 bits: small, an edge, or anything."""
        kind = self.random.randrange(4)
        if kind == 0:
            return self.random.choice(_INTERESTING)
        return self.random.getrandbits((0, 5, 40, 64)[kind])

    def varint(self, value: int) -> bytes:
        """A varint, when odd longer than it need be."""
        out = varint(value)
        if self.odd() and len(out) < 10:
            padding = self.random.randrange(1, 11 - len(out))
            out = out[:-1] + bytes([out[-1] | 0x80]) + b"\x80" * (padding - 1) + b"\0"
        return out

    def key(self, number: int, wire: int) -> bytes:
        """What precedes a field."""
        return self.varint(number << 3 | wire)

    def double(self) -> float:
        """A number; when odd, one that few expect."""
        return self.random.choice(_ODD_DOUBLES if self.odd() else _DOUBLES)

    def text(self) -> bytes:
        """A short string from few, so that some repeat; when odd, any bytes."""
        if self.odd():
            return bytes(self.random.getrandbits(8) for _ in range(self.random.randrange(300)))
        return self.random.choice(
            (b"", b"a", b"MatMul", b"regs:32 grid:1,1,1", b"volta_sgemm_128x64_nn", "größer".encode())
        )

    def payload(self, wire: int) -> bytes:
        """Any value of a wire type."""
        if wire == VARINT:
            return self.varint(self.number())
        if wire == FIXED64:
            return struct.pack("<d", self.double())
        if wire == FIXED32:
            return struct.pack("<I", self.random.getrandbits(32))
        text = self.text()
        return self.varint(len(text)) + text

    def integer(self, number: int, value: int | None = None) -> bytes:
        """A varint field."""
        return self.key(number, VARINT) + self.varint(self.number() if value is None else value)

    def bytes(self, number: int, value: bytes) -> bytes:
        """A length-delimited field."""
        return self.key(number, BYTES) + self.varint(len(value)) + value

    def unknown(self) -> bytes:
        """A field outside the schema, or one inside it with another wire type, but never a broken message."""
        wire = self.random.choice((VARINT, FIXED64, BYTES, FIXED32))
        number = self.random.choice((1, 10, 12, 100, 20_000, (1 << 29) - 1))
        if wire != BYTES and self.odd():
            number = self.random.randrange(1, 12)
        return self.key(number, wire) + self.payload(wire)

    def message(self, parts: list[bytes]) -> bytes:
        """The parts in order; when odd shuffled, repeated, and with unknown fields in between."""
        if self.odd():
            parts = parts + [self.random.choice(parts) for _ in range(self.random.randrange(3)) if parts]
            parts = parts + [self.unknown() for _ in range(self.random.randrange(3))]
            self.random.shuffle(parts)
        return b"".join(parts)

    def metadata_id(self) -> int:
        """An id that the plane's maps often hold."""
        return self.number() if self.odd() else self.random.randrange(30)

    def stat(self) -> bytes:
        """An XStat."""
        value: Callable[[], bytes] = self.random.choice(
            (
                lambda: self.key(2, FIXED64) + struct.pack("<d", self.double()),
                lambda: self.integer(3),
                lambda: self.integer(4),
                lambda: self.bytes(5, self.text() if self.oddness else self.text().decode().encode()),
                lambda: self.bytes(6, self.text()),
                lambda: self.integer(7, self.metadata_id()),
            )
        )
        return self.message([self.integer(1, self.metadata_id()), value()])

    def event(self) -> bytes:
        """An XEvent."""
        parts = [
            self.integer(1, self.metadata_id()),
            self.integer(5 if self.random.randrange(8) == 0 else 2),
            self.integer(3),
            *(self.bytes(4, self.stat()) for _ in range(self.random.randrange(5))),
        ]
        return self.message(parts)

    def line(self) -> bytes:
        """An XLine."""
        parts = [
            self.integer(1),
            self.bytes(2, self.text()),
            self.integer(3),
            *(self.bytes(4, self.event()) for _ in range(self.random.randrange(6))),
            self.integer(9),
            self.bytes(11, self.text()),
        ]
        return self.message(parts)

    def entry(self, key: int, name: bytes) -> bytes:
        """A map entry of event or stat metadata."""
        value = self.message([self.integer(1, key), self.bytes(2, name)])
        return self.message([self.integer(1, key), self.bytes(2, value)])

    def plane(self) -> bytes:
        """An XPlane."""
        names = list(SLOT_NAMES)
        self.random.shuffle(names)
        parts = [
            self.integer(1),
            self.bytes(2, self.text()),
            *(self.bytes(3, self.line()) for _ in range(self.random.randrange(4))),
            *(self.bytes(4, self.entry(self.metadata_id(), self.text())) for _ in range(self.random.randrange(12))),
            *(
                self.bytes(5, self.entry(self.metadata_id() if self.odd() else key, name))
                for key, name in enumerate(names[: self.random.randrange(len(names) + 1)])
            ),
            *(self.bytes(6, self.stat()) for _ in range(self.random.randrange(4))),
        ]
        return self.message(parts)


def damage_bytes(random: Random, data: bytes) -> bytes:
    """A few bytes flipped, cut, repeated, inserted or made a length."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at = random.randrange(len(out) + 1)
        kind = random.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << random.randrange(8)
        elif kind == 1 and at < len(out):
            out[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.getrandbits(8)))
        elif kind == 2:
            del out[at:]
        elif kind == 3:
            del out[at : at + random.choice((1, 2, 4, 16))]
        elif kind == 4:
            out[at:at] = bytes(random.getrandbits(8) for _ in range(random.choice((1, 2, 8))))
        else:
            out[at:at] = out[at : at + random.choice((2, 8, 64))]
    return bytes(out)


def fields_of(data: bytes) -> list[tuple[int, int, bytes]]:
    """(number, wire type, payload) of a sound message, read in the plainest way."""
    fields, at = [], 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = number()
        start = at
        wire = key & 7
        if wire == VARINT:
            number()
            fields.append((key >> 3, wire, data[start:at]))
        elif wire == BYTES:
            size = number()
            fields.append((key >> 3, wire, data[at : at + size]))
            at += size
        else:
            at += 8 if wire == FIXED64 else 4
            fields.append((key >> 3, wire, data[start:at]))
    return fields


def damage_fields(random: Random, data: bytes, message: str = "plane") -> bytes:
    """One field somewhere in a sound message removed, repeated, moved or replaced; every length stays right."""
    fields = fields_of(data)
    children = _CHILDREN.get(message, {})
    inner = [i for i, (number, wire, _) in enumerate(fields) if wire == BYTES and number in children]
    if inner and random.random() < 0.75:
        at = random.choice(inner)
        number, wire, payload = fields[at]
        fields[at] = (number, wire, damage_fields(random, payload, children[number]))
    else:
        writer = PlaneWriter(random, 0.3)
        at = random.randrange(len(fields) + 1)
        kind = random.randrange(5)
        if kind == 0:
            del fields[at : at + 1]
        elif kind == 1 and fields:
            fields.insert(at, random.choice(fields))
        elif kind == 2:
            random.shuffle(fields)
        elif kind == 3 and at < len(fields):
            number, wire, _ = fields[at]
            if wire == BYTES:
                fields[at] = (number, wire, b"" if number in children else writer.text())
            else:
                fields[at] = (number, wire, writer.payload(wire))
        else:
            return (
                b"".join(_written(field) for field in fields[:at])
                + writer.unknown()
                + b"".join(_written(field) for field in fields[at:])
            )
    return b"".join(_written(field) for field in fields)


def _written(field: tuple[int, int, bytes]) -> bytes:
    number, wire, payload = field
    return tag(number, wire) + (varint(len(payload)) if wire == BYTES else b"") + payload
