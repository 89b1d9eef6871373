"""A real Dask cluster of two workers on this machine: the same answer, whatever happens to a worker."""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.large_job import write_job
from tb_gpu_doctor.api import diagnose_session
from tb_gpu_doctor.cli.main import main
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.parallel import cluster as clusters
from tb_gpu_doctor.parallel.cluster import DaskCluster, dask_cluster, facts_to_send, sent_facts
from tb_gpu_doctor.parallel.many_files import read_files, working_on
from tb_gpu_doctor.report.sentences import error_sentence
from tb_gpu_doctor.traces.sessions import Session, find_sessions

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def local() -> Iterator[distributed.LocalCluster]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as started:
        yield started


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("job")
    write_job(folder, "kineto", 6, 12_000)
    return only_session(folder)


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_DOCTOR_CACHE_BYTES", "0")


def only_session(folder: Path) -> Session:
    (session,) = find_sessions(str(folder)).sessions
    return session


def answer(session: Session, **options) -> str:
    return diagnose_session(session, **options).diagnosis.to_json("en")


def test_workers_say_what_this_process_says(local, job: Session):
    seen: list[float] = []
    with dask_cluster(local.scheduler_address) as cluster:
        result = diagnose_session(job, lambda _stage, done: seen.append(done), executor=cluster)
        # what a replay follows is bounded: six bytes an event, of the first steps only
        assert 0 < cluster.received_bytes < (40_000 + 6 * 6_000) * len(job.files), "facts travel"
        with working_on(cluster):
            assert answer(job) == result.diagnosis.to_json("en")
    assert result.diagnosis.to_json("en") == answer(job)
    assert seen == sorted(seen) and len(set(seen)) >= len(job.files)
    assert [file.path for file in result.files] == [file.path for file in job.files]


def test_a_worker_killed_midway(local, job: Session):
    with distributed.Client(local.scheduler_address, set_as_default=False) as client:
        pids = list(client.run(os.getpid).values())
    killed: list[int] = []

    def kill(_stage: str, done: float) -> None:
        if 0 < done < 1 and not killed:
            killed.append(pids[0])
            os.kill(pids[0], signal.SIGKILL)

    with dask_cluster(local.scheduler_address) as cluster:
        found = diagnose_session(job, kill, executor=cluster)
    assert killed == [pids[0]] and not found.failures and len(found.files) == len(job.files)
    assert found.diagnosis.to_json("en") == answer(job)


def tasks(address: str) -> list[str]:
    """Keys of all that workers of a scheduler hold."""
    with distributed.Client(address, set_as_default=False) as client:
        return list(map(str, client.who_has()))


def test_workers_keep_nothing(local, tmp_path: Path):
    """A history of many sessions must not fill them; nothing may wait for Python's search for cycles."""
    write_job(tmp_path, "xplane", 3, 4_000)
    gc.disable()
    try:
        with dask_cluster(local.scheduler_address) as cluster:
            result = diagnose_session(only_session(tmp_path), executor=cluster)
            assert result.diagnosis.findings
            deadline = time.monotonic() + 10
            while tasks(local.scheduler_address) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not tasks(local.scheduler_address)
    finally:
        gc.enable()


def test_workers_forget_what_was_stopped(local, job: Session):
    def stop(_stage: str, done: float) -> None:
        if done > 0:
            raise RuntimeError("enough")

    with dask_cluster(local.scheduler_address) as cluster:
        with pytest.raises(RuntimeError, match="enough"):
            read_files(job.files, stop, cluster)
        gc.collect()
        deadline = time.monotonic() + 10
        while tasks(local.scheduler_address) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not tasks(local.scheduler_address)


def test_what_travels_does_not_grow_with_the_events(local, tmp_path: Path):
    sent = []
    for events in (24_000, 96_000):  # a replay takes up to 10,000 events of a file
        write_job(tmp_path / str(events), "xplane", 2, events)
        with dask_cluster(local.scheduler_address) as cluster:
            diagnose_session(only_session(tmp_path / str(events)), executor=cluster)
            sent.append(cluster.received_bytes)
    # Facts grow with steps, collectives and kernels by name: four times as many events, half as much again.
    assert sent[1] < 1.6 * sent[0], sent


def test_the_command_says_the_same(local, job: Session, capsys: pytest.CaptureFixture[str]):
    printed = []
    for more in ([], ["--dask", local.scheduler_address.removeprefix("tcp://")]):
        assert main(["diagnose", job.path, "--json", "--lang", "en", *more]) == 0
        printed.append(json.loads(capsys.readouterr().out))
    assert printed[0] == printed[1]


