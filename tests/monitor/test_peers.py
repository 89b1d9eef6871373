"""The processes of a job see each other's pace through the logdir, and one of them says who is slow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tb_gpu_doctor.metrics import THROTTLE_BITS
from tb_gpu_doctor.monitor import peers as module
from tb_gpu_doctor.monitor.notes import Notes
from tb_gpu_doctor.monitor.peers import Peers

FACTS = [{"nvml_index": 5, "name": "H100", "framework_id": 0, "limits": {"sm_clock_max_mhz": 1980.0}}]
VALUES = {
    "utilization_percent": 95.0, "sm_clock_mhz": 1980.0, "temperature_celsius": 60.0, "other_processes": 0.0,
    "allocator_used_bytes": 1.0, "memory_process_bytes": 1.0,
    **{f"throttled_{name}_seconds": 0.0 for name in THROTTLE_BITS},
}  # fmt: skip


class Process:
    """One process of a job, in this one."""

    def __init__(self, folder: Path, number: int | None, of: int = 4) -> None:
        self.notes: list[dict[str, Any]] = []
        self.peers = Peers(str(folder), f"node{number}", Notes(self.notes.append))
        if number is not None:
            self.peers._rank = {"number": number, "of": of}

    def train(self, steps: int, ms: float, first: int = 0, samples: int = 32) -> None:
        for number in range(first, first + steps):
            self.peers.step(number, round(ms * 1e6), samples)

    def sample(self, monkeypatch: pytest.MonkeyPatch, **values: list[float]) -> None:
        for at in range(10):
            monkeypatch.setattr(module.time, "monotonic", lambda at=at: float(at))
            self.peers.gpu.take(FACTS, [{**VALUES, **{name: each[at] for name, each in values.items()}}])
        monkeypatch.undo()

    @property
    def said(self) -> list[str]:
        return [note["sentence"] for note in self.notes]


def test_rank_0_names_the_slow_rank_and_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = [Process(tmp_path, number) for number in range(4)]
    for number, process in enumerate(job):
        hot = number == 2
        process.sample(
            monkeypatch,
            sm_clock_mhz=[1300.0 if hot else 1980.0] * 10,
            throttled_software_thermal_seconds=[float(at) if hot else 0.0 for at in range(10)],
        )
        process.train(200, 150 if hot else 100)
        process.peers.look()
    assert all(process.said == [] for process in job)
    job[0].peers.look()
    (line,) = job[0].said
    assert "rank 2 (node2 · " in line and "50% slower" in line and "its GPU 5 is throttled by heat" in line
    assert all(process.said == [] for process in job[1:])
    job[0].train(100, 100, 200)
    job[2].train(100, 150, 200)
    for process in (job[2], job[0]):
        process.peers.look()
    assert len(job[0].said) == 1  # it goes on, and is told once


@pytest.mark.parametrize(
    ("slow_ms", "steps", "of", "samples"),
    [
        (110, 200, 4, 32),  # not a fifth
        (150, 90, 4, 32),  # not a hundred steps
        (150, 200, 8, 32),  # of another job
    ],
)
def test_what_is_not_told(tmp_path: Path, slow_ms: float, steps: int, of: int, samples: int) -> None:
    first, second, slow = Process(tmp_path, 0), Process(tmp_path, 1), Process(tmp_path, 2, of)
    for process, ms in ((second, 100), (slow, slow_ms), (first, 100)):
        process.train(steps, ms, samples=samples)
        process.peers.look()
    first.peers.look()
    assert first.said == []


def test_without_ranks_the_first_by_name_compares_what_has_the_same_batch(tmp_path: Path) -> None:
    processes = [Process(tmp_path, None) for _ in range(3)]
    for number, process in enumerate(processes):
        process.peers._name = f"node{number}-{number}.json"
        process.peers._path = str(Path(process.peers._folder) / process.peers._name)
        process.train(200, 150 if number == 2 else 100)
        process.peers.look()
    for process in processes:
        process.peers.look()
    assert [len(process.said) for process in processes] == [1, 0, 0]


def test_files_of_others_and_old_ones_are_passed_over(tmp_path: Path) -> None:
    first, slow = Process(tmp_path, 0, 2), Process(tmp_path, 1, 2)
    slow.train(200, 150)
    slow.peers.look()
    (path,) = (tmp_path / "gpu_doctor" / "pace").iterdir()
    told = json.loads(path.read_text())
    path.write_text(json.dumps({**told, "written_unix_s": told["written_unix_s"] - 3600}))
    (path.parent / "half.json").write_text('{"version": 1, "blo')
    (path.parent / "list.json").write_text("[]")
    first.train(200, 100)
    first.peers.look()
    assert first.said == []


def test_a_short_training_is_compared_at_its_end(tmp_path: Path) -> None:
    slow, first = Process(tmp_path, 1, 2), Process(tmp_path, 0, 2)
    for process, ms in ((slow, 150), (first, 100)):
        process.train(100, ms)
        process.peers.stop()
    assert len(first.said) == 1 and "rank 1" in first.said[0] and slow.said == []


def test_of_a_rank_that_was_started_again_the_newer_file_counts(tmp_path: Path) -> None:
    first, before, again = Process(tmp_path, 0, 2), Process(tmp_path, 1, 2), Process(tmp_path, 1, 2)
    before.peers._name, before.peers._began_unix_s = "before-1.json", before.peers._began_unix_s - 60
    before.peers._path = str(Path(before.peers._folder) / "before-1.json")
    for process, ms in ((before, 150), (again, 100), (first, 100)):
        process.train(200, ms)
        process.peers.look()
    assert first.said == []


def test_files_of_processes_that_ended_long_ago_are_taken_away(tmp_path: Path) -> None:
    first, old = Process(tmp_path, 0, 2), Process(tmp_path, 1, 2)
    old.train(200, 150)
    old.peers.look()
    path = Path(old.peers._path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "written_unix_s": 0}))
    first.train(200, 100)
    first.peers.look()
    assert first.said == [] and not path.exists()


def test_a_folder_that_cannot_be_written_is_nobodys_business(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    process = Process(tmp_path / "file", 0)
    process.train(200, 100)
    process.peers.look()
    assert process.said == []
