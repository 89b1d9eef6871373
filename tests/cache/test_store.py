"""The cache keeps what it is given, forgets what is bad, stays within its size, and runs nothing."""

from __future__ import annotations

import importlib
import os
import pickle
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tb_gpu_doctor.cache.store import (
    _MAGIC,
    _OWN_PAGES_BYTES,
    DEFAULT_MAX_BYTES,
    FOLDER_VARIABLE,
    SIZE_VARIABLE,
    Store,
    _digest,
    default_store,
)
from tb_gpu_doctor.cli.main import main
from tests.comparison.summaries import summary


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", 10_000_000)


def entry(store: Store, key: str) -> Path:
    return store._path(key)


def forged(
    stream: bytes, *sizes: int, arrays: bytes = b"", length: int | None = None, count: int | None = None
) -> bytes:
    """An entry with a right digest and whatever inside."""
    wanted = (len(stream) if length is None else length, len(sizes) if count is None else count, *sizes)
    body = struct.pack(f"<{len(wanted)}Q", *wanted) + stream + arrays
    return _MAGIC + _digest([body]) + body


def test_values_come_back(store: Store) -> None:
    original = summary()
    assert store.get("a") is None and store.put("a", original)
    kept = store.get("a")
    assert (
        kept is not original and np.array_equal(kept.parts_ps, original.parts_ps) and kept.kernels == original.kernels
    )
    assert store.usage().entries == 1 and store.get("b") is None


def test_other_versions_are_not_found(tmp_path: Path) -> None:
    Store(tmp_path, version="1").put("a", 3)
    assert Store(tmp_path, version="2").get("a") is None and Store(tmp_path, version="1").get("a") == 3


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b[:10], lambda b: b"", lambda b: b[:60] + b"x" + b[61:]]
)
def test_damaged_entries_are_dropped_silently(store: Store, damage: Any) -> None:
    store.put("a", {"x": list(range(100))})
    path = entry(store, "a")
    path.write_bytes(damage(path.read_bytes()))
    assert store.get("a") is None and not path.exists()


ARRAYS = [
    np.arange(24, dtype="<i8"), np.zeros(0), np.zeros((3, 0), np.int32), np.arange(6).reshape(2, 3).T,
    np.arange(9)[::2],
    np.array([1, 2], ">u2"), np.array(5.5), np.array(["a", "bc"]), np.arange(_OWN_PAGES_BYTES, dtype=np.uint8),
    np.array([True, False]), np.array([np.nan, -0.0]), np.array([b"x"], dtype="S3"),
]  # fmt: skip


@pytest.mark.parametrize("few", [True, False])
def test_arrays_come_back_as_they_were_and_can_be_written(store: Store, few: bool) -> None:
    kept = ARRAYS[:7] if few else ARRAYS  # in pages of its own, or not
    assert store.put("a", {"arrays": kept, "again": kept[0], "text": "ñ"})
    assert (entry(store, "a").stat().st_size >= _OWN_PAGES_BYTES) is not few
    got = store.get("a")
    for before, after in zip(kept, got["arrays"], strict=True):
        assert before.dtype == after.dtype and before.shape == after.shape and before.tobytes() == after.tobytes()
        assert after.flags.writeable and after.flags.aligned
    assert got["again"] is got["arrays"][0] and got["text"] == "ñ"


DTYPES = st.one_of(npst.integer_dtypes(), npst.unsigned_integer_dtypes(), npst.floating_dtypes(), npst.boolean_dtypes())


@given(st.lists(npst.arrays(DTYPES, npst.array_shapes(min_dims=0, min_side=0, max_side=9)), max_size=6))
@settings(max_examples=60, deadline=None)
def test_any_arrays_come_back(arrays: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "cache")
        assert store.put("a", arrays)
        got = store.get("a")
        assert [(a.dtype, a.shape, a.tobytes()) for a in got] == [(a.dtype, a.shape, a.tobytes()) for a in arrays]


@pytest.mark.parametrize(
    "content",
    [
        forged(pickle.dumps(1), length=1 << 60), forged(pickle.dumps(1), count=1 << 60),
        forged(pickle.dumps(1), 1 << 63),
        forged(pickle.dumps(1), arrays=b"more"), forged(b"", length=0), _MAGIC, _MAGIC + _digest([]), b"\x80\x05K\x01.",
        forged(pickle.dumps(np.arange(3), protocol=5, buffer_callback=lambda _b: None)),
    ],
)  # fmt: skip
def test_lengths_that_cannot_be_are_dropped(store: Store, content: bytes) -> None:
    store.put("a", 1)
    entry(store, "a").write_bytes(content)
    assert store.get("a") is None and not entry(store, "a").exists()


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("evil",)


