"""How many processes are worth it, and how many the memory bears."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tb_gpu_doctor.parallel.resources import available_memory_bytes, usable_cores
from tb_gpu_doctor.traces.sessions import ProfileFile

# 0 or 1: everything in this process; a larger number: at most so many.
VARIABLE = "GPU_DOCTOR_WORKERS"
# What a process costs before it works: the interpreter, numpy, the decoder. Rough: only the order counts.
_START_S = 1.0
_BASE_BYTES = 150 << 20
# Per format: bytes of the file per second of decoding and analysing, and memory at the peak per byte of it.
# From `benchmarks`; packed JSON is taken to unpack to fifteen times its size.
_BYTES_PER_S = {"xplane": 60e6, "json": 35e6, "json.gz": 3e6}
_PEAK_PER_BYTE = {"xplane": 6.0, "json": 6.0, "json.gz": 90.0}
_MEMORY_SHARE = 0.7

_lock = threading.Lock()
_claimed = 0


def _kind(file: ProfileFile) -> str:
    if file.format == "xplane":
        return "xplane"
    return "json.gz" if file.path.endswith(".gz") else "json"


def wanted_workers(
    files: Sequence[ProfileFile], cores: int | None = None, memory_bytes: int | None = None, limit: int | None = None
) -> int:
    """How many processes to read these files with; 1 means this one.

    Args:
        files: of a session.
        cores: usable ones, by default those of this process.
        memory_bytes: available, by default what the system says.
        limit: the user's word, by default that of the environment.
    """
    readable = [file for file in files if file.problem is None]
    limit = _limit_of_user() if limit is None else limit
    most = min(len(readable), usable_cores() if cores is None else cores)
    if limit is not None:
        most = min(len(readable), limit)  # who says a number means it
    if most < 2:
        return 1
    memory = available_memory_bytes() if memory_bytes is None else memory_bytes
    if memory is not None:
        need = sorted(_BASE_BYTES + int(file.size_bytes * _PEAK_PER_BYTE[_kind(file)]) for file in readable)[::-1]
        room, held, fits = memory * _MEMORY_SHARE, 0, 0
        while fits < most and held + need[fits] <= room:
            held += need[fits]
            fits += 1
        most = fits
    if most < 2:
        return 1
    alone = sum(file.size_bytes / _BYTES_PER_S[_kind(file)] for file in readable)
    return most if limit is not None or alone - alone / most > _START_S else 1


def _limit_of_user() -> int | None:
    text = os.environ.get(VARIABLE, "").strip()
    return int(text) if text.isdigit() else None


@contextmanager
def claimed(workers: int, cores: int | None = None) -> Iterator[int]:
    """Share the cores with the other sessions that this process analyses; yields how many processes to start, or 1."""
    global _claimed
    cores = usable_cores() if cores is None else cores
    with _lock:
        # What the user asks for beyond the cores is granted to the first who asks.
        granted = workers if not _claimed else max(1, min(workers, cores - _claimed))
        mine = granted if granted > 1 else 0
        _claimed += mine
    try:
        yield granted
    finally:
        with _lock:
            _claimed -= mine
