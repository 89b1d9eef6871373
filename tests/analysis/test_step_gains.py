"""Steps of hosts that meet end together: what one of them saves is bounded by the others."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.results import Cause, StepCosts
from tb_gpu_doctor.analysis.step_costs import gain_per_step, joint_gain
from tb_gpu_doctor.analysis.step_gains import linked
from tb_gpu_doctor.diagnosis.losses import gain_of_causes
from tests.diagnosis.test_hosts import offsets, recorded
from tests.hosts import context_of, profiles, split


def costs_of(wall: np.ndarray, wait: np.ndarray) -> StepCosts:
    return StepCosts(wall, np.minimum(wait, wall), np.zeros((*wall.shape, len(Cause)), np.int64))


numbers = st.integers(0, 50)


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.randoms(use_true_random=False))
def test_joint_gain_is_the_gain_of_one_big_host(files: int, steps: int, gpus: int, rng) -> None:
    def table(high: int) -> np.ndarray:
        return np.array([[rng.randrange(high) for _ in range(files * gpus)] for _ in range(steps)], np.int64)

    wall, wait, gone = table(100), table(100), table(60)
    whole = float(np.mean(gain_per_step(costs_of(wall, wait), gone)))
    parts = [slice(i * gpus, (i + 1) * gpus) for i in range(files)]
    each = [costs_of(wall[:, p], wait[:, p]) for p in parts]
    count = np.arange(steps, dtype=np.int64) + 7
    assert joint_gain(each, [count] * files, [gone[:, p] for p in parts]) == pytest.approx(whole)
    # a file with other steps as well, in another order
    order = np.array(rng.sample(range(steps), steps))
    mixed = [dataclasses.replace(c, wall=c.wall[order], wait=c.wait[order], idle=c.idle[order]) for c in each]
    assert joint_gain(mixed, [count[order]] * files, [gone[:, p][order] for p in parts]) == pytest.approx(whole)
    assert files == 1 or joint_gain(each, [count, *[count + 100] * (files - 1)], [gone[:, p] for p in parts]) is None


@pytest.mark.parametrize("hosts", [2, 4])
def test_hosts_apart_show_the_waits_and_gains_of_hosts_together(hosts: int) -> None:
    trace = recorded("imbalance.late_host.strong/jax/4")
    whole = context_of(*profiles([trace]))
    apart = context_of(*profiles(split(trace, offsets(hosts))))
    assert linked(apart.job) == tuple(range(hosts))
    one, waits = (
        np.array([context.job.wait_of_steps(context.files, *place) for place in sorted(context.job.step_waits)])
        for context in (whole, apart)
    )
    assert waits.size and waits == pytest.approx(one, rel=0.05, abs=1e9)
    # and by brute force: what of each step lies inside collectives that another GPU has not entered yet
    met = whole.job.lateness
    assert met is not None and one.sum() == pytest.approx(met.wait[met.collectives.step >= 0].sum())
    for cause in (Cause.LAUNCH, Cause.HOST_OTHER):
        expected = gain_of_causes(whole, range(1), cause)
        found = gain_of_causes(apart, range(hosts), cause)
        assert expected is not None and found == pytest.approx(expected, rel=0.1, abs=5e8)
