"""One simulated run as several files with clocks of their own: what every host of a job would have recorded."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simulator.scenarios import SimulatedRun
from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.facts import FileFacts, file_facts
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.engine import diagnose_files
from tb_gpu_doctor.diagnosis.model import Diagnosis
from tb_gpu_doctor.traces.columns import DeviceEvents, HostEvents, SparseStat, Trace
from tb_gpu_doctor.traces.xplane import read_xplane


def read_run(run: SimulatedRun) -> Trace:
    """The file of a run, read back."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{run.hostname}.xplane.pb"
        path.write_bytes(run.space.encode())
        return read_xplane(str(path), run.hostname)


def split(trace: Trace, offsets: Sequence[int]) -> list[Trace]:
    """As many files as there are offsets, each with the next of the GPUs and a clock so many picoseconds ahead.

    The host's events are those of the one process in each of them, without what it launched on other GPUs.
    """
    each = len(trace.devices) // len(offsets)
    return [_part(trace, host, range(host * each, (host + 1) * each), offset) for host, offset in enumerate(offsets)]


def _part(trace: Trace, host: int, gpus: range, offset: int) -> Trace:
    name = f"host{host}"
    streams = [stream for stream in trace.streams if stream.device in gpus]
    stream_at = np.full(len(trace.streams), -1, np.int32)
    stream_at[[stream.index for stream in streams]] = np.arange(len(streams))
    rows = np.flatnonzero((trace.device_events.device >= gpus.start) & (trace.device_events.device < gpus.stop))
    columns = {spec.name: getattr(trace.device_events, spec.name)[rows] for spec in dataclasses.fields(DeviceEvents)}
    columns["device"] = columns["device"] - np.int32(gpus.start)
    columns["stream"] = stream_at[columns["stream"]]
    columns["start"] = columns["start"] + offset
    own = {spec.name: getattr(trace.host_events, spec.name) for spec in dataclasses.fields(HostEvents)}
    own["start"] = own["start"] + offset
    # calls that led to work on other hosts' GPUs only were not made here
    elsewhere = np.setdiff1d(trace.device_events.correlation, columns["correlation"])
    own["correlation"] = np.where(np.isin(own["correlation"], elsewhere), -1, own["correlation"])
    stats: dict[str, SparseStat] = {}
    for key, stat in trace.device_stats.items():
        kept = np.isin(stat.rows, rows)
        stats[key] = SparseStat(np.searchsorted(rows, stat.rows[kept]), stat.values[kept])
    return dataclasses.replace(
        trace,
        path=f"{name}.xplane.pb",
        host=name,
        devices=tuple(
            dataclasses.replace(device, index=i, id=i, host=name)
            for i, device in enumerate(trace.devices[gpus.start : gpus.stop])
        ),
        streams=tuple(
            dataclasses.replace(stream, index=i, device=stream.device - gpus.start) for i, stream in enumerate(streams)
        ),
        device_events=DeviceEvents(**columns),
        host_events=HostEvents(**own),
        device_stats=stats,
        recorded=None if trace.recorded is None else (trace.recorded[0] + offset, trace.recorded[1] + offset),
    )


@dataclasses.dataclass(frozen=True)
class AnalysedFile:
    """A file with its columns, of which tests change some before its facts are gathered."""

    label: str
    trace: Trace
    analysis: TraceAnalysis

    @property
    def facts(self) -> FileFacts:
        return file_facts(self.trace, self.analysis, self.label)


def profiles(traces: Sequence[Trace]) -> list[AnalysedFile]:
    """The traces with their analyses."""
    return [AnalysedFile(trace.host, trace, analyse(trace)) for trace in traces]


def facts_of(traces: Sequence[Trace], analyses: Sequence[TraceAnalysis] | None = None) -> list[FileFacts]:
    """The facts of several files."""
    analyses = [analyse(trace) for trace in traces] if analyses is None else analyses
    return [file_facts(trace, analysis) for trace, analysis in zip(traces, analyses, strict=True)]


def diagnosed(files: Sequence[AnalysedFile], **options: Any) -> Diagnosis:
    """The diagnosis of analysed files; options as of `diagnose_files`."""
    return diagnose_files([file.facts for file in files], **options)


def context_of(*files: AnalysedFile, **options: Any) -> Context:
    """What rules read of analysed files; options as of `Context`."""
    return Context(tuple(file.facts for file in files), **options)
