"""The gain of a step against a plain recomputation of when its last GPU would be done."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.critical_path import gain_of_causes, gain_per_step, step_costs
from tb_gpu_doctor.analysis.idle import no_gaps
from tb_gpu_doctor.analysis.results import Gaps, Lateness, StepCosts, Steps
from tb_gpu_doctor.analysis.vocabulary import Cause

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
