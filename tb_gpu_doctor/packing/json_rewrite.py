"""Writes trace JSON anew, event by event: without names, and with no more than the tab reads.

Only what is known is written: the user's own metadata, which may hold anything, never is.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import msgspec

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.packing.names import Names
from tb_gpu_doctor.traces.json_document import MAX_OBJECTS, utf8, what_it_is
from tb_gpu_doctor.traces.json_file import read_json_bytes
from tb_gpu_doctor.traces.json_salvage import salvage
from tb_gpu_doctor.traces.kineto_events import CALL, DEVICE_CATEGORIES, HOST_CATEGORIES, RECORDING_CATEGORY
from tb_gpu_doctor.traces.wire import SLOTS

_EVENT_KEYS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "bp", "s", "args")
_SLIM_EVENT_KEYS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")
# Those that name lines come through `_odd`.
_USUAL_PHASES = frozenset({"X", "s", "f", "t", "C", "b", "e", "n"})
_BINDING_POINTS = ("e", "b")
# Arguments that the readers read, by what the event is.
_DEVICE_ARGS = frozenset({
    "device", "stream", "correlation", "bytes", "grid", "block", "registers per thread", "shared memory",
    "est. achieved occupancy %", "blocks per SM", "warps per SM", "graph id", "Collective name", "dtype",
    "In msg nelems", "Out msg nelems", "Group size", "Process Group Name", "Process Group Ranks",
})  # fmt: skip
_CALL_ARGS = frozenset({"correlation", "size", "grid", "block", "shared memory"})
_EXPORT_ARGS = frozenset({name for name, _ in SLOTS} | {"long_name"})
_LINE_ARGS = frozenset({"name", "labels", "sort_index"})
# ... and those that are numbers, sizes and types.
_HARMLESS_ARGS = frozenset({
    "context", "cbid", "External id", "external id", "Ev Idx", "Python id", "Python parent id", "Python module id",
    "Sequence number", "Fwd thread id", "Input Dims", "Input dims", "Input type", "Input Strides", "kind", "queued",
    "memory bandwidth (GB/s)", "Rank", "Device Id", "Device Type", "Bytes", "Total Allocated", "Total Reserved",
    "Op count", "Record function id", "Profiler Event Index", "graph node id", "num_warps", "num_stages",
    "context_id", "device_id", "program_id", "occupancy_min_grid_size", "occupancy_suggested_block_size",
    "scope_range_id", "shape", "shapes",
})  # fmt: skip
_LINE_EVENTS = frozenset({
    "process_name", "thread_name", "process_labels", "process_sort_index", "thread_sort_index", "Iteration Start",
    "Record Window End",
})  # fmt: skip
_READ_LINE_EVENTS = ("process_name", "thread_name")
_KNOWN_CATEGORIES = frozenset({
    *DEVICE_CATEGORIES, *HOST_CATEGORIES, RECORDING_CATEGORY, "ac2g", "fwdbwd", "async", "async_cpu_to_gpu",
    "async_gpu", "gpu_user_annotation", "cpu_instant_event", "overhead", "cuda_profiler_range", "cuda_sync",
})  # fmt: skip
_PLAIN_TOP = ("schemaVersion", "baseTimeNanoseconds", "cuda_runtime_version", "cuda_driver_version", "cupti_version",
              "record_shapes", "with_stack", "with_flops", "with_modules", "profile_memory")  # fmt: skip
_JOB_KEYS = ("backend", "rank", "world_size", "nccl_version", "pg_count")
_DEVICE_KEYS_KEPT = "name"
_BLOCK = 4096
# A higher one takes three times as long for a hundredth of the size.
_LEVEL = 6


class _File(msgspec.Struct):
    traceEvents: list[msgspec.Raw]
    deviceProperties: msgspec.Raw = msgspec.Raw()
    distributedInfo: msgspec.Raw = msgspec.Raw()
    displayTimeUnit: msgspec.Raw = msgspec.Raw()


class _Process(msgspec.Struct):
    pid: Any = None


class _Event(msgspec.Struct, omit_defaults=True, gc=False):
    """An event whose values have their usual types, as nearly all have."""

    ph: str
    cat: str | None = None
    name: str | None = None
    pid: int | None = None
    tid: int | None = None
    ts: int | float | None = None
    dur: int | float | None = None
    id: int | None = None
    bp: str | None = None
    s: str | None = None
    args: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Kind(NamedTuple):
    """What becomes of events of one phase and category."""

    dropped: bool
    args: frozenset[str]
    category: str | None
    is_kernel: bool


_FILE = msgspec.json.Decoder(_File)
_ANY = msgspec.json.Decoder()
_TOP = msgspec.json.Decoder(dict[str, msgspec.Raw])
_USUAL = msgspec.json.Decoder(_Event)
_PROCESS_OF = msgspec.json.Decoder(_Process)
_encode = msgspec.json.Encoder().encode


def rewrite_json(
    path: str,
    out: BinaryIO,
    names: Names | None,
    slim: bool,
    progress: Callable[[float], None] | None = None,
    packed: bool | None = None,
) -> None:
    """Write ``path`` anew to ``out``.

    Args:
        path: a trace by PyTorch, TensorFlow or JAX.
        out: takes the new one.
        names: replaces names; None keeps them.
        slim: leave out what no analysis and no view reads.
        progress: called with the share that is done.
        packed: whether with gzip, by default as ``path`` is called.

    Raises:
        ProfileError: the file cannot be read, or is none.
    """
    content, is_part = read_json_bytes(path)
    data = bytes(utf8(content))
    del content
    if data.count(b"{") > MAX_OBJECTS:
        raise ProfileError("too_many_events", path, count=data.count(b"{"), limit=MAX_OBJECTS)
    try:
        found, top = _FILE.decode(data), _TOP.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        salvaged = salvage(data)
        if salvaged is None or not salvaged.events:
            raise ProfileError(what_it_is(data), path) from None
        is_part |= salvaged.is_part
        try:
            found, top = _FILE.decode(salvaged.text), _TOP.decode(salvaged.text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ProfileError("not_trace_json", path) from None
    del data
    writer = _Writer(found, names, slim)
    if path.endswith(".gz") if packed is None else packed:
        # No time and no name of the file in its head: the same trace always gives the same bytes.
        with gzip.GzipFile("", "wb", _LEVEL, out, mtime=0) as gzipped:
            _write(writer, top, is_part, gzipped, progress)
    else:
        _write(writer, top, is_part, out, progress)


def _write(
    writer: _Writer,
    top: dict[str, msgspec.Raw],
    is_part: bool,
    out: Any,
    progress: Callable[[float], None] | None,
) -> None:
    """The file's text; what is a part stays one, without an end."""
    out.write(b"{")
    for key, value in writer.top(top):
        out.write(_encode(key) + b":" + value + b",\n")
    out.write(b'"traceEvents":[\n')
    block = io.BytesIO()
    first = True
    total = max(len(writer.events), 1)
    for count, event in enumerate(writer.written()):
        if not first:
            block.write(b",\n")
        block.write(event)
        first = False
        if count % _BLOCK == _BLOCK - 1:
            out.write(block.getvalue())
            block = io.BytesIO()
            if progress is not None:
                progress(count / total)
    out.write(block.getvalue())
    out.write(b",\n" if is_part else b"\n]}\n")


