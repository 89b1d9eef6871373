"""A bounded folder of pickled values that only its owner can write.

Whatever is wrong with an entry (cut off, damaged, of another version, put there by somebody else, gone in the middle
of reading) makes it as if it had never been there. Unpickling is limited to this package's own classes and numpy's
arrays, so that an entry can hold data and nothing that acts.

An entry is `_MAGIC`, a digest of all that follows, and (little endian)

    u64 length of the pickle, u64 number of arrays n, n times u64 their lengths,
    the pickle without its arrays (protocol 5), then these, each at the next multiple of `_ALIGN` bytes of the entry

so that reading one costs no more than reading its file: arrays are parts of one buffer, and only what is not an array
is built one by one, which nothing else of the process can run beside.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import mmap
import os
import pickle
import re
import stat
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

_MAGIC = b"gpu-doctor cache 2\n"
_DIGEST_BYTES = 16
_HEAD_BYTES = len(_MAGIC) + _DIGEST_BYTES
_ALIGN = 64
# From this size on an entry gets pages of its own, which go back to the system with it.
_OWN_PAGES_BYTES = 1 << 18
_SUFFIX = ".entry"
# The user may have named a folder in which other files lie.
_OWN_NAME = re.compile(r"[0-9a-f]{64}\.entry(\.[0-9]+-[0-9]+\.part)?")
# Left by a process that was killed while it wrote, after this many seconds.
_STALE_S = 3_600
FOLDER_VARIABLE = "GPU_DOCTOR_CACHE_DIR"
SIZE_VARIABLE = "GPU_DOCTOR_CACHE_BYTES"
DEFAULT_MAX_BYTES = 2 << 30
# One session must not push all others out.
_LARGEST_PART = 4
# Where numpy's own functions for pickles live, in its first and second version.
_NUMPY = frozenset(
    {"numpy", *(f"numpy.{core}.{part}" for core in ("core", "_core") for part in ("multiarray", "numeric"))}
)
_BUILTINS = frozenset({"set", "frozenset", "slice", "range", "complex", "bytearray"})
_COLLECTIONS = frozenset({"OrderedDict", "Counter", "defaultdict", "deque"})


@dataclass(frozen=True)
class Usage:
    """What a store holds; ``folder`` is None where there is none."""

    folder: Path | None
    entries: int
    size_bytes: int
    max_bytes: int


class Store:
    """Entries by name, the least recently used ones dropped beyond a size.

    Args:
        folder: where; None keeps nothing.
        max_bytes: all entries together.
        version: entries of other versions are not found.
    """

    def __init__(self, folder: Path | None, max_bytes: int = DEFAULT_MAX_BYTES, version: str | None = None) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._version = version

    @property
    def is_usable(self) -> bool:
        """Whether there is a folder that nobody else can write to; it is made where it is missing."""
        if self._folder is None or self._max_bytes <= 0:
            return False
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return _is_ours(os.stat(self._folder))
        except OSError:
            return False

    def get(self, key: str) -> Any | None:
        """The value kept under a key; None where there is none that can be used."""
        if not self.is_usable:
            return None
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                state = os.fstat(file.fileno())
                if not _is_ours(state) or state.st_size > self._max_bytes:  # larger than any that was put
                    return None
                content = _read(file, state.st_size)
        except (OSError, MemoryError):
            return None
        try:
            value = _unpacked(content)
        except Exception:  # unpickling raises anything; a bad entry is no entry
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return value

    def put(self, key: str, value: Any) -> bool:
        """Keep a value; False where it could not be kept, which is no error."""
        if not self.is_usable:
            return False
        path = self._path(key)
        draft = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
        try:
            parts = _packed(value)
            if sum(map(len, parts)) > self._max_bytes // _LARGEST_PART:
                return False
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                for part in parts:
                    file.write(part)
            os.replace(draft, path)
        except (OSError, MemoryError, pickle.PicklingError, TypeError, AttributeError, RecursionError):
            with contextlib.suppress(OSError):
                draft.unlink()
            return False
        self._trim()
        return True

    def usage(self) -> Usage:
        """How much is kept."""
        entries = list(self._entries())
        return Usage(self._folder, len(entries), sum(size for _, _, size in entries), self._max_bytes)

    def clear(self) -> int:
        """Drop everything; returns how many entries that were."""
        dropped = 0
        for path, _, _ in self._entries():
            with contextlib.suppress(OSError):
                path.unlink()
                dropped += 1
        return dropped

    def _path(self, key: str) -> Path:
        assert self._folder is not None
        name = hashlib.sha256(f"{self._version or own_version()}\0{key}".encode("utf-8", "surrogateescape")).hexdigest()
        return self._folder / f"{name}{_SUFFIX}"

    def _entries(self) -> Iterator[tuple[Path, float, int]]:
        """(path, time of last use, size) of every entry of any version."""
        if self._folder is None:
            return
        try:
            with os.scandir(self._folder) as found:
                for entry in found:
                    if _OWN_NAME.fullmatch(entry.name):
                        with contextlib.suppress(OSError):
                            state = entry.stat(follow_symlinks=False)
                            yield Path(entry.path), state.st_mtime, state.st_size
        except OSError:
            return

    def _trim(self) -> None:
        """Drop the least recently used entries beyond the size, and what killed processes left."""
        entries = sorted(self._entries(), key=lambda entry: entry[1])
        newest = entries[-1][1] if entries else 0.0
        held = sum(size for _, _, size in entries)
        for path, used, size in entries:
            is_left_over = path.suffix == ".part" and newest - used > _STALE_S
            if held <= self._max_bytes and not is_left_over:
                continue
            with contextlib.suppress(OSError):
                path.unlink()
                held -= size


class _Unpickler(pickle.Unpickler):
    """Knows this package's classes and arrays; nothing else is built from an entry."""

    def find_class(self, module: str, name: str) -> Any:
        root = module.partition(".")[0]
        if module == "builtins" and name in _BUILTINS:
            return super().find_class(module, name)
        if module == "collections" and name in _COLLECTIONS:
            return super().find_class(module, name)
        # Asked before it is looked for: to import a module can be to run a program.
        if module in _NUMPY and name in ("ndarray", "dtype", "_reconstruct", "scalar", "_frombuffer"):
            return super().find_class(module, name)
        if root == "tb_gpu_doctor" and not module.endswith("__main__"):
            found = super().find_class(module, name)
            # What a module has imported is reached through it as well, and must not be.
            if isinstance(found, type) and found.__module__.partition(".")[0] == root and _is_data(found):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is not kept in the cache")


