"""A recording that goes on and on stays bounded, keeps every extreme, and is read as one."""

from __future__ import annotations

from pathlib import Path

import fsspec
import numpy as np
import pytest

from tb_gpu_doctor.cli.watch import state_of
from tb_gpu_doctor.monitor import long_recording as module
from tb_gpu_doctor.recording_format import FILE_SUFFIX, PART_SUFFIX
from tb_gpu_doctor.telemetry import recordings
from tb_gpu_doctor.telemetry.recordings import TelemetryReader, find_recordings, read_telemetry
from tb_gpu_doctor.telemetry.series import Recording, level, seconds
from tb_gpu_doctor.traces.telemetry_homes import part_files
from tests.remote_stores import files_below, in_memory
from tests.telemetry.recorded import START_NS, Recorded

TICKS = 4_000
PEAK, DIP = 1_234, 2_345


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 6_000)
    monkeypatch.setattr(module, "SHORTEST_S", 10.0)
    monkeypatch.setattr(module, "INTERVALS", 100)
    monkeypatch.setattr(module, "_INTERVALS_A_BLOCK", 4)


def go_on(recorded: Recorded, first: int, last: int) -> None:
    """A tick and two steps a second; one peak of the temperature and one dip of the utilization."""
    for tick in range(first, last):
        for half in (0, 1):
            length = 2_000_000_000 if (tick, half) == (3_000, 0) else 500_000_000
            recorded.writer.steps.append((2 * tick + half, recorded.now_ns + half * 10**9 // 2, length, 32, 0))
        recorded.sample(
            2 * tick,
            temperature_celsius=(99.0 if tick == PEAK else 60.0 + tick % 5, 50.0),
            utilization_percent=(0.0 if tick == DIP else 95.0, 90.0),
            energy_joules=(300.0 * tick, 200.0 * tick),
        )
        if tick % 20 == 19:
            recorded.write()


def read(folder: Path) -> Recording:
    found = read_telemetry(folder)
    assert found.problems == ()
    (recording,) = found.recordings
    return recording


def test_it_stays_bounded_and_keeps_extremes_and_time(tmp_path: Path, small: None) -> None:
    recorded = Recorded(tmp_path)
    go_on(recorded, 0, TICKS)
    recorded.write(last=True)
    (file,) = find_recordings(tmp_path)
    assert 2 <= len(file.parts) <= module.KEPT_PARTS + 1
    assert file.parts[0].path.endswith(PART_SUFFIX) and not file.parts[0].path.endswith("part_000001" + PART_SUFFIX)
    found = read(tmp_path)
    one, other = found.gpus
    assert len(one) < TICKS / 2 and bool((np.diff(one.wall_ns) > 0).all())
    assert one.wall_ns[0] == START_NS and one.wall_ns[-1] == START_NS + (TICKS - 1) * 10**9
    assert seconds(one).sum() == pytest.approx(TICKS, rel=0.01)
    assert np.nanmax(one.high["temperature_celsius"]) == 99 and np.nanmin(one.low["utilization_percent"]) == 0
    assert np.nanmax(one.values["temperature_celsius"]) == 99, "the temperature's rule is its maximum"
    mean = float((one.values["utilization_percent"] * seconds(one)).sum() / seconds(one).sum())
    assert mean == pytest.approx(95 - 95 / TICKS, abs=0.01)
    assert bool((other.values["utilization_percent"] == 90).all())
    energy = one.values["energy_joules"]
    assert bool((np.diff(energy) > 0).all()) and energy[-1] == 300.0 * (TICKS - 1)


def test_steps_of_what_is_deleted_keep_the_longest_and_their_order(tmp_path: Path, small: None) -> None:
    recorded = Recorded(tmp_path)
    go_on(recorded, 0, TICKS)
    recorded.write(last=True)
    steps = read(tmp_path).steps
    assert len(steps.number) < TICKS and bool((np.diff(steps.number) > 0).all())
    assert steps.number[0] == 0 and steps.number[-1] == 2 * TICKS - 1
    assert int(steps.duration_ns[steps.number == 6_000][0]) == 2_000_000_000
    assert float(np.median(steps.duration_ns)) == 500_000_000


def test_curves_draw_the_extremes_of_what_is_deleted(tmp_path: Path, small: None) -> None:
    recorded = Recorded(tmp_path)
    go_on(recorded, 0, TICKS)
    recorded.write(last=True)
    one = read(tmp_path).gpus[0]
    for points in (50, 100_000):
        drawn = level(
            one.wall_ns, one.step, one.values["utilization_percent"], points,
            extremes=one.extremes("utilization_percent"),
        )  # fmt: skip
        assert drawn.low.min() == 0 and drawn.high.max() == 95 and drawn.folded
        assert bool((drawn.low <= drawn.mean).all()) and bool((drawn.mean <= drawn.high).all())


def test_a_reader_follows_while_parts_come_and_go(tmp_path: Path, small: None) -> None:
    recorded, reader = Recorded(tmp_path), TelemetryReader()
    for begin in range(0, TICKS, 500):
        go_on(recorded, begin, begin + 500)
        followed = reader.read(tmp_path)
        fresh = read(tmp_path)
        assert followed.problems == ()
        for one, other in zip(followed.recordings[0].gpus, fresh.gpus, strict=True):
            assert np.array_equal(one.wall_ns, other.wall_ns) and np.array_equal(one.step, other.step)
            for name, column in other.values.items():
                assert np.array_equal(one.values[name], column, equal_nan=True)
        assert np.array_equal(followed.recordings[0].steps.number, fresh.steps.number)
        assert fresh.gpus[0].wall_ns[-1] == START_NS + (begin + 499) * 10**9, "a killed process loses nothing old"


def test_a_short_recording_is_one_file_with_every_sample(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    go_on(recorded, 0, 600)
    recorded.write(last=True)
    found = read(tmp_path)
    assert len(found.gpus[0]) == 600 and found.gpus[0].low == {} and found.gpus[0].weight_s is None
    assert len(found.steps.number) == 1_200 and find_recordings(tmp_path)[0].parts == ()


def test_a_recording_named_by_its_own_path_has_its_parts(tmp_path: Path, small: None) -> None:
    recorded = Recorded(tmp_path)
    go_on(recorded, 0, 1_000)
    path = recorded.write(last=True)
    assert path.name.endswith(FILE_SUFFIX)
    (alone,) = read_telemetry(path).recordings
    assert len(alone.gpus[0]) == len(read(tmp_path).gpus[0]) and part_files(str(path))


def test_a_damaged_part_costs_itself_and_is_told(tmp_path: Path, small: None) -> None:
    recorded = Recorded(tmp_path)
    go_on(recorded, 0, 2_000)
    path = recorded.write(last=True)
    whole = len(read(tmp_path).gpus[0])
    part = Path(part_files(str(path))[1])
    part.write_bytes(b"\xff" * 100)
    found = read_telemetry(tmp_path)
    assert len(found.problems) == 1 and 0 < len(found.recordings[0].gpus[0]) < whole


def test_on_a_store_it_is_followed_as_on_a_disk(tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that come and go included; and `gpu-doctor watch` shows its end."""
    monkeypatch.setattr(recordings, "LISTING_AGE_S", 0.0)
    recorded, reader = Recorded(tmp_path / "logs"), TelemetryReader()
    address = in_memory({})
    store = fsspec.filesystem("memory")
    for begin in range(0, 2_000, 500):
        go_on(recorded, begin, begin + 500)
        root = "/" + address.removeprefix("memory://")
        for path in store.find(root):
            store.rm(path)
        for name, content in files_below(tmp_path / "logs").items():
            store.pipe(f"{root}/{name}", content)
        there, here = reader.read(address), read_telemetry(tmp_path / "logs")
        assert there.problems == ()
        for one, other in zip(there.recordings[0].gpus, here.recordings[0].gpus, strict=True):
            assert np.array_equal(one.wall_ns, other.wall_ns)
        assert np.array_equal(there.recordings[0].steps.number, here.recordings[0].steps.number)
    state = state_of(reader, address, "en")
    assert state.processes[0].step == 3_999 and len(state.gpus) == 2
    (file,) = find_recordings(address)
    (alone,) = read_telemetry(file.path).recordings
    assert len(alone.gpus[0]) == len(here.recordings[0].gpus[0])
