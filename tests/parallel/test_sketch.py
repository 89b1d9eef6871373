"""A file whose columns are elsewhere gives the same diagnosis and summary, and little travels for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.desk import Desk
from simulator.faults.cases import all_cases
from simulator.large_job import write_job
from simulator.scenarios import SimulatedJob, SimulatedRun
from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.comparison.summarize import summarize
from tb_gpu_doctor.diagnosis.context import Context, HostProfile
from tb_gpu_doctor.diagnosis.engine import diagnose_context
from tb_gpu_doctor.parallel.one_file import analyse_file
from tb_gpu_doctor.parallel.sketch import column_bytes
from tb_gpu_doctor.parallel.transport import with_own_arrays
from tb_gpu_doctor.report.diagnosis_report import DiagnosisReport
from tb_gpu_doctor.telemetry.joining import Joined
from tb_gpu_doctor.traces.columns import DeviceEvents, Trace
from tb_gpu_doctor.traces.far import is_far
from tb_gpu_doctor.traces.sessions import find_sessions
from tb_gpu_doctor.traces.xplane import read_xplane

DEMOS = Path(__file__).parents[2] / "demo_logs"
# One way to plant each kind, in runs of one and of several hosts.
PLANTS = (
    "input_bound.map.medium", "launch_bound.slow.strong", "sync_stall.float.strong", "cpu_contention.workers.strong",
    "compile_stall.xla.strong", "checkpoint_stall.orbax.strong", "step_outliers.pause.strong",
    "transfer_bound.pageable.strong", "op_placement.bounce.strong", "low_occupancy.shared.mild",
    "idle_gpus.unused.mild", "imbalance.late_input.medium/keras/4x2", "imbalance.by_turns.medium/keras/4x2",
    "communication_bound.exchange.medium/keras/4x4", "healthy.jittery/jax/4x4", "no_steps.markers.mild",
)  # fmt: skip

Files = list[tuple[str, Trace, TraceAnalysis]]


def said(files: Files) -> tuple[str, object, object]:
    """The diagnosis and the summary of a session."""
    context = Context(tuple(HostProfile(*file) for file in files))
    diagnosis = DiagnosisReport.of(diagnose_context(context))
    traces, analyses = [file[1] for file in files], [file[2] for file in files]
    summary = summarize(diagnosis, traces, analyses, context.job, Joined(), "run")
    arrays = {name: getattr(summary, name).tolist() for name in ("wall_ps", "parts_ps", "window_parts")}
    rest = {spec.name: getattr(summary, spec.name) for spec in fields(summary) if spec.name not in arrays}
    return diagnosis.to_json("en"), arrays, rest


def check(files: Files) -> Desk:
    desk = Desk()
    far = [(label, *desk.hold(trace, analysis)) for label, trace, analysis in files]
    assert said(far) == said(files)
    assert not desk.asked["column"], "whatever rules and summaries read they ask"
    return desk


def written(run: SimulatedRun | SimulatedJob, folder: Path) -> Files:
    files = []
    for host in run.hosts:
        path = folder / f"{host.hostname}.xplane.pb"
        path.write_bytes(host.space.encode())
        trace = read_xplane(str(path), host.hostname)
        files.append((host.hostname, trace, analyse(trace)))
    return files


def sessions(root: Path) -> Iterator[Files]:
    for session in find_sessions(str(root)).sessions:
        if session.problem is None and not session.is_telemetry:
            yield [(file.path, *analyse_file(file)) for file in session.files]


@pytest.mark.parametrize("plant", PLANTS)
def test_planted_faults(plant: str, tmp_path: Path) -> None:
    case = next(case for name, case in all_cases().items() if name.startswith(plant))
    files = written(case.run(1), tmp_path)
    desk = check(files)
    assert desk.told_bytes < 30_000 * len(files)


def test_demo_runs() -> None:
    for files in sessions(DEMOS):
        check(files)


def test_real_profiles(shared_traces: Path) -> None:
    for files in sessions(shared_traces):
        check(files)


def test_a_job_of_many_hosts_fetches_no_column(tmp_path: Path) -> None:
    write_job(tmp_path, "xplane", 6, 4_000)
    (files,) = sessions(tmp_path)
    desk = check(files)
    whole = sum(column_bytes((trace, analysis)) for _, trace, analysis in files)
    assert desk.told_bytes + desk.answer_bytes < whole / 15


def test_far_parts_answer_like_near_ones(tmp_path: Path) -> None:
    write_job(tmp_path, "kineto", 1, 4_000)
    ((_, trace, analysis),) = next(sessions(tmp_path))
    far_trace, far_analysis = Desk().hold(trace, analysis)
    events, known = far_trace.device_events, trace.device_events
    assert is_far(events) and is_far(far_analysis.gaps) and not is_far(far_analysis.transfers.totals)
    assert len(events) == len(known) and len(far_analysis.gaps) == len(analysis.gaps)
    assert [events.of_device(index) for index in range(1)] == [known.of_device(index) for index in range(1)]
    assert events.of_device(7) == slice(0, 0) and events.extent() == known.extent()
    assert "start" not in vars(events)
    for spec in fields(known):
        assert getattr(events, spec.name).tobytes() == getattr(known, spec.name).tobytes()
    assert (events.end == known.end).all() and vars(events)["end"] is events.end
    for spec in fields(analysis.gaps):
        assert np.array_equal(getattr(far_analysis.gaps, spec.name), getattr(analysis.gaps, spec.name))
    assert far_trace.strings[3] == trace.strings[3] and len(far_trace.strings) == len(trace.strings)
    assert set(far_trace.device_stats) == set(trace.device_stats)
    for name, stat in trace.device_stats.items():
        assert np.array_equal(far_trace.device_stats[name].values, stat.values)
    assert far_trace.device_stats.get("nothing") is None
    with pytest.raises(AttributeError):
        _ = events.nothing


def test_far_fields_with_defaults_are_fetched(tmp_path: Path) -> None:
    write_job(tmp_path, "kineto", 1, 4_000)
    ((_, trace, analysis),) = next(sessions(tmp_path))
    _, far_analysis = Desk().hold(trace, analysis)
    known, found = analysis.kernels, far_analysis.kernels
    assert known.ops is not None and found.ops is not None and known.steps is not None and found.steps is not None
    assert np.array_equal(found.ops.total_ps, known.ops.total_ps)
    assert np.array_equal(found.steps.kernel_ps, known.steps.kernel_ps)
    assert found.ops is found.ops


def test_what_is_made_of_far_columns_is_near(tmp_path: Path) -> None:
    write_job(tmp_path, "kineto", 1, 4_000)
    ((_, trace, analysis),) = next(sessions(tmp_path))
    far_trace, far_analysis = Desk().hold(trace, analysis)
    events = replace(far_trace.device_events, start=trace.device_events.start + 1)
    assert type(events) is DeviceEvents and len(events) == len(trace.device_events)
    assert events.rows_of_devices() == trace.device_events.rows_of_devices()
    assert events.extent() == (int(events.start.min()), int(events.end.max()))
    gaps = with_own_arrays(far_analysis.gaps)
    assert type(gaps) is type(analysis.gaps) and len(gaps) == len(analysis.gaps)
