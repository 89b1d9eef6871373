"""Big jobs of many ranks: all run the same collectives, in every format."""

from __future__ import annotations

from pathlib import Path

from simulator.large_job import FORMATS, write_job
from tb_gpu_doctor.api import diagnose_session
from tb_gpu_doctor.traces.sessions import find_sessions


def test_all_ranks_of_a_job_run_the_same_collectives(tmp_path: Path) -> None:
    for form in FORMATS:
        write_job(tmp_path / form, form, 3, 6_000)
        (session,) = find_sessions(str(tmp_path / form)).sessions
        result = diagnose_session(session, with_columns=True)
        found = result.job.collectives
        assert found is not None and found.present.all() and found.present.shape[1] == 3
        assert [len(file.trace.device_events) for file in result.columns] == [3_000] * 3
        assert [len(file.trace.host_events) for file in result.columns] == [3_000] * 3
        assert result.job.clocks.all_known