@pytest.mark.parametrize("value", [Evil(), os.system, threading.Thread, np.load])
def test_entries_that_would_act_are_dropped(
    store: Store, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store.put("a", 1)
    entry(store, "a").write_bytes(forged(pickle.dumps(value)))
    assert store.get("a") is None and not (tmp_path / "evil").exists()


def test_what_the_package_imported_is_not_reached_through_it(store: Store) -> None:
    store.put("a", 1)
    for module, name in (("tb_gpu_doctor.cache.store", "Path"), ("tb_gpu_doctor.cache.store", "os.system"),
                         ("tb_gpu_doctor.cache.store", "io.FileIO")):  # fmt: skip
        # by hand: pickle itself names a class by its home
        names = b"".join(b"\x8c" + bytes([len(part)]) + part.encode() for part in (module, name))
        body = b"\x80\x04" + names + b"\x93."
        assert pickle.loads(body) is not None
        entry(store, "a").write_bytes(forged(body))
        assert store.get("a") is None, name


def named(module: str, name: str) -> bytes:
    """A pickle's words for what a module holds; by hand, since pickle itself names a class by its home."""
    return b"".join(b"\x8c" + bytes([len(part)]) + part.encode() for part in (module, name)) + b"\x93"


def test_no_program_runs_to_see_what_an_entry_names(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["f2py"])
    store.put("a", 1)
    entry(store, "a").write_bytes(forged(b"\x80\x04" + named("numpy.f2py.__main__", "dtype") + b"."))
    assert store.get("a") is None and "numpy.f2py.__main__" not in sys.modules


@pytest.mark.parametrize(
    ("module", "name"),
    [("tb_gpu_doctor.parallel.processes", "_Worker"), ("tb_gpu_doctor.monitor.event_file", "EventFile")],
)
def test_own_classes_that_act_are_not_built(
    store: Store, module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[object] = []
    found = getattr(importlib.import_module(module), name)
    monkeypatch.setattr(found, "__init__", lambda *given: built.append(given))
    store.put("a", 1)
    entry(store, "a").write_bytes(forged(b"\x80\x04" + named(module, name) + b"\x88\x85R."))  # called with (True,)
    assert store.get("a") is None and not built


def test_who_has_no_home_has_no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = (
        "import os; from tb_gpu_doctor.cache.store import default_store; import platformdirs, numpy\n"
        "if os.getuid() == 0: os.setuid(54321)\n"
        "os.environ.pop('HOME', None)\n"
        "store = default_store(); print(store.put('a', 1), store.get('a'), store.usage().entries)\n"
        "os.environ['XDG_CACHE_HOME'] = 'cache'; print(default_store().put('a', 1))\n"
    )
    if os.getuid() != 0:
        pytest.skip("only root can become a user without a home")
    for name in (FOLDER_VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    tmp_path.chmod(0o777)
    told = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert told.stdout == "False None 0\nFalse\n", told.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", ["9" * 5_000, "-1", "much", "\u00b2", ""])
def test_a_size_that_is_none_is_the_usual_one(monkeypatch: pytest.MonkeyPatch, size: str, tmp_path: Path) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(SIZE_VARIABLE, size)
    assert default_store().usage().max_bytes == DEFAULT_MAX_BYTES


def test_a_folder_below_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(FOLDER_VARIABLE, "~/kept")
    assert default_store().usage().folder == tmp_path / "kept"


def test_what_is_larger_than_all_entries_is_not_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("a", 1)
    os.truncate(entry(store, "a"), 1 << 34)  # a hole, which takes no room on the disk but in memory
    monkeypatch.setattr("tb_gpu_doctor.cache.store._read", lambda *_: pytest.fail("read"))
    assert store.get("a") is None and store.put("a", 2) and entry(store, "a").stat().st_size < 1_000


def test_want_of_memory_keeps_nothing_and_harms_nobody(store: Store) -> None:
    class Large:
        def __getstate__(self) -> object:
            raise MemoryError

    assert not store.put("a", Large())


def test_folders_and_files_of_others_are_not_read(store: Store, tmp_path: Path) -> None:
    store.put("a", 1)
    os.chmod(entry(store, "a"), 0o666)
    assert store.get("a") is None
    os.chmod(tmp_path / "cache", 0o777)
    assert not store.is_usable and not store.put("b", 1)


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    store = Store(tmp_path, 100_000)
    for index in range(8):
        assert store.put(str(index), b"x" * 20_000)
        os.utime(entry(store, str(index)), (index, index))
        store.get("0")
    held = [index for index in range(8) if store.get(str(index)) is not None]
    assert 0 in held and 7 in held and len(held) == 4
    assert store.usage().size_bytes <= 100_000
    assert not store.put("big", b"x" * 50_000), "one entry must not push all others out"


def test_files_of_others_stay(tmp_path: Path) -> None:
    others = [tmp_path / name for name in ("film.mkv.part", "diary.entry", f"{'0' * 64}.entry.part")]
    for other in others:
        other.write_bytes(b"x" * 50_000)
        os.utime(other, (0, 0))
    store = Store(tmp_path, 100_000)
    for key in "abcdef":
        assert store.put(key, b"x" * 20_000)
    left = entry(store, "a").with_name(f"{entry(store, 'a').name}.12-34.part")
    left.touch()
    os.utime(left, (0, 0))
    assert store.put("g", 1) and not left.exists(), "what a killed process left"
    assert 0 < store.usage().size_bytes <= 100_000 and store.clear() > 0
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_what_cannot_be_kept_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for folder in (None, tmp_path / "file" / "below"):
        store = Store(folder)
        assert not store.put("a", 1) and store.get("a") is None and store.usage().entries == 0 and store.clear() == 0
    store = Store(tmp_path / "cache")
    assert not store.put("a", threading.Lock()) and not list((tmp_path / "cache").iterdir())


def test_many_writers_leave_whole_entries(store: Store) -> None:
    def work(which: int) -> None:
        for _ in range(30):
            store.put("a", [which] * 1000)
            kept = store.get("a")
            assert kept is None or len(set(kept)) == 1

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get("a") is not None


def test_the_command_shows_and_clears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPU_DOCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("GPU_DOCTOR_CACHE_BYTES", "1000000")
    default_store().put("a", [1])
    assert main(["cache", "--lang", "en"]) == 0
    assert "1 entry" in capsys.readouterr().out
    assert main(["cache", "--clear", "--lang", "es"]) == 0
    assert "1 entrada olvidada" in capsys.readouterr().out and default_store().usage().entries == 0
    monkeypatch.setenv("GPU_DOCTOR_CACHE_DIR", "")
    assert main(["cache", "--lang", "en"]) == 0
    assert "switched off" in capsys.readouterr().out
