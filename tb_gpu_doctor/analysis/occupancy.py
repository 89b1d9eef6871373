"""Theoretical occupancy of NVIDIA GPUs: how many warps of a kernel an SM can hold at once, and the nearest step up.

The same arithmetic as NVIDIA's ``cuda_occupancy.h``, from a table of limits per compute capability. A capability that
is not in the table, or another vendor, has no answer here. The staircase around a kernel is computed with the same
formula, not guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

WARP = 32
REGISTERS_PER_SM = 65536
REGISTERS_PER_THREAD = 255
REGISTER_UNIT = 256  # registers are given out to a warp in these portions
THREADS_PER_BLOCK = 1024
WARPS_ROUNDED_TO = 4  # a block's warps count in fours when it must fit the register file at all
UNLIMITED = (1 << 31) - 1

BLOCK_SIZE, BLOCKS, REGISTERS, SHARED_MEMORY = "block_size", "blocks", "registers", "shared_memory"


@dataclass(frozen=True)
class SmLimits:
    """What one SM of a compute capability offers.

    Attributes:
        warps, blocks: resident at once.
        shared_bytes: shared memory of the SM.
        opt_in_bytes: the most a single block may ask for.
        reserved_bytes: taken by the system from every block.
        shared_unit: shared memory is given out in these portions.
        partitions: register files of the SM; a warp lives in one of them.
        registers_per_block: the most a single block may use.
    """

    warps: int
    blocks: int
    shared_bytes: int
    opt_in_bytes: int
    reserved_bytes: int
    shared_unit: int
    partitions: int
    registers_per_block: int = REGISTERS_PER_SM


def _limits(
    warps: int, blocks: int, shared_kib: int, opt_in_kib: int, reserved: int, unit: int, partitions: int
) -> SmLimits:
    return SmLimits(warps, blocks, shared_kib << 10, opt_in_kib << 10, reserved, unit, partitions)


_VOLTA = _limits(64, 32, 96, 96, 0, 256, 4)
_AMPERE_CLIENT = _limits(48, 16, 100, 99, 1024, 128, 4)
_HOPPER = _limits(64, 32, 228, 227, 1024, 128, 4)
_BLACKWELL_CLIENT = _limits(48, 24, 100, 99, 1024, 128, 4)

LIMITS: dict[tuple[int, int], SmLimits] = {
    (6, 0): _limits(64, 32, 64, 48, 0, 256, 2),
    (6, 1): _limits(64, 32, 96, 48, 0, 256, 4),
    (6, 2): SmLimits(64, 32, 64 << 10, 48 << 10, 0, 256, 4, registers_per_block=32768),
    (7, 0): _VOLTA,
    (7, 2): _VOLTA,
    (7, 5): _limits(32, 16, 64, 64, 0, 256, 4),
    (8, 0): _limits(64, 32, 164, 163, 1024, 128, 4),
    (8, 6): _AMPERE_CLIENT,
    (8, 7): _limits(48, 16, 164, 163, 1024, 128, 4),
    (8, 8): _AMPERE_CLIENT,
    (8, 9): _limits(48, 24, 100, 99, 1024, 128, 4),
    (9, 0): _HOPPER,
    (10, 0): _HOPPER,
    (10, 3): _HOPPER,
    (11, 0): _limits(48, 24, 228, 227, 1024, 128, 4),
    (12, 0): _BLACKWELL_CLIENT,
    (12, 1): _BLACKWELL_CLIENT,
}


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a kernel one SM holds, and what stops it from holding more.

    Attributes:
        active_blocks: resident blocks per SM, at least 1.
        value: resident warps over the SM's warps, 0..1.
        limiter: what must change for more warps to fit; None at full occupancy. When
            several limits are equally tight the order is ``block_size``, ``blocks``,
            ``registers``, ``shared_memory``: easing the memory limits alone gains nothing
            while the block itself is in the way.
        by_warps, by_blocks, by_registers, by_shared_memory: blocks that each resource
            alone would allow; `UNLIMITED` when the kernel does not use it.
        warps: that an SM can hold at most.
    """

    active_blocks: int
    value: float
    limiter: str | None
    by_warps: int
    by_blocks: int
    by_registers: int
    by_shared_memory: int
    warps: int


