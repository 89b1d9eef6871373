"""The numpy twin of the compiled plane decoder: the same columns without a compiler.

Three passes. Plain Python walks the plane and its lines and notes where each event lies. Then
all events are decoded in lockstep, field by field, in batches that fit the cache; the stats found
on the way are decoded in lockstep as well. Whatever is unusual (unknown fields, long tags, odd
orders) leaves the fast lane and is parsed by the plain reader
(`wire_plain`), which is also the definition of what the fast lane must give.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces.columns import Int64, StringTable
from tb_gpu_doctor.traces.grouping import distinct
from tb_gpu_doctor.traces.wire import (
    BASE_ROW_BYTES,
    PART_BYTES,
    SLOT_DTYPES,
    SLOTS,
    RawPlane,
    SlotKind,
    memory_limit,
)
from tb_gpu_doctor.traces.wire_plain import (
    BYTES,
    BYTES_VALUE,
    DOUBLE,
    INT,
    REF,
    STR,
    UINT,
    VARINT,
    LineTable,
    MalformedError,
    PlaneIndex,
    TooManyPartsError,
    Value,
    fields,
    index_plane,
    read_line,
    read_stat,
    signed,
)

_BATCH = 1 << 16
_PAD = 16  # reads past the last field stay inside the buffer


class _Strings:
    """Interns byte strings."""

    def __init__(self) -> None:
        self.ids: dict[bytes, int] = {}

    def add(self, value: bytes) -> int:
        return self.ids.setdefault(value, len(self.ids))

    def table(self) -> StringTable:
        return StringTable.of(self.ids)


def decode_plane_numpy(data: bytes) -> RawPlane:
    """Decode one XPlane message; see `tb_gpu_doctor.traces.wire` for the contract.

    Raises:
        ProfileError: ``malformed`` (params: offset) or ``too_many_events`` (params: offset = how many).
    """
    try:
        return _Decoder(data).decode()
    except MalformedError as error:
        raise ProfileError("malformed", offset=error.offset) from None
    except TooManyPartsError as error:
        raise ProfileError("too_many_events", offset=error.count) from None


class _Decoder:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.strings = _Strings()

    def decode(self) -> RawPlane:
        data = self.data
        index = index_plane(data, memory_limit(len(data)) // PART_BYTES)
        plane_stats = [read_stat(data, start, end) for start, end in index.stats]
        starts, ends, lines = array("q"), array("q"), LineTable()
        for start, end in index.lines:
            read_line(data, start, end, lines, starts, ends)
        count = len(starts)
        self._check_memory(count, index)

        self.slot_of = {
            ident: slot
            for ident, name in index.stat_names.items()
            for slot, (wanted, _) in enumerate(SLOTS)
            if name == wanted.encode()
        }
        self.stat_names = index.stat_names
        self.event_metadata = np.zeros(count, np.int64)
        self.offset = np.zeros(count, np.int64)
        self.duration = np.zeros(count, np.int64)
        self.has_start = np.ones(count, np.uint8)
        self.slots: list[NDArray[np.generic] | None] = [None] * len(SLOTS)
        if count:
            self.buffer = np.frombuffer(data + bytes(_PAD), np.uint8)
            self.words = np.lib.stride_tricks.as_strided(self.buffer, (len(data) + _PAD - 7, 8), (1, 1))
            all_starts, all_ends = np.frombuffer(starts, np.int64), np.frombuffer(ends, np.int64)
            for low in range(0, count, _BATCH):
                high = min(low + _BATCH, count)
                self._decode_events(low, all_starts[low:high], all_ends[low:high])
        names = _lookup(self.event_metadata, {k: self.strings.add(v) for k, v in index.event_names.items()}, -1)
        return RawPlane(
            name=index.name,
            id=signed(index.id),
            stats=tuple(self._named_stats(plane_stats)),
            line_id=np.array(lines.id, np.int64),
            line_timestamp_ns=np.array(lines.timestamp_ns, np.int64),
            line_duration_ps=np.array(lines.duration_ps, np.int64),
            line_events=np.array(lines.events, np.int64),
            line_name=tuple(lines.name),
            line_display_name=tuple(lines.display_name),
            line=np.repeat(np.arange(len(lines.events), dtype=np.int32), lines.events),
            event_name=names.astype(np.int32),
            offset=self.offset,
            duration=self.duration,
            has_start=self.has_start,
            slots=tuple(self.slots),
            strings=self.strings.table(),
        )

    def _check_memory(self, count: int, index: PlaneIndex) -> None:
        present = set(index.stat_names.values())
        row = BASE_ROW_BYTES + sum(np.dtype(SLOT_DTYPES[k]).itemsize for n, k in SLOTS if n.encode() in present)
        if count * row > memory_limit(len(self.data)):
            raise ProfileError("too_many_events", offset=count)

    def _named_stats(self, stats: list[tuple[int, Value | None]]) -> Iterator[tuple[bytes, int | float | bytes]]:
        for metadata, value in stats:
            name = self.stat_names.get(metadata)
            if name is None or value is None:
                continue
            tag, content = value
            if tag == REF:
                ref = self.stat_names.get(signed(int(content)))
                if ref is not None:
                    yield name, ref
            else:
                yield name, signed(content) if tag == INT and isinstance(content, int) else content

    # -- the fast lane ---------------------------------------------------------------------

    def _decode_events(self, base: int, starts: Int64, ends: Int64) -> None:
        """Decode the events of one batch; rows ``base`` on."""
        buffer = self.buffer
        slow = np.zeros(len(starts), np.bool_)
        position = starts.copy()
        active = np.flatnonzero(position < ends)
        stat_rows: list[Int64] = []
        stat_starts: list[Int64] = []
        stat_ends: list[Int64] = []
        while len(active):
            here = position[active]
            tag = buffer[here]
            known = np.zeros(len(active), np.bool_)
            for wanted, column in ((0x08, self.event_metadata), (0x10, self.offset), (0x18, self.duration)):
                hit = tag == wanted
                if hit.any():
                    known |= hit
                    rows = active[hit]
                    value, position[rows] = self._varint(here[hit] + 1)
                    column[base + rows] = value.view(np.int64)
                    if wanted == 0x10:
                        self.has_start[base + rows] = 1
            hit = tag == 0x22
            if hit.any():
                known |= hit
                rows = active[hit]
                length, body = self._varint(here[hit] + 1)
                _require(length <= np.uint64(len(self.data)), body)
                end = body + length.view(np.int64)
                stat_rows.append(rows)
                stat_starts.append(body)
                stat_ends.append(end)
                position[rows] = end
            slow[active[~known]] = True
            _require((position[active] <= ends[active]) | ~known, position[active])
            active = active[known & (position[active] < ends[active])]
        if stat_rows:
            rows, begin, stop = np.concatenate(stat_rows), np.concatenate(stat_starts), np.concatenate(stat_ends)
            if slow.any():
                keep = ~slow[rows]
                rows, begin, stop = rows[keep], begin[keep], stop[keep]
            self._decode_stats(base + rows, begin, stop)
        for row in np.flatnonzero(slow).tolist():
            self._slow_event(base + row, int(starts[row]), int(ends[row]))

    def _varint(self, position: Int64, strict: bool = True) -> tuple[NDArray[np.uint64], Int64]:
        """Varints at ``position``: (values, positions after them).

        One of more than 10 bytes raises, or without ``strict`` gets the position -1.
        """
        word = self.words[position].view("<u8").ravel()
        stop = ~word & np.uint64(0x8080808080808080)
        last = stop & (~stop + np.uint64(1))  # the lowest stop bit; 0 when there is none in 8 bytes
        value = word & (last | (last - np.uint64(1))) & np.uint64(0x7F7F7F7F7F7F7F7F)
        value = (value & np.uint64(0x007F007F007F007F)) | ((value & np.uint64(0x7F007F007F007F00)) >> np.uint64(1))
        value = (value & np.uint64(0x00003FFF00003FFF)) | ((value & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2))
        value = (value & np.uint64(0x000000000FFFFFFF)) | ((value & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4))
        # the exponent of a power of two as float64 is its bit number: 7 for one byte, 15 for two, ...
        after = position + ((((last.astype(np.float64).view(np.int64) >> 52) - 1023) >> 3) + 1)
        wide = np.flatnonzero(last == 0)
        if len(wide):  # hashes and negative numbers: 9 or 10 bytes
            ninth = self.buffer[position[wide] + 8].astype(np.uint64)
            tenth = self.buffer[position[wide] + 9].astype(np.uint64)
            more = ninth >= 0x80
            value[wide] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
            value[wide] |= np.where(more, tenth << np.uint64(63), np.uint64(0))
            after[wide] = position[wide] + np.where(more, 10, 9)
            after[wide[more & (tenth >= 0x80)]] = -1
            if strict:
                _require(after[wide] >= 0, position[wide])
        return value, after

    def _decode_stats(self, rows: Int64, starts: Int64, ends: Int64) -> None:
        """Decode stats and set the slots of their events; later stats of an event win."""
        # A stat is at least metadata id and value; anything else is for the plain reader.
        fast = (ends - starts >= 4) & (self.buffer[starts] == 0x08)
        metadata, here = self._varint(np.where(fast, starts + 1, 0), strict=False)
        fast &= (here > 0) & (here < ends)
        here = np.where(fast, here, 0)
        tag = self.buffer[here]
        here = here + 1
        number, after = self._varint(here, strict=False)
        fast &= (after > 0) | (tag == DOUBLE)
        after = np.where(tag == DOUBLE, here + 8, after)
        text = (tag == STR) | (tag == BYTES_VALUE)
        size_ok = number <= np.uint64(len(self.data))
        text_end = after + np.where(text & size_ok, number, 0).view(np.int64)
        after_all = np.where(text, text_end, after)
        known = text | (tag == DOUBLE) | (tag == UINT) | (tag == INT) | (tag == REF)
        fast &= known & (after_all == ends) & (size_ok | ~text)

        slot = _lookup(metadata.view(np.int64), self.slot_of, -1)
        for wanted in distinct(slot[fast]).tolist():
            if wanted >= 0:
                pick = np.flatnonzero(fast & (slot == wanted))
                self._set_slot(wanted, rows[pick], tag[pick], number[pick], here[pick], after[pick], ends[pick])
        # Plain reader for the rest. An event may mix both; a later stat must win, so redo the whole event.
        odd = np.flatnonzero(~fast)
        if len(odd):
            again = np.isin(rows, rows[odd])
            order = np.flatnonzero(again)
            for row, start, end in zip(rows[order].tolist(), starts[order].tolist(), ends[order].tolist(), strict=True):
                self._set_stat(row, *read_stat(self.data, start, end))

    def _set_slot(
        self,
        slot: int,
        rows: Int64,
        tag: NDArray[np.uint8],
        number: NDArray[np.uint64],
        here: Int64,
        after: Int64,
        ends: Int64,
    ) -> None:
        kind = SLOTS[slot][1]
        doubles = tag == DOUBLE
        integers = (tag == UINT) | (tag == INT)
        if kind is SlotKind.STR:
            refs = tag == REF
            if refs.any():
                ids = {k: self.strings.add(v) for k, v in self._ref_names(number[refs]).items()}
                text = _lookup(number[refs].view(np.int64), ids, -1)
            texts = np.flatnonzero((tag == STR) | (tag == BYTES_VALUE))
            # one assignment, in wire order, so that the last stat of an event wins
            values = np.full(len(rows), -1, np.int64)
            if refs.any():
                values[refs] = text
            add, data = self.strings.add, self.data
            values[texts] = [add(data[s:e]) for s, e in zip(after[texts].tolist(), ends[texts].tolist(), strict=True)]
            keep = values >= 0
        else:
            floats = self.words[here].view("<f8").ravel()
            if kind is SlotKind.INT:
                with np.errstate(invalid="ignore"):
                    fits = doubles & (floats >= -(2.0**63)) & (floats < 2.0**63)
                    values = np.where(fits, np.where(fits, floats, 0.0).astype(np.int64), number.view(np.int64))
                keep = integers | fits
            else:
                values = np.where(tag == INT, number.view(np.int64).astype(np.float64), number.astype(np.float64))
                values = np.where(doubles, floats, values)
                keep = integers | doubles
        if keep.any():
            self._column(slot)[rows[keep]] = values[keep]

    def _ref_names(self, refs: NDArray[np.uint64]) -> dict[int, bytes]:
        wanted = distinct(refs.view(np.int64)).tolist()
        return {ref: self.stat_names[ref] for ref in wanted if ref in self.stat_names}

    def _column(self, slot: int) -> NDArray[np.generic]:
        column = self.slots[slot]
        if column is None:
            kind = SLOTS[slot][1]
            absent = np.nan if kind is SlotKind.FLOAT else -1
            column = self.slots[slot] = np.full(len(self.offset), absent, SLOT_DTYPES[kind])
        return column

    # -- the plain reader ------------------------------------------------------------------

    def _slow_event(self, row: int, start: int, end: int) -> None:
        metadata = offset = duration = 0
        has_start = 1
        for number, wire, low, value in fields(self.data, start, end):
            if number == 1 and wire == VARINT:
                metadata = value
            elif number == 2 and wire == VARINT:
                offset, has_start = value, 1
            elif number == 3 and wire == VARINT:
                duration = value
            elif number == 5 and wire == VARINT:
                offset, has_start = 0, 0
            elif number == 4 and wire == BYTES:
                self._set_stat(row, *read_stat(self.data, low, value))
        self.event_metadata[row] = signed(metadata)
        self.offset[row], self.duration[row], self.has_start[row] = signed(offset), signed(duration), has_start

    def _set_stat(self, row: int, metadata: int, value: Value | None) -> None:
        slot = self.slot_of.get(metadata)
        if slot is None or value is None:
            return
        tag, content = value
        kind = SLOTS[slot][1]
        if kind is SlotKind.STR:
            if tag == REF:
                name = self.stat_names.get(signed(int(content)))
            else:
                name = content if isinstance(content, bytes) else None
            if name is not None:
                self._column(slot)[row] = self.strings.add(name)
        elif tag in (UINT, INT) and isinstance(content, int):
            number = content if kind is SlotKind.FLOAT and tag == UINT else signed(content)
            self._column(slot)[row] = float(number) if kind is SlotKind.FLOAT else number
        elif tag == DOUBLE and isinstance(content, float):
            if kind is SlotKind.FLOAT:
                self._column(slot)[row] = content
            elif -(2.0**63) <= content < 2.0**63:
                self._column(slot)[row] = int(content)


def _require(ok: NDArray[np.bool_], position: Int64) -> None:
    if not ok.all():
        raise MalformedError(int(position[int(np.argmin(ok))]))


def _lookup(keys: Int64, table: dict[int, int], default: int) -> Int64:
    """``table[key]`` for each key."""
    out = np.full(len(keys), default, np.int64)
    if not len(keys) or not table:
        return out
    known = np.array(sorted(table), np.int64)
    values = np.array([table[k] for k in known.tolist()], np.int64)
    if known[0] >= 0 and known[-1] < 1 << 20:  # dense ids: one gather
        dense = np.full(int(known[-1]) + 1, default, np.int64)
        dense[known] = values
        inside = (keys >= 0) & (keys < len(dense))
        out[inside] = dense[keys[inside]]
        return out
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    hit = known[at] == keys
    out[hit] = values[at[hit]]
    return out
