"""From PyTorch's (Kineto's) trace events to a `Trace`: one process, hence one clock.

Launches are joined by ``correlation`` alone. The arrows between a call and its kernel (``ac2g``; earlier
``async_cpu_to_gpu`` and ``async``) carry the same number as their id, in recordings since 2021 without exception,
and a device event whose call was not recorded has no arrow that begins at one: they would add nothing. ``fwdbwd``
joins operators of the forward and the backward pass; what launched a kernel is on the backward's own thread.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from tb_gpu_doctor.traces import kineto_events as table
from tb_gpu_doctor.traces.columns import (
    Device,
    DeviceEvents,
    HostEvents,
    Int64,
    SparseStat,
    Stream,
    StringTable,
    Trace,
    ordered_device_events,
    ordered_host_events,
)
from tb_gpu_doctor.traces.errors import Note
from tb_gpu_doctor.traces.json_columns import (
    Lines,
    Strings,
    sorted_rows,
    sparse,
    stream_name,
    times_of,
    wall_start,
)
from tb_gpu_doctor.traces.json_document import Document, Event, name_of, whole

# Kineto counts nanoseconds; its microseconds have three digits behind the point.
_UNIT_PS = 1000
_MAX_RANK = 1 << 24


def kineto_trace(document: Document, path: str, host: str) -> Trace:
    """The trace of one process.

    Args:
        document: the decoded file.
        path: the file.
        host: label of the process.
    """
    builder = _Builder(host)
    builder.sort(document.events)
    return builder.trace(document, path)


class _Builder:
    """Sorts events by what they are, then makes columns of them."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.strings = Strings()
        self.lines = Lines(host)
        self.device_events: list[Event] = []
        self.device_roles: list[str] = []
        self.host_events: list[Event] = []
        self.host_roles: list[str] = []
        self.recordings: list[Event] = []
        self.line_names: dict[tuple[object, str], str] = {}
        self.calls: dict[int, _Call] = {}
        self.operators = np.zeros(0, np.int64)
        self.broken = 0

    def sort(self, events: Iterable[Event]) -> None:
        """Puts each event where it belongs, by its category."""
        kinds: dict[str | None, tuple[list[Event], list[str], str] | None] = {}
        for event in events:
            if event.ph == "X":
                category = event.cat
                if category not in kinds:
                    kinds[category] = self._kind((category or "").lower())
                if kind := kinds[category]:
                    kind[0].append(event)
                    kind[1].append(kind[2])
            elif event.ph == "M" and event.name == "thread_name" and (name := name_of(event)):
                self.line_names[event.pid, str(event.tid)] = name

    def _kind(self, category: str) -> tuple[list[Event], list[str], str] | None:
        """Where the events of a category go, with their role; None for those that nothing is read from."""
        if host_role := table.HOST_CATEGORIES.get(category):
            return self.host_events, self.host_roles, host_role
        if device_role := table.DEVICE_CATEGORIES.get(category):
            return self.device_events, self.device_roles, device_role
        return (self.recordings, [], "") if category == table.RECORDING_CATEGORY else None

    def trace(self, document: Document, path: str) -> Trace:
        events = [*self.device_events, *self.host_events, *self.recordings]
        times = times_of(events, _UNIT_PS, keep_zero=False)
        host_from, host_to = len(self.device_events), len(events) - len(self.recordings)
        split, last = np.searchsorted(times.rows, [host_from, host_to]).tolist()
        host = self._host_columns(
            times.rows[split:last] - host_from, times.start[split:last], times.duration[split:last]
        )
        start, end = times.start[last:], times.start[last:] + times.duration[last:]
        host_stats = {}
        if len(self.operators):
            host_stats["operator"] = SparseStat(self.operators, np.ones(len(self.operators), np.int64))
        described = self._described(document.device_properties)
        device, stats, devices, streams = self._device_columns(
            times.rows[:split], times.start[:split], times.duration[:split], described
        )
        notes = times.notes
        if broken := document.broken + self.broken:
            notes += (Note("broken_events", {"count": broken}),)
        info = document.distributed if isinstance(document.distributed, dict) else {}
        rank, world = whole(info.get("rank")), whole(info.get("world_size"))
        return Trace(
            path=path,
            host=self.host,
            format="kineto",
            strings=StringTable.of(self.strings.ids),
            devices=devices,
            streams=streams,
            device_events=device,
            threads=tuple(self.lines.threads.values()),
            host_events=host,
            wall_start_unix_ns=wall_start(times.base_us, document.base_ns) if len(times.rows) else None,
            recorded=(int(start.min()), int(end.max())) if len(start) else None,
            notes=notes,
            host_stats=host_stats,
            device_stats=stats,
            rank=rank if 0 <= rank < _MAX_RANK else None,
            world_size=world if 0 < world < _MAX_RANK else None,
        )

    # -- host ------------------------------------------------------------------------------

    def _host_columns(self, rows: Int64, start: Int64, duration: Int64) -> HostEvents:
        """Host columns; what calls of the driver say is kept in ``calls`` by their correlation."""
        count = len(rows)
        correlation = np.full(count, -1, np.int64)
        thread: list[int] = []
        known: list[tuple[int, int, str]] = []  # what the names say
        facts: dict[int, table.CallFacts] = {}
        threads: dict[tuple[object, object], int] = {}
        seen: dict[tuple[str | None, str], tuple[int, int, str]] = {}
        events, roles_of = self.host_events, self.host_roles
        for at, row in enumerate(rows.tolist()):
            event, what = events[row], roles_of[row]
            if what == table.CALL:
                facts[at] = call_facts = table.call_facts(event)
                correlation[at] = call_facts.correlation
            line, named = (event.pid, event.tid), (event.name, what)
            if (index := threads.get(line)) is None:
                index = threads[line] = self._thread(event)
            if (means := seen.get(named)) is None:
                means = seen[named] = self._named(event.name or "", what)
            thread.append(index)
            known.append(means)
        name, step, role = ([m[0] for m in known], [m[1] for m in known], [m[2] for m in known])
        numbers = np.array(step, np.int64)
        host, order = ordered_host_events(
            count, thread=thread, start=start, duration=duration, name=name, correlation=correlation,
            step_num=numbers, is_root=(numbers >= 0).astype(np.int8),
        )  # fmt: skip
        given = list(range(count)) if order is None else order.tolist()
        roles = [role[at] for at in given]
        self._find_operators(host, roles)
        self.operators = np.flatnonzero(np.array([what == table.OPERATOR for what in roles], np.bool_))
        for sorted_row, at in enumerate(given):
            if at in facts and facts[at].correlation > 0:
                call = _Call(self.host_events[int(rows[at])].name or "", int(host.op[sorted_row]), facts[at])
                self.calls.setdefault(facts[at].correlation, call)
        return host

    def _named(self, text: str, role: str) -> tuple[int, int, str]:
        """(string id, number of a step, role) of events by their name."""
        marked = table.STEP.match(text)
        if marked and role != table.CALL:
            # one name for all, so that they are seen to be the same kind of marker
            return self.strings.id(table.STEP_NAME), int(marked.group(1)), table.MARK
        if role == table.OPERATOR and text.startswith(table.NO_OPERATOR):
            role = table.MARK
        return self.strings.id(text), -1, role

    def _thread(self, event: Event) -> int:
        key = str(event.tid)
        name = self.line_names.get((event.pid, key), key).removeprefix("thread ")
        return self.lines.thread(event.pid, key, whole(event.tid), name)

    @staticmethod
    def _find_operators(host: HostEvents, roles: list[str]) -> None:
        """Set the operator that each call of the driver works for: the innermost around it."""
        op = host.op
        columns = zip(host.thread.tolist(), host.start.tolist(), host.end.tolist(), host.name.tolist(), strict=True)
        around: list[tuple[int, int]] = []
        current = -1
        for row, (thread, start, end, name) in enumerate(columns):
            role = roles[row]
            if role not in (table.OPERATOR, table.CALL):
                continue
            if thread != current:
                around.clear()
                current = thread
            while around and around[-1][0] <= start:
                around.pop()
            if role == table.OPERATOR:
                around.append((end, name))
            elif around:
                op[row] = around[-1][1]

    # -- devices ---------------------------------------------------------------------------

    def _device_columns(
        self, rows: Int64, start: Int64, duration: Int64, described: dict[int, Device]
    ) -> tuple[DeviceEvents, dict[str, SparseStat], tuple[Device, ...], tuple[Stream, ...]]:
        """Device columns, their sparse stats, the devices and their streams."""
        values: dict[str, list[tuple[int, int]]] = {}
        sm_counts: dict[int, Counter[int]] = {}
        usable = np.ones(len(rows), np.bool_)
        seen: dict[tuple[str | None, str], tuple[int, int, int, bool, int]] = {}
        places: dict[tuple[int, Any], tuple[int, int]] = {}
        ids: dict[str | None, int] = {None: -1}
        table_rows: list[tuple[int, ...]] = []
        for at, row in enumerate(rows.tolist()):
            event, role = self.device_events[row], self.device_roles[row]
            facts = table.device_facts(event)
            if facts.device < 0:
                usable[at] = False
                self.broken += 1
                continue
            call = self.calls.get(facts.correlation, _NO_CALL)
            named = (event.name, role)
            if (means := seen.get(named)) is None:
                means = seen[named] = self._work_named(event.name or "", role)
            name, klass, kind, is_copy, memory = means
            place = (facts.device, facts.stream)
            if (where := places.get(place)) is None:
                where = places[place] = self._place(*place)
            details = None if is_copy else facts.details or call.facts.details
            if (details_id := ids.get(details)) is None:
                details_id = ids[details] = self.strings.id(details)
            table_rows.append((
                *where, name, klass, facts.correlation, details_id, call.op, kind,
                facts.size if facts.size >= 0 else call.facts.size if is_copy else -1,
                table.is_async_copy(call.name) if is_copy else -1, memory, facts.graph,
            ))  # fmt: skip
            if facts.sm_count > 0:
                sm_counts.setdefault(facts.device, Counter())[facts.sm_count] += 1
            for stat, number in facts.numbers.items():
                values.setdefault(stat, []).append((at, number))
            for stat, text in facts.texts.items():
                values.setdefault(stat, []).append((at, self.strings.id(text)))
        devices, streams, renumbered = self.lines.ordered(described)
        devices = tuple(_with_sm_count(device, sm_counts.get(device.id)) for device in devices)
        kept = np.flatnonzero(usable)
        columns = np.array(table_rows, np.int64).reshape(-1, len(_DEVICE_COLUMNS)).T
        parts = dict(zip(_DEVICE_COLUMNS, columns, strict=True))
        device_column = renumbered[parts.pop("device")]
        events, order = ordered_device_events(
            len(kept), device=device_column, start=start[kept], duration=duration[kept], **parts
        )
        return events, sparse(values, sorted_rows(len(rows), kept, order)), devices, streams

    def _work_named(self, name: str, role: str) -> tuple[int, int, int, bool, int]:
        """(string id, class, copy kind, whether a copy, host memory) of device events by their name."""
        klass, kind = table.device_class(role, name)
        is_copy = role == table.COPY
        return self.strings.id(name), int(klass), int(kind), is_copy, table.host_memory(name) if is_copy else -1

    def _place(self, ident: int, stream: Any) -> tuple[int, int]:
        """Index of a device and of its stream, which PyTorch numbers or calls ``stream 7``."""
        device = self.lines.device(ident)
        number = whole(stream)
        if number < 0 and isinstance(stream, str):
            number = whole(stream.rpartition(" ")[2])
        return device, self.lines.stream(device, str(stream), number, stream_name(None, number))

    def _described(self, properties: Any) -> dict[int, Device]:
        """Devices by id as ``deviceProperties`` says; those without a word are left to their defaults."""
        amd_calls = any(call.name.startswith("hip") for call in self.calls.values())
        found: dict[int, Device] = {}
        for entry in properties if isinstance(properties, list) else []:
            if isinstance(entry, dict) and 0 <= (ident := whole(entry.get("id"))) < table.MAX_DEVICES:
                found[ident] = _device(ident, self.host, entry, amd_calls)
        return found


