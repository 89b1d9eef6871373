"""From the trace viewer export of TensorFlow and JAX (``*.trace.json.gz``) to a `Trace`.

The same run as its XPlane gives the same events. What the export leaves out stays unknown: the
properties of the GPUs, links between host events, and all events beyond the writer's limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.traces import classify
from tb_gpu_doctor.traces.columns import (
    CopyKind,
    DeviceEvents,
    EventClass,
    HostEvents,
    Int64,
    StringTable,
    Trace,
    device_events,
    host_events,
)
from tb_gpu_doctor.traces.json_columns import Lines, Strings, times_of, wall_start
from tb_gpu_doctor.traces.json_document import Document, Event, name_of, parse_args, whole

# The writer keeps the first million events of a recording.
MAX_WRITTEN_EVENTS = 1_000_000
_GPU = re.compile(r"^/device:GPU:(\d{1,9})(?:\s|$)")
_HOST = "/host:"
_NOT_THREADS = ("/host:metadata", "/host:__ScopeRangeCallStack__")
# Picoseconds: six digits behind the point of a microsecond.
_UNIT_PS = 1
# The writer gives events without a duration the shortest one that a viewer can show.
_NO_DURATION_PS = 1
_MEMORY_STATS = ("memalloc_details", "MemFree_details", "memfree_details", "MemoryResidency_details")
_MEMSET_STATS = ("Memset_details", "memset_details")
_ARGS = msgspec.json.Decoder(dict[str, Any])
_Args = dict[str, Any]
_HOST_NUMBERS = {
    "correlation": "correlation_id", "step_num": "step_num", "group": "group_id", "producer_type": "_pt",
    "producer_id": "_p", "consumer_type": "_ct", "consumer_id": "_c", "graph": "cuda_graph_id",
}  # fmt: skip
_DEVICE_NUMBERS = {"correlation": "correlation_id", "group": "group_id", "graph": "cuda_graph_id"}
_CLASS_COLUMNS = ("klass", "copy_kind", "copy_bytes", "copy_async", "copy_memory")
_DEVICE_TEXTS = {"details": "kernel_details", "hlo_op": "hlo_op", "hlo_module": "hlo_module"}


def is_tf_export(document: Document) -> bool:
    """Whether a file names its processes as TensorFlow's profiler does."""
    return any(name.startswith((_HOST, "/device:")) for name in _processes(document.metadata).values())


def tf_trace(document: Document, path: str, host: str) -> Trace:
    """The trace of one host."""
    strings, lines = Strings(), Lines(host)
    processes = _processes(document.metadata)
    line_names = {
        (event.pid, event.tid): name
        for event in document.metadata
        if event.name == "thread_name" and (name := name_of(event))
    }
    gpus = {pid: int(match.group(1)) for pid, name in processes.items() if (match := _GPU.match(name))}
    hosts = {pid for pid, name in processes.items() if name.startswith(_HOST) and not name.startswith(_NOT_THREADS)}
    for gpu in sorted(gpus.values()):
        lines.device(gpu)
    work: list[tuple[Event, _Args, int]] = []  # with the stream
    calls: list[tuple[Event, int]] = []  # with the thread
    for event in document.complete:
        line = line_names.get((event.pid, event.tid), "")
        if event.pid in gpus:
            line_id = whole(event.tid)
            if not classify.is_work_stream(line, line_id):
                continue
            args = parse_args(_ARGS, event.args) or {}
            if not any(stat in args for stat in _MEMORY_STATS):
                device = lines.device(gpus[event.pid])
                work.append((event, args, lines.stream(device, event.tid, line_id, line)))
        elif event.pid in hosts:
            calls.append((event, lines.thread(event.pid, event.tid, whole(event.tid), line or f"thread {event.tid}")))
    times = times_of([*(item[0] for item in work), *(item[0] for item in calls)], _UNIT_PS, keep_zero=True)
    duration = np.where(times.duration <= _NO_DURATION_PS, 0, times.duration)
    split = int(np.searchsorted(times.rows, len(work)))
    devices, streams, _ = lines.ordered({})  # met in the order of their ids
    notes = times.notes + document.notes(host)
    if len(document.complete) >= MAX_WRITTEN_EVENTS:
        notes += (Phrase("notes.capped_export", {"count": len(document.complete)}),)
    worked = [work[row] for row in times.rows[:split].tolist()]
    device_columns = _device_columns(worked, times.start[:split], duration[:split], strings, streams)
    called = [calls[row] for row in (times.rows[split:] - len(work)).tolist()]
    host_columns = _host_columns(called, times.start[split:], duration[split:], strings)
    return Trace(
        path=path,
        host=host,
        format="trace_json",
        strings=StringTable.of(strings.ids),
        devices=devices,
        streams=streams,
        device_events=device_columns,
        threads=tuple(lines.threads.values()),
        host_events=host_columns,
        wall_start_unix_ns=wall_start(times.base_us, 0),
        notes=notes,
    )


