"""What an export of Nsight Systems says of the recording as a whole: when, where, of which rank, and what went wrong.

The environment and the command line of the process stand beside these in the file; they are not read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces.sqlite_tables import Tables

KERNEL, GRAPH = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
COPY, MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
CALL, RANGE, SYSTEM_CALL = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "OSRT_API"
# One of these beside the string table makes a SQLite file one of Nsight Systems.
_OWN_TABLES = frozenset({"META_DATA_EXPORT", "EXPORT_META_DATA", KERNEL, GRAPH, COPY, MEMSET, CALL, RANGE, SYSTEM_CALL})

LONGEST_NS = 7 * 24 * 3600 * 10**9
# What the recorder says of events that it could not keep, or could not collect at all.
_TELLING = re.compile(
    r"Not all .{1,40} events might|events? dropped|events might be missing|not supported by this build"
    r"|hardware tracing is not supported",
    re.IGNORECASE,
)
_ONLY_WITHOUT_CUDA = re.compile(r"No CUDA events collected|CUDA profiling might have not been started", re.IGNORECASE)
# What is lost of these changes no figure.
_NO_NEWS = re.compile(r"Not all (?:NVTX|OpenGL|OS runtime)", re.IGNORECASE)
_WARNING, _ERROR = 2, 3
_MAX_MESSAGES, _MAX_MESSAGE, _MAX_ROWS = 8, 500, 100_000


@dataclass(frozen=True)
class RecordingFacts:
    """What is known of a recording; None where the file does not tell.

    Attributes:
        start_unix_ns: epoch time of the clock's zero.
        duration_ns: of the recording, from that zero.
        host: the machine's own name.
        rank: of MPI, where the file holds only one.
    """

    start_unix_ns: int | None
    duration_ns: int | None
    host: str | None
    rank: int | None


def is_export(tables: Tables) -> bool:
    """Whether a database was written by ``nsys export``."""
    return "StringIds" in tables and bool(tables.names() & _OWN_TABLES)


def recording_facts(path: str) -> RecordingFacts | None:
    """The facts of a file; None for what is no readable export."""
    try:
        with Tables(path) as tables:
            return facts_in(tables) if is_export(tables) else None
    except (ProfileError, OSError):
        return None


def facts_in(tables: Tables) -> RecordingFacts:
    """The facts of an open export."""
    start = _first(tables, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    duration = _first(tables, "ANALYSIS_DETAILS", "duration")
    hosts = tables.values("TARGET_INFO_SYSTEM_ENV", ("value",), 1, "name = 'Hostname'")
    host = hosts[0][0][:256].decode("utf-8", "replace") if hosts and isinstance(hosts[0][0], bytes) else None
    ranks = {rank for (rank,) in tables.values("MPI_RANKS", ("rank",), _MAX_ROWS) if isinstance(rank, int)}
    rank = ranks.pop() if len(ranks) == 1 else None
    return RecordingFacts(
        start if start is not None and 10**18 <= start < 4 * 10**18 else None,
        duration if duration is not None and 0 < duration <= LONGEST_NS else None,
        host or None,
        rank if rank is not None and 0 <= rank < 1 << 24 else None,
    )


def _first(tables: Tables, table: str, column: str) -> int | None:
    rows = tables.values(table, (column,), 1)
    return rows[0][0] if rows and isinstance(rows[0][0], int) else None


def messages(tables: Tables, has_work: bool) -> tuple[str, ...]:
    """What the recorder says that matters for what is read of the file, each sentence once."""
    found: dict[str, None] = {}
    for severity, text in tables.values("DIAGNOSTIC_EVENT", ("severity", "text"), _MAX_ROWS):
        if severity not in (_WARNING, _ERROR) or not isinstance(text, bytes):
            continue
        message = " ".join(text[:_MAX_MESSAGE].decode("utf-8", "replace").split())
        if _NO_NEWS.search(message):
            continue
        if _TELLING.search(message) or (not has_work and _ONLY_WITHOUT_CUDA.search(message)):
            found.setdefault(message)
    return tuple(found)[:_MAX_MESSAGES]
