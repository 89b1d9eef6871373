"""Event files: TensorBoard's own reader reads them, and what the disk refuses is kept."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from tb_gpu_doctor.monitor import event_file
from tb_gpu_doctor.monitor.event_file import EventFile, Origin, RunFolders

ORIGIN = Origin("node1", 42, lambda: 1_700_000_000_500_000_000)


def points(path: str) -> list[tuple[int, str, float]]:
    found = []
    for event in EventFileLoader(path).Load():
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name in ("", "scalars"):
                found.append((event.step, value.tag, value.tensor.float_val[0]))
    return found


def test_tensorboards_reader_reads_what_was_written(tmp_path: Path) -> None:
    file = EventFile(str(tmp_path), ORIGIN)
    file.scalars([("gpu/power_watts", 431.5), ("gpu/temperature_celsius", 71)], 7, 1_700_000_001.0)
    file.record("gpu_doctor/facts", b"{}", 0, 1_700_000_001.0)
    file.close()
    assert Path(file.path).name == "events.out.tfevents.1700000000.node1.42.0"
    events = list(EventFileLoader(file.path).Load())
    assert events[0].file_version == "brain.Event:2"
    assert events[0].wall_time == 1_700_000_000.5
    assert events[1].wall_time == 1_700_000_001.0
    assert points(file.path) == [(7, "gpu/power_watts", 431.5), (7, "gpu/temperature_celsius", 71.0)]
    value = events[2].summary.value[0]
    assert value.metadata.plugin_data.plugin_name == "gpu_doctor"
    assert value.metadata.data_class == 2, "the Rust data server drops other classes"
    assert value.tensor.string_val[0] == b"{}"


class NarrowDisk:
    """Takes a few bytes a call, and none while it is full."""

    def __init__(self, path: str, a_call: int) -> None:
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115
        self._a_call = a_call
        self.left = 1 << 30

    def write(self, data: bytes) -> int:
        if self.left <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._file.write(data[: min(self._a_call, self.left)])
        self.left -= written
        return written

    def sync(self) -> None:
        pass

    def close(self) -> None:
        self._file.close()


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> list[NarrowDisk]:
    disks: list[NarrowDisk] = []

    def make(path: str) -> Any:
        disks.append(NarrowDisk(path, 17))
        return disks[-1]

    monkeypatch.setattr(event_file, "_LocalTarget", make)
    return disks


def test_a_disk_that_fills_up_leaves_a_whole_file_and_loses_nothing(tmp_path: Path, narrow: list[NarrowDisk]) -> None:
    file = EventFile(str(tmp_path), ORIGIN)
    file.scalars([("a", 0.0)], 0, 1.0)
    file.flush()
    for free in (1, 5, 30, 64, 0):
        narrow[0].left = free
        for _ in range(3):
            step = points(file.path)[-1][0] + 1 if not file._pending else None
            file.scalars([("a", 1.0)], step or 0, 1.0)
        with pytest.raises(OSError, match="No space left"):
            file.flush()
        assert points(file.path), "what is on the disk is readable at any time"
    narrow[0].left = 1 << 30
    for number in range(100, 103):
        file.scalars([("a", float(number))], number, 1.0)
    file.close()
    written = points(file.path)
    assert len(written) == 1 + 5 * 3 + 3
    assert [value for _, _, value in written[-3:]] == [100.0, 101.0, 102.0]


def test_what_waits_too_long_is_dropped_record_by_record(
    tmp_path: Path, narrow: list[NarrowDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_file, "MAX_PENDING_BYTES", 2_000)
    file = EventFile(str(tmp_path), ORIGIN)
    file.scalars([("a", 0.0)], 0, 1.0)
    file.flush()
    narrow[0].left = 10
    for number in range(1, 200):
        file.scalars([("a", float(number))], number, 1.0)
        with pytest.raises(OSError, match="No space left"):
            file.flush()
    assert file.dropped_records > 100
    narrow[0].left = 1 << 30
    file.close()
    steps = [step for step, _, _ in points(file.path)]
    assert steps[0] == 0 and steps[1] == 1, "the record that had begun is ended"
    assert steps == sorted(set(steps))
    assert steps[-1] == 199


def test_two_processes_never_share_a_folder(tmp_path: Path) -> None:
    one, other = RunFolders(str(tmp_path), ORIGIN), RunFolders(str(tmp_path), Origin("node1", 43))
    claimed = [folders.claim("gpu0")[1] for folders in (one, other, one, other)]
    assert claimed == [f"gpu_doctor/node1/gpu0{end}" for end in ("", "_2", "_3", "_4")]
    assert one.claim("gpu1")[1] == "gpu_doctor/node1/gpu1"


def test_a_host_with_a_strange_name_stays_below_its_folder(tmp_path: Path) -> None:
    path, run = RunFolders(str(tmp_path), Origin("../../etc/x y", 1)).claim("gpu0")
    assert run == "gpu_doctor/_.._etc_x_y/gpu0"
    assert Path(path).resolve().is_relative_to(tmp_path.resolve())
    EventFile(path, Origin("../../etc/x y", 1)).close()


def test_a_remote_store_is_written_through_tensorboards_file_layer(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    folder, run = RunFolders("memory://logs", ORIGIN).claim("gpu0")
    assert run.startswith("gpu_doctor/node1/gpu0_2023")
    file = EventFile(folder, ORIGIN)
    for number in range(3):
        file.scalars([("a", float(number))], number, 1.0)
        file.flush()
    file.close()
    content = event_file.file_layer(file.path).GFile(file.path, "rb").read()
    copy = tmp_path / Path(file.path).name
    copy.write_bytes(content)
    assert [step for step, _, _ in points(str(copy))] == [0, 1, 2]


def test_a_store_that_fails_to_take_a_flush_gets_each_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Store:
        """Collects here what it uploads as a whole at a flush, as object stores do."""

        def __init__(self, path: str) -> None:
            self.path, self.collected, self.works = path, b"", False
            stores.append(self)

        def write(self, data: bytes) -> int:
            self.collected += data
            return len(data)

        def sync(self) -> None:
            if not self.works:
                raise ConnectionError("timed out")
            Path(self.path).write_bytes(self.collected)

        def close(self) -> None:
            pass

    stores: list[Store] = []
    monkeypatch.setattr(event_file, "_LocalTarget", Store)
    file = EventFile(str(tmp_path), ORIGIN)
    for number in range(3):
        file.scalars([("a", 1.0)], number, 1.0)
        with pytest.raises(ConnectionError):
            file.flush()
    stores[0].works = True
    file.flush()
    assert [step for step, _, _ in points(file.path)] == [0, 1, 2]