@pytest.mark.parametrize("command", [["compare", "--json"], ["kernels", "--json"], ["baseline"], ["history", "--json"]])
def test_other_commands_say_the_same(local, job: Session, command: list[str], capsys: pytest.CaptureFixture[str]):
    paths = [job.path] * 2 if command[0] == "compare" else [job.path]
    printed = []
    for more in ([], ["--dask", local.scheduler_address]):
        assert main([command[0], *paths, *command[1:], "--lang", "en", *more]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != ""


def test_paths_do_not_depend_on_the_current_folder(local, job: Session, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(os.path.dirname(job.files[0].path))
    files = [replace(file, path=os.path.basename(file.path)) for file in job.files[:2]]
    with dask_cluster(local.scheduler_address) as cluster:
        found = read_files(files, lambda _stage, _done: None, cluster)
    assert [outcome.facts.path for outcome in found] == [file.path for file in files]


def test_a_file_that_workers_cannot_see_is_told_and_left_out(local, job: Session, tmp_path: Path):
    folder = Path(shutil.copytree(os.path.dirname(job.files[0].path), tmp_path / "job"))
    session = only_session(folder)
    os.remove(session.files[1].path)
    broken = Path(session.files[2].path)
    broken.write_bytes(b"nonsense" * 100)
    with dask_cluster(local.scheduler_address) as cluster:
        result = diagnose_session(session, executor=cluster)
    assert [error.code for error in result.failures] == ["file_not_on_worker", "not_trace_json"]
    assert [error.path for error in result.failures] == [file.path for file in session.files[1:3]]
    assert socket.gethostname() in error_sentence(result.failures[0], "en")
    assert len(result.files) == 4


@pytest.mark.parametrize("lang", ["en", "es"])
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "127.0.0.1:1", "nothing", "tcp://", "a:b"])
def test_no_scheduler_is_one_line_soon(job: Session, capsys: pytest.CaptureFixture[str], address: str, lang: str):
    began = time.monotonic()
    assert main(["diagnose", job.path, "--dask", address, "--lang", lang]) == 2
    assert time.monotonic() - began < 15
    out, err = capsys.readouterr()
    assert out == "" and len(err.strip().splitlines()) == 1 and "Dask" in err and address in err


def test_what_listens_may_be_no_scheduler(job: Session, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clusters, "CONNECT_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ProfileError) as raised:
        DaskCluster(f"tcp://127.0.0.1:{silent.getsockname()[1]}")
    assert raised.value.code == "cluster_unreachable"


def test_without_dask_it_says_what_to_install(job: Session, monkeypatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["diagnose", job.path, "--dask", "127.0.0.1:1", "--lang", "en"]) == 2
    assert "tb-gpu-doctor[dask]" in capsys.readouterr().err


def test_a_cluster_without_workers_and_one_that_ends(job: Session):
    with distributed.LocalCluster(n_workers=0, dashboard_address=None, host="127.0.0.1") as empty:
        with dask_cluster(empty.scheduler_address, patience_s=0.3) as cluster:
            with pytest.raises(ProfileError) as raised:
                read_files(job.files, lambda _stage, _done: None, cluster)
            assert raised.value.code == "cluster_no_workers"
        lost = DaskCluster(empty.scheduler_address)
    with pytest.raises(ProfileError) as raised:
        read_files(job.files, lambda _stage, _done: None, lost)
    assert raised.value.code in ("cluster_lost", "cluster_failed")
    lost.shutdown()


def test_a_closed_connection_is_told(local, job: Session):
    with dask_cluster(local.scheduler_address) as cluster:
        cluster.shutdown()
        with pytest.raises(ProfileError) as raised:
            read_files(job.files, lambda _stage, _done: None, cluster)
        assert raised.value.code == "cluster_lost"
    assert not logging.getLogger("distributed.client").isEnabledFor(logging.CRITICAL)


def test_a_scheduler_that_has_forgotten_the_work_is_lost(local, job: Session):
    with dask_cluster(local.scheduler_address) as cluster:
        future = cluster.submit(time.sleep, 5)
        future.cancel()
        with pytest.raises(ProfileError) as raised:
            cluster.outcome(future, job.files[0])
    assert raised.value.code == "cluster_lost"


def test_a_worker_of_another_version_is_told(job: Session):
    outcome = sent_facts(facts_to_send(job.files[0], "0.0.1"), job.files[0])
    assert isinstance(outcome, ProfileError) and outcome.code == "cluster_other_version"
    assert "0.0.1" in error_sentence(outcome, "es")


def test_a_file_that_ends_its_workers_is_told(job: Session):
    once = {"distributed.scheduler.allowed-failures": 0}
    with (
        dask.config.set(once),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
        ) as deadly,
        dask_cluster(deadly.scheduler_address) as cluster,
    ):
        outcome = cluster.outcome(cluster.submit(os._exit, 9), job.files[0])
        assert isinstance(outcome, ProfileError)
        assert (outcome.code, outcome.path) == ("cluster_worker_died", job.files[0].path)
        assert job.files[0].path in error_sentence(outcome, "es")


def test_a_real_job_says_the_same(local, shared_traces: Path):
    for session in find_sessions(str(shared_traces / "kineto_dlrm_8xv100")).sessions:
        with dask_cluster(local.scheduler_address) as cluster:
            assert answer(session, executor=cluster) == answer(session)