def _processes(metadata: Iterable[Event]) -> dict[object, str]:
    return {event.pid: name for event in metadata if event.name == "process_name" and (name := name_of(event))}


def _device_columns(
    work: list[tuple[Event, _Args, int]], start: Int64, duration: Int64, strings: Strings, streams: tuple[Any, ...]
) -> DeviceEvents:
    columns: dict[str, list[int]] = {name: [] for name in (*_DEVICE_NUMBERS, *_DEVICE_TEXTS)}
    names, ops, stream_of = [], [], []
    copies: dict[str, list[int]] = {name: [] for name in _CLASS_COLUMNS}
    occupancy = np.full(len(work), np.nan)
    for row, (event, args, stream) in enumerate(work):
        name = _name(event, args)
        stream_of.append(stream)
        names.append(strings.id(name))
        ops.append(strings.id(_op(args)))
        for column, stat in _DEVICE_NUMBERS.items():
            columns[column].append(whole(args.get(stat)))
        for column, stat in _DEVICE_TEXTS.items():
            columns[column].append(strings.id(_text(args, stat)))
        facts = _class(name, args)
        for column, value in zip(_CLASS_COLUMNS, facts, strict=True):
            copies[column].append(value)
        occupancy[row] = _percent(args.get("theoretical_occupancy_pct"))
    return device_events(
        len(work), device=[streams[s].device for s in stream_of], stream=stream_of, start=start, duration=duration,
        name=names, op=ops, occupancy_pct=occupancy, **copies, **columns,
    )  # fmt: skip


def _host_columns(called: list[tuple[Event, int]], start: Int64, duration: Int64, strings: Strings) -> HostEvents:
    columns: dict[str, list[int]] = {name: [] for name in _HOST_NUMBERS}
    names, ops, threads, roots = [], [], [], []
    for event, thread in called:
        args = parse_args(_ARGS, event.args) or {}
        threads.append(thread)
        ops.append(strings.id(_text(args, "hlo_op") or _op(args)))
        for column, stat in _HOST_NUMBERS.items():
            columns[column].append(whole(args.get(stat)))
        # Viewers show the number of a step behind its name; all steps have one name.
        names.append(strings.id(_name(event, args).removesuffix(f" {columns['step_num'][-1]}")))
        # The export keeps a marker's number, not the flag that makes it a root event.
        roots.append(1 if columns["step_num"][-1] >= 0 or whole(args.get("_r")) == 1 else -1)
    return host_events(
        len(called), thread=threads, start=start, duration=duration, name=names, op=ops, is_root=roots, **columns
    )


def _name(event: Event, args: _Args) -> str:
    return _text(args, "long_name") or event.name or ""


def _text(args: _Args, stat: str) -> str | None:
    value = args.get(stat)
    return value if isinstance(value, str) and value else None


def _op(args: _Args) -> str | None:
    """Framework op; JAX puts the useful path into ``name``."""
    op = _text(args, "tf_op") or _text(args, "level 0")
    return (_text(args, "name") or op) if op is None or op.startswith("XlaModule:") else op


def _class(name: str, args: _Args) -> tuple[int, int, int, int, int]:
    """(class, copy kind, bytes, asynchronous, host memory) of a device event."""
    for stat in _MEMSET_STATS:
        if (details := _text(args, stat)) is not None:
            size = classify.detail_int(classify.detail_values(details), "num_bytes", "size")
            return EventClass.MEMSET, CopyKind.NONE, size, -1, -1
    details = _text(args, "memcpy_details")
    if details is not None:
        kind = classify.copy_kind(name, details)
        values = classify.detail_values(details)
        is_async = classify.detail_int(values, "async")
        return (
            classify.copy_class(kind), kind, classify.detail_int(values, "size"),
            is_async if is_async in (0, 1) else -1, classify.host_memory(values),
        )  # fmt: skip
    collective = classify.is_collective(name, _text(args, "hlo_op") or "")
    return (EventClass.COMMUNICATION if collective else EventClass.COMPUTE), CopyKind.NONE, -1, -1, -1


def _percent(value: Any) -> float:
    """A percentage above 0, else NaN: 0 means that it could not be computed."""
    try:
        number = float(value) if isinstance(value, str | int | float) else 0.0
    except (ValueError, OverflowError):
        return float("nan")
    return number if 0 < number <= 100 else float("nan")
