"""Writes an XSpace anew, plane by plane: without names (``names``), and with no more than the tab reads (``slim``).

Only fields that are known are written, so nothing can hide in others. Times and other numbers are copied as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.packing.names import Names
from tb_gpu_doctor.packing.plane_metadata import Metadata, read_entry
from tb_gpu_doctor.packing.wire_writer import chunk, number, text, varint
from tb_gpu_doctor.traces import classify
from tb_gpu_doctor.traces.wire import SLOTS
from tb_gpu_doctor.traces.wire_plain import BYTES, VARINT, MalformedError, fields, read_varint, signed
from tb_gpu_doctor.traces.xspace import walk

# Stats whose names everybody knows; others are renamed.
_OTHER_STATS = """
    addr allocation_bytes annotation bytes_reserved clock_rate compute_cap_major compute_cap_minor context_id core_count
    data_type device device_id device_vendor edge_name eager_op element_id fragmentation from func_name gpu_device_name
    graph_protos is_eager is_func iter_num kernel_name memory_bandwidth memory_size module_name num_output_control_edges
    num_output_edges occupancy_min_grid_size occupancy_suggested_block_size peak_teraflops_per_second prefix
    peak_hbm_bw_gigabyte_per_second profile_start_time profile_stop_time program_id region_type requested_bytes
    scope_range_id shape shapes step_name tf_function_call to types cuda_graph_node_id model_flops equation
    dcn_source_id hlo_category source cupti_dropped_records device_offset_ps device_duration_ps
