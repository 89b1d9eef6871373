"""The outline of a file against sums and searches over its events."""

from __future__ import annotations

from hypothesis import given

from tb_gpu_doctor.analysis.accounting import all_busy_sets
from tb_gpu_doctor.analysis.allocators import allocator_use
from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.outline import outline, outline_of
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Trace
from tests.analysis.small_traces import traces as small_traces
from tests.real_traces import real_trace


def covered(trace: Trace, device: int) -> int:
    """Picoseconds with work, by sweeping over starts and ends."""
    events = trace.device_events
    edges = []
    for row in range(len(events)):
        if events.device[row] == device:
            edges += [(int(events.start[row]), 1), (int(events.end[row]), -1)]
    total = depth = last = 0
    for at, change in sorted(edges):
        total += at - last if depth else 0
        depth, last = depth + change, at
    return total


@given(small_traces())
def test_any_trace(trace: Trace) -> None:
    found = outline(trace)
    assert found == outline(trace, all_busy_sets(trace)) == outline_of(trace, analyse(trace))
    assert list(found.busy) == [covered(trace, device.index) for device in trace.devices]
    events = trace.device_events
    kernels = zip(events.klass.tolist(), events.copy_kind.tolist(), strict=True)
    assert found.communicates == any(pair == (EventClass.COMMUNICATION, CopyKind.NONE) for pair in kernels)


def test_frameworks_of_real_profiles() -> None:
    assert outline(real_trace("jax_te_attention")).marks >= {"jax"}
    found = outline(real_trace("tf_bert_8gpu"))
    assert "tensorflow" in found.marks and "jax" not in found.marks
    assert found.allocators == allocator_use(real_trace("tf_bert_8gpu"))
