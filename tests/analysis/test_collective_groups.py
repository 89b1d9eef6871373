"""Groups of GPUs that run the same op at the same time are told apart by who ends together."""

from __future__ import annotations

import numpy as np
import pytest

from tb_gpu_doctor.analysis.collectives import match_collectives
from tb_gpu_doctor.analysis.job import analyse_job
from tests.analysis.jobs import NAMES, Job, random_job
from tests.analysis.small_traces import US


def grouped(groups: list[list[int]], offsets: list[int], gpus: int, count: int = 12, seed: int = 0) -> Job:
    """An op that each group runs by itself, 400 us apart, and then one of all GPUs."""
    rng = np.random.default_rng(seed)
    job = Job(offsets, gpus)
    now = 100
    for _ in range(count):
        starts, ends = [0] * job.participants, [0] * job.participants
        for index, members in enumerate(groups):
            own = now + 30 + 400 * index + rng.integers(0, 40, len(members))
            for gpu, start in zip(members, own.tolist(), strict=True):
                starts[gpu], ends[gpu] = start, int(own.max()) + 60
        job.collective(starts, ends, NAMES[0])
        after = max(ends) + 20
        job.collective([after + gpu for gpu in range(job.participants)], [after + 90] * job.participants, NAMES[1])
        now = after + 100
    return job


def members_of(present: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(np.flatnonzero(row).tolist()) for row in present}


@pytest.mark.parametrize("groups", [[[0, 1], [2, 3]], [[0, 2], [1, 3]], [[0, 1, 2], [3]]])
def test_groups_of_one_file_do_not_wait_for_each_other(groups: list[list[int]]) -> None:
    job = analyse_job(*grouped(groups, [0], 4).analysed())
    found = job.lateness
    assert found is not None and job.clocks.problem is None
    assert job.collectives is not None
    assert members_of(job.collectives.present) == {*(tuple(g) for g in groups if len(g) > 1), (0, 1, 2, 3)}
    assert found.behind.max() <= 45 * US, "400 us apart in time, but of no concern to each other"


def test_one_group_stays_one() -> None:
    job = analyse_job(*grouped([[0, 1, 2, 3]], [0], 4).analysed())
    assert job.lateness is not None and job.lateness.collectives.present.all()


def test_groups_inside_each_host() -> None:
    job = analyse_job(*grouped([[0, 1], [2, 3], [4, 5], [6, 7]], [0, 7_000_000], 4).analysed())
    assert job.collectives is not None and job.clocks.all_known and job.clocks.problem is None
    assert members_of(job.collectives.present) == {(0, 1), (2, 3), (4, 5), (6, 7), tuple(range(8))}


def test_groups_across_hosts() -> None:
    job = analyse_job(*grouped([[0, 2], [1, 3]], [0, 7_000_000], 2).analysed())
    assert job.collectives is not None and job.clocks.all_known and job.clocks.problem is None
    assert members_of(job.collectives.present) == {(0, 2), (1, 3), (0, 1, 2, 3)}


@pytest.mark.parametrize("seed", [0, 2])
def test_gpus_that_both_lost_some_are_still_one_group(seed: int) -> None:
    """As many on both, but not the same ones: in between the n-th of one is not the n-th of the other."""
    job = random_job(seed, hosts=3, gpus=2, count=100)
    job.names = [NAMES[0]] * 100
    job.lost = {(25, 0), (77, 1)}
    found = match_collectives(*job.analysed())
    assert found is not None and found.unmatched.max() == 0
    assert (found.present.sum(axis=1) >= 5).all() and (found.expected == 6).all()
