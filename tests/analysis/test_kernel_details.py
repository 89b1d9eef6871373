"""Launch details in all dialects, and nothing believed that hardware cannot do."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.kernel_details import (
    MAX_BLOCK_THREADS,
    MAX_GRID,
    MAX_REGISTERS,
    MAX_SHARED_BYTES,
    UNKNOWN,
    KernelDetails,
    parse_kernel_details,
)

OLDEST = b"""registers_per_thread:32
static_shared_memory_usage:8
dynamic_shared_memory_usage:16384
grid_x:2
grid_y:3
grid_z:1
block_x:64
block_y:2
block_z:1"""


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (
            b"regs:38 shm:512 grid:160,1,1 block:1024,1,1",
            KernelDetails(38, 512, None, (160, 1, 1), (1024, 1, 1)),
        ),
        (
            b"regs:12 static_shared:0 dynamic_shared:48 grid:3,4,5 block:128,2,1 occ_pct:62.5",
            KernelDetails(12, 0, 48, (3, 4, 5), (128, 2, 1), 62.5),
        ),
        (
            b" grid:219,40,1 block:256,1,1 private_mem:168 group_mem:49280 occ_pct:0",
            KernelDetails(None, 49280, None, (219, 40, 1), (256, 1, 1)),
        ),
        (OLDEST, KernelDetails(32, 8, 16384, (2, 3, 1), (64, 2, 1))),
    ],
    ids=["tf-2.3", "nvidia", "rocm", "oldest"],
)
def test_dialects(raw: bytes, expected: KernelDetails) -> None:
    assert parse_kernel_details(raw) == expected


def test_derived_sizes() -> None:
    details = parse_kernel_details(OLDEST)
    assert (details.shared_bytes, details.block_threads, details.blocks) == (16392, 128, 6)
    assert (UNKNOWN.shared_bytes, UNKNOWN.block_threads, UNKNOWN.blocks) == (None, None, None)
    assert parse_kernel_details(b"regs:38 shm:0 grid:1,1,1 block:1,1,1").shared_bytes == 0


def test_registers_that_are_half_a_pointer_discredit_shared_memory_but_not_the_dimensions() -> None:
    raw = b"regs:2191500840 static_shared:32462 dynamic_shared:0 grid:1280,1,1 block:256,1,1 occ_pct:0"
    assert parse_kernel_details(raw) == KernelDetails(grid=(1280, 1, 1), block=(256, 1, 1))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"regs:16 static_shared:0 dynamic_shared:0 grid:1,1,1 block:1025,1,1 occ_pct:100",
        b"regs:16 static_shared:0 dynamic_shared:0 grid:1,1,1 block:64,32,1 occ_pct:100",
        b"regs:16 shm:0 grid:1,1,1 block:0,1,1",
        b"regs:16 shm:0 grid:1,1,1 block:-32,1,1",
        b"regs:16 shm:0 grid:1,1,1 block:32,1",
        b"regs:16 shm:0 grid:1,1,1 block:32,1,1,1",
        b"regs:16 shm:0 grid:1,1,1 block:",
        b"registers_per_thread:8\nblock_x:2",
        b"gibberish \xff\xfe\x00 :::: ,,,",
        b"{'grid': [1, 1, 1]}",
    ],
)
def test_garbage_is_unknown(raw: bytes) -> None:
    assert parse_kernel_details(raw) == UNKNOWN


@pytest.mark.parametrize("value", [b"256", b"-1", b"99999999999999999999", b"", b"1.5", b"0x10", b"\xd9\xa3"])
def test_impossible_registers(value: bytes) -> None:
    details = parse_kernel_details(b"regs:" + value + b" shm:64 grid:7,1,1 block:32,1,1")
    assert details == KernelDetails(grid=(7, 1, 1), block=(32, 1, 1))


def test_zero_registers_mean_not_recorded() -> None:
    assert parse_kernel_details(b"regs:0 shm:64 grid:7,1,1 block:32,1,1") == KernelDetails(
        None, 64, None, (7, 1, 1), (32, 1, 1)
    )


def test_impossible_shared_memory_and_grid() -> None:
    raw = b"regs:8 static_shared:1048577 dynamic_shared:0 grid:0,1,1 block:32,1,1"
    assert parse_kernel_details(raw) == KernelDetails(block=(32, 1, 1))
    assert parse_kernel_details(b"grid:4294967296,1,1 block:32,1,1").grid is None


@pytest.mark.parametrize("value", [b"0", b"100.5", b"-3", b"nan", b"inf", b"x", b"1e99", b"9" * 400])
def test_impossible_occupancy(value: bytes) -> None:
    assert parse_kernel_details(b"block:32,1,1 occ_pct:" + value).occ_pct is None


@pytest.mark.parametrize(
    "raw",
    [
        b"regs:" * 20_000,
        b"9" * 100_000,
        b"grid:" + b"1," * 50_000,
        b" \n" * 50_000,
        b"block_x:1\n" * 10_000,
        b"\x00" * 100_000,
    ],
)
def test_hostile_text_is_quick(raw: bytes) -> None:
    began = time.perf_counter()
    assert parse_kernel_details(raw) == UNKNOWN
    assert time.perf_counter() - began < 0.05


KEYS = [b"regs", b"shm", b"static_shared", b"dynamic_shared", b"grid", b"block", b"occ_pct", b"grid_x"]
WORDS = st.builds(
    lambda key, value: key + b":" + value.encode(),
    st.sampled_from(KEYS),
    st.text(alphabet="0123456789,.-:e \n", max_size=14),
)


@given(st.binary(max_size=200) | st.lists(WORDS).map(b" ".join))
def test_whatever_comes_the_values_are_possible(raw: bytes) -> None:
    details = parse_kernel_details(raw)
    assert details.registers is None or 1 <= details.registers <= MAX_REGISTERS
    for shared in (details.static_shared_bytes, details.dynamic_shared_bytes):
        assert shared is None or 0 <= shared <= MAX_SHARED_BYTES
    assert details.block_threads is None or 1 <= details.block_threads <= MAX_BLOCK_THREADS
    assert details.grid is None or all(1 <= size <= MAX_GRID for size in details.grid)
    assert details.occ_pct is None or 0 < details.occ_pct <= 100


@given(
    registers=st.integers(1, MAX_REGISTERS),
    static=st.integers(0, 100_000),
    dynamic=st.integers(0, 200_000),
    grid=st.tuples(*[st.integers(1, MAX_GRID)] * 3),
    block=st.tuples(st.integers(1, 32), st.integers(1, 16), st.integers(1, 2)),
    pct=st.integers(1, 100),
)
def test_what_the_profiler_writes_is_read_back(
    registers: int, static: int, dynamic: int, grid: tuple[int, int, int], block: tuple[int, int, int], pct: int
) -> None:
    grid_text, block_text = (",".join(map(str, sizes)) for sizes in (grid, block))
    tail = f"grid:{grid_text} block:{block_text}"
    nvidia = f"regs:{registers} static_shared:{static} dynamic_shared:{dynamic} {tail} occ_pct:{pct}"
    assert parse_kernel_details(nvidia.encode()) == KernelDetails(registers, static, dynamic, grid, block, pct)
    old = f"regs:{registers} shm:{static + dynamic} {tail}"
    assert parse_kernel_details(old.encode()) == KernelDetails(registers, static + dynamic, None, grid, block)
