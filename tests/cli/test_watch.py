"""``gpu-doctor watch``: the state of a training once, as JSON, and while it runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tb_gpu_doctor.cli.main import main
from tests.nvml import PREFACE, REPOSITORY, driver_environment

TRAINING = """
with GpuMonitor(logdir, 0.1) as monitor:
    for number in range(60):
        with monitor.train_step(number, batch_size=32):
            time.sleep(0.05)
    print("trained", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watched")
    scenario = "gpus 2\ngpu * utilization 96\ngpu 1 reasons 0x20\ngpu 1 sm_clock 900\ngpu 1 temperature 90"
    done = subprocess.run(
        [sys.executable, "-c", PREFACE.format(logdir=str(folder / "logs")) + TRAINING],
        input="\n",
        text=True,
        capture_output=True,
        cwd=REPOSITORY,
        env=driver_environment(scenario, folder),
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return folder / "logs"


def once(logdir: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["watch", str(logdir), "--once", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_once_as_json(logdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, Any] = json.loads(once(logdir, capsys, "--json", "--lang", "en"))
    assert found["schema_version"] == 1 and found["verdict"] == "critical"
    assert [gpu["gpu"] for gpu in found["gpus"]] == [0, 1]
    hot = found["gpus"][1]
    assert hot["utilization"] == pytest.approx(0.96) and hot["temperature_celsius"] == 90
    assert hot["throttled"] == ["software_thermal"] and found["gpus"][0]["throttled"] == []
    (process,) = found["processes"]
    assert process["step"] == 59 and 5 < process["steps_per_s"] < 21 and process["ended"] == "normal"
    assert process["samples_per_s"] == pytest.approx(32 * process["steps_per_s"])
    assert [finding["kind"] for finding in found["findings"]] == ["thermal_throttle"]


@pytest.mark.parametrize(("lang", "word"), [("en", "steps/s"), ("es", "pasos/s")])
def test_once_as_a_screen(logdir: Path, lang: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = once(logdir, capsys, "--lang", lang)
    assert word in shown and "900 MHz" in shown and "59" in shown


def test_without_a_recording_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path), "--once", "--lang", "en"]) == 2
    assert "There is no recording below" in capsys.readouterr().err
    assert main(["watch", str(tmp_path), "--interval", "0", "--lang", "en"]) == 2


@pytest.mark.slow
def test_it_follows_a_training_until_it_is_interrupted(logdir: Path) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-m", "tb_gpu_doctor.cli.main", "watch", str(logdir), "--json", "--interval", "0.2"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert watching.stdout is not None
    looks = [json.loads(watching.stdout.readline()) for _ in range(3)]
    watching.send_signal(signal.SIGINT)
    assert watching.wait(20) == 0
    assert looks[0]["unix_ms"] < looks[2]["unix_ms"] and looks[2]["processes"][0]["step"] == 59
    assert looks[2]["processes"][0]["age_s"] > looks[0]["processes"][0]["age_s"]


def test_old_recordings_are_said_to_be_old(logdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tb_gpu_doctor.cli import watch
    from tb_gpu_doctor.telemetry.recordings import TelemetryReader

    class Later:
        time_ns = staticmethod(lambda: time.time_ns() + 600 * 10**9)

    state = watch.state_of(TelemetryReader(), os.fspath(logdir), "en")
    assert state.gpus[0].age_s < 300
    with pytest.MonkeyPatch.context() as later:
        later.setattr(watch, "time", Later)
        assert "The last sample is" in once(logdir, capsys, "--lang", "en")
