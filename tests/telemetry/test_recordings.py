"""Recordings read back: whole ones exactly, others as far as they go, and each problem told by its file."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from tb_gpu_doctor import recording_format as form
from tb_gpu_doctor.metrics import METRICS
from tb_gpu_doctor.monitor.event_file import EventFile, Origin
from tb_gpu_doctor.telemetry import decode, recordings
from tb_gpu_doctor.telemetry.recordings import TelemetryReader, find_recordings, read_telemetry
from tests.telemetry.recorded import SECOND, START_NS, Recorded

VALUES = st.one_of(st.just(float("nan")), st.floats(-1e15, 1e15))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ticks=st.lists(st.tuples(st.integers(-1, 99), VALUES, VALUES, st.booleans()), max_size=12))
def test_what_was_written_is_read(ticks: list[tuple[int, float, float, bool]], tmp_path_factory: Any) -> None:
    logdir = tmp_path_factory.mktemp("logs")
    recorded = Recorded(logdir)
    for step, one, other, written in ticks:
        recorded.sample(step, power_watts=(one, other), energy_joules=(other, one))
        if written:
            recorded.write()
    recorded.write(last=True)
    telemetry = read_telemetry(logdir)
    assert telemetry.problems == ()
    recording = telemetry.recordings[0]
    assert (recording.host, recording.process_id, recording.run) == ("node1", 42, "gpu_doctor/node1/process")
    for number, gpu in enumerate(recording.gpus):
        assert gpu.facts.nvml_index == number and gpu.facts.limits == {"sm_clock_max_mhz": 1980.0}
        assert gpu.run == f"gpu_doctor/node1/gpu{number}"
        assert gpu.wall_ns.tolist() == [START_NS + tick * SECOND for tick in range(len(ticks))]
        assert gpu.step.tolist() == [tick[0] for tick in ticks]
        for metric, column in (("power_watts", 1 + number), ("energy_joules", 2 - number)):
            wanted = np.array([tick[column] for tick in ticks], np.float64)
            if np.isnan(wanted).all():
                assert metric not in gpu.values
            else:
                assert np.array_equal(gpu.values[metric], wanted, equal_nan=True)


def test_steps_spans_facts_notes_and_sweeps(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, gpus=0)
    rows = [
        (number, START_NS + number, 700 + number, 64 if number % 2 else -1, number % 3 == 0) for number in range(50)
    ]
    recorded.writer.steps.extend((a, b, c, d, int(e)) for a, b, c, d, e in rows)
    recorded.writer.spans.append(("checkpoint", 5, 9, 3, "saved ü"))
    recorded.writer.facts.append(("environment", {"memory_growth": True, "nested": {"a": [1, None]}}))
    recorded.writer.facts.append(("driver", {"driver_version": "550"}))
    recorded.writer.facts.append(("driver", {"driver_version": "560"}))
    point = {"batch_size": 8, "samples_per_s": 10.5, "step_seconds": 0.76, "peak_bytes": 123, "problem": None}
    oom = {"batch_size": 16, "samples_per_s": None, "step_seconds": None, "peak_bytes": None, "problem": "OOM"}
    for wall_ns in (2, 1):
        sweep = {"wall_ns": wall_ns, "points": [point, oom], "fixed_seconds": 0.1, "per_sample_seconds": 0.08}
        recorded.writer.facts.append(("batch_sweep", sweep | {"recommended": 8}))
    note = {"key": "recording.gpu_lost", "params": {"gpu": "gpu7", "reason": "GPU is lost"}, "sentence": "in English"}
    recorded.writer.notes.extend([note, {"key": None, "params": {}, "sentence": "said\x1b[31m"}, note])
    recorded.write(last=True)

    telemetry = read_telemetry(tmp_path)
    assert telemetry.problems == ()
    recording = telemetry.recordings[0]
    steps = recording.steps
    columns = (steps.number, steps.end_ns, steps.duration_ns, steps.samples, steps.profiled)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == rows
    span = recording.spans[0]
    assert (span.kind, span.start_ns, span.end_ns, span.step, span.note) == ("checkpoint", 5, 9, 3, "saved ü")
    assert recording.environment == {"memory_growth": True, "nested": {"a": [1, None]}}
    assert recording.memory_growth is True
    assert recording.facts == {"driver": {"driver_version": "560"}}
    assert [sweep.wall_ns for sweep in telemetry.sweeps] == [1, 2]
    assert telemetry.sweeps[0].points[0].samples_per_s == 10.5
    assert telemetry.sweeps[0].points[1].problem == "OOM"
    assert telemetry.sweeps[0].recommended == 8
    assert recording.notes[0].startswith("gpu7 is recorded no more")
    assert recording.notes[1] == "said\\x1b[31m"
    assert len(recording.notes) == 2
    spanish = read_telemetry(tmp_path, "es").recordings[0]
    assert spanish.notes[0].startswith("gpu7 ya no se registra")


def recorded_file(logdir: Path, ticks: int = 12) -> Path:
    recorded = Recorded(logdir)
    for tick in range(ticks):
        recorded.sample(tick, power_watts=(tick, tick), temperature_celsius=(50, 51))
        path = recorded.write()
    recorded.write(last=True)
    return path


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 17, 200])
def test_the_end_of_a_live_file_is_left_for_the_next_time(cut: int, tmp_path: Path) -> None:
    path = recorded_file(tmp_path)
    whole = path.read_bytes()
    reader = TelemetryReader()
    path.write_bytes(whole[:-cut])
    telemetry = reader.read(tmp_path)
    assert telemetry.problems == ()
    before = len(telemetry.recordings[0].gpus[0])
    assert 9 <= before <= 12
    with path.open("r+b") as file:
        file.write(whole)
    assert len(reader.read(tmp_path).recordings[0].gpus[0]) == 12


def test_every_cut_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = recorded_file(tmp_path, ticks=3)
    whole = path.read_bytes()
    lengths = []
    for size in range(0, len(whole) + 1, 7):
        path.write_bytes(whole[:size])
        telemetry = read_telemetry(tmp_path)
        assert telemetry.problems == ()
        lengths.append(len(telemetry.recordings[0].gpus[0]) if telemetry.recordings else -1)
    assert lengths == sorted(lengths)
    assert {-1, 0, 1, 2} <= set(lengths)


def test_growing_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(tmp_path)
    reader, offsets = TelemetryReader(), []
    original = recordings.read_records
    monkeypatch.setattr(
        recordings, "read_records", lambda path, at, take: offsets.append(at) or original(path, at, take)
    )
    for tick in range(4):
        recorded.sample(tick, power_watts=(tick, tick))
        path = recorded.write()
        telemetry = reader.read(tmp_path)
        assert telemetry.recordings[0].gpus[0].values["power_watts"].tolist() == list(range(tick + 1))
    assert len(offsets) == 4 and offsets == sorted(set(offsets)) and offsets[0] == 0
    reader.read(tmp_path)
    assert len(offsets) == 4, "what has not grown is not opened"
    # Another file in its place, as after a copy.
    other = tmp_path / "other"
    other.mkdir()
    shorter = recorded_file(other, ticks=2)
    os.replace(shorter, path)
    assert len(reader.read(tmp_path).recordings[0].gpus[0]) == 2
    path.unlink()
    assert not [recording for recording in reader.read(tmp_path).recordings if recording.run == "gpu_doctor/node1"]


def test_a_damaged_head_ends_the_file_and_names_it(tmp_path: Path) -> None:
    path = recorded_file(tmp_path)
    content = bytearray(path.read_bytes())
    offset, starts = 0, []
    while offset < len(content):
        starts.append(offset)
        offset += 16 + struct.unpack_from("<Q", content, offset)[0]
    content[starts[-4]] ^= 0xFF
    path.write_bytes(content)
    telemetry = read_telemetry(tmp_path)
    assert 7 <= len(telemetry.recordings[0].gpus[0]) < 12
    assert len(telemetry.problems) == 1
    assert f"gpu_doctor/node1/process/{path.name}" in telemetry.problems[0]
    assert f"at byte {starts[-4]}" in telemetry.problems[0]
    assert "está dañado" in read_telemetry(tmp_path, "es").problems[0]


def test_a_damaged_block_is_a_hole_and_told(tmp_path: Path) -> None:
    path = recorded_file(tmp_path)
    content = path.read_bytes()
    at = content.rindex(b"GDs1")
    path.write_bytes(content[: at + 30] + b"\xff\xff\xff" + content[at + 33 :])
    telemetry = read_telemetry(tmp_path)
    assert len(telemetry.recordings[0].gpus[0]) == 11
    assert "1 record of" in telemetry.problems[0] and path.name in telemetry.problems[0]


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_raises_or_hangs(data: st.DataObject, tmp_path_factory: Any) -> None:
    logdir = tmp_path_factory.mktemp("logs")
    path = recorded_file(logdir, ticks=2)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path.write_bytes(content)
    telemetry = read_telemetry(logdir)
    assert all(path.name in problem for problem in telemetry.problems)


def hostile(logdir: Path, records: list[tuple[str, bytes]]) -> Path:
    folder = logdir / "gpu_doctor" / "x" / "process"
    folder.mkdir(parents=True)
    file = EventFile(str(folder), Origin("x", 1, lambda: START_NS), form.FILE_SUFFIX)
    for number, (tag, content) in enumerate(records):
        file.record(tag, content, number, 1.0)
    file.close()
    return Path(file.path)


@pytest.mark.parametrize(
    ("tag", "content"),
    [
        (form.TAG_RECORDING, b"[]"),
        (form.TAG_RECORDING, b"{" * 100_000),
        (form.TAG_RECORDING, b'{"gpus": 7, "metrics": [1]}'),
        (form.TAG_RECORDING, b'{"gpus": [[]]}'),
        (form.TAG_RECORDING, b'{"gpus": [{"limits": [1]}], "process_id": 1e400}'),
        (form.TAG_RECORDING, b'{"host": null, "process_id": "\\ud800"}'),
        (form.TAG_RECORDING, b'{"gpus": [{"run": "../../../etc/passwd", "nvml_index": true, "uuid": {}}]}'),
        (form.TAG_SPANS, b'[["a", 1, 2, 99999999999999999999999, "x"]]'),
        (form.TAG_SPANS, b'[["a"]]'),
        (form.TAG_SPANS, b'{"a": 1}'),
        (form.TAG_NOTES, b"[1, 2]"),
        (form.TAG_NOTES, b'[{"key": "recording.gpu_lost", "params": {"lang": 1, "gpu": [1]}, "sentence": 7}]'),
        (form.TAG_NOTES, b'[{"key": "../../x", "params": 3}]'),
        (form.TAG_FACTS + "environment", b"3"),
        (form.TAG_FACTS + "batch_sweep", b'{"points": 3}'),
        (form.TAG_FACTS + "batch_sweep", b'{"points": [3], "wall_ns": 1}'),
        (form.TAG_SAMPLES, b"GDs1"),
        (form.TAG_STEPS, b"\xff" * 50),
        ("gpu_doctor/of_a_later_version", b"x"),
    ],
)
def test_records_made_to_harm_are_passed_over(tag: str, content: bytes, tmp_path: Path) -> None:
    head = json.dumps({"host": "x", "process_id": 1, "metrics": ["power_watts"], "gpus": []}).encode()
    path = hostile(tmp_path, [(form.TAG_RECORDING, head), (tag, content)])
    telemetry = read_telemetry(tmp_path)
    assert all(path.name in problem for problem in telemetry.problems)
    for recording in telemetry.recordings:
        assert all(gpu.run.startswith("gpu_doctor/x/") for gpu in recording.gpus)


def test_a_record_that_claims_to_be_huge_is_not_read(tmp_path: Path) -> None:
    path = hostile(tmp_path, [])
    length = struct.pack("<Q", 1 << 40)
    with path.open("ab") as file:
        file.write(length + struct.pack("<I", masked_crc32c(length)))
        file.truncate(file.tell() + (1 << 41))  # a sparse file as long as it says
    telemetry = read_telemetry(tmp_path)
    assert telemetry.recordings == ()
    assert path.name in telemetry.problems[0]


def test_a_recording_longer_than_memory_is_folded_by_each_metrics_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks, bits = 400, [1, 2, 4, 8]
    recorded = Recorded(tmp_path, gpus=2)
    for tick in range(ticks):
        recorded.sample(
            tick,
            power_watts=(tick, 2 * tick),
            temperature_celsius=(tick % 7, tick % 5),
            energy_joules=(tick, 10 * tick),
            clock_event_reasons=(bits[tick % 4], 0),
        )
        recorded.write()
    recorded.write(last=True)
    whole = read_telemetry(tmp_path).recordings[0].gpus
    monkeypatch.setattr(decode, "MAX_VALUES", len(METRICS) * 2 * 120)
    telemetry = read_telemetry(tmp_path)
    assert "4 samples of it are folded to one" in telemetry.problems[0]
    for number, gpu in enumerate(telemetry.recordings[0].gpus):
        assert 90 < len(gpu) < 120
        full = whole[number]
        ends = np.searchsorted(full.wall_ns, gpu.wall_ns) + 1
        assert ends[-1] == ticks, "the newest samples are there"
        assert gpu.step.tolist() == full.step[ends - 1].tolist()
        parts = [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        values, fulls = gpu.values, full.values
        assert values["energy_joules"].tolist() == [fulls["energy_joules"][part][-1] for part in parts]
        assert values["temperature_celsius"].tolist() == [fulls["temperature_celsius"][part].max() for part in parts]
        assert np.allclose(
            values["power_watts"], [fulls["power_watts"][part].mean() for part in parts], rtol=0.02, atol=2
        )
        reasons = [np.bitwise_or.reduce(fulls["clock_event_reasons"][part].astype(int)) for part in parts]
        assert values["clock_event_reasons"].tolist() == reasons


def test_of_too_many_steps_the_newest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MAX_STEPS", 50)
    recorded = Recorded(tmp_path, gpus=0)
    for number in range(90):
        recorded.writer.steps.append((number, number, 1, 1, 0))
        path = recorded.write()
    recorded.write(last=True)
    telemetry = read_telemetry(tmp_path)
    assert telemetry.recordings[0].steps.number.tolist() == list(range(40, 90))
    assert path.name in telemetry.problems[0]


def test_of_too_many_recordings_the_newest_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        path = recorded_file(tmp_path / f"run{number}", ticks=1)
        os.utime(path, ns=(START_NS + number * SECOND,) * 2)
    monkeypatch.setattr(recordings, "MAX_RECORDINGS", 2)
    telemetry = read_telemetry(tmp_path)
    assert [recording.run.split("/")[0] for recording in telemetry.recordings] == ["run3", "run4"]
    assert "5 recordings" in telemetry.problems[0]


def test_recordings_are_found_at_any_depth_and_loops_end(tmp_path: Path) -> None:
    deep = tmp_path / "/".join("abcdefgh")
    recorded_file(deep, ticks=1)
    recorded_file(tmp_path, ticks=1)
    (deep / "back").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    (tmp_path / "link").symlink_to(deep / "gpu_doctor")
    runs = [recording.run for recording in read_telemetry(tmp_path).recordings]
    assert runs == ["a/b/c/d/e/f/g/h/gpu_doctor/node1/process", "gpu_doctor/node1/process"]
    (deep / "back").unlink()
    # From the inside as well: a run's folder, the recordings' folder, one file.
    for inside in (deep, deep / "gpu_doctor", deep / "gpu_doctor" / "node1" / "process"):
        assert len(read_telemetry(inside).recordings) == 1, inside
    file = next((deep / "gpu_doctor" / "node1" / "process").iterdir())
    assert len(read_telemetry(file).recordings) == 1


def test_finding_recordings_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not find_recordings(tmp_path)
    assert not find_recordings(tmp_path / "missing")
    assert not find_recordings("memory://no/such/logs")
    (tmp_path / "events.out.tfevents.1.host.1.0").write_bytes(b"")
    assert not find_recordings(tmp_path)
    recorded_file(tmp_path / "run", ticks=1)
    monkeypatch.setattr("builtins.open", None)
    assert find_recordings(tmp_path)


def test_folders_that_cannot_be_read_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded_file(tmp_path / "run", ticks=1)
    (tmp_path / "closed").mkdir()
    original = os.scandir

    def scandir(path: str) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return original(path)

    monkeypatch.setattr(recordings.os, "scandir", scandir)
    telemetry = read_telemetry(tmp_path)
    assert len(telemetry.recordings) == 1
    assert "closed" in telemetry.problems[0] and "Permission denied" in telemetry.problems[0]


def test_an_address_that_nothing_opens_is_told() -> None:
    assert "gpudoctor://bucket/logs" in read_telemetry("gpudoctor://bucket/logs").problems[0]


def test_a_pipe_of_such_a_name_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"events.out.tfevents.1.h.1.0{form.FILE_SUFFIX}")
    assert read_telemetry(tmp_path).recordings == ()


def test_time_that_turns_back_is_put_in_order(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    for tick in (3, 1, 2, 1):
        recorded.now_ns = START_NS + tick * SECOND
        recorded.sample(tick, power_watts=(tick, tick))
    recorded.write(last=True)
    gpu = read_telemetry(tmp_path).recordings[0].gpus[0]
    assert gpu.step.tolist() == [1, 2, 3]
    assert gpu.values["power_watts"].tolist() == [1, 2, 3]
    assert (np.diff(gpu.wall_ns) > 0).all()


def test_what_could_not_be_opened_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(tmp_path)
    recorded.sample(0, power_watts=(1.0, 2.0))
    recorded.write(last=True)
    reader = TelemetryReader()
    with monkeypatch.context() as broken:
        broken.setattr(recordings, "read_records", lambda *_: (_ for _ in ()).throw(PermissionError(13, "no")))
        telemetry = reader.read(tmp_path)
        assert len(telemetry.problems) == 1 and not telemetry.recordings
    telemetry = reader.read(tmp_path)
    assert telemetry.problems == () and len(telemetry.recordings) == 1


def test_small_blocks_that_unpack_to_much_stay_within_memory(tmp_path: Path) -> None:
    """Of nothing but their times, blocks pack a thousandfold; as columns of 1,024 GPUs each is tens of gigabytes."""
    gpus = [{"label": f"gpu{number}"} for number in range(form.MAX_GPUS)]
    metrics = [metric.id for metric in METRICS]
    head = json.dumps({"host": "x", "process_id": 1, "metrics": metrics, "gpus": gpus}).encode()
    ticks = form.MAX_TICKS
    empty = form.encode_samples(
        np.arange(ticks, dtype=np.int64), np.zeros(ticks, np.int64), np.full((0, form.MAX_GPUS, ticks), np.nan)
    )
    path = hostile(tmp_path, [(form.TAG_RECORDING, head), *[(form.TAG_SAMPLES, empty)] * 3])
    assert path.stat().st_size < 3_000_000
    tracemalloc.start()
    try:
        telemetry = read_telemetry(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "3" in telemetry.problems[0] and peak < 200_000_000


def test_blocks_before_their_head_stay_within_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_MOST_EARLY_BYTES", 10_000)
    ticks = 100
    block = form.encode_samples(np.arange(ticks, dtype=np.int64), np.zeros(ticks, np.int64), np.ones((1, 1, ticks)))
    head = json.dumps({"host": "x", "process_id": 1, "metrics": ["power_watts"], "gpus": [{"label": "gpu0"}]}).encode()
    hostile(tmp_path, [*[(form.TAG_SAMPLES, block)] * 50, (form.TAG_RECORDING, head)])
    (gpu,) = read_telemetry(tmp_path).recordings[0].gpus
    assert len(gpu) == ticks, "the last of them are there"


def test_pieces_are_made_before_they_are_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(tmp_path, gpus=2)
    for tick in range(100):
        recorded.sample(tick, power_watts=(tick, -tick))
        recorded.write()
    recorded.write(last=True)
    whole = read_telemetry(tmp_path).recordings[0].gpus
    monkeypatch.setattr(decode, "_VALUES_A_PIECE", len(METRICS) * 2 * 7)
    for gpu, expected in zip(read_telemetry(tmp_path).recordings[0].gpus, whole, strict=True):
        assert np.array_equal(gpu.values["power_watts"], expected.values["power_watts"])
        assert np.array_equal(gpu.wall_ns, expected.wall_ns)


def test_stacks_of_a_process_that_holds_pythons_lock_belong_to_its_recording(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, gpus=1)
    recorded.sample(1, power_watts=(1.0,))
    recorded.write(last=True)
    (file,) = find_recordings(tmp_path)
    reader, stacks = TelemetryReader(), Path(file.path).parent / "python_stacks.txt"
    stacks.touch()
    assert "lock_held" not in reader.read(tmp_path).recordings[0].facts
    stacks.write_text('Thread 0x01 (most recent call first):\n  File "loop.py", line 3 in step\n')
    held = reader.read(tmp_path).recordings[0].facts["lock_held"]
    assert held["threads"] == [{"name": "thread 1", "main": True, "frames": ["loop.py:3 step"]}]
    assert held["written_unix_ns"] == stacks.stat().st_mtime_ns and held["resumed"] is False
    stacks.unlink()
    assert "lock_held" not in reader.read(tmp_path).recordings[0].facts
