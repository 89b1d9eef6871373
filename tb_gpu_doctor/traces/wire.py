"""One XPlane message from protobuf wire format to numpy columns: the contract of the two decoders.

`decode_plane` calls the compiled decoder (`_wire`) where it was built and the numpy twin
(`wire_numpy`) elsewhere. Both give equal columns for every input, and refuse the same inputs:

* Whole plane or nothing: malformed wire data anywhere in the plane raises. Malformed is: a
  varint longer than 10 bytes (bits above 64 are dropped), a varint or length-delimited field
  that runs past the end of its message, a fixed32/fixed64 cut short, field number 0 (or one that
  does not fit in 32 bits with its wire type: tag >= 2**32), wire types 3, 4, 6, 7.
* A known field with another wire type than the schema's, and any unknown field, is skipped.
* Scalar fields that repeat: the last wins. Map entries that repeat a key: the last wins; a map
  entry without key has key 0, without value an empty value. Map values and metadata are messages:
  when the value field repeats inside one entry, the fields of the later one win (merge).
* `XEvent.offset_ps` and `num_occurrences` are one oneof: the last in wire order wins, and an event whose
  last is num_occurrences has no start (`has_start` 0, `offset` 0). Neither: offset 0, has a start.
* `XStat` values are one oneof: the last in wire order counts; without one the stat says nothing.
  A stat sets its slot if it can be converted: INT takes uint64 and int64 (64 bits, two's
  complement) and double (truncated toward zero, if -2**63 <= x < 2**63); FLOAT takes all three;
  STR takes str, bytes, and ref (the name of that stat metadata, if it exists). A slot that several
  stats of one event set keeps the last. Other combinations set nothing.
* Names are bytes, not checked for UTF-8. An event whose metadata id is not in the map has name -1.
  Only XEvent's own stats count, not those of its metadata.
* Strings are interned: equal bytes have one id; ids are otherwise in no particular order.
* Memory is capped at `memory_limit`: more than limit / `PART_BYTES` lines and plane stats together, or more
  events than limit / (`BASE_ROW_BYTES` + the widths of the slots that the stat metadata name), are refused.
* A slot whose stat names are not in the plane's stat metadata is None. A slot may be None as well
  when no event sets it (both decoders' callers treat None as a column of "not recorded").
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from importlib import import_module
from types import ModuleType

import numpy as np

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces.columns import Int32, Int64, StringTable, UInt8


class SlotKind(IntEnum):
    """How a slot is stored: int64 (-1 absent), float64 (NaN absent), int32 string id (-1 absent)."""

    INT = 0
    FLOAT = 1
    STR = 2


# The stats that become columns: (name of the stat metadata, kind). Order is part of the contract.
SLOTS: tuple[tuple[str, SlotKind], ...] = (
    ("correlation_id", SlotKind.INT),
    ("step_num", SlotKind.INT),
    ("group_id", SlotKind.INT),
    ("_r", SlotKind.INT),
    ("_pt", SlotKind.INT),
    ("_p", SlotKind.INT),
    ("_ct", SlotKind.INT),
    ("_c", SlotKind.INT),
    ("cuda_graph_id", SlotKind.INT),
    ("theoretical_occupancy_pct", SlotKind.FLOAT),
    ("kernel_details", SlotKind.STR),
    ("memcpy_details", SlotKind.STR),
    ("Memset_details", SlotKind.STR),
    ("memset_details", SlotKind.STR),
    ("memalloc_details", SlotKind.STR),
    ("MemFree_details", SlotKind.STR),
    ("memfree_details", SlotKind.STR),
    ("MemoryResidency_details", SlotKind.STR),
    ("tf_op", SlotKind.STR),
    ("level 0", SlotKind.STR),
    ("name", SlotKind.STR),
    ("hlo_op", SlotKind.STR),
    ("hlo_module", SlotKind.STR),
    # tf.data
    ("id", SlotKind.INT),
    ("parent_id", SlotKind.INT),
    ("parallelism", SlotKind.INT),
    ("buffer_limit", SlotKind.INT),
    ("element_size", SlotKind.INT),
    ("cpu_budget", SlotKind.INT),
    ("autotune", SlotKind.STR),
    # calls of a tf.function
    ("tracing_count", SlotKind.INT),
    ("tf_function_call", SlotKind.STR),
    # operations and bytes of a kernel, where the profiler counts them
    ("flops", SlotKind.INT),
    ("bytes_accessed", SlotKind.INT),
    # what a framework's allocator says at each allocation
    ("allocator_name", SlotKind.STR),
    ("bytes_allocated", SlotKind.INT),
    ("bytes_available", SlotKind.INT),
    ("peak_bytes_in_use", SlotKind.INT),
)
SLOT_DTYPES = {SlotKind.INT: np.int64, SlotKind.FLOAT: np.float64, SlotKind.STR: np.int32}

# Memory that one plane's columns may take: a hostile plane of 6-byte events would otherwise
# grow fortyfold. Real files need 1 to 10 times their size.
_FLOOR_BYTES = 64 << 20
_GROWTH = 24
# Bytes of one event row without its slots: line, name, offset, duration, has_start.
BASE_ROW_BYTES = 4 + 4 + 8 + 8 + 1
# Bytes that a line, or a stat of the plane itself, may take as columns and Python objects.
PART_BYTES = 128


@dataclass(frozen=True)
class RawPlane:
    """A decoded XPlane; n events in wire order, m lines in wire order.

    Attributes:
        name, id: of the plane.
        stats: the plane's own stats as (stat name, value); value is int, float or bytes
            (a ref gives the referenced name); stats of unknown metadata are left out.
        line_id, line_timestamp_ns, line_duration_ps, line_events: shape (m,), int64.
        line_name, line_display_name: m names.
        line: line of each event, shape (n,).
        event_name: string id of the event metadata's name, shape (n,), -1 unknown.
        offset, duration: picoseconds as recorded, shape (n,).
        has_start: 0 for aggregated events (num_occurrences), shape (n,).
        slots: one column per entry of `SLOTS`, or None.
        strings: what ids refer to.
    """

    name: bytes
    id: int
    stats: tuple[tuple[bytes, int | float | bytes], ...]
    line_id: Int64
    line_timestamp_ns: Int64
    line_duration_ps: Int64
    line_events: Int64
    line_name: tuple[bytes, ...]
    line_display_name: tuple[bytes, ...]
    line: Int32
    event_name: Int32
    offset: Int64
    duration: Int64
    has_start: UInt8
    slots: tuple[np.ndarray | None, ...]
    strings: StringTable

    def slot(self, name: str) -> np.ndarray | None:
        """The column of one stat, None when the plane has none."""
        return self.slots[_SLOT_INDEX[name]]


_SLOT_INDEX = {name: index for index, (name, _) in enumerate(SLOTS)}
_SLOT_SPEC = tuple((name.encode(), int(kind)) for name, kind in SLOTS)


def memory_limit(size_bytes: int) -> int:
    """Bytes that the columns of a plane of ``size_bytes`` may take."""
    return _FLOOR_BYTES + _GROWTH * size_bytes


def compiled() -> ModuleType | None:
    """The compiled decoder, None where it was not built."""
    try:
        return import_module("tb_gpu_doctor.traces._wire")
    except ImportError:
        return None


def decode_plane_compiled(module: ModuleType, data: bytes) -> RawPlane:
    """`decode_plane` by the compiled decoder.

    ``module.decode_plane(data: bytes, slots: tuple[tuple[bytes, int], ...], max_bytes: int)`` returns
    (name, id, stats, lines, events, slots, blob, string_offsets) where lines = (id, timestamp_ns,
    duration_ps, events [int64 buffers], names, display_names [lists of bytes]), events = (line i32,
    name i32, offset i64, duration i64, has_start u8) as bytearrays, slots = list of bytearray or
    None. It raises ValueError("malformed", byte_offset) or ValueError("too_many_events", rows).
    """
    try:
        name, ident, stats, lines, events, slots, blob, offsets = module.decode_plane(
            data, _SLOT_SPEC, memory_limit(len(data))
        )
    except ValueError as error:
        raise ProfileError(str(error.args[0]), offset=int(error.args[1])) from None
    return RawPlane(
        name=name,
        id=ident,
        stats=tuple(stats),
        line_id=np.frombuffer(lines[0], np.int64),
        line_timestamp_ns=np.frombuffer(lines[1], np.int64),
        line_duration_ps=np.frombuffer(lines[2], np.int64),
        line_events=np.frombuffer(lines[3], np.int64),
        line_name=tuple(lines[4]),
        line_display_name=tuple(lines[5]),
        line=np.frombuffer(events[0], np.int32),
        event_name=np.frombuffer(events[1], np.int32),
        offset=np.frombuffer(events[2], np.int64),
        duration=np.frombuffer(events[3], np.int64),
        has_start=np.frombuffer(events[4], np.uint8),
        slots=tuple(
            None if column is None else np.frombuffer(column, SLOT_DTYPES[kind])
            for column, (_, kind) in zip(slots, SLOTS, strict=True)
        ),
        strings=StringTable(bytes(blob), np.frombuffer(offsets, np.int64)),
    )


def decode_plane(data: bytes) -> RawPlane:
    """Decode one XPlane message.

    Raises:
        ProfileError: ``malformed`` (params: offset) or ``too_many_events``.
    """
    module = compiled()
    if module is not None:
        return decode_plane_compiled(module, data)
    from tb_gpu_doctor.traces.wire_numpy import decode_plane_numpy

    return decode_plane_numpy(data)
