"""Callback, capture and monitor together, over the stand-in driver: what one training leaves in its logdir."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tb_gpu_doctor.report.sentences import capture_words
from tb_gpu_doctor.telemetry.recordings import read_telemetry
from tb_gpu_doctor.traces.sessions import Session, find_sessions
from tests.monitor.test_capture import marked_steps
from tests.nvml import REPOSITORY, driver_environment, train

pytestmark = pytest.mark.slow

KERAS = """
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
from tb_gpu_doctor import GpuDoctorCallback
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x, y = np.ones((160, 4)), np.ones((160, 1))
"""


def profile_of(folder: Path) -> Session:
    """The only profile; telemetry without one is a session too."""
    sessions = find_sessions(str(folder / "logs")).sessions
    (found,) = [session for session in sessions if session.files[0].format == "xplane"]
    return found


def test_three_lines_of_keras_over_a_driver(tmp_path: Path) -> None:
    pytest.importorskip("keras")
    done = train(
        KERAS
        + """
model.fit(x, y, batch_size=8, epochs=2, validation_data=(x, y), verbose=0,
          callbacks=[GpuDoctorCallback(logdir, profile_steps=(25, 27))])
""",
        "gpus 2\ngpu * utilization 90\n",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    telemetry = read_telemetry(tmp_path / "logs")
    (recording,) = telemetry.recordings
    assert telemetry.problems == ()
    assert all("is left out" in note for note in recording.notes)
    assert recording.steps.number.tolist() == list(range(40))
    assert set(recording.steps.samples.tolist()) == {8}
    assert recording.steps.number[recording.steps.profiled].tolist() == [25, 26, 27]
    kinds = [span.kind for span in recording.spans]
    assert kinds.count("validation") == 2 and kinds.count("profile") == 1
    assert recording.environment["frameworks"]["tensorflow"]["gpus"] == []
    assert len(recording.environment["driver"]["gpus"]) == 2
    assert "cpu_build_tensorflow" in {problem["code"] for problem in recording.environment["problems"]}
    session = profile_of(tmp_path)
    assert session.run == "" and marked_steps(session.files[0]) == [25, 26, 27]
    assert recording.facts["profile_1"]["session"] == session.session


def test_a_gpu_that_gets_hot_is_profiled_without_anybody_watching(tmp_path: Path) -> None:
    pytest.importorskip("keras")
    done = train(
        KERAS
        + """
from tb_gpu_doctor import CaptureOptions
monitor = GpuMonitor(logdir, interval_s=0.05, capture=CaptureOptions(profile_throttling=True, length=3, warmup=5))
with monitor:
    for step in range(200):
        with monitor.train_step(step, batch_size=8):
            model.train_on_batch(x[:8], y[:8])
        time.sleep(0.01)
""",
        # Reasons: the power limit from the start, which is no news, and heat of GPU 1 after a second.
        "gpus 2\ngpu * reasons 0x4\ngpu 1 reasons 0:0x4 1:0x40\n",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (recording,) = read_telemetry(tmp_path / "logs").recordings
    (span,) = [span for span in recording.spans if span.kind == "profile"]
    assert span.note == "throttling 1 hardware_thermal"
    assert "GPU 1" in capture_words(span.note, "en")
    session = profile_of(tmp_path)
    assert marked_steps(session.files[0]) == [span.step, span.step + 1, span.step + 2]
    assert int(recording.steps.profiled.sum()) == 3


def test_a_training_that_ends_by_an_exception_keeps_all(tmp_path: Path) -> None:
    pytest.importorskip("keras")
    done = train(
        KERAS
        + """
class Fails(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 10:
            raise RuntimeError("out of luck")
model.fit(x, y, batch_size=8, verbose=0, callbacks=[GpuDoctorCallback(logdir, profile_steps=(5, 15)), Fails()])
""",
        "gpus 1\n",
        tmp_path,
    )
    assert done.returncode == 1 and "out of luck" in done.stderr
    (recording,) = read_telemetry(tmp_path / "logs").recordings
    assert recording.steps.number.tolist() == list(range(10))
    session = profile_of(tmp_path)
    # The eleventh step began, and is in the profile; it never ended.
    assert marked_steps(session.files[0])[:5] == [5, 6, 7, 8, 9]


def test_the_command_reports_what_the_driver_says(tmp_path: Path) -> None:
    scenario = "gpus 4\ngpu 2 process 4242 1e9\ngpu * persistence 0\n"
    environment = driver_environment(scenario, tmp_path) | {"CUDA_VISIBLE_DEVICES": "0,2"}
    done = subprocess.run(
        [sys.executable, "-m", "tb_gpu_doctor.cli.main", "env", "--json", "--framework", "none"],
        capture_output=True, text=True, env=environment, cwd=REPOSITORY, check=True,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert len(report["driver"]["gpus"]) == 4 and report["driver"]["visible"] == [0, 2]
    problems = {problem["code"]: problem for problem in report["problems"]}
    assert problems["other_processes"]["params"]["gpu"] == 2 and "4242" in problems["other_processes"]["text"]
    assert "persistence_off" in problems
    assert os.environ.get("LD_LIBRARY_PATH") != environment["LD_LIBRARY_PATH"]


def test_no_point_is_drawn_at_a_step_that_was_none(tmp_path: Path) -> None:
    """Samples while the first step compiles carry no step: their numbers would stand among the loss's steps."""
    pytest.importorskip("keras")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    done = train(
        KERAS
        + """
class Slow(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        time.sleep(1.5)
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.03)
model.fit(x, y, batch_size=16, verbose=0, callbacks=[GpuDoctorCallback(logdir, interval_s=0.05), Slow()])
""",
        "gpus 1\ngpu * utilization 90\n",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (recording,) = read_telemetry(tmp_path / "logs").recordings
    first = recording.steps.end_ns[0] / 1e9
    events = EventAccumulator(str(tmp_path / "logs" / recording.gpus[0].run))
    events.Reload()
    drawn = events.Scalars("gpu/utilization_percent")
    assert drawn and min(event.wall_time for event in drawn) >= first
    assert len(recording.gpus[0]) > len(drawn) + 20, "what came before is in the recording"
