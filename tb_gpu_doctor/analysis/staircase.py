"""The staircase of occupancy around one kernel, and the nearest step up: computed with `occupancy`, not guessed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tb_gpu_doctor.analysis.occupancy import (
    BLOCK_SIZE,
    BLOCKS,
    LIMITS,
    REGISTERS,
    REGISTERS_PER_THREAD,
    SHARED_MEMORY,
    THREADS_PER_BLOCK,
    WARP,
    block_limits,
    theoretical_occupancy,
)

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
