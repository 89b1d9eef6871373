"""Who came late to collectives: against medians and maxima of plain lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.results import Lateness
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Trace
from tests.analysis import brute_force
from tests.analysis.small_traces import US, Recorder, traces

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
