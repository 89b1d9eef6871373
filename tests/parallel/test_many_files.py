"""A session's files in processes: the same answer as in turn, whatever happens to a process."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path

import pytest

from simulator.large_job import write_job
from simulator.large_xplane import Shape, generate
from tb_gpu_doctor.api import diagnose_session
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.parallel.many_files import read_files
from tb_gpu_doctor.parallel.one_file import analyse_file
from tb_gpu_doctor.parallel.plan import VARIABLE
from tb_gpu_doctor.report.sentences import error_sentence
from tb_gpu_doctor.traces.related import join_sessions
from tb_gpu_doctor.traces.sessions import ProfileFile, Session, find_sessions
from tests.cli.profiles import session_file
from tests.parallel.test_processes import gone, until, workers_of

pytestmark = pytest.mark.slow

FORMATS = ("xplane", "kineto")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    for form in FORMATS:
        write_job(folder / form, form, 4, 6_000)
    return folder


@pytest.fixture(scope="module")
def slow_job(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Files that take long enough to interrupt."""
    folder = tmp_path_factory.mktemp("slow")
    write_job(folder, "kineto", 2, 50_000)
    return only_session(folder)


def only_session(folder: Path) -> Session:
    (session,) = find_sessions(str(folder)).sessions
    return session


def answer(session: Session, **options) -> str:
    return diagnose_session(session, **options).diagnosis.to_json("en")


@pytest.fixture
def two_workers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, "2")
    before = set(workers_of(os.getpid()))  # a server that an earlier test started keeps an idle one for a minute
    yield
    assert gone([pid for pid in workers_of(os.getpid()) if pid not in before], 10), "no process is left"


@pytest.mark.parametrize("form", FORMATS)
def test_processes_say_what_one_process_says(monkeypatch: pytest.MonkeyPatch, jobs: Path, form: str):
    session = only_session(jobs / form)
    assert len(session.files) == 4
    monkeypatch.setenv(VARIABLE, "1")
    expected = answer(session)
    assert len(json.loads(expected)["devices"]) == 4
    monkeypatch.setenv(VARIABLE, "3")
    assert answer(session) == expected
    with ThreadPoolExecutor(2) as executor:
        assert answer(session, executor=executor) == expected


def test_real_jobs_say_the_same(shared_traces: Path, monkeypatch: pytest.MonkeyPatch):
    sessions = [
        session
        for name in ("kineto_dlrm_8xv100", "kineto_megatron_tp8_a100")
        for session in find_sessions(str(shared_traces / name)).sessions
    ]
    for session in sessions:
        assert len(session.files) > 1
        answers = set()
        for workers in ("1", "2"):
            monkeypatch.setenv(VARIABLE, workers)
            answers.add(answer(session))
        assert len(answers) == 1


def test_the_work_of_a_file_can_be_sent_anywhere(jobs: Path):
    file = only_session(jobs / "xplane").files[0]
    function, argument = pickle.loads(pickle.dumps((analyse_file, file)))
    trace, analysis = pickle.loads(pickle.dumps(function(argument)))
    assert len(trace.device_events) == 3_000 and analysis.window is not None


@pytest.mark.parametrize("workers", ["1", "2"])
def test_progress_rises_through_its_stages(monkeypatch: pytest.MonkeyPatch, jobs: Path, workers: str):
    monkeypatch.setenv(VARIABLE, workers)
    seen: list[tuple[str, float]] = []
    diagnose_session(only_session(jobs / "kineto"), lambda stage, done: seen.append((stage, done)))
    stages = list(dict.fromkeys(stage for stage, _ in seen))
    assert stages == ["reading", "decoding", "analysing", "diagnosing"]
    shares = [done for _, done in seen]
    assert shares == sorted(shares) and shares[0] == 0.0 and shares[-1] == 1.0
    assert len(set(shares)) > 8, "more often than once a file"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_bad_ranks_are_told_and_left_out(monkeypatch: pytest.MonkeyPatch, jobs: Path, tmp_path: Path, workers: str):
    monkeypatch.setenv(VARIABLE, workers)
    folder = Path(shutil.copytree(jobs / "kineto", tmp_path / "job"))
    first, second, third, _ = sorted(folder.iterdir())
    first.write_bytes(b"\x1f\x8b\x08\x00" + b"junk" * 50)
    second.write_bytes(b"")
    third.write_bytes(gzip.compress(b'{"traceEvents": 7}'))
    result = diagnose_session(only_session(folder))
    assert [error.path for error in result.failures] == [str(first), str(second), str(third)]
    assert len(result.files) == 1 and result.files[0].rank == 3
    data = result.diagnosis.to_dict("en")
    warnings = data["profile"]["warnings"]
    for path in (first, second, third):
        assert sum(path.name in warning for warning in warnings) == 1
    assert any("0, 1 and 2" in warning for warning in warnings), "their ranks are named as missing"


def test_without_any_good_file_the_first_reason_is_given(two_workers, tmp_path: Path):
    for host in ("a", "b", "c"):
        session_file(tmp_path, host).write_bytes(b"nonsense" * 100)
    with pytest.raises(ProfileError) as raised:
        diagnose_session(only_session(tmp_path))
    assert raised.value.code == "not_xplane" and raised.value.path.endswith("a.xplane.pb")


class Broken(Executor):
    """As an executor whose processes all died."""

    def submit(self, fn, /, *args, **kwargs) -> Future:
        future: Future = Future()
        future.set_exception(BrokenExecutor("a process died"))
        return future


def test_files_of_a_broken_executor_get_a_second_try_alone(jobs: Path):
    session = only_session(jobs / "xplane")
    assert answer(session, executor=Broken()) == answer(session)


