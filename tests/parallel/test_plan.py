from __future__ import annotations

import ctypes
import importlib
import sys
from pathlib import Path

import pytest

from tb_gpu_doctor.parallel import plan, resources
from tb_gpu_doctor.parallel.plan import claimed, may_start_processes, wanted_workers
from tb_gpu_doctor.parallel.resources import available_memory_bytes, return_free_memory, usable_cores
from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.traces.sessions import ProfileFile

GIB = 1 << 30


def files(count: int, size: int, name: str = "h.xplane.pb", form: str = "xplane") -> list[ProfileFile]:
    return [ProfileFile(f"{index}{name}", str(index), form, size, 0.0) for index in range(count)]


@pytest.mark.parametrize(
    ("given", "cores", "memory", "expected"),
    [
        (files(1, GIB), 8, 64 * GIB, 0),  # nothing to share
        (files(64, 10_000), 8, 64 * GIB, 0),  # done before a process has started
        (files(64, 7 << 20), 8, 64 * GIB, 8),
        (files(64, 7 << 20), 96, 64 * GIB, 64),
        (files(4, 100 << 20), 1, 64 * GIB, 0),
        (files(64, 100 << 20), 1, 16 * GIB, 1),  # too much to keep in memory, so a process keeps it on disk
        (files(8, GIB), 8, 30 * GIB, 3),  # each takes six times its size
        (files(8, GIB), 8, 2 * GIB, 1),
        (files(8, 2 << 20, ".pt.trace.json.gz", "kineto"), 8, 64 * GIB, 8),
        (files(8, 2 << 20, ".pt.trace.json", "kineto"), 8, 64 * GIB, 0),
        (files(8, 40 << 20, ".pt.trace.json.gz", "kineto"), 8, 16 * GIB, 3),
        ([], 8, 64 * GIB, 0),
    ],
)
def test_cores_memory_and_what_a_process_costs(given, cores: int, memory: int, expected: int):
    assert wanted_workers(given, cores, memory) == expected


def test_the_user_has_the_last_word_but_for_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(plan.VARIABLE, "3")
    assert wanted_workers(files(64, 10), 2, 64 * GIB) == 3
    assert wanted_workers(files(2, 10), 2, 64 * GIB) == 2
    assert wanted_workers(files(64, GIB), 2, 10 * GIB) == 1
    for value, expected in (("1", 0), ("0", 0), ("many", 2), ("", 2), ("\u00b2", 2), ("9" * 5_000, 2)):
        monkeypatch.setenv(plan.VARIABLE, value)
        assert wanted_workers(files(64, 10 << 20), 2, 64 * GIB) == expected


def test_files_known_to_be_unreadable_need_no_process():
    broken = [ProfileFile("x", "x", "xplane", GIB, 0.0, Phrase("notes.riegeli"))] * 10
    assert wanted_workers([*broken, *files(2, GIB)], 8, 64 * GIB) == 2


def test_sessions_analysed_at_the_same_time_share_the_cores():
    with claimed(6, cores=8) as first:
        with claimed(6, cores=8) as second, claimed(6, cores=8) as third:
            assert (first, second, third) == (6, 2, 1)
        with claimed(0, cores=8) as none:
            assert none == 0
    with claimed(6, cores=8) as again:
        assert again == 6


def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **content: str) -> None:
    for name, text in content.items():
        path = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(resources, "_CGROUP", str(tmp_path))


def test_a_container_grants_less_than_the_machine_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(resources.os, "sched_getaffinity", lambda _pid: range(64), raising=False)
    group(tmp_path, monkeypatch, cpu_DOT_max="max 100000")
    assert usable_cores() == 64
    group(tmp_path, monkeypatch, cpu_DOT_max="150000 100000")
    assert usable_cores() == 2
    machine = available_memory_bytes()
    assert machine is not None and machine > 10 << 20
    stat = "anon 5\ninactive_file 3000\nactive_file 2000\n"
    group(tmp_path, monkeypatch, memory_DOT_max="1000000", memory_DOT_current="900000", memory_DOT_stat=stat)
    assert available_memory_bytes() == 105_000
    group(tmp_path, monkeypatch, memory_DOT_max="max")
    assert available_memory_bytes() == pytest.approx(machine, rel=0.5)


def test_the_older_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(resources.os, "sched_getaffinity", lambda _pid: range(64), raising=False)
    group(tmp_path, monkeypatch, cpu__cpu_DOT_cfs_quota_us="-1", cpu__cpu_DOT_cfs_period_us="100000")
    assert usable_cores() == 64
    group(tmp_path, monkeypatch, cpu__cpu_DOT_cfs_quota_us="400000")
    assert usable_cores() == 4
    names = {"memory__memory_DOT_limit_in_bytes": "2000", "memory__memory_DOT_usage_in_bytes": "500"}
    group(tmp_path, monkeypatch, **names)
    assert available_memory_bytes() == 1500
    group(tmp_path, monkeypatch, memory__memory_DOT_limit_in_bytes=str(2**63 - 4096))
    assert available_memory_bytes() != 1500


@pytest.mark.parametrize(("word", "may"), [("", True), ("0", False), ("1", False), ("2", True), ("many", True)])
def test_the_user_may_forbid_processes(monkeypatch: pytest.MonkeyPatch, word: str, may: bool):
    monkeypatch.setenv(plan.VARIABLE, word)
    assert may_start_processes() is may


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_free_memory_goes_back_and_other_c_libraries_do_not_matter(monkeypatch: pytest.MonkeyPatch):
    def resident() -> int:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))

    kept = [bytes(700) for _ in range(150_000)]  # from glibc's heap: beyond what Python manages itself
    last, high = kept[-1], resident()
    del kept  # what is free lies below something that is used
    return_free_memory()
    assert resident() < high - 80_000 and last is not None

    def no_library(_name: object) -> None:
        raise OSError("none")

    monkeypatch.setattr(ctypes, "CDLL", no_library)
    return_free_memory()
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    return_free_memory()
    monkeypatch.setitem(sys.modules, "ctypes", None)  # a Python that was built without libffi
    return_free_memory()
    importlib.reload(resources)
