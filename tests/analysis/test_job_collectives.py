"""Groups of GPUs that run the same op at the same time are told apart by who ends together.

Collectives matched over files, GPUs and losses: each row is one true collective.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.clocks import find_clocks
from tb_gpu_doctor.analysis.collectives import CollectiveKind, bus_factor, kind_of, kinds, sizes
from tb_gpu_doctor.analysis.job import analyse_job, lateness_of_job
from tb_gpu_doctor.analysis.job_collectives import Collectives, match_collectives
from tb_gpu_doctor.traces.columns import EventClass, SparseStat, StringTable, Trace
from tests.analysis.jobs import NAMES, Job, random_job
from tests.analysis.small_traces import US, Recorder
from tests.hosts import facts_of


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
    job = analyse_job(facts_of(*grouped(groups, [0], 4).analysed()))
    found = job.lateness
    assert found is not None and job.clocks.problem is None
    assert job.collectives is not None
    assert members_of(job.collectives.present) == {*(tuple(g) for g in groups if len(g) > 1), (0, 1, 2, 3)}
    assert found.behind.max() <= 45 * US, "400 us apart in time, but of no concern to each other"


def test_one_group_stays_one() -> None:
    job = analyse_job(facts_of(*grouped([[0, 1, 2, 3]], [0], 4).analysed()))
    assert job.lateness is not None and job.lateness.collectives.present.all()


def test_groups_inside_each_host() -> None:
    job = analyse_job(facts_of(*grouped([[0, 1], [2, 3], [4, 5], [6, 7]], [0, 7_000_000], 4).analysed()))
    assert job.collectives is not None and job.clocks.all_known and job.clocks.problem is None
    assert members_of(job.collectives.present) == {(0, 1), (2, 3), (4, 5), (6, 7), tuple(range(8))}


def test_groups_across_hosts() -> None:
    job = analyse_job(facts_of(*grouped([[0, 2], [1, 3]], [0, 7_000_000], 2).analysed()))
    assert job.collectives is not None and job.clocks.all_known and job.clocks.problem is None
    assert members_of(job.collectives.present) == {(0, 2), (1, 3), (0, 1, 2, 3)}


@pytest.mark.parametrize("seed", [0, 2])
def test_gpus_that_both_lost_some_are_still_one_group(seed: int) -> None:
    """As many on both, but not the same ones: in between the n-th of one is not the n-th of the other."""
    job = random_job(seed, hosts=3, gpus=2, count=100)
    job.names = [NAMES[0]] * 100
    job.lost = {(25, 0), (77, 1)}
    found = match_collectives(facts_of(*job.analysed()))
    assert found is not None and found.unmatched.max() == 0
    assert (found.present.sum(axis=1) >= 5).all() and (found.expected == 6).all()


def true_rows(job: Job, found: Collectives) -> list[set[int]]:
    """For each matched collective the true ones that its participants ran: one, if it was matched rightly."""
    rows = []
    for k in range(len(found)):
        at = np.flatnonzero(found.present[k])
        rows.append({job.identity(int(found.trace[i]), int(found.device[i]), int(found.start[k, i])) for i in at})
    return rows


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 3), st.sampled_from([0, 3, 5]))
def test_nothing_lost_everything_matches(seed: int, hosts: int, gpus: int, steps: int) -> None:
    if hosts * gpus < 2:
        gpus = 2
    job = random_job(seed, hosts, gpus, steps=steps)
    found = match_collectives(facts_of(*job.analysed()))
    assert found is not None
    rows = true_rows(job, found)
    assert all(len(row) == 1 for row in rows)
    assert found.present.all() and (found.expected == job.participants).all()
    assert (found.unmatched == 0).all()
    if not steps:
        assert len(found) == 30
    assert len(set.union(*rows)) == len(found)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(1, 2), st.sampled_from([0, 3]), st.integers(1, 4))
def test_lost_collectives_disturb_little(seed: int, hosts: int, gpus: int, steps: int, lost: int) -> None:
    job = random_job(seed, hosts, gpus, count=100, steps=steps, lost=lost)
    found = match_collectives(facts_of(*job.analysed()))
    assert found is not None
    # Where names alternate, a lost one fits several places: times tell, and what cannot be is left out.
    lateness = lateness_of_job(found, find_clocks(found, hosts))
    assert lateness is not None
    rows = true_rows(job, lateness.collectives)
    assert all(len(row) == 1 for row in rows)
    # a marked step that lost a device event counts as cut off
    assert len(rows) >= (25 if steps else 60)


def test_one_rank_ran_more() -> None:
    job = random_job(1, hosts=4, count=20)
    extra = [start + 1 for start in job.ends[9]]
    job.starts.insert(10, extra)
    job.ends.insert(10, [start + 5 for start in extra])
    job.names.insert(10, "ncclDevKernel_ReduceScatter")
    job.lost = {(10, at) for at in range(3)}
    found = match_collectives(facts_of(*job.analysed()))
    assert found is not None
    assert len(found) == 20 and all(len(row) == 1 for row in true_rows(job, found))
    assert found.unmatched.tolist() == [0, 0, 0, 1]


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(-6, 6))
def test_recordings_that_begin_apart(seed: int, late: int) -> None:
    """All collectives look alike; one file misses the first, the other the last ones."""
    job = random_job(seed, hosts=2, count=40)
    job.names = [job.names[0]] * 40
    first = {(k, 1) for k in range(max(0, late))} | {(k, 0) for k in range(max(0, -late))}
    last = {(39 - k, 0) for k in range(max(0, late))} | {(39 - k, 1) for k in range(max(0, -late))}
    job.lost = first | last
    found = match_collectives(facts_of(*job.analysed()))
    assert found is not None
    assert all(len(row) == 1 for row in true_rows(job, found))
    assert len(found) == 40 - 2 * abs(late)


def test_swapped_collectives_of_two_streams_still_match() -> None:
    job = random_job(3, hosts=2, count=20, end_spread=0)
    other = "ncclDevKernel_ReduceScatter"
    traces = []
    for host in range(2):
        record = Recorder()
        for k in range(20):
            start, end = job.starts[k][0] + 1000 * host, job.ends[k][0] + 1000 * host
            record.work(start - 15, start - 5)
            record.work(start, end, stream=1, klass=EventClass.COMMUNICATION)
            # a collective of another stream that starts a little before or after
            near = start + (2 if (k + host) % 2 else -2)
            record.work(near, end, stream=2, klass=EventClass.COMMUNICATION, name=other)
        traces.append(record.trace())
    found = match_collectives(facts_of(traces))
    assert found is not None
    assert len(found) == 40 and found.present.all()
    apart = found.end[:, 1] - found.end[:, 0]
    assert (apart == 1000 * US).all()


def with_arguments(trace: Trace, groups: list[str], elements: list[int], dtype: str = "BFloat16") -> Trace:
    """The collectives of a one-GPU trace in order, with PyTorch's arguments."""
    rows = np.flatnonzero(trace.device_events.klass == EventClass.COMMUNICATION)
    base = len(trace.strings)
    texts = [*trace.strings, *groups, dtype, "allreduce"]
    size = len(groups)

    def stat(values: list[int]) -> SparseStat:
        return SparseStat(rows, np.array(values, np.int64))

    return dataclasses.replace(
        trace,
        strings=StringTable.of(texts),
        device_stats={
            "process_group": stat([base + i for i in range(size)]),
            "group_ranks": stat([base + i for i in range(size)]),
            "in_elements": stat(elements),
            "out_elements": stat(elements),
            "dtype": stat([base + size] * size),
            "collective": stat([base + size + 1] * size),
        },
    )


