"""One process of a finished simulation as Kineto JSON, as ``torch.profiler`` exports it.

Microseconds with three digits count from ``baseTimeNanoseconds``; launches and what they launched share
a ``correlation``, and arrows (``ac2g``) join them once more for viewers.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.device import Device, Kernel, Work
from simulator.engine import PS_PER_NS, PS_PER_US
from simulator.export import occupancy_pct
from simulator.hardware import REGISTERS_PER_SM, RESERVED_SHARED_BYTES, Gpu
from simulator.host import HostEvent, HostThread

Json = dict[str, Any]
# Kineto counts from the last such border before the process began.
BASE_PERIOD_NS = 7_884_000 * 10**9
_COPY_NAMES = {"H2D": "Memcpy HtoD ({host} -> Device)", "D2H": "Memcpy DtoH (Device -> {host})"}
_ANNOTATIONS = ("ProfilerStep", "Optimizer.", "DistributedDataParallel", "enumerate(", "nccl:")
_FRAME = re.compile(r"\.py\(\d+\): |^<built-in ")
_CALL_IDS = {
    "cudaLaunchKernel": 211, "cudaLaunchKernelExC": 430, "cudaMemcpyAsync": 41, "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165,
}  # fmt: skip
BYTES_PER_ELEMENT = 2
_GZIP_HEADER = b"\x1f\x8b\x08\x00" + bytes(4) + b"\x02\xff"


@dataclass(frozen=True)
class Process:
    """What surrounds the events of one file.

    Attributes:
        number: its process id.
        rank, world_size: its place in the job; a world of one writes no ``distributedInfo``.
        start_unix_ns: its wall clock at the simulation's time 0.
        gpus: all that are in the machine.
    """

    number: int
    rank: int
    world_size: int
    start_unix_ns: int
    gpus: Sequence[Gpu]


def kineto_json(devices: Sequence[Device], threads: Sequence[HostThread], process: Process) -> bytes:
    """The file of one process, unpacked."""
    writer = _Writer(process)
    events = [*writer.names(devices, threads)]
    for thread in threads:
        events += writer.host(thread)
    for device in devices:
        events += writer.device(device)
    events += writer.surroundings(devices, threads)
    head: Json = {"schemaVersion": 1, "deviceProperties": [_properties(i, gpu) for i, gpu in enumerate(process.gpus)]}
    if process.world_size > 1:
        group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": process.world_size,
                 "ranks": list(range(process.world_size))}  # fmt: skip
        head["distributedInfo"] = {
            "backend": "nccl", "rank": process.rank, "world_size": process.world_size, "pg_count": 1,
            "pg_config": [group], "nccl_version": "2.21.5",
        }  # fmt: skip
    head |= {"displayTimeUnit": "ms", "baseTimeNanoseconds": writer.base_ns}
    lines = ",\n".join(_line(event) for event in events)
    return f'{json.dumps(head)[:-1]},\n"traceEvents": [\n{lines}\n],\n"traceName": "trace.json"\n}}\n'.encode()


def packed(content: bytes, level: int = 9) -> bytes:
    """Gzip without name and time; the header is our own, since Python's differs from version to version."""
    packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = packer.compress(content) + packer.flush()
    return _GZIP_HEADER + body + struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFFFFFF)


