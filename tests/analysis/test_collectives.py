"""The longest common subsequence against the textbook table.

The collective kernels of a file against a walk over its events.

Who came late to collectives: against medians and maxima of plain lists.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.collectives import MAX_DIFFERENCES, common_subsequence, kind_of
from tb_gpu_doctor.analysis.results import Lateness
from tb_gpu_doctor.analysis.trace_analysis import candidates_of
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Trace
from tests.analysis import brute_force
from tests.analysis.small_traces import US, Recorder, traces
from tests.analysis.small_traces import traces as small_traces

SEQUENCES = st.lists(st.integers(0, 3), max_size=14)


def longest(a: Sequence[int], b: Sequence[int]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def check(a: Sequence[int], b: Sequence[int]) -> int:
    """It is a common subsequence; its length."""
    x, y = common_subsequence(np.array(a, np.int64), np.array(b, np.int64))
    assert x.shape == y.shape
    assert (np.diff(x) > 0).all() and (np.diff(y) > 0).all()
    assert [a[i] for i in x] == [b[j] for j in y]
    return len(x)


@given(SEQUENCES, SEQUENCES)
def test_it_is_a_longest_common_subsequence(a: list[int], b: list[int]) -> None:
    assert check(a, b) == longest(a, b)


def test_a_few_lost_ones_among_many() -> None:
    rng = np.random.default_rng(1)
    whole = rng.integers(0, 5, 20_000)
    lost = rng.choice(20_000, 40, replace=False)
    assert check(np.delete(whole, lost).tolist(), whole.tolist()) == 20_000 - 40


def test_what_differs_everywhere_is_not_worth_the_time() -> None:
    a, b = [0, 0, *[1, 2] * MAX_DIFFERENCES, 3], [0, 0, *[4, 5] * MAX_DIFFERENCES, 3]
    assert check(a, b) == 3, "the common beginning and end"


@given(small_traces())
def test_any_trace(trace: Trace) -> None:
    analysis = analyse(trace)
    found, window, events = candidates_of(trace, analysis), analysis.window, trace.device_events
    if window is None:
        assert found is None
        return
    assert found is analysis.candidates and found is not None
    rows = [
        row
        for row in range(len(events))
        if events.klass[row] == EventClass.COMMUNICATION
        and events.copy_kind[row] == CopyKind.NONE
        and window.start <= events.start[row] < window.end
    ]
    assert found.row.tolist() == rows
    for name in ("device", "start", "end"):
        assert getattr(found, name).tolist() == [int(getattr(events, name)[row]) for row in rows]
    assert found.computing.tolist() == sorted(set(events.device[events.klass == EventClass.COMPUTE].tolist()))
    for at, row in enumerate(rows):
        name, hlo = trace.strings[int(events.name[row])], trace.strings[int(events.hlo_op[row])]
        key = found.keys[int(found.code[at])]
        assert key[:3] == (name.encode(), hlo.encode(), int(found.kind[at]))
        if not hlo:
            assert found.kind[at] == kind_of(name)
        if len(analysis.steps.event_step):
            assert found.step[at] == analysis.steps.event_step[row]
    some = found.row[::2]
    assert np.array_equal(found.step_of(some), found.step[::2])


COLLECTIVE = {"klass": EventClass.COMMUNICATION, "stream": 1, "name": "ncclDevKernel_AllReduce"}


@st.composite
def matched(draw: st.DrawFn) -> tuple[Recorder, list[list[list[tuple[int, int]]]]]:
    """Steps in which all GPUs run the same collectives, each overlapping with its partners."""
    gpus, marked = draw(st.integers(2, 5)), draw(st.booleans())
    record = Recorder(gpus=gpus)
    groups: list[list[list[tuple[int, int]]]] = []
    correlation = 0
    for step in range(draw(st.integers(1, 3))):
        base = 1000 * step
        if marked:
            record.step("main", step, base, base + 900)
        per_gpu: list[list[tuple[int, int]]] = [[] for _ in range(gpus)]
        for k in range(draw(st.integers(1, 4))):
            done = base + 100 * k + 60
            for gpu in range(gpus):
                start = base + 100 * k + draw(st.integers(10, 59))
                end = done + draw(st.integers(0, 5))
                correlation += 2
                record.launch("main", base + 1, base + 100 * k, base + 100 * k + 5, correlation, gpu=gpu)
                record.launch("main", base + 1, start, end, correlation + 1, gpu=gpu, **COLLECTIVE)
                per_gpu[gpu].append((start * US, end * US))
        groups.append(per_gpu)
    if not marked:  # the whole window counts as one
        groups = [[[c for step in groups for c in step[gpu]] for gpu in range(gpus)]]
    return record, groups


@given(matched())
def test_late_and_wait(given_: tuple[Recorder, list[list[list[tuple[int, int]]]]]) -> None:
    record, groups = given_
    found = analyse(record.trace()).lateness
    assert found is not None
    expected = brute_force.lateness(groups)
    assert found.late.tolist() == [late for late, _ in expected]
    assert found.wait.tolist() == [wait for _, wait in expected]
    assert found.devices.tolist() == list(range(record.gpus))
    flat = [row for group in groups for row in zip(*group, strict=True)]
    assert found.start.tolist() == [[s for s, _ in row] for row in flat]
    assert found.end.tolist() == [[e for _, e in row] for row in flat]
    if len(groups) > 1:
        assert found.step.tolist() == [step for step, group in enumerate(groups) for _ in group[0]]


@given(traces())
def test_any_trace_gives_sound_lateness_or_none(trace: Trace) -> None:
    result = analyse(trace)
    found = result.lateness
    if found is None:
        return
    assert result.window is not None and len(found.devices) >= 2 and len(found.start) >= 1
    assert (found.wait >= 0).all() and (found.wait <= found.end - found.start).all()
    for k in range(len(found.start)):
        pairs = [[[(int(s), int(e))] for s, e in zip(found.start[k], found.end[k], strict=True)]]
        (expected,) = brute_force.lateness(pairs)
        assert (found.late[k].tolist(), found.wait[k].tolist()) == expected
        for at, gpu in enumerate(found.devices.tolist()):
            of_gpu = brute_force.collectives(trace, gpu, result.window.start, result.window.end)
            assert any(trace.device_events.start[row] == found.start[k, at] for row in of_gpu)


def lateness_of(record: Recorder) -> Lateness | None:
    return analyse(record.trace()).lateness


def test_one_slow_gpu_keeps_three_waiting() -> None:
    record = Recorder(gpus=4)
    for gpu, start in enumerate((100, 110, 160, 105)):
        record.work(0, start - 5, gpu=gpu)
        record.work(start, 180, gpu=gpu, **COLLECTIVE)
    found = lateness_of(record)
    assert found is not None
    assert (found.late[0] // US).tolist() == [-10, 5, 55, -5]
    assert (found.wait[0] // US).tolist() == [60, 50, 0, 55]
    assert found.step.tolist() == [-1]


def test_wait_is_at_most_the_kernels_own_time() -> None:
    record = Recorder(gpus=2)
    for gpu, (start, end) in enumerate(((10, 20), (20, 30))):
        record.work(0, 5, gpu=gpu)
        record.work(start, end, gpu=gpu, **COLLECTIVE)
    found = lateness_of(record)
    assert found is not None
    assert (found.wait[0] // US).tolist() == [10, 0]


@pytest.mark.parametrize("what", ["one gpu", "other count", "other name", "apart in time", "copies", "no compute"])
def test_what_cannot_be_matched_is_left_alone(what: str) -> None:
    record = Recorder(gpus=1 if what == "one gpu" else 2)
    for gpu in range(record.gpus):
        if what != "no compute":
            record.work(0, 50, gpu=gpu)
        shift = 500 * gpu if what == "apart in time" else 0
        name = f"nccl{gpu}" if what == "other name" else "nccl"
        kind = CopyKind.P2P if what == "copies" else CopyKind.NONE
        record.work(60 + shift, 90 + shift, gpu=gpu, klass=EventClass.COMMUNICATION, name=name, copy_kind=kind)
        if what == "other count" and gpu:
            record.work(100, 120, gpu=gpu, klass=EventClass.COMMUNICATION, name=name)
    assert lateness_of(record) is None


def test_a_gpu_without_work_does_not_hinder_the_others() -> None:
    record = Recorder(gpus=3)
    for gpu in range(2):
        record.work(0, 50, gpu=gpu)
        record.work(60 + gpu, 90, gpu=gpu, **COLLECTIVE)
    found = lateness_of(record)
    assert found is not None and found.devices.tolist() == [0, 1]
