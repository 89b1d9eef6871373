"""The gain of a step against a plain recomputation of when its last GPU would be done.

The parts of each step against a count of every single picosecond.
"""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.idle import no_gaps
from tb_gpu_doctor.analysis.results import CAUSE_IDS, Cause, Gaps, Lateness, StepCosts, Steps
from tb_gpu_doctor.analysis.step_costs import (
    PART_IDS,
    communication_layers,
    gain_of_causes,
    gain_per_step,
    step_costs,
    step_parts,
)
from tb_gpu_doctor.traces.columns import DeviceEvents, EventClass
from tests.plugin.examples import analysis_of, gpu_pictures, trace_of

small = st.integers(0, 50)


@given(st.data(), st.integers(1, 4), st.integers(1, 4))
def test_gain_is_what_the_last_gpu_gains(data: st.DataObject, steps: int, devices: int) -> None:
    cells = st.lists(st.lists(small, min_size=devices, max_size=devices), min_size=steps, max_size=steps)
    own, wait, removed = (np.array(data.draw(cells), np.int64) for _ in range(3))
    costs = StepCosts(wall=own + wait, wait=wait, idle=np.zeros((steps, devices, len(Cause)), np.int64))
    gains = gain_per_step(costs, removed)
    for step in range(steps):
        before = max(own[step])
        after = max(max(int(o) - int(r), 0) for o, r in zip(own[step], removed[step], strict=True))
        assert gains[step] == before - after >= 0


def test_a_gpu_that_only_waits_for_a_late_one_gains_with_it() -> None:
    # GPU 0 is late by 10 because of input; GPU 1 spends these 10 waiting in the collective.
    idle = np.zeros((1, 2, len(Cause)), np.int64)
    idle[0, 0, Cause.INPUT] = 10
    costs = StepCosts(wall=np.array([[100, 100]]), wait=np.array([[0, 10]]), idle=idle)
    assert gain_of_causes(costs, Cause.INPUT).tolist() == [10]
    # without the collective nobody gains: GPU 1 works all the time
    alone = StepCosts(wall=costs.wall, wait=np.zeros((1, 2), np.int64), idle=idle)
    assert gain_of_causes(alone, Cause.INPUT).tolist() == [0]


def test_costs_are_taken_from_the_complete_steps() -> None:
    steps = Steps(
        source="marked",
        number=np.arange(3),
        marker_start=np.array([0, 100, 200]),
        marker_end=np.array([90, 190, 290]),
        complete=np.array([True, False, True]),
        start=np.array([[0, -1], [100, 100], [200, 210]]),
        end=np.array([[100, -1], [200, 210], [300, 310]]),
        event_step=np.zeros(0, np.int32),
    )
    by_cause = np.zeros((4, len(Cause)), np.int64)
    by_cause[:, Cause.LAUNCH] = [5, 7, 11, 13]
    gaps = Gaps(
        device=np.array([0, 0, 0, 1], np.int32),
        start=np.array([20, 150, 200, 250]),
        end=np.array([25, 157, 211, 263]),
        before=np.full(4, -1),
        after=np.full(4, -1),
        launch=np.full(4, -1),
        by_cause=by_cause,
        cause=np.full(4, Cause.LAUNCH, np.uint8),
        evidence=np.full(4, -1),
    )
    lateness = Lateness(
        devices=np.array([0, 1], np.int32),
        start=np.array([[290, 280]]),
        end=np.array([[299, 299]]),
        step=np.array([2], np.int32),
        late=np.array([[10, -10]]),
        wait=np.array([[0, 10]]),
    )
    costs = step_costs(steps, gaps, lateness)
    assert costs.wall.tolist() == [[100, 0], [100, 100]]
    assert costs.wait.tolist() == [[0, 0], [0, 10]]
    assert costs.idle[:, :, Cause.LAUNCH].tolist() == [[5, 0], [11, 13]]


def test_no_gaps_no_gain() -> None:
    steps = Steps(
        "marked", np.array([1]), np.array([0]), np.array([9]), np.array([True]), np.array([[0]]), np.array([[10]]),
        np.zeros(0, np.int32),
    )  # fmt: skip
    assert gain_of_causes(step_costs(steps, no_gaps(), None), Cause.INPUT).tolist() == [0]


LENGTH = 80
Picture = tuple[DeviceEvents, Gaps, list[list[int]]]


def state_at(events: DeviceEvents, rows: slice, wait: np.ndarray, time: int) -> str | None:
    """What a GPU does at an instant, None for idle; by looking at every event."""
    found = set()
    for index, row in enumerate(range(rows.start, rows.stop)):
        start, end = int(events.start[row]), int(events.end[row])
        if not start <= time < end:
            continue
        klass = events.klass[row]
        if klass == EventClass.COMPUTE:
            found.add("compute")
        elif klass == EventClass.COMMUNICATION:
            if wait[index] < 0:
                found.add("communication_unsplit")
            else:
                found.add("communication_moving" if time >= start + wait[index] else "communication_wait")
        else:
            found.add("transfer")
    order = ("compute", "communication_moving", "communication_unsplit", "communication_wait", "transfer")
    return next((name for name in order if name in found), None)


@settings(max_examples=60, deadline=None)
@given(gpu_pictures(length=LENGTH), st.lists(st.integers(0, LENGTH), min_size=2, max_size=5), st.data())
def test_parts_are_what_a_count_finds(drawn: Picture, borders: list[int], data: st.DataObject) -> None:
    events, gaps, pictures = drawn
    borders = sorted(set(borders))
    trace, analysis = trace_of(events, 2), analysis_of(events, gaps, 2, borders)
    for device in range(2):
        rows = events.of_device(device)
        count = rows.stop - rows.start
        wait = np.array(data.draw(st.lists(st.integers(-5, 30), min_size=count, max_size=count)), np.int64)
        wait = np.minimum(np.maximum(wait, -1), events.duration[rows])
        wall, parts = step_parts(trace, analysis, device, wait)
        assert wall.tolist() == np.diff(borders).tolist() and (parts.sum(axis=1) == wall).all()
        for step, (low, high) in enumerate(itertools.pairwise(borders)):
            expected = dict.fromkeys(PART_IDS, 0)
            for time in range(low, high):
                state = state_at(events, rows, wait, time)
                if state is None:
                    shown = pictures[device][time] if time < LENGTH else -1
                    state = CAUSE_IDS[shown - 3] if shown >= 3 else "no_evidence"
                expected[state] += 1
            assert dict(zip(PART_IDS, parts[step].tolist(), strict=True)) == expected


@given(gpu_pictures(length=LENGTH))
def test_layers_hold_each_other(drawn: Picture) -> None:
    events, _, _ = drawn
    rows = events.of_device(0)
    layers = communication_layers(trace_of(events, 2), 0, np.full(rows.stop - rows.start, -1, np.int64))
    sizes = [int((end - start).sum()) for start, end in layers]
    assert sizes == sorted(sizes) and sizes[2] == sizes[3], "without a known wait nothing is waiting"
