"""From which step on steps are slower, by how much, what grew; and what merely looks like it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.slower_steps import find_shift, ranks_of
from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tests.analysis.small_traces import Recorder
from tests.diagnosis.loops import COMPUTE, host, loop, microseconds
from tests.hosts import diagnosed

LIMITS = Thresholds().of("slower_steps")


def found_in(recorder: Recorder) -> list[Finding]:
    return [finding for finding in diagnosed([host(recorder)]).findings if finding.kind == "slower_steps"]


def later(factor: float, first: int = 12, steps: int = 24) -> dict[int, float]:
    return dict.fromkeys(range(first, steps), factor)


def test_from_which_step_on_by_how_much_and_what_grew() -> None:
    (finding,) = found_in(loop(steps=24, gpus=2, compute=later(1.5)))
    assert (finding.cause, finding.severity) == ("compute", "critical")
    facts = finding.title.params
    assert (facts["number"], facts["earliest"], facts["latest"]) == (112, 112, 112)
    assert facts["after"] - facts["before"] == pytest.approx(microseconds(COMPUTE / 2), rel=0.01)
    # twelve of 8 ms, twelve of 12
    assert finding.share == pytest.approx(48 / 240, rel=0.01)
    assert finding.saving_ps_per_step == pytest.approx(microseconds(COMPUTE / 4), rel=0.01)
    assert [item.step for item in finding.evidence] == [111, 112]
    assert [gpu.id for gpu in finding.gpus] == [0, 1]


def test_only_steps_of_a_slower_pace_are_told() -> None:
    for recorder in (
        loop(steps=24),
        loop(steps=24, compute=later(1.05)),  # too little
        loop(steps=24, compute=later(1 / 1.5)),  # faster
        loop(steps=24, compute={12: 6.0}),  # one long step
        loop(steps=24, compute=dict.fromkeys(range(0, 24, 3), 2.0)),  # every so often
        loop(steps=24, compute={step: 1.5 for step in range(8, 16)}),  # and back again
        loop(steps=2 * LIMITS.min_side - 2, compute=later(1.5, LIMITS.min_side - 1)),
        loop(steps=24, compute=later(1.5, 24 - LIMITS.min_side + 2)),  # too few of them
    ):
        assert found_in(recorder) == []


def test_steps_of_the_slower_pace_are_no_outliers_besides() -> None:
    found = diagnosed([host(loop(steps=40, compute=later(2.0, 28, 40)))]).findings
    assert "step_outliers" not in [finding.kind for finding in found]
    assert [finding.kind for finding in found if finding.kind == "slower_steps"] == ["slower_steps"]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_ranks_by_the_definition(values: list[int]) -> None:
    expected = [sum(v < own for v in values) + (values.count(own) + 1) / 2 for own in values]
    assert ranks_of(np.array(values, np.float64)).tolist() == expected


@given(
    st.lists(st.integers(100, 140), min_size=6, max_size=20), st.lists(st.integers(155, 240), min_size=6, max_size=20)
)
def test_what_is_found_is_by_brute_force_what_it_says(early: list[int], late: list[int]) -> None:
    values = np.array([*early, *late], np.float64)
    shift = find_shift(values, LIMITS)
    if shift is None:
        return
    before, after = values[: shift.at], values[shift.at :]
    assert (shift.before, shift.after) == (np.median(before), np.median(after))
    assert shift.after >= LIMITS.ratio * shift.before and shift.earliest <= shift.at <= shift.latest
    pairs = [(b > a) + (b == a) / 2 for a, b in itertools.product(before, after)]
    assert sum(pairs) / len(pairs) >= LIMITS.apart

    def cost(cut: int) -> float:
        return sum(float(np.abs(part - np.median(part)).sum()) for part in (values[:cut], values[cut:]))

    side = LIMITS.min_side
    assert cost(shift.at) == min(cost(cut) for cut in range(side, len(values) - side + 1))


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_scatter_alone_is_hardly_ever_taken_for_it(correlation: float) -> None:
    rng = np.random.default_rng(7)
    alarms = 0
    for _ in range(2_000):
        noise = rng.lognormal(0, 0.15, 60)
        for at in range(1, 60):
            noise[at] = correlation * noise[at - 1] + (1 - correlation) * noise[at]
        alarms += find_shift(noise * 100, LIMITS) is not None
    assert alarms <= 2
