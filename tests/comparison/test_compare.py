"""What is said of two runs: outcome, reasons, obstacles; and that every difference adds up."""

from __future__ import annotations

import dataclasses
from io import StringIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tb_gpu_doctor.comparison.compare import Batches, Comparison, compare
from tb_gpu_doctor.comparison.kernel_changes import call_growth, grid_growth
from tb_gpu_doctor.comparison.summary import FindingSum, KernelSum, RunSummary, fold_kernels, fold_steps
from tb_gpu_doctor.report.comparison_report import comparison_dict, print_comparison
from tests.comparison.summaries import MS, summary


def noisy(mean: float, steps: int = 20, noise: float = 0.01, seed: int = 0) -> list[float]:
    return [float(v) for v in mean * (1 + noise * np.random.default_rng(seed).standard_normal(steps))]


def test_of_factors_that_weigh_the_same_that_of_the_first_kernels_counts() -> None:
    """Sets have another order in each process, answers have not."""
    for number in range(20):
        names = f"a{number}", f"b{number}"
        before, after = (
            summary(
                kernels=tuple(
                    KernelSum(name, (blocks, 1, 1), (128, 1, 1), blocks, 10 * MS)
                    for name, blocks in zip(names, grids, strict=True)
                )
            )
            for grids in ((8, 8), (8, 16))
        )
        assert grid_growth(before, after) == 1.0 and call_growth(before, after) == 1.0


def obstacles(comparison: Comparison) -> list[str]:
    return [phrase.key.rpartition(".")[2] for phrase in comparison.obstacles]


@pytest.mark.parametrize(
    ("before", "after", "outcome", "reason"),
    [
        (noisy(100), noisy(80, seed=1), "faster", "sure"),
        (noisy(100), noisy(120, seed=1), "slower", "sure"),
        (noisy(100), noisy(100.5, seed=1), "same", "same"),
        (noisy(100, noise=0.3), noisy(108, noise=0.3, seed=1), "inconclusive", "noise"),
        (noisy(100, noise=0.02), noisy(104.6, noise=0.02, seed=5), "inconclusive", "small"),
        (noisy(100, 3), noisy(50, 3), "inconclusive", "few_steps"),
        (noisy(100, 1), noisy(50, 1), "inconclusive", "few_steps"),
        (noisy(100), [], "inconclusive", "no_steps"),
    ],
)  # fmt: skip
def test_the_outcome_needs_size_and_certainty(
    before: list[float], after: list[float], outcome: str, reason: str
) -> None:
    comparison = compare(summary(before), summary(after))
    assert comparison.outcome == outcome
    assert [phrase.key.rpartition(".")[2] for phrase in comparison.reasons] == [reason]


def test_turning_the_runs_around_turns_the_outcome_around() -> None:
    before, after = summary(noisy(100)), summary(noisy(80, seed=1))
    assert (compare(before, after).outcome, compare(after, before).outcome) == ("faster", "slower")


def test_other_gpus_and_other_batches_are_said_loudly() -> None:
    run, fast = summary(noisy(100)), noisy(60, seed=1)
    other = compare(run, summary(fast, models=("GPU Y", "GPU Y")))
    assert other.outcome == "not_comparable" and "models" in obstacles(other)
    fewer = compare(run, summary(fast, models=("GPU X",)))
    assert fewer.outcome == "not_comparable" and "gpu_count" in obstacles(fewer)
    blind = compare(run, summary([], models=(), verdict="cannot_tell"))
    assert blind.outcome == "not_comparable" and obstacles(blind) == ["no_gpu_work"]
    wider = (
        KernelSum("gemm", (128, 1, 1), (128, 1, 1), 10, 60 * MS),
        KernelSum("relu", (64, 1, 1), (256, 1, 1), 20, 10 * MS),
    )
    grown = compare(run, summary(noisy(160), kernels=wider))
    assert grown.outcome == "not_comparable" and obstacles(grown)[0] == "grids"


def test_known_batches_make_times_per_sample() -> None:
    # twice the batch in 1.6 times the time is faster
    comparison = compare(summary(noisy(100), batch=64), summary(noisy(160, seed=1), batch=128))
    assert (comparison.unit, comparison.outcome) == ("sample", "faster")
    assert comparison.change is not None and comparison.change.value == pytest.approx(-0.2, abs=0.02)
    assert comparison.time_before == pytest.approx(100 * MS / 64, rel=0.01)
    stated = compare(summary(noisy(100)), summary(noisy(160, seed=1)), Batches(64, 128))
    assert (stated.unit, stated.outcome) == ("sample", "faster")
    fewer = compare(summary(noisy(100), batch=64), summary(noisy(150, seed=1), batch=64, models=("GPU X",)))
    assert (fewer.unit, fewer.outcome, obstacles(fewer)) == ("sample", "slower", ["gpu_count_normalised"])


