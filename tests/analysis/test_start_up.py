"""The start-up is told apart from the steady steps, and from a habit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.analysis.start_up import leading
from tests.analysis.small_traces import US, Recorder


@pytest.mark.parametrize(
    ("durations", "count"),
    [
        ([], 0),
        ([900, 100, 100], 0),  # too few to tell a habit from a start
        ([900, 100, 100, 100], 1),
        ([900, 100, 101, 99, 100, 102], 1),
        ([900, 500, 250, 100, 101, 99, 100, 100, 100], 3),
        ([900, 100, 100, 900, 100, 100, 900, 100, 100], 0),  # every third step
        ([100, 900, 100, 100, 100, 100], 0),  # not at the beginning
        ([150, 100, 100, 100, 100], 0),  # little longer
        ([900, 100, 400, 900, 100, 700, 300, 100], 0),  # all uneven
    ],
)
def test_what_is_start_up(durations: list[int], count: int) -> None:
    assert leading(np.array(durations, np.int64)) == count


@given(st.lists(st.integers(1, 10**9), max_size=40))
def test_enough_steady_steps_are_always_left(durations: list[int]) -> None:
    values = np.array(durations, np.int64)
    count = leading(values)
    assert count == 0 or (len(values) - count >= 3 and count <= max(1, len(values) / 3))
    if count:
        assert values[:count].min() > 2 * np.median(values[count:])
        assert values[count:].max() < values[:count].min()


def training(marked: bool) -> Recorder:
    """Ten steps of 1 ms; in front of the first the host sets something up for 20 ms."""
    record = Recorder()
    at = 0.0
    for step in range(10):
        begin = at
        if step == 0:
            record.launch("python", at, at + 5, at + 10, 999, name="fill")
            record.call("python", "XlaCompile", at + 12, at + 20_000)
            at += 20_000
        record.launch("python", at + 10, at + 20, at + 990, 1 + step)
        at += 1_000
        if marked:
            record.step("python", step, begin, at)
        else:
            record.call("python", "Optimizer.step#SGD.step", at - 50, at)
    return record


@pytest.mark.parametrize("marked", [True, False])
def test_figures_are_those_of_the_steady_steps(marked: bool) -> None:
    result = analyse(training(marked).trace())
    assert result.steps.count == 9 and result.window is not None
    assert result.window.length == 9_000 * US
    start = result.start_up
    assert start is not None and start.numbers == (0,)
    assert start.end == result.window.start == 20_990 * US
    assert start.usual == 1_000 * US
    assert start.delays[0].cause is Cause.COMPILE and start.delays[0].name == "XlaCompile"
    assert result.accounting[0].idle_of(Cause.COMPILE) == 0


def test_no_start_up_in_even_steps() -> None:
    record = Recorder()
    for step in range(10):
        record.step("python", step, 1_000 * step, 1_000 * step + 990)
        record.launch("python", 1_000 * step + 10, 1_000 * step + 20, 1_000 * step + 980, 1 + step)
    assert analyse(record.trace()).start_up is None
