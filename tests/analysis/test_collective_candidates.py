"""The collective kernels of a file against a walk over its events."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.collective_candidates import candidates_of
from tb_gpu_doctor.analysis.collective_kinds import kind_of
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Trace
from tests.analysis.small_traces import traces as small_traces


@given(small_traces())
def test_any_trace(trace: Trace) -> None:
    analysis = analyse(trace)
    found, window, events = candidates_of(trace, analysis), analysis.window, trace.device_events
    if window is None:
        assert found is None
        return
    assert found is analysis.candidates and found is not None
    rows = [
        row
        for row in range(len(events))
        if events.klass[row] == EventClass.COMMUNICATION
        and events.copy_kind[row] == CopyKind.NONE
        and window.start <= events.start[row] < window.end
    ]
    assert found.row.tolist() == rows
    for name in ("device", "start", "end"):
        assert getattr(found, name).tolist() == [int(getattr(events, name)[row]) for row in rows]
    assert found.computing.tolist() == sorted(set(events.device[events.klass == EventClass.COMPUTE].tolist()))
    for at, row in enumerate(rows):
        name, hlo = trace.strings[int(events.name[row])], trace.strings[int(events.hlo_op[row])]
        key = found.keys[int(found.code[at])]
        assert key[:3] == (name.encode(), hlo.encode(), int(found.kind[at]))
        if not hlo:
            assert found.kind[at] == kind_of(name)
        if len(analysis.steps.event_step):
            assert found.step[at] == analysis.steps.event_step[row]
    some = found.row[::2]
    assert np.array_equal(found.step_of(some), found.step[::2])
