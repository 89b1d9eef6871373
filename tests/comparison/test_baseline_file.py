"""Baselines come back as they were written, and anything else is refused with one clear error."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from tb_gpu_doctor.comparing import summary_of_path
from tb_gpu_doctor.comparison import baseline_file
from tb_gpu_doctor.comparison.check import Limits, check
from tb_gpu_doctor.comparison.compare import compare
from tb_gpu_doctor.comparison.summary import TELEMETRY, KernelSum
from tb_gpu_doctor.errors import DocumentError
from tb_gpu_doctor.report.check_report import FORMATS
from tb_gpu_doctor.report.comparison_report import comparison_dict, print_comparison
from tb_gpu_doctor.texts import has_text
from tests.comparison.summaries import MS, read_back, summary, written


def test_a_demo_survives_the_file(demo_logs: Path, tmp_path: Path) -> None:
    original = summary_of_path(demo_logs / "slow_gpu")
    path = tmp_path / "baseline.json"
    path.write_text(baseline_file.to_json(original), encoding="utf-8")
    assert baseline_file.is_baseline(str(path))
    back = summary_of_path(path)
    np.testing.assert_allclose(back.wall_ps, original.wall_ps, atol=1e3)
    np.testing.assert_allclose(back.parts_ps.sum(axis=1), back.wall_ps, atol=2e4)
    assert back.findings[0].kind == original.findings[0].kind and back.models == original.models
    comparison = compare(original, back)
    assert comparison.outcome == "same" and comparison.change is not None and abs(comparison.change.value) < 1e-6
    assert all(kernel.kind == "changed" for kernel in comparison.kernels)
    assert path.stat().st_size < 60_000


def test_what_another_finding_tells_as_its_part_is_not_lost(demo_logs: Path) -> None:
    """The heat of the slow GPU is a part of the imbalance: a later run that is hot only is not new to it."""
    slow = summary_of_path(demo_logs / "slow_gpu")
    assert slow.telemetry and [found.kind for found in slow.findings].count("thermal_throttle") == 1
    assert "imbalance" in {found.kind for found in slow.findings}


@pytest.mark.parametrize("batch", [0, 0.5])
def test_a_batch_of_nothing_is_an_unknown_one(tmp_path: Path, batch: float) -> None:
    baseline = read_back(tmp_path, {**written(summary()), "batch": batch})
    comparison = compare(baseline, summary(batch=8))
    assert baseline.batch is None and comparison.unit == "step" and comparison.outcome == "same"


def test_a_baseline_reads_well_in_a_review() -> None:
    lines = baseline_file.to_json(summary()).splitlines()
    assert sum('"gemm"' in line for line in lines) == 1 and max(map(len, lines)) < 600
    assert json.loads("\n".join(lines)) == written(summary())


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b'{"kind": "gpu-doctor baseline"}', b"\xff\xfe", b"[" * 100_000,
        b'{"kind": "gpu-doctor baseline", "version": 1, "steps": 3}',
    ],
)  # fmt: skip
def test_what_is_no_baseline_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "b.json"
    path.write_bytes(content)
    with pytest.raises(DocumentError) as caught:
        baseline_file.read(str(path))
    assert caught.value.code == "bad_baseline" and caught.value.path == str(path)


def test_newer_formats_and_missing_files_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    path.write_text(json.dumps({**written(summary()), "version": 99}), encoding="utf-8")
    with pytest.raises(DocumentError) as caught:
        baseline_file.read(str(path))
    assert caught.value.code == "newer_baseline"
    with pytest.raises(DocumentError) as caught:
        baseline_file.read(str(tmp_path / "none.json"))
    assert caught.value.code == "unreadable_file"


WRONG = st.sampled_from([None, True, -1, 1e400, "x", [], {}, [[]], [None], {"compute": 3}, 10**400, "NaN"])


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
@given(st.data(), WRONG)
def test_no_wrong_value_gets_through_as_a_crash(tmp_path: Path, data: st.DataObject, wrong: Any) -> None:
    content: Any = written(summary())
    node = content
    for _ in range(data.draw(st.integers(1, 3))):
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(node[key], (dict, list)) and node[key]:
            parent, node = node, node[key]
            continue
        node[key] = wrong
        break
    else:
        parent[key] = wrong
    path = tmp_path / "b.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    try:
        run = baseline_file.read(str(path))
    except DocumentError as error:
        assert error.code in ("bad_baseline", "newer_baseline")
        return
    # What is read can be compared, judged and written, whatever it says.
    for before, after in ((run, summary()), (summary(), run), (run, run)):
        comparison = compare(before, after)
        json.dumps(comparison_dict(comparison, "es"), allow_nan=False)
        print_comparison(comparison, Console(file=StringIO(), width=80), "en")
        result = check(after, Limits(idle_share=0.2, occupancy=0.1), before)
        for write in FORMATS.values():
            write(result, "en")


def test_what_another_version_says_of_telemetry_is_left_out(tmp_path: Path) -> None:
    data = {**written(summary()), "telemetry": {"utilization": 0.5, "sparkle": 3}}
    assert read_back(tmp_path, data).telemetry == {"utilization": 0.5}
    assert all(has_text(f"compare.telemetry.{name}") for name in TELEMETRY)


def test_rows_of_one_kernel_are_added() -> None:
    nameless = KernelSum("", None, None, 1, 5.0 * MS, 0.5), KernelSum("", None, None, 2, 7.0 * MS)
    before, after = summary(kernels=nameless), summary(kernels=(KernelSum("gemm", None, None, 1, 3.0 * MS),))
    comparison = compare(before, after)
    total = comparison.kernel_time_after - comparison.kernel_time_before
    assert sum(kernel.difference for kernel in comparison.kernels) == pytest.approx(total) == -9 * MS


def test_no_host_and_no_path_is_in_a_baseline(demo_logs: Path) -> None:
    original = summary_of_path(demo_logs / "pytorch_ddp")
    content = baseline_file.to_json(original)
    assert "gpu-node" not in content and str(demo_logs) not in content and original.findings
    assert all(re.fullmatch(r"\d+/\d+", gpu) for found in original.findings for gpu in found.gpus)


def test_any_name_and_any_order_of_keys_will_do(tmp_path: Path) -> None:
    path = tmp_path / "good run"
    path.write_text(json.dumps(written(summary()), sort_keys=True, indent=1), encoding="utf-8-sig")
    assert baseline_file.is_baseline(str(path)) and summary_of_path(path).step_count == 12
    for content in (b"", b"[]", b'{"traceEvents": []}', b"\x0a\x02gpu-doctor baseline"):
        path.write_bytes(content)
        assert not baseline_file.is_baseline(str(path))
    assert not baseline_file.is_baseline(str(tmp_path)) and not baseline_file.is_baseline("a\0b")


def test_kinds_of_another_version_are_left_out_and_other_words_are_refused(tmp_path: Path) -> None:
    content = written(summary(doubts=("no_steps", "of_the_future")))
    content["findings"] = [
        {"kind": kind, "cause": None, "severity": "info", "share": None, "saving_ms_per_step": None, "gpus": []}
        for kind in ("of_the_future", "input_bound")
    ]
    read = read_back(tmp_path, content)
    assert [found.kind for found in read.findings] == ["input_bound"] and read.doubts == ("no_steps",)
    for name, value in (("verdict", "x"), ("steps", {**content["steps"], "source": "x"})):
        with pytest.raises(DocumentError):
            read_back(tmp_path, {**content, name: value})
    for count, walls in ((0, [1.0]), (3, []), (1, [1.0, 1.0])):
        with pytest.raises(DocumentError):
            read_back(
                tmp_path, {**content, "steps": {**content["steps"], "count": count, "wall_ms": walls, "parts_ms": {}}}
            )


def test_files_of_the_first_release_are_read(tmp_path: Path) -> None:
    path = Path(__file__).parents[1] / "data" / "baseline_v1.json"
    run = baseline_file.read(str(path))
    assert run.step_count == 9 and run.kernels[0].name and run.verdict == "critical" and run.parts_ps.sum() > 0
    assert written(run) == json.loads(path.read_text(encoding="utf-8"))


def test_what_is_damaged_is_named(tmp_path: Path) -> None:
    content = written(summary())
    content["steps"]["wall_ms"][2] = "x"
    with pytest.raises(DocumentError) as caught:
        read_back(tmp_path, content)
    assert "steps.wall_ms" in caught.value.params["reason"]
