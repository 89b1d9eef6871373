"""The demo's telemetry: the same bytes every time, small, said to be simulated, and true to the profiles beside it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from simulator.telemetry_demo import TELEMETRY, telemetry_files
from tb_gpu_doctor.telemetry.recordings import read_homes, read_telemetry
from tb_gpu_doctor.telemetry.series import Recording
from tb_gpu_doctor.traces.read import read_trace
from tb_gpu_doctor.traces.sessions import Session, find_sessions
from tests.conftest import DEMO_LOGS
from tests.nvml import loaded

NAMES = tuple(TELEMETRY)


@pytest.fixture(params=NAMES)
def made(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, dict[str, bytes]]:
    driver = loaded()  # skips, saying so, where nothing can compile the stand-in
    monkeypatch.setenv("NVML_STUB_SCENARIO", str(tmp_path / "scenario.txt"))
    return request.param, telemetry_files(request.param, driver)


def committed(name: str) -> dict[str, bytes]:
    folder = DEMO_LOGS / name / "gpu_doctor"
    return {str(p.relative_to(DEMO_LOGS)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def session_of(name: str, telemetry: bool) -> Session:
    (found,) = [s for s in find_sessions(str(DEMO_LOGS)).sessions if s.run == name and s.is_telemetry == telemetry]
    return found


@cache
def recording_of(name: str) -> Recording:
    (recording,) = read_homes(session_of(name, True).homes).telemetry.recordings
    return recording


def test_the_committed_files_are_what_the_script_makes(made: tuple[str, dict[str, bytes]], tmp_path: Path) -> None:
    name, files = made
    kept = committed(name)
    assert files.keys() == kept.keys(), "run python -m simulator.demo and commit demo_logs"
    for path, content in files.items():
        if content != kept[path]:
            # Blocks are packed with zlib, of which each build may pack differently: then what they hold must be equal.
            assert path.endswith(".gpu_doctor"), path
            (tmp_path / "new").mkdir()
            (tmp_path / "new" / Path(path).name).write_bytes(content)
            (new,) = read_telemetry(tmp_path / "new").recordings
            old = recording_of(name)
            assert (new.host, new.process_id, new.spans, new.notes) == (old.host, old.process_id, old.spans, old.notes)
            assert new.steps.end_ns.tolist() == old.steps.end_ns.tolist()
            for one, other in zip(new.gpus, old.gpus, strict=True):
                assert one.facts == other.facts and one.wall_ns.tolist() == other.wall_ns.tolist()
                for metric, values in one.values.items():
                    np.testing.assert_array_equal(values, other.values[metric])


def test_it_stays_small() -> None:
    assert sum(len(content) for name in NAMES for content in committed(name).values()) < 320_000


@pytest.mark.parametrize("name", NAMES)
def test_it_says_that_it_is_simulated(name: str) -> None:
    assert recording_of(name).simulated
    assert (DEMO_LOGS / "README.md").read_text(encoding="utf-8").count("simulated") >= 2


@pytest.mark.parametrize("name", NAMES)
def test_it_fits_the_profile(name: str) -> None:
    recording, trace = recording_of(name), read_trace(session_of(name, False).files[0])
    assert trace.wall_start_unix_ns is not None and trace.recorded is not None
    start, end = (trace.wall_start_unix_ns + time // 1000 for time in trace.recorded)
    assert recording.host == trace.host
    assert [series.facts.name for series in recording.gpus] == [device.name for device in trace.devices]
    assert [series.facts.framework_id for series in recording.gpus] == [device.id for device in trace.devices]
    for series in recording.gpus:
        assert series.wall_ns[0] < start < end < series.wall_ns[-1]
        assert series.facts.limits["memory_total_bytes"] == trace.devices[0].memory_size_bytes
        assert series.facts.limits["sm_clock_max_mhz"] * 1000 == trace.devices[0].clock_khz
    # The steps that are called profiled lie in the profile.
    steps = recording.steps
    profiled = steps.profiled
    assert profiled.any() and bool((steps.end_ns[profiled] <= end).all())
    assert bool((steps.end_ns[profiled] - steps.duration_ns[profiled] >= start).all())


@pytest.mark.parametrize("name", NAMES)
def test_the_scalars_tab_shows_one_run_a_gpu(name: str) -> None:
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(DEMO_LOGS / name))
    multiplexer.Reload()
    runs = [run for run in multiplexer.Runs() if run.rpartition("/")[2].startswith("gpu")]
    assert len(runs) == len(recording_of(name).gpus)
    tags = [set(multiplexer.Runs()[run]["tensors"]) | set(multiplexer.Runs()[run]["scalars"]) for run in runs]
    assert all(tag == tags[0] and "gpu/temperature_celsius" in tag for tag in tags)