def zero_ps(devices: Iterable[Device], threads: Iterable[HostThread], process: Process) -> int:
    """When a reader's clock starts, on the simulation's: at the whole microsecond before the first event."""
    base = _base_ns(process)
    first = min(event.start for thread in threads for event in thread.events)
    begun = min([first, *(work.start for device in devices for work in device.work)])
    return (process.start_unix_ns + begun // PS_PER_NS - base) // 1000 * PS_PER_US - _shift_ps(process)


def _base_ns(process: Process) -> int:
    return process.start_unix_ns // BASE_PERIOD_NS * BASE_PERIOD_NS


def _shift_ps(process: Process) -> int:
    return (process.start_unix_ns - _base_ns(process)) * PS_PER_NS


def _line(event: Json) -> str:
    return json.dumps(event, separators=(",", ":"))


def _properties(ident: int, gpu: Gpu) -> Json:
    return {
        "id": ident, "name": gpu.name, "totalGlobalMem": gpu.memory_size_bytes,
        "computeMajor": gpu.compute_capability[0], "computeMinor": gpu.compute_capability[1],
        "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": gpu.warps_per_sm * 32,
        "regsPerBlock": REGISTERS_PER_SM, "warpSize": 32, "sharedMemPerBlock": 48 * 1024, "numSms": gpu.sm_count,
        "regsPerMultiprocessor": REGISTERS_PER_SM,
        "sharedMemPerBlockOptin": gpu.shared_bytes_per_sm - RESERVED_SHARED_BYTES,
        "sharedMemPerMultiprocessor": gpu.shared_bytes_per_sm,
    }  # fmt: skip


class _Writer:
    """Numbers the host's events and remembers which of them launched what."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.base_ns = _base_ns(process)
        self._number = 0
        self._operator_of: dict[int, int] = {}
        self._launched_by: dict[int, tuple[HostThread, HostEvent]] = {}

    def _us(self, time_ps: int) -> float:
        """A simulated time in the file's microseconds; a double holds their three digits."""
        return (self._process.start_unix_ns - self.base_ns + time_ps // PS_PER_NS) / 1000

    def _complete(self, category: str, name: str, line: tuple[Any, Any], start: int, end: int, args: Json) -> Json:
        return {
            "ph": "X", "cat": category, "name": name, "pid": line[0], "tid": line[1], "ts": self._us(start),
            "dur": (end - start) // PS_PER_NS / 1000, "args": args,
        }  # fmt: skip

    # -- host ------------------------------------------------------------------------------

    def host(self, thread: HostThread) -> Iterator[Json]:
        """The events of one thread, by start."""
        line = (self._process.number, thread.line_id)
        open_until: list[tuple[int, int]] = []
        for event in sorted(thread.events, key=lambda event: (event.start, -event.end)):
            while open_until and open_until[-1][0] <= event.start:
                open_until.pop()
            around = open_until[-1][1] if open_until else 0
            if "correlation_id" in event.stats:
                yield self._call(thread, event, around)
                continue
            self._number += 1
            open_until.append((event.end, self._number))
            name = _host_name(event)
            category = "user_annotation" if name.startswith(_ANNOTATIONS) else "cpu_op"
            if _FRAME.search(name):
                category = "python_function"
            args = {"External id": self._number, "Record function id": 0, "Ev Idx": self._number - 1}
            yield self._complete(category, name, line, event.start, event.end, args)

    def _call(self, thread: HostThread, event: HostEvent, operator: int) -> Json:
        correlation = event.stats["correlation_id"]
        assert isinstance(correlation, int)
        self._operator_of[correlation] = operator
        self._launched_by[correlation] = (thread, event)
        category = "cuda_runtime" if event.name.startswith("cuda") else "cuda_driver"
        args: Json = {"External id": operator} if operator else {}
        args |= {"cbid": _CALL_IDS.get(event.name, 307), "correlation": int(correlation)}
        return self._complete(
            category, event.name, (self._process.number, thread.line_id), event.start, event.end, args
        )

    # -- devices ---------------------------------------------------------------------------

    def device(self, device: Device) -> Iterator[Json]:
        """What one GPU ran, with the arrows from the launches."""
        for work in device.work:
            stream = work.stream.line_id
            args: Json = {"External id": external} if (external := self._operator_of.get(work.correlation)) else {}
            args |= self._copy_args(work, device) if work.kernel.copy else self._kernel_args(work, device)
            category = "gpu_memcpy" if work.kernel.copy else "kernel"
            name = _copy_name(work.kernel) if work.kernel.copy else work.kernel.name
            yield self._complete(category, name, (device.index, stream), work.start, work.end, args)
            if work.correlation in self._launched_by:
                yield from self._arrow(work, device)

    def _arrow(self, work: Work, device: Device) -> Iterator[Json]:
        thread, event = self._launched_by[work.correlation]
        common: Json = {"id": work.correlation, "cat": "ac2g", "name": "ac2g"}
        yield {"ph": "s", "pid": self._process.number, "tid": thread.line_id, "ts": self._us(event.start), **common}
        yield {
            "ph": "f", "pid": device.index, "tid": work.stream.line_id, "ts": self._us(work.start), **common, "bp": "e",
        }  # fmt: skip

    def _place(self, work: Work, device: Device) -> Json:
        graph = {} if work.graph is None else {"graph id": work.graph[0], "graph node id": work.graph[1]}
        return {
            "device": device.index, "context": 1, "stream": work.stream.line_id, "correlation": work.correlation,
            **graph,
        }  # fmt: skip

    def _copy_args(self, work: Work, device: Device) -> Json:
        size = work.kernel.copy_bytes
        rate = round(size * 1000 / max(1, work.end - work.start), 6)
        return {**self._place(work, device), "bytes": size, "memory bandwidth (GB/s)": rate}

    def _kernel_args(self, work: Work, device: Device) -> Json:
        kernel, sms = work.kernel, device.gpu.sm_count
        blocks = kernel.grid[0] * kernel.grid[1] * kernel.grid[2]
        warps = -(-kernel.block[0] * kernel.block[1] * kernel.block[2] // 32)
        args: Json = {
            "queued": 0, **self._place(work, device), "registers per thread": kernel.registers,
            "shared memory": kernel.static_shared_bytes + kernel.dynamic_shared_bytes,
            "blocks per SM": round(blocks / sms, 6), "warps per SM": round(blocks * warps / sms, 6),
            "grid": list(kernel.grid), "block": list(kernel.block),
            "est. achieved occupancy %": round(occupancy_pct(kernel, device.gpu) * min(1.0, blocks / sms)),
        }  # fmt: skip
        if kernel.communication and kernel.copy_bytes:
            elements, world = kernel.copy_bytes // BYTES_PER_ELEMENT, self._process.world_size
            args |= {
                "Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements,
                "Group size": world, "dtype": "BFloat16", "In split size": "[]", "Out split size": "[]",
                "Process Group Name": "0", "Process Group Description": "default_pg",
                "Process Group Ranks": json.dumps(list(range(world))),
            }  # fmt: skip
        return args

    # -- the rest ----------------------------------------------------------------------------

    def names(self, devices: Sequence[Device], threads: Sequence[HostThread]) -> Iterator[Json]:
        """What the lines are called."""
        process = self._process

        def named(what: str, pid: Any, tid: Any, **args: Any) -> Json:
            return {"name": what, "ph": "M", "ts": self._us(0), "pid": pid, "tid": tid, "args": args}

        yield named("process_name", process.number, 0, name="python")
        yield named("process_labels", process.number, 0, labels="CPU")
        for device in devices:
            yield named("process_name", device.index, 0, name="python")
            yield named("process_labels", device.index, 0, labels=f"GPU {device.index}")
            for stream in device.streams:
                yield named("thread_name", device.index, stream.line_id, name=f"stream {stream.line_id}")
        for thread in threads:
            name = f"thread {thread.line_id} ({thread.name.partition('/')[0]})"
            yield named("thread_name", process.number, thread.line_id, name=name)

    def surroundings(self, devices: Sequence[Device], threads: Sequence[HostThread]) -> Iterator[Json]:
        """Steps as the GPU saw them, and the recording as a whole."""
        markers = [event for thread in threads for event in thread.events if "step_num" in event.stats]
        ends = [0]
        for device in devices:
            for event in markers:
                launched = [
                    work
                    for work in device.work
                    if event.start <= self._started(work) < event.end and not work.kernel.communication
                ]
                if launched:
                    name = _host_name(event)
                    line = (device.index, launched[0].stream.line_id)
                    end = max(work.end for work in launched)
                    yield self._complete("gpu_user_annotation", name, line, launched[0].start, end, {})
            ends += [work.end for work in device.work]
        events = [event for thread in threads for event in thread.events]
        start, end = min(event.start for event in events), max([*ends, *(event.end for event in events)])
        profiler = ("Spans", "PyTorch Profiler")
        yield self._complete("Trace", "PyTorch Profiler (0)", profiler, start, end, {"Op count": 0})
        yield {
            "name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g", "pid": "Traces",
            "tid": "Trace PyTorch Profiler", "ts": self._us(start),
        }  # fmt: skip
        yield {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": self._us(end)}

    def _started(self, work: Work) -> int:
        return self._launched_by[work.correlation][1].start if work.correlation in self._launched_by else -1


def _copy_name(kernel: Kernel) -> str:
    return _COPY_NAMES[kernel.copy].format(host="Pinned" if kernel.pinned else "Pageable")


def _host_name(event: HostEvent) -> str:
    step = event.stats.get("step_num")
    return f"ProfilerStep#{step}" if isinstance(step, int) else event.name
