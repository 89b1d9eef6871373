"""The work of one file: functions that any executor can run anywhere, since they need nothing but their arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.device_clock import on_host_clock
from tb_gpu_doctor.analysis.facts import FileFacts, file_facts
from tb_gpu_doctor.analysis.file_columns import FileColumns
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.traces.columns import Trace
from tb_gpu_doctor.traces.read import read_trace
from tb_gpu_doctor.traces.sessions import ProfileFile

# Share of a file's work; the rest are the analyses.
DECODING = 0.6


@dataclass(frozen=True)
class ReadFile:
    """One file: what a diagnosis needs of it, and its columns where somebody wants to draw them."""

    facts: FileFacts
    columns: FileColumns | None = None


def read_file(
    file: ProfileFile, with_columns: bool = False, report: Callable[[str, float], None] | None = None
) -> ReadFile:
    """Decode and analyse one file, and gather its facts.

    Args:
        file: as `sessions.find_sessions` lists it.
        with_columns: whether the columns are wanted as well.
        report: called with ``decoding`` or ``analysing`` and the share of the file's work that is done, 0..1.

    Raises:
        ProfileError: the file cannot be read.
    """
    trace, analysis = analyse_file(file, report)
    facts = file_facts(trace, analysis, file.host)
    return ReadFile(facts, FileColumns(trace, analysis) if with_columns else None)


def analyse_file(file: ProfileFile, report: Callable[[str, float], None] | None = None) -> tuple[Trace, TraceAnalysis]:
    """The columns of one file and what is computed from them; arguments and errors as of `read_file`."""

    def decoding(done: float) -> None:
        if report is not None:
            report("decoding", DECODING * done)

    def analysing(done: float) -> None:
        if report is not None:
            report("analysing", DECODING + (1 - DECODING) * done)

    trace = on_host_clock(read_trace(file, decoding))
    return trace, analyse(trace, analysing)
