"""How many processes are worth it, and how many the memory bears."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tb_gpu_doctor.files.addresses import is_remote, scheme_of
from tb_gpu_doctor.parallel.resources import available_memory_bytes, usable_cores
from tb_gpu_doctor.traces.sessions import ProfileFile

# 0 or 1: everything in this process; a larger number: so many, as far as files and memory go.
VARIABLE = "GPU_DOCTOR_WORKERS"
# What a remote file costs at least: a server answers a few questions about it, one after the other.
_ASKING_S = 0.2
# What a process costs before it works: the interpreter, numpy, the decoder. Rough: only the order counts.
_START_S = 1.0
_BASE_BYTES = 150 << 20
# Per format: bytes of the file per second of decoding and analysing, and memory at the peak per byte of it.
# From `benchmarks`; packed JSON is taken to unpack to fifteen times its size.
_BYTES_PER_S = {"xplane": 60e6, "json": 100e6, "json.gz": 8e6, "nsys": 20e6}
_PEAK_PER_BYTE = {"xplane": 6.0, "json": 6.0, "json.gz": 90.0, "nsys": 6.0}
# What stays of a file: in a scratch file if a process read it, else in memory.
_KEPT_PER_BYTE = {"xplane": 2.0, "json": 0.6, "json.gz": 8.0, "nsys": 2.0}
_KEPT_SHARE = 0.4
_MEMORY_SHARE = 0.7

_lock = threading.Lock()
_claimed = 0


def _kind(file: ProfileFile) -> str:
    if file.format in ("xplane", "nsys"):
        return file.format
    return "json.gz" if file.path.endswith(".gz") else "json"


def wanted_workers(
    files: Sequence[ProfileFile], cores: int | None = None, memory_bytes: int | None = None, limit: int | None = None
) -> int:
    """How many processes to read these files with; 0 means this one.

    Args:
        files: of a session.
        cores: usable ones, by default those of this process.
        memory_bytes: available, by default what the system says.
        limit: the user's word, by default that of the environment.
    """
    readable = [file for file in files if file.problem is None]
    limit = _limit_of_user() if limit is None else limit
    if len(readable) < 2 or (limit is not None and limit < 2):
        return 0
    if any(scheme_of(file.path) == "memory" for file in readable):
        return 0  # fsspec's store in the memory of this process
    # Who says a number means it, whatever the cores.
    most = min(len(readable), limit or (usable_cores() if cores is None else cores))
    memory = available_memory_bytes() if memory_bytes is None else memory_bytes
    if memory is not None:
        most = min(most, max(1, _fitting(readable, int(memory * _MEMORY_SHARE))))
        kept = sum(file.size_bytes * _KEPT_PER_BYTE[_kind(file)] for file in readable)
        if most < 2:
            return 1 if kept > memory * _KEPT_SHARE else 0
    alone = sum(file.size_bytes / _BYTES_PER_S[_kind(file)] + _ASKING_S * is_remote(file.path) for file in readable)
    worth_it = limit is not None or alone - alone / most > _START_S
    return most if most > 1 and worth_it else 0


def _fitting(files: Sequence[ProfileFile], room: int) -> int:
    """How many of the files can be worked on at the same time, at worst the largest ones."""
    fits = 0
    for need in sorted((file.size_bytes * _PEAK_PER_BYTE[_kind(file)] + _BASE_BYTES for file in files), reverse=True):
        room -= int(need)
        if room < 0:
            break
        fits += 1
    return fits


def may_start_processes() -> bool:
    """Whether the user lets work be done in processes of their own."""
    limit = _limit_of_user()
    return limit is None or limit > 1


def _limit_of_user() -> int | None:
    text = os.environ.get(VARIABLE, "").strip()
    return int(text) if text.isdecimal() and len(text) < 10 else None


@contextmanager
def claimed(workers: int, cores: int | None = None) -> Iterator[int]:
    """Share the cores with the other sessions that this process analyses; yields how many processes to start."""
    global _claimed
    cores = usable_cores() if cores is None else cores
    with _lock:
        # What the user asks for beyond the cores is granted to the first who asks.
        granted = workers if not _claimed or not workers else max(1, min(workers, cores - _claimed))
        _claimed += granted
    try:
        yield granted
    finally:
        with _lock:
            _claimed -= granted