def test_what_the_profiler_spoils_is_named() -> None:
    comparison = compare(summary(), summary(label="after", doubts=("serialized_kernels",)))
    assert "findings.serialized_kernels.obstacle" in [phrase.key for phrase in comparison.obstacles]
    assert "batch_unknown" not in obstacles(compare(summary(batch=8), summary(batch=8)))
    strange = (KernelSum("other", (1, 1, 1), (32, 1, 1), 1, MS),)
    assert "few_common" in obstacles(compare(summary(), summary(kernels=strange)))


@st.composite
def runs(draw: st.DrawFn) -> RunSummary:
    steps = draw(st.lists(st.floats(1, 1000), min_size=0, max_size=8))
    names = draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=5))
    kernels = tuple(
        KernelSum(name, (draw(st.integers(1, 9)), 1, 1), (32, 1, 1), draw(st.integers(1, 50)), draw(st.floats(1, 1e10)))
        for name in names
    )
    return summary(steps, kernels=kernels, batch=draw(st.sampled_from([None, 8, 16])))


@given(runs(), runs())
def test_every_difference_adds_up(before: RunSummary, after: RunSummary) -> None:
    comparison = compare(before, after)
    moved = sum(kernel.difference for kernel in comparison.kernels)
    if (before.step_source == "none") == (after.step_source == "none"):
        total = comparison.kernel_time_after - comparison.kernel_time_before
        assert moved == pytest.approx(total, rel=1e-9, abs=1e-3)
    if comparison.time_before is not None and comparison.time_after is not None:
        parts = sum(part.after - part.before for part in comparison.parts)
        assert parts == pytest.approx(comparison.time_after - comparison.time_before, rel=1e-6, abs=1.0)
        for part in comparison.parts:
            if part.difference is not None:
                assert part.difference.low <= part.difference.value <= part.difference.high


def finding(kind: str, severity: str = "warning", saving_ms: float | None = 10.0) -> FindingSum:
    saving = None if saving_ms is None else saving_ms * MS
    return FindingSum(kind, None, severity, 0.1, saving)


def test_findings_are_solved_new_better_worse_or_the_same() -> None:
    before = summary(
        findings=(
            finding("input_bound"),
            finding("launch_bound"),
            finding("imbalance", "critical"),
            finding("sync_stall"),
        )
    )
    after = summary(
        findings=(
            finding("launch_bound", saving_ms=10.5), finding("imbalance", saving_ms=9),
            finding("sync_stall", saving_ms=30), finding("transfer_bound"),
        )
    )  # fmt: skip
    changes = {entry.kind: entry.change for entry in compare(before, after).findings}
    assert changes == {
        "input_bound": "solved", "transfer_bound": "new", "sync_stall": "worse",
        "imbalance": "better", "launch_bound": "unchanged",
    }  # fmt: skip
    blind = summary([], verdict="cannot_tell", models=())
    assert {entry.change for entry in compare(before, blind).findings} == {"cannot_tell"}


def test_long_runs_are_folded_without_moving_the_mean() -> None:
    random = np.random.default_rng(0)
    parts = random.uniform(1, 2, (4096, 3))
    wall, folded = fold_steps(parts.sum(axis=1), parts, 512)
    assert len(wall) == 512 and wall.mean() == pytest.approx(parts.sum(axis=1).mean())
    np.testing.assert_allclose(folded.sum(axis=1), wall)
    rows = [KernelSum(f"k{i}", None, None, 1, float(i)) for i in range(1000)]
    few = fold_kernels(rows, 10)
    assert len(few) == 10 and few[0].name == "k999" and few[-1].name == ""
    assert sum(row.total_ps for row in few) == sum(row.total_ps for row in rows)
    assert dataclasses.replace(few[0]) == few[0]


