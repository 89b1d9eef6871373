"""The work of one file: a function that any executor can run anywhere, since it needs nothing but its argument."""

from __future__ import annotations

from collections.abc import Callable

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.device_clock import on_host_clock
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.traces.columns import Trace
from tb_gpu_doctor.traces.read import read_trace
from tb_gpu_doctor.traces.sessions import ProfileFile

# Share of a file's work; the rest are the analyses.
DECODING = 0.6


def analyse_file(file: ProfileFile, report: Callable[[str, float], None] | None = None) -> tuple[Trace, TraceAnalysis]:
    """Decode and analyse one file.

    Args:
        file: as `sessions.find_sessions` lists it.
        report: called with ``decoding`` or ``analysing`` and the share of the file's work that is done, 0..1.

    Raises:
        ProfileError: the file cannot be read.
    """

    def decoding(done: float) -> None:
        if report is not None:
            report("decoding", DECODING * done)

    def analysing(done: float) -> None:
        if report is not None:
            report("analysing", DECODING + (1 - DECODING) * done)

    trace = on_host_clock(read_trace(file, decoding))
    return trace, analyse(trace, analysing)
