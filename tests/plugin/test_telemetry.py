"""The answers about telemetry: as docs/http_api.md promises them, over the demo runs and over what is broken."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_gpu_doctor.metrics import METRICS
from tb_gpu_doctor.plugin.telemetry_curves import MAX_POINTS
from tb_gpu_doctor.plugin.telemetry_view import unit_of
from tb_gpu_doctor.telemetry.recordings import read_homes
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.plugin.test_routes import Site, error_of

PROFILE = "2026_03_03_10_41_37"
RANGE = "start_ps=0&end_ps=1000000000000"


@pytest.fixture(scope="module")
def site(demo_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("logs")
    shutil.copytree(demo_logs / "slow_gpu", root / "slow_gpu")
    shutil.copytree(demo_logs / "healthy", root / "healthy")
    yield Site(root)


def telemetry(site: Site, session: str = PROFILE, run: str = "slow_gpu", lang: str = "en") -> dict[str, Any]:
    answer = site.session(f"telemetry?lang={lang}", run, session)
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json
    return found


def test_a_home_is_listed_behind_the_profiles(site: Site) -> None:
    listed = [(s["run"], s["session"], s["format"]) for s in site.ready("sessions").json["sessions"]]
    assert listed[-1] == ("slow_gpu", "telemetry", "telemetry") and len(listed) == 3


@pytest.mark.slow
def test_the_recording_of_a_profile(site: Site) -> None:
    found = telemetry(site)
    (recording,) = found["recordings"]
    assert (recording["host"], recording["simulated"], recording["joined"], recording["judged"]) == (
        "gpu-node-0", True, True, True,
    )  # fmt: skip
    assert recording["start_unix_ms"] < found["profile"]["start_unix_ms"] < found["profile"]["end_unix_ms"]
    assert found["profile"]["end_unix_ms"] < recording["end_unix_ms"]
    assert [gpu["lane"] for gpu in recording["gpus"]] == [0, 1, 2, 3] and found["steps_known"]
    bands = [gpu["throttled"] for gpu in recording["gpus"]]
    assert [len(band) for band in bands] == [0, 0, 1, 0]
    assert bands[2][0]["kind"] == "thermal" and bands[2][0]["reasons"] == ["software_thermal"]
    assert bands[2][0]["start_step"] == 1200
    assert {span["kind"] for span in recording["spans"]} == {"checkpoint", "profile"}
    steps = recording["steps"]
    assert steps["count"] == 1700 and len(steps["step"]) <= MAX_POINTS and any(steps["profiled"])
    assert {len(steps[name]) for name in steps if name != "count"} == {1700}
    assert steps["samples_per_s"][100] == pytest.approx(256 / 0.082, rel=0.01)
    assert {metric["id"] for metric in found["metrics"]} >= {"temperature_celsius", "sm_clock_mhz", "power_watts"}


def test_a_homes_own_entry(site: Site) -> None:
    found = telemetry(site, "telemetry")
    assert found["profile"] is None and found["recordings"][0]["joined"] is None
    assert all(gpu["lane"] is None for gpu in found["recordings"][0]["gpus"])
    diagnosis = site.session("diagnosis", "slow_gpu", "telemetry").json
    assert diagnosis["verdict"] == "critical" and diagnosis["profile"]["format"] == "telemetry"
    assert [finding["kind"] for finding in diagnosis["findings"]] == ["thermal_throttle"]


def test_series_are_what_was_recorded(site: Site, demo_logs: Path) -> None:
    (session,) = [s for s in find_sessions(str(demo_logs)).sessions if s.is_telemetry and s.run == "slow_gpu"]
    recorded = read_homes(session.homes).telemetry.recordings[0]
    for metric in ("sm_clock_mhz", "energy_joules", "clock_event_reasons"):
        found = site.session(f"telemetry/series?metric={metric}&points=2000", "slow_gpu", PROFILE).json["series"]
        assert [(s["recording"], s["gpu"]) for s in found] == [(0, gpu) for gpu in range(4)]
        for answer, series in zip(found, recorded.gpus, strict=True):
            values = series.values[metric]
            known = np.isfinite(values)
            assert not answer["folded"] and answer["min"] is answer["max"] is None
            assert answer["mean"] == values[known].tolist()
            assert answer["unix_ms"] == [int(wall) / 1e6 for wall in series.wall_ns[known]]


def test_folded_series_keep_the_extremes(site: Site) -> None:
    whole = site.session("telemetry/series?metric=temperature_celsius&points=2000", "slow_gpu", PROFILE).json
    few = site.session("telemetry/series?metric=temperature_celsius&points=4", "slow_gpu", PROFILE).json
    for one, other in zip(whole["series"], few["series"], strict=True):
        assert other["folded"] and len(other["mean"]) <= 4
        assert (min(other["min"]), max(other["max"])) == (min(one["mean"]), max(one["mean"]))
    start = whole["start_unix_ms"] + 50_000
    part = site.session(
        f"telemetry/series?metric=temperature_celsius&start_unix_ms={start}&end_unix_ms={start + 20_000}",
        "slow_gpu",
        PROFILE,
    ).json
    assert part["start_unix_ms"] == pytest.approx(start) and all(len(s["mean"]) in (4, 5) for s in part["series"])


def test_lanes_lie_on_the_profiles_clock(site: Site) -> None:
    found = site.session(f"timeline/telemetry?metric=sm_clock_mhz&{RANGE}", "slow_gpu", PROFILE).json
    assert [lane["lane"] for lane in found["lanes"]] == [0, 1, 2, 3] and found["not_joined"] == []
    # A sample every 5 s: one before the profile of a second, and one after it.
    for lane in found["lanes"]:
        assert lane["time_ps"][0] < 0 and lane["time_ps"][-1] > 1_000_000_000_000
        assert lane["time_ps"][-1] - lane["time_ps"][0] == 5_000_000_000_000
    assert [band["lane"] for band in found["bands"]] == [2]
    assert found["bands"][0]["start_ps"] < 0 < found["bands"][0]["end_ps"]


@pytest.mark.slow
def test_a_profile_without_telemetry_has_none(site: Site) -> None:
    healthy = "2026_03_06_16_33_48"
    found = telemetry(site, healthy, "healthy")
    assert found["recordings"] == [] and found["metrics"] == [] and found["notes"] == []
    assert site.session("batch_sweeps", "healthy", healthy).json == {"sweeps": []}
    assert site.session(f"timeline/telemetry?metric=sm_clock_mhz&{RANGE}", "healthy", healthy).json["lanes"] == []
    assert site.session("diagnosis", "healthy", healthy).json["telemetry"] is None


@pytest.mark.slow
def test_telemetry_of_another_time_is_shown_and_not_joined(demo_logs: Path, tmp_path: Path) -> None:
    shutil.copytree(demo_logs / "healthy", tmp_path / "run")
    shutil.copytree(demo_logs / "slow_gpu/gpu_doctor", tmp_path / "run/gpu_doctor")
    site = Site(tmp_path)
    session = "2026_03_06_16_33_48"
    for lang, words in (("en", "another time"), ("es", "otro momento")):
        (recording,) = telemetry(site, session, "run", lang)["recordings"]
        assert recording["joined"] is False and words in recording["not_joined_because"]
        lanes = site.session(f"timeline/telemetry?metric=sm_clock_mhz&{RANGE}&lang={lang}", "run", session).json
        assert lanes["lanes"] == [] and words in lanes["not_joined"][0]
    diagnosis = site.session("diagnosis", "run", session).json
    assert diagnosis["telemetry"]["gpus"] == [] and "another time" in diagnosis["telemetry"]["notes"][0]


@pytest.mark.slow
def test_a_broken_recording_is_named_and_hides_nothing(demo_logs: Path, tmp_path: Path) -> None:
    shutil.copytree(demo_logs / "slow_gpu", tmp_path / "run")
    (file,) = (tmp_path / "run/gpu_doctor").rglob("*.gpu_doctor")
    folder = tmp_path / "run/gpu_doctor/gpu-node-0/process_2"
    folder.mkdir()
    (folder / file.name).write_bytes(b"\x07" * 5000)
    site = Site(tmp_path)
    found = telemetry(site, PROFILE, "run")
    assert len(found["recordings"]) == 1 and len(found["problems"]) >= 1
    assert str(tmp_path) not in str(found)
    assert site.session("diagnosis", "run", PROFILE).json["verdict"] == "critical"
    file.write_bytes(file.read_bytes()[:20_000])  # a process that was killed
    assert telemetry(Site(tmp_path), PROFILE, "run")["recordings"][0]["gpus"]


@pytest.mark.parametrize(
    "query",
    [
        "", "metric=nope", "metric=sm_clock_mhz,nope", "metric=sm_clock_mhz&points=1",
        f"metric=sm_clock_mhz&points={MAX_POINTS + 1}", "metric=sm_clock_mhz&points=x",
        "metric=sm_clock_mhz&start_unix_ms=5", "metric=sm_clock_mhz&start_unix_ms=5&end_unix_ms=5",
        "metric=sm_clock_mhz&start_unix_ms=nan&end_unix_ms=5", "metric=sm_clock_mhz&start_unix_ms=1&end_unix_ms=1e99",
        "metric=" + ",".join(metric.id for metric in METRICS),
    ],
)  # fmt: skip
def test_bad_parameters(site: Site, query: str) -> None:
    answer = site.session(f"telemetry/series?{query}", "slow_gpu", PROFILE)
    assert answer.status_code == 400 and error_of(answer)["code"] == "bad_parameter"


def test_where_no_gpu_was_recorded_there_is_no_curve_and_no_error(site: Site) -> None:
    answer = site.session("telemetry/series?metric=", "slow_gpu", PROFILE)
    assert answer.status_code == 200 and answer.json["series"] == []


def test_unknown_sessions(site: Site) -> None:
    for route in ("telemetry", "telemetry/series?metric=sm_clock_mhz", "batch_sweeps"):
        assert site.session(route, "slow_gpu", "nope").status_code == 404


def test_units() -> None:
    units = {unit_of(metric.id) for metric in METRICS}
    assert units <= {
        "percent", "bytes", "watts", "celsius", "mhz", "bits", "bytes_per_s", "joules", "seconds", "lanes", "count",
    }  # fmt: skip
    assert unit_of("pcie_receive_bytes_per_s") == "bytes_per_s" and unit_of("memory_used_bytes") == "bytes"
    assert unit_of("pcie_width") == "lanes" and unit_of("other_processes") == "count"