"""
KNOWN_STATS = frozenset(name.encode() for name in (*(name for name, _ in SLOTS), *_OTHER_STATS.split()))
_SLOTS = frozenset(name.encode() for name, _ in SLOTS)
# Of a GPU's plane and of the recording: numbers and the model, none of which names anybody.
_KEPT_VALUES = frozenset({b"gpu_device_name", b"device_vendor"})
_THREADS, _NOT_THREADS = b"/host:", (b"/host:metadata", b"/host:__ScopeRangeCallStack__")
_GPU, _ENVIRONMENT = b"/device:GPU:", b"Task Environment"
_MEMORY_STATS = frozenset({b"memalloc_details", b"MemFree_details", b"memfree_details", b"MemoryResidency_details"})
# Shorter texts cost no more in place than as a reference.
_WORTH_SHARING = 6
_STAT_TEXT, _STAT_BYTES, _STAT_REF = 5, 6, 7
# Tags of a line's events, an event's stats, a stat's id, its numbers; and of an event's own numbers.
_EVENT_TAG = _STATS_TAG = 0x22
_ID_TAG, _NUMBER_TAGS = 0x08, (0x18, 0x20)
_EVENT_NUMBER_TAGS = frozenset({0x08, 0x10, 0x18, 0x28})
# Stats that are remembered, since they come again and again; numbers need no memory.
_MOST_REMEMBERED = 1 << 18
_NO_WORK = b"no work"


def rewrite_xplane(
    path: str, out: BinaryIO, names: Names | None, slim: bool, progress: Callable[[float], None] | None = None
) -> None:
    """Write ``path`` anew to ``out``.

    Args:
        path: an XSpace.
        out: takes the new one.
        names: replaces names; None keeps them.
        slim: leave out what no analysis and no view reads.
        progress: called with the share that is done.

    Raises:
        ProfileError: the file cannot be read, or is damaged.
    """
    kinds = {"error": 2, "warning": 3, "hostname": 4}
    if names is not None:
        names.learn_hosts([i.data.decode("utf-8", "replace") for i in walk(path) if i.kind == "hostname"])
    done = 0
    for item in walk(path):
        if item.kind == "plane":
            try:
                plane = _Plane(item.data, names, slim).encode()
            except MalformedError as error:
                raise ProfileError("malformed", path, offset=item.offset + error.offset) from None
            if plane is not None:
                out.write(chunk(1, plane))
        elif names is None:
            out.write(chunk(kinds[item.kind], item.data))
        elif item.kind == "hostname":
            out.write(chunk(4, names.host(item.data.decode("utf-8", "replace")).encode()))
        else:
            out.write(chunk(kinds[item.kind], names.raw(item.data)))
        done += len(item.data)
        if progress is not None:
            progress(done)


class _Plane:
    """One plane on its way."""

    def __init__(self, data: bytes, names: Names | None, slim: bool) -> None:
        self.data, self.names, self.slim = data, names, slim
        self.name, self.id = b"", 0
        self.lines: list[tuple[int, int]] = []
        self.stats: list[tuple[int, int]] = []
        self.events: dict[int, Metadata] = {}
        self.stat_names: dict[int, Metadata] = {}
        for number_, wire, start, value in fields(data, 0, len(data)):
            if number_ == 1 and wire == VARINT:
                self.id = value
            elif wire != BYTES:
                continue
            elif number_ == 2:
                self.name = data[start:value]
            elif number_ in (3, 6):
                (self.lines if number_ == 3 else self.stats).append((start, value))
            elif number_ in (4, 5):
                key, entry = read_entry(data, start, value)
                (self.events if number_ == 4 else self.stat_names)[key] = entry
        self.is_gpu = self.name.startswith(_GPU)
        self.is_host = self.name.startswith(_THREADS) and not self.name.startswith(_NOT_THREADS)
        self._shared: dict[bytes, int] = {}
        self._next_id = max(self.stat_names, default=0) + 1
        self._used_events: set[int] = set()
        self._kernels: set[int] = set()
        self._used_stats: set[int] = set()
        self._known = {key for key, entry in self.stat_names.items() if entry.name in _SLOTS}
        self._memory = {key for key, entry in self.stat_names.items() if entry.name in _MEMORY_STATS}
        self._kept_names: set[int] = set()
        self._texts: dict[tuple[int, bytes], bytes] = {}
        self._new_stats: dict[bytes, bytes] = {}

    def encode(self) -> bytes | None:
        """The new plane; None where it is of no use."""
        if self.slim and not (self.is_gpu or self.is_host or self.name == _ENVIRONMENT):
            return None
        if self.names is not None and self.name.startswith(_NOT_THREADS):
            return None  # whole programs with their sources
        lines = [line for start, end in self.lines if (line := self._line(start, end)) is not None]
        stats = [stat for start, end in self.stats if (stat := self._stat(start, end, own=True)) is not None]
        head = number(1, self.id) + text(2, self._renamed(self.name))
        body = b"".join(chunk(3, line) for line in lines) + b"".join(chunk(6, stat) for stat in stats)
        return head + b"".join(self._tables()) + body

    # -- tables ----------------------------------------------------------------------------

    def _tables(self) -> Iterator[bytes]:
        events = list(self._event_table())  # its stats may need more names
        yield from events
        for key, entry in self.stat_names.items():
            if self.slim and key not in self._used_stats:
                continue
            name = entry.name
            if self.names is not None and name not in KNOWN_STATS and key not in self._kept_names:
                name = self.names.raw(name)
            value = number(1, key) + text(2, name)
            if self.names is None and not self.slim:
                value += text(3, entry.blob)
            yield chunk(5, number(1, key) + chunk(2, value))
        for name, key in self._shared.items():
            yield chunk(5, number(1, key) + chunk(2, number(1, key) + text(2, name)))

    def _event_table(self) -> Iterator[bytes]:
        for key, entry in self.events.items():
            if self.slim and key not in self._used_events and key not in self._kernels:
                continue
            value = number(1, key) + text(2, self._renamed(entry.name, key in self._kernels))
            if not self.slim:
                if self.names is None:
                    value += text(3, entry.blob)
                value += text(4, self._renamed(entry.display, key in self._kernels))
                value += b"".join(
                    chunk(5, stat) for raw in entry.stats if (stat := self._stat_of(raw, own=False)) is not None
                )
                value += b"".join(varint(6 << 3) + varint(child) for child in entry.children)
            yield chunk(4, number(1, key) + chunk(2, value))

    def _renamed(self, name: bytes, kernel: bool = False) -> bytes:
        return name if self.names is None or not name else self.names.raw(name, kernel)

    # -- lines and events ------------------------------------------------------------------

    def _line(self, start: int, end: int) -> bytes | None:
        data = self.data
        numbers: dict[int, int] = {}
        texts: dict[int, bytes] = {}
        events: list[bytes] = []
        position = start
        while position < end:
            # Nearly all of a file is this: an event whose length has one or two bytes.
            if data[position] == _EVENT_TAG and position + 2 < end:
                size, low = data[position + 1], position + 2
                if size > 127:
                    size, low = read_varint(data, position + 1, end)
                position = low + size
                if position > end:
                    raise MalformedError(low)
                events.append(data[low:position])
                continue
            number_, wire, low, value = next(fields(data, position, end))
            position = value if wire != VARINT else _after_varint(data, low)
            if number_ == 4 and wire == BYTES:
                events.append(data[low:value])
            elif number_ in (1, 3, 9, 10) and wire == VARINT:
                numbers[number_] = value
            elif number_ in (2, 11) and wire == BYTES:
                texts[number_] = data[low:value]
        is_read = self._is_read(texts.get(2, b""), numbers.get(1, 0))
        if self.slim and (not events or not is_read):
            return None
        parts = [number(key, numbers[key]) for key in sorted(numbers)]
        parts += [text(key, self._renamed(name)) for key, name in sorted(texts.items())]
        # Other lines of a GPU repeat names of ops, steps and modules.
        used = self._kernels if self.is_gpu and is_read else self._used_events
        new_event = self._event
        for event in events:
            new = new_event(event, used)
            if new is not None:
                parts += (b"\x22", varint(len(new)), new)
        return b"".join(parts)

    def _is_read(self, name: bytes, line_id: int) -> bool:
        """Whether the reader takes a line's events: on GPUs those of streams that do work."""
        if not self.is_gpu:
            return True
        return classify.is_work_stream(name[:1024].decode("utf-8", "replace"), signed(line_id))

    def _event(self, event: bytes, used: set[int]) -> bytes | None:
        """An event with its stats rewritten; None for one that is left out. ``used`` takes the id of its metadata."""
        out: list[bytes] = []
        known = self._new_stats
        at, end = 0, len(event)
        while at < end:
            tag = event[at]
            if tag == _STATS_TAG and at + 1 < end:
                size, low = event[at + 1], at + 2
                if size > 127:
                    size, low = read_varint(event, at + 1, end)
                at = low + size
                if at > end:
                    raise MalformedError(low)
                stat = event[low:at]
                new = known.get(stat)
                if new is None:
                    new = self._new_stat(stat)
                if new is _NO_WORK:
                    return None
                out.append(new)
                continue
            number_, wire, low, value = _field(event, at, end)
            stop = value if wire != VARINT else _after_varint(event, low)
            if number_ in (1, 2, 3, 5) and wire == VARINT:
                out.append(event[at:stop])
                if number_ == 1:
                    used.add(signed(value))
            at = stop
        return b"".join(out)

    def _new_stat(self, stat: bytes) -> bytes:
        """A stat of an event as a field of it, empty if it is left out; `_NO_WORK` if its event is."""
        if _is_number(stat):
            key, new = stat[1], b""
            if not self.slim or key in self._known:
                self._used_stats.add(key)
                new = b"\x22" + varint(len(stat)) + stat
            return new
        if self.slim and self.is_gpu and self._is_memory(stat):
            return _NO_WORK
        written = self._stat_of(stat, own=False)
        new = b"" if written is None else chunk(4, written)
        if len(self._new_stats) < _MOST_REMEMBERED:
            self._new_stats[stat] = new
        return new

    def _is_memory(self, stat: bytes) -> bool:
        """Whether a stat makes its event an allocation, which is no work."""
        if not self._memory:
            return False
        found = list(fields(stat, 0, len(stat)))
        is_memory = any(n == 1 and wire == VARINT and signed(value) in self._memory for n, wire, _, value in found)
        return is_memory and any(n in (_STAT_TEXT, _STAT_BYTES, _STAT_REF) for n, _, _, _ in found)

    # -- stats -----------------------------------------------------------------------------

    def _stat(self, start: int, end: int, own: bool) -> bytes | None:
        return self._stat_of(self.data[start:end], own)

    def _stat_of(self, data: bytes, own: bool) -> bytes | None:
        """A stat with its text replaced; None for one that is left out. ``own``: of the plane itself."""
        key, value = 0, None
        for number_, wire, low, high in fields(data, 0, len(data)):
            if number_ == 1 and wire == VARINT:
                key = signed(high)
            elif number_ in (3, 4, _STAT_REF) and wire == VARINT:
                value = number_, high, b""
            elif number_ in (_STAT_TEXT, _STAT_BYTES) and wire == BYTES:
                value = number_, 0, data[low:high]
            elif number_ == 2 and wire == 1:
                value = 2, 0, data[low:high]
        if value is None:
            return None
        if self.slim and not own and key not in self._known:
            return None
        kind, count, content = value
        self._used_stats.add(key)
        head = number(1, key)
        if kind == 2:
            return head + b"\x11" + content
        if kind == _STAT_BYTES:
            # Programs, sources and whatever else a library put there.
            if self.names is not None or (self.slim and not own):
                return None
            return head + chunk(_STAT_BYTES, content)
        if kind == _STAT_TEXT:
            return head + self._text(key, content)
        if kind == _STAT_REF:
            self._used_stats.add(signed(count))
            if key in self.stat_names and self.stat_names[key].name in _KEPT_VALUES:
                self._kept_names.add(signed(count))
        return head + varint(kind << 3) + varint(count)

    def _text(self, key: int, content: bytes) -> bytes:
        found = self._texts.get((key, content))
        if found is None:
            entry = self.stat_names.get(key)
            new = content
            if self.names is not None and (entry is None or entry.name not in _KEPT_VALUES):
                new = self.names.raw(content)
            if self.slim and len(new) >= _WORTH_SHARING:
                if new not in self._shared:
                    self._shared[new] = self._next_id
                    self._next_id += 1
                found = b"\x38" + varint(self._shared[new])
            else:
                found = chunk(_STAT_TEXT, new)
            self._texts[key, content] = found
        return found


def _is_number(stat: bytes) -> bool:
    """Whether a stat is a small id and one number and nothing else, as nearly all are."""
    size = len(stat)
    if size < 4 or stat[0] != _ID_TAG or stat[1] > 127:
        return False
    tag = stat[2]
    if tag == 0x11:
        return size == 11
    at = 3
    while stat[at] > 127 and at < size - 1:
        at += 1
    return tag in _NUMBER_TAGS and at == size - 1 and stat[at] < 128 and size < 14


def _field(data: bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """The next field as `fields` gives it; short numbers, which most are, at once."""
    tag = data[at]
    if tag < 128 and tag & 7 == VARINT and tag > 7 and at + 1 < end and data[at + 1] < 128:
        return tag >> 3, VARINT, at + 1, data[at + 1]
    if tag in _EVENT_NUMBER_TAGS:
        value, _ = read_varint(data, at + 1, end)
        return tag >> 3, VARINT, at + 1, value
    return next(fields(data, at, end))


def _after_varint(data: bytes, at: int) -> int:
    while data[at] > 127:
        at += 1
    return at + 1
