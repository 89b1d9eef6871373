"""Who is slower than the others: planted slowness is found from a fifth and a hundred steps on, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.pace import BLOCK_STEPS, Condition, holds_up, in_lockstep, reason_of, slower

COLD = Condition("H100", 1980.0, 95.0, 60.0, 0.0, 0.0, 0.0)


def paces(lengths: dict[str, list[float]]) -> dict[str, dict[int, float]]:
    return {rank: dict(enumerate(values)) for rank, values in lengths.items()}


def brute_force(job: dict[str, list[float]]) -> set[str]:
    """By the words of the definition: five blocks in a row, each a fifth over the median of the others'."""
    found = set()
    for rank, own in job.items():
        rest = np.array([values for other, values in job.items() if other != rank])
        over = np.array(own) >= 1.2 * np.median(rest, axis=0)
        if any(over[at : at + 5].all() for at in range(len(own) - 4)):
            found.add(rank)
    return found if 2 * len(found) <= len(job) else set()


@given(
    st.integers(2, 5).flatmap(
        lambda ranks: st.lists(
            st.lists(st.sampled_from([1.0, 1.1, 1.3, 1.6]), min_size=8, max_size=8), min_size=ranks, max_size=ranks
        )
    )
)
def test_slow_ranks_are_those_of_the_definition(rows: list[list[float]]) -> None:
    job = {str(number): row for number, row in enumerate(rows)}
    assert {slow.rank for slow in slower(paces(job))} == brute_force(job)


def test_a_slow_rank_is_told_with_its_steps() -> None:
    (slow,) = slower(paces({"a": [1.0] * 10, "b": [1.0] * 3 + [1.5] * 7, "c": [1.02] * 10}))
    assert (slow.rank, slow.first_step, slow.last_step) == ("b", 3 * BLOCK_STEPS, 10 * BLOCK_STEPS - 1)
    assert slow.ratio == pytest.approx(1.5 / 1.01) and slow.steps == 140


@pytest.mark.parametrize(
    "job",
    [
        {"a": [1.0] * 10, "b": [1.19] * 10},  # not a fifth
        {"a": [1.0] * 10, "b": [1.0, 1.5] * 5},  # comes and goes
        {"a": [1.0] * 10, "b": [1.5] * 4 + [1.0] * 6},  # eighty steps
        {"a": [1.0] * 10},
        {"a": [1.0] * 10, "b": [1.5] * 10, "c": [1.5] * 10, "d": [1.5] * 10},  # most are slow: uneven by design
    ],
)
def test_what_is_no_slow_rank(job: dict[str, list[float]]) -> None:
    assert slower(paces(job)) == []


def test_blocks_that_a_rank_lacks_end_the_row() -> None:
    own = {block: 1.5 for block in range(12) if block % 4}
    assert slower({"a": dict.fromkeys(range(12), 1.0), "b": own}) == []


def test_lockstep_is_steps_of_equal_length() -> None:
    assert in_lockstep(paces({"a": [1.0] * 6, "b": [1.02] * 6})) == (0, 6 * BLOCK_STEPS - 1)
    assert in_lockstep(paces({"a": [1.0] * 6, "b": [1.3] * 6})) is None
    assert in_lockstep(paces({"a": [1.0] * 6})) is None


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (Condition("H100", 1300.0, 95.0, 89.0, 0.9, 0.0, 0.0), "heat"),
        (Condition("H100", 1300.0, 95.0, 60.0, 0.0, 0.9, 0.0), "power"),
        (Condition("A100", 1400.0, 95.0, 60.0, 0.0, 0.0, 0.0), "model"),
        (Condition("H100", 1980.0, 95.0, 60.0, 0.0, 0.0, 1.0), "shared"),
        (Condition("H100", 1300.0, 95.0, 60.0, 0.0, 0.0, 0.0), "clock"),
        (Condition("H100", 1980.0, 60.0, 60.0, 0.0, 0.0, 0.0), "idle"),
        (Condition("H100", 1980.0, 95.0, 60.0, 0.0, 0.0, 0.0), "work"),
        (Condition(), "unknown"),
    ],
)
def test_the_reason_is_what_its_gpu_did_and_the_others_did_not(own: Condition, reason: str) -> None:
    assert reason_of(own, [COLD, COLD]) == reason


def test_heat_that_all_gpus_share_is_no_reason() -> None:
    hot = Condition("H100", 1300.0, 95.0, 89.0, 0.9, 0.0, 0.0)
    assert reason_of(hot, [hot, hot]) == "work"


def test_in_lockstep_a_low_clock_or_rest_beside_spinning_ones_tells_who_is_waited_for() -> None:
    hot = Condition("H100", 1300.0, 95.0, 89.0, 0.9, 0.0, 0.0)
    rests = Condition("H100", 1980.0, 50.0, 60.0, 0.0, 0.0, 0.0)
    assert holds_up({"a": COLD, "b": hot, "c": COLD}) == ("b", "heat")
    assert holds_up({"a": COLD, "b": rests, "c": COLD}) == ("b", "idle")
    assert holds_up({"a": COLD, "b": COLD, "c": COLD}) is None
    assert holds_up({"a": rests, "b": rests, "c": COLD}) is None
    assert holds_up({"a": Condition(), "b": Condition()}) is None