@dataclass(frozen=True)
class Deadly(ProfileFile):
    """A file that ends the process it is sent to, as the system does when memory runs out; so many times."""

    times: list[int] = field(default_factory=list)

    def __reduce__(self):
        if self.times:
            return os._exit, (self.times.pop(),)
        return ProfileFile, tuple(getattr(self, spec.name) for spec in fields(ProfileFile))


def deadly(file: ProfileFile, times: list[int]) -> Deadly:
    return Deadly(**vars(file), times=times)


def test_a_file_whose_process_dies_gets_a_second_try(two_workers, jobs: Path):
    files = list(only_session(jobs / "xplane").files)
    files[1], files[2] = deadly(files[1], [9]), deadly(files[2], [9])
    seen: list[float] = []
    found = read_files(files, lambda _stage, done: seen.append(done))
    assert [outcome.facts.path for outcome in found] == [file.path for file in files]
    assert seen == sorted(seen) and seen[-1] == 1.0


def test_a_file_whose_process_dies_again_is_reported(two_workers, jobs: Path):
    files = list(only_session(jobs / "kineto").files)
    files[0] = deadly(files[0], [9, 9])
    first, *others = read_files(files, lambda _stage, _done: None)
    assert isinstance(first, ProfileError)
    assert (first.code, first.path, first.params) == ("worker_died", files[0].path, {"reason": "exit status 9"})
    assert [outcome.facts.rank for outcome in others] == [1, 2, 3]
    sentence = error_sentence(first, "en")
    assert files[0].path in sentence and "memory" in sentence


def test_where_no_process_starts_the_work_is_done_here(two_workers, monkeypatch: pytest.MonkeyPatch, jobs: Path):
    session = only_session(jobs / "xplane")
    expected = answer(session)
    for interpreter in ("", "/bin/false"):
        monkeypatch.setattr(sys, "executable", interpreter)
        assert answer(session) == expected


def test_a_script_without_a_guard_runs_once(jobs: Path, tmp_path: Path):
    """Others' processes would import the caller's main module again, and train once more."""
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nopen('started', 'a').write('x')\nimport tb_gpu_doctor\n"
        f"print(tb_gpu_doctor.diagnose({str(jobs / 'xplane')!r}).to_dict()['verdict'])\n"
    )
    environment = os.environ | {VARIABLE: "2", "PYTHONPATH": str(Path(__file__).parents[2])}
    run = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run([sys.executable, str(script)], **run)
    assert done.returncode == 0 and done.stderr == "" and done.stdout.strip() in ("ok", "warning", "critical")
    assert (tmp_path / "started").read_text() == "x"
    for command in (["-c", script.read_text()], ["-"]):
        again = subprocess.run([sys.executable, *command], input=script.read_text(), **run)
        assert (again.returncode, again.stdout, again.stderr) == (0, done.stdout, "")


def test_ctrl_c_ends_the_command_and_its_processes(slow_job: Session):
    command = subprocess.Popen(
        [sys.executable, "-m", "tb_gpu_doctor.cli.main", "diagnose", slow_job.path, "--lang", "en"],
        env=os.environ | {VARIABLE: "2"}, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        pids = until(lambda: workers_of(command.pid))
        started = time.monotonic()
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=20)
        assert time.monotonic() - started < 10
        assert command.returncode == 130 and errors.strip().endswith("interrupted") and "Traceback" not in errors
        assert gone(pids)
    finally:
        command.kill()


def test_ranks_that_are_missing_among_64_are_named(tmp_path: Path):
    write_job(tmp_path, "kineto", 64, 120)
    by_rank = sorted(tmp_path.iterdir(), key=lambda path: int(path.name.split("_")[1].split(".")[0]))
    lost = {3, 17, 18, 19, 63}
    for rank in lost:
        by_rank[rank].unlink()
    # a second file of rank 5, by another process
    shutil.copy(by_rank[5], tmp_path / by_rank[5].name.replace("node00_", "node99_"))
    result = diagnose_session(only_session(tmp_path))
    assert len(result.files) == 60 and set(result.job.missing_ranks) == lost
    warnings = result.diagnosis.to_dict("en")["profile"]["warnings"]
    assert any("3, 17, 18, 19 and 63 (5)" in warning for warning in warnings), warnings
    labels = result.diagnosis.hosts
    assert len(set(labels)) == 60


def test_sessions_read_as_one_that_were_recorded_at_other_times(tmp_path: Path):
    """What the files say of their time counts more than what their folders are called."""
    for host, second in (("a", 0), ("b", 3)):
        session_file(tmp_path, host, session=f"2026_01_01_00_00_0{second}")
    folders = sorted((tmp_path / "plugins" / "profile").iterdir())
    shape = Shape(400, 400, gpus=1)
    for later_s, warned in ((30, False), (3_600, True)):
        for folder, host, start_s in zip(folders, "ab", (0, later_s), strict=True):
            generate(folder / f"{host}.xplane.pb", shape, start_s=start_s)
        joined = join_sessions(find_sessions(str(tmp_path)).sessions, "both")
        warnings = diagnose_session(joined).diagnosis.to_dict("en")["profile"]["warnings"]
        assert any("3,596\u00a0s apart" in warning for warning in warnings) == warned, warnings


class Stop(BaseException):
    """What a listener raises that wants no more."""


def test_a_listener_can_stop_the_work_of_processes(slow_job: Session, two_workers: None) -> None:
    caller = threading.get_ident()
    told = []

    def report(stage: str, fraction: float) -> None:
        told.append(fraction)
        if threading.get_ident() == caller:
            raise Stop

    began = time.monotonic()
    with pytest.raises(Stop):
        read_files(slow_job.files, report)
    assert time.monotonic() - began < 10 and told == sorted(told)
