"""From a raw plane's slots to the columns of the trace model: ids, ops, classes and copies."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.traces import classify
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Int64
from tb_gpu_doctor.traces.grouping import group
from tb_gpu_doctor.traces.wire import RawPlane

# A copy is never larger than the memory of a machine.
_MAX_COPY_BYTES = 1 << 46
_MEMSET_STATS = ("Memset_details", "memset_details")

DEVICE_SLOTS = {
    "correlation": "correlation_id",
    "details": "kernel_details",
    "hlo_op": "hlo_op",
    "hlo_module": "hlo_module",
    "group": "group_id",
    "graph": "cuda_graph_id",
}
HOST_SLOTS = {
    "correlation": "correlation_id",
    "step_num": "step_num",
    "is_root": "_r",
    "group": "group_id",
    "producer_type": "_pt",
    "producer_id": "_p",
    "consumer_type": "_ct",
    "consumer_id": "_c",
    "graph": "cuda_graph_id",
}
# What few profilers count of kernels, kept only where it is.
SPARSE_DEVICE_SLOTS = ("flops", "bytes_accessed")
# Stats of tf.data's events, kept only where they are.
SPARSE_HOST_SLOTS = ("id", "parent_id", "parallelism", "buffer_limit", "element_size", "cpu_budget", "autotune")
# What events of a framework's allocator say, kept only where they are.
ALLOCATOR_SLOTS = ("allocator_name", "bytes_allocated", "bytes_available", "peak_bytes_in_use")
# Events that these stats say something about; many others have an `id`.
_TF_DATA_PREFIXES = (b"Iterator", b"InstantiatedCapturedFunction::", b"Executor", b"MultiDeviceIterator")
_TF_DATA_MARK = b"Iterator::"


def slot_columns(
    plane: RawPlane, rows: Int64, ids: NDArray[np.int32], slots: dict[str, str]
) -> dict[str, NDArray[np.generic]]:
    """The columns that are slots as they are; string ids become the file's."""
    columns = {}
    for column, slot in slots.items():
        values = plane.slot(slot)
        if values is None:
            continue
        picked = values[rows]
        columns[column] = ids[picked] if picked.dtype == np.int32 else picked
    if "is_root" in columns:
        columns["is_root"] = (columns["is_root"] == 1).astype(np.int8)
    return columns


def sparse_stats(plane: RawPlane, rows: Int64, ids: NDArray[np.int32]) -> dict[str, tuple[Int64, Int64]]:
    """Stats that few events carry as (index into ``rows``, value): tf.data's, allocators', and of tf.function calls."""
    found: dict[str, tuple[Int64, Int64]] = _allocator_stats(plane, rows, ids)
    tracings = plane.slot("tracing_count")
    if tracings is not None and len(calls := np.flatnonzero(tracings[rows] != -1)):
        found["tracing_count"] = (calls, tracings[rows][calls].astype(np.int64))
        traced = _traced(plane, rows, calls)
        if len(traced):
            found["traced"] = (traced, np.ones(len(traced), np.int64))
    if _TF_DATA_MARK not in plane.strings.blob:
        return found
    strings = plane.strings
    wanted = np.array([strings.raw(i).startswith(_TF_DATA_PREFIXES) for i in range(len(strings))] + [False])
    at = np.flatnonzero(wanted[plane.event_name[rows]])
    for slot in SPARSE_HOST_SLOTS:
        values = plane.slot(slot)
        if values is None:
            continue
        picked = values[rows[at]]
        has = picked != -1
        if has.any():
            kept = picked[has]
            found[slot] = (at[has], (ids[kept] if kept.dtype == np.int32 else kept).astype(np.int64))
    return found


def _traced(plane: RawPlane, rows: Int64, calls: Int64) -> Int64:
    """Those of a tf.function's calls that traced it: ``traced-xla`` or ``traced-nonXla``."""
    how = plane.slot("tf_function_call")
    if how is None:
        return np.zeros(0, np.int64)
    used, inverse = np.unique(how[rows][calls], return_inverse=True)
    traces = np.array([text >= 0 and plane.strings.raw(text).startswith(b"traced") for text in used.tolist()], np.bool_)
    return calls[traces[inverse]]


def _allocator_stats(plane: RawPlane, rows: Int64, ids: NDArray[np.int32]) -> dict[str, tuple[Int64, Int64]]:
    """What allocations and deallocations say of their allocator, of those that say it all."""
    columns = [plane.slot(slot) for slot in ALLOCATOR_SLOTS]
    known = [column[rows] for column in columns if column is not None]
    if len(known) < len(ALLOCATOR_SLOTS):
        return {}
    at = np.flatnonzero(np.logical_and.reduce([column >= 0 for column in known]))
    if not len(at):
        return {}
    return {
        slot: (at, (ids[column[at]] if column.dtype == np.int32 else column[at]).astype(np.int64))
        for slot, column in zip(ALLOCATOR_SLOTS, known, strict=True)
    }


