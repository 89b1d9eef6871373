"""What the findings about kernels say beyond their shares: the next better configuration, how large a grid must be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tb_gpu_doctor.analysis.filling import GridScaling
from tb_gpu_doctor.analysis.kernel_results import KernelRow
from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.rules import low_occupancy, underfilled_gpu
from tb_gpu_doctor.report.sentences import say
from tests.diagnosis.build import kernel, profile
from tests.hosts import AnalysedFile, context_of


def h100(row: KernelRow) -> AnalysedFile:
    made = profile(1, kernels=[row])
    (device,) = made.trace.devices
    device = replace(device, compute_capability=(9, 0), sm_count=132)
    return replace(made, trace=replace(made.trace, devices=(device,)))


def low(**facts: object) -> Finding:
    facts = {"dynamic_shared_bytes": 0, **facts}
    row = replace(kernel(occupancy=0.1), **facts)  # type: ignore[arg-type]
    (finding,) = low_occupancy.check(context_of(h100(row)))
    return finding


def keys(finding: Finding) -> list[str]:
    return [phrase.key.removeprefix(f"findings.{finding.kind}.") for phrase in finding.explanation]


def test_the_next_step_is_computed_from_the_kernel() -> None:
    finding = low(registers=200, block=(256, 1, 1))
    assert keys(finding) == ["explanation", "causes.registers", "next.registers"]
    facts = finding.explanation[-1].params
    assert (facts["registers_from"], facts["registers_to"]) == (200, 128)
    assert (facts["better"], facts["blocks"]) == (0.25, 2)


def test_both_where_both_are_tight() -> None:
    finding = low(registers=168, dynamic_shared_bytes=213_504, block=(384, 1, 1), limiter="registers")
    assert keys(finding)[-1] == "next.both"
    assert set(finding.explanation[-1].params) == {
        "better", "blocks", "registers_from", "registers_to", "shared_from", "shared_to"}  # fmt: skip


def test_a_larger_block_where_the_blocks_are_too_small() -> None:
    finding = low(registers=32, block=(32, 1, 1), limiter="blocks")
    assert keys(finding)[-1] == "next.block_threads"
    assert finding.explanation[-1].params["threads_to"] == 64


def test_shared_memory() -> None:
    finding = low(registers=32, dynamic_shared_bytes=116_736, block=(256, 1, 1), limiter="shared_memory")
    assert keys(finding)[-1] == "next.shared_bytes"


def test_no_step_where_nothing_can_be_computed() -> None:
    assert keys(low(registers=None)) == ["explanation", "causes.registers"]


def test_what_works_on_tensor_cores_is_no_fault_by_its_occupancy() -> None:
    finding = low(registers=200, tensor_cores="used", family="other")
    assert finding.severity == "info" and keys(finding)[-1] == "tensor_cores"
    assert keys(low(registers=200, family="matmul"))[-1] == "by_design"


def test_the_profile_s_own_value_is_named_where_it_differs() -> None:
    finding = low(registers=200, occupancy_differs=True, recorded_occupancy=0.5)
    assert keys(finding)[-1] == "differs"
    assert "50%" in say(finding.explanation[-1], "en") and "10%" in say(finding.explanation[-1], "en")
    assert "differs" not in keys(low(registers=200, recorded_occupancy=0.5))


def small(*scaling: GridScaling, wave_blocks: int | None = 528) -> Finding:
    row = replace(kernel("k", sm_share=20 / 132), op="op", wave_blocks=wave_blocks)
    (finding,) = underfilled_gpu.check(context_of(h100(row), scaling=scaling))
    return finding


def test_how_much_larger_a_grid_must_be() -> None:
    finding = small()
    assert keys(finding) == ["explanation", "grow_wave"]
    facts = finding.explanation[-1].params
    assert facts["grow"] == pytest.approx(6.6) and facts["wave"] == pytest.approx(26.4)
    assert keys(small(wave_blocks=None)) == ["explanation", "grow"]
    assert keys(small(wave_blocks=132)) == ["explanation", "grow"]


def scaling(blocks: int = 20, *, cover: int | None = 211, fill: int | None = 845, name: str = "k") -> GridScaling:
    return GridScaling(name, "op", blocks, 2 * blocks, cover is not None, cover, fill, 1)


def test_from_which_batch_on_where_another_profile_shows_it() -> None:
    finding = small(scaling(name="another"), scaling())
    assert keys(finding) == ["explanation", "grow_wave", "batch_wave"]
    assert "211" in say(finding.explanation[-1], "en") and "845" in say(finding.explanation[-1], "es")
    assert keys(small(scaling(fill=None)))[-1] == "batch"
    assert keys(small(scaling(cover=None, fill=None)))[-1] == "batch_fixed"
    # of another kernel, or another launch of it, nothing is said
    assert keys(small(scaling(blocks=21)))[-1] == "grow_wave"
