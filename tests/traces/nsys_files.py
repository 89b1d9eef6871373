"""Writes databases as ``nsys export --type sqlite`` does, as far as the reader looks at them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "demangledName", "shortName",
        "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory",
        "dynamicSharedMemory", "graphNodeId", "graphId",
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "copyKind", "srcKind", "dstKind",
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes"),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
        "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId", "graphExecId",
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue",
    ),
    "NVTX_EVENTS": ("start", "end", "eventType", "text", "globalTid", "endGlobalTid", "textId", "domainId"),
    "OSRT_API": ("start", "end", "globalTid", "nameId"),
    "CUPTI_ACTIVITY_KIND_OVERHEAD": ("start", "end", "globalTid", "nameId", "overheadType"),
    "ThreadNames": ("globalTid", "nameId"),
    "DIAGNOSTIC_EVENT": ("timestamp", "source", "severity", "text", "globalPid"),
    "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs",),
    "ANALYSIS_DETAILS": ("duration", "startTime", "stopTime"),
    "TARGET_INFO_GPU": (
        "id", "name", "smCount", "clockRate", "memoryBandwidth", "totalMemory", "computeMajor", "computeMinor",
        "cuDevice", "uuid",
    ),
    "TARGET_INFO_CUDA_DEVICE": ("gpuId", "cudaId", "pid"),
    "TARGET_INFO_SYSTEM_ENV": ("name", "value"),
    "META_DATA_EXPORT": ("name", "value"),
}  # fmt: skip
TEXT = {"text", "name", "value", "uuid"}
START_UNIX_NS = 1_790_000_000_000_000_000


def process(pid: int) -> int:
    """``globalPid`` of a process."""
    return 1 << 48 | pid << 24


class Export:
    """A recording that is put together event by event; times are nanoseconds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._strings: dict[str, int] = {}
        self._rows: dict[str, list[dict[str, object]]] = {}
        self.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2025.5.1")
        self.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=START_UNIX_NS)

    def string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def add(self, table: str, **values: object) -> None:
        assert values.keys() <= set(TABLES[table]), values.keys() - set(TABLES[table])
        self._rows.setdefault(table, []).append(values)

    def kernel(self, name: str, start: int, length: int, correlation: int = 0, pid: int = 100, device: int = 0,
               stream: int = 7, **more: object) -> None:  # fmt: skip
        shape = {
            "registersPerThread": 32, "gridX": 1024, "gridY": 2, "gridZ": 1, "blockX": 256, "blockY": 1, "blockZ": 1,
            "staticSharedMemory": 4096, "dynamicSharedMemory": 1024,
        }  # fmt: skip
        text = self.string(name)
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=start + length, deviceId=device, contextId=1,
                 streamId=stream, correlationId=correlation, globalPid=process(pid), demangledName=text, shortName=text,
                 **(shape | more))  # fmt: skip

    def call(self, name: str, start: int, length: int, correlation: int = 0, pid: int = 100, tid: int = 100,
             kind: int = 0) -> None:  # fmt: skip
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=start + length, eventClass=kind,
                 globalTid=process(pid) | tid, correlationId=correlation, nameId=self.string(name),
                 returnValue=0)  # fmt: skip

    def copy(self, start: int, length: int, kind: int, source: int, target: int, size: int = 1 << 20,
             correlation: int = 0, pid: int = 100, device: int = 0, stream: int = 7) -> None:  # fmt: skip
        self.add("CUPTI_ACTIVITY_KIND_MEMCPY", start=start, end=start + length, deviceId=device, streamId=stream,
                 correlationId=correlation, globalPid=process(pid), bytes=size, copyKind=kind, srcKind=source,
                 dstKind=target)  # fmt: skip

    def range(self, text: str | None, start: int, length: int | None, pid: int = 100, tid: int = 100, kind: int = 59,
              **more: object) -> None:  # fmt: skip
        end = None if length is None else start + length
        self.add("NVTX_EVENTS", start=start, end=end, eventType=kind, text=text, globalTid=process(pid) | tid,
                 **more)  # fmt: skip

    def gpu(self, ident: int = 0, cuda: int = 0, name: str = "NVIDIA H100 80GB HBM3", sms: int = 132,
            uuid: str = "00000000-0000-0000-0000-000000000000") -> None:  # fmt: skip
        self.add("TARGET_INFO_GPU", id=ident, name=name, smCount=sms, clockRate=1_980_000_000,
                 memoryBandwidth=3_352_320_000_000, totalMemory=80 << 30, computeMajor=9, computeMinor=0, cuDevice=cuda,
                 uuid=uuid)  # fmt: skip

    def write(self, before: Iterable[str] = ()) -> Path:
        """Write the file, after some SQL of one's own."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path)
        for sql in before:
            connection.execute(sql)
        connection.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, text) for text, i in self._strings.items()])
        for table, rows in self._rows.items():
            write_table(connection, table, rows)
        connection.commit()
        connection.close()
        return self.path


def write_table(connection: sqlite3.Connection, table: str, rows: Sequence[dict[str, object]]) -> None:
    columns = TABLES[table]
    kinds = ", ".join(f'"{column}" {"TEXT" if column in TEXT else "INTEGER"}' for column in columns)
    connection.execute(f"CREATE TABLE {table} ({kinds})")
    marks = ", ".join("?" * len(columns))
    connection.executemany(
        f"INSERT INTO {table} VALUES ({marks})", [[row.get(column) for column in columns] for row in rows]
    )


def training(path: Path, steps: int = 6, pids: Sequence[int] = (100, 101), marker: str = "step %d") -> Export:
    """Some steps of a PyTorch job whose ranks have a GPU each, in one file, as torchrun under nsys leaves it."""
    export = Export(path)
    export.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value="node-a")
    for rank, pid in enumerate(pids):
        export.gpu(rank, rank)
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=rank, cudaId=0, pid=pid)
        call = 0
        for step in range(steps):
            begin = 1_000_000_000 + step * 10_000_000
            export.range(marker % step, begin, 9_500_000, pid, pid)
            for part in range(10):
                call += 1
                at = begin + part * 900_000
                export.range(f"aten::mm, seq = {call}, op_id = {call * 7}", at, 400_000, pid, pid)
                export.call("cudaLaunchKernel_v7000", at + 5_000, 4_000, call, pid, pid)
                name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL" if part == 9 else "ampere_sgemm_128x64_tn"
                export.kernel(name, at + 20_000, 600_000, call, pid, 0)
    return export
