"""Facts are plain, small and all that a diagnosis needs; what they say equals what the columns say."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.faults.cases import all_cases
from simulator.scenarios import SimulatedJob, SimulatedRun
from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.facts import FileFacts, file_facts
from tb_gpu_doctor.analysis.idle_facts import LEAST_SHARE, Claim
from tb_gpu_doctor.analysis.job import NO_MEETINGS, analyse_job, parts_of_steps, parts_of_window
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.analysis.step_costs import communication_layers, step_parts, window_parts
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.api import diagnose_session
from tb_gpu_doctor.comparison.summarize import summarize
from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.engine import diagnose_context
from tb_gpu_doctor.parallel.packed_facts import pack, unpack
from tb_gpu_doctor.report.diagnosis_report import DiagnosisReport
from tb_gpu_doctor.telemetry.joining import Joined
from tb_gpu_doctor.traces.columns import Trace
from tb_gpu_doctor.traces.sessions import find_sessions
from tb_gpu_doctor.traces.xplane import read_xplane
from tests.analysis.jobs import random_job
from tests.analysis.small_traces import traces as small_traces

DEMOS = Path(__file__).parents[2] / "demo_logs"
# One way to plant each kind, in runs of one and of several hosts.
PLANTS = (
    "input_bound.map.medium", "launch_bound.slow.strong", "sync_stall.float.strong", "cpu_contention.workers.strong",
    "compile_stall.xla.strong", "checkpoint_stall.orbax.strong", "step_outliers.pause.strong",
    "transfer_bound.pageable.strong", "op_placement.bounce.strong", "low_occupancy.shared.mild",
    "idle_gpus.unused.mild", "imbalance.late_input.medium/keras/4x2", "imbalance.by_turns.medium/keras/4x2",
    "communication_bound.exchange.medium/keras/4x4", "healthy.jittery/jax/4x4", "no_steps.markers.mild",
)  # fmt: skip

Columns = list[tuple[Trace, TraceAnalysis]]


def sent(file: FileFacts) -> tuple[FileFacts, int]:
    """The facts after a journey, and how many bytes travelled."""
    packed = pack(file)
    found: FileFacts = unpack(packed)
    assert pickle.loads(pickle.dumps(file)) == file
    return found, len(packed)


def plain(value: Any) -> None:
    """Fail where a value is anything but numbers, names, tuples and frozen dataclasses of these."""
    if dataclasses.is_dataclass(value):
        for spec in dataclasses.fields(value):
            plain(getattr(value, spec.name))
    elif isinstance(value, (tuple, list)):
        for item in value:
            plain(item)
    elif isinstance(value, dict):  # parameters of a note
        for item in value.values():
            plain(item)
    else:
        assert value is None or isinstance(value, (bool, int, float, str)), type(value)
        assert type(value).__module__ != "numpy", value


def said(files: list[FileFacts]) -> tuple[str, object]:
    """The diagnosis and the summary of a session."""
    context = Context(tuple(files))
    diagnosis = DiagnosisReport.of(diagnose_context(context))
    summary = summarize(diagnosis, files, context.job, Joined(), "run")
    fields = {spec.name: getattr(summary, spec.name) for spec in dataclasses.fields(summary)}
    return diagnosis.to_json("en"), {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in fields.items()}


def facts_of_columns(columns: Columns) -> list[FileFacts]:
    return [file_facts(trace, analysis, f"host{i}") for i, (trace, analysis) in enumerate(columns)]


def check(columns: Columns) -> int:
    """Compare facts with columns, and facts with themselves after a journey; their bytes."""
    files = facts_of_columns(columns)
    journeys = [sent(file) for file in files]
    assert [file for file, _ in journeys] == files
    assert said([file for file, _ in journeys]) == said(files)
    for file in files:
        plain(file)
        json.dumps(dataclasses.asdict(file))
    same_parts(columns, files)
    return sum(size for _, size in journeys)


def same_parts(columns: Columns, files: list[FileFacts]) -> None:
    """Exposed communication, steps and windows split alike from facts and from columns."""
    job = analyse_job(files)
    for which, (trace, analysis) in enumerate(columns):
        window = analysis.window
        for device, gpu in enumerate(files[which].gpus):
            if window is None or gpu.exposed is None:
                continue
            met = job.meetings.get((which, device), NO_MEETINGS)
            wait = met.wait_of_events(trace.device_events.of_device(device))
            base, moving, unsplit, whole = (
                intervals.measure(intervals.clip(layer, window.start, window.end))
                for layer in communication_layers(trace, device, wait)
            )
            found = job.exposed[which, device]
            expected = (moving - base, whole - unsplit, unsplit - moving)
            # what is told of slivers in sums moves a split by no more than they are in all
            length, hidden = np.array(gpu.exposed.whole[1], np.int64), np.array(gpu.exposed.hidden, np.int64)
            slivers = int((length - hidden)[hidden > 0].sum())
            assert found.total == sum(expected)
            assert np.abs(np.subtract((found.moving, found.waiting, found.unsplit), expected)).max() <= slivers
            assert slivers <= 0.05 * window.length
            apart = parts_of_window(files, which, device, job) - window_parts(trace, analysis, device, wait)
            assert np.abs(apart).max() <= slivers and apart.sum() == 0
            if gpu.steps is not None:
                wall, parts = parts_of_steps(files, which, device, job)
                known_wall, known_parts = step_parts(trace, analysis, device, wait)
                assert np.array_equal(wall, known_wall) and (parts.sum(axis=1) == known_parts.sum(axis=1)).all()
                assert np.abs(parts - known_parts).max(initial=0) <= slivers


def written(run: SimulatedRun | SimulatedJob, folder: Path) -> Columns:
    found = []
    for host in run.hosts:
        path = folder / f"{host.hostname}.xplane.pb"
        path.write_bytes(host.space.encode())
        trace = read_xplane(str(path), host.hostname)
        found.append((trace, analyse(trace)))
    return found


def sessions(root: Path) -> Iterator[Columns]:
    for session in find_sessions(str(root)).sessions:
        if session.problem is None and not session.is_telemetry and session.files:
            result = diagnose_session(session, with_columns=True)
            yield [(file.trace, file.analysis) for file in result.columns]


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS)
def test_planted_faults(plant: str, tmp_path: Path) -> None:
    case = next(case for name, case in all_cases().items() if name.startswith(plant))
    columns = written(case.run(1), tmp_path)
    assert check(columns) < 30_000 * len(columns)


@pytest.mark.slow
def test_demo_runs() -> None:
    for columns in sessions(DEMOS):
        check(columns)


@pytest.mark.slow
def test_real_profiles(shared_traces: Path) -> None:
    for columns in sessions(shared_traces):
        check(columns)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(small_traces())
def test_any_trace(trace: Trace) -> None:
    check([(trace, analyse(trace))])


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 3))
def test_any_job(seed: int, hosts: int, gpus: int) -> None:
    traces, analyses = random_job(seed, hosts, gpus, jitter=150).analysed()
    check(list(zip(traces, analyses, strict=True)))


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(small_traces())
def test_gaps_by_the_definition(trace: Trace) -> None:
    """Counts, the longest, the half and the worst gaps of each cause, from lists."""
    analysis = analyse(trace)
    for device, gpu in enumerate(file_facts(trace, analysis).gpus):
        if gpu.idle is None:
            continue
        gaps = analysis.gaps
        for cause in Cause:
            rows = [row for row in range(len(gaps)) if gaps.device[row] == device and gaps.by_cause[row, cause] > 0]
            charges = sorted((int(gaps.by_cause[row, cause]) for row in rows), reverse=True)
            found = gpu.idle.whole.of(cause)
            if sum(charges) < LEAST_SHARE * gpu.idle.whole.account.wall or not charges:
                assert found.gaps == 0
                continue
            assert (found.gaps, found.longest) == (len(charges), charges[0])
            half = next(n for n in range(1, len(charges) + 1) if 2 * sum(charges[:n]) >= sum(charges))
            assert found.half == half
            assert [gap.charge for gap in found.worst] == charges[: len(found.worst)]
            assert found.typical == float(np.median(charges))


def test_what_is_claimed_is_taken_from_the_host_alone() -> None:
    case = next(case for name, case in all_cases().items() if name.startswith("op_placement.bounce.strong"))
    for host in case.run(1).hosts:
        trace = read_of(host)
        for gpu in file_facts(trace, analyse(trace)).gpus:
            assert gpu.idle is not None
            whole = gpu.idle.whole
            for claim, left in gpu.idle.left:
                assert gpu.idle.without(claim) is left
                taken = [w - r for w, r in zip(whole.account.idle_by_cause, left.account.idle_by_cause, strict=True)]
                assert all(time >= 0 for time in taken) and whole.account.idle - left.account.idle == sum(taken)
                assert not any(taken[c] for c in Cause if c not in (Cause.SYNC, Cause.HOST_OTHER, Cause.LAUNCH))
                for before, after in zip(whole.per_step, left.per_step, strict=True):
                    assert all(a <= b for a, b in zip(after, before, strict=True))
            assert gpu.idle.without(Claim()) is whole


def read_of(host: Any) -> Trace:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{host.hostname}.xplane.pb"
        path.write_bytes(host.space.encode())
        return read_xplane(str(path), host.hostname)
