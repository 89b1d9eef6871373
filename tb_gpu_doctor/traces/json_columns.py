"""What both dialects of trace JSON share on the way to a `Trace`: strings, lines, times, sparse stats."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.traces import classify
from tb_gpu_doctor.traces.columns import Device, HostThread, Int64, SparseStat, Stream
from tb_gpu_doctor.traces.json_document import Event

# Longer than any profile: CUPTI's overflown clocks give such times.
MAX_TIME_US = 7 * 24 * 3600 * 10**6
# Times from here on count from 1970, not from the start of the recording.
EPOCH_US = 10**15
MAX_NAME = 65_536
MAX_LINE_NAME = 1024
_STAMP, _LENGTH = attrgetter("ts"), attrgetter("dur")


class Strings:
    """One table for a file."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def id(self, text: str | None) -> int:
        """Id of a text; -1 for none."""
        return -1 if text is None else self.ids.setdefault(text[:MAX_NAME], len(self.ids))


class Numbered(dict[Any, int]):
    """Gives things numbers from 0 in the order in which they are first met."""

    def __missing__(self, key: Hashable) -> int:
        number = self[key] = len(self)
        return number

    def of(self, things: Iterable[Hashable], count: int) -> Int64:
        """The number of each of so many things."""
        return np.fromiter(map(self.__getitem__, things), np.int64, count)


def first_met(codes: Int64, bound: int) -> tuple[Int64, Int64]:
    """The distinct codes in the order in which they are first met, and for each row which of them it has.

    Args:
        codes: of rows, 0..bound - 1.
        bound: a small one is quicker.
    """
    count = len(codes)
    if bound > 8 * count + 1024:
        distinct, codes = np.unique(codes, return_inverse=True)
        bound = len(distinct)
    else:
        distinct = np.arange(bound)
    first = np.full(bound, count, np.int64)
    first[codes[::-1]] = np.arange(count - 1, -1, -1)  # of several rows the last written counts
    met = np.flatnonzero(first < count)
    met = met[np.argsort(first[met])]
    rank = np.zeros(bound, np.int64)
    rank[met] = np.arange(len(met))
    return distinct[met], rank[codes]


@dataclass
class Lines:
    """Devices, streams and threads in the order in which they are first met."""

    host: str
    devices: dict[int, int] = field(default_factory=dict)
    streams: dict[tuple[int, object], Stream] = field(default_factory=dict)
    threads: dict[tuple[object, object], HostThread] = field(default_factory=dict)

    def device(self, ident: int) -> int:
        """Index of a device."""
        return self.devices.setdefault(ident, len(self.devices))

    def stream(self, device: int, key: object, line_id: int, name: str) -> int:
        """Index of a stream of a device."""
        found = self.streams.get((device, key))
        if found is None:
            found = self.streams[device, key] = Stream(len(self.streams), device, line_id, name[:MAX_LINE_NAME])
        return found.index

    def thread(self, process: object, key: object, line_id: int, name: str) -> int:
        """Index of a host thread."""
        found = self.threads.get((process, key))
        if found is None:
            found = HostThread(len(self.threads), line_id, name[:MAX_LINE_NAME])
            self.threads[process, key] = found
        return found.index

    def ordered(self, described: dict[int, Device]) -> tuple[tuple[Device, ...], tuple[Stream, ...], NDArray[np.int32]]:
        """Devices numbered by id, their streams, and the new index of each old one."""
        idents = sorted(self.devices)
        renumbered = np.zeros(len(idents), np.int32)
        devices = []
        for index, ident in enumerate(idents):
            renumbered[self.devices[ident]] = index
            known = described.get(ident) or Device(index, self.host, ident)
            devices.append(Device(**{**known.__dict__, "index": index, "host": self.host, "id": ident}))
        streams = tuple(Stream(s.index, int(renumbered[s.device]), s.line_id, s.name) for s in self.streams.values())
        return tuple(devices), streams, renumbered


@dataclass(frozen=True)
class Times:
    """When events took place.

    Attributes:
        rows: index of the events with plausible times.
        start, duration: of those, in picoseconds from the trace's zero.
        base_us: the zero in the file's own microseconds.
        notes: what had to be left out.
    """

    rows: Int64
    start: Int64
    duration: Int64
    base_us: int
    notes: tuple[Phrase, ...]


def times_of(events: Sequence[Event], unit_ps: int, keep_zero: bool) -> Times:
    """Times of events as whole units.

    Args:
        events: with ``ts`` and ``dur`` in microseconds.
        unit_ps: resolution of the writer in picoseconds: 1,000 where it counts nanoseconds.
        keep_zero: keep the file's own zero unless its times count from 1970.
    """
    # None becomes NaN, which JSON has not
    stamp = np.fromiter(map(_STAMP, events), np.float64, len(events))
    length = np.fromiter(map(_LENGTH, events), np.float64, len(events))
    length[np.isnan(length)] = 0.0
    good = np.abs(stamp) <= 9e15  # whole microseconds are exact up to here; false for NaN
    middle = float(np.median(stamp[good])) if good.any() else 0.0
    good &= (np.abs(stamp - middle) <= MAX_TIME_US) & (length <= MAX_TIME_US)
    negative = good & (length < 0)
    rows = np.flatnonzero(good & ~negative)
    notes = []
    if implausible := int(np.count_nonzero(~good)):
        notes.append(Phrase("notes.implausible_times", {"count": implausible}))
    if below := int(np.count_nonzero(negative)):
        notes.append(Phrase("notes.negative_durations", {"count": below}))
    base = 0
    if len(rows) and not (keep_zero and middle < EPOCH_US):
        base = int(np.floor(stamp[rows].min()))
    units = 1_000_000 // unit_ps
    # The difference first: of times since 1970 a double holds the microseconds' fraction only coarsely.
    start = np.rint((stamp[rows] - base) * units).astype(np.int64) * unit_ps
    duration = np.rint(length[rows] * units).astype(np.int64) * unit_ps
    return Times(rows, start, duration, base, tuple(notes))


def wall_start(base_us: int, base_ns: int) -> int | None:
    """Epoch nanoseconds of the trace's zero, where the file's times lead to a plausible one."""
    total = base_us * 1000 + base_ns
    return total if EPOCH_US * 1000 <= total < 4 * EPOCH_US * 1000 else None


def sparse(values: Mapping[str, tuple[Int64, Int64]], row_of: Int64) -> dict[str, SparseStat]:
    """Stats given as (indices of events, values) by the rows that the events got; -1 where one was left out."""
    found = {}
    for name, (index, value) in values.items():
        rows = row_of[index]
        kept = np.flatnonzero(rows >= 0)
        kept = kept[np.argsort(rows[kept], kind="stable")]
        if len(kept):
            found[name] = SparseStat(rows[kept], value[kept])
    return found


def sorted_rows(count: int, rows: Int64, order: Int64 | None) -> Int64:
    """The row in the sorted columns of each of ``count`` events; -1 where it was left out."""
    row_of = np.full(count, -1, np.int64)
    kept = rows if order is None else rows[order]
    row_of[kept] = np.arange(len(kept))
    return row_of


def stream_name(name: str | None, line_id: int) -> str:
    """``Stream #7`` for PyTorch's ``stream 7``."""
    return name if name is not None and classify.stream_types(name) is not None else f"Stream #{line_id}"
