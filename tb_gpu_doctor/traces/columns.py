"""The trace model: one decoded file as numpy columns.

Every time is an int64 in picoseconds on the file's own clock and never below zero; ``-1`` stands for
"not recorded" in every integer column but times, ``NaN`` in float columns.
String columns hold ids into :class:`StringTable`. A `Trace` is one file, hence
one clock: times of two traces are never subtracted from each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.phrase import Phrase

# Key of the note of a file that is only a part of what was recorded: nothing told of it proves that the run is well.
PART = "notes.cut_off_part"
# ... and of one that is of accelerators which are no GPUs.
OTHER_ACCELERATORS = "notes.other_accelerators"
PS_PER_MS = 1_000_000_000
PS_PER_US = 1_000_000
PS_PER_NS = 1_000

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
UInt8 = NDArray[np.uint8]
Float32 = NDArray[np.float32]


class EventClass(IntEnum):
    """What a device event is. Copies between two GPUs are COMMUNICATION with a P2P copy kind."""

    COMPUTE = 0
    COMMUNICATION = 1
    COPY = 2
    MEMSET = 3


class CopyKind(IntEnum):
    """Direction of a copy; NONE for events that are not copies."""

    NONE = 0
    H2D = 1
    D2H = 2
    D2D = 3
    P2P = 4
    H2H = 5
    OTHER = 6


@dataclass(frozen=True)
class StringTable:
    """Interned strings: UTF-8 bytes end to end, decoded only when asked for.

    ``offsets`` has one more element than there are strings. Id -1 reads as "".
    """

    blob: bytes
    offsets: Int64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> str:
        if index < 0:
            return ""
        start, end = int(self.offsets[index]), int(self.offsets[index + 1])
        return self.blob[start:end].decode("utf-8", "replace")

    def raw(self, index: int) -> bytes:
        """The bytes of one string."""
        return self.blob[int(self.offsets[index]) : int(self.offsets[index + 1])]

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    @staticmethod
    def of(values: Iterable[bytes | str]) -> StringTable:
        """A table of the given strings, in order."""
        raw = [v.encode("utf-8", "replace") if isinstance(v, str) else v for v in values]
        offsets = np.zeros(len(raw) + 1, dtype=np.int64)
        np.cumsum([len(v) for v in raw], out=offsets[1:])
        return StringTable(b"".join(raw), offsets)


@dataclass(frozen=True)
class Device:
    """One GPU of a trace; what the profile does not say is None."""

    index: int
    host: str
    id: int
    name: str | None = None
    vendor: str | None = None
    sm_count: int | None = None
    clock_khz: int | None = None
    memory_bandwidth_bytes_per_s: int | None = None
    memory_size_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    peak_flops_per_s: float | None = None
    uuid: str | None = None

    @property
    def is_nvidia(self) -> bool:
        """Whether CUDA's tables apply: old files name no vendor and are all NVIDIA."""
        return self.vendor is None or self.vendor.lower().startswith("nvidia")


@dataclass(frozen=True)
class Stream:
    """One hardware queue (XPlane line) of a device."""

    index: int
    device: int
    line_id: int
    name: str


@dataclass(frozen=True)
class HostThread:
    """One host thread (XPlane line); ``line_id`` is the thread id or a hash of it."""

    index: int
    line_id: int
    name: str


@dataclass(frozen=True)
class DeviceEvents:
    """Columns of the work done on devices, sorted by (device, start, longest first).

    Attributes:
        device: index into ``Trace.devices``.
        stream: index into ``Trace.streams``.
        start, duration: picoseconds; durations are >= 0.
        name: string id of the kernel or copy, never -1 in a `Trace`.
        klass: `EventClass`.
        correlation: joins the host event that launched it.
        details: string id of the kernel details as recorded (registers, grid, block).
        op: string id of the framework op (``scope/MatMul:MatMul``).
        hlo_op, hlo_module: string ids.
        copy_kind: `CopyKind`.
        copy_bytes: size of a copy or memset.
        copy_async: 1 asynchronous, 0 synchronous.
        copy_memory: host memory of a copy: 1 pageable, 0 page-locked (pinned).
        occupancy_pct: theoretical occupancy as recorded; NaN when absent or 0.
        group: the profiler's step group.
        graph: CUDA graph id.
    """

    device: Int32
    stream: Int32
    start: Int64
    duration: Int64
    name: Int32
    klass: UInt8
    correlation: Int64
    details: Int32
    op: Int32
    hlo_op: Int32
    hlo_module: Int32
    copy_kind: UInt8
    copy_bytes: Int64
    copy_async: NDArray[np.int8]
    copy_memory: NDArray[np.int8]
    occupancy_pct: Float32
    group: Int64
    graph: Int64

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def end(self) -> Int64:
        """Start + duration."""
        return self.start + self.duration

    def of_device(self, device: int) -> slice:
        """The rows of one device (rows are sorted by device)."""
        low, high = np.searchsorted(self.device, [device, device + 1])
        return slice(int(low), int(high))

    def rows_of_devices(self) -> dict[int, slice]:
        """`of_device` of every device that has any row."""
        borders = np.flatnonzero(np.diff(self.device)) + 1
        edges = [0, *borders.tolist(), len(self)] if len(self) else [0]
        return {int(self.device[low]): slice(low, high) for low, high in pairwise(edges)}

    def extent(self) -> tuple[int, int] | None:
        """The first start and the last end; None without any row."""
        return (int(self.start.min()), int(self.end.max())) if len(self) else None


