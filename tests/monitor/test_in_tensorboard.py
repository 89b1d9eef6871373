"""What a real TensorBoard shows of a recording, with its Python loader and with its data server."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from simulator.nvml_stub.record import SpanAt, StepAt, Training, record
from tb_gpu_doctor.metrics import METRICS
from tb_gpu_doctor.telemetry.recordings import read_telemetry
from tests import nvml as stub_of_tests
from tests.tensorboard_server import TensorBoard, tensorboard

pytestmark = pytest.mark.slow

SCENARIO = """
gpus 8
gpu * utilization 0:0 30:97 600:97
gpu * power 0:90 30:620
gpu 3 temperature 0:45 60:84 600:88
gpu 3 reasons 0:0 60:0x20
gpu 3 sm_clock 0:1980 60:1400
gpu * links 18
gpu * nvlink_rx 0:0 600:600000
gpu * process self 2e9
"""
SECONDS = 860
BY_TAG = {metric.tag: metric for metric in METRICS}
STEPS = [StepAt(number, 20 + 0.7 * (number + 1), 0.7, 64) for number in range(1200)]


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("recorded")
    patch = pytest.MonkeyPatch()
    stub = stub_of_tests.loaded()
    patch.setenv("NVML_STUB_SCENARIO", str(folder / "scenario.txt"))
    training = Training(
        host="node1",
        process_id=42,
        start_ns=1_700_000_000_000_000_000,
        duration_s=SECONDS,
        steps=STEPS,
        spans=[SpanAt("checkpoint", 100, 103, 113)],
    )
    record(folder / "logs" / "train", stub, SCENARIO, training)
    patch.undo()
    yield folder / "logs"


@pytest.fixture(scope="module", params=["--load_fast=false", "--load_fast=true"])
def server(request: pytest.FixtureRequest, logdir: Path) -> Iterator[TensorBoard]:
    if request.param == "--load_fast=true":
        pytest.importorskip("tensorboard_data_server")
    with tensorboard(f"--logdir={logdir}", request.param) as running:
        yield running


def get(server: TensorBoard, path: str) -> Any:
    with urllib.request.urlopen(f"{server.url}data/{path}", timeout=60) as response:
        return json.load(response)


def scalar_tags(server: TensorBoard) -> dict[str, Any]:
    """The tags of the Scalars tab, once all runs are loaded."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        tags: dict[str, Any] = get(server, "plugin/scalars/tags")
        if len(tags) == 9 and all(tags.values()):
            return tags
        time.sleep(0.3)
    raise AssertionError(f"TensorBoard loaded {sorted(tags)} only")


def series(server: TensorBoard, run: str, tag: str) -> list[list[float]]:
    query = urllib.parse.urlencode({"run": run, "tag": tag})
    found: list[list[float]] = get(server, f"plugin/scalars/scalars?{query}")
    return found


def test_the_scalars_tab_overlays_all_gpus_and_drops_nothing(server: TensorBoard, logdir: Path) -> None:
    tags = scalar_tags(server)
    runs = {f"train/gpu_doctor/node1/gpu{number}" for number in range(8)}
    assert set(tags) == runs | {"train/gpu_doctor/node1/process"}
    recording = read_telemetry(logdir).recordings[0]
    for gpu in recording.gpus:
        assert set(tags[gpu.run]) <= set(BY_TAG)
        assert {BY_TAG[tag].id for tag in tags[gpu.run]} == set(gpu.values)
    # By hand: the step of each point is the training step if it grew, and a point is the mean since the last one.
    hot = recording.gpus[3]
    expected, last, waiting = [], -1, []
    for step, watts in zip(hot.step.tolist(), hot.values["power_watts"].tolist(), strict=True):
        waiting.append(watts)
        if step > last:
            expected.append((step, sum(waiting) / len(waiting)))
            last, waiting = step, []
    points = series(server, hot.run, "gpu/power_watts")
    by_step = dict(expected)
    # The Python loader keeps a sample of the points, TensorBoard's data server all of these.
    assert len(points) in (500, 1000, len(expected))
    for _, step, value in points:
        assert value == pytest.approx(by_step[int(step)], rel=1e-5)
    for tag in tags[hot.run]:
        found = series(server, hot.run, tag)
        assert all(later[1] > earlier[1] for earlier, later in pairwise(found)), tag
        assert found[-1][1] == len(STEPS) - 1 or BY_TAG[tag].every > 1, tag
    assert max(value for _, _, value in series(server, hot.run, "gpu/temperature_celsius")) == 88


def test_cumulative_counters_survive_the_sampling(server: TensorBoard, logdir: Path) -> None:
    scalar_tags(server)
    hot = read_telemetry(logdir).recordings[0].gpus[3]
    points = series(server, hot.run, "gpu/throttled_software_thermal_seconds_total")
    assert points[-1][2] == pytest.approx(hot.values["throttled_software_thermal_seconds"].max(), abs=1.5)
    assert points[-1][2] > 750


def test_steps_of_the_process_and_the_times_are_told(server: TensorBoard) -> None:
    tags = scalar_tags(server)
    run = "train/gpu_doctor/node1/process"
    assert set(tags[run]) == {"training/step_ms", "training/samples_per_second", "training/global_batch"}
    points = series(server, run, "training/step_ms")
    assert all(value == pytest.approx(700, rel=1e-4) for _, _, value in points)
    assert 1_700_000_020 < points[0][0] < points[-1][0] <= 1_700_000_000 + SECONDS


def test_the_tab_is_active(server: TensorBoard) -> None:
    scalar_tags(server)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if get(server, "plugins_listing")["gpu_doctor"]["enabled"]:
            return
        time.sleep(0.3)
    raise AssertionError("a logdir with a recording and no profile has no tab")


def test_every_metric_has_one_tag_with_its_unit() -> None:
    assert len(BY_TAG) == len(METRICS)
    assert all(metric.tag.startswith("gpu/") for metric in METRICS)