def test_costs_are_per_sample_where_times_are() -> None:
    # twice the batch: the same cost per sample is twice that of a step
    before = summary(noisy(100), batch=64, findings=(FindingSum("input_bound", None, "warning", None, 20.0 * MS),))
    after = summary(
        noisy(200, seed=1), batch=128, findings=(FindingSum("input_bound", None, "warning", None, 40.0 * MS),)
    )
    comparison = compare(before, after)
    (found,) = comparison.findings
    assert comparison.unit == "sample" and found.change == "unchanged"
    assert found.cost_before == found.cost_after == pytest.approx(20.0 * MS / 64)


@pytest.mark.parametrize(
    ("kind", "before", "after", "change"),
    [
        ("thermal_throttle", {"telemetry": {"power_watts": 1.0}}, {}, "cannot_tell"),
        ("thermal_throttle", {"telemetry": {"power_watts": 1.0}}, {"telemetry": {"power_watts": 1.0}}, "solved"),
        ("memory_pressure", {}, {}, "solved"),  # told by the profile
        ("low_utilization", {"models": (), "format": "telemetry"}, {}, "cannot_tell"),
        ("input_bound", {}, {"models": (), "format": "telemetry", "verdict": "warning"}, "cannot_tell"),
        ("input_bound", {}, {}, "solved"),
    ],
)  # fmt: skip
def test_what_the_other_run_could_not_show_is_not_solved(
    kind: str, before: dict[str, Any], after: dict[str, Any], change: str
) -> None:
    found = compare(summary(findings=(finding(kind),), **before), summary(**after)).findings
    assert [entry.change for entry in found] == [change]
    turned = compare(summary(**after), summary(findings=(finding(kind),), **before)).findings
    assert [entry.change for entry in turned] == ["new" if change == "solved" else change]


def test_inferred_steps_are_compared_with_marked_ones_only_if_they_hold_as_many_kernels() -> None:
    marked, inferred = summary(noisy(100)), summary(noisy(98, seed=1), step_source="inferred")
    alike = compare(marked, inferred)
    assert alike.outcome == "same" and "step_sources" in obstacles(alike)
    halves = tuple(dataclasses.replace(row, calls=row.calls / 2, total_ps=row.total_ps / 2) for row in marked.kernels)
    other = compare(marked, summary(noisy(50, seed=1), step_source="inferred", kernels=halves))
    assert other.outcome == "not_comparable" and "other_steps" in obstacles(other)


@pytest.mark.parametrize("kind", ["serialized_kernels", "profiler_overhead"])
def test_a_run_that_the_profiler_made_slower_is_not_called_slower(kind: str) -> None:
    slow, fast = summary(noisy(120, seed=1), doubts=(kind,)), summary(noisy(100))
    for before, after in ((fast, slow), (slow, fast), (summary(noisy(120)), slow)):
        comparison = compare(before, after)
        assert comparison.outcome == "inconclusive"
        assert [phrase.key for phrase in comparison.reasons] == [f"findings.{kind}.obstacle"]
    quick = summary(noisy(80, seed=1), doubts=(kind,))
    assert compare(fast, quick).outcome == "faster", "even so it is the faster one"
    assert compare(slow, summary(noisy(150), doubts=(kind,))).outcome == "slower", "both alike"


def test_a_run_without_launch_shapes_is_matched_by_name_alone() -> None:
    one = KernelSum("gemm", (64, 1, 1), (128, 1, 1), 10, 60 * MS, 0.5)
    other = KernelSum("gemm", (8, 1, 1), (128, 1, 1), 2, 20 * MS, 0.9)
    shaped = summary(kernels=(one, other, KernelSum("relu", (9, 1, 1), (64, 1, 1), 1, MS)))
    bare = summary(kernels=(KernelSum("gemm", None, None, 12, 100 * MS, 0.7), KernelSum("tanh", None, None, 1, MS)))
    comparison = compare(shaped, bare)
    assert "no_shapes" in obstacles(comparison)
    found = {kernel.name: (kernel.kind, kernel.before, kernel.after) for kernel in comparison.kernels}
    assert found == {
        "gemm": ("changed", 80 * MS, 100 * MS), "relu": ("gone", MS, 0.0), "tanh": ("added", 0.0, MS),
    }  # fmt: skip
    (gemm,) = (kernel for kernel in comparison.kernels if kernel.name == "gemm")
    assert gemm.occupancy_before == pytest.approx(0.6) and gemm.calls_before == 12
    total = comparison.kernel_time_after - comparison.kernel_time_before
    assert sum(kernel.difference for kernel in comparison.kernels) == pytest.approx(total)
    assert "no_shapes" not in obstacles(compare(bare, bare)) and "no_shapes" not in obstacles(compare(shaped, shaped))


