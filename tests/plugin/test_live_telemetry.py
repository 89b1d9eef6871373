"""The end of a recording that grows: as docs/http_api.md promises it, and read on, never anew."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tb_gpu_doctor.plugin import live_telemetry as module
from tb_gpu_doctor.plugin.live_telemetry import LiveTelemetry
from tb_gpu_doctor.telemetry.recordings import read_homes
from tb_gpu_doctor.traces.telemetry_homes import Home
from tests.plugin.test_routes import Site, error_of
from tests.telemetry.recorded import SECOND, Recorded


def going_on(recorded: Recorded, ticks: int) -> None:
    for _ in range(ticks):
        recorded.writer.steps.append((recorded.now_ns // SECOND, recorded.now_ns, SECOND, 32, 0))
        recorded.sample(1, power_watts=(300.0, 200.0))
    recorded.write()


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setattr(module, "_SHARED_S", 0.0)
    recorded = Recorded(tmp_path)
    recorded.now_ns = time.time_ns() - 100 * SECOND
    going_on(recorded, 100)
    return recorded


def test_it_grows_with_the_recording_and_shows_the_last_seconds(running: Recorded, tmp_path: Path) -> None:
    home = Home("", str(tmp_path / "gpu_doctor"))
    runs = [recording.run for recording in read_homes([home]).telemetry.recordings]
    live = LiveTelemetry()
    first = live.answer([home], runs, ["power_watts"], 0, 600)
    assert first["running"] and [one["samples"] for one in first["series"]] == [100, 100]
    going_on(running, 20)
    second = live.answer([home], runs, ["power_watts"], 0, 600)
    assert [one["samples"] for one in second["series"]] == [120, 120]
    assert second["last_steps"] == [{"recording": 0, "step": int(running.now_ns // SECOND) - 1}]
    last = live.answer([home], runs, ["power_watts"], 30, 600)
    assert last["end_unix_ms"] - last["start_unix_ms"] == pytest.approx(30_000)
    assert [one["samples"] for one in last["series"]] == [31, 31]
    running.writer.update_header(ended="normal")
    running.write(last=True)
    assert not live.answer([home], runs, ["power_watts"], 0, 600)["running"]


def test_series_bear_the_numbers_of_the_view(running: Recorded, tmp_path: Path) -> None:
    home = Home("", str(tmp_path / "gpu_doctor"))
    (run,) = [recording.run for recording in read_homes([home]).telemetry.recordings]
    answer = LiveTelemetry().answer([home], ["gone", run], ["power_watts"], 0, 600)
    assert {one["recording"] for one in answer["series"]} == {1} and answer["last_steps"][0]["recording"] == 1
    empty = LiveTelemetry().answer([home], ["gone"], ["power_watts"], 60, 600)
    assert empty["series"] == [] and not empty["running"] and empty["end_unix_ms"] is None


def test_the_route(running: Recorded, tmp_path: Path) -> None:
    site = Site(tmp_path)
    (entry,) = site.ready("sessions").json["sessions"]
    answer = site.session("telemetry/live?metric=power_watts&seconds=30", entry["run"], entry["session"])
    assert answer.status_code == 200 and len(answer.json["series"]) == 2
    assert error_of(site.session("telemetry/live?metric=nope", entry["run"], entry["session"]))
    assert error_of(site.session("telemetry/live?metric=power_watts&seconds=-1", entry["run"], entry["session"]))


def test_files_that_do_not_answer_leave_what_was_read_last(
    running: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home("", str(tmp_path / "gpu_doctor"))
    (run,) = [recording.run for recording in read_homes([home]).telemetry.recordings]
    live, never = LiveTelemetry(), threading.Event()
    first = live.answer([home], [run], ["power_watts"], 0, 600)
    reads: list[str] = []

    def stalled(reader: object, folder: str) -> None:
        reads.append(folder)
        never.wait(30)

    monkeypatch.setattr(module, "_STALL_S", 0.05)
    monkeypatch.setattr(module.TelemetryReader, "read", stalled)
    for _ in range(3):
        again = live.answer([home], [run], ["power_watts"], 0, 600)
        assert again["series"] == first["series"]
    assert len(reads) == 1  # the next look is some time away
    other = Home("", str(tmp_path / "elsewhere"))
    assert live.answer([other], [run], ["power_watts"], 0, 600)["series"] == []
    never.set()
