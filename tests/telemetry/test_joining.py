"""Telemetry meets a profile by host, time and GPU, and otherwise does not, and says so."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.facts import file_facts
from tb_gpu_doctor.api import span_of
from tb_gpu_doctor.telemetry.joining import Joined, ProfileSpan, extent, join, newest, profile_span
from tb_gpu_doctor.telemetry.series import Recording, Telemetry
from tests.diagnosis.build import trace
from tests.telemetry.build import START_NS, S, recording, series, steps

WINDOW = (START_NS + 40 * S, START_NS + 42 * S)


def span(
    host: str = "node1", gpus: Sequence[int] = (0, 1), window: tuple[int, int] | None = WINDOW, label: str = ""
) -> ProfileSpan:
    return ProfileSpan(label or host, (host,), tuple(gpus), window, None if window is None else window[0])


def joined(*recordings: Recording, spans: Sequence[ProfileSpan] = (span(),)) -> Joined:
    return join(Telemetry(tuple(recordings)), spans)


def codes(found: Joined) -> list[str]:
    return [note.code.removeprefix("telemetry_") for _, note in found.reasons]


def test_the_same_host_and_time_and_the_recorded_map() -> None:
    # The framework's GPU 0 is NVML's GPU 3.
    one, two = series(3, framework_id=0), series(1, framework_id=1)
    found = joined(recording(one, two))
    assert [(gpu.gpu, gpu.profile, gpu.series.facts.nvml_index) for gpu in found.gpus] == [
        (0, (0, 0), 3),
        (1, (0, 1), 1),
    ]
    assert codes(found) == [] and len(found.recordings) == 1
    assert all(gpu.window_ns == WINDOW and gpu.host == "node1" for gpu in found.gpus)


def test_without_a_map_nothing_is_guessed() -> None:
    found = joined(recording(series(0, framework_id=None), series(1, framework_id=None)))
    assert found.gpus == () and codes(found) == ["unknown_gpus"]


def test_gpus_outside_the_profile_are_left_alone() -> None:
    found = joined(recording(*(series(gpu) for gpu in range(4))))
    assert [gpu.gpu for gpu in found.gpus] == [0, 1]


@pytest.mark.parametrize(
    ("recorded", "profiled", "fits"),
    [
        ("node1", "node1", True), ("node1", "NODE1", True), ("node1.cluster", "node1", True),
        ("node1", "node1.cluster", True), ("node1", "node1_4711", True), ("node1", "node2", False),
        ("node1", "node11", False), ("node-1", "node-2", False), ("node", "node-2", False),
        ("node1", "worker_a", False),
    ],
)  # fmt: skip
def test_hosts(recorded: str, profiled: str, fits: bool) -> None:
    found = joined(recording(series(0, host=recorded), host=recorded), spans=[span(profiled)])
    assert bool(found.gpus) == fits
    assert codes(found) == ([] if fits else ["other_host"])


@pytest.mark.parametrize(
    ("window", "code"),
    [
        ((START_NS - 10 * S, START_NS - 8 * S), "other_time"),
        ((START_NS + 110 * S, START_NS + 112 * S), "other_time"),
        (None, "no_wall_clock"),
    ],
)
def test_only_where_wall_times_overlap(window: tuple[int, int] | None, code: str) -> None:
    found = joined(recording(series(0)), spans=[span(window=window)])
    assert found.gpus == () and codes(found) == [code]


def test_a_monitor_that_began_a_moment_after_the_profile_still_fits() -> None:
    assert joined(recording(series(0)), spans=[span(window=(START_NS - 3 * S, START_NS - S))]).gpus


def test_a_recording_without_samples() -> None:
    assert codes(joined(recording(series(0, count=0)))) == ["no_samples"]
    assert codes(joined(recording())) == ["no_samples"]


def test_restarts_are_told_apart_by_time() -> None:
    early = recording(series(0, start_ns=START_NS - 500 * S), run="run/gpu_doctor/node1/process")
    now = recording(series(0), run="run/gpu_doctor/node1/process_2")
    late = recording(series(0, start_ns=START_NS + 500 * S), run="run/gpu_doctor/node1/process_3")
    found = joined(early, now, late)
    assert [gpu.recording.run for gpu in found.gpus] == [now.run]
    assert codes(found) == ["other_time", "other_time"]


def test_two_monitors_of_one_gpu_give_the_longer_one() -> None:
    short = recording(series(0, count=60), run="run/gpu_doctor/node1/process")
    long = recording(series(0, count=90), run="run/gpu_doctor/node1/process_2")
    assert joined(short, long).gpus[0].recording is long


def test_processes_that_each_call_their_gpu_0_are_not_mixed_up() -> None:
    # Four ranks, each with one visible GPU: the profile's GPU 0 could be any of them.
    ranks = [
        recording(series(gpu, framework_id=0), process_id=100 + gpu, run=f"run/gpu_doctor/node1/process_{gpu}")
        for gpu in range(4)
    ]
    found = joined(*ranks, spans=[span(gpus=[0])])
    assert found.gpus == () and "two_gpus" in codes(found)
    # PyTorch's file names hold the process.
    spans = [span(f"node1_{100 + gpu}", [0], label=f"rank{gpu}") for gpu in range(4)]
    found = joined(*ranks, spans=spans)
    assert [(gpu.host, gpu.series.facts.nvml_index) for gpu in found.gpus] == [(f"rank{gpu}", gpu) for gpu in range(4)]
    assert codes(found) == []


def test_several_hosts() -> None:
    hosts = [recording(series(0, host=f"node{i}"), host=f"node{i}") for i in range(3)]
    found = joined(*hosts, spans=[span("node2", [0]), span("node0", [0])])
    assert [(gpu.host, gpu.recording.host) for gpu in found.gpus] == [("node2", "node2"), ("node0", "node0")]
    assert codes(found) == ["other_host"]


def test_the_wall_clock_of_a_file() -> None:
    bounds = (2_000_000_000_000, 5_000_000_000_000)
    assert profile_span("worker0", ["worker0"], [0, 1], None, bounds).window_ns is None
    assert profile_span("worker0", ["worker0"], [0, 1], START_NS, None).window_ns is None
    found = profile_span("label", ["file_host", "", "worker0"], [0, 1], START_NS, bounds)
    assert found.window_ns == (START_NS + 2 * S, START_NS + 5 * S)
    assert found.hosts == ("file_host", "worker0", "label") and found.gpus == (0, 1)


def test_the_span_of_a_profile_is_what_was_recorded() -> None:
    timed = dataclasses.replace(trace(2), wall_start_unix_ns=START_NS, recorded=(2_000_000_000_000, 5_000_000_000_000))
    assert span_of(file_facts(timed, analyse(timed), "label")).window_ns == (START_NS + 2 * S, START_NS + 5 * S)
    unbounded = dataclasses.replace(timed, recorded=None)
    # The events of 10 steps of 100 ms, from the middle of the first one on.
    assert span_of(file_facts(unbounded, analyse(unbounded), "label")).window_ns == (START_NS + S // 20, START_NS + S)


def test_without_a_profile_the_newest_recording_and_those_beside_it_count() -> None:
    old = [
        recording(series(0, start_ns=START_NS - k * 1000 * S), run=f"run/gpu_doctor/node1/process_{k}")
        for k in (1, 2, 3)
    ]
    ranks = [recording(series(k), process_id=k, run=f"run/gpu_doctor/node1/process_now{k}") for k in (0, 1)]
    found = newest(Telemetry((*old, *ranks)))
    assert [gpu.gpu for gpu in found.gpus] == [0, 1] and len(found.recordings) == 2
    assert codes(found) == ["older"] * 3
    assert newest(Telemetry()) == Joined()


def test_without_a_profile_gpus_with_one_number_are_called_by_the_driver() -> None:
    ranks = [recording(series(k, framework_id=0), process_id=k, run=f"run/gpu_doctor/node1/p{k}") for k in range(3)]
    assert [gpu.gpu for gpu in newest(Telemetry(tuple(ranks))).gpus] == [0, 1, 2]


def test_the_extent_knows_steps_too() -> None:
    assert extent(recording(step_times=steps([1.0, 1.0]))) == (START_NS, START_NS + 2 * S)
    assert extent(recording()) is None


def test_uuids_tell_where_nobody_knows_the_frameworks_numbers() -> None:
    one, two = series(0, framework_id=None), series(1, framework_id=None)
    uuid = str(two.facts.uuid).removeprefix("GPU-")
    found = joined(recording(one, two), spans=[dataclasses.replace(span(gpus=(0,)), uuids=(uuid.upper(),))])
    assert [(gpu.gpu, gpu.series.facts.nvml_index) for gpu in found.gpus] == [(0, 1)]
    blotted = dataclasses.replace(one, facts=dataclasses.replace(one.facts, uuid="GPU-00000000-0000"))
    spans = [dataclasses.replace(span(gpus=(0,)), uuids=("00000000-0000",))]
    assert joined(recording(blotted), spans=spans).gpus == ()
