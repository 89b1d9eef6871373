"""Reading Nsight Systems' exports: what is in them, and what hostile ones cannot do."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Trace
from tb_gpu_doctor.traces.nsys import read_nsys
from tb_gpu_doctor.traces.nsys_ranges import read_range
from tb_gpu_doctor.traces.read import read_trace
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.conftest import SHARED_TRACES
from tests.traces.nsys_files import START_UNIX_NS, Export, process, training


def names(trace: Trace) -> list[str]:
    return [trace.strings[i] for i in trace.device_events.name.tolist()]


def called(trace: Trace) -> list[str]:
    return [trace.strings[i] for i in trace.host_events.name.tolist()]


def test_a_kernel_with_its_call(tmp_path: Path) -> None:
    export = Export(tmp_path / "report1.sqlite")
    export.gpu()
    export.add("ThreadNames", globalTid=process(100) | 100, nameId=export.string("python"))
    export.call("cudaLaunchKernel_v7000", 1000, 200, 5)
    export.kernel("void gemm<float>(float *)", 2000, 700, 5)
    trace = read_nsys(str(export.write()), "node")
    events, host = trace.device_events, trace.host_events
    assert (trace.format, trace.wall_start_unix_ns) == ("nsys", START_UNIX_NS)
    assert names(trace) == ["void gemm<float>(float *)"]
    assert (events.start[0], events.duration[0]) == (2_000_000, 700_000)
    assert trace.strings[int(events.details[0])] == (
        "regs:32 static_shared:4096 dynamic_shared:1024 grid:1024,2,1 block:256,1,1"
    )
    assert called(trace) == ["cudaLaunchKernel"]
    assert events.correlation[0] == host.correlation[0] > 0
    device = trace.devices[0]
    assert (device.sm_count, device.compute_capability, device.clock_khz) == (132, (9, 0), 1_980_000)
    assert (trace.streams[0].line_id, trace.threads[0].name) == (7, "python/100")


def test_correlation_ids_of_two_processes_do_not_mix(tmp_path: Path) -> None:
    export = Export(tmp_path / "report1.sqlite")
    for pid in (100, 101):
        export.call("cudaLaunchKernel_v7000", 1000 + pid, 200, 5, pid, pid)
        export.kernel(f"kernel_{pid}", 2000, 700, 5, pid, pid - 100)
    trace = read_nsys(str(export.write()), "node")
    by_correlation = {
        c: trace.threads[t].line_id
        for c, t in zip(trace.host_events.correlation.tolist(), trace.host_events.thread.tolist(), strict=True)
    }
    assert [by_correlation[c] for c in trace.device_events.correlation.tolist()] == [100, 101]
    assert [device.id for device in trace.devices] == [0, 1]


def test_ranks_that_see_one_gpu_each_have_different_gpus(tmp_path: Path) -> None:
    told = Export(tmp_path / "a.sqlite")
    untold = Export(tmp_path / "b.sqlite")
    for export in (told, untold):
        for pid in (100, 101):
            export.kernel("k", 2000, 700, 0, pid, 0)
    for gpu, pid in ((3, 100), (1, 101)):
        told.gpu(gpu, gpu)
        told.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=pid)
    trace = read_nsys(str(told.write()), "node")
    assert [device.id for device in trace.devices] == [1, 3]
    assert len(read_nsys(str(untold.write()), "node").devices) == 2


def test_processes_share_the_only_gpu(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite")
    export.gpu()
    for pid in (100, 101):
        export.kernel("k", 2000 + pid, 700, 0, pid, 0)
    trace = read_nsys(str(export.write()), "node")
    assert len(trace.devices) == 1
    assert sorted(stream.name for stream in trace.streams) == ["Stream #7 (process 100)", "Stream #7 (process 101)"]


@pytest.mark.parametrize(
    ("kind", "source", "target", "direction", "memory", "name"),
    [
        (1, 0, 2, CopyKind.H2D, 1, "Memcpy HtoD (Pageable -> Device)"),
        (1, 1, 2, CopyKind.H2D, 0, "Memcpy HtoD (Pinned -> Device)"),
        (2, 2, 0, CopyKind.D2H, 1, "Memcpy DtoH (Device -> Pageable)"),
        (8, 2, 2, CopyKind.D2D, -1, "Memcpy DtoD (Device -> Device)"),
        (10, 2, 2, CopyKind.P2P, -1, "Memcpy PtoP (Device -> Device)"),
        (11, 7, 7, CopyKind.H2D, -1, "Memcpy HtoD (Unified Memory)"),
        (99, 7, 7, CopyKind.OTHER, -1, "Memcpy"),
    ],
)
def test_copies(
    tmp_path: Path, kind: int, source: int, target: int, direction: CopyKind, memory: int, name: str
) -> None:
    export = Export(tmp_path / "a.sqlite")
    export.call("cudaMemcpyAsync_v3020", 500, 10, 9)
    export.copy(1000, 10, kind, source, target, 4096, 9)
    trace = read_nsys(str(export.write()), "node")
    events = trace.device_events
    assert names(trace) == [name]
    assert (events.copy_kind[0], events.copy_memory[0], events.copy_bytes[0], events.copy_async[0]) == (
        direction, memory, 4096, 1,
    )  # fmt: skip
    assert events.klass[0] == (EventClass.COMMUNICATION if direction is CopyKind.P2P else EventClass.COPY)


def test_graph_launches_are_no_idle_time_and_said_to_be_blocks(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite")
    for launch in range(3):
        export.call("cudaGraphLaunch_v10000", launch * 1000, 10, launch + 1)
        export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=launch * 1000 + 20, end=launch * 1000 + 990, deviceId=0,
                   streamId=7, correlationId=launch + 1, globalPid=process(100), graphId=2)  # fmt: skip
    trace = read_nsys(str(export.write()), "node")
    assert names(trace) == ["CUDA graph 2"] * 3
    assert trace.device_events.graph.tolist() == [2, 2, 2]
    assert [(note.code, note.params["count"]) for note in trace.notes] == [("graphs_as_blocks", 3)]
    (accounting,) = analyse(trace).accounting
    assert accounting.compute == 3 * 970_000


def test_back_traces_do_not_double_calls(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite")
    export.call("cudaLaunchKernel_v7000", 1000, 200, 5)
    export.call("cudaLaunchKernel_v7000", 990, 220, 5, kind=67)
    export.kernel("k", 2000, 700, 5)
    assert len(read_nsys(str(export.write()), "node").host_events) == 1


def test_system_calls_count_outside_the_drivers_own(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite")
    thread = process(100) | 100
    export.call("cudaStreamSynchronize_v3020", 100_000, 50_000, 5)
    for name, start, length, own in (
        ("poll", 10_000, 60_000, thread), ("ioctl", 110_000, 30_000, thread), ("read", 10_000, 500, thread),
        ("futex", 110_000, 30_000, thread + 1),
    ):  # fmt: skip
        export.add("OSRT_API", start=start, end=start + length, globalTid=own, nameId=export.string(name))
    export.kernel("k", 20_000, 700)
    assert called(read_nsys(str(export.write()), "node")) == ["poll()", "cudaStreamSynchronize", "futex()"]


def test_steps_from_ranges(tmp_path: Path) -> None:
    trace = read_nsys(str(training(tmp_path / "report1.sqlite").write()), "node")
    analysis = analyse(trace)
    assert (analysis.steps.source, analysis.steps.count) == ("marked", 6)
    ops = {trace.strings[i] for i in trace.device_events.op.tolist()}
    assert ops == {"aten::mm"}
    assert len(trace.host_stats["operator"].rows) == 120


def test_an_open_range_lasts_to_the_end_and_registered_texts_are_found(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite")
    export.add("ANALYSIS_DETAILS", duration=9000)
    export.kernel("k", 2000, 700)
    export.range(None, 1000, None, textId=export.string("ncclAllReduce"))
    export.range("elsewhere", 1000, 10, kind=60, endGlobalTid=process(100) | 999)
    trace = read_nsys(str(export.write()), "node")
    assert called(trace) == ["ncclAllReduce"]
    assert trace.host_events.duration.tolist() == [8_000_000]


@pytest.mark.parametrize(
    ("text", "name", "step"),
    [
        ("iteration 12", "iteration", 12), ("Iteration_12", "Iteration", 12), ("iteration12", "iteration", 12),
        ("step_7", "step", 7), ("train_step#3", "train_step", 3), ("ProfilerStep#5", "ProfilerStep", 5),
        ("Training step", "Training step", -2), ("train_step", "train_step", -2), ("Step", "Step", -2),
        ("forward", "forward", -1), ("layer 3", "layer 3", -1), ("computing softmax", "computing softmax", -1),
        ("aten::mm, seq = 3, op_id = 4", "aten::mm", -1), ("optimizer.step", "optimizer.step", -1),
        ("TSL:XlaModule:#hlo_module=jit_f,program_id=40#", "TSL:XlaModule:#hlo_module=jit_f", -1),
    ],
)  # fmt: skip
def test_what_texts_of_ranges_say(text: str, name: str, step: int) -> None:
    found = read_range(text)
    assert (found.name, found.step) == (name, step)


@pytest.mark.parametrize("text", ["aten::mm, seq = 1", "AddmmBackward0", "TSL:Thunk:#name=jit(f)/dot,hlo_op=fusion.3#"])
def test_operators(text: str) -> None:
    assert read_range(text).is_operator
    assert not read_range("autograd::engine::evaluate_function: AddmmBackward0").is_operator


def test_what_the_recorder_says(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite")
    export.kernel("k", 2000, 700)
    for severity, text in (
        (2, "Not all CUDA events might have been collected."), (2, "Not all NVTX events might have been collected."),
        (1, "Number of CUDA events collected: 4."), (2, "No CUDA events collected. Does the process use CUDA?"),
    ):  # fmt: skip
        export.add("DIAGNOSTIC_EVENT", severity=severity, text=text)
    trace = read_nsys(str(export.write()), "node")
    assert trace.warnings == ("Not all CUDA events might have been collected.",)


def test_nothing_of_the_environment_is_read(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite")
    export.kernel("k", 2000, 700)
    export.add("TARGET_INFO_SYSTEM_ENV", name="DeviceEnvironment", value="TOKEN=secret")
    trace = read_nsys(str(export.write()), "node")
    assert "secret" not in repr(trace)
    assert b"secret" not in trace.strings.blob


# Finding


def test_reports_of_one_run_are_one_session(tmp_path: Path) -> None:
    for rank in range(2):
        export = training(tmp_path / "job" / f"report.rank{rank}.sqlite", pids=(100 + rank,))
        export.add("ANALYSIS_DETAILS", duration=2_000_000_000)
        export.write()
    (session,) = find_sessions(str(tmp_path)).sessions
    assert [file.format for file in session.files] == ["nsys", "nsys"]
    assert session.started_unix_s == pytest.approx(START_UNIX_NS / 1e9)


def test_a_report_that_was_not_exported_is_listed_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "report1.nsys-rep").write_bytes(b"\x00NSYS")
    training(tmp_path / "report2.sqlite").write()
    (tmp_path / "report2.nsys-rep").write_bytes(b"\x00NSYS")
    sessions = find_sessions(str(tmp_path)).sessions
    problems = {os.path.basename(file.path): file.problem for s in sessions for file in s.files}
    assert problems.keys() == {"report1.nsys-rep", "report2.sqlite"}
    problem = problems["report1.nsys-rep"]
    assert problem is not None and problem.code == "nsys_report"
    single = find_sessions(str(tmp_path / "report1.nsys-rep")).sessions[0]
    with pytest.raises(ProfileError, match="nsys_report"):
        read_trace(single.files[0])


def test_other_databases_are_no_profiles(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "history.sqlite")
    connection.execute("CREATE TABLE runs (id INTEGER)")
    connection.commit()
    connection.close()
    assert find_sessions(str(tmp_path)).sessions == ()
    with pytest.raises(ProfileError, match="not_nsys"):
        read_nsys(str(tmp_path / "history.sqlite"), "node")


# Hostile and damaged files

ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    'SELECT i AS start, i AS "end", 0 AS deviceId FROM n'
)


def test_views_in_place_of_tables_are_not_read(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite")
    export.copy(1000, 10, 1, 0, 2)
    export.write([f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {ENDLESS}", f"CREATE VIEW NVTX_EVENTS AS {ENDLESS}"])
    trace = read_nsys(str(export.path), "node")
    assert len(trace.device_events) == 1


def test_generated_columns_are_not_read(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite")
    export.copy(1000, 10, 1, 0, 2)
    export.write([
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL "
        "(start INTEGER, \"end\" INTEGER AS (zeroblob(900000000)), deviceId INTEGER)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, deviceId) VALUES (1, 0)",
    ])  # fmt: skip
    assert len(read_nsys(str(export.path), "node").device_events) == 1


def test_values_of_wrong_types_cost_no_more_than_themselves(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite")
    export.kernel("k", 2000, 700)
    export.write()
    with sqlite3.connect(export.path) as connection:
        connection.execute(
            'INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, "end", deviceId, streamId, gridX) '
            "VALUES ('abc', x'00ff', 1.5, 'x', -3)"
        )
        connection.execute(
            'INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, "end", deviceId, streamId) VALUES (9e18, 9.2e18, 0, 7)'
        )
        connection.execute('INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, "end", deviceId) VALUES (500, 400, 0)')
    trace = read_nsys(str(export.path), "node")
    assert "k" in names(trace)
    assert (trace.device_events.duration >= 0).all()
    assert {note.code for note in trace.notes} == {"implausible_times", "negative_durations"}


def test_text_that_is_no_utf8_is_shown(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite")
    export.kernel("k", 2000, 700)
    export.write()
    with sqlite3.connect(export.path) as connection:
        connection.execute("UPDATE StringIds SET value = CAST(x'cfe5f0e2' AS TEXT)")
    assert names(read_nsys(str(export.path), "node")) == ["\ufffd" * 4]


def test_missing_strings_are_shown_as_numbers(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite")
    export.kernel("k", 2000, 700)
    export.write()
    with sqlite3.connect(export.path) as connection:
        connection.execute("DELETE FROM StringIds")
    assert names(read_nsys(str(export.path), "node")) == ["[0]"]


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = training(tmp_path / "a.sqlite", steps=60).write()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ProfileError, match="bad_database"):
        read_nsys(str(path), "node")
    path.write_bytes(bytes(4096) + whole[4096:])
    with pytest.raises(ProfileError, match="not_nsys"):
        read_nsys(str(path), "node")


@cache
def sound_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return training(Path(folder) / "a.sqlite", steps=3).write().read_bytes()


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_damage_anywhere_raises_nothing_else(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    content = bytearray(sound_bytes())
    for _ in range(data.draw(st.integers(1, 20))):
        content[data.draw(st.integers(16, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = folder / "b.sqlite"
    path.write_bytes(bytes(content))
    try:
        trace = read_nsys(str(path), "node")
    except ProfileError:
        return
    assert (trace.device_events.duration >= 0).all()


def test_nothing_is_made_beside_a_file(tmp_path: Path) -> None:
    path = training(tmp_path / "a.sqlite").write()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    before = sorted(os.listdir(tmp_path))
    tmp_path.chmod(0o500)
    try:
        assert len(read_nsys(str(path), "node").device_events) == 120
    finally:
        tmp_path.chmod(0o700)
    assert sorted(os.listdir(tmp_path)) == before


# Recorded files: counts by an independent sweep, in microseconds

GOLDEN = [
    # folder, GPU, kernels and graphs, copies, memsets, span, compute, communication, copies, idle
    ("nsys_cuda_graph_rtx3060", 0, 5, 1, 0, 186.815, 6.944, 0, 0.864, 179.007),
    ("nsys_gh200_jacobi_2023", 0, 1001, 3001, 1002, 2105455.786, 2071933.547, 0, 10252.607, 23269.632),
    ("nsys_mpi_a100_2022", 0, 5, 15, 0, 1097327.843, 88573.480, 0, 284699.600, 724054.763),
    ("nsys_pytorch_2xh100_nccl", 0, 1993, 510, 133, 299848.812, 253690.832, 17172.652, 2954.303, 26031.025),
    ("nsys_pytorch_2xh100_nccl", 1, 2017, 510, 136, 298661.551, 256095.624, 8229.100, 2951.192, 31385.635),
    ("nsys_pytorch_2xh100_transfers", 0, 1721, 452, 11, 969447.605, 22385.163, 0, 940505.084, 6557.358),
    ("nsys_pytorch_2xh100_transfers", 1, 1721, 452, 11, 969258.578, 22444.359, 0, 940366.346, 6447.873),
    ("nsys_pytorch_train_windows", 0, 4485, 113, 130, 849398.272, 34869.183, 0, 50293.026, 764236.063),
    ("nsys_rtx6000_2021", 0, 12, 48, 12, 15034.676, 8544.420, 0, 135.960, 6354.296),
]  # fmt: skip


@pytest.mark.parametrize(
    ("folder", "gpu", "kernels", "copies", "memsets", "span", "compute", "communication", "moved", "idle"), GOLDEN
)
def test_recorded_files_count_as_a_sweep_does(
    folder: str, gpu: int, kernels: int, copies: int, memsets: int, span: float, compute: float, communication: float,
    moved: float, idle: float,
) -> None:  # fmt: skip
    path = SHARED_TRACES / folder / "report.sqlite"
    if not path.is_file():
        pytest.skip("recorded traces are not here")
    trace = read_nsys(str(path), "host")
    events = trace.device_events
    rows = events.of_device(next(device.index for device in trace.devices if device.id == gpu))
    klass = events.klass[rows]
    counts = np.bincount(klass, minlength=4).tolist()
    assert (counts[0] + counts[1], counts[2], counts[3]) == (kernels, copies, memsets)
    start, end = events.start[rows], events.end[rows]

    def covered(mask: np.ndarray) -> float:
        return intervals.measure(intervals.union(start[mask], end[mask])) / 1e6

    whole, busy = (int(end.max()) - int(start.min())) / 1e6, covered(klass >= 0)
    own, sent = covered(klass == EventClass.COMPUTE), covered(klass <= EventClass.COMMUNICATION)
    assert [whole, own, sent - own, busy - sent, whole - busy] == pytest.approx(
        [span, compute, communication, moved, idle], abs=1e-3
    )


def test_a_file_without_cuda_has_no_gpu() -> None:
    path = SHARED_TRACES / "nsys_no_cuda_2022" / "report.sqlite"
    if not path.is_file():
        pytest.skip("recorded traces are not here")
    trace = read_nsys(str(path), "host")
    assert trace.devices == ()
    assert len(trace.host_events) > 0
