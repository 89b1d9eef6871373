"""Profiles on a schedule and on triggers: real ones of real trainings on the CPU, and the bookkeeping around them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_gpu_doctor.analysis.steps import marker_rows
from tb_gpu_doctor.monitor import capture as capture_module
from tb_gpu_doctor.monitor import capture_files
from tb_gpu_doctor.monitor.capture import Capture, CaptureOptions
from tb_gpu_doctor.monitor.capture_files import deliver, free_bytes
from tb_gpu_doctor.monitor.step_hooks import StepHooks
from tb_gpu_doctor.report.sentences import capture_words
from tb_gpu_doctor.traces.read import read_trace
from tb_gpu_doctor.traces.sessions import ProfileFile, find_sessions
from tests.monitor.memory import MemoryMonitor, MemoryRecorder

REPOSITORY = Path(__file__).resolve().parents[2]


class FakeProfiler:
    """A framework whose profiler writes a small file; it can be busy, or broken."""

    name = "tensorflow"

    def __init__(self) -> None:
        self.size = 100
        self.error: Exception | None = None
        self.folder: str | None = None
        self.started = 0

    def mark(self, step: int) -> Any:
        return type("Mark", (), {"recorded": self.folder is not None, "close": lambda self: None})()

    def allocator(self) -> Iterator[Any]:
        return iter(())

    def synchronize(self) -> None:
        pass

    def start_profile(self, folder: str) -> None:
        if self.error is not None:
            raise self.error
        self.folder = folder
        self.started += 1

    def stop_profile(self, save: bool = True) -> None:
        folder, self.folder = self.folder, None
        if save and folder is not None:
            path = Path(folder) / "plugins" / "profile" / "then"
            path.mkdir(parents=True)
            (path / "host.xplane.pb").write_bytes(b"x" * self.size)


class Loop:
    """A training loop whose steps take what the test says."""

    def __init__(self, logdir: Path, **options: Any) -> None:
        self.recorder = MemoryRecorder()
        self.profiler = FakeProfiler()
        self.hooks = StepHooks(self.recorder)
        frameworks: Any = self.hooks.frameworks
        frameworks.loaded = lambda: (self.profiler,)
        frameworks.training = lambda: self.profiler
        self.capture = Capture(self.recorder, str(logdir), CaptureOptions(**options), frameworks)
        self.hooks.capture = self.capture
        self.next = 0

    def run(self, steps: int, step_ms: float = 1.0) -> None:
        """Steps of a given length, without waiting for them."""
        capture = self.capture
        for number in range(self.next, self.next + steps):
            if capture.wants(number):
                capture.before_step(number)
            if capture.after_step(number, int(step_ms * 1e6), profiled=capture.running):
                capture.finish()
        self.next += steps

    @property
    def profiled(self) -> list[tuple[int, int, str]]:
        """(first step, last step, reason) of all profiles."""
        return [(fact["first_step"], fact["last_step"], fact["reason"]) for fact in self.recorder.written.values()]


# --- schedules ---------------------------------------------------------------------------------------


def test_nothing_is_asked_for_by_default() -> None:
    assert CaptureOptions().idle
    assert CaptureOptions(profile_steps=(1, 2), max_profiles=0).idle
    assert not CaptureOptions(profile_steps=(0, 0)).idle and not CaptureOptions(profile_throttling=True).idle


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, []), ((50, 60), [(50, 60)]), ([(70, 80), (5, 5)], [(5, 5), (70, 80)]), ([[1, 2]], [(1, 2)]),
     (10, [(10, 10)]), ("10,20", [(10, 20)]), ("7", [(7, 7)]), (0, []), ((3,), [(3, 3)])],
)  # fmt: skip
def test_ranges(given: Any, expected: list[tuple[int, int]]) -> None:
    assert CaptureOptions(profile_steps=given).ranges() == expected


def test_scheduled_profiles_hold_exactly_their_steps(tmp_path: Path) -> None:
    loop = Loop(tmp_path, profile_steps=[(3, 5), (40, 40)])
    loop.run(50)
    assert loop.profiled == [(3, 5, "steps 3 5"), (40, 40, "steps 40 40")]
    assert [span[3:] for span in loop.recorder.spans] == [(3, "steps 3 5"), (40, "steps 40 40")]
    files = [file for fact in loop.recorder.written.values() for file in fact["files"]]
    assert len(files) == 2 and all((tmp_path / file).stat().st_size == 100 for file in files)
    assert {session.session for session in find_sessions(str(tmp_path)).sessions} == {
        fact["session"] for fact in loop.recorder.written.values()
    }


def test_one_every_so_many_steps_but_not_in_the_warm_up(tmp_path: Path) -> None:
    loop = Loop(tmp_path, profile_every=100, length=10, warmup=20)
    loop.run(350)
    assert loop.profiled == [(100, 109, "every 100"), (200, 209, "every 100"), (300, 309, "every 100")]
    resumed = Loop(tmp_path, profile_every=100, length=10, warmup=20)
    resumed.next = 990
    resumed.run(200)
    assert [first for first, _, _ in resumed.profiled] == [1100]  # 1000 was in its warm-up


def test_a_resumed_training_takes_the_rest_and_says_what_is_past(tmp_path: Path) -> None:
    loop = Loop(tmp_path, profile_steps=[(5, 9), (100, 104), (130, 131)])
    loop.next = 102
    loop.run(50)
    assert [(first, last) for first, last, _ in loop.profiled] == [(102, 104), (130, 131)]
    assert len(loop.recorder.notes) == 1 and "5" in loop.recorder.notes[0]


def test_an_execution_of_several_steps_is_profiled_whole(tmp_path: Path) -> None:
    loop = Loop(tmp_path, profile_steps=(50, 60))
    for first in range(0, 200, 32):
        if loop.capture.wants(first, 32):
            loop.capture.before_step(first, 32)
        if loop.capture.after_step(first + 31, 10**6):
            loop.capture.finish()
    assert [(first, last) for first, last, _ in loop.profiled] == [(32, 63)]


# --- triggers ----------------------------------------------------------------------------------------


def test_slower_steps_are_profiled_once_and_noise_is_not(tmp_path: Path) -> None:
    loop = Loop(tmp_path, profile_slower=0.3, length=5)
    random = np.random.default_rng(0)
    for _ in range(3000):
        loop.run(1, 10 + 2 * random.normal() + (200 if random.random() < 0.05 else 0))
    assert not loop.profiled
    loop.run(300, 15)
    assert len(loop.profiled) == 1
    first, last, reason = loop.profiled[0]
    assert 3000 < first <= 3000 + capture_module._RECENT and last == first + 4
    assert float(reason.split()[1]) == pytest.approx(0.5, abs=0.1)
    loop.run(600, 25)
    assert len(loop.profiled) == 2  # it rose once more


def test_the_warm_up_is_no_baseline(tmp_path: Path) -> None:
    loop = Loop(tmp_path, profile_slower=0.3, warmup=20)
    loop.run(20, 0.1)  # nothing but launching yet
    loop.run(500, 10)
    assert not loop.profiled


def test_low_utilization_in_a_row(tmp_path: Path) -> None:
    loop = Loop(tmp_path, profile_below=(40, 3), length=2, min_distance=50, warmup=5)
    for _ in range(5):
        loop.capture.observe(0, {"utilization_percent": 1})
    loop.run(10)
    assert not loop.profiled  # that was before the warm-up's end
    for value in (10, 10, 90, 10, 10, float("nan"), 10):
        loop.capture.observe(3, {"utilization_percent": value})
    loop.run(10)
    assert loop.profiled == [(10, 11, "utilization 3 40 3")]
    loop.capture.paused = True  # validation
    for _ in range(9):
        loop.capture.observe(3, {"utilization_percent": 1})
    loop.capture.paused = False
    loop.run(100)
    assert len(loop.profiled) == 1


def test_throttling_that_begins(tmp_path: Path) -> None:
    loop = Loop(tmp_path, profile_throttling=True, length=2, min_distance=10, warmup=0)
    loop.run(5)
    loop.capture.observe(1, {"clock_event_reasons": 0x4 | 0x10 | 0x1})  # power limit, sync boost, idle: no news
    loop.run(5)
    assert not loop.profiled
    for _ in range(5):
        loop.capture.observe(1, {"clock_event_reasons": 0x40})
    loop.run(40)
    assert loop.profiled == [(10, 11, "throttling 1 hardware_thermal")]
    loop.capture.observe(1, {"clock_event_reasons": 0})
    loop.capture.observe(1, {"clock_event_reasons": 0x20})
    loop.run(5)
    assert loop.profiled[1][2] == "throttling 1 software_thermal"
    power = Loop(tmp_path, profile_throttling=["software_power"], warmup=0)
    power.run(1)
    power.capture.observe(0, {"clock_event_reasons": 4.0})
    power.run(20)
    assert power.profiled[0][2] == "throttling 0 software_power"


@pytest.mark.parametrize("lang", ["en", "es"])
def test_reasons_in_words(lang: str) -> None:
    sentences = [
        capture_words(note, lang)
        for note in ("steps 50 60", "every 1000", "step_time 0.310 12.100 15.900", "utilization 3 20 10",
                     "throttling 3 hardware_thermal")
    ]  # fmt: skip
    assert len(set(sentences)) == 5 and all(len(sentence) > 10 for sentence in sentences)
    assert "31" in sentences[2] and "GPU 3" in sentences[3]
    for odd in ("", "something else", "steps 1", "throttling 3 dust"):
        assert isinstance(capture_words(odd, lang), str)


# --- limits ------------------------------------------------------------------------------------------


def test_caps_on_number_length_and_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(tmp_path, profile_every=20, length=2, warmup=0, max_profiles=3)
    loop.run(200)
    assert len(loop.profiled) == 3 and len(loop.recorder.notes) == 1
    loop = Loop(tmp_path, profile_every=20, length=2, warmup=0, max_bytes=250)
    loop.run(200)
    assert len(loop.profiled) == 3 and len(loop.recorder.notes) == 1
    loop = Loop(tmp_path, profile_steps=(0, 10**9))
    loop.run(1)
    assert loop.capture._running is not None
    loop.capture._running.deadline = time.monotonic()  # as if max_seconds had passed
    loop.run(10)
    assert loop.recorder.written["profile_1"]["last_step"] == 1
    monkeypatch.setattr(capture_module, "free_bytes", lambda path: 10)
    loop = Loop(tmp_path, profile_steps=(1, 2))
    loop.run(10)
    assert not loop.profiled and len(loop.recorder.notes) == 1


def test_room_is_told_for_folders_to_come_and_unknown_for_remote_ones(tmp_path: Path) -> None:
    assert free_bytes(str(tmp_path / "a" / "b")) == pytest.approx(free_bytes(str(tmp_path)), rel=0.1)
    assert free_bytes("gs://bucket/logs") is None


def test_a_busy_a_broken_and_no_profiler_are_one_line_each(tmp_path: Path) -> None:
    for error in (RuntimeError("Another profiler is running."), OSError("no CUPTI")):
        loop = Loop(tmp_path, profile_steps=(1, 2))
        loop.profiler.error = error
        loop.run(5)
        assert not loop.profiled and len(loop.recorder.notes) == 1
    loop = Loop(tmp_path, profile_steps=(1, 2))
    frameworks: Any = loop.hooks.frameworks
    frameworks.training = lambda: None
    loop.run(5)
    assert len(loop.recorder.notes) == 1


def test_a_logdir_that_cannot_be_written_costs_the_profile_only(tmp_path: Path) -> None:
    blocked = tmp_path / "logs"
    blocked.write_text("a file")
    loop = Loop(blocked, profile_steps=(1, 2))
    loop.run(5)
    assert len(loop.recorder.notes) == 1 and loop.recorder.kinds() == ["profile"]
    assert loop.recorder.written["profile_1"]["files"] == []


def test_training_that_ends_early_keeps_the_profile(tmp_path: Path) -> None:
    loop = Loop(tmp_path, profile_steps=(1, 1000))
    loop.run(5)
    loop.hooks.close()
    loop.hooks.close()
    assert loop.recorder.written["profile_1"]["last_step"] == 4
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == 1


def test_what_never_came_or_was_cut_short_is_said_at_the_end(tmp_path: Path) -> None:
    loop = Loop(tmp_path, profile_steps=[(5, 50), (80, 90)])
    loop.run(20)
    loop.hooks.close()
    loop.hooks.close()
    assert len(loop.recorder.notes) == 2, loop.recorder.notes
    assert "ended at step 19, amid the profile of steps 5 to 50" in loop.recorder.notes[0]
    assert "Steps 80 to 90 were to be profiled" in loop.recorder.notes[1]


def test_a_profile_that_training_has_left_ends_by_itself(tmp_path: Path) -> None:
    loop = Loop(tmp_path, profile_steps=(1, 1000), max_seconds=0.1)
    loop.run(3)
    end = time.monotonic() + 10
    while not loop.profiled and time.monotonic() < end:
        time.sleep(0.02)
    assert loop.profiled == [(1, 2, "steps 1 1000")] and not loop.capture.running
    loop.run(5)  # training goes on all the same
    assert len(loop.profiled) == 1


# --- delivery ----------------------------------------------------------------------------------------


def written_by(folder: Path, name: str, content: bytes = b"x") -> str:
    path = folder / "plugins" / "profile" / "then"
    path.mkdir(parents=True, exist_ok=True)
    (path / name).write_bytes(content)
    return str(folder)


CLUSTER = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}


def test_workers_of_a_job_meet_in_one_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, now = str(tmp_path / "logs"), time.time_ns()
    monkeypatch.setenv("TF_CONFIG", json.dumps(CLUSTER))
    one = deliver(written_by(tmp_path / "1", "a.xplane.pb"), logs, "2026_01_01_00_00_00_steps_5_6", "steps 5 6", now)
    two = deliver(written_by(tmp_path / "2", "b.xplane.pb"), logs, "2026_01_01_00_00_07_steps_5_6", "steps 5 6", now)
    assert one.session == two.session
    # The same job started again: not into the session of the first one.
    again = deliver(written_by(tmp_path / "3", "a.xplane.pb"), logs, "x", "steps 5 6", now)
    other = deliver(written_by(tmp_path / "4", "b.xplane.pb"), logs, "y", "steps 5 6", now)
    assert again.session == other.session != one.session
    # A trigger's profile is one worker's own, and so is what lies long ago.
    own = deliver(written_by(tmp_path / "5", "b.xplane.pb"), logs, "own", None, now)
    late = deliver(written_by(tmp_path / "6", "b.xplane.pb"), logs, "late", "steps 5 6", now + 10**13)
    assert own.session == "own" and late.session == "late"
    assert len(find_sessions(logs).sessions) == 4


def test_a_process_alone_needs_no_agreement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for config in ("", "not json", json.dumps({"cluster": {"worker": ["a:1"]}}), "[]"):
        monkeypatch.setenv("TF_CONFIG", config)
        assert capture_files.job_token() is None
    logs = str(tmp_path / "logs")
    deliver(written_by(tmp_path / "1", "a.xplane.pb"), logs, "s", "steps 5 6", time.time_ns())
    assert not (tmp_path / "logs" / "gpu_doctor").exists()


def test_two_profiles_of_the_same_second_are_two_sessions(tmp_path: Path) -> None:
    logs, folder = str(tmp_path / "logs"), tmp_path
    made = [deliver(written_by(folder / str(n), "a.xplane.pb"), logs, "s", None, 0) for n in range(3)]
    assert [delivery.session for delivery in made] == ["s", "s_2", "s_3"]
    assert len(find_sessions(logs).sessions) == 3


def test_two_processes_of_one_host_never_overwrite_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = tmp_path / "logs"
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["localhost:1", "localhost:2"]}}))
    for number, content in enumerate((b"one", b"two")):
        folder = written_by(tmp_path / str(number), "my.host.xplane.pb", content)
        deliver(folder, str(logs), "session", "steps 1 2", time.time_ns())
    files = {path.name: path.read_bytes() for path in (logs / "plugins" / "profile" / "session").iterdir()}
    assert files == {"my.host.xplane.pb": b"one", f"my.host_{os.getpid()}.xplane.pb": b"two"}


def test_torch_traces_lie_in_the_logdir_itself(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "host_7.1700000000000000000.pt.trace.json.gz").write_bytes(b"x")
    delivery = deliver(str(tmp_path / "made"), str(tmp_path / "logs"), "s", None, time.time_ns())
    assert delivery.files == ("host_7.1700000000000000000.pt.trace.json.gz",) and delivery.session == ""


def test_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        deliver(str(tmp_path), str(tmp_path / "logs"), "s", None, 0)


# --- real ones ---------------------------------------------------------------------------------------


def marked_steps(file: ProfileFile) -> list[int]:
    trace = read_trace(file)
    return sorted(set(trace.host_events.step_num[marker_rows(trace)].tolist()))


@pytest.mark.slow
def test_a_profile_of_a_real_training_carries_its_steps(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    keras = pytest.importorskip("keras")
    from tb_gpu_doctor.monitor.keras_callback import GpuDoctorCallback

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    monitor = MemoryMonitor(tmp_path, "tensorflow", profile_steps=[(5, 8), (21, 23)])
    model.fit(
        np.ones((80, 4)), np.ones((80, 1)), batch_size=8, epochs=3, verbose=0,
        callbacks=[GpuDoctorCallback(monitor=monitor)],
    )  # fmt: skip
    assert not monitor.recorder.notes
    sessions = find_sessions(str(tmp_path)).sessions
    assert [session.run for session in sessions] == ["", ""]
    found = sorted(marked_steps(session.files[0]) for session in sessions)
    assert found == [[5, 6, 7, 8], [21, 22, 23]]
    profiled = [step.number for step in monitor.recorder.steps if step.profiled]
    assert profiled == [5, 6, 7, 8, 21, 22, 23]
    assert monitor.recorder.numbers == list(range(30))
    # Writing a profile takes long, and is no part of a step.
    spans = [span for span in monitor.recorder.spans if span[0] == "profile"]
    assert [span[4] for span in spans] == ["steps 5 8", "steps 21 23"]


def test_a_profile_of_an_own_loop_carries_its_steps_and_a_busy_profiler_is_left_alone(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    monitor = MemoryMonitor(tmp_path, "tensorflow", profile_steps=[(3, 5), (12, 14)])
    with monitor.hooks.train_step(0):
        pass
    for step in range(1, 10):
        with monitor.hooks.train_step(step):
            tf.matmul(tf.ones((8, 8)), tf.ones((8, 8)))
    theirs = tmp_path / "theirs"
    tf.profiler.experimental.start(str(theirs))
    for step in range(10, 20):
        with monitor.hooks.train_step(step):
            tf.matmul(tf.ones((8, 8)), tf.ones((8, 8)))
    tf.profiler.experimental.stop()
    assert len(monitor.recorder.notes) == 1
    (own,) = [session for session in find_sessions(str(tmp_path)).sessions if session.run == ""]
    assert marked_steps(own.files[0]) == [3, 4, 5]
    # The other one's profile has our marks, and its steps are known to be profiled.
    (other,) = find_sessions(str(theirs)).sessions
    assert marked_steps(other.files[0]) == list(range(10, 20))
    assert [step.number for step in monitor.recorder.steps if step.profiled] == [3, 4, 5, *range(10, 20)]


def test_a_profile_from_outside_is_waited_out(tmp_path: Path) -> None:
    """As TensorBoard's capture button takes it: the session is not the one of Python's interface."""
    tf = pytest.importorskip("tensorflow")
    internal = pytest.importorskip("tensorflow.python.profiler.internal._pywrap_profiler")
    monitor = MemoryMonitor(tmp_path, "tensorflow", profile_steps=[(3, 5), (12, 14)])
    outside = internal.ProfilerSession()
    outside.start(str(tmp_path / "outside"), {})
    for step in range(20):
        if step == 10:
            outside.stop()
        with monitor.hooks.train_step(step):
            tf.matmul(tf.ones((8, 8)), tf.ones((8, 8)))
    assert len(monitor.recorder.notes) == 1
    (own,) = find_sessions(str(tmp_path)).sessions
    assert marked_steps(own.files[0]) == [12, 13, 14]


WORKER = """
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
index, ports, logdir = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
os.environ["TF_CONFIG"] = json.dumps({
    "cluster": {"worker": [f"localhost:{port}" for port in ports]}, "task": {"type": "worker", "index": index}})
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
from tests.monitor.memory import MemoryMonitor
monitor = MemoryMonitor(logdir, "tensorflow", profile_steps=(4, 6))
with strategy.scope():
    weights = tf.Variable(tf.ones((4, 1)))

