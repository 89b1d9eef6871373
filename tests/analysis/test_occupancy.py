"""Occupancy against NVIDIA's own answers (``cuda_occupancy.h``) and against a brute-force count.

The staircase and its next step against trying every value.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.occupancy import (
    FEWEST_REGISTERS,
    LIMITS,
    THREADS_PER_BLOCK,
    WARP,
    Change,
    Config,
    block_limits,
    config_of,
    next_steps,
    sm_share,
    staircase,
    theoretical_occupancy,
    waves,
)

SAMPLE = Path(__file__).parents[1] / "data" / "occupancy_golden_sample.csv"
FULL = Path(__file__).parents[3] / "shared" / "facts" / "occupancy_golden.csv"
RANKED = ("block_size", "blocks", "registers", "shared_memory")


def check_against_header(path: Path) -> int:
    with path.open(newline="") as file:
        rows = [{key: int(value) for key, value in row.items()} for row in csv.DictReader(file)]
    for row in rows:
        capability = row["cc_major"], row["cc_minor"]
        registers, threads = row["registers_per_thread"], row["block_threads"]
        shared = row["static_shared_bytes"] + row["dynamic_shared_bytes"]
        expected = (
            row["limit_by_warps"],
            row["limit_by_blocks"],
            row["limit_by_registers"],
            row["limit_by_shared_memory"],
        )
        assert block_limits(capability, registers, shared, threads) == expected, row
        ours = theoretical_occupancy(capability, registers, shared, threads)
        active = row["active_blocks_per_sm"]
        if active == 0:
            assert ours is None, row
            continue
        assert ours is not None, row
        assert ours.active_blocks == active, row
        resident, available = active * ((threads + 31) // 32), LIMITS[capability].warps
        assert ours.value == resident / available, row
        tightest = [name for name, limit in zip(RANKED, expected, strict=True) if limit == active]
        assert ours.limiter == (tightest[0] if resident < available else None), row
    return len(rows)


def test_sample_of_the_header_s_answers() -> None:
    assert check_against_header(SAMPLE) == 400


def test_all_answers_of_the_header() -> None:
    if not FULL.is_file():
        pytest.skip(f"{FULL} not present")
    assert check_against_header(FULL) == 4000


@given(
    capability=st.sampled_from(sorted(LIMITS)),
    registers=st.integers(1, 255),
    shared=st.integers(0, 120_000),
    threads=st.integers(1, 1024),
)
def test_brute_force_placement(capability: tuple[int, int], registers: int, shared: int, threads: int) -> None:
    """Put block after block on one SM until something runs out."""
    limits = LIMITS[capability]
    warps = (threads + 31) // 32
    portion = (registers * 32 + 255) // 256 * 256
    counted_warps = (warps + 3) // 4 * 4
    ours = theoretical_occupancy(capability, registers, shared, threads)
    if shared > limits.opt_in_bytes or portion * counted_warps > limits.registers_per_block:
        assert ours is None
        return
    need = shared + limits.reserved_bytes
    need += -need % limits.shared_unit
    warp_slots = 65536 // limits.partitions // portion * limits.partitions
    placed = 0
    while (
        (placed + 1) * warps <= min(limits.warps, warp_slots)
        and placed + 1 <= limits.blocks
        and (placed + 1) * need <= limits.shared_bytes
    ):
        placed += 1
    assert ours is not None
    assert ours.active_blocks == placed
    assert 0 < ours.value <= 1
    assert (ours.limiter is None) == (ours.value == 1)


@given(capability=st.sampled_from(sorted(LIMITS)), registers=st.integers(1, 254), threads=st.integers(1, 1024))
def test_fewer_registers_never_hurt(capability: tuple[int, int], registers: int, threads: int) -> None:
    less = theoretical_occupancy(capability, registers, 0, threads)
    more = theoretical_occupancy(capability, registers + 1, 0, threads)
    assert more is None or (less is not None and less.value >= more.value)


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "value", "limiter"),
    [
        (32, 0, 256, 1.0, None),
        (64, 0, 256, 0.5, "registers"),
        (32, 80 * 1024, 256, 0.25, "shared_memory"),
        (16, 0, 32, 0.5, "blocks"),
        (16, 0, 768, 0.75, "block_size"),
        (40, 0, 768, 0.75, "block_size"),  # registers allow no more either, but fewer of them would not help
    ],
)
def test_limiters_on_a100(registers: int, shared: int, threads: int, value: float, limiter: str | None) -> None:
    occupancy = theoretical_occupancy((8, 0), registers, shared, threads)
    assert occupancy is not None
    assert (occupancy.value, occupancy.limiter) == (value, limiter)


@pytest.mark.parametrize("capability", [None, (9, 4), (9, 5), (5, 2), (13, 0), (-1, -1)])
def test_unknown_capability_has_no_answer(capability: tuple[int, int] | None) -> None:
    assert theoretical_occupancy(capability, 32, 0, 256) is None


def test_unknown_or_impossible_arguments_have_no_answer() -> None:
    assert theoretical_occupancy((8, 0), None, 0, 256) is None
    assert theoretical_occupancy((8, 0), 32, None, 256) is None
    assert theoretical_occupancy((8, 0), 32, 0, None) is None
    assert theoretical_occupancy((8, 0), 256, 0, 32) is None
    assert theoretical_occupancy((8, 0), 0, 0, 32) is None
    assert theoretical_occupancy((8, 0), 32, -1, 32) is None
    assert theoretical_occupancy((8, 0), 32, 0, 1025) is None
    assert theoretical_occupancy((8, 0), 32, 0, 0) is None
    assert theoretical_occupancy((8, 0), 32, 163 * 1024 + 1, 32) is None


def test_filling_the_chip() -> None:
    assert waves(blocks=432, sm_count=108, active_blocks=2) == 2.0
    assert waves(blocks=54, sm_count=108, active_blocks=1) == 0.5
    assert sm_share(blocks=54, sm_count=108) == 0.5
    assert sm_share(blocks=1000, sm_count=108) == 1.0


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