def device_stats(plane: RawPlane, rows: Int64) -> dict[str, tuple[Int64, Int64]]:
    """Stats that few device events carry as (index into ``rows``, value); negative ones are none."""
    found = {}
    for slot in SPARSE_DEVICE_SLOTS:
        values = plane.slot(slot)
        if values is not None and len(at := np.flatnonzero(values[rows] >= 0)):
            found[slot] = (at, values[rows][at].astype(np.int64))
    return found


def framework_op(plane: RawPlane, rows: Int64, ids: NDArray[np.int32]) -> NDArray[np.int32]:
    """Framework op: ``tf_op``, in old files ``level 0``; JAX puts the useful path into ``name``."""
    op = np.full(len(rows), -1, np.int32)
    for slot in ("tf_op", "level 0"):
        values = plane.slot(slot)
        if values is not None:
            op = np.where(op < 0, values[rows], op)
    names = plane.slot("name")
    if names is not None:
        xla = np.array([plane.strings.raw(i).startswith(b"XlaModule:") for i in range(len(plane.strings))] + [True])
        picked = names[rows]
        op = np.where(xla[op] & (picked >= 0), picked, op)
    return ids[op]


def launch_op(plane: RawPlane, rows: Int64, ids: NDArray[np.int32]) -> NDArray[np.int32]:
    """Op of a launch: XLA's events on the launching thread carry the HLO op's name, so that comes first."""
    hlo = _picked(plane, "hlo_op", rows)
    return np.where(hlo >= 0, ids[hlo], framework_op(plane, rows, ids)).astype(np.int32)


def classify_events(plane: RawPlane, rows: Int64, part: dict[str, Any]) -> None:
    """Set klass and what is known of copies; each distinct text is looked at once."""
    count = len(rows)
    names = plane.event_name[rows]
    hlo = _picked(plane, "hlo_op", rows)
    klass = np.zeros(count, np.uint8)
    strings = plane.strings
    # one by one, not in pairs: a name may come with a million ops
    for column, is_collective in ((names, classify.is_collective_kernel), (hlo, classify.is_collective_op)):
        used, inverse = group(column)
        collective = np.array([is_collective(strings[i]) for i in used.tolist()], np.bool_)
        klass[collective[inverse]] = EventClass.COMMUNICATION
    kind = np.zeros(count, np.uint8)
    size = np.full(count, -1, np.int64)
    is_async, memory = np.full(count, -1, np.int8), np.full(count, -1, np.int8)
    copies = _picked(plane, "memcpy_details", rows)
    at = np.flatnonzero(copies >= 0)
    if len(at):
        pairs, inverse = _distinct(names[at], copies[at])
        looked = [_copy(strings[name], strings[details]) for name, details in pairs]
        kind[at] = np.array([copy.kind for copy in looked], np.uint8)[inverse]
        size[at] = np.array([copy.size for copy in looked], np.int64)[inverse]
        is_async[at] = np.array([copy.is_async for copy in looked], np.int8)[inverse]
        memory[at] = np.array([copy.memory for copy in looked], np.int8)[inverse]
        klass[at] = np.where(kind[at] == CopyKind.P2P, EventClass.COMMUNICATION, EventClass.COPY)
    for slot in _MEMSET_STATS:
        sets = _picked(plane, slot, rows)
        at = np.flatnonzero(sets >= 0)
        if len(at):
            texts, inverse = group(sets[at])
            klass[at] = EventClass.MEMSET
            values = [classify.detail_values(strings[int(t)]) for t in texts.tolist()]
            size[at] = np.array([classify.detail_int(v, "num_bytes", "size") for v in values], np.int64)[inverse]
    part.update(klass=klass, copy_kind=kind, copy_bytes=size, copy_async=is_async, copy_memory=memory)


def _distinct(first: NDArray[np.int32], second: NDArray[np.int32]) -> tuple[list[tuple[int, int]], Int64]:
    """The distinct pairs of two id columns (ids from -1 on), and for each row which pair it is."""
    one, one_index = group(first)
    two, two_index = group(second)
    if not len(first):
        return [], one_index
    codes, inverse = group(one_index * len(two) + two_index)
    return list(zip(one[codes // len(two)].tolist(), two[codes % len(two)].tolist(), strict=True)), inverse


def _picked(plane: RawPlane, slot: str, rows: Int64) -> NDArray[np.int32]:
    values = plane.slot(slot)
    return np.full(len(rows), -1, np.int32) if values is None else values[rows].astype(np.int32)


class _Copy(NamedTuple):
    """What a copy's details say; -1 where they do not."""

    kind: int
    size: int
    is_async: int
    memory: int


def _copy(name: str, details: str) -> _Copy:
    values = classify.detail_values(details)
    is_async, size = classify.detail_int(values, "async"), classify.detail_int(values, "size")
    return _Copy(
        classify.copy_kind(name, details),
        size if size <= _MAX_COPY_BYTES else -1,
        is_async if is_async in (0, 1) else -1,
        classify.host_memory(values),
    )
