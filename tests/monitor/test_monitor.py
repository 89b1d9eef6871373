"""`GpuMonitor` in training processes: what it records, and that nothing of it ever reaches training."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.monitor.monitor import WallClock
from tb_gpu_doctor.telemetry.recordings import read_telemetry
from tb_gpu_doctor.telemetry.series import Recording
from tests.nvml import PREFACE, REPOSITORY, driver_environment, train

EIGHT = "gpus 8\ngpu * utilization 97\ngpu 3 temperature 0:45 1:87\n"


def recordings(folder: Path) -> tuple[Recording, ...]:
    telemetry = read_telemetry(folder / "logs")
    assert telemetry.problems == ()
    return telemetry.recordings


def one(folder: Path) -> Recording:
    found = recordings(folder)
    assert len(found) == 1
    return found[0]


def runs(folder: Path) -> set[str]:
    """The TensorBoard runs: folders that hold event files."""
    return {str(path.parent.relative_to(folder / "logs")) for path in (folder / "logs").rglob("*tfevents*")}


@pytest.mark.slow
def test_three_lines_record_every_gpu(tmp_path: Path) -> None:
    done = train(
        """
with GpuMonitor(logdir, interval_s=0.1) as monitor:
    for step in range(20):
        time.sleep(0.05)
        monitor.step(step, samples=32)
    monitor.span("checkpoint", 1, 2, 7, "saved")
    monitor.facts("own", {"framework": "none"})
    monitor.note("a sentence")
    monitor.allocator(3, 10, 20, 30)
    time.sleep(0.2)
""",
        EIGHT,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "")
    recording = one(tmp_path)
    assert [gpu.facts.framework_id for gpu in recording.gpus] == list(range(8))
    assert recording.simulated
    assert recording.facts["own"] == {"framework": "none"}
    assert recording.environment["driver"]["version"] == "550.54.15 (simulated)"
    assert "a sentence" in recording.notes
    assert recording.facts["driver"]["gpus_of_machine"] == 8
    assert [span.kind for span in recording.spans] == ["checkpoint"]
    # The first call has nothing to count from.
    assert recording.steps.number.tolist() == list(range(1, 20))
    assert (recording.steps.samples == 32).all()
    assert (recording.steps.duration_ns > 45e6).all()
    hot = recording.gpus[3]
    assert 5 <= len(hot) <= 40
    assert (np.diff(hot.wall_ns) > 0).all()
    assert hot.values["temperature_celsius"].max() > 80
    assert recording.gpus[0].values["temperature_celsius"].max() == 35
    assert set(hot.step.tolist()) <= set(range(-1, 20))
    assert np.nanmax(hot.values["allocator_peak_bytes"]) == 20
    assert hot.facts.limits["allocator_limit_bytes"] == 30
    host = recording.host
    assert runs(tmp_path) == {f"gpu_doctor/{host}/{name}" for name in ("process", *(f"gpu{n}" for n in range(8)))}
    assert [gpu.run for gpu in recording.gpus] == [f"gpu_doctor/{host}/gpu{n}" for n in range(8)]


@pytest.mark.slow
def test_visible_gpus_keep_the_drivers_numbers_and_the_frameworks(tmp_path: Path) -> None:
    done = train("GpuMonitor(logdir).start().stop()", EIGHT, tmp_path, CUDA_VISIBLE_DEVICES="5,2")
    assert done.returncode == 0
    gpus = one(tmp_path).gpus
    assert [(gpu.facts.framework_id, gpu.facts.nvml_index) for gpu in gpus] == [(0, 5), (1, 2)]
    assert [gpu.run.rsplit("/", 1)[1] for gpu in gpus] == ["gpu5", "gpu2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "environment", "told"),
    [
        (None, {}, "NVIDIA's driver does not answer (NVML Shared Library Not Found)"),
        ("gpus 1\ninit DRIVER_NOT_LOADED", {}, "NVIDIA's driver does not answer (Driver Not Loaded)"),
        ("gpus 1\ninit LIB_RM_VERSION_MISMATCH", {}, "NVIDIA's driver does not answer (RM has detected an NVML/RM"),
        ("gpus 1\ninit NO_PERMISSION", {}, "NVIDIA's driver does not answer (Insufficient Permissions)"),
        ("gpus 0", {}, "NVIDIA's driver knows none on this machine"),
        ("gpus 2", {"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES or the argument gpus leaves none"),
        ("gpus 2", {"CUDA_VISIBLE_DEVICES": "-1", "LANG": "es_ES.UTF-8"}, "No se registran las GPU"),
        ("gpus 2\ngpu 1 lost 0", {}, "GPU 1 is not recorded: it does not answer"),
    ],
)
def test_without_a_gpu_training_goes_on_and_one_line_tells(
    scenario: str | None, environment: dict[str, str], told: str, tmp_path: Path
) -> None:
    done = train(
        """
