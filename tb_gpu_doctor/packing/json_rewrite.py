"""Writes trace JSON anew, event by event: without names, and with no more than the tab reads.

Only what is known is written: the user's own metadata, which may hold anything, never is.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import msgspec

from tb_gpu_doctor.packing.names import Names
from tb_gpu_doctor.traces.errors import TraceError
from tb_gpu_doctor.traces.json_document import MAX_OBJECTS, _mended
from tb_gpu_doctor.traces.json_file import read_json_bytes
from tb_gpu_doctor.traces.kineto_events import DEVICE_CATEGORIES, HOST_CATEGORIES, RECORDING_CATEGORY
from tb_gpu_doctor.traces.wire import SLOTS

_EVENT_KEYS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "bp", "s", "args")
_SLIM_EVENT_KEYS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")
_NUMBERS = ("pid", "tid", "ts", "dur", "id")
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


class _File(msgspec.Struct):
    traceEvents: list[msgspec.Raw]
    deviceProperties: msgspec.Raw = msgspec.Raw()
    distributedInfo: msgspec.Raw = msgspec.Raw()
    displayTimeUnit: msgspec.Raw = msgspec.Raw()


class _Process(msgspec.Struct):
    pid: Any = None


_FILE = msgspec.json.Decoder(_File)
_ANY = msgspec.json.Decoder()
_TOP = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PROCESS_OF = msgspec.json.Decoder(_Process)
_encode = msgspec.json.Encoder().encode


def rewrite_json(
    path: str, out: BinaryIO, names: Names | None, slim: bool, progress: Callable[[float], None] | None = None
) -> None:
    """Write ``path`` anew to ``out``, packed where it was.

    Args:
        path: a trace by PyTorch, TensorFlow or JAX.
        out: takes the new one.
        names: replaces names; None keeps them.
        slim: leave out what no analysis and no view reads.
        progress: called with the share that is done.

    Raises:
        TraceError: the file cannot be read, or is none.
    """
    data = bytes(read_json_bytes(path))
    if data.count(b"{") > MAX_OBJECTS:
        raise TraceError("too_many_events", path)
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        try:
            found, top = _FILE.decode(data), _TOP.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            data = _mended(data)
            found, top = _FILE.decode(data), _TOP.decode(data)
    except msgspec.ValidationError:
        raise TraceError("not_trace_json", path) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise TraceError("malformed", path) from None
    del data
    writer = _Writer(found, names, slim)
    if path.endswith(".gz"):
        # No time and no name of the file in its head: the same trace always gives the same bytes.
        with gzip.GzipFile("", "wb", 9, out, mtime=0) as packed:
            _write(writer, top, packed, progress)
    else:
        _write(writer, top, out, progress)


def _write(writer: _Writer, top: dict[str, msgspec.Raw], out: Any, progress: Callable[[float], None] | None) -> None:
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
    out.write(b"\n]}\n")


class _Writer:
    """The events of one file on their way."""

    def __init__(self, found: _File, names: Names | None, slim: bool) -> None:
        self.found, self.names, self.slim = found, names, slim
        self.events = found.traceEvents
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
            event = _decoded(raw)
            if not isinstance(event, dict):
                yield b"null"  # counted as broken, as before
                continue
            new = self._event(event, is_export)
            if new is not None:
                yield _encode(new)

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

    def _event(self, event: dict[str, Any], is_export: bool) -> dict[str, Any] | None:
        phase, category, name = event.get("ph"), event.get("cat"), event.get("name")
        low = category.lower() if isinstance(category, str) else ""
        args: frozenset[str] | None
        if phase == "M":
            args = _LINE_ARGS
            if self.slim and name not in _READ_LINE_EVENTS:
                return None
        elif is_export:
            args = _EXPORT_ARGS
            if self.slim and phase != "X":
                return None
        elif low in DEVICE_CATEGORIES:
            args = _DEVICE_ARGS
        elif low in HOST_CATEGORIES:
            args = _CALL_ARGS if HOST_CATEGORIES[low] == "call" else frozenset()
        else:
            args = frozenset()
            if self.slim and (phase != "X" or low != RECORDING_CATEGORY):
                return None
        if self.slim and phase not in ("X", "M"):
            return None
        if not self.slim:
            args |= _HARMLESS_ARGS | _DEVICE_ARGS
        new: dict[str, Any] = {}
        for key in _SLIM_EVENT_KEYS if self.slim else _EVENT_KEYS:
            if key not in event:
                continue
            value = event[key]
            if key == "args":
                given = self._args(value, args, phase == "M")
                if given:
                    new[key] = given
            elif (key == "cat" and isinstance(value, str) and low in _KNOWN_CATEGORIES) or (
                key == "name" and phase in ("M", "i") and value in _LINE_EVENTS
            ):
                new[key] = value
            elif key == "name" and isinstance(value, str) and self.names is not None:
                new[key] = self.names.name(value, is_export or low in DEVICE_CATEGORIES)
            elif key in ("pid", "tid"):
                new[key] = self._line(value)
            elif key in ("ph", "bp", "s") and isinstance(value, str) and len(value) < 3:
                new[key] = value
            else:
                new[key] = self._value(value)
        return new

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
