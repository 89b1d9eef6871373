"""Training that stands still is told, with where it stands; and so is a driver that does not answer."""

from __future__ import annotations

import ctypes
import faulthandler
import multiprocessing
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tb_gpu_doctor import GpuMonitor
from tb_gpu_doctor.monitor import watchdog
from tb_gpu_doctor.monitor.notes import Notes
from tb_gpu_doctor.monitor.watchdog import LockTimer, Watchdog, stacks
from tb_gpu_doctor.recording_format import parse_stacks
from tb_gpu_doctor.telemetry.recordings import read_telemetry
from tests.nvml import train

QUICK = """
import tb_gpu_doctor.monitor.watchdog as watchdog
watchdog.HANG_SECONDS, watchdog._TICK_SECONDS = 1.0, 0.05
def stuck_in_here(seconds):
    time.sleep(seconds)
"""


@pytest.mark.slow
def test_a_hang_is_told_once_and_the_recording_holds_where_it_stood(tmp_path: Path) -> None:
    done = train(
        QUICK
        + """
with GpuMonitor(logdir, 0.1) as monitor:
    for number in range(20):
        with monitor.train_step(number):
            time.sleep(0.01)
    with monitor.train_step(20):
        stuck_in_here(2.5)
    for number in range(21, 40):
        with monitor.train_step(number):
            time.sleep(0.01)
print("trained")
""",
        "gpus 2\ngpu * utilization 100\ngpu * power 130",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "trained\n")
    told = [line for line in done.stderr.splitlines() if "step" in line]
    assert len(told) == 2, done.stderr
    assert "the last one was step 19" in told[0] and "Steps go on: after step 19" in told[1]
    (recording,) = read_telemetry(tmp_path / "logs").recordings
    hang = recording.facts["hang"]
    assert hang["step"] == 19 and hang["in_step"] is True and hang["resumed"] is True and hang["seconds"] > 1
    (main,) = [thread for thread in hang["threads"] if thread["main"]]
    assert any(frame.endswith(" stuck_in_here") for frame in main["frames"])
    assert [gpu["power_watts"] for gpu in hang["gpus"]] == [130, 130]
    assert recording.ended == "normal"
    (process,) = (tmp_path / "logs").rglob("process")
    texts = EventAccumulator(str(process)).Reload()
    assert "gpu_doctor/hang/text_summary" in str(texts.Tags()) or "gpu_doctor/hang" in str(texts.Tags())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("on_hang", "body"),
    [
        ("None", "time.sleep(2.2)"),
        ("'dump'", "\n    with monitor.validation(): time.sleep(2.2)"),
    ],
)
def test_nothing_is_told_where_none_is_wanted_or_training_rests(on_hang: str, body: str, tmp_path: Path) -> None:
    done = train(
        QUICK
        + f"""
with GpuMonitor(logdir, 0.1, on_hang={on_hang}) as monitor:
    for number in range(20):
        monitor.step(number, duration_ns=10_000_000)
    {body}
""",
        "gpus 1",
        tmp_path,
    )
    assert done.returncode == 0 and done.stderr == ""
    assert "hang" not in read_telemetry(tmp_path / "logs").recordings[0].facts


@pytest.mark.slow
def test_the_line_alone(tmp_path: Path) -> None:
    done = train(
        QUICK
        + """
with GpuMonitor(logdir, 0.1, on_hang="log") as monitor:
    for number in range(20):
        monitor.step(number, duration_ns=10_000_000)
    time.sleep(2.2)
""",
        "gpus 1",
        tmp_path,
    )
    assert len(done.stderr.splitlines()) == 1 and "Training may hang" in done.stderr
    hang = read_telemetry(tmp_path / "logs").recordings[0].facts["hang"]
    assert hang["resumed"] is False and "threads" not in hang


@pytest.mark.slow
def test_a_driver_that_does_not_answer_is_named_with_the_call(tmp_path: Path) -> None:
    done = train(
        """
import tb_gpu_doctor.monitor.watchdog as watchdog
watchdog.DRIVER_CALL_SECONDS, watchdog._TICK_SECONDS = 0.3, 0.05
with GpuMonitor(logdir, 0.1) as monitor:
    time.sleep(3)
print("trained")
""",
        "gpus 1\nhang 0.5 2.0",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "trained\n")
    (line,) = done.stderr.splitlines()
    assert "has not answered a question (nvml" in line
    (recording,) = read_telemetry(tmp_path / "logs").recordings
    assert any(note.key == "recording.nvml_hangs" for note in recording.told)
    assert recording.gpus[0].wall_ns[-1] - recording.gpus[0].wall_ns[0] > 2e9  # sampled again afterwards