with GpuMonitor(logdir, 0.1) as monitor:
    for step in range(6):
        time.sleep(0.05)
        monitor.step(step)
print("trained")
""",
        scenario,
        tmp_path,
        **environment,
    )
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert len(done.stderr.splitlines()) == 1
    assert told in done.stderr
    assert one(tmp_path).steps.number.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_the_driver_goes_and_comes_back(tmp_path: Path) -> None:
    done = train(
        """
import tb_gpu_doctor.monitor.sampler as source
source.DRIVER_RETRY_S = 0.2
with GpuMonitor(logdir, 0.05):
    time.sleep(2.5)
""",
        "gpus 2\ngone 0.5 1.2 LIB_RM_VERSION_MISMATCH",
        tmp_path,
    )
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert "has stopped answering" in lines[0] and "answers again" in lines[1]
    gpu = one(tmp_path).gpus[0]
    pause = np.diff(gpu.wall_ns).max() / 1e9
    assert 0.6 < pause < 5
    assert len(gpu) > 5


def test_amd_gpus_are_told_to_be_out_of_reach(tmp_path: Path) -> None:
    done = train(
        """
import tb_gpu_doctor.monitor.sampler as source
source.amd_present = lambda: True
GpuMonitor(logdir).start().stop()
""",
        None,
        tmp_path,
    )
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1 and "this machine has AMD GPUs" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("old_driver", [True, False])
def test_an_older_driver_lacks_functions_and_is_recorded_all_the_same(old_driver: bool, tmp_path: Path) -> None:
    scenario = "gpus 1\ngpu 0 reasons 0x20\ngpu 0 process self 1e9"
    assert train("GpuMonitor(logdir).start().stop()", scenario, tmp_path, old_driver).returncode == 0
    values = one(tmp_path).gpus[0].values
    assert set(values["clock_event_reasons"]) == {32.0}
    assert values["memory_process_bytes"][0] == 1e9
    # Before driver 510 what the driver itself takes counted as used.
    assert set(values["memory_used_bytes"]) == {1.1e9 if old_driver else 0.5e9}
    assert ("memory_reserved_bytes" in values) is not old_driver


@pytest.mark.slow
def test_the_unmaintained_package_works_as_far_as_it_goes_and_is_never_called_the_driver(tmp_path: Path) -> None:
    """A package `pynvml` of the year 2023, made from today's: a folder, without what was added since."""
    package = tmp_path / "path" / "pynvml"
    package.mkdir(parents=True)
    source = Path(pynvml.__file__).read_text(encoding="utf-8")
    newer = "nvmlDeviceGetCurrentClocksEventReasons NVML_FI_DEV_MEMORY_TEMP nvmlDeviceGetTotalEnergyConsumption"
    package.joinpath("__init__.py").write_text(f"{source}\n__version__ = '11.5.3'\ndel {', '.join(newer.split())}\n")
    done = train(
        """
from tb_gpu_doctor.monitor.environment import collect
with GpuMonitor(logdir, 0.05):
    time.sleep(0.3)
print([problem["code"] for problem in collect("none")["problems"]])
""",
        "gpus 1\ngpu 0 utilization 80\ngpu 0 reasons 0x20",
        tmp_path,
        PYTHONPATH=str(tmp_path / "path"),
    )
    assert done.returncode == 0 and "old_pynvml" in done.stdout
    recording = one(tmp_path)
    values = recording.gpus[0].values
    assert set(values["clock_event_reasons"]) == {32.0} and set(values["utilization_percent"]) == {80.0}
    assert "energy_joules" not in values and "memory_temperature_celsius" not in values
    notes = [note for note in recording.notes if "energy" in note or "memory_temperature" in note]
    assert len(notes) == 2 and all("package pynvml does not know it" in note for note in notes)