class _Writer:
    """The events of one file on their way."""

    def __init__(self, found: _File, names: Names | None, slim: bool) -> None:
        self.found, self.names, self.slim = found, names, slim
        self.events = found.traceEvents
        self._kinds: dict[tuple[str, str | None], _Kind] = {}
        self.pids: set[int] = set()
        if names is not None:
            self.pids = {pid for raw in self.events if isinstance(pid := _pid(raw), int) and pid >= 1024}
            names.learn_pids(sorted(self.pids))

    # -- what stands beside the events -----------------------------------------------------

    def top(self, top: dict[str, msgspec.Raw]) -> Iterator[tuple[str, bytes]]:
        """(key, JSON) of the file's other entries."""
        if self.names is None and not self.slim:
            yield from ((key, bytes(value)) for key, value in top.items() if key != "traceEvents")
            return
        for key in _PLAIN_TOP:
            value = _decoded(top.get(key))
            if isinstance(value, int | float):
                yield key, _encode(value)
        unit = _decoded(self.found.displayTimeUnit)
        if unit in ("ms", "ns"):
            yield "displayTimeUnit", _encode(unit)
        devices = _decoded(self.found.deviceProperties)
        if isinstance(devices, list):
            kept = [self._device(entry) for entry in devices if isinstance(entry, dict)]
            yield "deviceProperties", _encode(kept)
        job = _decoded(self.found.distributedInfo)
        if isinstance(job, dict):
            yield "distributedInfo", _encode({key: self._value(job[key]) for key in _JOB_KEYS if key in job})

    def _device(self, entry: dict[str, Any]) -> dict[str, Any]:
        """A GPU's numbers, and its model."""
        return {
            self._key(key): value
            for key, value in entry.items()
            if isinstance(value, int | float) or (key == _DEVICE_KEYS_KEPT and isinstance(value, str))
        }

    # -- events ----------------------------------------------------------------------------

    def written(self) -> Iterator[bytes]:
        """Each event that stays, as JSON."""
        is_export = self._is_export()
        for raw in self.events:
            if self.names is None and not self.slim:
                yield bytes(raw)
                continue
            try:
                usual = _USUAL.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                new = self._odd(raw, is_export)
            else:
                new = self._odd(raw, is_export) if usual.ph not in _USUAL_PHASES else self._usual(usual, is_export)
            if new is not None:
                yield new

    def _is_export(self) -> bool:
        """Whether TensorFlow wrote it: its processes are named after devices."""
        for raw in self.events:
            if b"process_name" in memoryview(raw)[:512].tobytes():
                event = _decoded(raw)
                args = event.get("args") if isinstance(event, dict) else None
                name = args.get("name") if isinstance(args, dict) else None
                if isinstance(name, str) and name.startswith(("/host:", "/device:")):
                    return True
        return False

    def _usual(self, event: _Event, is_export: bool) -> bytes | None:
        kind = self._kinds.get((event.ph, event.cat))
        if kind is None:
            kind = self._kinds[event.ph, event.cat] = self._kind(event.ph, event.cat, is_export)
        if kind.dropped:
            return None
        names = self.names
        if names is not None:
            event.cat = kind.category
            if event.name:
                event.name = names.name(event.name, kind.is_kernel)
            if event.pid in self.pids:
                event.pid = names.pid(event.pid or 0)
            if event.tid in self.pids:
                event.tid = names.pid(event.tid or 0)
            event.bp = event.bp if event.bp in _BINDING_POINTS else None
            event.s = None
        if self.slim:
            event.id = event.bp = event.s = None
        if event.args is not msgspec.UNSET:
            given = self._args(_decoded(event.args), kind.args, False) if kind.args else {}
            event.args = msgspec.Raw(_encode(given)) if given else msgspec.UNSET
        return _encode(event)

    def _kind(self, phase: Any, category: Any, is_export: bool) -> _Kind:
        low = category.lower() if isinstance(category, str) else ""
        args: frozenset[str] = frozenset()
        dropped = False
        if phase == "M":
            args = _LINE_ARGS
        elif is_export:
            args = _EXPORT_ARGS
        elif low in DEVICE_CATEGORIES:
            args = _DEVICE_ARGS
        elif low in HOST_CATEGORIES:
            args = _CALL_ARGS if HOST_CATEGORIES[low] == CALL else args
        else:
            dropped = low != RECORDING_CATEGORY
        if not self.slim:
            args |= _HARMLESS_ARGS | _DEVICE_ARGS
        new = category if low in _KNOWN_CATEGORIES else self._value(category)
        dropped = self.slim and (dropped or phase not in ("X", "M"))
        return _Kind(dropped, args, new, is_export or low in DEVICE_CATEGORIES)

    def _odd(self, raw: msgspec.Raw, is_export: bool) -> bytes | None:
        """An event of any types, and those that name lines."""
        event = _decoded(raw)
        if not isinstance(event, dict):
            return b"null"  # counted as broken, as before
        phase, category, name = event.get("ph"), event.get("cat"), event.get("name")
        kind = self._kind(phase, category, is_export)
        if kind.dropped or (self.slim and phase == "M" and name not in _READ_LINE_EVENTS):
            return None
        new: dict[str, Any] = {}
        for key in _SLIM_EVENT_KEYS if self.slim else _EVENT_KEYS:
            if key not in event:
                continue
            value = event[key]
            if key == "args":
                given = self._args(value, kind.args, phase == "M")
                if given:
                    new[key] = given
            elif key == "cat":
                new[key] = kind.category
            elif key == "name" and phase in ("M", "i") and value in _LINE_EVENTS:
                new[key] = value
            elif key == "name":
                new[key] = self._value(value, kind.is_kernel)
            elif key in ("pid", "tid"):
                new[key] = self._line(value)
            elif key in ("ph", "bp", "s") and isinstance(value, str) and len(value) < 3:
                new[key] = value
            else:
                new[key] = self._value(value)
        return _encode(new)

    def _args(self, args: Any, allowed: frozenset[str], names_line: bool) -> dict[str, Any]:
        if not isinstance(args, dict):
            return {}
        found = {}
        for key in args:
            if key in allowed:
                value = args[key]
                found[key] = self._line_name(value) if names_line else self._value(value, key == "long_name")
        return found

    def _line(self, value: Any) -> Any:
        """A process or thread: numbers of processes are replaced, as they are in names of files."""
        if self.names is None:
            return value
        if isinstance(value, int):
            return self.names.pid(value) if value in self.pids else value
        if isinstance(value, str) and value.isdigit():
            return str(self._line(int(value)))
        return self._value(value)

    def _line_name(self, value: Any) -> Any:
        if self.names is not None and isinstance(value, str):
            words = value.split(" ")
            return self.names.name(" ".join(str(self._line(w)) if w.isascii() and w.isdigit() else w for w in words))
        return self._line(value) if isinstance(value, int) else self._value(value)

    def _value(self, value: Any, kernel: bool = False) -> Any:
        """A value with the names in it replaced; what holds other values is kept as far as it is plain."""
        if self.names is None or value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            return self.names.name(value, kernel)
        if isinstance(value, list):
            return [self._value(part) for part in value]
        return None

    def _key(self, key: str) -> str:
        return key if self.names is None or key in _DEVICE_PROPERTY_NAMES else self.names.name(key)


_DEVICE_PROPERTY_NAMES = frozenset({
    "id", "name", "totalGlobalMem", "computeMajor", "computeMinor", "maxThreadsPerBlock", "maxThreadsPerMultiprocessor",
    "regsPerBlock", "regsPerMultiprocessor", "warpSize", "sharedMemPerBlock", "sharedMemPerMultiprocessor", "numSms",
    "sharedMemPerBlockOptin", "maxSharedMemoryPerMultiProcessor",
})  # fmt: skip


def _decoded(raw: msgspec.Raw | None) -> Any:
    if raw is None or not len(memoryview(raw)):
        return None
    try:
        return _ANY.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _pid(raw: msgspec.Raw) -> Any:
    try:
        return _PROCESS_OF.decode(raw).pid
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