@dataclass(frozen=True)
class HostEvents:
    """Columns of host events, sorted by (thread, start, longest first).

    Attributes:
        thread: index into ``Trace.threads``.
        start, duration: picoseconds; durations are >= 0.
        name: string id, never -1 in a `Trace`.
        correlation: joins the device events that this call launched.
        step_num: number of a step marker.
        is_root: 1 for the profiler's root events (``_r``).
        group: the profiler's step group.
        producer_type, producer_id: this event caused the one that consumes the pair.
        consumer_type, consumer_id: this event was caused by the one that produces the pair.
        graph: CUDA graph id.
        op: string id of the op that a launch worked for: the HLO op, else the framework op.
    """

    thread: Int32
    start: Int64
    duration: Int64
    name: Int32
    correlation: Int64
    step_num: Int64
    is_root: NDArray[np.int8]
    group: Int64
    producer_type: Int64
    producer_id: Int64
    consumer_type: Int64
    consumer_id: Int64
    graph: Int64
    op: Int32

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def end(self) -> Int64:
        """Start + duration."""
        return self.start + self.duration

    def of_thread(self, thread: int) -> slice:
        """The rows of one thread (rows are sorted by thread)."""
        low, high = np.searchsorted(self.thread, [thread, thread + 1])
        return slice(int(low), int(high))


@dataclass(frozen=True)
class SparseStat:
    """A stat that few events carry.

    Attributes:
        rows: rows of `HostEvents` or `DeviceEvents`, rising.
        values: their values, of the same shape; string ids where the stat is a text.
    """

    rows: Int64
    values: Int64

    def at(self, rows: Int64, absent: int = -1) -> Int64:
        """The values of any rows, ``absent`` where not recorded."""
        if not len(self.rows):
            return np.full(len(rows), absent, np.int64)
        found = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.where(self.rows[found] == rows, self.values[found], absent)


NO_STAT = SparseStat(np.zeros(0, np.int64), np.zeros(0, np.int64))

# What an event is called that the file gives no name. Profilers write it themselves, and it means nothing.
UNNAMED = "<UNKNOWN>"


_FLOAT_COLUMNS = {"occupancy_pct": np.float32}
_DTYPES: dict[str, type[np.generic]] = {
    "device": np.int32, "stream": np.int32, "thread": np.int32, "name": np.int32,
    "details": np.int32, "op": np.int32, "hlo_op": np.int32, "hlo_module": np.int32,
    "klass": np.uint8, "copy_kind": np.uint8, "copy_async": np.int8, "copy_memory": np.int8,
    "is_root": np.int8,
    **_FLOAT_COLUMNS,
}  # fmt: skip


Given = dict[str, Sequence[int] | NDArray[Any]]


def _columns(kind: type, count: int, given: Given) -> dict[str, NDArray[Any]]:
    columns: dict[str, NDArray[Any]] = {}
    for spec in fields(kind):
        dtype = _DTYPES.get(spec.name, np.int64)
        if spec.name in given:
            columns[spec.name] = np.ascontiguousarray(given[spec.name], dtype=dtype)
        elif spec.name in _FLOAT_COLUMNS:
            columns[spec.name] = np.full(count, np.nan, dtype=dtype)
        elif spec.name in ("klass", "copy_kind"):
            columns[spec.name] = np.zeros(count, dtype=dtype)
        else:
            columns[spec.name] = np.full(count, -1, dtype=dtype)
    return columns


def row_order(group: NDArray[np.integer[Any]], start: Int64, duration: Int64) -> Int64 | None:
    """The order by (group, start, longest first), None when the rows already are in it.

    Streams and threads are recorded nearly in order, so ties are the exception: sorting by start
    is cheap (long runs), and only rows that share a start are sorted again by duration.
    """
    same = group[1:] == group[:-1]
    rising = (group[1:] > group[:-1]) | (
        same & ((start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (duration[1:] <= duration[:-1])))
    )
    if rising.all():
        return None
    order = np.argsort(start, kind="stable")
    if not (group[1:] >= group[:-1]).all() or not same.all():
        order = order[np.argsort(group[order], kind="stable")]
    sorted_group, sorted_start = group[order], start[order]
    tie = (sorted_group[1:] == sorted_group[:-1]) & (sorted_start[1:] == sorted_start[:-1])
    if tie.any():
        tied = np.zeros(len(order), np.bool_)
        tied[1:] |= tie
        tied[:-1] |= tie
        rows = order[tied]
        order[tied] = rows[np.lexsort((-duration[rows], start[rows], group[rows]))]
    return np.asarray(order, dtype=np.int64)


