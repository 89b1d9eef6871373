"""Decode an XPlane file, old or new, by TensorFlow or JAX, into a `Trace`."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.traces import classify
from tb_gpu_doctor.traces.columns import (
    OTHER_ACCELERATORS,
    PART,
    Device,
    DeviceEvents,
    HostEvents,
    HostThread,
    Int64,
    SparseStat,
    Stream,
    StringTable,
    Trace,
    ordered_device_events,
    ordered_host_events,
)
from tb_gpu_doctor.traces.plane_items import decoded_items
from tb_gpu_doctor.traces.sessions import host_of
from tb_gpu_doctor.traces.wire import BASE_ROW_BYTES, RawPlane, memory_limit
from tb_gpu_doctor.traces.xplane_columns import (
    DEVICE_SLOTS,
    HOST_SLOTS,
    classify_events,
    device_stats,
    framework_op,
    launch_op,
    slot_columns,
    sparse_stats,
)
from tb_gpu_doctor.traces.xspace import was_saved_as_text

_GPU_PLANE = re.compile(r"^/device:GPU:(\d{1,9})(?:\s|$)")
# What computes and is no GPU: TPUs, plug-ins of other makers.
_OTHER_PLANE = re.compile(r"^/device:(?:CUSTOM:)?([A-Za-z][\w-]*?)(?::\d{1,9})?(?:\s|$)")
_ENVIRONMENT_PLANE = "Task Environment"
# Host planes without events of threads.
_NOT_THREADS = ("/host:metadata", "/host:__ScopeRangeCallStack__")
# No host has nearly as many; analyses that look at each of them, or compare them all, must end in time.
MAX_DEVICES, MAX_THREADS = 1_024, 32_768
# Longer than any profile: CUPTI's overflown clocks give such times.
MAX_TIME_PS = 7 * 24 * 3600 * 10**12
# Files are normalised to the session's start; one that is not has times since 1970. Anything
# between is a broken clock, not another zero.
_EPOCH_NS = 10**18
_MAX_NS = 4 * 10**15  # the sum of two such times, in picoseconds, still fits in an int64
_STATS = "stats"  # of a part: what few events carry, beside its columns
_MEMORY_STATS = ("memalloc_details", "MemFree_details", "memfree_details", "MemoryResidency_details")


def read_xplane(path: str, host: str | None = None, progress: Callable[[float], None] | None = None) -> Trace:
    """Decode one ``*.xplane.pb`` file.

    Args:
        path: the file.
        host: its host name; by default the file's name without the suffix.
        progress: called with the share of the file that is decoded, 0..1.

    Raises:
        ProfileError: see `tb_gpu_doctor.traces.xspace.walk`; also ``malformed`` (params: plane, offset)
            and ``too_many_events`` (of a plane; also GPUs or threads).
    """
    builder = _Builder(path, host if host is not None else host_of(path))
    size = max(os.path.getsize(path), 1) if os.path.exists(path) else 1
    seen_any = False
    items = decoded_items(path)
    while True:
        try:
            found = next(items, None)
        except ProfileError as error:
            if was_saved_as_text(path):
                raise ProfileError("saved_as_text", path) from None
            if error.code != "truncated" or not builder.named_planes:
                raise
            builder.is_cut = True  # the whole planes in front of the cut are good
            break
        if found is None:
            break
        item, plane = found
        seen_any = True
        if isinstance(plane, ProfileError):
            if was_saved_as_text(path):
                raise ProfileError("saved_as_text", path)
            if not builder.plane_count and plane.code == "malformed":
                raise ProfileError("not_xplane", path)
            if plane.code == "too_many_events":
                count, limit = plane.params["offset"], memory_limit(len(item.data)) // BASE_ROW_BYTES
                raise ProfileError(plane.code, path, count=max(count, limit), limit=limit, file_offset=item.offset)
            raise ProfileError(plane.code, path, **{**plane.params, "file_offset": item.offset})
        if plane is not None:
            builder.add_plane(plane)
        else:
            builder.add_text(item.kind, item.data.decode("utf-8", "replace"))
        if progress is not None:
            progress(min((item.offset + len(item.data)) / size, 1.0))
    if not seen_any or not builder.looks_like_xspace():
        raise ProfileError("not_xplane", path)
    return builder.trace()


@dataclass
class _Strings:
    """One table for all planes of a file."""

    ids: dict[bytes, int] = field(default_factory=dict)

    def merge(self, table: StringTable) -> NDArray[np.int32]:
        """Ids of a plane's strings in the file's table; the last element maps -1 to -1."""
        ids, blob = self.ids, table.blob
        offsets = table.offsets.tolist()
        out = np.empty(len(offsets), np.int32)
        out[:-1] = [ids.setdefault(blob[a:b], len(ids)) for a, b in itertools.pairwise(offsets)]
        out[-1] = -1
        return out


class _Builder:
    """Collects planes and becomes a `Trace`."""

    def __init__(self, path: str, host: str) -> None:
        self.path, self.host = path, host
        self.strings = _Strings()
        self.devices: list[Device] = []
        self.device_index: dict[int, int] = {}
        self.streams: list[Stream] = []
        self.stream_index: dict[tuple[int, int], int] = {}
        self.threads: list[HostThread] = []
        self.thread_index: dict[tuple[bytes, int], int] = {}
        self.device_parts: list[dict[str, Any]] = []
        self.host_parts: list[dict[str, Any]] = []
        self.host_stats: dict[str, list[tuple[Int64, Int64]]] = {}
        self.host_count = 0
        self.texts: dict[str, list[str]] = {"error": [], "warning": [], "hostname": []}
        self.start_unix_ns: int | None = None
        self.stop_unix_ns: int | None = None
        self.base_ns: int | None = None
        self.implausible = self.negative = 0
        self.plane_count = self.named_planes = 0
        self.others: Counter[str] = Counter()
        self.is_cut = False

    def add_text(self, kind: str, text: str) -> None:
        self.texts[kind].append(text)

    def looks_like_xspace(self) -> bool:
        """Unknown fields make protobuf accept nearly any text: ask for a named plane or a known text."""
        return self.named_planes > 0 or (self.plane_count == 0 and any(self.texts.values()))

    def add_plane(self, plane: RawPlane) -> None:
        self.plane_count += 1
        name = plane.name.decode("utf-8", "replace")
        self.named_planes += bool(name)
        gpu = _GPU_PLANE.match(name)
        if gpu:
            self._add_device(plane, int(gpu.group(1)))
        elif name == _ENVIRONMENT_PLANE:
            for stat, value in plane.stats:
                if stat == b"profile_start_time" and isinstance(value, int) and value > 0:
                    self.start_unix_ns = value
                elif stat == b"profile_stop_time" and isinstance(value, int) and value > 0:
                    self.stop_unix_ns = value
        elif (other := _OTHER_PLANE.match(name)) and other[1].upper() not in ("GPU", "CPU"):
            self.others[other[1][:64]] += 1
        elif name.startswith("/host:") and not name.startswith(_NOT_THREADS):
            self._add_host(plane)

    # -- devices ---------------------------------------------------------------------------

    def _add_device(self, plane: RawPlane, ident: int) -> None:
        stats = {stat.decode("utf-8", "replace"): value for stat, value in plane.stats}
        if ident not in self.device_index:
            if len(self.devices) >= MAX_DEVICES:
                raise ProfileError("too_many_events", self.path, count=MAX_DEVICES + 1, limit=MAX_DEVICES)
            self.device_index[ident] = len(self.devices)
            self.devices.append(_device(len(self.devices), self.host, ident, stats))
        device = self.device_index[ident]
        stream_of_line = np.full(len(plane.line_id) + 1, -1, np.int32)
        for line, (line_id, raw_name) in enumerate(zip(plane.line_id.tolist(), plane.line_name, strict=True)):
            name = raw_name[:1024].decode("utf-8", "replace")
            if classify.is_work_stream(name, line_id) and plane.line_events[line]:
                stream_of_line[line] = self._stream(device, line_id, name)
        keep = stream_of_line[plane.line] >= 0
        for stat in _MEMORY_STATS:
            column = plane.slot(stat)
            if column is not None:
                keep &= column < 0
        rows, start, duration = self._times(plane, keep)
        if not len(rows):
            return
        ids = self.strings.merge(plane.strings)
        part = {
            "device": np.full(len(rows), device, np.int32),
            "stream": stream_of_line[plane.line[rows]],
            "start": start,
            "duration": duration,
            "name": ids[plane.event_name[rows]],
            **slot_columns(plane, rows, ids, DEVICE_SLOTS),
            "op": framework_op(plane, rows, ids),
        }
        occupancy = plane.slot("theoretical_occupancy_pct")
        if occupancy is not None:
            values = occupancy[rows]
            # 0 means that it could not be computed
            part["occupancy_pct"] = np.where((values > 0) & (values <= 100), values, np.nan)
        classify_events(plane, rows, part)
        part[_STATS] = device_stats(plane, rows)
        self.device_parts.append(part)

    def _stream(self, device: int, line_id: int, name: str) -> int:
        key = (device, line_id)
        if key not in self.stream_index:
            self.stream_index[key] = len(self.streams)
            self.streams.append(Stream(len(self.streams), device, line_id, name))
        return self.stream_index[key]

    # -- host ------------------------------------------------------------------------------

    def _add_host(self, plane: RawPlane) -> None:
        thread_of_line = np.full(len(plane.line_id) + 1, -1, np.int32)
        for line, line_id in enumerate(plane.line_id.tolist()):
            if not plane.line_events[line]:
                continue
            key = (plane.name, line_id)
            if key not in self.thread_index:
                if len(self.threads) >= MAX_THREADS:
                    raise ProfileError("too_many_events", self.path, count=MAX_THREADS + 1, limit=MAX_THREADS)
                name = (plane.line_display_name[line] or plane.line_name[line])[:1024].decode("utf-8", "replace")
                self.thread_index[key] = len(self.threads)
                self.threads.append(HostThread(len(self.threads), line_id, name))
            thread_of_line[line] = self.thread_index[key]
        rows, start, duration = self._times(plane, thread_of_line[plane.line] >= 0)
        if not len(rows):
            return
        ids = self.strings.merge(plane.strings)
        part = {
            "thread": thread_of_line[plane.line[rows]],
            "start": start,
            "duration": duration,
            "name": ids[plane.event_name[rows]],
            **slot_columns(plane, rows, ids, HOST_SLOTS),
            "op": launch_op(plane, rows, ids),
        }
        self.host_parts.append(part)
        for stat, (index, values) in sparse_stats(plane, rows, ids).items():
            self.host_stats.setdefault(stat, []).append((index + self.host_count, values))
        self.host_count += len(rows)

    # -- times -----------------------------------------------------------------------------

    def _times(self, plane: RawPlane, keep: NDArray[np.bool_]) -> tuple[Int64, Int64, Int64]:
        """Rows with plausible times among ``keep``, and their start and duration."""
        keep = keep & (plane.has_start != 0)
        if self.base_ns is None and keep.any():
            usual = int(np.median(plane.line_timestamp_ns[plane.line[keep]]))
            self.base_ns = usual if usual > _EPOCH_NS else 0
        # Python integers first: a hostile timestamp must not wrap around
        shifts = [int(stamp) - (self.base_ns or 0) for stamp in plane.line_timestamp_ns.tolist()]
        fits = np.array([abs(shift) <= _MAX_NS for shift in shifts], np.bool_)
        line_start = np.array([shift * 1000 if abs(shift) <= _MAX_NS else 0 for shift in shifts], np.int64)
        good = (plane.offset >= -_MAX_NS * 1000) & (plane.offset <= _MAX_NS * 1000)
        start = np.where(good, plane.offset, 0)
        if len(start):
            good &= fits[plane.line]
            start += line_start[plane.line]
        good &= (start >= -MAX_TIME_PS) & (start <= MAX_TIME_PS) & (plane.duration <= MAX_TIME_PS)
        negative = plane.duration < 0
        self.implausible += int(np.count_nonzero(keep & ~good & ~negative))
        self.negative += int(np.count_nonzero(keep & negative))
        rows = np.flatnonzero(keep & good & ~negative)
        return rows, start[rows], plane.duration[rows]

    # -- the end ---------------------------------------------------------------------------

    def trace(self) -> Trace:
        """The trace of everything that was added."""
        self._order_devices()
        notes = []
        if self.implausible:
            notes.append(Phrase("notes.implausible_times", {"count": self.implausible}))
        if self.negative:
            notes.append(Phrase("notes.negative_durations", {"count": self.negative}))
        # beside GPUs other planes are counters and links of theirs (Megascale), and the profile is no less of GPUs
        for kind, count in self.others.items() if not self.devices else ():
            notes.append(Phrase(OTHER_ACCELERATORS, {"count": count, "kind": kind}))
        if self.is_cut:
            count = self.host_count + sum(len(part["start"]) for part in self.device_parts)
            notes.append(Phrase(PART, {"count": count, "host": self.host}))
        recorded = None
        wall_start = self.start_unix_ns if not self.base_ns else None
        device, stats = _joined_device(self.device_parts)
        host, host_stats = _joined_host(self.host_parts, self.host_stats)
        if self.start_unix_ns and self.stop_unix_ns and not self.base_ns:
            length = (self.stop_unix_ns - self.start_unix_ns) * 1000
            recorded = (0, length) if 0 < length <= MAX_TIME_PS else None
        return Trace(
            path=self.path,
            host=self.host,
            format="xplane",
            strings=StringTable.of(self.strings.ids),
            devices=tuple(self.devices),
            streams=tuple(self.streams),
            device_events=device,
            threads=tuple(self.threads),
            host_events=host,
            wall_start_unix_ns=wall_start,
            recorded=recorded,
            warnings=tuple(self.texts["warning"]),
            errors=tuple(self.texts["error"]),
            notes=tuple(notes),
            host_stats=host_stats,
            device_stats=stats,
        )

    def _order_devices(self) -> None:
        """Number devices by GPU id, whatever order the planes had."""
        order = sorted(range(len(self.devices)), key=lambda index: self.devices[index].id)
        new_index = {old: new for new, old in enumerate(order)}
        self.devices = [_renumbered(self.devices[old], new) for new, old in enumerate(order)]
        self.streams = [Stream(s.index, new_index[s.device], s.line_id, s.name) for s in self.streams]
        for part in self.device_parts:
            part["device"][:] = new_index[int(part["device"][0])]
        self.device_parts.sort(key=lambda part: int(part["device"][0]))


def _number(stats: dict[str, Any], name: str, low: int = 1, high: int = 1 << 50) -> int | None:
    value = stats.get(name)
    if isinstance(value, float) and value == value and abs(value) < high:
        value = int(value)
    return value if isinstance(value, int) and low <= value <= high else None


def _text(stats: dict[str, Any], name: str) -> str | None:
    value = stats.get(name)
    return value[:256].decode("utf-8", "replace") or None if isinstance(value, bytes) else None


def _device(index: int, host: str, ident: int, stats: dict[str, Any]) -> Device:
    major = _number(stats, "compute_cap_major", 1, 99)
    minor = _number(stats, "compute_cap_minor", 0, 99)
    return Device(
        index=index,
        host=host,
        id=ident,
        name=_text(stats, "gpu_device_name"),
        vendor=_text(stats, "device_vendor"),
        sm_count=_number(stats, "core_count", 1, 100_000),
        clock_khz=_number(stats, "clock_rate", 1, 100_000_000),
        memory_bandwidth_bytes_per_s=_number(stats, "memory_bandwidth"),
        memory_size_bytes=_number(stats, "memory_size"),
        compute_capability=(major, minor) if major is not None and minor is not None else None,
        peak_flops_per_s=_peak(stats.get("peak_teraflops_per_second")),
    )


def _peak(teraflops: Any) -> float | None:
    """Operations per second; None where the profile does not say, or says what no GPU can."""
    if not isinstance(teraflops, int | float) or not 0.1 < teraflops < 1e6:
        return None
    return float(teraflops) * 1e12


def _renumbered(device: Device, index: int) -> Device:
    return Device(**{**device.__dict__, "index": index})


def _join(parts: list[dict[str, Any]]) -> dict[str, NDArray[np.generic]]:
    """Columns of all parts; one that some part lacks is filled with its "not recorded". Empties the parts."""
    counts = [len(part["start"]) for part in parts]
    columns = {}
    for name in sorted({name for part in parts for name in part}):
        pieces = [part.pop(name, None) for part in parts]
        dtype = next(piece.dtype for piece in pieces if piece is not None)
        absent = np.nan if np.issubdtype(dtype, np.floating) else -1
        columns[name] = np.concatenate(
            [np.full(n, absent, dtype) if piece is None else piece for piece, n in zip(pieces, counts, strict=True)]
        )
    return columns


def _joined_device(parts: list[dict[str, Any]]) -> tuple[DeviceEvents, dict[str, SparseStat]]:
    """All device rows in order, and the sparse stats of the sorted rows."""
    stats: dict[str, list[tuple[Int64, Int64]]] = {}
    count = 0
    for part in parts:
        for name, (index, values) in part.pop(_STATS).items():
            stats.setdefault(name, []).append((index + count, values))
        count += len(part["start"])
    events, order = ordered_device_events(count, **(_join(parts) if parts else {}))
    return events, _sorted_stats(stats, order, count)


def _joined_host(
    parts: list[dict[str, Any]], stats: dict[str, list[tuple[Int64, Int64]]]
) -> tuple[HostEvents, dict[str, SparseStat]]:
    """All host rows in order, and the sparse stats (given by unsorted row) of the sorted rows."""
    count = sum(len(part["start"]) for part in parts)
    events, order = ordered_host_events(count, **(_join(parts) if parts else {}))
    return events, _sorted_stats(stats, order, count)


def _sorted_stats(
    stats: dict[str, list[tuple[Int64, Int64]]], order: Int64 | None, count: int
) -> dict[str, SparseStat]:
    """Sparse stats, given by unsorted row, of the rows in ``order``."""
    sorted_row = None
    if order is not None and stats:
        sorted_row = np.empty(count, np.int64)
        sorted_row[order] = np.arange(count)
    found = {}
    for name, pieces in stats.items():
        rows, values = (np.concatenate(column) for column in zip(*pieces, strict=True))
        if sorted_row is not None:
            rows = sorted_row[rows]
            rising = np.argsort(rows)
            rows, values = rows[rising], values[rising]
        found[name] = SparseStat(rows, values)
    return found
