"""From the SQLite export of an Nsight Systems report to a `Trace`: one recording of one machine, hence one clock.

A file holds all processes and GPUs that were traced. Numbers of calls (correlation ids), of streams and of devices are
a process' own: two processes use the same ones. Tables and columns come and go with the version of the exporter, and
a table without rows is left out, so whatever is there is used and nothing is expected. Of big tables several columns
are packed into one number within SQL: handing values over one by one is what takes the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.traces import classify
from tb_gpu_doctor.traces.columns import (
    PS_PER_NS,
    CopyKind,
    Device,
    DeviceEvents,
    EventClass,
    HostEvents,
    HostThread,
    Int64,
    SparseStat,
    Stream,
    StringTable,
    Trace,
    device_events,
    ordered_host_events,
)
from tb_gpu_doctor.traces.enclosing import last_above
from tb_gpu_doctor.traces.grouping import distinct, group
from tb_gpu_doctor.traces.json_columns import MAX_NAME, Strings
from tb_gpu_doctor.traces.nsys_facts import (
    CALL,
    COPY,
    GRAPH,
    KERNEL,
    LONGEST_NS,
    MEMSET,
    RANGE,
    SYSTEM_CALL,
    facts_in,
    is_export,
    messages,
)
from tb_gpu_doctor.traces.nsys_ranges import APPENDED, Range, read_range
from tb_gpu_doctor.traces.sqlite_tables import Tables, split, whole

OVERHEADS = ("CUPTI_ACTIVITY_KIND_OVERHEAD", "PROFILER_OVERHEAD")

# Kinds of copies by CUPTI's numbers: the rest are copies of arrays.
_COPY_KINDS = {
    1: ("HtoD", CopyKind.H2D), 2: ("DtoH", CopyKind.D2H), 8: ("DtoD", CopyKind.D2D), 9: ("HtoH", CopyKind.H2H),
    10: ("PtoP", CopyKind.P2P), 11: ("HtoD", CopyKind.H2D), 12: ("DtoH", CopyKind.D2H), 13: ("DtoD", CopyKind.D2D),
}  # fmt: skip
# ... of unified memory: pages that move by themselves.
_UNIFIED = (11, 12, 13)
_MEMORIES = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device", 6: "Managed"}
# Ranges that are pushed and popped, and those that are started and ended.
_PUSHED, _STARTED = 59, 60
# Calls of the C library that are shorter explain no gap.
_SHORTEST_SYSTEM_CALL_NS = 10_000
_VERSION = re.compile(rb"_v\d+(?:_ptsz|_ptds)?$|_(?:ptsz|ptds)$")
_MAX_RANGE_TEXT = 512
_PROCESS = ~0xFFFFFF
_MAX_DEVICES = 1024
_MAX_SMALL = 100_000


def read_nsys(path: str, host: str, progress: Callable[[float], None] | None = None) -> Trace:
    """Decode one ``*.sqlite`` file that ``nsys export`` wrote.

    Args:
        path: the file.
        host: label of the recording.
        progress: called with the share that is done, 0..1.

    Raises:
        ProfileError: ``not_nsys`` for a database of something else; see also `sqlite_tables.Tables`.
    """
    with Tables(path) as tables:
        if not is_export(tables):
            raise ProfileError("not_nsys", path)
        return _Reader(tables, path, host, progress or (lambda _done: None)).trace()


@dataclass
class _Work:
    """Columns of device events of one table, in picoseconds."""

    start: Int64
    duration: Int64
    process: Int64  # global number
    device: Int64  # CUDA's number within the process
    stream: Int64
    correlation: Int64  # the process' own
    columns: dict[str, Int64] = field(default_factory=dict)


@dataclass
class _Host:
    """Columns of host events of one table; names are the trace's string ids."""

    start: Int64
    duration: Int64
    thread: Int64  # global number
    name: Int64
    correlation: Int64 | None = None
    step: Int64 | None = None
    op: Int64 | None = None
    is_operator: Int64 | None = None


