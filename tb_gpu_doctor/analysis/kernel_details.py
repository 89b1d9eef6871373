r"""What a profile says about a kernel's launch, read from its ``kernel_details`` string.

Four dialects exist::

    regs:38 shm:0 grid:160,1,1 block:1024,1,1                                              TF 2.3/2.4
    regs:12 static_shared:0 dynamic_shared:0 grid:3,1,1 block:128,1,1 occ_pct:100          NVIDIA today
     grid:65536,1,1 block:256,1,1 private_mem:0 group_mem:0 occ_pct:0                      ROCm
    registers_per_thread:32\nstatic_shared_memory_usage:0\n..grid_x:2\n..block_z:1       before TF 2.3

All are ``key:value`` words, so one reader serves them. A profiler sometimes writes
uninitialised memory here, hence every value is checked against what hardware can do:
a value that cannot be is None, never clamped.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

Dim3 = tuple[int, int, int]

MAX_REGISTERS = 255
MAX_BLOCK_THREADS = 1024
# No GPU has this much on-chip memory per block (227 KiB on Hopper, 160 KiB on MI350): more is garbage.
MAX_SHARED_BYTES = 1 << 20
MAX_GRID = (1 << 32) - 1  # CUDA stops at 2^31 - 1, HIP at 2^32 - 1

# The longest real string has about 130 bytes; a longer one is not kernel details.
_MAX_LENGTH = 512
_MAX_DIGITS = 10

_REGISTERS = (b"regs", b"registers_per_thread")
# "shm" is the total of both kinds; "group_mem" is AMD's name of shared memory (private_mem is per thread: not it).
_STATIC_SHARED = (b"static_shared", b"static_shared_memory_usage", b"shm", b"group_mem")
_DYNAMIC_SHARED = (b"dynamic_shared", b"dynamic_shared_memory_usage")


@dataclass(frozen=True)
class KernelDetails:
    """Launch facts of one kernel; None where unknown or impossible.

    Attributes:
        registers: per thread, 1..255.
        static_shared_bytes: per block; the total where the profile knows the total only.
        dynamic_shared_bytes: per block.
        grid: blocks in x, y, z.
        block: threads in x, y, z, at most 1,024 together.
        occ_pct: theoretical occupancy as recorded, in (0, 100].
    """

    registers: int | None = None
    static_shared_bytes: int | None = None
    dynamic_shared_bytes: int | None = None
    grid: Dim3 | None = None
    block: Dim3 | None = None
    occ_pct: float | None = None

    @property
    def shared_bytes(self) -> int | None:
        """Static plus dynamic shared memory of a block; None when neither is known."""
        if self.static_shared_bytes is None and self.dynamic_shared_bytes is None:
            return None
        return (self.static_shared_bytes or 0) + (self.dynamic_shared_bytes or 0)

    @property
    def block_threads(self) -> int | None:
        """Threads of a block."""
        return None if self.block is None else self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int | None:
        """Blocks of the grid."""
        return None if self.grid is None else self.grid[0] * self.grid[1] * self.grid[2]


UNKNOWN = KernelDetails()


@lru_cache(maxsize=4096)
def parse_kernel_details(raw: bytes) -> KernelDetails:
    """Read one ``kernel_details`` string of any dialect; never raises.

    An impossible block means that the whole record is uninitialised memory, so nothing
    of it is believed. Of registers and shared memory one impossible value discredits all
    (old ROCm profiles put the halves of a pointer there) but not the dimensions.
    """
    if not raw or len(raw) > _MAX_LENGTH:
        return UNKNOWN
    words: dict[bytes, bytes] = {}
    for word in raw.split():
        key, _, value = word.partition(b":")
        words.setdefault(key, value)
    block_found, block = _dim3(words, b"block", MAX_BLOCK_THREADS)
    if block_found and (block is None or block[0] * block[1] * block[2] > MAX_BLOCK_THREADS):
        return UNKNOWN
    _, grid = _dim3(words, b"grid", MAX_GRID)

    numbers = [
        (text, _integer(text, limit))
        for text, limit in (
            (_first(words, _REGISTERS), MAX_REGISTERS),
            (_first(words, _STATIC_SHARED), MAX_SHARED_BYTES),
            (_first(words, _DYNAMIC_SHARED), MAX_SHARED_BYTES),
        )
    ]
    if any(text is not None and number is None for text, number in numbers):
        registers = static = dynamic = None
    else:
        registers, static, dynamic = (number for _, number in numbers)
    return KernelDetails(
        registers=registers or None,  # 0: not recorded, since every kernel has some
        static_shared_bytes=static,
        dynamic_shared_bytes=dynamic,
        grid=grid,
        block=block,
        occ_pct=_percent(words.get(b"occ_pct")),
    )


def _first(words: dict[bytes, bytes], keys: tuple[bytes, ...]) -> bytes | None:
    return next((words[key] for key in keys if key in words), None)


def _integer(text: bytes | None, limit: int) -> int | None:
    """A plain decimal in 0..limit, else None."""
    if text is None or not text.isdigit() or len(text) > _MAX_DIGITS:
        return None
    value = int(text)
    return value if value <= limit else None


def _dim3(words: dict[bytes, bytes], key: bytes, limit: int) -> tuple[bool, Dim3 | None]:
    """Whether ``key`` is there in either spelling, and its three sizes when each is in 1..limit."""
    if key in words:
        parts: list[bytes | None] = list(words[key].split(b","))
    elif key + b"_x" in words:
        parts = [words.get(key + axis) for axis in (b"_x", b"_y", b"_z")]
    else:
        return False, None
    sizes = [_integer(part, limit) for part in parts]
    if len(sizes) != 3:
        return True, None
    x, y, z = sizes
    return True, (x, y, z) if x and y and z else None


def _percent(text: bytes | None) -> float | None:
    """A percentage in (0, 100]; the profiler writes 0 for "could not be computed"."""
    if text is None or len(text) > 2 * _MAX_DIGITS:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 < value <= 100.0 else None
