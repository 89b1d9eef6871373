"""Which files are one recording: by what they say, whatever they are called."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.traces.heads import Head
from tb_gpu_doctor.traces.sessions import find_sessions
from tb_gpu_doctor.traces.torch_names import read_name
from tb_gpu_doctor.traces.torch_recordings import recordings
from tests.traces.kineto_files import BASE_S, kineto

# How launchers, profilers' wrappers and inference servers call the file of a rank.
LAUNCHERS = [
    "rank-{}.json", "rank{}_trace.json", "trace{}.json", "trace-rank-{}.json", "profile_{}.json", "rank{}.json",
    "libkineto_activities_300{}.json", "1730000000.1-TP-{}-DP-0-PP-0-EP-0.trace.json", "worker{}.pt.trace.json",
    "node-a_41{}.1750000001000000000.pt.trace.json",
    "dp0_pp0_tp{0}_dcp0_ep0_rank{0}.1750000001000000000.pt.trace.json",
    "torch_trace_rank_{}.json", "step_10_rank{}.json", "kineto_trace.rank{}.json", "{}.json",
    "trace_{}_of_2.trace.json",
]  # fmt: skip


def put(root: Path, name: str, **facts: object) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kineto(**facts)), encoding="utf-8")  # type: ignore[arg-type]


def grouped(root: Path) -> list[list[str]]:
    """The files of each recording, earliest first."""
    found = find_sessions(str(root)).sessions
    return [sorted(Path(file.path).name for file in session.files) for session in reversed(found)]


@pytest.mark.parametrize("says", [True, False])
@pytest.mark.parametrize("pattern", LAUNCHERS)
def test_ranks_of_a_job_however_they_are_called(tmp_path: Path, pattern: str, says: bool) -> None:
    for rank in range(3):
        facts: dict[str, object] = {"rank": rank, "world": 3} if says else {}
        put(tmp_path / "run", pattern.format(rank), pid=100 + rank, start_s=0.00001 * rank, **facts)
    (session,) = find_sessions(str(tmp_path)).sessions
    assert len(session.files) == len({file.host for file in session.files}) == 3
    assert session.problem is None and session.started_unix_s == pytest.approx(BASE_S, abs=2)


@pytest.mark.parametrize("pattern", LAUNCHERS[:8])
def test_files_of_other_kinds_beside_them_are_left_alone(tmp_path: Path, pattern: str) -> None:
    put(tmp_path, pattern.format(0), rank=0, world=1)
    for name in ("config.json", "trace_config.json", "rank_0.json.txt", "tokenizer.json", "saved_model.pb", "w.pt"):
        (tmp_path / name).write_text('{"rank": 0, "traceEvents": 5}', encoding="utf-8")
    assert grouped(tmp_path) == [[pattern.format(0)]]


@pytest.mark.parametrize("names", ["node_{}.17500000{}000.pt.trace.json", "trace_{}_{}.json"])
def test_two_runs_of_a_script_seconds_apart(tmp_path: Path, names: str) -> None:
    first, second = names.format(11, "01"), names.format(12, "05")
    put(tmp_path, first, pid=11, host="node", start_s=0.5)
    put(tmp_path, second, pid=12, host="node", start_s=4.5)
    assert grouped(tmp_path) == [[first], [second]]


def test_training_and_validation_of_one_process(tmp_path: Path) -> None:
    put(tmp_path, "fit-training_step.json", pid=7, start_s=20)
    put(tmp_path, "fit-validation_step.json", pid=7, start_s=1)
    assert grouped(tmp_path) == [["fit-validation_step.json"], ["fit-training_step.json"]]


def test_containers_with_one_name_and_number(tmp_path: Path) -> None:
    for rank in range(4):
        put(
            tmp_path, f"localhost_1.175000000000{rank}000000.pt.trace.json", rank=rank, world=4, pid=1, host="localhost"
        )
    (session,) = find_sessions(str(tmp_path)).sessions
    assert [file.host for file in session.files] == [f"localhost_1 (rank{rank})" for rank in range(4)]


def test_containers_that_do_not_know_their_ranks(tmp_path: Path) -> None:
    for number in range(2):
        put(tmp_path, f"localhost_1.175000000000{number}000000.pt.trace.json", pid=1, host="localhost")
    (session,) = find_sessions(str(tmp_path)).sessions
    assert len({file.host for file in session.files}) == 2


def test_two_jobs_in_one_folder(tmp_path: Path) -> None:
    for job, (start, host) in enumerate(((0.0, "a"), (0.5, "b"))):
        for rank in range(2):
            put(tmp_path, f"{job}-{rank}.json", rank=rank, world=2, host=host, pid=10 * job + rank + 1, start_s=start)
    assert grouped(tmp_path) == [["0-0.json", "0-1.json"], ["1-0.json", "1-1.json"]]


def test_jobs_of_different_sizes(tmp_path: Path) -> None:
    for world in (2, 3):
        for rank in range(world):
            put(tmp_path, f"job{world}_{rank}.json", rank=rank, world=world, pid=100 * world + rank)
    assert sorted(map(len, grouped(tmp_path))) == [2, 3]


def test_ranks_that_are_all_wrong_are_one_job_all_the_same(tmp_path: Path) -> None:
    for node in range(4):
        put(tmp_path, f"node{node}_12.1750000000000.pt.trace.json", rank=0, world=4, host=f"node{node}", pid=12)
    assert len(grouped(tmp_path)) == 1


def test_captures_of_ranks_that_know_each_other(tmp_path: Path) -> None:
    for rank in range(2):
        for batch in (12, 24):
            put(tmp_path, f"rank{rank}.{batch}.pt.trace.json", rank=rank, world=2, pid=50 + rank, start_s=batch / 10)
    assert grouped(tmp_path) == [[f"rank{rank}.{batch}.pt.trace.json" for rank in range(2)] for batch in (12, 24)]


def test_clocks_of_two_hosts_may_differ(tmp_path: Path) -> None:
    for rank in range(4):
        put(
            tmp_path,
            f"rank{rank}.json",
            rank=rank,
            world=4,
            host=f"n{rank // 2}",
            pid=rank + 1,
            start_s=90 * (rank // 2),
        )
    assert len(grouped(tmp_path)) == 1


@given(
    jobs=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 3)), min_size=1, max_size=4),
    factor=st.integers(1, 9972),
)
def test_jobs_are_told_apart_whatever_they_are_called(jobs: list[tuple[int, int]], factor: int) -> None:
    """Jobs of some ranks and captures, minutes apart: every file is in the recording of its job and capture."""
    heads: dict[str, Head] = {}
    wanted: dict[str, tuple[int, int]] = {}
    for job, (world, captures) in enumerate(jobs):
        for rank in range(world):
            for capture in range(captures):
                name = f"{(len(heads) * factor) % 9973:x}.json"  # as good as random
                start = BASE_S + 1000.0 * job + 100.0 * capture + 0.01 * rank
                heads[name] = Head("kineto", rank, world, f"host{job}{rank}", 10_000 * job + rank, start, start + 1)
                wanted[name] = job, capture
    found = recordings(heads, heads.get)
    assert len(found) == len(set(wanted.values()))
    for recording in found:
        assert len({wanted[name] for _, name in recording.files}) == 1
    names = [recording.name for recording in found]
    assert len(set(names)) == len(names)


@given(st.lists(st.from_regex(r"[a-z0-9._-]{1,20}(\.\d{13})?\.(pt\.trace\.)?json(\.gz)?", fullmatch=True), max_size=12))
def test_any_names_are_grouped_once_each(names: list[str]) -> None:
    found = recordings(names, lambda name: None)
    stems = {read_name(name).stem for name in names}
    assert sorted(read_name(name).stem for recording in found for _, name in recording.files) == sorted(stems)
    for recording in found:
        assert len({label for label, _ in recording.files}) == len(recording.files)


def test_thousands_of_ranks_are_grouped_quickly() -> None:
    heads = {
        f"rank{rank}.json": Head("kineto", rank, 4000, f"h{rank // 8}", rank, BASE_S, BASE_S + 1.0)
        for rank in range(4000)
    }
    begin = time.process_time()
    (one,) = recordings(heads, heads.get)
    assert len(one.files) == 4000 and time.process_time() - begin < 2


def test_pipes_are_no_profiles() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        put(root, "rank0.json", rank=0, world=1)
        for name in ("x.xplane.pb", "rank1.json", "a.pt.trace.json"):
            os.mkfifo(root / name)
        session = root / "plugins" / "profile" / "2026_01_01_00_00_00"
        session.mkdir(parents=True)
        os.mkfifo(session / "h.xplane.pb")
        (found,) = find_sessions(folder).sessions
        assert [file.host for file in found.files] == ["rank0"]