def test_gpus_without_a_name_are_said_and_compared_all_the_same() -> None:
    unnamed = summary(noisy(80, seed=1), models=(None, None))
    comparison = compare(summary(noisy(100)), unnamed)
    assert comparison.outcome == "faster" and "models_unknown" in obstacles(comparison)
    assert "models_unknown" not in obstacles(compare(summary(), summary()))


def test_what_forbids_a_verdict_is_said_first() -> None:
    unnamed = summary(noisy(80, seed=1), models=(None,))
    comparison = compare(summary(noisy(100)), unnamed)
    assert comparison.outcome == "not_comparable" and obstacles(comparison)[:2] == ["gpu_count", "models_unknown"]
    # Hardly a kernel in common, and nothing says that the GPU is the same.
    strange = (KernelSum("other", (64, 1, 1), (128, 1, 1), 1, MS),)
    stranger = compare(summary(noisy(100)), summary(noisy(80, seed=1), models=(None, None), kernels=strange))
    assert stranger.outcome == "not_comparable" and obstacles(stranger)[0] == "few_common"
    assert compare(summary(noisy(100)), summary(noisy(80, seed=1), kernels=strange)).outcome == "faster"


def test_kernels_that_take_a_smaller_part_of_longer_steps_are_not_better() -> None:
    # 30 % of 100 ms is 20 % of 150 ms, whatever severity that gives.
    before = summary(noisy(100), findings=(FindingSum("low_occupancy", None, "warning", 0.3, None),))
    after = summary(noisy(150, seed=1), findings=(FindingSum("low_occupancy", None, "info", 0.2, None),))
    assert [entry.change for entry in compare(before, after).findings] == ["unchanged"]
    more = summary(noisy(150, seed=1), findings=(FindingSum("low_occupancy", None, "warning", 0.3, None),))
    assert [entry.change for entry in compare(before, more).findings] == ["worse"]
    # Without steps there are shares only.
    apart = [summary([], findings=(FindingSum("low_occupancy", None, "info", share, None),)) for share in (0.3, 0.2)]
    assert [entry.change for entry in compare(*apart).findings] == ["better"]


def test_kernels_among_the_many_short_ones_are_neither_gone_nor_new() -> None:
    random = np.random.default_rng(3)
    names = [f"k{index}" for index in range(500)]
    old, new = (
        fold_kernels(
            [KernelSum(name, None, None, 1, float(time) * MS) for name, time in zip(names, times, strict=True)]
        )
        for times in (random.uniform(1, 2, 500), random.uniform(1, 2, 500))
    )
    before, after = summary(kernels=old), summary(kernels=(*new, KernelSum("fresh", None, None, 1, 90.0 * MS)))
    comparison = compare(before, after)
    (rest,) = (kernel for kernel in comparison.kernels if not kernel.name)
    assert rest.kind == "changed" and next(k.name for k in comparison.kernels if k.kind == "added") == "fresh"
    assert sum(kernel.difference for kernel in comparison.kernels) == pytest.approx(
        comparison.kernel_time_after - comparison.kernel_time_before
    )
    short = {row.name: row.total_ps for row in old}
    least_new = min(row.total_ps for row in new if row.name)
    for kernel in comparison.kernels:
        if kernel.kind == "gone":
            assert short[kernel.name] > least_new, "it was longer than what the other run lists"


@pytest.mark.parametrize(("lang", "words"), [("en", "(part of: Input too slow)"), ("es", "(parte de: Entrada")])
def test_what_is_told_as_a_part_is_called_so(lang: str, words: str) -> None:
    part = dataclasses.replace(finding("launch_bound"), part_of="input_bound")
    before = summary(findings=(finding("launch_bound"), finding("step_outliers")))
    comparison = compare(before, summary(findings=(finding("input_bound"), part)))
    changes = {entry.kind: entry.change for entry in comparison.findings}
    assert changes == {"input_bound": "new", "launch_bound": "unchanged", "step_outliers": "solved"}
    out = StringIO()
    print_comparison(comparison, Console(file=out, width=120), lang)
    assert words in out.getvalue()
    told = {entry["kind"]: entry["part_of_after"] for entry in comparison_dict(comparison, lang)["findings"]}
    assert told == {"input_bound": None, "launch_bound": "input_bound", "step_outliers": None}
