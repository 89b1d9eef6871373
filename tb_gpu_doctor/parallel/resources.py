"""How many cores this process may use, how much memory is left for it, and how it gives memory back.

Inside a container the machine's own numbers are wrong: control groups (cgroup v2, and v1's names) say
what is really granted.
"""

from __future__ import annotations

import contextlib
import math
import os

_CGROUP = "/sys/fs/cgroup"
# cgroup v1 writes "no limit" as a number near 2^63.
_NO_LIMIT = 1 << 60


def usable_cores() -> int:
    """Cores that this process may run on: its affinity, cut to the container's quota; at least 1."""
    try:
        cores = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not on macOS and Windows
        cores = os.cpu_count() or 1
    quota = _cpu_quota()
    return max(1, min(cores, math.ceil(quota)) if quota is not None else cores)


def available_memory_bytes() -> int | None:
    """Memory that can be taken without swapping, as far as the system tells; None if it does not."""
    known = [size for size in (_meminfo_available(), _cgroup_available()) if size is not None]
    if known:
        return min(known)
    try:  # macOS tells only what there is in all: half of it is a careful guess
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return None


def return_free_memory() -> None:
    """Give the system what this process has freed: glibc keeps in each of its arenas as much as there ever was in use.

    Other threads go on meanwhile, but for the milliseconds in which they want memory of the arena that is looked at.
    """
    # Another C library, or a Python that was built without libffi.
    with contextlib.suppress(ImportError, OSError, AttributeError, TypeError):
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def _number(path: str) -> int | None:
    text = (_read(path) or "").strip()
    return int(text) if text.isdigit() else None


def _cpu_quota() -> float | None:
    parts = (_read(f"{_CGROUP}/cpu.max") or "").split()
    if len(parts) == 2 and all(part.isdigit() for part in parts) and int(parts[1]):
        return int(parts[0]) / int(parts[1])
    quota, period = _number(f"{_CGROUP}/cpu/cpu.cfs_quota_us"), _number(f"{_CGROUP}/cpu/cpu.cfs_period_us")
    return quota / period if quota and period else None


def _meminfo_available() -> int | None:
    for line in (_read("/proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable" and value.split()[:1] and value.split()[0].isdigit():
            return int(value.split()[0]) * 1024
    return None


def _cgroup_available() -> int | None:
    """The group's limit less what it uses; its file cache can be dropped and does not count."""
    for limit, used, stat in (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    ):
        most, now = _number(f"{_CGROUP}/{limit}"), _number(f"{_CGROUP}/{used}")
        if most is None or now is None or most >= _NO_LIMIT:
            continue
        lines = (line.split() for line in (_read(f"{_CGROUP}/{stat}") or "").splitlines())
        cached = sum(int(line[1]) for line in lines if len(line) == 2 and line[0] in ("inactive_file", "active_file"))
        return max(0, most - now + cached)
    return None
