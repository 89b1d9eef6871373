from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.parallel import transport
from tb_gpu_doctor.parallel.transport import Message, Reader, Writer, with_own_arrays
from tb_gpu_doctor.traces.columns import device_events
from tb_gpu_doctor.traces.xplane import read_xplane
from tests.cli.profiles import training, write


@pytest.fixture
def scratch() -> Iterator[int]:
    with tempfile.TemporaryFile(buffering=0) as file:
        yield file.fileno()


def same(one: Any, other: Any) -> bool:
    """Whether two values of dataclasses, arrays and what they hold are equal, bit for bit."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if hasattr(one, "__dataclass_fields__"):
        return type(one) is type(other) and all(
            same(getattr(one, spec.name), getattr(other, spec.name)) for spec in fields(one)
        )
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_traces_and_analyses_arrive_as_they_were(tmp_path: Path, scratch: int):
    trace = read_xplane(str(write(training(), tmp_path / "h.xplane.pb")))
    sent = (trace, analyse(trace))
    message = Writer(scratch).pack(sent)
    assert message.spans and not message.arrays
    for found in (Reader(scratch).unpack(message), Reader(None).unpack(Writer(None).pack(sent))):
        assert same(sent, found)
        assert not found[0].device_events.start.flags.writeable


def test_what_columns_computed_of_themselves_stays_behind(scratch: int):
    events = device_events(100_000, start=np.arange(100_000), duration=np.full(100_000, 7))
    before = Writer(scratch).pack(events)
    assert int(events.end[-1]) == 100_006
    assert len(Writer(scratch).pack(events).spans) == len(before.spans)
    assert int(Reader(scratch).unpack(before).end[-1]) == 100_006


def test_many_results_in_one_file_need_few_mappings(monkeypatch: pytest.MonkeyPatch, scratch: int):
    monkeypatch.setattr(transport, "_FIRST_MAPPING", 1 << 16)
    writer, reader = Writer(scratch), Reader(scratch)
    before = len(os.listdir("/proc/self/fd"))
    found = []
    for number in range(100):  # read while the next ones are written
        message = writer.pack(np.full(10_000, number))
        found.append(reader.unpack(message))
    assert all((array == number).all() for number, array in enumerate(found))
    assert len(os.listdir("/proc/self/fd")) - before <= 10


def test_where_nothing_can_be_mapped_the_arrays_are_read(monkeypatch: pytest.MonkeyPatch, scratch: int):
    message = Writer(scratch).pack([np.arange(100_000), np.zeros(0), np.arange(3)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        first, empty, last = Reader(scratch).unpack(message)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert first.sum() == 4_999_950_000 and not len(empty) and last.tolist() == [0, 1, 2]


def test_a_full_disk_sends_everything_through_the_pipe():
    # this device fails every write as a full disk does
    with open("/dev/full", "wb", buffering=0) as full:
        message = Writer(full.fileno()).pack({"column": np.arange(5)})
    assert not message.spans
    assert Reader(None).unpack(message)["column"].tolist() == [0, 1, 2, 3, 4]


def test_empty_arrays_and_plain_values(scratch: int):
    for value in (np.zeros(0, np.int64), np.zeros((0, 3)), [], "text", {"a": (1, None)}):
        message = Writer(scratch).pack(value)
        assert isinstance(message, Message)
        assert same(value, Reader(scratch).unpack(message))


def test_copies_let_the_file_go(scratch: int):
    events = device_events(1000, start=np.arange(1000))
    mapped = Reader(scratch).unpack(Writer(scratch).pack(events))
    own = with_own_arrays(mapped, "start")
    assert own.start.base is None and own.duration is mapped.duration
    assert with_own_arrays(events).start is events.start, "what is in memory already is not copied"
    assert all(array.base is None for array in vars(with_own_arrays(mapped)).values())