@pytest.mark.slow
def test_bad_arguments_and_calls_are_told_and_passed_over(tmp_path: Path) -> None:
    done = train(
        """
with GpuMonitor(logdir, interval_s="fast", gpus=[0, "GPU-nothing"]) as monitor:
    monitor.step("seven", samples=object(), duration_ns=1)
    monitor.step(None)
    monitor.span("checkpoint", None, 1, 1)
    monitor.allocator(0, "x", 1, None)
    monitor.facts("odd", {1: object(), "nan": float("nan")})
    monitor.facts("none", None)
    monitor.note(None)
    monitor.start()
    monitor.stop()
    monitor.stop()
    monitor.step(1)
os.chdir(os.path.dirname(logdir))
GpuMonitor(3, gpus=3.5).start().stop()
GpuMonitor("").start().stop()
assert os.path.isdir("gpu_doctor") and os.path.isdir("3/gpu_doctor")
print("trained")
""",
        EIGHT,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert "Traceback" not in done.stderr
    assert "fast" in done.stderr and "GPU-nothing" in done.stderr
    assert len(one(tmp_path).gpus) == 1


@pytest.mark.slow
def test_a_number_beyond_64_bits_costs_its_own_value_only(tmp_path: Path) -> None:
    done = train(
        """
with GpuMonitor(logdir, 0.05) as monitor:
    for number in range(300):
        monitor.step(number, duration_ns=10**7, samples=2**70 if number == 100 else 256)
    monitor.step(2**70, duration_ns=10**7)
    monitor.step(300, duration_ns=2**70)
    monitor.step(301, duration_ns=10**7, end_ns=2**70)
    monitor.span("checkpoint", 0, 2**70, 1)
    monitor.span("checkpoint", 1, 2, 1)
    monitor.allocator(0, 2**2000, 1, None)
""",
        "gpus 1",
        tmp_path,
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr
    recording = one(tmp_path)
    assert recording.steps.number.tolist() == list(range(300))
    assert recording.steps.samples[100] == -1 and set(recording.steps.samples.tolist()) == {-1, 256}
    assert [span.kind for span in recording.spans if span.kind == "checkpoint"] == ["checkpoint"]
    assert len(done.stderr.splitlines()) == 3, done.stderr  # a line for a kind of failure


@pytest.mark.slow
def test_a_forked_child_does_not_record(tmp_path: Path) -> None:
    """Data loaders fork while the monitor's threads hold whatever locks they hold."""
    done = train(
        """
import multiprocessing, threading
def child():
    monitor.step(999_999)
    monitor.note("from a child")
    print("threads", threading.active_count(), monitor.recording, flush=True)
    monitor.stop()
with GpuMonitor(logdir, 0.05) as monitor:
    for number in range(12):
        monitor.step(number)
        child_process = multiprocessing.get_context("fork").Process(target=child)
        child_process.start()
        child_process.join(20)
        assert child_process.exitcode == 0, child_process.exitcode
        pid = os.fork()
        if pid == 0:
            sys.exit(0)  # runs what is registered for the exit
        assert os.waitpid(pid, 0)[1] == 0
    assert monitor.recording
""",
        EIGHT,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "threads 1 False\n" * 12
    recording = one(tmp_path)
    assert recording.steps.number.tolist() == list(range(1, 12))
    assert "from a child" not in recording.notes
    assert len(runs(tmp_path)) == 9


@pytest.mark.slow
def test_a_forked_child_may_have_a_monitor_of_its_own(tmp_path: Path) -> None:
    done = train(
        """
with GpuMonitor(logdir, 0.05, gpus=[0]) as monitor:
    time.sleep(0.3)
    pid = os.fork()
    if pid == 0:
        with GpuMonitor(logdir, 0.05, gpus=[1]):
            time.sleep(0.3)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
""",
        EIGHT,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    both = sorted(recordings(tmp_path), key=lambda recording: recording.gpus[0].facts.nvml_index)
    assert [recording.gpus[0].facts.nvml_index for recording in both] == [0, 1]
    assert both[0].process_id != both[1].process_id
    assert len(both[1].gpus[0]) > 2


@pytest.mark.slow
def test_many_processes_on_one_logdir_never_share_a_folder(tmp_path: Path) -> None:
    script = PREFACE.format(logdir=str(tmp_path / "logs")) + (
        "with GpuMonitor(logdir, 0.05) as monitor:\n"
        "    for step in range(8):\n        time.sleep(0.05)\n        monitor.step(step)\n"
    )
    environment = driver_environment("gpus 2", tmp_path)
    workers = [subprocess.Popen([sys.executable, "-c", script], env=environment, cwd=REPOSITORY) for _ in range(4)]
    assert [worker.wait(60) for worker in workers] == [0] * 4
    found = recordings(tmp_path)
    assert len({recording.process_id for recording in found}) == 4
    assert len({gpu.run for recording in found for gpu in recording.gpus}) == 8
    assert all(len(recording.gpus) == 2 and len(recording.gpus[0]) >= 3 for recording in found)
    for folder in runs(tmp_path):
        assert len(list((tmp_path / "logs" / folder).iterdir())) == 1


@pytest.mark.slow
def test_a_notebook_cell_that_is_run_ten_times(tmp_path: Path) -> None:
    done = train(
        """
import threading
for run in range(10):
    monitor = GpuMonitor(logdir, 0.05)
    monitor.start()
    monitor.step(0)
    time.sleep(0.1)
    monitor.step(1)
import gc
gc.collect()
time.sleep(0.3)
print(sum(thread.name.startswith("gpu-doctor") for thread in threading.enumerate()))
""",
        "gpus 2",
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, done.stderr)
    assert done.stdout == "3\n", "a monitor that nobody holds any more ends: the last one samples, writes and watches"
    found = recordings(tmp_path)
    assert len(found) == 10
    assert len({gpu.run for recording in found for gpu in recording.gpus}) == 20
    assert all(recording.steps.number.tolist() == [1] for recording in found), "the last one is written at exit"


@pytest.mark.slow
def test_two_monitors_at_once_and_one_started_twice(tmp_path: Path) -> None:
    done = train(
        """
one, other = GpuMonitor(logdir, 0.05), GpuMonitor(logdir, 0.05)
for monitor in (one, other):
    assert monitor.start() is monitor
    monitor.start()
time.sleep(0.3)
one.stop()
one.start()
time.sleep(0.2)
""",
        "gpus 1",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert len(recordings(tmp_path)) == 3


@pytest.mark.slow
def test_a_killed_process_loses_a_few_seconds_at_most(tmp_path: Path) -> None:
    script = PREFACE.format(logdir=str(tmp_path / "logs")) + (
        "monitor = GpuMonitor(logdir, 0.05).start()\n"
        "for step in range(10**6):\n    time.sleep(0.01)\n    monitor.step(step)\n"
        "    if step == 20: print('trains', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env=driver_environment("gpus 1", tmp_path),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "trains\n"
    time.sleep(8)
    killed_ns = time.time_ns()
    os.kill(process.pid, signal.SIGKILL)
    process.wait(20)
    process.stdout.close()
    recording = one(tmp_path)
    assert killed_ns - recording.gpus[0].wall_ns[-1] < 6e9
    assert killed_ns - recording.steps.end_ns[-1] < 6e9


@pytest.mark.slow
def test_a_full_disk_is_told_once_and_the_recording_goes_on_when_there_is_room(tmp_path: Path) -> None:
    done = train(
        """
import resource
import tb_gpu_doctor.monitor.writer as writer
writer.FLUSH_S, writer.RETRY_S = 0.1, 0.1
with GpuMonitor(logdir, 0.05, gpus=[0]) as monitor:
    time.sleep(0.6)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, resource.RLIM_INFINITY))
    for step in range(30):
        time.sleep(0.05)
        monitor.step(step)
    print("trained", flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    time.sleep(0.6)
""",
        EIGHT,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "trained\n")
    lines = [line for line in done.stderr.splitlines() if "ritten" in line]
    assert len(lines) == 2 and len(done.stderr.splitlines()) == 2, done.stderr
    assert "cannot be written" in lines[0] and "File too large" in lines[0]
    assert "again" in lines[1]
    recording = one(tmp_path)
    assert len(recording.gpus[0]) > 20
    assert np.diff(recording.gpus[0].wall_ns).max() < 1.2e9, "nothing of what was kept in memory is lost"
    assert recording.steps.number.tolist() == list(range(1, 30))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["read_only", "a_file", "nonsense"])
def test_a_logdir_that_cannot_be_written_is_told_once(kind: str, tmp_path: Path) -> None:
    logdir = {
        "read_only": "/proc/logs",
        "a_file": str(tmp_path / "scenario.txt" / "logs"),
        "nonsense": "nosuchstore://bucket/logs",
    }[kind]
    done = train(
        f"""
import tb_gpu_doctor.monitor.writer as writer
writer.FLUSH_S = writer.REMOTE_FLUSH_S = writer.RETRY_S = 0.1
with GpuMonitor({logdir!r}, 0.05) as monitor:
    for step in range(20):
        time.sleep(0.05)
        monitor.step(step)
print("trained")
""",
        "gpus 1",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "cannot be written to" in done.stderr


@pytest.mark.slow
def test_a_store_that_does_not_answer_holds_nobody_up(tmp_path: Path) -> None:
    done = train(
        """
import tb_gpu_doctor.monitor.event_file as event_file
class Hanging:
    def __init__(self, path): pass
    def write(self, data): time.sleep(1000)
    def sync(self): pass
    def close(self): pass
event_file._LocalTarget = Hanging
import tb_gpu_doctor.monitor.writer as writer
writer.FLUSH_S = 0.1
began = time.monotonic()
monitor = GpuMonitor(logdir, 0.05).start()
for step in range(20):
    time.sleep(0.02)
    monitor.step(step)
assert time.monotonic() - began < 10
began = time.monotonic()
monitor.stop(timeout_s=0.5)
assert time.monotonic() - began < 5
print("trained")
""",
        "gpus 1",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert "the last seconds of the recording are lost" in done.stderr


@pytest.mark.slow
def test_a_logdir_that_is_deleted_meanwhile_is_begun_anew(tmp_path: Path) -> None:
    done = train(
        """
import shutil
import tb_gpu_doctor.monitor.writer as writer
writer.FLUSH_S = 0.1
with GpuMonitor(logdir, 0.05) as monitor:
    monitor.facts("own", {"kept": True})
    time.sleep(0.8)
    shutil.rmtree(logdir)
    time.sleep(0.6)
""",
        "gpus 2",
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    recording = one(tmp_path)
    assert recording.facts["own"] == {"kept": True}
    assert recording.facts["driver"]["gpus_of_machine"] == 2
    assert len(recording.gpus) == 2 and len(recording.gpus[0]) > 4
    assert runs(tmp_path) == {f"gpu_doctor/{recording.host}/{name}" for name in ("process", "gpu0", "gpu1")}


@pytest.mark.slow
def test_training_ends_in_an_exception_and_what_was_recorded_is_there(tmp_path: Path) -> None:
    done = train(
        """
with GpuMonitor(logdir, 0.05) as monitor:
    time.sleep(0.3)
    raise ValueError("out of memory")
""",
        "gpus 1",
        tmp_path,
    )
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("ValueError: out of memory")
    assert len(one(tmp_path).gpus[0]) > 2


def test_nothing_heavy_is_imported_before_it_starts() -> None:
    code = (
        "import sys; from tb_gpu_doctor import GpuMonitor; GpuMonitor('x');"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert not {"numpy", "tensorboard", "tensorflow", "pynvml", "jax", "torch"} & set(done.stdout.split())


@pytest.mark.slow
def test_a_started_monitor_imports_no_framework(tmp_path: Path) -> None:
    done = train("with GpuMonitor(logdir, 0.05): time.sleep(0.3)\nprint(*sys.modules)", "gpus 1", tmp_path)
    assert done.returncode == 0
    assert not {"tensorflow", "jax", "torch", "keras", "xprof"} & set(done.stdout.split())


def test_file_names_hold_the_host_as_the_profiler_names_it(tmp_path: Path) -> None:
    import socket

    train("GpuMonitor(logdir).start().stop()", "gpus 1", tmp_path)
    assert one(tmp_path).host == socket.gethostname()


@pytest.mark.slow
def test_steps_of_each_run_strictly_grow(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    done = train(
        """
with GpuMonitor(logdir, 0.05, gpus=[0]) as monitor:
    time.sleep(0.2)
    for step in [*range(100, 120), *range(0, 20)]:
        time.sleep(0.02)
        monitor.step(step)
    time.sleep(0.2)
""",
        EIGHT,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    for run in runs(tmp_path):
        accumulator = EventAccumulator(str(tmp_path / "logs" / run), {"scalars": 0})
        accumulator.Reload()
        tags = accumulator.Tags()["scalars"]
        assert len(tags) == (1 if run.endswith("process") else 27)
        for tag in tags:
            assert re.fullmatch(r"(gpu|training)/\w+", tag)
            events = accumulator.Scalars(tag)
            assert all(later.step > earlier.step for earlier, later in pairwise(events)), tag
            assert all(later.wall_time >= earlier.wall_time for earlier, later in pairwise(events)), tag


@pytest.mark.slow
@pytest.mark.parametrize("thread", ["gpu-doctor-sampler", "gpu-doctor-writer"])
def test_a_monitor_may_be_collected_in_its_own_threads(thread: str, tmp_path: Path) -> None:
    """Garbage is collected wherever memory is asked for."""
    done = train(
        f"""
import gc, threading
import tb_gpu_doctor.monitor.writer as writer, tb_gpu_doctor.monitor.sampler as sampler
writer.FLUSH_S = 0.1
collect = threading.Event()
def collecting(method):
    def wrapped(*arguments, **named):
        if collect.is_set() and threading.current_thread().name == {thread!r}:
            gc.collect()
        return method(*arguments, **named)
    return wrapped
writer.RecordingWriter._write = collecting(writer.RecordingWriter._write)
sampler.Sampler.sample = collecting(sampler.Sampler.sample)
monitor = GpuMonitor(logdir, 0.05).start()
monitor.cycle = monitor
time.sleep(0.5)
gc.disable()
del monitor
collect.set()
deadline = time.monotonic() + 20
while any(thread.name.startswith("gpu-doctor") for thread in threading.enumerate()):
    assert time.monotonic() < deadline, threading.enumerate()
    time.sleep(0.05)
print("ended")
""",
        "gpus 1",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
    assert len(one(tmp_path).gpus[0]) >= 2


SECOND = 1_000_000_000


class Machine:
    """A machine whose clock can be set."""

    def __init__(self) -> None:
        self.monotonic = 5 * SECOND
        self.wall = 1_700_000_000 * SECOND
        self.jumps: list[float] = []
        self.clock = WallClock(self.jumps.append, lambda: self.wall, lambda: self.monotonic)

    def passes(self, seconds: float, set_forward_s: float = 0.0) -> int:
        self.monotonic += round(seconds * SECOND)
        self.wall += round((seconds + set_forward_s) * SECOND)
        return self.clock.now_ns()


def test_undisturbed_it_is_the_machines_time() -> None:
    machine = Machine()
    for _ in range(5):
        assert machine.passes(1) == machine.wall
    assert not machine.jumps


def test_a_slewed_clock_is_followed_without_a_word() -> None:
    machine = Machine()
    for _ in range(1000):
        assert machine.passes(1, 0.0005) == machine.wall
    assert not machine.jumps


def test_a_jump_forward_is_followed_and_told() -> None:
    machine = Machine()
    machine.passes(1)
    assert machine.passes(1, 3600) == machine.wall
    assert [round(jump) for jump in machine.jumps] == [3600]


def test_a_jump_backwards_goes_on_at_the_monotonic_pace_until_it_is_caught_up() -> None:
    machine = Machine()
    before = machine.passes(1)
    assert machine.passes(1, -60) == before + SECOND
    assert machine.passes(10) == before + 11 * SECOND
    assert machine.passes(1, 60) == machine.wall
    assert [round(jump) for jump in machine.jumps] == [-60]


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(-100, 100)), max_size=50))
def test_it_never_turns_back(steps: list[tuple[float, float]]) -> None:
    machine = Machine()
    times = [machine.passes(seconds, forward) for seconds, forward in steps]
    assert all(later > earlier for earlier, later in pairwise(times))
