"""The staircase and its next step against trying every value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.occupancy import LIMITS, THREADS_PER_BLOCK, WARP, theoretical_occupancy
from tb_gpu_doctor.analysis.staircase import (
    FEWEST_REGISTERS,
    Change,
    Config,
    config_of,
    next_steps,
    staircase,
)

CONFIGS = st.builds(
    Config,
    st.sampled_from(sorted(LIMITS)),
    st.integers(1, 255),
    st.integers(0, 232_448),
    st.integers(1, 1024),
).filter(lambda config: config.value > 0)


@given(CONFIGS)
def test_curves_are_the_formula_and_fall_where_they_must(config: Config) -> None:
    curves = staircase(config)
    assert set(curves) == {"block_threads", "registers", "shared_bytes"}
    for what, curve in curves.items():
        assert list(curve.x) == sorted(set(curve.x)) and getattr(config, what) in curve.x
        assert len(curve.x) == len(curve.occupancy) == len(curve.limiter)
        for x, value, limiter in zip(curve.x, curve.occupancy, curve.limiter, strict=True):
            changed = config.having(what, x)
            found = theoretical_occupancy(
                changed.capability, changed.registers, changed.shared_bytes, changed.block_threads
            )
            assert value == (0.0 if found is None else found.value)
            assert (limiter is None) == (value == 1.0)
            if found is not None:
                assert limiter == found.limiter
        if what != "block_threads":
            assert list(curve.occupancy) == sorted(curve.occupancy, reverse=True)


def blocks(config: Config) -> int:
    found = theoretical_occupancy(config.capability, config.registers, config.shared_bytes, config.block_threads)
    return 0 if found is None else found.active_blocks


@given(CONFIGS)
def test_next_steps_are_the_nearest(config: Config) -> None:
    steps = next_steps(config)
    if config.value >= 1:
        assert steps == ()
    for step in steps:
        changed = config
        for change in step.changes:
            assert change.before == getattr(config, change.what) != change.after
            changed = changed.having(change.what, change.after)
        assert step.occupancy == changed.value > config.value
        assert step.active_blocks == blocks(changed)
        if step.changes[0].what == "block_threads":
            near = abs(step.changes[0].after - config.block_threads)
            assert step.changes[0].after % WARP == 0
            closer = [s for s in range(WARP, THREADS_PER_BLOCK + 1, WARP) if abs(s - config.block_threads) < near]
            assert all(config.having("block_threads", size).value <= config.value for size in closer)
        else:
            assert step.active_blocks > blocks(config)
            # One register, or byte, more of any of the changes, and the block no longer fits.
            for change in step.changes:
                assert change.after < change.before
                assert blocks(changed.having(change.what, change.after + 1)) < step.active_blocks
    single = [step.changes[0].what for step in steps if len(step.changes) == 1]
    # Where fewer registers alone would help, and stay sensible, that is found; the same for shared memory.
    if "registers" not in single and not any(len(step.changes) == 2 for step in steps):
        best = config.having("registers", min(FEWEST_REGISTERS, config.registers))
        assert best.value <= config.value
    if "shared_bytes" not in single and not any(len(step.changes) == 2 for step in steps):
        assert config.having("shared_bytes", 0).value <= config.value


def test_a_hand_made_example() -> None:
    # H100: 65,536 registers, 40 x 256 threads = 10,240 a block: six blocks; 32 registers: eight, the most.
    config = config_of((9, 0), 40, 0, 256)
    assert config is not None and config.value == 0.75
    (step, *_) = next_steps(config)
    assert step.changes == (Change("registers", 40, 32),) and (step.occupancy, step.active_blocks) == (1.0, 8)


def test_both_resources_where_both_are_tight() -> None:
    # One block of either: registers 168 x 384 and 208.5 KiB of shared memory.
    config = config_of((9, 0), 168, 213_504, 384)
    assert config is not None
    (step, *_) = next_steps(config)
    assert {change.what for change in step.changes} == {"registers", "shared_bytes"}
    assert step.active_blocks == 2


def test_small_blocks_must_grow() -> None:
    # 32 blocks of one warp fill half of an H100's SM: a block of two warps is the next step.
    config = config_of((9, 0), 32, 0, 32)
    assert config is not None and (config.value, config.limiter) == (0.5, "blocks")
    (step, *_) = next_steps(config)
    assert step.changes == (Change("block_threads", 32, 64),) and step.occupancy == 1.0


@pytest.mark.parametrize(
    "facts",
    [
        (None, 32, 0, 128), ((3, 5), 32, 0, 128), ((9, 0), None, 0, 128), ((9, 0), 32, None, 128),
        ((9, 0), 32, 0, None), ((9, 0), 900, 0, 128), ((9, 0), 32, 1 << 20, 128),
    ],
)  # fmt: skip
def test_what_cannot_be_computed_has_no_staircase(facts: tuple[object, ...]) -> None:
    assert config_of(*facts) is None  # type: ignore[arg-type]
