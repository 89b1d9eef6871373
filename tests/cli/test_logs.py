"""``gpu-doctor diagnose`` of logs of nvidia-smi and DCGM: alone, named beside a profile, or found in its logdir."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import tb_gpu_doctor
from tb_gpu_doctor.cli.main import main
from tb_gpu_doctor.report.diagnosis_report import schema
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.traces.nsys_files import START_UNIX_NS, Export

Output = pytest.CaptureFixture[str]
HOT = 2
# When demo_logs/slow_gpu was recorded.
START = datetime(2026, 3, 3, 10, 41, 37, tzinfo=timezone.utc)


def write_log(path: Path, ahead_h: float = 0) -> Path:
    lines = [
        "timestamp, index, utilization.gpu [%], clocks.current.sm [MHz], clocks.max.sm [MHz], temperature.gpu, "
        "clocks_event_reasons.active, power.draw [W]"
    ]
    for second in range(-60, 120):
        for gpu in range(4):
            moment = START + timedelta(hours=ahead_h, seconds=second, milliseconds=gpu)
            told = moment.strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
            clock, heat, bits = (1300, 92, 0x40) if gpu == HOT else (1900, 60, 0)
            lines.append(f"{told}, {gpu}, 97 %, {clock} MHz, 1980 MHz, {heat}, 0x{bits:016x}, 300.00 W")
    path.write_text("\n".join(lines) + "\n")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return path


@pytest.fixture
def logdir(demo_logs: Path, tmp_path: Path) -> Path:
    """A profile without telemetry."""
    run = tmp_path / "logs" / "run"
    (run / "plugins").mkdir(parents=True)
    (run / "plugins" / "profile").symlink_to(demo_logs / "slow_gpu" / "plugins" / "profile")
    return tmp_path / "logs"


def answer(capsys: Output, *arguments: object) -> dict[str, Any]:
    assert main(["diagnose", *map(str, arguments), "--json", "--lang", "en"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def kinds(found: dict[str, Any]) -> list[str]:
    return [finding["kind"] for finding in found["findings"]]


def test_a_log_alone(tmp_path: Path, capsys: Output) -> None:
    found = answer(capsys, write_log(tmp_path / "anything.txt"))
    assert (found["verdict"], kinds(found), found["profile"]["hosts"]) == ("critical", ["thermal_throttle"], [])
    assert any("no zone" in warning for warning in found["profile"]["warnings"])
    for lang in ("en", "es"):
        jsonschema.validate(tb_gpu_doctor.diagnose(tmp_path / "anything.txt").to_dict(lang), schema())


@pytest.mark.parametrize("named", [True, False])
def test_a_log_says_why_a_gpu_of_the_profile_is_slow(logdir: Path, tmp_path: Path, capsys: Output, named: bool) -> None:
    without = answer(capsys, logdir)
    assert without["telemetry"] is None and "MHz" not in without["findings"][0]["explanation"]
    path = write_log(tmp_path / "x.csv" if named else logdir / "run" / "nvidia_smi.csv")
    found = answer(capsys, logdir, *(["--telemetry", path] if named else []))
    assert kinds(found) == ["imbalance"] and "1,300 MHz" in found["findings"][0]["explanation"]
    assert len(found["telemetry"]["gpus"]) == 4
    assert sum("no zone" in warning or "by their numbers" in warning for warning in found["profile"]["warnings"]) == 2
    jsonschema.validate(found, schema())


def test_a_zone_that_is_told_counts(logdir: Path, tmp_path: Path, capsys: Output) -> None:
    path = write_log(tmp_path / "x.csv", ahead_h=5.5)
    found = answer(capsys, logdir, "--telemetry", path, "--log-zone", "+05:30")
    assert len(found["telemetry"]["gpus"]) == 4 and not any("zone" in told for told in found["profile"]["warnings"])
    found = answer(capsys, logdir, "--telemetry", path, "--log-zone", "UTC-03:00")
    assert found["telemetry"]["gpus"] == [] and "another time" in json.dumps(found["telemetry"]["notes"])


def test_a_log_that_was_named_and_cannot_be_read(logdir: Path, tmp_path: Path, capsys: Output) -> None:
    bad = tmp_path / "x.csv"
    bad.write_text("2026/03/03 10:41:37.000, 3 %, 4 MiB\n")
    for given in (bad, tmp_path / "none.csv", tmp_path):
        assert main(["diagnose", str(logdir), "--telemetry", str(given), "--lang", "en"]) == 2
        assert str(given) in capsys.readouterr().err


def test_only_what_is_called_like_a_log_is_opened_and_of_that_little(tmp_path: Path) -> None:
    write_log(tmp_path / "nvidia-smi.log")
    write_log(tmp_path / "loss.csv")
    (tmp_path / "gpu_notes.txt").write_text("nothing\n")
    (tmp_path / "gpu.csv").write_bytes(os.urandom(10_000))
    (session,) = find_sessions(str(tmp_path)).sessions
    assert session.is_telemetry and [os.path.basename(log.path) for log in session.logs] == ["nvidia-smi.log"]


def test_a_log_is_packed_as_a_recording_only(tmp_path: Path, capsys: Output) -> None:
    path = write_log(tmp_path / "gpu.csv")
    pack = tmp_path / "a.gpudoctor.zip"
    assert main(["pack", str(path), "-o", str(pack), "--lang", "en"]) == 2
    assert "gpu-doctor import" in capsys.readouterr().err
    assert main(["import", str(path), str(tmp_path / "logs")]) == 0
    assert main(["pack", str(tmp_path / "logs"), "-o", str(pack), "--redact"]) == 0
    capsys.readouterr()
    assert kinds(answer(capsys, pack)) == ["thermal_throttle"]


def test_a_tree_full_of_names_like_logs_is_hardly_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tb_gpu_doctor.traces import sessions

    opened: list[str] = []
    monkeypatch.setattr(sessions, "log_kind", lambda path: opened.append(path))
    for folder in range(40):
        (tmp_path / str(folder)).mkdir()
        for number in range(30):
            (tmp_path / str(folder) / f"gpu_{number}.csv").touch()
    assert find_sessions(str(tmp_path)).sessions == () and len(opened) == 500


def test_a_folder_with_nothing_but_a_log_that_lacks_something_says_what(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "gpu.csv").write_text("2026/03/03 10:41:37.000, 3 %, 4 MiB\n")
    (tmp_path / "smi.xml").write_text('<?xml version="1.0" ?>\n<nvidia_smi_log>\n')
    for given, words in ((tmp_path, "no header"), (tmp_path / "smi.xml", "holds screens")):
        assert main(["diagnose", str(given), "--lang", "en"]) == 2
        assert words in capsys.readouterr().err


def test_an_export_of_nsight_systems_and_a_log_are_joined_by_uuid(tmp_path: Path, capsys: Output) -> None:
    """CUDA counts the GPUs the other way round than the driver: its GPU 0 is the hot one, which the log calls 1."""
    export = Export(tmp_path / "logs" / "report.sqlite")
    for number, uuid in enumerate(("cc-1", "cc-0")):
        export.gpu(number, number, uuid=uuid)
        for step in range(20):
            export.call("cudaLaunchKernel_v7000", 1000 + step * 10_000, 200, 5 + step, 100 + number, 100 + number)
            export.kernel("gemm", 2000 + step * 10_000, 9000, 5 + step, 100 + number, number)
    export.write()
    lines = ["timestamp, index, uuid, utilization.gpu [%], temperature.gpu"]
    for second in range(-30, 30):
        moment = datetime.fromtimestamp(START_UNIX_NS // 10**9 + second, timezone.utc)
        told = moment.strftime("%Y/%m/%d %H:%M:%S.000")
        lines += [f"{told}, {gpu}, GPU-cc-{gpu}, 97 %, {60 + 30 * gpu}" for gpu in range(2)]
    path = tmp_path / "x.csv"
    path.write_text("\n".join(lines) + "\n")
    found = answer(capsys, tmp_path / "logs", "--telemetry", path, "--log-zone", "Z")
    heat = {gpu["id"]: gpu["temperature_celsius"] for gpu in found["telemetry"]["gpus"]}
    assert heat == {0: 90.0, 1: 60.0}
    assert not any("by their numbers" in warning for warning in found["profile"]["warnings"])
