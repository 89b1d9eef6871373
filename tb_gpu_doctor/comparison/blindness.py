"""What a profile could not show, however the run went: a finding that it lacks is not solved for that.

Formats differ in what they hold. A trace JSON file of TensorFlow, for one, names no GPU model and counts no
multiprocessors, so nothing in it tells whether grids fill the chip.
"""

from __future__ import annotations

from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis, outline_of
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tb_gpu_doctor.traces.columns import Trace

# What is told by what the host did.
_OF_THE_HOST = (
    "input_bound", "launch_bound", "sync_stall", "compile_stall", "checkpoint_stall", "op_placement", "cpu_contention",
)  # fmt: skip
# What the allocator's events tell, where no telemetry does.
_OF_MEMORY = ("memory_headroom", "memory_pressure")


def kinds_not_shown(trace: Trace, analysis: TraceAnalysis) -> frozenset[str]:
    """Kinds of findings that one file could not have shown; what no file of a session shows, the session does not."""
    rows = [row for row in analysis.kernels.rows if row.family != "communication"]
    found: list[str] = []
    if not len(trace.host_events):
        found += _OF_THE_HOST
    if all(row.sm_share is None for row in rows):
        found.append("underfilled_gpu")
    if all(row.occupancy is None for row in rows):
        found.append("low_occupancy")
    if all(row.tensor_cores is None for row in rows):
        found.append("tensor_cores_unused")
    if not outline_of(trace, analysis).allocators:
        found += _OF_MEMORY
    steps = analysis.steps
    if steps.source == "none" or int(steps.complete.sum()) < Thresholds().outlier_min_steps:
        found.append("step_outliers")
    return frozenset(found)
