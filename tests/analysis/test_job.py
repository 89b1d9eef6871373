"""Lateness, waiting and moving over all files, against plain lists on the true clock."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.job import Job as Result
from tb_gpu_doctor.analysis.job import analyse_job, doubled_ranks, missing_ranks, perhaps_one_gpu
from tb_gpu_doctor.report.diagnosis_report import to_dict
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Trace
from tests.analysis.jobs import Job, random_job
from tests.analysis.small_traces import US, Recorder
from tests.analysis.small_traces import traces as small_traces
from tests.analysis.test_job_collectives import with_arguments
from tests.hosts import AnalysedFile, diagnosed, facts_of


def result_of(job: Job) -> Result:
    return analyse_job(facts_of(*job.analysed()))


@pytest.mark.slow
@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 3), st.integers(0, 20))
def test_lateness_is_that_of_the_true_clock(seed: int, hosts: int, gpus: int, spread: int) -> None:
    if hosts * gpus < 2:
        gpus = 2
    job = random_job(seed, hosts, gpus, jitter=200, end_spread=spread)
    lateness = result_of(job).lateness
    assert lateness is not None
    assert lateness.method in (("one_clock",) if hosts == 1 else ("aligned", "durations"))
    allowed = 0 if hosts == 1 else (2 * spread + 2) * US
    found = lateness.collectives
    for k in range(len(found)):
        true = job.starts[job.identity(0, int(found.device[0]), int(found.start[k, 0]))]
        behind = (np.array(true) - min(true)) * US
        assert (np.abs(lateness.behind[k] - behind) <= allowed).all()
        assert (np.abs(lateness.wait[k] - (max(true) - np.array(true)) * US) <= allowed).all()
    assert (lateness.wait <= found.end - found.start).all() and (lateness.wait >= 0).all()
    if hosts == 1:
        assert lateness.error == 0


def test_durations_tell_where_clocks_do_not() -> None:
    """The same file is always last: nothing bounds the clocks on one side but the whole collective."""
    job = Job([0, 12_345])
    for k in range(12):
        job.collective([500 * k + 100, 500 * k + 109], [500 * k + 159] * 2)
    lateness = result_of(job).lateness
    assert lateness is not None and lateness.method == "durations"
    assert lateness.error == 50 * US
    assert (lateness.behind == [0, 9 * US]).all() and (lateness.wait == [9 * US, 0]).all()


def stretches(job: Job, at: int) -> tuple[int, int]:
    """(moving, waiting) of one participant, microsecond by microsecond on the true clock."""
    moving = waiting = 0
    for starts, ends in zip(job.starts, job.ends, strict=True):
        moving += ends[at] - max(starts)
        waiting += max(starts) - starts[at]
    return moving, waiting


@pytest.mark.slow
@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 2))
def test_exposed_communication_is_split(seed: int, hosts: int, gpus: int) -> None:
    if hosts * gpus < 2:
        gpus = 2
    job = random_job(seed, hosts, gpus, jitter=150, end_spread=0)
    traces, analyses = job.analysed()
    result = analyse_job(facts_of(traces, analyses))
    for (trace, device), exposed in result.exposed.items():
        account = next(a for a in analyses[trace].accounting if a.device == device)
        assert exposed.total == account.communication
        moving, waiting = stretches(job, trace * gpus + device)
        assert exposed.unsplit == 0
        assert exposed.moving == pytest.approx(moving * US, abs=40 * US)
        assert exposed.waiting == pytest.approx(waiting * US, abs=40 * US)


def test_hidden_communication_and_copies_between_gpus() -> None:
    record = Recorder(gpus=2)
    for gpu in range(2):
        record.work(0, 50, gpu=gpu)
        record.work(20 + 10 * gpu, 80, gpu=gpu, stream=1, klass=EventClass.COMMUNICATION, name="ncclAllReduce")
        record.work(100, 110, gpu=gpu, stream=1, klass=EventClass.COMMUNICATION, copy_kind=CopyKind.P2P)
        record.work(120, 121, gpu=gpu)
    trace = record.trace()
    result = analyse_job(facts_of([trace]))
    for gpu in range(2):
        exposed = result.exposed[0, gpu]
        assert (exposed.moving, exposed.waiting, exposed.unsplit) == (40 * US, 0, 0), "waiting was hidden"


def test_one_rank_alone_cannot_be_split() -> None:
    traces, analyses = random_job(1, hosts=2).analysed()
    result = analyse_job(facts_of(traces[:1], analyses[:1]))
    assert result.lateness is None
    exposed = result.exposed[0, 0]
    assert exposed.unsplit == analyses[0].accounting[0].communication > 0
    assert exposed.moving == exposed.waiting == 0


def test_files_of_different_jobs_are_judged_by_themselves() -> None:
    first, second = random_job(1, hosts=1, gpus=2, count=40), random_job(2, hosts=1, gpus=2, count=40)
    traces = [*first.traces(), *second.traces()]
    result = analyse_job(facts_of(traces))
    assert result.clocks.problem == "contradiction" and result.lateness is None
    for trace, job in enumerate((first, second)):
        for gpu in range(2):
            moving, waiting = stretches(job, gpu)
            exposed = result.exposed[trace, gpu]
            assert (exposed.moving, exposed.waiting) == (moving * US, waiting * US)


def test_bus_bandwidth() -> None:
    job = Job([0, 700])
    for k in range(4):
        job.collective([1000 * k + 100, 1000 * k + 300], [1000 * k + 800] * 2, "ncclDevKernel_AllReduce")
    traces = [with_arguments(trace, ["g"] * 4, [1 << 20] * 4) for trace in job.traces()]
    bandwidth = analyse_job(facts_of(traces)).bandwidth
    assert bandwidth is not None
    assert (bandwidth.collectives, bandwidth.size_bytes) == (4, 4 << 21)
    # two ranks: factor 2 (2 - 1) / 2 = 1; the last to come takes 500 us
    assert bandwidth.bytes_per_s == pytest.approx((2 << 20) / 500e-6, rel=0.01)
    assert result_of(job).bandwidth is None, "sizes unknown"


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(small_traces(), min_size=1, max_size=3))
def test_any_files_give_sound_numbers(traces: list[Trace]) -> None:
    analyses = [analyse(trace) for trace in traces]
    result = analyse_job(facts_of(traces, analyses))
    for (trace, device), exposed in result.exposed.items():
        account = next(a for a in analyses[trace].accounting if a.device == device)
        assert exposed.total == account.communication
        assert min(exposed.moving, exposed.waiting, exposed.unsplit) >= 0
    clocks = result.clocks
    assert (clocks.low <= clocks.offset).all() and (clocks.offset <= clocks.high).all()
    lateness = result.lateness
    if lateness is not None:
        assert (lateness.behind >= 0).all() and (lateness.wait >= 0).all()
        assert (lateness.wait <= lateness.collectives.end - lateness.collectives.start).all()
        profiles = [AnalysedFile(f"h{i}", t, a) for i, (t, a) in enumerate(zip(traces, analyses, strict=True))]
        to_dict(diagnosed(profiles))


def test_missing_ranks() -> None:
    traces = random_job(1, hosts=3).traces()
    assert missing_ranks(traces) == ()
    ranked = [
        dataclasses.replace(trace, rank=rank, world_size=5) for trace, rank in zip(traces, (0, 1, 4), strict=True)
    ]
    assert missing_ranks(ranked) == (2, 3)
    assert missing_ranks([*ranked, traces[0]]) == (), "a file that does not say may be any of them"
    assert missing_ranks([]) == ()
    same = [dataclasses.replace(trace, rank=0, world_size=5) for trace in traces]
    assert missing_ranks(same) == () and doubled_ranks(same) == {0: 3}, "their word is worth nothing"


def process_of(host: str, starts_at_s: float = 0.0, rank: int | None = None, gpu: int = 0) -> Trace:
    """A process that works on a GPU for a millisecond."""
    record = Recorder(gpus=1)
    record.launch("main", 0, 10, 1_000, 1)
    trace = record.trace()
    devices = tuple(dataclasses.replace(device, id=gpu) for device in trace.devices)
    wall = 1_700_000_000_000_000_000 + int(starts_at_s * 1e9)
    return dataclasses.replace(trace, host=host, devices=devices, wall_start_unix_ns=wall, rank=rank)


def shared_by(*traces: Trace) -> list[tuple[str, int, tuple[str, ...]]]:
    files = facts_of(list(traces), [analyse(trace) for trace in traces])
    return [(one.host, one.number, one.labels) for one in perhaps_one_gpu(files)]


def test_processes_that_call_their_gpu_by_one_number_may_share_it() -> None:
    assert shared_by(process_of("node_501"), process_of("node_502")) == [("node", 0, ("node_501", "node_502"))]
    three = [process_of(f"node_{pid}", gpu=3) for pid in (1_501, 21_502, 31_503)]
    assert [(number, len(labels)) for _, number, labels in shared_by(*three)] == [(3, 3)]


@pytest.mark.parametrize(
    "other",
    [
        process_of("node_502", gpu=1),
        process_of("other_502"),
        process_of("node_502", starts_at_s=10),
        process_of("node_502", rank=1),
    ],
    ids=["another number", "another machine", "another time", "a rank of a job"],
)
def test_gpus_that_are_told_apart_are_two(other: Trace) -> None:
    assert shared_by(process_of("node_501"), other) == []
