"""A summary says what a profile could not show, and one run in three formats is one summary."""

from __future__ import annotations

import dataclasses
from itertools import permutations
from pathlib import Path

import pytest

from simulator.kineto_writer import packed
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.comparing import compare_paths, summary_of_path
from tb_gpu_doctor.comparison.check import Limits, check
from tb_gpu_doctor.comparison.compare import compare
from tb_gpu_doctor.comparison.summarize import kinds_not_shown
from tb_gpu_doctor.diagnosis.rule import kinds
from tests.comparison.summaries import read_back, summary, written
from tests.comparison.test_compare import finding, obstacles
from tests.diagnosis.build import profile
from tests.simulator.test_torch import job, xplane
from tests.stock_profiler import run_tool


def not_shown(**options: object) -> frozenset[str]:
    made = profile(1, idle={Cause.INPUT: 0.3}, **options)  # type: ignore[arg-type]
    return kinds_not_shown(made.facts)


def test_without_host_events_nothing_of_the_host_is_shown() -> None:
    assert "input_bound" in not_shown(with_host_events=False) and "sync_stall" in not_shown(with_host_events=False)
    assert "input_bound" not in not_shown()
    assert not_shown(with_host_events=False) <= kinds()


def test_few_steps_show_no_outliers() -> None:
    assert "step_outliers" in not_shown(steps=4) and "step_outliers" not in not_shown(steps=20)
    assert "step_outliers" in not_shown(steps=20, source="none")


def test_real_profiles_show_what_they_hold(demo_logs: Path) -> None:
    for name in ("healthy", "low_occupancy"):
        blind = summary_of_path(demo_logs / name).not_shown
        assert not {"low_occupancy", "underfilled_gpu", "launch_bound", "step_outliers"} & set(blind), name


@pytest.mark.parametrize("turned", [False, True])
def test_it_is_neither_solved_nor_new(turned: bool) -> None:
    told = summary(findings=(finding("underfilled_gpu"), finding("low_occupancy")))
    blind = summary(not_shown=("underfilled_gpu",))
    before, after = (blind, told) if turned else (told, blind)
    changes = {entry.kind: entry.change for entry in compare(before, after).findings}
    assert changes == {"underfilled_gpu": "cannot_tell", "low_occupancy": "new" if turned else "solved"}


def test_a_check_cannot_tell_what_is_not_shown() -> None:
    limits = Limits(kinds=("underfilled_gpu",))
    assert check(summary(), limits).status == "pass"
    result = check(summary(not_shown=("underfilled_gpu",)), limits)
    assert [(item.id, item.status) for item in result.items] == [("findings.underfilled_gpu", "cannot_tell")]
    new = check(summary(findings=(finding("underfilled_gpu"),)), Limits(), summary(not_shown=("underfilled_gpu",)))
    assert {item.id: item.status for item in new.items}["findings.underfilled_gpu"] == "cannot_tell"


def test_baselines_keep_it_and_older_ones_lack_it(tmp_path: Path) -> None:
    blind = summary(
        not_shown=("underfilled_gpu",), findings=(dataclasses.replace(finding("launch_bound"), part_of="input_bound"),)
    )
    data = written(blind)
    back = read_back(tmp_path, data)
    assert back.not_shown == ("underfilled_gpu",) and back.findings[0].part_of == "input_bound"
    del data["not_shown"], data["findings"][0]["part_of"]
    old = read_back(tmp_path, data)
    assert old.not_shown == () and old.findings[0].part_of is None


def test_the_two_formats_of_one_run_differ_in_nothing(shared_traces: Path) -> None:
    folder = shared_traces / "xla_2xgtx1080ti" / "plugins" / "profile" / "2025_02_05_11_07_48"
    if not folder.is_dir():
        pytest.skip(f"not present: {folder}")
    comparison = compare_paths(folder / "worker0.xplane.pb", folder / "worker0.trace.json.gz")
    assert (comparison.before.label, comparison.after.label) == ("worker0.xplane.pb", "worker0.trace.json.gz")
    assert {entry.change for entry in comparison.findings} == {"cannot_tell"}
    assert [kernel.kind for kernel in comparison.kernels] == ["changed"]
    assert comparison.kernels[0].difference == pytest.approx(0, abs=1e3)
    assert {"models_unknown", "no_shapes"} <= set(obstacles(comparison))


@pytest.mark.slow
def test_one_run_in_three_formats_did_not_change(tmp_path: Path) -> None:
    simulated = job("pytorch_ddp").ranks[0]
    paths = {name: tmp_path / name for name in ("worker.pt.trace.json.gz", "gpu-node-0.trace.json.gz")}
    as_xplane = xplane(simulated, tmp_path)
    paths["worker.pt.trace.json.gz"].write_bytes(packed(simulated.content()))
    paths["gpu-node-0.trace.json.gz"].write_bytes(packed(run_tool(as_xplane, "trace_viewer")))
    runs = [summary_of_path(path) for path in (*paths.values(), as_xplane)]
    assert sorted(run.format for run in runs) == ["kineto", "trace_json", "xplane"]
    assert len({run.step_count for run in runs}) == 1
    for before, after in permutations(runs, 2):
        pair = f"{before.format} {after.format}"
        comparison = compare(before, after)
        assert comparison.outcome in ("same", "inconclusive"), pair
        assert comparison.change is not None and comparison.change.value == pytest.approx(0, abs=1e-6), pair
        assert comparison.change.low <= 0 <= comparison.change.high
        for part in comparison.parts:
            assert part.after - part.before == pytest.approx(0, abs=0.002 * before.wall_ps.mean()), (pair, part.part)
        told = {entry.change for entry in comparison.findings}
        assert not told & {"solved", "new", "better", "worse"}, (pair, comparison.findings)
        assert {kernel.kind for kernel in comparison.kernels} == {"changed"}, pair
        assert sum(abs(kernel.difference) for kernel in comparison.kernels) < 1e-6 * comparison.kernel_time_before
