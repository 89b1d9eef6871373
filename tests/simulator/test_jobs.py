"""Runs over several hosts: one file each, on a clock of its own, with the truth about every host's GPUs."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from simulator.export import HostClock
from simulator.faults.cases import all_cases
from simulator.faults.setup import simulate
from simulator.scenarios import SimulatedJob
from tb_gpu_doctor.analysis.job import Job, analyse_job
from tb_gpu_doctor.traces.columns import PS_PER_US, Trace
from tb_gpu_doctor.traces.xplane import read_xplane
from tests.hosts import facts_of

JOBS = ("healthy.plain/keras/4x2", "healthy.jittery/jax/4x2", "healthy.lost_host/jax/8x4")


def job_of(name: str, seed: int = 0) -> SimulatedJob:
    run = all_cases()[name].run(seed)
    assert isinstance(run, SimulatedJob)
    return run


@cache
def read(name: str, folder: Path) -> tuple[SimulatedJob, list[Trace], Job]:
    run = job_of(name)
    traces = []
    for host in run.hosts:
        path = folder / f"{host.hostname}.xplane.pb"
        path.write_bytes(host.space.encode())
        traces.append(read_xplane(str(path), host.hostname))
    return run, traces, analyse_job(facts_of(traces))


@pytest.mark.parametrize("name", JOBS)
def test_the_clocks_are_found_from_the_files(name: str, tmp_path: Path) -> None:
    run, traces, job = read(name, tmp_path)
    assert len(traces) == len(run.hosts) >= 2
    assert job.clocks.all_known and job.clocks.problem is None
    zeros = np.array([host.truth.zero for host in run.hosts], np.int64)
    true = zeros - zeros[job.clocks.reference]
    # drift moves the true offset by a few microseconds over so short a recording
    assert (job.clocks.low - 10 * PS_PER_US <= true).all() and (true <= job.clocks.high + 10 * PS_PER_US).all()
    assert (np.abs(job.clocks.offset - true) <= 10 * PS_PER_US).all()


@pytest.mark.parametrize("name", JOBS)
def test_each_file_holds_its_own_gpus_and_host(name: str, tmp_path: Path) -> None:
    run, traces, _ = read(name, tmp_path)
    for host, trace in zip(run.hosts, traces, strict=True):
        assert len(trace.devices) == len(host.truth.gpus)
        assert trace.host == host.hostname
        for gpu in host.truth.gpus:
            rows = trace.device_events.of_device(gpu.gpu)
            recorded = [event for event in gpu.events if event[0] >= host.truth.zero]
            assert 0 < rows.stop - rows.start <= len(recorded)
        # what runs late was launched since the recording began, by this host
        events = trace.device_events
        late = events.correlation[(events.start > np.median(events.start)) & (events.correlation >= 0)]
        assert len(late) and np.isin(late, trace.host_events.correlation).all()


def test_a_clock_that_runs_too_fast_stretches_the_file(tmp_path: Path) -> None:
    setup = all_cases()[JOBS[0]].setup(0)
    spans = []
    for ppm in (0.0, 500.0):
        clocks = tuple(HostClock(drift_ppm=ppm) for _ in setup.clocks)
        host = simulate(dataclasses.replace(setup, clocks=clocks), "x", 1).hosts[0]
        path = tmp_path / f"{ppm}.xplane.pb"
        path.write_bytes(host.space.encode())
        events = read_xplane(str(path)).device_events
        spans.append(int(events.end.max() - events.start.min()))
    assert spans[1] / spans[0] == pytest.approx(1.0005, abs=1e-5)


def test_a_case_and_a_seed_make_the_same_files() -> None:
    first, again = (job_of(JOBS[0], 3) for _ in range(2))
    assert [host.space.encode() for host in first.hosts] == [host.space.encode() for host in again.hosts]