@lru_cache(maxsize=65536)
def block_limits(
    capability: tuple[int, int], registers: int, shared_bytes: int, block_threads: int
) -> tuple[int, int, int, int] | None:
    """Resident blocks that warps, block slots, registers and shared memory allow, in this order.

    A resource allows 0 blocks when the kernel could not be launched at all.

    Returns:
        None for a capability without a table, or arguments that no kernel can have.
    """
    limits = LIMITS.get(capability)
    if limits is None or not 0 < block_threads <= THREADS_PER_BLOCK or registers <= 0 or shared_bytes < 0:
        return None
    warps = -(-block_threads // WARP)
    registers_per_warp = _round_up(registers * WARP, REGISTER_UNIT)
    if (
        registers > REGISTERS_PER_THREAD
        or registers_per_warp * _round_up(warps, WARPS_ROUNDED_TO) > limits.registers_per_block
    ):
        by_registers = 0
    else:
        warps_per_partition = REGISTERS_PER_SM // limits.partitions // registers_per_warp
        by_registers = warps_per_partition * limits.partitions // warps
    asked = shared_bytes + limits.reserved_bytes
    if shared_bytes > limits.opt_in_bytes:
        by_shared = 0
    elif asked == 0:
        by_shared = UNLIMITED
    else:
        by_shared = limits.shared_bytes // _round_up(asked, limits.shared_unit)
    return limits.warps // warps, limits.blocks, by_registers, by_shared


def theoretical_occupancy(
    capability: tuple[int, int] | None, registers: int | None, shared_bytes: int | None, block_threads: int | None
) -> Occupancy | None:
    """Occupancy of a kernel on an NVIDIA GPU.

    Args:
        capability: (major, minor).
        registers: per thread.
        shared_bytes: static plus dynamic per block.
        block_threads: threads of a block.

    Returns:
        None when an argument is unknown or the capability has no table, and when such a
        kernel could not have been launched: then the recorded facts are wrong.
    """
    if capability is None or registers is None or shared_bytes is None or block_threads is None:
        return None
    by_resource = block_limits(capability, registers, shared_bytes, block_threads)
    if by_resource is None:
        return None
    active = min(by_resource)
    if active == 0:
        return None
    warps = active * -(-block_threads // WARP)
    available = LIMITS[capability].warps
    by_warps, by_blocks, by_registers, by_shared = by_resource
    limiter = None
    if warps < available:
        ranked = zip((BLOCK_SIZE, BLOCKS, REGISTERS, SHARED_MEMORY), by_resource, strict=True)
        limiter = next(name for name, allowed in ranked if allowed == active)
    return Occupancy(active, warps / available, limiter, by_warps, by_blocks, by_registers, by_shared, available)


def waves(blocks: int, sm_count: int, active_blocks: int) -> float:
    """How many times a grid fills all SMs; the fraction is the last, partly empty wave."""
    return blocks / (sm_count * active_blocks)


def filled_slots(blocks: int, sm_count: int, active_blocks: int) -> float:
    """The share of the slots for blocks that a grid fills over all its waves, 0..1: waves / ceil(waves).

    Exact where all blocks take equally long and start wave by wave; an estimate elsewhere.
    """
    slots = sm_count * active_blocks
    return blocks / (-(-blocks // slots) * slots)


def tail(blocks: int, sm_count: int, active_blocks: int) -> float | None:
    """The share of all slots that the last, partly empty wave leaves empty; None below one wave."""
    if blocks < sm_count * active_blocks:
        return None
    return 1.0 - filled_slots(blocks, sm_count, active_blocks)


def sm_share(blocks: int, sm_count: int) -> float:
    """The share of SMs that get at least one block, 0..1."""
    return min(blocks / sm_count, 1.0)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


# What can be changed about a kernel.
REGISTERS_CHANGE, SHARED_CHANGE, BLOCK_CHANGE = "registers", "shared_bytes", "block_threads"
# Registers are given out in eights per thread; with fewer than 16 hardly anything can be computed.
REGISTER_STEP, FEWEST_REGISTERS = 8, 16
SHARED_STEP = 1024
_RANKED = (BLOCK_SIZE, BLOCKS, REGISTERS, SHARED_MEMORY)


@dataclass(frozen=True)
class Config:
    """What occupancy depends on: registers per thread, shared memory and threads per block."""

    capability: tuple[int, int]
    registers: int
    shared_bytes: int
    block_threads: int

    def having(self, what: str, value: int) -> Config:
        """The same with one of the three changed."""
        return Config(**{**self.__dict__, what: value})

    @property
    def value(self) -> float:
        """Occupancy, 0..1; 0 where such a kernel could not be launched."""
        found = theoretical_occupancy(self.capability, self.registers, self.shared_bytes, self.block_threads)
        return 0.0 if found is None else found.value

    @property
    def limiter(self) -> str | None:
        """What limits it; for a kernel that could not be launched what forbids it."""
        found = theoretical_occupancy(self.capability, self.registers, self.shared_bytes, self.block_threads)
        if found is not None:
            return found.limiter
        allowed = block_limits(self.capability, self.registers, self.shared_bytes, self.block_threads)
        if allowed is None:
            return None
        return next(name for name, blocks in zip(_RANKED, allowed, strict=True) if blocks == 0)


@dataclass(frozen=True)
class Curve:
    """Occupancy over one property, the other two kept; all of one length, ``x`` rising."""

    x: tuple[int, ...]
    occupancy: tuple[float, ...]
    limiter: tuple[str | None, ...]


@dataclass(frozen=True)
class Change:
    """One property from its value now to another one."""

    what: str
    before: int
    after: int


@dataclass(frozen=True)
class NextStep:
    """Changes that together raise the occupancy, and what it is then."""

    changes: tuple[Change, ...]
    occupancy: float
    active_blocks: int


def config_of(
    capability: tuple[int, int] | None, registers: int | None, shared_bytes: int | None, block_threads: int | None
) -> Config | None:
    """The configuration of a kernel; None where its occupancy cannot be computed."""
    if theoretical_occupancy(capability, registers, shared_bytes, block_threads) is None:
        return None
    assert capability is not None and registers is not None and shared_bytes is not None and block_threads is not None
    return Config(capability, registers, shared_bytes, block_threads)


def staircase(config: Config) -> dict[str, Curve]:
    """A curve for each property, over all values that the GPU takes; the value now is always among them."""
    opt_in = LIMITS[config.capability].opt_in_bytes
    return {
        BLOCK_CHANGE: _curve(config, BLOCK_CHANGE, range(WARP, THREADS_PER_BLOCK + 1, WARP)),
        REGISTERS_CHANGE: _curve(
            config, REGISTERS_CHANGE, [*range(REGISTER_STEP, REGISTERS_PER_THREAD, REGISTER_STEP), REGISTERS_PER_THREAD]
        ),
        SHARED_CHANGE: _curve(config, SHARED_CHANGE, range(0, opt_in + 1, SHARED_STEP)),
    }


def _curve(config: Config, what: str, values: Iterable[int]) -> Curve:
    x = tuple(sorted({*values, getattr(config, what)}))
    points = [config.having(what, value) for value in x]
    return Curve(x, tuple(point.value for point in points), tuple(point.limiter for point in points))


def next_steps(config: Config) -> tuple[NextStep, ...]:
    """The smallest changes that raise the occupancy, the easiest first; empty at full occupancy or without any.

    First what the limiter asks for: fewer registers or less shared memory (both, where both are as tight) for one more
    block, or another block size where that is in the way. Then what else would help.
    """
    if config.value >= 1.0:
        return ()
    found: list[NextStep] = []
    for step in (_more_blocks(config), _other_block(config)):
        if step is not None:
            found.append(step)
    if config.limiter in (BLOCK_SIZE, BLOCKS):
        found.reverse()
    return tuple(found)


def _more_blocks(config: Config) -> NextStep | None:
    """Fewer registers, less shared memory or both: for the next number of blocks that they allow."""
    limits = block_limits(config.capability, config.registers, config.shared_bytes, config.block_threads)
    assert limits is not None
    by_warps, by_blocks, by_registers, by_shared = limits
    for wanted in range(min(limits) + 1, min(by_warps, by_blocks) + 1):
        changed, changes = config, []
        if by_registers < wanted:
            fewer = _largest(config, REGISTERS_CHANGE, config.registers - 1, FEWEST_REGISTERS, 2, wanted)
            if fewer is None:
                continue
            changed = changed.having(REGISTERS_CHANGE, fewer)
            changes.append(Change(REGISTERS_CHANGE, config.registers, fewer))
        if by_shared < wanted:
            less = _largest(config, SHARED_CHANGE, config.shared_bytes - 1, 0, 3, wanted)
            if less is None:
                continue
            changed = changed.having(SHARED_CHANGE, less)
            changes.append(Change(SHARED_CHANGE, config.shared_bytes, less))
        if changes and changed.value > config.value:
            return _step(changed, changes)
    return None


def _largest(config: Config, what: str, high: int, low: int, resource: int, wanted: int) -> int | None:
    """The largest value in low..high with which a resource allows the wanted blocks (fewer is never worse)."""

    def allows(value: int) -> bool:
        changed = config.having(what, value)
        limits = block_limits(changed.capability, changed.registers, changed.shared_bytes, changed.block_threads)
        return limits is not None and limits[resource] >= wanted

    if high < low or not allows(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if allows(middle) else (low, middle - 1)
    return low


def _other_block(config: Config) -> NextStep | None:
    """The nearest block size, in whole warps, with a higher occupancy; of two equally near ones the better."""
    sizes = [size for size in range(WARP, THREADS_PER_BLOCK + 1, WARP) if size != config.block_threads]
    better = [size for size in sizes if config.having(BLOCK_CHANGE, size).value > config.value]
    if not better:
        return None
    near = min(
        better, key=lambda size: (abs(size - config.block_threads), -config.having(BLOCK_CHANGE, size).value, size)
    )
    return _step(config.having(BLOCK_CHANGE, near), [Change(BLOCK_CHANGE, config.block_threads, near)])


def _step(config: Config, changes: list[Change]) -> NextStep:
    found = theoretical_occupancy(config.capability, config.registers, config.shared_bytes, config.block_threads)
    assert found is not None
    return NextStep(tuple(changes), found.value, found.active_blocks)
