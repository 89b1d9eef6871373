"""The trace model: order, gaps in what was recorded, strings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.traces.columns import Device, StringTable, device_events, host_events, row_order
from tests.analysis.small_traces import Recorder

ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-(10**15), 10**15) | st.integers(0, 5), st.integers(0, 5)), max_size=60
)


@given(ROWS)
def test_rows_are_sorted_by_group_start_and_longest_first(rows: list[tuple[int, int, int]]) -> None:
    group, start, duration = (np.array([r[i] for r in rows], np.int64) for i in range(3))
    order = row_order(group, start, duration)
    found = list(range(len(rows))) if order is None else order.tolist()
    assert found == sorted(range(len(rows)), key=lambda i: (rows[i][0], rows[i][1], -rows[i][2], i))


@given(ROWS)
def test_columns_keep_their_rows_together(rows: list[tuple[int, int, int]]) -> None:
    given_ = {"device": [r[0] for r in rows], "start": [r[1] for r in rows], "duration": [r[2] for r in rows]}
    events = device_events(len(rows), **given_, correlation=list(range(len(rows))))
    for i, row in enumerate(events.correlation.tolist()):
        assert (events.device[i], events.start[i], events.duration[i]) == rows[row]
        assert events.end[i] == rows[row][1] + rows[row][2]
    for device in range(5):
        part = events.of_device(device)
        assert (events.device[part] == device).all()
        assert part.stop - part.start == sum(r[0] == device for r in rows)


def test_what_is_not_given_is_not_recorded() -> None:
    events = device_events(2, device=[0, 0], start=[5, 1], duration=[1, 1])
    assert events.correlation.tolist() == events.group.tolist() == events.details.tolist() == [-1, -1]
    assert np.isnan(events.occupancy_pct).all()
    assert events.klass.tolist() == events.copy_kind.tolist() == [0, 0]
    hosts = host_events(1, thread=[0], start=[0], duration=[1])
    assert hosts.step_num.tolist() == hosts.producer_type.tolist() == [-1]
    assert hosts.of_thread(0) == slice(0, 1)
    assert len(device_events(0)) == len(host_events(0)) == 0


@given(st.lists(st.binary(max_size=8) | st.text(st.characters(blacklist_categories=["Cs"]), max_size=8), max_size=20))
def test_strings_come_back(values: list[bytes | str]) -> None:
    table = StringTable.of(values)
    raw = [v.encode() if isinstance(v, str) else v for v in values]
    assert [table.raw(i) for i in range(len(table))] == raw
    assert list(table) == [v.decode("utf-8", "replace") for v in raw]
    assert table[-1] == ""


def test_lone_surrogates_do_not_break_the_table() -> None:
    assert StringTable.of(["a\ud800b"])[0] == "a?b"


def test_old_files_name_no_vendor_and_are_nvidias() -> None:
    assert Device(0, "h", 0).is_nvidia
    assert Device(0, "h", 0, vendor="Nvidia").is_nvidia
    assert Device(0, "h", 0, vendor="NVIDIA Corporation").is_nvidia
    assert not Device(0, "h", 0, vendor="AMD").is_nvidia


def test_the_recorder_of_these_tests_writes_what_it_is_told() -> None:
    record = Recorder(gpus=2)
    record.work(3, 5, 7, gpu=1, stream=2)
    record.call("b", "x", 1, 2, 7)
    trace = record.trace()
    assert trace.device_events.stream.tolist() == [6] and trace.streams[6].device == 1
    assert trace.strings[trace.host_events.name[0]] == "x"


def test_events_without_a_name_get_one_that_means_nothing() -> None:
    """Name -1 would be the last string wherever somebody uses it as an index."""
    record = Recorder()
    record.work(0, 1, name="kernel")
    record.call("python", "call", 0, 1)
    named = record.trace()
    host = host_events(2, thread=[0, 0], start=[0, 5], duration=[1, 1], name=[-1, 1])
    device = device_events(2, device=[0, 0], start=[0, 5], duration=[1, 1], name=[0, -1])
    made = replace(named, host_events=host, device_events=device)
    assert [made.strings[i] for i in made.host_events.name.tolist()] == ["<UNKNOWN>", "call"]
    assert [made.strings[i] for i in made.device_events.name.tolist()] == ["kernel", "<UNKNOWN>"]
    assert list(made.strings) == ["kernel", "call", "<UNKNOWN>"]
    assert named.strings is replace(named, path="else").strings  # nothing to name, nothing is copied
