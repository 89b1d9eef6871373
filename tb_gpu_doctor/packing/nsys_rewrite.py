"""Writes an export of Nsight Systems anew, with nothing in it but the columns that are read.

An export holds the environment and the command line of the program, its output, and the names of other people's
processes. A pack carries none of that, redacted or not; redacted, names are replaced as well.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.packing.names import Names
from tb_gpu_doctor.traces.json_columns import MAX_NAME
from tb_gpu_doctor.traces.nsys_facts import (
    CALL,
    COPY,
    GRAPH,
    KERNEL,
    MEMSET,
    RANGE,
    SYSTEM_CALL,
    facts_in,
    is_export,
    messages,
)
from tb_gpu_doctor.traces.sqlite_tables import Tables, whole

_WORK = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_SPAN = ("start", "end", "globalTid", "nameId")
# What is read of each table; all of it whole numbers.
_COLUMNS: dict[str, tuple[str, ...]] = {
    KERNEL: (
        *_WORK, "demangledName", "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
        "staticSharedMemory", "dynamicSharedMemory", "graphNodeId", "graphId",
    ),
    GRAPH: (*_WORK, "graphId", "graphExecId"),
    COPY: (*_WORK, "bytes", "copyKind", "srcKind", "dstKind"),
    MEMSET: (*_WORK, "bytes"),
    CALL: (*_SPAN, "eventClass", "correlationId"),
    SYSTEM_CALL: _SPAN,
    "CUPTI_ACTIVITY_KIND_OVERHEAD": _SPAN,
    "PROFILER_OVERHEAD": _SPAN,
    "ThreadNames": ("globalTid", "nameId"),
    "MPI_RANKS": ("globalTid", "rank"),
    "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs",),
    "ANALYSIS_DETAILS": ("duration",),
    "TARGET_INFO_CUDA_DEVICE": ("gpuId", "cudaId", "pid"),
}  # fmt: skip
_RANGE_COLUMNS = ("start", "end", "eventType", "globalTid", "endGlobalTid", "textId")
_GPU_COLUMNS = (
    "id",
    "smCount",
    "clockRate",
    "memoryBandwidth",
    "totalMemory",
    "computeMajor",
    "computeMinor",
    "cuDevice",
)
_MAX_GPUS = 1024


def rewrite_nsys(source: str, out: BinaryIO, names: Names | None) -> None:
    """Write what is read of an export.

    Args:
        source: path of the export.
        out: gets the new file.
        names: replaces names; None keeps them.

    Raises:
        ProfileError: the export cannot be read, see `sqlite_tables.Tables`.
    """
    with Tables(source) as tables, tempfile.TemporaryDirectory(prefix="gpu-doctor-nsys-") as folder:
        if not is_export(tables):
            raise ProfileError("not_nsys", source)
        path = os.path.join(folder, "export.sqlite")
        connection = sqlite3.connect(path)
        try:
            connection.execute("PRAGMA journal_mode=OFF")
            _Writer(tables, connection, names).write()
            connection.commit()
        finally:
            connection.close()
        with open(path, "rb") as made:
            while piece := made.read(1 << 20):
                out.write(piece)


class _Writer:
    def __init__(self, tables: Tables, connection: sqlite3.Connection, names: Names | None) -> None:
        self.tables, self.connection, self.names = tables, connection, names
        self.used: dict[int, bool] = {}  # ids of texts, and whether kernels are called so

    def write(self) -> None:
        for table, columns in _COLUMNS.items():
            present = [column for column in columns if self.tables.has(table, column)]
            if table == KERNEL and "demangledName" not in present and self.tables.has(table, "shortName"):
                present.append("shortName")
            if present:
                self._made(table, present, "INTEGER")
                named = [at for at, column in enumerate(present) if column.endswith(("nameId", "Name"))]
                for rows in self.tables.portions(table, [whole(column) for column in present]):
                    for at in named:
                        self._use({row[at] for row in rows}, table == KERNEL)
                    self._insert(table, rows)
        self._ranges()
        self._gpus()
        self._facts()
        texts = self.tables.texts((ident for ident in self.used if ident >= 0), MAX_NAME)
        self.connection.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT)")
        self._insert("StringIds", [(ident, self._told(raw, self.used[ident])) for ident, raw in texts.items()])

    def _use(self, idents: set[Any], is_kernel: bool) -> None:
        for ident in idents:
            if isinstance(ident, int):
                self.used[ident] = self.used.get(ident, False) or is_kernel

    def _told(self, raw: object, is_kernel: bool = False) -> str:
        text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else ""
        return text if self.names is None else self.names.name(text, kernel=is_kernel)

    def _made(self, table: str, columns: list[str], kind: str, texts: tuple[str, ...] = ()) -> None:
        described = [f'"{column}" {kind}' for column in columns] + [f'"{column}" TEXT' for column in texts]
        self.connection.execute(f"CREATE TABLE {table} ({', '.join(described)})")

    def _insert(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            self.connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)

    def _ranges(self) -> None:
        present = [column for column in _RANGE_COLUMNS if self.tables.has(RANGE, column)]
        if not present:
            return
        self._made(RANGE, present, "INTEGER", ("text",))
        at = present.index("textId") if "textId" in present else None
        text = f"CAST(substr(text, 1, {MAX_NAME}) AS BLOB)" if self.tables.has(RANGE, "text") else "NULL"
        for rows in self.tables.portions(RANGE, [*(whole(c) for c in present), text], "eventType IN (59, 60)"):
            if at is not None:
                self._use({row[at] for row in rows}, False)
            self._insert(RANGE, list(self._with_texts(rows)))

    def _with_texts(self, rows: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        for *numbers, text in rows:
            yield (*numbers, None if text is None else self._told(text))

    def _gpus(self) -> None:
        rows = self.tables.values("TARGET_INFO_GPU", (*_GPU_COLUMNS, "name"), _MAX_GPUS)
        self._made("TARGET_INFO_GPU", list(_GPU_COLUMNS), "INTEGER", ("name",))
        kept = [(*(n if isinstance(n, int) else None for n in row[:-1]), row[-1]) for row in rows]
        # what the maker calls a GPU tells nothing of anybody
        self._insert(
            "TARGET_INFO_GPU",
            [(*row[:-1], row[-1].decode("utf-8", "replace") if isinstance(row[-1], bytes) else None) for row in kept],
        )

    def _facts(self) -> None:
        facts = facts_in(self.tables)
        self._made("META_DATA_EXPORT", [], "", ("name", "value"))
        self._made("TARGET_INFO_SYSTEM_ENV", [], "", ("name", "value"))
        if facts.host is not None:
            host = facts.host if self.names is None else self.names.host(facts.host)
            self._insert("TARGET_INFO_SYSTEM_ENV", [("Hostname", host)])
        self._made("DIAGNOSTIC_EVENT", ["severity"], "INTEGER", ("text",))
        # the recorder's own sentences, of which only those are read that are alike everywhere
        self._insert("DIAGNOSTIC_EVENT", [(2, text) for text in messages(self.tables, KERNEL in self.tables)])