class Clock:
    """Time by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 1e9)


def watched(monkeypatch: pytest.MonkeyPatch) -> tuple[Clock, Watchdog, list[str]]:
    clock, told = Clock(), []
    monkeypatch.setattr(watchdog, "time", clock)
    notes = Notes(lambda note: told.append(note["key"]))
    return clock, Watchdog(notes, lambda name, values: None, lambda *text: None, "dump"), told


def test_slow_steps_have_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, dog, told = watched(monkeypatch)
    for number in range(5):
        clock.now += 10
        dog.step(number, 10 * 10**9)
    clock.now += 190
    dog.look()
    assert told == []
    clock.now += 20
    dog.look()
    dog.look()
    assert told == ["recording.no_step"]


def test_time_of_rest_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, dog, told = watched(monkeypatch)
    for number in range(5):
        dog.step(number, 10**8)
    dog.resting = lambda: True
    clock.now += 600
    dog.look()
    dog.resting = lambda: False
    clock.now += 50
    dog.look()
    assert told == []
    clock.now += 20
    dog.look()
    assert told == ["recording.no_step"]


def test_stacks_name_threads_and_leave_the_monitors_out() -> None:
    leave = threading.Event()
    threads = [
        threading.Thread(target=leave.wait, name=name, daemon=True) for name in ("loader", "gpu-doctor-something")
    ]
    for thread in threads:
        thread.start()
    found: list[dict[str, Any]] = stacks()
    leave.set()
    assert found[0]["main"] and "loader" in {thread["name"] for thread in found}
    assert not any(thread["name"].startswith("gpu-doctor") for thread in found)
    assert any(frame.startswith("tests/monitor/test_watchdog.py:") for frame in found[0]["frames"])


def test_no_logdir_is_an_error_and_so_is_another_wish() -> None:
    with pytest.raises(TypeError, match="logdir"):
        GpuMonitor(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on_hang"):
        GpuMonitor("logs", on_hang="kill")  # type: ignore[arg-type]


def holds_the_lock(milliseconds: int) -> None:
    ctypes.PyDLL(None).usleep(milliseconds * 1000)  # a call through PyDLL keeps Python's lock


def test_a_process_that_holds_pythons_lock_leaves_its_stacks_beside_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_WIND_SECONDS", 0.0)
    timer, file = LockTimer(), tmp_path / "python_stacks.txt"
    assert timer.wind(str(tmp_path), 0.1) == ([], 0.0) or file.read_bytes() == b""
    holds_the_lock(300)
    held = parse_stacks(file.read_text(), threading.main_thread().ident)  # as another process reads it
    told, seconds = timer.wind(str(tmp_path), 60.0)
    assert told == held and seconds >= 0.3 and file.read_bytes() == b""
    (main,) = [thread for thread in told if thread["main"]]
    assert main["frames"][0].endswith(" holds_the_lock")
    time.sleep(0.2)
    assert timer.wind(str(tmp_path), 60.0)[0] == []
    timer.close()
    assert not file.exists() and timer.wind(str(tmp_path), 0.1)[0] == []


def test_a_child_that_is_forked_under_the_timer_ends(tmp_path: Path) -> None:
    """In the child the timer's thread is missing, and Python would wait for it at its end."""
    timer = LockTimer()
    timer.wind(str(tmp_path), 60.0)
    child = multiprocessing.get_context("fork").Process(target=faulthandler.cancel_dump_traceback_later)
    child.start()
    child.join(20)
    ended = child.exitcode
    child.kill()
    assert ended == 0
    timer.wind(str(tmp_path), 60.0)
    timer.close()


def test_what_was_held_is_told_by_the_watchdog_when_it_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_WIND_SECONDS", 0.0)
    monkeypatch.setattr(watchdog, "HANG_SECONDS", 0.1)
    notes: list[dict[str, Any]] = []
    facts: dict[str, Any] = {}
    dog = Watchdog(Notes(notes.append), lambda name, values: facts.update({name: values}), lambda *_: None, "dump")
    dog.folder = lambda: str(tmp_path)
    dog._wind_up()
    assert not list(tmp_path.iterdir())  # nothing is watched before there are steps
    for number in range(5):
        dog.step(number, 1_000_000)
    dog._wind_up()
    holds_the_lock(300)
    dog._wind_up()
    dog.stop()
    assert "with Python's lock held" in notes[0]["sentence"] and notes[0]["params"]["step"] == 4
    assert facts["lock_held"]["resumed"] is True and facts["lock_held"]["threads"]


def test_stacks_of_faulthandler_are_read_as_those_of_the_watchdog() -> None:
    text = (
        "Timeout (0:01:00)!\nThread 0x00007f01 [loader] (most recent call first):\n"
        '  File "/usr/lib/python3/queue.py", line 171 in get\n\n'
        "Thread 0x00007f02 (most recent call first):\n"
        '  File "/x/site-packages/tb_gpu_doctor/monitor/watchdog.py", line 9 in _run\n\n'
        "Current thread 0x00007f03 (most recent call first):\n"
        '  File "/data/me/train/loop.py", line 12 in step\n  File "/data/me/train/loop.py", line 40 in <module>\n'
        'Timeout (0:01:00)!\nThread 0x00007f01 (most recent call first):\n  File "x", line 1 in again\n'
    )
    assert parse_stacks(text, 0x7F03) == [
        {"name": "loader", "main": False, "frames": ["lib/python3/queue.py:171 get"]},
        {"name": "thread 7f03", "main": True, "frames": ["me/train/loop.py:12 step", "me/train/loop.py:40 <module>"]},
    ]
    assert [thread["main"] for thread in parse_stacks(text, None)] == [False, True]
    assert parse_stacks("no stacks\0", 1) == []
