"""Real files in every state of disrepair, through the whole pipeline to the answer that the tab gets."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest

from tests.plugin.test_logdir import add_session
from tests.plugin.test_routes import SESSION_ROUTES, Site, error_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(demo_logs: Path) -> bytes:
    return next((demo_logs / "healthy").rglob("*.xplane.pb")).read_bytes()


def contents(whole: bytes) -> dict[str, bytes]:
    return {
        "empty": b"",
        "truncated": whole[:200],
        "random": random.Random(7).randbytes(10_000),
        "text": b"step,loss\n1,0.5\n2,0.4\n",
        "zeros": bytes(1000),
    }


@pytest.mark.parametrize("kind", ["empty", "truncated", "random", "text", "zeros"])
@pytest.mark.parametrize("lang", ["en", "es"])
def test_a_broken_file_is_explained_and_hides_nothing(tmp_path: Path, whole: bytes, kind: str, lang: str):
    file = add_session(tmp_path, kind, "s", content=contents(whole)[kind])
    add_session(tmp_path, "good", "s", content=whole)
    site = Site(tmp_path)
    for route in SESSION_ROUTES:
        mark = "&" if "?" in route else "?"
        answer = site.session(f"{route}{mark}lang={lang}", run=kind)
        assert answer.status_code == 422, answer.text
        error = error_of(answer)
        assert error["path"] == str(file.relative_to(tmp_path))
        assert file.name in error["message"]
        assert str(tmp_path) not in answer.text and "Traceback" not in answer.text
    assert site.session("diagnosis", run="good").json["verdict"] == "ok"


def test_a_broken_host_does_not_hide_the_others(tmp_path: Path, whole: bytes):
    add_session(tmp_path, "a", "s", host="host0", content=whole)
    broken = add_session(tmp_path, "a", "s", host="host1", content=whole[:200])
    site = Site(tmp_path)
    diagnosis = site.session("diagnosis").json
    assert diagnosis["profile"]["hosts"] == ["host0"]
    assert any(broken.name in warning for warning in diagnosis["profile"]["warnings"])
    assert str(tmp_path) not in json.dumps(diagnosis)
    meta = site.session("timeline/meta").json
    assert {lane["host"] for lane in meta["lanes"]} == {"host0"}


def test_two_hosts_name_their_lanes_as_the_findings_do(tmp_path: Path, demo_logs: Path):
    content = next((demo_logs / "input_bound").rglob("*.xplane.pb")).read_bytes()
    for host in ("host0", "host1"):
        add_session(tmp_path, "a", "s", host=host, content=content)
    site = Site(tmp_path)
    diagnosis, meta = site.session("diagnosis").json, site.session("timeline/meta").json
    lanes = {(lane["host"], lane["gpu"]) for lane in meta["lanes"]}
    assert {host for host, _ in lanes} == {"host0", "host1"}
    assert {(device["host"], device["id"]) for device in diagnosis["devices"]} == lanes
    named = {(gpu["host"], gpu["id"]) for finding in diagnosis["findings"] for gpu in finding["gpus"]}
    assert named and named <= lanes
    kernels = site.session("kernels").json
    assert [(device["host"], device["id"]) for device in kernels["devices"]] == sorted(lanes)


def test_a_profile_cut_off_while_it_is_open_says_so_and_recovers(tmp_path: Path, whole: bytes):
    file = add_session(tmp_path, "a", "s", content=whole)
    site = Site(tmp_path)
    assert site.session("diagnosis").status_code == 200

    def settle(size: int) -> None:
        deadline = time.monotonic() + 10
        while site.get("sessions").json["sessions"][0]["size_bytes"] != size and time.monotonic() < deadline:
            time.sleep(0.01)

    os.truncate(file, 1000)
    # Until the next scan the tab keeps what it has.
    assert site.session("timeline/bins?start_ps=0&end_ps=100&width=10").status_code == 200
    settle(1000)
    assert site.session("diagnosis").status_code == 422
    file.write_bytes(whole)
    settle(len(whole))
    assert site.session("diagnosis").status_code == 200


def test_a_profile_removed_while_it_is_open(tmp_path: Path, whole: bytes):
    file = add_session(tmp_path, "a", "s", content=whole)
    add_session(tmp_path, "b", "s", content=whole)
    site = Site(tmp_path)
    assert len(site.get("sessions").json["sessions"]) == 2
    file.unlink()
    answer = site.session("diagnosis")  # the scan still lists it: reading it fails with a reason
    assert answer.status_code in (404, 422)
    assert error_of(answer)["message"]
    assert site.session("diagnosis", run="b").status_code == 200


def test_every_real_profile_gives_answers(shared_traces: Path):
    """What others recorded, old and new, NVIDIA and AMD: whatever is in it, each route answers."""
    site = Site(shared_traces)
    found = site.get("sessions").json["sessions"]
    deadline = time.monotonic() + 20
    while not found and time.monotonic() < deadline:
        time.sleep(0.1)
        found = site.get("sessions").json["sessions"]
    assert found
    for session in found:
        for route in SESSION_ROUTES:
            answer = site.session(route, session["run"], session["session"])
            nothing_there = "/at" in route or ("lane=0" in route and "no GPU lane" in answer.text)
            assert answer.status_code == 200 or (nothing_there and answer.status_code == 404), (
                session["run"],
                route,
                answer.text,
            )
