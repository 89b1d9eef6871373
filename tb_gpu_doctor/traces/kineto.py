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
from typing import Any

import numpy as np

from tb_gpu_doctor.traces import kineto_events as table
from tb_gpu_doctor.traces.columns import (
    Device,
    SparseStat,
    StringTable,
    Trace,
    ordered_device_events,
)
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
from tb_gpu_doctor.traces.kineto_devices import device_columns
from tb_gpu_doctor.traces.kineto_host import Calls, host_columns

# Kineto counts nanoseconds; its microseconds have three digits behind the point.
_UNIT_PS = 1000
_MAX_RANK = 1 << 24
# Where the events of a kind go.
_DEVICE, _HOST, _RECORDING = range(1, 4)
_IS = np.array(
    [
        _HOST if kind in table.HOST_CATEGORIES.values()
        else _DEVICE if kind in table.DEVICE_CATEGORIES.values()
        else _RECORDING if kind == table.RECORDING_CATEGORY
        else 0
        for kind in table.KINDS
    ]
)  # fmt: skip


def kineto_trace(document: Document, path: str, host: str) -> Trace:
    """The trace of one process.

    Args:
        document: the decoded file.
        path: the file.
        host: label of the process.
    """
    return _Builder(host).trace(document, path)


class _Builder:
    """Sorts events by what they are, then makes columns of them."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.strings = Strings()
        self.lines = Lines(host)
        self.line_names: dict[tuple[object, str], str] = {}

    def trace(self, document: Document, path: str) -> Trace:
        complete = document.complete
        for event in document.metadata:
            if event.name == "thread_name" and (name := name_of(event)):
                self.line_names[event.pid, str(event.tid)] = name
        kinds = table.kinds_of(complete)
        groups = [np.flatnonzero(_IS[kinds] == group) for group in (_DEVICE, _HOST, _RECORDING)]
        order = np.concatenate(groups)
        events = [complete[at] for at in order.tolist()]
        kinds = kinds[order]
        times = times_of(events, _UNIT_PS, keep_zero=False)
        if len(times.rows) < len(events):
            events, kinds = [events[at] for at in times.rows.tolist()], kinds[times.rows]
        to_host, to_recording = np.searchsorted(times.rows, np.cumsum([len(group) for group in groups])[:2]).tolist()
        host_part, device_part = slice(to_host, to_recording), slice(to_host)
        host, operators, calls = host_columns(
            events[host_part], kinds[host_part], times.start[host_part], times.duration[host_part], self.strings,
            self._thread,
        )  # fmt: skip
        found = device_columns(events[device_part], kinds[device_part], calls, self.strings, self._place)
        devices, streams, renumbered = self.lines.ordered(self._described(document.device_properties, calls))
        devices = tuple(_with_sm_count(device, found.sm_counts.get(device.id)) for device in devices)
        found.columns["device"] = renumbered[found.columns["device"]]
        device, sorting = ordered_device_events(
            len(found.kept), start=times.start[found.kept], duration=times.duration[found.kept], **found.columns
        )
        start, end = times.start[to_recording:], times.start[to_recording:] + times.duration[to_recording:]
        notes = times.notes + document.notes(self.host, broken=to_host - len(found.kept))
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
            host_stats={"operator": SparseStat(operators, np.ones_like(operators))} if len(operators) else {},
            device_stats=sparse(found.stats, sorted_rows(to_host, found.kept, sorting)),
            rank=rank if 0 <= rank < _MAX_RANK else None,
            world_size=world if 0 < world < _MAX_RANK else None,
        )

    def _thread(self, event: Event) -> int:
        key = str(event.tid)
        name = self.line_names.get((event.pid, key), key).removeprefix("thread ")
        return self.lines.thread(event.pid, key, whole(event.tid), name)

    def _place(self, ident: int, stream: Any) -> tuple[int, int]:
        """Index of a device and of its stream, which PyTorch numbers or calls ``stream 7``."""
        device = self.lines.device(ident)
        number = whole(stream)
        if number < 0 and isinstance(stream, str):
            number = whole(stream.rpartition(" ")[2])
        return device, self.lines.stream(device, str(stream), number, stream_name(None, number))

    def _described(self, properties: Any, calls: Calls) -> dict[int, Device]:
        """Devices by id as ``deviceProperties`` says; those without a word are left to their defaults."""
        texts = list(self.strings.ids)
        amd_calls = any(texts[name].startswith("hip") for name in np.unique(calls.name).tolist())
        found: dict[int, Device] = {}
        for entry in properties if isinstance(properties, list) else []:
            if isinstance(entry, dict) and 0 <= (ident := whole(entry.get("id"))) < table.MAX_DEVICES:
                found[ident] = _device(ident, self.host, entry, amd_calls)
        if len(found) == len(self.lines.devices) == 1 and found.keys() != self.lines.devices.keys():
            # ROCm counts the devices that a process sees, and names others by their place in the machine.
            (only,), (ident,) = found.values(), self.lines.devices
            return {ident: dataclasses.replace(only, id=ident)}
        return found


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


def _positive(value: Any, maximum: int) -> int | None:
    number = whole(value)
    return number if 1 <= number <= maximum else None