def device_events(count: int, **given: Sequence[int] | NDArray[Any]) -> DeviceEvents:
    """Device columns from the given ones (unsorted), the rest "not recorded"; sorts them."""
    return ordered_device_events(count, **given)[0]


def ordered_device_events(count: int, **given: Sequence[int] | NDArray[Any]) -> tuple[DeviceEvents, Int64 | None]:
    """As `device_events`, and the given row of each sorted one (None: they were sorted)."""
    columns = _columns(DeviceEvents, count, given)
    order = row_order(columns["device"], columns["start"], columns["duration"])
    if order is None:
        return DeviceEvents(**columns), None
    return DeviceEvents(**{name: column[order] for name, column in columns.items()}), order


def host_events(count: int, **given: Sequence[int] | NDArray[Any]) -> HostEvents:
    """Host columns from the given ones (unsorted), the rest "not recorded"; sorts them."""
    return ordered_host_events(count, **given)[0]


def ordered_host_events(count: int, **given: Sequence[int] | NDArray[Any]) -> tuple[HostEvents, Int64 | None]:
    """As `host_events`, and the given row of each sorted one (None: they were sorted)."""
    columns = _columns(HostEvents, count, given)
    order = row_order(columns["thread"], columns["start"], columns["duration"])
    if order is None:
        return HostEvents(**columns), None
    return HostEvents(**{name: column[order] for name, column in columns.items()}), order


@dataclass(frozen=True)
class Trace:
    """One decoded file.

    Attributes:
        path: the file.
        host: host name, from the file's content or its name.
        format: ``xplane``, ``trace_json`` (TensorFlow's and JAX's export), ``kineto`` (PyTorch) or ``nsys`` (Nsight
            Systems: several processes and GPUs).
        wall_start_unix_ns: epoch time of the clock's zero, when the file says.
        recorded: start and end of the recording on this clock, when the file says.
        warnings, errors: as the profiler recorded them.
        notes: what the decoder had to leave out or repair.
        host_stats: stats of tf.data's host events by the profiler's name (``id``, ``parent_id``,
            ``parallelism``, ``buffer_limit``, ``element_size``, ``cpu_budget``, ``autotune``), and
            ``tracing_count`` of calls of a tf.function (how often it was traced so far) and ``traced`` (1) of those
            that traced it, ``operator``
            (1) of PyTorch's operators, and of a framework's allocations ``allocator_name`` (string id),
            ``bytes_allocated``, ``bytes_available`` and ``peak_bytes_in_use`` of the process so far;
            those that no event carries are left out.
        device_stats: what PyTorch says of collectives, by name: ``collective``, ``dtype``,
            ``process_group`` and ``group_ranks`` (string ids), ``in_elements``, ``out_elements`` (of
            all ranks of a gather), ``group_size``; of kernels ``achieved_occupancy_pct`` (its estimate); and
            of XPlane's kernels ``flops`` and ``bytes_accessed``. Those that no event carries are left out.
        rank: of the process in its job, when the file says.
        world_size: processes of the job, when the file says.
    """

    path: str
    host: str
    format: str
    strings: StringTable
    devices: tuple[Device, ...]
    streams: tuple[Stream, ...]
    device_events: DeviceEvents
    threads: tuple[HostThread, ...]
    host_events: HostEvents
    wall_start_unix_ns: int | None = None
    recorded: tuple[int, int] | None = None
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    notes: tuple[Phrase, ...] = field(default_factory=tuple)
    host_stats: Mapping[str, SparseStat] = field(default_factory=dict)
    device_stats: Mapping[str, SparseStat] = field(default_factory=dict)
    rank: int | None = None
    world_size: int | None = None

    def __post_init__(self) -> None:
        """Name what has no name, so that every name can be an index: -1 would be the last string's."""
        events_here = {
            spec: events
            for spec in ("device_events", "host_events")
            if "name" in vars(events := getattr(self, spec)) and len(events) and events.name.min() < 0
        }
        if not events_here:
            return
        ident, raw = len(self.strings), UNNAMED.encode()
        offsets = np.append(self.strings.offsets, self.strings.offsets[-1] + len(raw))
        object.__setattr__(self, "strings", StringTable(self.strings.blob + raw, offsets))
        for spec, events in events_here.items():
            named = np.where(events.name < 0, np.int32(ident), events.name)
            object.__setattr__(self, spec, replace(events, name=named))
