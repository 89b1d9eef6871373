"""The routes about kernels on the demo runs and on files made to annoy."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tb_gpu_doctor.analysis.kernel_families import FAMILIES
from tb_gpu_doctor.api import choose_session, diagnose_session
from tb_gpu_doctor.plugin.session_view import SessionView
from tb_gpu_doctor.report.kernel_report import CSV_HEAD
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.conftest import DEMO_LOGS

RUNS = ("low_occupancy", "input_bound", "pytorch_ddp")


@pytest.fixture(scope="module", params=RUNS)
def view(request: pytest.FixtureRequest) -> SessionView:
    path = DEMO_LOGS / request.param
    if not path.is_dir():
        pytest.fail(f"demo_logs/{request.param} not present: run make demo-logs")
    session = choose_session(find_sessions(str(path)))
    return SessionView(session, diagnose_session(session, with_columns=True))


def table(view: SessionView, by: Any = "gpu") -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(view.kernels.table_json(by))
    return answer


def test_the_table_adds_up(view: SessionView) -> None:
    answer = table(view)
    rows, devices = answer["rows"], answer["devices"]
    assert answer["total_rows"] == len(rows) and not answer["truncated"] and answer["by"] == "gpu"
    assert [row["id"] for row in rows] == list(range(len(rows)))
    assert [row["total_ms"] for row in rows] == sorted((row["total_ms"] for row in rows), reverse=True)
    for index, device in enumerate(devices):
        own = [row for row in rows if row["device"] == index]
        assert all(row["devices"] == [index] for row in own)
        assert device["kernel_ms"] == pytest.approx(sum(row["total_ms"] for row in own))
        assert sum(row["share"] for row in own) == pytest.approx(1.0)
        assert set(device["families_ms"]) == set(FAMILIES)
        assert sum(device["families_ms"].values()) == pytest.approx(device["kernel_ms"])
        computing = [row for row in own if row["family"] != "communication"]
        time = sum(row["total_ms"] for row in computing)
        for column in ("occupancy", "achieved_occupancy", "sm_share"):
            mean = sum(row[column] * row["total_ms"] for row in computing) / time
            assert device[column] == pytest.approx(mean)
        assert 0 < device["sm_efficiency"] <= device["sm_share"] + 1e-9
    for row in rows:
        assert row["blocks"] == row["grid"][0] * row["grid"][1] * row["grid"][2]
        assert row["waves"] == pytest.approx(row["blocks"] / row["wave_blocks"])
        assert row["achieved_occupancy"] <= row["occupancy"] + 1e-9
        assert not row["occupancy_differs"]


def test_over_gpus_the_same_time_is_summed_up(view: SessionView) -> None:
    one, both = table(view), table(view, "kernel")
    assert both["by"] == "kernel" and both["total_rows"] < one["total_rows"]
    assert sum(row["total_ms"] for row in both["rows"]) == pytest.approx(sum(row["total_ms"] for row in one["rows"]))
    assert sum(row["share"] for row in both["rows"]) == pytest.approx(1.0)
    by_id = {row["id"]: row for row in one["rows"]}
    for row in both["rows"]:
        parts = [
            other
            for other in one["rows"]
            if (other["name"], other["grid"], other["block"], other["registers"])
            == (row["name"], row["grid"], row["block"], row["registers"])
        ]
        assert row["calls"] == sum(part["calls"] for part in parts)
        assert row["total_ms"] == pytest.approx(sum(part["total_ms"] for part in parts))
        assert row["min_us"] == min(part["min_us"] for part in parts)
        assert row["max_us"] == max(part["max_us"] for part in parts)
        assert row["devices"] == sorted({part["device"] for part in parts})
        assert row["device"] == (row["devices"][0] if len(row["devices"]) == 1 else None)
        assert by_id[row["id"]]["total_ms"] == max(part["total_ms"] for part in parts)


def test_the_tree_adds_up(view: SessionView) -> None:
    answer = table(view)
    whole = json.loads(view.kernels.tree_json(None))
    assert whole["total_ms"] == pytest.approx(sum(row["total_ms"] for row in answer["rows"]))
    parts = [json.loads(view.kernels.tree_json(device)) for device in range(view.kernels.device_count)]
    assert sum(part["total_ms"] for part in parts) == pytest.approx(whole["total_ms"])
    for tree in (whole, *parts):
        nodes = tree["nodes"]
        roots = [node for node in nodes if node["parent"] == -1]
        assert sum(node["share"] for node in roots) == pytest.approx(1.0)
        for index, node in enumerate(nodes):
            assert node["parent"] < index
            below = [other for other in nodes if other["parent"] == index]
            assert (node["kind"] == "kernel") == (not below)
            if below:
                assert node["total_ms"] == pytest.approx(sum(other["total_ms"] for other in below))
                assert node["calls"] == sum(other["calls"] for other in below)
            assert (node["family"] is None) == (node["kind"] != "kernel")


def test_steps_show_how_the_gpu_is_filled(view: SessionView) -> None:
    answer = json.loads(view.kernels.filling_json)
    steps = json.loads(view.steps_json)
    assert answer["devices"] == list(range(view.kernels.device_count)) and not answer["truncated"]
    complete = [number for number, whole in zip(answer["steps"], answer["complete"], strict=True) if whole]
    assert len(complete) >= 3 and steps
    for name in ("kernel_ms", "wall_ms", "occupancy", "achieved_occupancy", "sm_share", "sm_efficiency"):
        assert len(answer[name]) == len(answer["steps"])
        assert all(len(row) == len(answer["devices"]) for row in answer[name])
    devices = table(view)["devices"]
    for index, device in enumerate(devices):
        usual = [row[index] for row, whole in zip(answer["sm_efficiency"], answer["complete"], strict=True) if whole]
        assert all(value is not None and 0 < value <= 1 for value in usual)
        occupancy = [row[index] for row, whole in zip(answer["occupancy"], answer["complete"], strict=True) if whole]
        assert sum(occupancy) / len(occupancy) == pytest.approx(device["occupancy"], rel=0.05)


def test_a_staircase_starts_at_the_kernel(view: SessionView) -> None:
    for row in table(view)["rows"]:
        answer = json.loads(view.kernels.staircase_json(row["id"]) or b"null")
        now = answer["now"]
        assert answer["kernel"] == row["id"] and answer["name"] == row["name"]
        assert (now["occupancy"], now["limiter"], now["registers"]) == (
            row["occupancy"], row["limiter"], row["registers"])  # fmt: skip
        assert min(value for value in now["allowed"].values() if value is not None) == now["active_blocks"]
        for what, curve in answer["curves"].items():
            at = curve["x"].index(now[what])
            assert (curve["occupancy"][at], curve["limiter"][at]) == (row["occupancy"], row["limiter"])
        assert bool(answer["next"]) or row["occupancy"] == 1.0
    assert view.kernels.staircase_json(-1) is None and view.kernels.staircase_json(10**6) is None


def test_csv_is_the_whole_table(view: SessionView) -> None:
    for by in ("gpu", "kernel"):
        content = view.kernels.csv(by)  # type: ignore[arg-type]
        assert content.startswith(b"\xef\xbb\xbf") and b"\r\n" in content
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))
        answer = table(view, by)["rows"]
        assert len(rows) == len(answer) and tuple(rows[0]) == CSV_HEAD
        for mine, theirs in zip(rows, answer, strict=True):
            assert mine["name"] == theirs["name"] and int(mine["calls"]) == theirs["calls"]
            assert float(mine["total_ms"]) == theirs["total_ms"]
            assert mine["grid"] == "x".join(map(str, theirs["grid"]))
            assert mine["limiter"] == (theirs["limiter"] or "") and len(mine["gpus"].split()) == len(theirs["devices"])


def test_what_is_held_is_counted(view: SessionView) -> None:
    assert view.kernels.size_bytes > 1000
    assert view.size_bytes > view.kernels.size_bytes + view.timeline.size_bytes
    before = view.size_bytes - view.kernels.size_bytes
    view.kernels.tree_json(None)
    assert view.size_bytes - view.kernels.size_bytes == before, "what kernels take is counted once"


def test_fusible_runs_of_an_eager_run(shared_traces: Path) -> None:
    folder = shared_traces / "kineto_diff_control_a100"
    if not folder.is_dir():
        pytest.skip("recorded profile not present (kineto_diff_control_a100)")
    session = choose_session(find_sessions(str(folder)))
    made = SessionView(session, diagnose_session(session, with_columns=True))
    answer = json.loads(made.kernels.fusion_json)
    assert answer["candidates"] and not answer["truncated"]
    savings = [candidate["saving_ms"] for candidate in answer["candidates"]]
    assert savings == sorted(savings, reverse=True)
    assert sum(savings) <= answer["saving_ms"][0] + 1e-9
    (device,) = table(made)["devices"]
    for candidate in answer["candidates"]:
        assert candidate["kernels"] >= 3 and candidate["runs"] >= 1
        assert len(candidate["names"]) == len(candidate["ops"]) == min(candidate["kernels"], 16)
        assert 0 < candidate["saving_ms"] < candidate["total_ms"] < device["window_ms"]
        assert candidate["start_ps"] < candidate["end_ps"]
        assert all("elementwise" in name or "multi_tensor" in name for name in candidate["names"])
