"""Logs beside a profile: by UUID or number, and by time, with the zone concluded or asked for; and alone."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.telemetry.joining import Joined, ProfileSpan
from tb_gpu_doctor.telemetry.log_recordings import join_logs, logs_alone, together
from tb_gpu_doctor.telemetry.recordings import HomeTelemetry
from tb_gpu_doctor.telemetry.series import Telemetry
from tb_gpu_doctor.traces.log_heads import LogFile

START = datetime(2031, 3, 4, 5, 0, 0, tzinfo=timezone.utc)
START_NS = round(START.timestamp()) * 10**9
SECOND = 10**9
LONG_AGO_S = 1_000_000_000


def log(
    folder: Path,
    name: str = "gpu.csv",
    *,
    minutes: float = 5,
    gpus: int = 2,
    ahead_h: float = 0,
    mtime_s: float | None = LONG_AGO_S,
) -> Path:
    """A log from `START` on, on a clock that is ahead of UTC."""
    lines = ["timestamp, index, uuid, utilization.gpu [%]"]
    for second in range(round(minutes * 60)):
        moment = START + timedelta(hours=ahead_h, seconds=second)
        told = moment.strftime("%Y/%m/%d %H:%M:%S.000")
        lines += [f"{told}, {gpu}, GPU-0a{gpu}, {50 + gpu} %" for gpu in range(gpus)]
    path = folder / "gpu.csv"
    path.write_text("\n".join(lines) + "\n")
    os.utime(path, (mtime_s, mtime_s))
    return path


def profile(
    *gpus: int, host: str = "node1", second: float = 60, uuids: tuple[str | None, ...] = (), timed: bool = True
) -> ProfileSpan:
    start = START_NS + round(second * SECOND)
    window = (start, start + 2 * SECOND) if timed else None
    return ProfileSpan(host, (host,), gpus, window, start if timed else None, uuids)


def joined(file: LogFile, *profiles: ProfileSpan) -> Joined:
    return join_logs([file], profiles)[1]


def codes(found: Joined) -> list[str]:
    return [phrase.code for _, phrase in found.reasons]


def test_by_uuid_whatever_the_numbers(tmp_path: Path) -> None:
    file = LogFile(str(log(tmp_path, ahead_h=2)), zone_s=7200)
    found = joined(file, profile(0, 1, uuids=("0a1", "GPU-0A0")))
    assert [(gpu.gpu, gpu.series.facts.nvml_index) for gpu in found.gpus] == [(0, 1), (1, 0)]
    assert int(found.gpus[0].series.wall_ns[0]) == START_NS
    assert found.assumed == () and found.reasons == ()


def test_other_uuids_are_other_gpus(tmp_path: Path) -> None:
    file = LogFile(str(log(tmp_path)), zone_s=0)
    found = joined(file, profile(0, uuids=("0b7",)))
    assert found.gpus == () and codes(found) == ["telemetry_log_other_gpus"]


def test_by_number_where_both_are_of_one_machine_and_that_is_said(tmp_path: Path) -> None:
    found = joined(LogFile(str(log(tmp_path)), zone_s=0), profile(1))
    assert [(gpu.host, gpu.gpu, gpu.series.facts.uuid) for gpu in found.gpus] == [("node1", 1, "GPU-0a1")]
    assert [phrase.code for phrase in found.assumed] == ["log_by_index"]


def test_ranks_of_one_machine_by_their_numbers(tmp_path: Path) -> None:
    file = LogFile(str(log(tmp_path)), zone_s=0)
    found = joined(file, profile(0, host="node1_4711"), profile(1, host="node1_4712"))
    assert [(gpu.host, gpu.gpu) for gpu in found.gpus] == [("node1_4711", 0), ("node1_4712", 1)]
    ranks = joined(file, profile(0, host="rank0"), profile(1, host="rank1"))
    assert [(gpu.host, gpu.gpu) for gpu in ranks.gpus] == [("rank0", 0), ("rank1", 1)]


def test_processes_that_each_count_from_zero_are_not_told_apart_by_number(tmp_path: Path) -> None:
    file = LogFile(str(log(tmp_path)), zone_s=0)
    found = joined(file, profile(0, host="node1_4711"), profile(0, host="node1_4712"))
    assert found.gpus == () and codes(found) == ["telemetry_unknown_gpus"]


def test_which_of_several_hosts_is_not_guessed(tmp_path: Path) -> None:
    file = LogFile(str(log(tmp_path)), zone_s=0)
    found = joined(file, profile(0, host="node1"), profile(1, host="node2"))
    assert found.gpus == () and codes(found) == ["telemetry_log_host"]


@pytest.mark.parametrize("ahead_h", [-8.0, 0.0, 5.75, 9.0])
def test_the_files_own_time_tells_the_zone(tmp_path: Path, ahead_h: float) -> None:
    path = log(tmp_path, minutes=300, ahead_h=ahead_h, mtime_s=START.timestamp() + 300 * 60 + 0.5)
    found = joined(LogFile(str(path)), profile(0))
    assert int(found.gpus[0].series.wall_ns[0]) == START_NS
    assert found.assumed[0].code == "log_zone_by_file"


def test_the_only_zone_in_which_it_covers_the_profile(tmp_path: Path) -> None:
    found = joined(LogFile(str(log(tmp_path, ahead_h=-5))), profile(0))
    assert int(found.gpus[0].series.wall_ns[0]) == START_NS
    assert found.assumed[0].code == "log_zone_by_profile" and found.assumed[0].params == {"zone": "UTC-05:00"}


def test_several_zones_are_asked_for(tmp_path: Path) -> None:
    path = log(tmp_path, minutes=240, ahead_h=1)
    assert codes(joined(LogFile(str(path)), profile(0, second=7200))) == ["telemetry_log_zone"]
    assert joined(LogFile(str(path), zone_s=3600), profile(0, second=7200)).gpus


def test_another_time_and_a_profile_without_one(tmp_path: Path) -> None:
    path = log(tmp_path)
    assert codes(joined(LogFile(str(path)), profile(0, second=40 * 86400))) == ["telemetry_other_time"]
    assert codes(joined(LogFile(str(path)), profile(0, timed=False))) == ["telemetry_no_wall_clock"]
    assert codes(joined(LogFile(str(path), zone_s=0), profile(0, second=7200))) == ["telemetry_other_time"]


def test_a_log_without_times_is_not_joined(tmp_path: Path) -> None:
    path = tmp_path / "dmon.log"
    path.write_text("# gpu    pwr \n# Idx      W \n    0     33 \n    0     34 \n")
    assert codes(joined(LogFile(str(path)), profile(0))) == ["telemetry_log_no_times"]


def test_a_monitor_counts_before_a_log(tmp_path: Path) -> None:
    home, found = join_logs([LogFile(str(log(tmp_path)), zone_s=0)], [profile(0, 1)])
    monitor_home = HomeTelemetry(Telemetry(home.telemetry.recordings), {"en": {}}, {"en": ("odd",)})
    monitor = Joined(gpus=found.gpus[:1], recordings=found.recordings)
    both_home, both = together((monitor_home, monitor), (home, found))
    assert [gpu.gpu for gpu in both.gpus] == [0, 1] and both.gpus[0] is found.gpus[0]
    assert len(both_home.telemetry.recordings) == 2 and both_home.problems["en"] == ("odd",)


def test_alone_this_machines_zone_is_assumed_and_said(tmp_path: Path) -> None:
    read = logs_alone([LogFile(str(log(tmp_path)))])
    (recording,) = read.recordings
    assert recording.is_log and [len(gpu) for gpu in recording.gpus] == [300, 300]
    assert [phrase.code for phrase in read.said[recording.run]] == ["log_zone_here"]
    home = read.home()
    assert home.telemetry.recordings[0].notes and home.notes["es"][recording.run] != home.notes["en"][recording.run]


def test_one_that_was_named_must_be_readable_others_are_told(tmp_path: Path) -> None:
    good = log(tmp_path)
    bad = tmp_path / "smi.csv"
    bad.write_text("timestamp, index, utilization.gpu [%]\n")
    with pytest.raises(ProfileError):
        logs_alone([LogFile(str(good)), LogFile(str(bad), given=True)])
    with pytest.raises(ProfileError):
        join_logs([LogFile(str(bad), given=True)], [profile(0)])
    read = logs_alone([LogFile(str(good)), LogFile(str(bad))])
    assert len(read.recordings) == 1 and [phrase.code for phrase in read.problems] == ["log_no_rows"]