class _Reader:
    """Reads table by table, then puts the columns together."""

    def __init__(self, tables: Tables, path: str, host: str, progress: Callable[[float], None]) -> None:
        self.tables, self.path, self.host, self.progress = tables, path, host, progress
        self.strings = Strings()
        self.notes: list[Phrase] = []
        self.implausible = self.negative = 0
        self.end_ns = 0

    def trace(self) -> Trace:
        facts = facts_in(self.tables)
        self.end_ns = facts.duration_ns or 0
        work = [part for part in (self._kernels(), self._graphs(), self._copies(), self._memsets()) if part is not None]
        self.progress(0.5)
        host = [part for part in (self._calls(), self._ranges()) if part is not None]
        self.progress(0.8)
        calls = host[0] if host and host[0].correlation is not None else None
        host += [part for part in (self._system_calls(calls), *map(self._overheads, OVERHEADS)) if part is not None]
        devices, streams, device_columns = self._devices(work)
        processes = distinct(
            np.concatenate([*(p.process for p in work), *(h.thread & _PROCESS for h in host), np.zeros(0, np.int64)])
        )
        threads, thread_of = self._threads(host)
        events, operators = self._host_columns(host, processes, thread_of)
        dense = self._joined([(w.process, w.correlation) for w in work], processes)
        device_columns |= {"correlation": dense}
        device_columns["copy_async"] = self._asynchronous(device_columns, events)
        count = len(device_columns["start"])
        if self.implausible:
            self.notes.append(Phrase("notes.implausible_times", {"count": self.implausible}))
        if self.negative:
            self.notes.append(Phrase("notes.negative_durations", {"count": self.negative}))
        warnings = messages(self.tables, has_work=count > 0)
        device = device_events(count, **device_columns)
        self._ops(device.correlation, events, device.op)
        self.progress(1.0)
        return Trace(
            path=self.path,
            host=self.host,
            format="nsys",
            strings=StringTable.of(self.strings.ids),
            devices=devices,
            streams=streams,
            device_events=device,
            threads=threads,
            host_events=events,
            wall_start_unix_ns=facts.start_unix_ns,
            recorded=_extent(device, events),
            warnings=warnings,
            notes=tuple(self.notes),
            host_stats={"operator": SparseStat(operators, np.ones_like(operators))} if len(operators) else {},
            rank=facts.rank,
        )

    # Names

    def _names(self, idents: Int64, strip: bool = False) -> Int64:
        """String ids of the trace for those of the file; what the file lacks is shown as its number."""
        numbers, index = group(idents)
        known = self.tables.texts(numbers[numbers >= 0].tolist(), MAX_NAME)
        ids = []
        for number in numbers.tolist():
            raw = known.get(number, b"[%d]" % number)
            if strip:
                raw = _VERSION.sub(b"", raw)
            ids.append(self.strings.id(raw.decode("utf-8", "replace")))
        return np.array(ids, np.int64)[index] if len(ids) else np.zeros(len(idents), np.int64)

    # The work of the devices

    def _plausible(self, start: Int64, end: Int64, *others: Int64) -> tuple[Int64, ...]:
        """(start, duration) in picoseconds and the other columns, of the rows whose times can be right."""
        good = (np.abs(start) <= LONGEST_NS) & (np.abs(end) <= LONGEST_NS)
        backward = good & (end < start)
        self.implausible += int(np.count_nonzero(~good))
        self.negative += int(np.count_nonzero(backward))
        good &= ~backward
        if not good.all():
            start, end, *others = (column[good] for column in (start, end, *others))  # type: ignore[assignment]
        return start * PS_PER_NS, (end - start) * PS_PER_NS, *others

    def _whole(self, table: str, columns: Sequence[str]) -> list[Int64] | None:
        """Columns of a table as whole numbers, -1 where absent; None without times."""
        if not self.tables.has(table, "start", "end"):
            return None
        return self.tables.integers(table, [self._or_absent(table, column) for column in columns])

    def _or_absent(self, table: str, column: str, absent: str = "-1") -> str:
        return whole(column) if self.tables.has(table, column) else absent

    def _field(self, table: str, column: str, bits: int) -> str:
        """SQL for a column as a part of a packed number; what does not fit cannot be true, and is cut."""
        return f'(ifnull("{column}", 0) & {(1 << bits) - 1})' if self.tables.has(table, column) else "0"

    def _packed(self, table: str, *parts: tuple[str, int]) -> str:
        """SQL for several columns as one number, the first in the highest bits."""
        shift, terms = 0, []
        for column, bits in reversed(parts):
            terms.append(f"({self._field(table, column, bits)} << {shift})")
            shift += bits
        return " | ".join(terms)

    def _kernels(self) -> _Work | None:
        if not self.tables.has(KERNEL, "start", "end"):
            return None
        name = "demangledName" if self.tables.has(KERNEL, "demangledName") else "shortName"
        graph = self._or_absent(KERNEL, "graphId")
        if graph == "-1" and self.tables.has(KERNEL, "graphNodeId"):
            graph = '"graphNodeId" >> 32'
        columns = self.tables.integers(KERNEL, (
            whole("start"), whole("end"),
            self._packed(KERNEL, ("gridX", 31), ("gridY", 16), ("gridZ", 16)),
            self._packed(KERNEL, ("blockX", 11), ("blockY", 11), ("blockZ", 7), ("registersPerThread", 9),
                         ("staticSharedMemory", 18)),
            self._packed(KERNEL, ("dynamicSharedMemory", 20), ("deviceId", 11), ("streamId", 32)),
            self._packed(KERNEL, ("correlationId", 32), (name, 31)),
            self._or_absent(KERNEL, "globalPid"), graph,
        ))  # fmt: skip
        start, duration, grid, block, place, called, process, graph_id = self._plausible(*columns)
        dynamic, device, stream = split(place, 11, 32)
        correlation, named = split(called, 31)
        names = self._names(named)
        return _Work(
            start, duration, process, device, stream, correlation,
            {"name": names, "klass": self._kernel_classes(names), "details": self._details(grid, block, dynamic),
             "graph": graph_id},
        )  # fmt: skip

    def _kernel_classes(self, names: Int64) -> Int64:
        texts = list(self.strings.ids)
        numbers, index = group(names)
        classes = [
            EventClass.COMMUNICATION if classify.is_collective_kernel(texts[i]) else EventClass.COMPUTE
            for i in numbers.tolist()
        ]
        return np.array(classes, np.int64)[index] if classes else np.zeros(0, np.int64)

    def _details(self, grid: Int64, block: Int64, dynamic: Int64) -> Int64:
        """String ids of the launch facts in the dialect that NVIDIA's events have in other formats."""
        shapes, shape = group(block)
        grids, at_grid = group(grid)
        sizes, size = group(dynamic)
        combined, which = group((shape * len(grids) + at_grid) * len(sizes) + size)
        ids = []
        for code in combined.tolist():
            rest, at_size = divmod(code, len(sizes))
            packed, x = int(shapes[rest // len(grids)]), int(grids[rest % len(grids)])
            static, registers = packed & 0x3FFFF, packed >> 18 & 0x1FF
            bx, by, bz = packed >> 45 & 0x7FF, packed >> 34 & 0x7FF, packed >> 27 & 0x7F
            ids.append(self.strings.id(
                f"regs:{registers} static_shared:{static} dynamic_shared:{int(sizes[at_size])} "
                f"grid:{x >> 32 & 0x7FFFFFFF},{x >> 16 & 0xFFFF},{x & 0xFFFF} block:{bx},{by},{bz}"
            ))  # fmt: skip
        return np.array(ids, np.int64)[which] if ids else np.zeros(0, np.int64)

    def _graphs(self) -> _Work | None:
        """Launches of whole graphs: what ran inside is not in the file."""
        columns = self._whole(
            GRAPH, ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId", "graphExecId")
        )
        if columns is None:
            return None
        start, duration, device, stream, correlation, process, graph, executed = self._plausible(*columns)
        if not len(start):
            return None
        numbers, index = group(np.where(graph >= 0, graph, executed))
        names = np.array([self.strings.id(f"CUDA graph {number}") for number in numbers.tolist()], np.int64)[index]
        self.notes.append(Phrase("notes.graphs_as_blocks", {"count": len(start), "host": self.host}))
        klass = np.full(len(start), int(EventClass.COMPUTE))
        return _Work(
            start, duration, process, device, stream, correlation, {"name": names, "klass": klass, "graph": graph}
        )

    def _copies(self) -> _Work | None:
        wanted = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "copyKind", "srcKind",
                  "dstKind")  # fmt: skip
        columns = self._whole(COPY, wanted)
        if columns is None:
            return None
        start, duration, device, stream, correlation, process, size, kind, source, target = self._plausible(*columns)
        sorts, index = group((kind & 0xFF) << 16 | (source & 0xFF) << 8 | (target & 0xFF))
        means = np.array([self._copy_sort(code) for code in sorts.tolist()], np.int64).reshape(-1, 4)[index]
        # Pages that move by themselves are no stream's work.
        stream = np.where(np.isin(kind, _UNIFIED), -2, stream)
        return _Work(
            start, duration, process, device, stream, correlation,
            {"name": means[:, 0], "klass": means[:, 1], "copy_kind": means[:, 2], "copy_memory": means[:, 3],
             "copy_bytes": size},
        )  # fmt: skip

    def _copy_sort(self, code: int) -> tuple[int, int, int, int]:
        kind, source, target = code >> 16, code >> 8 & 0xFF, code & 0xFF
        direction, sort = _COPY_KINDS.get(kind, ("", CopyKind.OTHER))
        ends = [_MEMORIES.get(memory) for memory in (source, target)]
        name = f"Memcpy {direction}".strip()
        if kind in _UNIFIED:
            name += " (Unified Memory)"
        elif None not in ends:
            name += f" ({ends[0]} -> {ends[1]})"
        memory = {0: 1, 1: 0}.get(source if sort == CopyKind.H2D else target if sort == CopyKind.D2H else 9, -1)
        return self.strings.id(name), int(classify.copy_class(sort)), int(sort), memory

    def _memsets(self) -> _Work | None:
        columns = self._whole(MEMSET, ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes"))
        if columns is None:
            return None
        start, duration, device, stream, correlation, process, size = self._plausible(*columns)
        names = np.full(len(start), self.strings.id("Memset (Device)"))
        klass = np.full(len(start), int(EventClass.MEMSET))
        return _Work(
            start, duration, process, device, stream, correlation, {"name": names, "klass": klass, "copy_bytes": size}
        )

    # Devices and streams

    def _devices(self, work: Sequence[_Work]) -> tuple[tuple[Device, ...], tuple[Stream, ...], dict[str, Int64]]:
        """The GPUs that did anything, their streams, and the columns of all work."""
        empty = np.zeros(0, np.int64)
        joined = {
            name: np.concatenate([empty, *(getattr(part, name) for part in work)])
            for name in ("start", "duration", "process", "device", "stream")
        }
        processes, process = group(joined["process"])
        numbers, number = group(joined["device"])
        pairs, pair = group(process * max(len(numbers), 1) + number)
        owners = [(int(processes[code // len(numbers)]), int(numbers[code % len(numbers)])) for code in pairs.tolist()]
        idents = self._gpu_numbers(owners)
        described = self._described()
        ordered = sorted(set(idents))[:_MAX_DEVICES]
        place = {ident: index for index, ident in enumerate(ordered)}
        devices = tuple(
            replace(described.get(ident, Device(0, self.host, ident)), index=place[ident], id=ident)
            for ident in ordered
        )
        columns: dict[str, Int64] = {"start": joined["start"], "duration": joined["duration"]}
        of_pair = np.array([place.get(ident, 0) for ident in idents], np.int64)
        columns["device"] = of_pair[pair] if len(pairs) else empty
        lines, line = group(joined["stream"])
        queues, queue = group(pair * max(len(lines), 1) + line)
        streams = []
        for index, code in enumerate(queues.tolist()):
            owner, at = divmod(code, len(lines))
            ident = int(lines[at])
            name = "Unified memory" if ident == -2 else f"Stream #{ident}"
            if idents.count(idents[owner]) > 1:  # several processes use the GPU
                name += f" (process {owners[owner][0] >> 24 & 0xFFFFFF})"
            streams.append(Stream(index, int(of_pair[owner]), ident, name))
        columns["stream"] = queue
        given = {name for part in work for name in part.columns}
        for name in given:
            blank = 0 if name in ("klass", "copy_kind") else -1
            columns[name] = np.concatenate(
                [empty, *(part.columns.get(name, np.full(len(part.start), blank)) for part in work)]
            )
        return devices, tuple(streams), columns

    def _gpu_numbers(self, owners: Sequence[tuple[int, int]]) -> list[int]:
        """The machine's number of the GPU of each (process, CUDA's number within it).

        CUDA numbers the GPUs that a process may see. Where the file does not translate, equal numbers of several
        processes are different GPUs, unless the machine has but one.
        """
        told = {
            (pid, cuda): gpu
            for gpu, cuda, pid in self.tables.values("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"), _MAX_SMALL)
            if isinstance(gpu, int) and 0 <= gpu < _MAX_DEVICES
        }
        cuda = {
            device: ident
            for ident, device, sms in self.tables.values("TARGET_INFO_GPU", ("id", "cuDevice", "smCount"), _MAX_DEVICES)
            if isinstance(ident, int) and isinstance(device, int) and sms
        }
        found: list[int] = []
        taken: dict[int, int] = {}
        for process, number in owners:
            ident = told.get((process >> 24 & 0xFFFFFF, number))
            if ident is None:
                ident = cuda.get(number, number)
                if len(cuda) != 1 and ident in taken and taken[ident] != process:
                    ident = max(*taken, *cuda.values(), ident) + 1
            taken.setdefault(ident, process)
            found.append(ident)
        return found

    def _described(self) -> dict[int, Device]:
        wanted = (
            "id",
            "name",
            "smCount",
            "clockRate",
            "memoryBandwidth",
            "totalMemory",
            "computeMajor",
            "computeMinor",
        )
        uuids = {
            ident: uuid[:64].decode("utf-8", "replace")
            for ident, uuid in self.tables.values("TARGET_INFO_GPU", ("id", "uuid"), _MAX_DEVICES)
            if isinstance(ident, int) and isinstance(uuid, bytes) and uuid
        }
        found: dict[int, Device] = {}
        for row in self.tables.values("TARGET_INFO_GPU", wanted, _MAX_DEVICES):
            ident, name, sms, clock, bandwidth, memory, major, minor = row
            if not isinstance(ident, int):
                continue
            numbers = [
                value if isinstance(value, int) and value > 0 else None for value in (sms, clock, bandwidth, memory)
            ]
            if numbers[0] is None or numbers[0] > 100_000:
                continue
            capability = (
                (major, minor) if isinstance(major, int) and isinstance(minor, int) and 0 < major < 100 else None
            )
            found[ident] = Device(
                index=0, host=self.host, id=ident,
                name=name[:256].decode("utf-8", "replace") if isinstance(name, bytes) and name else None,
                vendor="Nvidia", sm_count=numbers[0], clock_khz=numbers[1] // 1000 if numbers[1] else None,
                memory_bandwidth_bytes_per_s=numbers[2], memory_size_bytes=numbers[3], compute_capability=capability,
                uuid=uuids.get(ident),
            )  # fmt: skip
        return found

    # The host

    def _calls(self) -> _Host | None:
        if not self.tables.has(CALL, "start", "end", "globalTid", "nameId"):
            return None
        # With back traces each call has a second row around it.
        where = "eventClass IS NOT 67" if self.tables.has(CALL, "eventClass") else "1"
        packed = self._packed(CALL, ("correlationId", 32), ("nameId", 31))
        columns = self.tables.integers(CALL, (whole("start"), whole("end"), whole("globalTid"), packed), where)
        start, duration, thread, called = self._plausible(*columns)
        correlation, named = split(called, 31)
        return _Host(start, duration, thread, self._names(named, strip=True), correlation)

    def _system_calls(self, calls: _Host | None) -> _Host | None:
        """Calls of the C library that block, but for those that the driver makes within its own."""
        if not self.tables.has(SYSTEM_CALL, "start", "end", "globalTid", "nameId"):
            return None
        where = f'"end" - start >= {_SHORTEST_SYSTEM_CALL_NS}'
        columns = self.tables.integers(SYSTEM_CALL, [whole(c) for c in ("start", "end", "globalTid", "nameId")], where)
        start, duration, thread, named = self._plausible(*columns)
        if calls is not None and len(calls.start):
            order = np.lexsort((calls.start, calls.thread))
            threads, numbers = group(np.concatenate((calls.thread, thread)))
            mine, theirs = numbers[: len(calls.start)][order], numbers[len(calls.start) :]
            span = 2 * LONGEST_NS * PS_PER_NS
            del threads
            # one rising key of thread and time: ranks of times, so that nothing overflows
            times, rank = group(np.concatenate((calls.start[order], start)))
            width = len(times) + 1
            before = (
                np.searchsorted(mine * width + rank[: len(order)], theirs * width + rank[len(order) :], "right") - 1
            )
            at = np.maximum(before, 0)
            ends = np.where((before >= 0) & (mine[at] == theirs), (calls.start + calls.duration)[order][at], -span)
            keep = start + duration > ends
            start, duration, thread, named = start[keep], duration[keep], thread[keep], named[keep]
        texts = self._names(named)
        names, index = group(texts)
        known = list(self.strings.ids)
        prefixed = np.array([self.strings.id(f"{known[i]}()") for i in names.tolist()], np.int64)
        return _Host(start, duration, thread, prefixed[index] if len(prefixed) else texts)

    def _overheads(self, table: str) -> _Host | None:
        if not self.tables.has(table, "start", "end", "globalTid", "nameId"):
            return None
        columns = self.tables.integers(table, [whole(c) for c in ("start", "end", "globalTid", "nameId")])
        start, duration, thread, named = self._plausible(*columns)
        names, index = group(named)
        known = self.tables.texts(names.tolist(), MAX_NAME)
        ids = [
            self.strings.id("overhead: " + known.get(n, b"").decode("utf-8", "replace").removeprefix("CUPTI: "))
            for n in names.tolist()
        ]
        return _Host(start, duration, thread, np.array(ids, np.int64)[index] if ids else named)

    def _ranges(self) -> _Host | None:
        if not self.tables.has(RANGE, "start", "end", "eventType", "globalTid"):
            return None
        codes: dict[int | bytes | None, int] = {}
        parts = []
        ended_by = self._or_absent(RANGE, "endGlobalTid", "0")
        where = f"eventType IN ({_PUSHED}, {_STARTED})"
        for rows in self.tables.portions(
            RANGE, (whole("start"), f"ifnull({whole('end')}, {self.end_ns})", whole("globalTid"),
                    f"ifnull({ended_by}, 0)", self._range_text()), where,
        ):  # fmt: skip
            *numbers, texts = zip(*rows, strict=True)
            part = [np.array([-1 if n is None else n for n in column], np.int64) for column in numbers]
            part.append(np.fromiter((codes.setdefault(text, len(codes)) for text in texts), np.int64, len(rows)))
            parts.append(np.array(part))
        if not parts:
            return None
        start, end, thread, ended, code = np.concatenate(parts, axis=1)
        end = np.where((end < start) & (end == self.end_ns), start, end)
        thread = np.where((ended > 0) & (ended != thread), -1, thread)  # began and ended on different threads
        start, duration, thread, code = self._plausible(start, end, thread, code)
        keep = thread >= 0
        start, duration, thread, code = start[keep], duration[keep], thread[keep], code[keep]
        registered = self.tables.texts([c for c in codes if isinstance(c, int) and c >= 0], _MAX_RANGE_TEXT)
        means = [
            read_range((registered.get(c, b"[%d]" % c) if isinstance(c, int) else c or b"").decode("utf-8", "replace"))
            for c in codes
        ]
        return self._host_of_ranges(start, duration, thread, code, means)

    def _range_text(self) -> str:
        """SQL for what a range is called, without what differs from call to call: text, or its number."""
        text = f"substr(text, 1, {_MAX_RANGE_TEXT})"
        for mark in APPENDED[:2]:  # those that number operators; what follows them goes as well
            text = f"substr({text}, 1, instr({text} || '{mark}', '{mark}') - 1)"
        has_text, has_id = self.tables.has(RANGE, "text"), self.tables.has(RANGE, "textId")
        ident = whole("textId") if has_id else "NULL"
        return f"CASE WHEN text IS NULL THEN {ident} ELSE CAST({text} AS TEXT) END" if has_text else ident

    def _host_of_ranges(
        self, start: Int64, duration: Int64, thread: Int64, code: Int64, means: Sequence[Range]
    ) -> _Host:
        table = np.array(
            [
                (
                    self.strings.id(m.name),
                    m.step,
                    m.is_operator,
                    self.strings.id(m.op or m.name) if m.is_operator else -1,
                )
                for m in means
            ],
            np.int64,
        ).reshape(-1, 4)
        name, step, is_operator, op = table[code].T if len(code) else np.zeros((4, 0), np.int64)
        step = step.copy()
        # Steps without a number of their own are counted, for each thread by itself.
        unnumbered = np.flatnonzero(step == -2)
        order = unnumbered[np.lexsort((start[unnumbered], name[unnumbered], thread[unnumbered]))]
        if len(order):
            new = np.append(True, (thread[order][1:] != thread[order][:-1]) | (name[order][1:] != name[order][:-1]))
            at = np.arange(len(order))
            step[order] = at - np.maximum.accumulate(np.where(new, at, 0))
        return _Host(start, duration, thread, name, None, step, op, is_operator)

    def _threads(self, host: Sequence[_Host]) -> tuple[tuple[HostThread, ...], Int64]:
        """The threads with events, and the number of each of them, rising."""
        numbers = distinct(np.concatenate([np.zeros(0, np.int64), *(part.thread for part in host)]))
        named = {
            thread: ident
            for thread, ident in self.tables.values("ThreadNames", ("globalTid", "nameId"), _MAX_SMALL)
            if isinstance(thread, int) and isinstance(ident, int)
        }
        known = self.tables.texts([named[t] for t in numbers.tolist() if t in named], 256)
        several = len(distinct(numbers & _PROCESS)) > 1
        threads = []
        for index, number in enumerate(numbers.tolist()):
            label = known.get(named.get(number, -1), b"").decode("utf-8", "replace")
            tid, pid = number & 0xFFFFFF, number >> 24 & 0xFFFFFF
            name = f"{label}/{tid}" if label else str(tid)
            threads.append(HostThread(index, tid, f"{name} (process {pid})" if several else name))
        return tuple(threads), numbers

    def _host_columns(self, host: Sequence[_Host], processes: Int64, threads: Int64) -> tuple[HostEvents, Int64]:
        """The columns of the host, and the rows that are operators."""
        empty = np.zeros(0, np.int64)

        def joined(name: str, absent: int = -1) -> Int64:
            parts = [getattr(part, name) for part in host]
            full = [np.full(len(h.start), absent) if p is None else p for h, p in zip(host, parts, strict=True)]
            return np.concatenate([empty, *full]).astype(np.int64)

        thread, step = joined("thread"), joined("step")
        correlation = self._joined(
            [
                (h.thread & _PROCESS, np.full(len(h.start), -1) if h.correlation is None else h.correlation)
                for h in host
            ],
            processes,
        )
        is_operator = joined("is_operator", 0)
        events, order = ordered_host_events(
            len(thread), thread=np.searchsorted(threads, thread), start=joined("start"), duration=joined("duration"),
            name=joined("name"), correlation=correlation, step_num=step, is_root=(step >= 0).astype(np.int8),
            op=joined("op"),
        )  # fmt: skip
        if order is not None:
            is_operator = is_operator[order]
        operators = np.flatnonzero(is_operator)
        calls = np.flatnonzero(events.correlation > 0)
        around = last_above(events.end[operators], np.searchsorted(operators, calls) - 1, events.start[calls])
        inside = np.flatnonzero(around >= 0)
        operator = operators[around[inside]]
        same = events.thread[operator] == events.thread[calls[inside]]
        events.op[calls[inside[same]]] = events.op[operator[same]]
        return events, operators

    def _joined(self, parts: Sequence[tuple[Int64, Int64]], processes: Int64) -> Int64:
        """Numbers of calls that differ between processes, which all count from one; -1 for none."""
        found = [np.zeros(0, np.int64)]
        for process, correlation in parts:
            owner = np.searchsorted(processes, process)
            found.append(np.where(correlation > 0, owner << 33 | correlation, -1))
        return np.concatenate(found)

    def _asynchronous(self, columns: dict[str, Int64], host: HostEvents) -> Int64:
        """Whether the call of a copy returns before the copy is done, by its name; -1 where that is not known."""
        count = len(columns["start"])
        found = np.full(count, -1, np.int64)
        copies = np.flatnonzero(columns.get("copy_kind", np.zeros(count, np.int64)) > 0)
        call = _calls_of(columns["correlation"][copies], host)
        named = np.flatnonzero(call >= 0)
        names, index = group(host.name[call[named]])
        texts = list(self.strings.ids)
        is_copy = [("emcpy" in texts[i]) * (2 if "Async" in texts[i] else 1) - 1 for i in names.tolist()]
        if is_copy:
            found[copies[named]] = np.array(is_copy, np.int64)[index]
        return found

    def _ops(self, correlation: Int64, host: HostEvents, op: np.ndarray) -> None:
        """Give device events the op that their call worked for."""
        call = _calls_of(correlation, host)
        known = np.flatnonzero(call >= 0)
        op[known] = host.op[call[known]]


def _extent(work: DeviceEvents, host: HostEvents) -> tuple[int, int] | None:
    """From the first to the last event: capture ranges and trimmed files record much less than the session lasted."""
    starts = [int(part.start.min()) for part in (work, host) if len(part)]
    ends = [int(part.end.max()) for part in (work, host) if len(part)]
    return (min(starts), max(ends)) if starts and max(ends) > min(starts) else None


def _calls_of(correlation: Int64, host: HostEvents) -> Int64:
    """The row of the call of each device event, -1 for none."""
    calls = np.flatnonzero(host.correlation > 0)
    calls = calls[np.argsort(host.correlation[calls], kind="stable")]
    if not len(calls):
        return np.full(len(correlation), -1, np.int64)
    keys = host.correlation[calls]
    at = np.minimum(np.searchsorted(keys, correlation), len(keys) - 1)
    return np.where(keys[at] == correlation, calls[at], -1)
