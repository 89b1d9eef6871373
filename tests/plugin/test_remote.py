"""TensorBoard on a remote logdir: the tab's routes, the credentials that stay hidden, failures that pass."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
from tensorboard.plugins import base_plugin
from werkzeug.test import Client

from tb_gpu_doctor.plugin import analyses
from tb_gpu_doctor.plugin import logdir as logdir_module
from tb_gpu_doctor.plugin.logdir import Root, Scanner, parse_logdir_spec, roots_of, shown_path
from tb_gpu_doctor.plugin.plugin import GpuDoctorPlugin
from tests.remote_stores import S3, OddStore, files_below, in_memory, odd_store, s3_server
from tests.tensorboard_server import tensorboard

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as store:
        yield store


@pytest.fixture
def odd() -> Iterator[type[OddStore]]:
    with odd_store() as store:
        yield store


def plugin_on(logdir: str) -> GpuDoctorPlugin:
    flags = SimpleNamespace(logdir=logdir, logdir_spec="")
    return GpuDoctorPlugin(base_plugin.TBContext(logdir=logdir, flags=flags))


def get(plugin: GpuDoctorPlugin, route: str) -> tuple[int, Any]:
    name, _, query = route.partition("?")
    client = Client(plugin.get_plugin_apps()[f"/{name}"])
    deadline = time.monotonic() + 60
    while (answer := client.get(f"/{name}?{query}")).status_code == 202:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    if name == "sessions" and json.loads(answer.get_data())["scanning"]:
        time.sleep(0.05)
        return get(plugin, route)
    return answer.status_code, json.loads(answer.get_data())


def test_the_tab_on_s3_and_in_memory(demo_logs: Path, s3: S3) -> None:
    files = files_below(demo_logs / "slow_gpu")
    here = plugin_on(str(demo_logs / "slow_gpu"))
    for address in (s3.put({f"job/{name}": content for name, content in files.items()}), in_memory(files)):
        plugin = plugin_on(address)
        status, found = get(plugin, "sessions")
        assert status == 200 and not found["problems"] and found["logdir"] == address
        assert plugin.is_active()
        profile = found["sessions"][0]
        query = f"run={profile['run']}&session={profile['session']}"
        status, diagnosis = get(plugin, f"diagnosis?{query}")
        assert status == 200
        local = get(here, f"diagnosis?run=&session={profile['session']}")[1]
        assert [finding["kind"] for finding in diagnosis["findings"]] == [f["kind"] for f in local["findings"]]
        assert diagnosis["verdict"] == local["verdict"]
        status, kernels = get(plugin, f"kernels?{query}")
        assert status == 200 and kernels == get(here, f"kernels?run=&session={profile['session']}")[1]


def test_credentials_do_not_reach_the_browser(tmp_path: Path) -> None:
    logdir = "http://me:hidden@127.0.0.1:9/logs?sig=hidden"
    plugin = plugin_on(logdir)
    status, found = get(plugin, "sessions")
    assert status == 200 and found["logdir"] == "http://127.0.0.1:9/logs"
    assert "hidden" not in json.dumps(found) and len(found["problems"]) == 1
    assert "cannot be reached" in found["problems"][0]["message"]


def test_roots() -> None:
    context = SimpleNamespace(flags=SimpleNamespace(logdir="", logdir_spec="a:s3://k:hidden@b/x,gs://c/d"), logdir="")
    assert roots_of(context) == ("a:s3://b/x,gs://c/d", (Root("a", "s3://b/x"), Root("", "gs://c/d")))
    assert parse_logdir_spec("n:hdfs://h:8020/x") == (Root("n", "hdfs://h:8020/x"),)
    assert roots_of(SimpleNamespace(flags=None, logdir="file:///logs"))[1] == (Root("", "/logs"),)
    assert shown_path("gs://c/d/run/a.pb", Root("", "gs://c/d")) == "run/a.pb"
    assert shown_path("gs://c/d/run/a.pb", Root("n", "gs://c/d/")) == "n/run/a.pb"
    assert shown_path("gs://c/d", Root("", "gs://c/d")) == "d"


def test_new_profiles_are_found_and_changed_ones_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logdir_module, "REMOTE_INTERVAL_S", 0.0)
    monkeypatch.setattr(logdir_module, "IDLE_FACTOR", 0.0)
    root = in_memory({"plugins/profile/s/a.xplane.pb": b"1"})
    scanner = Scanner([Root("", root)], min_interval_s=0.0)
    before = scanner.snapshot(wait_s=10)
    memory = fsspec.filesystem("memory")
    memory.pipe_file(f"{root.removeprefix('memory:/')}/plugins/profile/s/a.xplane.pb", b"2")
    memory.pipe_file(f"{root.removeprefix('memory:/')}/run/plugins/profile/t/b.xplane.pb", b"2")
    after = scanner.snapshot(wait_s=10)
    assert [found.session.session for found in after.sessions if found.run == "run"] == ["t"]
    first, second = before.find("", "s"), after.find("", "s")
    assert first is not None and second is not None and first.key != second.key
    third = scanner.snapshot(wait_s=10).find("", "s")
    assert third is not None and third.key == second.key


def test_a_server_that_fails_for_a_while_hides_nothing(odd: type[OddStore], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logdir_module, "REMOTE_INTERVAL_S", 0.0)
    monkeypatch.setattr(logdir_module, "IDLE_FACTOR", 0.0)
    monkeypatch.setattr("tb_gpu_doctor.files.looking.LISTING_AGE_S", 0.0)
    path = "brittle/plugins/profile/s"
    odd.listings = {
        "brittle": [{"name": "brittle/plugins", "type": "directory"}],
        "brittle/plugins": [{"name": "brittle/plugins/profile", "type": "directory"}],
        "brittle/plugins/profile": [{"name": path, "type": "directory"}],
        path: [{"name": f"{path}/h.xplane.pb", "type": "file", "size": 3, "mtime": 1e9}],
    }
    scanner = Scanner([Root("", "oddstore://brittle")], min_interval_s=0.0)
    before = scanner.snapshot(wait_s=10)
    assert [found.session.session for found in before.sessions] == ["s"] and not before.problems
    odd.error = ConnectionError("away")
    during = scanner.snapshot(wait_s=10)
    assert during.sessions == before.sessions
    assert [problem.error.code for problem in during.problems] == ["remote_unreachable"]
    odd.error = None
    after = scanner.snapshot(wait_s=10)
    assert [found.key for found in after.sessions] == [found.key for found in before.sessions] and not after.problems


def test_a_store_is_not_listed_all_the_time() -> None:
    scanner = Scanner([Root("", in_memory({"plugins/profile/s/a.xplane.pb": b"1"}))], min_interval_s=0.0)
    scanner.snapshot(wait_s=10)
    assert scanner._not_before - time.monotonic() > logdir_module.REMOTE_INTERVAL_S - 5


def test_a_failure_that_passes_is_tried_again(odd: type[OddStore], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyses, "RETRY_S", 0.3)

    def folder(name: str) -> dict[str, Any]:
        return {"name": name, "type": "directory", "size": 0}

    content = next(iter((Path(__file__).parents[2] / "demo_logs" / "healthy").rglob("*.xplane.pb"))).read_bytes()
    path = "logs/plugins/profile/s/h.xplane.pb"
    odd.listings = {
        "logs": [folder("logs/plugins")],
        "logs/plugins": [folder("logs/plugins/profile")],
        "logs/plugins/profile": [folder("logs/plugins/profile/s")],
        "logs/plugins/profile/s": [{"name": path, "type": "file", "size": len(content), "mtime": 1e9}],
    }
    odd.contents, odd.sizes = {path: content}, {path: len(content) + 1}
    plugin = plugin_on("oddstore://logs")
    assert get(plugin, "sessions")[1]["sessions"]
    status, answer = get(plugin, "diagnosis?run=&session=s")
    assert status == 422 and "changed while it was fetched" in json.dumps(answer)
    odd.sizes = {}
    time.sleep(0.35)
    assert get(plugin, "diagnosis?run=&session=s")[0] == 200


def test_a_real_tensorboard_on_s3(demo_logs: Path, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TensorFlow, whose file layer knows no S3, TensorBoard reads such logdirs itself."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, types, tensorboard.compat\n"
        "tensorboard.compat.notf = sys.modules['tensorboard.compat.notf'] = types.ModuleType('notf')\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))))
    monkeypatch.setenv("S3_ENDPOINT", os.environ["AWS_ENDPOINT_URL"])
    address = s3.put({f"job/{name}": content for name, content in files_below(demo_logs / "slow_gpu").items()}, "board")
    before = s3.names()
    with tensorboard(f"--logdir={address}") as board:

        def ask(url: str) -> tuple[int, Any]:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return answer.status, json.loads(answer.read() or b"null")

        deadline = time.monotonic() + 60
        while not (found := ask(board.plugin_url + "sessions")[1])["sessions"]:
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        assert found["logdir"] == address and not found["problems"]
        profile = found["sessions"][0]
        query = f"diagnosis?run={profile['run']}&session={profile['session']}"
        while (answer := ask(board.plugin_url + query))[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert answer[1]["verdict"] == "critical"
        assert ask(board.url + "data/plugins_listing")[1]["gpu_doctor"]["enabled"]
    assert s3.names() == before, "something was written into the logdir"
