"""The plugin inside a real TensorBoard, beside the stock Profiler, over HTTP."""

from __future__ import annotations

import json
import shutil
import struct
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tensorboard_server import TensorBoard, tensorboard

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def logdir(demo_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the demo with a broken profile beside it: the stock Profiler writes caches where it reads."""
    copy = tmp_path_factory.mktemp("logs") / "logs"
    shutil.copytree(demo_logs, copy)
    broken = copy / "broken" / "plugins" / "profile" / "2020_01_01_00_00_00"
    broken.mkdir(parents=True)
    (broken / "worker0.xplane.pb").write_bytes(b"no profile " * 1000)
    return copy


@pytest.fixture(scope="module", params=["", "/team/x"])
def server(request: pytest.FixtureRequest, logdir: Path) -> Iterator[TensorBoard]:
    prefix = [f"--path_prefix={request.param}"] if request.param else []
    with tensorboard(f"--logdir={logdir}", *prefix) as running:
        assert running.url.endswith(f"{request.param}/")
        yield running


def get(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def ready(server: TensorBoard, route: str, **params: object) -> tuple[int, bytes]:
    url = f"{server.plugin_url}{route}?{urllib.parse.urlencode(params)}"
    deadline = time.monotonic() + 120
    while (answer := get(url))[0] == 202:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return answer


def sessions(server: TensorBoard) -> dict[str, dict[str, Any]]:
    status, body = ready(server, "sessions")
    assert status == 200
    found = json.loads(body)["sessions"]
    return {session["run"]: session for session in found if session["format"] != "telemetry"}


def test_both_tabs_are_enabled(server: TensorBoard):
    status, body = get(server.url + "data/plugins_listing")
    listing = json.loads(body)
    assert status == 200
    assert listing["profile"]["enabled"]
    ours = listing["gpu_doctor"]
    assert ours["enabled"] and ours["tab_name"] == "GPU Doctor"
    assert ours["loading_mechanism"]["type"] == "IFRAME"
    assert ours["loading_mechanism"]["module_path"].endswith("/data/plugin/gpu_doctor/index.js")


def test_every_demo_run_has_its_answers(server: TensorBoard, logdir: Path):
    for run, session in sessions(server).items():
        name = {"run": run, "session": session["session"]}
        status, body = ready(server, "diagnosis", **name, lang="es")
        if run == "broken":
            error = json.loads(body)["error"]
            assert status == 422 and error["path"].startswith("broken/plugins/profile/")
            assert str(logdir) not in error["message"]
            continue
        assert status == 200, body
        diagnosis = json.loads(body)
        assert (diagnosis["profile"]["run"], diagnosis["language"]) == (run, "es")
        meta = json.loads(ready(server, "timeline/meta", **name)[1])
        assert len(meta["lanes"]) == len(diagnosis["devices"]) > 0
        window = {"start_ps": meta["window"]["start_ps"], "end_ps": meta["window"]["end_ps"]}
        _, bins = ready(server, "timeline/bins", **name, **window, width=1000)
        assert struct.unpack_from("<III", bins) == (len(meta["lanes"]), len(meta["categories"]), 1000)
        assert len(bins) == 12 + len(meta["lanes"]) * len(meta["categories"]) * 1000
        assert len(json.loads(ready(server, "kernels", **name)[1])["rows"]) > 0


def test_the_window_of_each_lane_is_the_accounting_of_its_gpu(server: TensorBoard):
    """Bins of one pixel against the diagnosis: two ways from the file to the same shares."""
    for run, session in sessions(server).items():
        if run == "broken":
            continue
        name = {"run": run, "session": session["session"]}
        devices = json.loads(ready(server, "diagnosis", **name)[1])["devices"]
        meta = json.loads(ready(server, "timeline/meta", **name)[1])
        start, end = meta["window"]["start_ps"], meta["window"]["end_ps"]
        _, body = ready(server, "timeline/events", **name, start_ps=start, end_ps=end, limit=2_000_000)
        (length,) = struct.unpack_from("<I", body)
        header = json.loads(body[4 : 4 + length])
        count, unit = header["count"], header["unit_ps"]
        starts = struct.unpack_from(f"<{count}I", body, 4 + length)
        ends = struct.unpack_from(f"<{count}I", body, 4 + length + 4 * count)
        lanes = struct.unpack_from(f"<{count}H", body, 4 + length + 8 * count)
        at = 4 + length + 8 * count + 2 * -(-2 * count // 4) * 4
        spent: dict[tuple[int, str], int] = {}
        for low, high, lane, category in zip(starts, ends, lanes, body[at : at + count], strict=True):
            key = lane, meta["categories"][category]
            spent[key] = spent.get(key, 0) + (high - low) * unit
        for lane in meta["lanes"]:
            [device] = [d for d in devices if (d["host"], d["id"]) == (lane["host"], lane["gpu"])]
            # Files have windows of their own, and the timeline shows what all of them cover.
            beside = (end - start) / 1e9 - device["wall_ms"]
            assert beside == pytest.approx(0, abs=1e-6) if len({d["host"] for d in devices}) == 1 else 0 <= beside < 5
            error = count * unit / 1e9 + beside
            for part in ("compute", "communication", "transfer"):
                assert spent.get((lane["id"], part), 0) / 1e9 == pytest.approx(device[f"{part}_ms"], abs=error)
            for cause, idle in device["idle_by_cause_ms"].items():
                assert spent.get((lane["id"], cause), 0) / 1e9 == pytest.approx(idle, abs=error)


def test_the_module_is_served_once(server: TensorBoard):
    with urllib.request.urlopen(server.plugin_url + "index.js", timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/javascript")
        tag = answer.headers["ETag"]
    request = urllib.request.Request(server.plugin_url + "index.js", headers={"If-None-Match": tag})
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request, timeout=60)
    assert raised.value.code == 304


def test_nothing_outside_the_list_is_served(server: TensorBoard):
    for path in ("../loader.py", "%2e%2e/loader.py", "static/index.js", "index.js/..", "index.html", "plugin.py"):
        assert get(server.plugin_url + path)[0] == 404


def test_a_logdir_without_profiles_leaves_the_tab_off(tmp_path: Path):
    with tensorboard(f"--logdir={tmp_path}") as running:
        listing = json.loads(get(running.url + "data/plugins_listing")[1])
        assert not listing["gpu_doctor"]["enabled"]
        status, body = get(running.plugin_url + "sessions")
        assert status == 200 and json.loads(body)["sessions"] == []


def test_logdir_spec_names_the_runs(demo_logs: Path, tmp_path: Path):
    for name in ("healthy", "input_bound"):
        shutil.copytree(demo_logs / name, tmp_path / name)
    spec = f"first:{tmp_path / 'healthy'},second:{tmp_path / 'input_bound'}"
    with tensorboard(f"--logdir_spec={spec}") as running:
        assert sorted(sessions(running)) == ["first", "second"]
        assert json.loads(get(running.url + "data/plugins_listing")[1])["gpu_doctor"]["enabled"]
