"""Real jobs of eight ranks: who comes late is known from counts made by others."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tb_gpu_doctor.api import choose_session, diagnose_session
from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.traces.columns import PS_PER_MS as MS
from tb_gpu_doctor.traces.columns import PS_PER_US
from tb_gpu_doctor.traces.sessions import find_sessions

MEGATRON, DLRM = "kineto_megatron_tp8_a100", "kineto_dlrm_8xv100"


@cache
def job_of(folder: Path) -> tuple:
    """The diagnosis and the context of a folder with one file per rank."""
    if not folder.is_dir():
        pytest.skip(f"real profiles not present ({folder})")
    result = diagnose_session(choose_session(find_sessions(str(folder)), None, None))
    return result.diagnosis, Context(result.files)


@pytest.mark.parametrize("name", [MEGATRON, DLRM])
def test_one_host_has_one_clock_and_the_bounds_hold_it(shared_traces: Path, name: str) -> None:
    """All ranks ran on one machine, whose clock all files use: the true offsets are 0, but for the files' zeros."""
    _, context = job_of(shared_traces / name)
    clocks = context.job.clocks
    zeros = np.array([file.wall_start_unix_ns or 0 for file in context.files], dtype=object)
    true = np.array([int(zero - zeros[clocks.reference]) * 1000 for zero in zeros], np.int64)
    assert clocks.all_known and clocks.tolerance == 0
    assert (clocks.low <= true).all() and (true <= clocks.high).all()
    assert (np.abs(clocks.offset - true) <= 20 * PS_PER_US).all()


def test_megatron(shared_traces: Path) -> None:
    diagnosis, context = job_of(shared_traces / MEGATRON)
    assert [file.rank for file in context.files] == list(range(8))
    job = context.job
    assert job.missing_ranks == () and job.lateness is not None and job.collectives is not None
    assert len(job.collectives) == 84 and job.collectives.present.all() and not job.collectives.unmatched.any()
    # Independent counts of exposed NCCL time, in ms; what moves data must be alike on all ranks.
    counted = [241.191, 481.306, 413.325, 472.390, 495.240, 490.928, 263.846, 481.865]
    for rank, total in enumerate(counted):
        exposed = job.exposed[rank, 0]
        assert exposed.total / MS == pytest.approx(total, rel=0.01)
        assert exposed.moving / MS == pytest.approx(50, abs=1)
    (finding,) = [f for f in diagnosis.findings if f.kind == "imbalance"]
    culprits = {gpu.id for gpu in finding.gpus}
    assert culprits == {0, 6} and finding.cause == "late_host"
    assert {gpu.id for gpu in finding.victims} == {1, 2, 3, 4, 5, 7}
    assert finding.severity == "critical" and finding.share == pytest.approx(0.36, abs=0.03)
    assert not any(f.kind == "communication_bound" for f in diagnosis.findings), "it is waiting"
    assert any(f.kind == "clock_skew" and f.severity == "info" for f in diagnosis.findings)


def test_dlrm(shared_traces: Path) -> None:
    diagnosis, context = job_of(shared_traces / DLRM)
    lateness = context.job.lateness
    assert lateness is not None and len(lateness.collectives) == 8
    wait = lateness.wait.sum(axis=0) / MS
    assert int(np.argmin(wait)) == 7, "worker 7 waits least"
    last = np.bincount(np.argmax(lateness.behind, axis=1), minlength=8)
    assert int(np.argmax(last)) == 7
    # 1.7 ms of NCCL on worker 7 against 3.5 to 11.3 on the others
    total = [context.job.exposed[rank, 0].total / MS for rank in range(8)]
    assert total[7] == pytest.approx(1.6, abs=0.2) and min(total[:7]) > 3
    # eight collectives of one step prove no habit
    for finding in diagnosis.findings:
        if finding.kind == "imbalance":
            assert finding.severity == "info" and finding.gpus == ()
