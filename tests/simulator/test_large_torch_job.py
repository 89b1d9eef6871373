"""Big jobs of PyTorch go on as they began."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.large_torch_job import STEPS, write_job
from tb_gpu_doctor.traces.trace_json import read_trace_json


@pytest.mark.slow
def test_generated_jobs_go_on_as_they_began(tmp_path: Path) -> None:
    paths = write_job(tmp_path / "job", 2, 14_000)
    once = read_trace_json(str(write_job(tmp_path / "once", 2, 1)[0]))
    for rank, path in enumerate(paths):
        trace = read_trace_json(str(path))
        assert trace.rank == rank and trace.notes == ()
        assert len(trace.device_events) + len(trace.host_events) >= 14_000
        steps = trace.host_events.step_num[trace.host_events.step_num >= 0]
        assert sorted(steps.tolist()) == list(range(20, 20 + len(steps))) and len(steps) % STEPS == 0
        correlations = trace.device_events.correlation
        assert len(set(correlations.tolist())) == len(correlations)
    again = read_trace_json(str(paths[0]))
    count = len(once.device_events)
    period = int(again.device_events.start[count] - again.device_events.start[0])
    assert period % 1_000_000 == 0
    assert (again.device_events.start[count : 2 * count] - period == again.device_events.start[:count]).all()