def test_communicators_part_what_looks_alike() -> None:
    """Four ranks, two groups of two: rank 0 with 1, rank 2 with 3."""
    job = random_job(5, hosts=4, count=6)
    traces = [
        with_arguments(trace, ["[0, 1]" if host < 2 else "[2, 3]"] * 6, [1024] * 6)
        for host, trace in enumerate(job.traces())
    ]
    found = match_collectives(facts_of(traces))
    assert found is not None
    assert len(found) == 12 and (found.expected == 2).all()
    assert (
        sorted(map(tuple, found.present.tolist()))
        == [(False, False, True, True)] * 6 + [(True, True, False, False)] * 6
    )
    assert (found.size_bytes == 2048).all() and (found.kind == CollectiveKind.ALL_REDUCE).all()


def test_sizes_part_what_looks_alike() -> None:
    job = random_job(6, hosts=2, count=3)
    job.lost = {(1, 1)}
    traces = job.traces()
    traces[0] = with_arguments(traces[0], ["g"] * 3, [1, 2, 3])
    traces[1] = with_arguments(traces[1], ["g"] * 2, [1, 3])
    found = match_collectives(facts_of(traces))
    assert found is not None
    assert sorted(found.size_bytes.tolist()) == [2, 6] and found.unmatched.tolist() == [1, 0]


def test_nothing_to_match() -> None:
    alone = random_job(1, hosts=2, count=3)
    traces, analyses = alone.analysed()
    assert match_collectives(facts_of(traces[:1], analyses[:1])) is None, "one GPU"
    assert match_collectives([]) is None
    idle = Recorder()
    idle.work(0, 10)

    assert match_collectives(facts_of([idle.trace()] * 2)) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", "ALL_REDUCE"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", "SEND_RECEIVE"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "REDUCE_SCATTER"),
        ("ncclDevKernel_AllGather_RING_LL", "ALL_GATHER"),
        ("ncclDevKernel_Broadcast_RING_LL", "BROADCAST"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "REDUCE"),
        ("all-reduce.1", "ALL_REDUCE"),
        ("all-to-all-start.3", "ALL_TO_ALL"),
        ("collective-permute.2", "SEND_RECEIVE"),
        ("_allgather_base", "ALL_GATHER"),
        ("all_to_allv", "ALL_TO_ALL"),
        ("reduce", "REDUCE"),
        ("send", "SEND_RECEIVE"),
        ("barrier", "ALL_REDUCE"),
        ("mscclKernel_Sum_half", "OTHER"),
        ("", "OTHER"),
    ],
)
def test_kinds_by_name(name: str, kind: str) -> None:
    assert kind_of(name).name == kind


@pytest.mark.parametrize(
    ("dtype", "width"),
    [("Float", 4), ("BFloat16", 2), ("Half", 2), ("Byte", 1), ("Long", 8), ("Double", 8), ("Int", 4), ("Char", 1),
     ("Bool", 1), ("Float8_e4m3fn", 1), ("Short", 2), ("mystery", None)],
)  # fmt: skip
def test_sizes(dtype: str, width: int | None) -> None:
    traces, _ = random_job(6, hosts=1, count=2).analysed()
    trace = with_arguments(traces[0], ["g"] * 2, [10, 1000], dtype)
    rows = np.flatnonzero(trace.device_events.klass == EventClass.COMMUNICATION)
    assert sizes(trace, rows).tolist() == ([-1, -1] if width is None else [10 * width, 1000 * width])
    assert kinds(trace, rows).tolist() == [CollectiveKind.ALL_REDUCE] * 2


def test_bus_factors_are_those_of_nccl_tests() -> None:
    kind = np.array([CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.BROADCAST])
    assert bus_factor(kind, np.array([8, 8, 8])).tolist() == [1.75, 0.875, 1.0]