@tf.function
def train_step():
    def replica_step():
        value = tf.reduce_sum(weights)
        weights.assign_sub(tf.distribute.get_replica_context().all_reduce("mean", tf.ones((4, 1)) * value))
    strategy.run(replica_step)

for step in range(10):
    with monitor.hooks.train_step(step, batch_size=8 * strategy.num_replicas_in_sync):
        train_step()
print(json.dumps({"numbers": monitor.recorder.numbers, "samples": monitor.recorder.steps[0].samples,
                  "notes": monitor.recorder.notes,
                  "written": [fact["session"] for fact in monitor.recorder.written.values()]}))
"""


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("localhost", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.mark.slow
def test_two_real_workers_profile_the_same_steps_into_one_session(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    ports = json.dumps(free_ports(2))
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(index), ports, str(tmp_path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY,
        )
        for index in range(2)
    ]  # fmt: skip
    try:
        outputs = [worker.communicate(timeout=120) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0], outputs[0][1][-2000:] + outputs[1][1][-2000:]
    results = [json.loads(output.splitlines()[-1]) for output, _ in outputs]
    assert results[0] == results[1]
    assert results[0]["notes"] == [] and results[0]["samples"] == 16
    (session,) = find_sessions(str(tmp_path)).sessions
    assert [session.session] == results[0]["written"] and len(session.files) == 2
    for file in session.files:
        assert marked_steps(file) == [4, 5, 6]
