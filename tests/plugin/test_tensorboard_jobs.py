"""Jobs of many files inside a real TensorBoard: read by processes of its own, which never outlive it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from simulator.large_job import write_job
from tb_gpu_doctor.parallel.plan import VARIABLE
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.cli.profiles import session_file, training, write
from tests.parallel.test_processes import gone, until, workers_of
from tests.plugin.test_tensorboard import get, ready, sessions
from tests.tensorboard_server import TensorBoard, tensorboard

pytestmark = pytest.mark.slow


def progress(server: TensorBoard, name: str) -> dict:
    return json.loads(get(f"{server.plugin_url}progress?run=long&session={name}")[1])


def test_a_job_is_read_beside_tensorboard_and_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, "2")
    write_job(tmp_path / "short", "kineto", 3, 3_000)
    write_job(tmp_path / "long", "kineto", 6, 50_000)
    for second, host in ((0, "n0"), (4, "n1")):
        write(training(), session_file(tmp_path, host, run="named", session=f"2026_01_01_00_00_0{second}"))
    (name,) = (session.session for session in find_sessions(str(tmp_path)).sessions if session.run == "short")
    with tensorboard(f"--logdir={tmp_path}") as server:
        until(lambda: len(sessions(server)) == 3, 60)
        status, body = ready(server, "diagnosis", run="short", session=name)
        assert status == 200 and len(json.loads(body)["devices"]) == 3
        offer = next(entry["related"] for entry in sessions(server).values() if entry["related"])
        status, body = ready(server, "timeline/meta", run="named", session=offer["session"])
        assert status == 200 and {lane["host"] for lane in json.loads(body)["lanes"]} == {"n0", "n1"}
        assert get(f"{server.plugin_url}diagnosis?run=long&session={name}")[0] == 202
        pids = until(lambda: workers_of(server.pid))
        until(lambda: progress(server, name)["progress"] > 0)
        began = time.monotonic()
    assert time.monotonic() - began < 15, "it does not wait for the analysis"
    assert gone(pids)