def _is_data(found: type) -> bool:
    """Whether a class of ours only holds what it is given: others start processes or write files when they are made."""
    if dataclasses.is_dataclass(found) or issubclass(found, (BaseException, Enum, tuple)):
        return True
    return found.__module__.startswith("tb_gpu_doctor.plugin.")  # the views


def default_store() -> Store:
    """The store of this user; ``GPU_DOCTOR_CACHE_DIR`` moves it, and switches it off where it is empty."""
    folder = os.environ.get(FOLDER_VARIABLE)
    size = os.environ.get(SIZE_VARIABLE, "")
    max_bytes = int(size) if size.isdecimal() and len(size) < 19 else DEFAULT_MAX_BYTES
    if folder is not None:
        # No shell has read what a service's or a container's settings say.
        return Store(Path(os.path.expanduser(folder)) if folder else None, max_bytes)
    import platformdirs

    try:
        home = Path(platformdirs.user_cache_dir("gpu-doctor", appauthor=False))
    except RuntimeError:  # a container's user without a home
        return Store(None, max_bytes)
    return Store(home if home.is_absolute() else None, max_bytes)


def _packed(value: Any) -> list[bytes | memoryview]:
    """An entry, part by part."""
    buffers: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    arrays = [buffer.raw() for buffer in buffers]
    head = struct.pack(f"<{2 + len(arrays)}Q", len(stream), len(arrays), *(array.nbytes for array in arrays))
    parts: list[bytes | memoryview] = [head, stream]
    at = _HEAD_BYTES + len(head) + len(stream)
    for array in arrays:
        parts += [bytes(-at % _ALIGN), array]
        at += -at % _ALIGN + array.nbytes
    return [_MAGIC, _digest(parts), *parts]


def _read(file: BinaryIO, size: int) -> memoryview:
    """A whole file in a buffer of its own, writable as arrays are."""
    content = memoryview(mmap.mmap(-1, size) if size >= _OWN_PAGES_BYTES else bytearray(size))
    at = 0
    while at < size and (count := file.readinto(content[at:])):  # type: ignore[attr-defined]
        at += count
    return content[:at]


def _unpacked(content: memoryview) -> Any:
    """The value of an entry.

    Raises:
        Exception: any; it is none of ours, or damaged.
    """
    body = content[_HEAD_BYTES:]
    if content[: len(_MAGIC)] != _MAGIC or content[len(_MAGIC) : _HEAD_BYTES] != _digest([body]):
        raise pickle.UnpicklingError("damaged")
    length, count = struct.unpack_from("<2Q", body)
    sizes = struct.unpack_from(f"<{count}Q", body, 16)
    at = _HEAD_BYTES + 16 + 8 * count
    stream = content[at : at + length]
    at += length
    arrays = []
    for size in sizes:
        at += -at % _ALIGN
        arrays.append(content[at : at + size])
        at += size
    if at != len(content):
        raise pickle.UnpicklingError("damaged")
    return _Unpickler(io.BytesIO(stream), buffers=arrays).load()


def _digest(parts: Sequence[bytes | memoryview]) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _is_ours(state: os.stat_result) -> bool:
    """Whether nobody but this user can have written it."""
    if not hasattr(os, "getuid"):  # Windows: the folder lies in the user's own profile
        return True
    return state.st_uid == os.getuid() and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@lru_cache(maxsize=1)
def own_version() -> str:
    """Changes with the package's code, Python and numpy: an entry is only as good as what made it."""
    import numpy

    from tb_gpu_doctor import __version__

    digest = hashlib.sha256(f"{__version__} {sys.version} {numpy.__version__}".encode())
    root = Path(__file__).parent.parent
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".so", ".json", ".pyd"):
            with contextlib.suppress(OSError):
                state = path.stat()
                digest.update(f"{path.relative_to(root)} {state.st_size} {state.st_mtime_ns}".encode())
    return digest.hexdigest()
