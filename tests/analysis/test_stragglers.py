"""Who keeps others waiting in a few steps only, in jobs whose lateness is planted."""

from __future__ import annotations

import pytest

from tb_gpu_doctor.analysis.facts import FileFacts
from tb_gpu_doctor.analysis.job import Job as AnalysedJob
from tb_gpu_doctor.analysis.job import analyse_job
from tb_gpu_doctor.analysis.stragglers import Stragglers, find_stragglers, find_turns
from tb_gpu_doctor.diagnosis.rules.imbalance import Limits
from tests.analysis.jobs import NAMES, Job
from tests.hosts import facts_of

STEP_US, LATE_US, RANKS, STEPS = 1_000, 900, 4, 12


def job_with(late: dict[int, tuple[int, ...]]) -> tuple[list[FileFacts], AnalysedJob]:
    """A job in which ranks compute longer in some steps: ``{step: ranks}``; two collectives a step."""
    job, now = Job([0, 4_000, -9_000, 70_000], steps=STEPS), 100
    for step in range(STEPS):
        for part in range(2):
            starts = [now + STEP_US // 2 + 3 * rank for rank in range(RANKS)]
            for rank in late.get(step, ()) if part == 0 else ():
                starts[rank] += LATE_US
            end = max(starts) + 40
            job.collective(starts, [end] * RANKS, NAMES[part])
            now = end
    files = facts_of(*job.analysed())
    return files, analyse_job(files)


def found_in(late: dict[int, tuple[int, ...]]) -> list[Stragglers]:
    return list(find_stragglers(*job_with(late), Limits(), 5))


@pytest.mark.parametrize(("late", "named"), [({3: (2,), 8: (2,)}, [2]), ({3: (1, 3), 7: (3,), 9: (1,)}, [1, 3])])
def test_who_is_late_in_a_few_steps_is_named_with_the_reason(
    late: dict[int, tuple[int, ...]], named: list[int]
) -> None:
    (case,) = found_in(late)
    assert [int(member.file.host.removeprefix("host")) for member in case.late] == named
    assert case.reason.cause == "slow_gpu" and not case.steady and case.by_steps
    assert case.persistence == pytest.approx(len(late) / STEPS)
    whole = STEPS * (STEP_US + 80) + len(late) * LATE_US
    assert case.shares[0] == pytest.approx(len(late) * LATE_US / whole, rel=0.05)


@pytest.mark.parametrize("late", [{}, {3: (2,)}, {2: (0,), 5: (1,), 8: (2,), 10: (3,)}])
def test_one_step_is_no_habit_and_turns_have_no_culprit(late: dict[int, tuple[int, ...]]) -> None:
    assert found_in(late) == []


def test_turns_are_explained_where_each_time_the_last_one_shows_why() -> None:
    late = {2: (0,), 5: (1,), 8: (2,), 10: (3,)}
    turns = find_turns(*job_with(late), Limits(), 5)
    assert turns is not None and turns.reason is not None and turns.reason.cause == "slow_gpu"
    turns = find_turns(*job_with({}), Limits(), 5)
    assert turns is not None and turns.reason is None
