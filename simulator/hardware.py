"""The GPUs that are simulated, and CUDA's occupancy formula for their compute capabilities."""

from __future__ import annotations

from dataclasses import dataclass

REGISTERS_PER_SM = 65_536
SUB_PARTITIONS = 4
RESERVED_SHARED_BYTES = 1_024
SHARED_GRANULARITY_BYTES = 128


@dataclass(frozen=True)
class Gpu:
    """What a profile says about a GPU, and what occupancy needs."""

    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    clock_khz: int
    memory_bandwidth_bytes_per_s: int
    memory_size_bytes: int
    shared_bytes_per_sm: int
    warps_per_sm: int = 64
    blocks_per_sm: int = 32


H100 = Gpu("NVIDIA H100 80GB HBM3", (9, 0), 132, 1_980_000, 3_352_320_000_000, 85_028_765_696, 228 * 1024)
A100 = Gpu("NVIDIA A100-SXM4-80GB", (8, 0), 108, 1_410_000, 2_039_037_500_000, 85_095_874_560, 164 * 1024)


def round_up(value: int, multiple: int) -> int:
    """The next multiple that is not smaller."""
    return -(-value // multiple) * multiple


def active_blocks(gpu: Gpu, registers: int, shared_bytes: int, block_threads: int) -> int:
    """How many blocks of a kernel one SM holds at once (0: it cannot run)."""
    warps = -(-block_threads // 32)
    per_warp = round_up(registers * 32, 256)
    opt_in = gpu.shared_bytes_per_sm - RESERVED_SHARED_BYTES
    too_many_registers = registers > 255 or per_warp * round_up(warps, SUB_PARTITIONS) > REGISTERS_PER_SM
    if block_threads > 1024 or too_many_registers or shared_bytes > opt_in:
        return 0
    limits = [gpu.warps_per_sm // warps, gpu.blocks_per_sm]
    if per_warp:
        limits.append(REGISTERS_PER_SM // SUB_PARTITIONS // per_warp * SUB_PARTITIONS // warps)
    limits.append(gpu.shared_bytes_per_sm // round_up(shared_bytes + RESERVED_SHARED_BYTES, SHARED_GRANULARITY_BYTES))
    return min(limits)


def theoretical_occupancy(gpu: Gpu, registers: int, shared_bytes: int, block_threads: int) -> float:
    """Share (0..1) of an SM's warps that a kernel can keep resident."""
    warps = -(-block_threads // 32)
    return active_blocks(gpu, registers, shared_bytes, block_threads) * warps / gpu.warps_per_sm
