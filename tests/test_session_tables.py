"""The tables of a session against its accounting, its JSON and counts made another way."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

import tb_gpu_doctor
from tb_gpu_doctor import Diagnosis
from tb_gpu_doctor.analysis.job import collective_table
from tb_gpu_doctor.analysis.results import CAUSE_IDS
from tb_gpu_doctor.api import SessionResult, choose_session, diagnose_session
from tb_gpu_doctor.plugin.timeline import step_at
from tb_gpu_doctor.report.kernel_report import ListedGpu, csv_lines, kernel_list
from tb_gpu_doctor.session_tables import make_tables
from tb_gpu_doctor.tables import Table
from tb_gpu_doctor.traces.columns import PS_PER_MS
from tb_gpu_doctor.traces.sessions import find_sessions

RUNS = ("input_bound", "slow_gpu", "pytorch_ddp")
CAUSES = [f"idle_{cause}_ms" for cause in CAUSE_IDS]


@pytest.fixture(scope="module", params=RUNS)
def read(request: pytest.FixtureRequest, demo_logs: Path) -> tuple[Diagnosis, SessionResult]:
    session = choose_session(find_sessions(str(demo_logs)), request.param)
    return tb_gpu_doctor.diagnose(session), diagnose_session(session, with_columns=True)


def of_gpu(table: Table, host: str, gpu: int) -> np.ndarray:
    return np.flatnonzero((table["host"] == host) & (table["gpu"] == gpu))


def test_gpus_are_those_of_the_json(read: tuple[Diagnosis, SessionResult]) -> None:
    diagnosis, _ = read
    devices = diagnosis.to_dict()["devices"]
    assert len(diagnosis.gpus) == len(devices) > 1
    for row, device in zip(diagnosis.gpus, devices, strict=True):
        assert (row.host, row.gpu, row.name, row.rank) == (device["host"], device["id"], device["name"], device["rank"])
        for part in ("wall", "compute", "communication", "transfer", "idle"):
            assert getattr(row, f"{part}_ms") == pytest.approx(device[f"{part}_ms"])
        assert [getattr(row, name) for name in CAUSES] == pytest.approx(list(device["idle_by_cause_ms"].values()))


def test_gaps_add_up_to_the_idle_time(read: tuple[Diagnosis, SessionResult]) -> None:
    diagnosis, result = read
    gaps = diagnosis.gaps
    assert len(gaps) == sum(len(file.analysis.gaps) for file in result.columns)
    for gpu in diagnosis.gpus:
        rows = of_gpu(gaps, gpu.host, gpu.gpu)
        assert gaps["duration_ms"][rows].sum() == pytest.approx(gpu.idle_ms, abs=1e-6)
        for name in CAUSES:
            assert gaps[name][rows].sum() == pytest.approx(getattr(gpu, name), abs=1e-6)
    parts = np.stack([gaps[name] for name in CAUSES])
    assert parts.sum(axis=0) == pytest.approx(gaps["duration_ms"])
    assert gaps["end_ms"] - gaps["start_ms"] == pytest.approx(gaps["duration_ms"], abs=1e-9)
    charged = [row[CAUSE_IDS.index(cause)] for row, cause in zip(parts.T, gaps["cause"], strict=True)]
    assert charged == parts.max(axis=0).tolist()


def test_names_and_steps_of_gaps_one_by_one(read: tuple[Diagnosis, SessionResult]) -> None:
    diagnosis, result = read
    rows = iter(diagnosis.gaps)
    for file in result.columns:
        trace, gaps, steps = file.trace, file.analysis.gaps, file.analysis.steps
        for index in range(len(gaps)):
            row = next(rows)
            at = step_at(steps, int(gaps.device[index]), int(gaps.start[index]))
            assert row.step == (int(steps.number[at]) if at >= 0 else None)
            after, evidence = int(gaps.after[index]), int(gaps.evidence[index])
            assert row.gpu == trace.devices[int(gaps.device[index])].id
            assert (row.after is None) == (after < 0)
            if after >= 0:
                assert row.after == trace.strings[int(trace.device_events.name[after])]
            assert (row.evidence is None) == (row.thread is None) == (evidence < 0)
            if evidence >= 0:
                assert row.evidence == trace.strings[int(trace.host_events.name[evidence])]
                assert row.thread == trace.threads[int(trace.host_events.thread[evidence])].name
    assert next(rows, None) is None


def test_parts_of_steps_add_up(read: tuple[Diagnosis, SessionResult]) -> None:
    diagnosis, result = read
    steps = diagnosis.steps
    parts = [name for name in steps.columns if name.endswith("_ms") and name not in ("start_ms", "duration_ms")]
    assert sum(steps[name] for name in parts) == pytest.approx(steps["duration_ms"])
    used = sum(np.count_nonzero(f.analysis.steps.end[f.analysis.steps.complete] >= 0) for f in result.columns)
    assert len(steps) == used >= diagnosis.step_count
    for file, columns in zip(result.files, result.columns, strict=True):
        found = columns.analysis.steps
        rows = np.flatnonzero(found.complete)
        for device, gpu in enumerate(columns.trace.devices):
            mine = of_gpu(steps, file.label, gpu.id)
            assert steps["step"][mine].tolist() == found.number[rows].tolist()
            assert steps["start_ms"][mine] == pytest.approx(found.start[rows, device] / PS_PER_MS)


def test_kernels_are_those_of_the_command(read: tuple[Diagnosis, SessionResult]) -> None:
    diagnosis, result = read
    gpus = [ListedGpu(file.label, gpu.device) for file in result.files for gpu in file.gpus]
    listed = kernel_list([([gpu.device for gpu in file.gpus], file.kernels) for file in result.files])
    rows = list(csv.DictReader(io.StringIO("".join(csv_lines(listed, gpus)))))
    assert len(rows) == len(diagnosis.kernels)
    for row, line in zip(diagnosis.kernels, rows, strict=True):
        assert f"{row.host}:{row.gpu}" == line["gpus"] and str(row.calls) == line["calls"]
        assert row.total_ms == pytest.approx(float(line["total_ms"]))
        assert (row.grid or "", row.limiter or "", row.family) == (line["grid"], line["limiter"], line["family"])


def test_collectives_add_up_to_the_table_of_the_tab(read: tuple[Diagnosis, SessionResult]) -> None:
    diagnosis, result = read
    collectives, lateness = diagnosis.collectives, result.job.lateness
    facts = [file.collectives for file in result.files if file.collectives is not None]
    assert len(collectives) == sum(len(found.row) for found in facts)
    if lateness is None:
        return
    table = collective_table([file.trace for file in result.columns], lateness)
    known = ~np.isnan(collectives["wait_ms"])
    assert np.count_nonzero(known) == sum(int(row.counts.sum()) for row in table) > 0
    for name in ("inside", "wait"):
        told = sum(int(getattr(row, name).sum()) for row in table) / PS_PER_MS
        assert collectives[f"{name}_ms"][known].sum() == pytest.approx(told)
    moving = collectives["inside_ms"] - collectives["wait_ms"]
    assert collectives["moving_ms"][known] == pytest.approx(moving[known])
    # nobody waits for the last to come, and all that are one collective are as many GPUs
    number = collectives["collective"][known]
    for one in np.unique(number)[:50]:
        mine = np.flatnonzero(known)[number == one]
        pairs = {(collectives["host"][row], collectives["gpu"][row]) for row in mine}
        assert len(pairs) == len(mine) and len(set(collectives["kind"][mine])) == 1
        assert collectives["behind_ms"][mine].min() == 0


def test_a_run_that_was_only_recorded_has_no_rows(demo_logs: Path) -> None:
    scan = find_sessions(str(demo_logs))
    recorded = next(session for session in scan.sessions if session.is_telemetry)
    tables = make_tables(diagnose_session(recorded, with_columns=True))
    full = tb_gpu_doctor.diagnose(demo_logs, run="slow_gpu")
    for name in ("steps", "gaps", "kernels", "collectives"):
        empty = getattr(tables, name)
        assert len(empty) == 0 and list(empty) == [] and empty.columns == getattr(full, name).columns
    # which GPUs there were is known, but not where their time went
    gpus = tb_gpu_doctor.diagnose(recorded).gpus
    assert len(gpus) == 4 and np.isnan(gpus["wall_ms"]).all()


def test_tables_are_remembered(demo_logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_DOCTOR_CACHE_DIR", str(tmp_path))
    first = tb_gpu_doctor.diagnose(demo_logs / "input_bound").gaps
    monkeypatch.setattr("tb_gpu_doctor.session_tables.diagnose_session", None)
    again = tb_gpu_doctor.diagnose(demo_logs / "input_bound").gaps
    assert [tuple(row) for row in again] == [tuple(row) for row in first]
