"""Grids at two batch sizes against grids that are made from a batch size."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.grid_scaling import grid_scaling
from tb_gpu_doctor.analysis.kernel_results import KernelRow
from tests.diagnosis.build import kernel

SMS, WAVE = 132, 528


def row(name: str, blocks: int, **more: object) -> KernelRow:
    made = replace(kernel(name), grid=(blocks, 1, 1), wave_blocks=WAVE, op="op")
    return replace(made, **more)  # type: ignore[arg-type]


@given(st.integers(1, 64), st.integers(1, 64), st.integers(0, 40), st.integers(1, 9))
def test_the_batch_found_is_the_smallest_that_fills(batch: int, other: int, fixed: int, per_example: int) -> None:
    if batch == other or fixed > per_example * batch:
        return

    def blocks(of: int) -> int:
        return fixed + per_example * of

    (found,) = grid_scaling([row("k", blocks(batch))], [row("k", blocks(other))], batch, other, SMS)
    assert found.scales
    for wanted, answer in ((SMS, found.block_per_sm_batch), (WAVE, found.full_wave_batch)):
        assert answer is not None and answer >= 1
        assert blocks(answer) >= wanted and (answer == 1 or blocks(answer - 1) < wanted)


def test_a_fixed_grid_does_not_scale() -> None:
    (found,) = grid_scaling([row("k", 20)], [row("k", 20)], 8, 16, SMS)
    assert (found.scales, found.block_per_sm_batch, found.full_wave_batch) == (False, None, None)
    # nor does one that grows by a tenth when the batch doubles
    (found,) = grid_scaling([row("k", 20)], [row("k", 22)], 8, 16, SMS)
    assert not found.scales


def test_what_cannot_be_compared_is_left_out() -> None:
    ours = [
        row("one", 8), row("two", 8), row("two", 9), row("persistent", 8, persistent=True),
        row("nccl", 8, family="communication"), row("unknown", 8, grid=None), row("only ours", 8),
        row("other op", 8, op="a"), row("other block", 8, block=(64, 1, 1)),
    ]  # fmt: skip
    theirs = [
        row("one", 16), row("two", 16), row("two", 18), row("persistent", 16, persistent=True),
        row("nccl", 16, family="communication"), row("unknown", 16, grid=None), row("only theirs", 16),
        row("other op", 16, op="b"), row("other block", 16),
    ]  # fmt: skip
    assert [found.name for found in grid_scaling(ours, theirs, 1, 2, SMS)] == ["one"]
    (found,) = grid_scaling([row("one", 8, wave_blocks=None)], [row("one", 16)], 1, 2, None)
    assert (found.scales, found.block_per_sm_batch, found.full_wave_batch) == (True, None, None)


def test_the_gpus_of_a_profile_repeat_a_kernel() -> None:
    ours = [row("k", 8, device=0), row("k", 8, device=1, total_ps=5)]
    (found,) = grid_scaling(ours, [row("k", 16)], 1, 2, SMS)
    assert found.total_ps == max(entry.total_ps for entry in ours)


@pytest.mark.parametrize(("batch", "other"), [(0, 1), (1, 0), (-1, 2), (3, 3)])
def test_batch_sizes_that_tell_nothing(batch: int, other: int) -> None:
    with pytest.raises(ValueError, match="batch sizes"):
        grid_scaling([], [], batch, other, SMS)
