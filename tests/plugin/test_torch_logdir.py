"""A logdir that PyTorch's own trace handler wrote, in the tab: found, listed, diagnosed, drawn."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.conftest import SHARED_TRACES
from tests.plugin.test_routes import Site
from tests.traces.json_writing import Json, call, document, event, kernel, write

FIRST = "2026_03_02_09_14_05"


def training(rank: int, late_us: int) -> Json:
    """Four steps of one rank: a long kernel, then a collective that the late rank begins last."""
    events: list[Json] = []
    for step in range(4):
        at = 10_000.0 * step
        events.append(event("user_annotation", f"ProfilerStep#{step + 1}", at, 9_900))
        for number, (name, start, end) in enumerate(
            [
                ("gemm", at + 200, at + 5_000 + late_us),
                ("ncclDevKernel_AllReduce_Sum", at + 5_100 + late_us, at + 8_000),
            ]
        ):
            correlation = 10 * step + number + 1
            events.append(call("cudaLaunchKernel", at + 100 + number, 1, correlation))
            events.append(kernel(name, start, end - start, correlation, device=rank))
    return document(*events, distributedInfo={"rank": rank, "world_size": 2, "backend": "nccl"})


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    seconds = int(time.mktime(time.strptime(FIRST, "%Y_%m_%d_%H_%M_%S")))
    for rank, late in enumerate((0, 2_000)):
        write(tmp_path / "run" / f"node_{17 + rank}.{seconds * 10**9 + rank}.pt.trace.json.gz", training(rank, late))
    return tmp_path


@pytest.mark.slow
def test_from_the_list_to_the_timeline(logdir: Path) -> None:
    site = Site(logdir)
    site.scanner.snapshot(wait_s=30)
    (listed,) = site.get("sessions").get_json()["sessions"]
    assert (listed["run"], listed["session"], listed["format"]) == ("run", FIRST, "kineto")
    assert listed["hosts"] == ["node_17", "node_18"] and not listed.get("problem")
    diagnosis = site.session("diagnosis", "run", FIRST).get_json()
    assert diagnosis["profile"]["format"] == "kineto"
    assert [(device["host"], device["id"]) for device in diagnosis["devices"]] == [("node_17", 0), ("node_18", 1)]
    assert [device["communication_ms"] for device in diagnosis["devices"]] == pytest.approx([4 * 2.9, 4 * 0.9])
    meta = site.session("timeline/meta", "run", FIRST).get_json()
    assert len(meta["lanes"]) >= 2
    span = "start_ps=0&end_ps=40000000000"
    for route in (f"timeline/bins?{span}&width=100", f"timeline/events?{span}", "kernels"):
        assert site.session(route, "run", FIRST).status_code == 200


def test_a_broken_rank_does_not_hide_the_others(logdir: Path) -> None:
    (first, _) = sorted((logdir / "run").iterdir())
    first.write_bytes(first.read_bytes()[:40])
    site = Site(logdir)
    site.scanner.snapshot(wait_s=30)
    diagnosis = site.session("diagnosis", "run", FIRST).get_json()
    assert [device["host"] for device in diagnosis["devices"]] == ["node_18"]
    assert any(first.name in warning for warning in diagnosis["profile"]["warnings"])


def test_the_recorded_job() -> None:
    folder = SHARED_TRACES / "kineto_megatron_tp8_a100"
    if not folder.is_dir():
        pytest.skip(f"real profile not present ({folder})")
    site = Site(folder)
    site.scanner.snapshot(wait_s=30)
    diagnosis = site.session("diagnosis", "", folder.name).get_json()
    assert [device["host"] for device in diagnosis["devices"]] == [f"rank{i}" for i in range(8)]
    assert site.session("timeline/meta", "", folder.name).status_code == 200
