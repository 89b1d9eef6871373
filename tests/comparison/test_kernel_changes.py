"""From which batch on the GPU is filled: by hand, and as the kernels command says it of the same profiles."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.device import Kernel
from simulator.faults.bases import base
from simulator.faults.setup import simulate
from simulator.items import Graph
from simulator.models import Item
from simulator.scenarios import SimulatedRun
from tb_gpu_doctor.cli.main import main
from tb_gpu_doctor.comparison.compare import Batches, compare
from tb_gpu_doctor.comparison.kernel_changes import batch_grids
from tb_gpu_doctor.comparison.summary import KernelSum, RunSummary
from tb_gpu_doctor.report.comparison_report import comparison_dict
from tests.comparison.summaries import MS, summary

SMS = 132


def run(*kernels: KernelSum, **changes: object) -> RunSummary:
    return summary(kernels=kernels, sm_count=SMS, **changes)


def gemm(blocks: int, wave: int | None = 2 * SMS) -> KernelSum:
    return KernelSum("gemm", (blocks, 1, 1), (128, 1, 1), 10, 60 * MS, 0.5, wave)


def test_the_batch_that_fills_the_grid_by_hand() -> None:
    # 2 blocks a sample: 132 need 66 samples, 264 need 132
    found = batch_grids(run(gemm(32)), run(gemm(64)), 16, 32)
    assert found is not None
    (entry,) = found.kernels
    assert (entry.blocks, entry.other_blocks, entry.block_per_sm_batch, entry.full_wave_batch) == (32, 64, 66, 132)
    # 10 blocks whatever the batch, and 2 a sample
    (entry,) = batch_grids(run(gemm(42)), run(gemm(74)), 16, 32).kernels  # type: ignore[union-attr]
    assert entry.block_per_sm_batch == 61
    (entry,) = batch_grids(run(gemm(32)), run(gemm(32)), 16, 32).kernels  # type: ignore[union-attr]
    assert not entry.scales and entry.block_per_sm_batch is None


@given(st.integers(1, 60), st.integers(1, 4), st.integers(0, 20), st.integers(2, 5))
def test_the_batch_is_the_least_that_fills(batch: int, each: int, fixed: int, times: int) -> None:
    def blocks(samples: int) -> int:
        return fixed + each * samples

    found = batch_grids(run(gemm(blocks(batch))), run(gemm(blocks(batch * times))), batch, batch * times)
    if blocks(batch) >= SMS:
        assert found is None
        return
    assert found is not None
    needed = found.kernels[0].block_per_sm_batch
    if needed is None:
        assert each * batch < 0.5 * blocks(batch), "hardly grows"
    else:
        assert blocks(needed) >= SMS and (needed == 1 or blocks(needed - 1) < SMS)


@pytest.mark.parametrize(
    ("before", "after", "batches"),
    [
        (run(gemm(32)), run(gemm(64)), (16, 16)),
        (run(gemm(32)), run(gemm(64)), (16, None)),
        (run(gemm(32)), run(gemm(64), models=("GPU X",)), (16, 32)),
        (run(gemm(32)), run(gemm(64), models=("GPU Y", "GPU Y")), (16, 32)),
        (run(gemm(32)), summary(kernels=(gemm(64),)), (16, 32)),
        (run(gemm(200)), run(gemm(400)), (16, 32)),
        (run(gemm(32)), run(KernelSum("other", (64, 1, 1), (128, 1, 1), 1, MS)), (16, 32)),
        (run(gemm(32), replace(gemm(40), total_ps=MS)), run(gemm(64)), (16, 32)),
        (run(replace(gemm(32), grid=None)), run(replace(gemm(64), grid=None)), (16, 32)),
    ],
)
def test_what_two_batches_do_not_tell_is_not_said(
    before: RunSummary, after: RunSummary, batches: tuple[int | None, int | None]
) -> None:
    assert batch_grids(before, after, *batches) is None


def test_it_is_said_in_every_form() -> None:
    comparison = compare(run(gemm(32), batch=16), run(gemm(64)), Batches(after=32))
    for lang, words in (("en", "From a batch of 66 on each gets a block, from 132 on"), ("es", "de un lote de 66")):
        data = comparison_dict(comparison, lang)
        assert words in data["grids"]["kernels"][0]["sentence"] and data["grids"]["multiprocessors"] == SMS
    assert comparison_dict(compare(run(gemm(32), batch=16), run(gemm(64), batch=16)))["grids"] is None


def wider(setup_batch: int) -> SimulatedRun:
    """A simulated run whose kernels have three blocks a sample."""
    setup = base("jax", 1, "large", 8, Random(3))
    before = setup.model

    def grown(item: Item) -> Item:
        if isinstance(item, Graph):
            return replace(item, kernels=tuple(grown(kernel) for kernel in item.kernels))  # type: ignore[misc]
        return replace(item, grid=(3 * setup_batch, 1, 1)) if isinstance(item, Kernel) and not item.copy else item

    def model(replica: int) -> Iterable[Item]:
        return [grown(item) for item in before(replica)]

    made = simulate(replace(setup, model=model), "run", 5)
    assert isinstance(made, SimulatedRun)
    return made


def test_the_kernels_command_says_the_same_batches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for batch in (8, 16):
        folder = tmp_path / str(batch) / "plugins" / "profile" / "2026_01_01_00_00_00"
        folder.mkdir(parents=True)
        (folder / "a.xplane.pb").write_bytes(wider(batch).space.encode())
        paths.append(str(tmp_path / str(batch)))
    one, other = paths
    assert main(["kernels", one, "--batch-size", "8", "--compare", other, "--compare-batch-size", "16", "--json"]) == 0
    told = {e["name"]: e["block_per_sm_batch"] for e in json.loads(capsys.readouterr().out)["grid_scaling"]}
    assert main(["compare", one, other, "--batch-before", "8", "--batch-after", "16", "--json"]) == 0
    grids = json.loads(capsys.readouterr().out)["grids"]
    found = {entry["name"]: entry["batch"] for entry in grids["kernels"]}
    assert found and set(found.values()) == {44}, "three blocks a sample, 132 multiprocessors"
    assert found.items() <= told.items()
    # A baseline in place of the first profile knows as much.
    assert main(["baseline", one, "-o", str(tmp_path / "b.json")]) == 0
    arguments = [str(tmp_path / "b.json"), other, "--batch-before", "8", "--batch-after", "16", "--lang", "en"]
    capsys.readouterr()
    assert main(["compare", *arguments]) == 0
    assert "From a batch of 44 on each gets a block" in " ".join(capsys.readouterr().out.split())