class _Call(NamedTuple):
    """A driver's call as the device event looks for it."""

    name: str
    op: int
    facts: table.CallFacts


_NO_CALL = _Call("", -1, table.CallFacts(-1, -1, None))
_DEVICE_COLUMNS = (
    "device", "stream", "name", "klass", "correlation", "details", "op", "copy_kind", "copy_bytes", "copy_async",
    "copy_memory", "graph",
)  # fmt: skip
_AMD_NAME = re.compile(r"\bAMD\b|Radeon|Instinct|\bgfx\d|\bMI\d{2,3}", re.IGNORECASE)


def _device(ident: int, host: str, entry: dict[str, Any], amd_calls: bool) -> Device:
    name = entry.get("name")
    name = name[:256] if isinstance(name, str) and name else None
    amd = amd_calls or whole(entry.get("warpSize")) == 64 or bool(name and _AMD_NAME.search(name))
    major, minor = whole(entry.get("computeMajor")), whole(entry.get("computeMinor"))
    return Device(
        index=0,
        host=host,
        id=ident,
        name=name,
        vendor="AMD" if amd else "Nvidia",
        sm_count=_positive(entry.get("numSms"), 100_000),
        memory_size_bytes=_positive(entry.get("totalGlobalMem"), 1 << 50),
        compute_capability=(major, minor) if 1 <= major < 100 and 0 <= minor < 100 else None,
    )


def _with_sm_count(device: Device, counted: Counter[int] | None) -> Device:
    """The device with its multiprocessors as (nearly) all kernels count them, where its description lacks them."""
    if device.sm_count is not None or not counted:
        return device
    (count, votes), *_ = counted.most_common(1)
    return dataclasses.replace(device, sm_count=count) if votes >= 0.9 * counted.total() else device


def _positive(value: Any, most: int) -> int | None:
    number = whole(value)
    return number if 1 <= number <= most else None
