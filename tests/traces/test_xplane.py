"""From a file to a trace: real files against protobuf's parser, written ones in every state that a file can have."""

from __future__ import annotations

import gzip
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.xplane_writer import Plane, Ref, Space, Unsigned
from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.kernels import kernel_table
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces.columns import OTHER_ACCELERATORS, PART, CopyKind, EventClass, Trace
from tb_gpu_doctor.traces.xplane import MAX_DEVICES, MAX_THREADS, read_xplane
from tests.real_traces import XPLANE_FOLDERS, real_trace, xplane_path

DAY_NS = 24 * 3600 * 10**9
HOST_STATS = {"device_vendor": "Nvidia", "core_count": Unsigned(132)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node-3.xplane.pb"


def read(path: Path, space: Space) -> Trace:
    path.write_bytes(space.encode())
    return read_xplane(str(path))


def gpu(space: Space, number: int = 0, stats: dict[str, Any] | None = None) -> Plane:
    return space.plane(f"/device:GPU:{number}", number + 1, HOST_STATS if stats is None else stats)


def names(trace: Trace) -> list[str]:
    return [trace.strings[i] for i in trace.device_events.name.tolist()]


def notes(trace: Trace) -> dict[str, int]:
    return {note.code: note.params["count"] for note in trace.notes}


# -- against protobuf's parser -------------------------------------------------------------


@pytest.mark.parametrize("folder", XPLANE_FOLDERS)
def test_real_files_event_for_event(folder: str) -> None:
    """Every device and host event with its place, times, name and correlation, and nothing else."""
    pb2 = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    space = pb2.XSpace()
    space.ParseFromString(xplane_path(folder).read_bytes())
    device: Counter[tuple[Any, ...]] = Counter()
    host: Counter[tuple[Any, ...]] = Counter()
    for plane in space.planes:
        stat_names = {key: meta.name for key, meta in plane.stat_metadata.items()}
        on_gpu = plane.name.startswith("/device:GPU:")
        if not on_gpu and plane.name != "/host:CPU":
            continue
        for line in plane.lines:
            if on_gpu and not line.name.startswith("Stream #"):
                continue
            for event in line.events:
                stats = {stat_names[s.metadata_id]: s for s in event.stats}
                if any(name.lower().startswith(("memalloc", "memfree", "memoryresidency")) for name in stats):
                    continue
                assert event.WhichOneof("data") != "num_occurrences"
                stat = stats.get("correlation_id")
                correlation = getattr(stat, stat.WhichOneof("value")) if stat is not None else -1
                where = int(plane.name.rsplit(":", 1)[1]) if on_gpu else -1
                row = (
                    where, line.id, line.timestamp_ns * 1000 + event.offset_ps, event.duration_ps,
                    plane.event_metadata[event.metadata_id].name, correlation,
                )  # fmt: skip
                (device if on_gpu else host)[row] += 1
    trace = real_trace(folder)
    d, h = trace.device_events, trace.host_events
    ours = Counter(
        (trace.devices[d.device[i]].id, trace.streams[d.stream[i]].line_id, int(d.start[i]), int(d.duration[i]),
         trace.strings[d.name[i]], int(d.correlation[i]))
        for i in range(len(d))
    )  # fmt: skip
    assert ours == device
    ours = Counter(
        (-1, trace.threads[h.thread[i]].line_id, int(h.start[i]), int(h.duration[i]), trace.strings[h.name[i]],
         int(h.correlation[i]))
        for i in range(len(h))
    )  # fmt: skip
    assert ours == host
    assert [dev.id for dev in trace.devices] == sorted(
        int(p.name.rsplit(":", 1)[1]) for p in space.planes if p.name.startswith("/device:GPU:")
    )
    assert (list(trace.errors), list(trace.warnings)) == (list(space.errors), list(space.warnings))


def test_empty_gpus_are_listed_all_the_same() -> None:
    trace = real_trace("tf_bert_8gpu")
    assert [d.id for d in trace.devices] == list(range(8))
    busy = {trace.devices[i].id for i in np.unique(trace.device_events.device).tolist()}
    assert busy == {1, 4, 6}


def test_real_devices() -> None:
    bert = real_trace("tf_bert_8gpu").devices[0]
    assert (bert.sm_count, bert.compute_capability, bert.is_nvidia) == (80, (7, 0), True)
    amd = real_trace("jax_conv_8xmi300x").devices[0]
    assert not amd.is_nvidia
    few = real_trace("jax_te_attention").devices
    assert all(d.sm_count is None and d.compute_capability is None for d in few[1:])


def test_real_copies() -> None:
    trace = real_trace("tf_bert_8gpu")
    events = trace.device_events
    copies = events.klass == EventClass.COPY
    assert {CopyKind(k) for k in np.unique(events.copy_kind[copies]).tolist()} <= {
        CopyKind.H2D, CopyKind.D2H, CopyKind.D2D,
    }  # fmt: skip
    assert (events.copy_bytes[copies] > 0).all()


# -- what a file may hold ------------------------------------------------------------------


def test_operations_and_bytes_are_kept_where_they_are(path: Path) -> None:
    space = Space()
    # the later GPU first, events out of order: the rows must be those of the sorted events
    for ident in (1, 0):
        line = gpu(space, ident, {"peak_teraflops_per_second": 989.5}).line(7, "Stream #7(Compute)")
        line.event(f"late{ident}", 300, 10, {"flops": Unsigned(7 + ident), "bytes_accessed": 70 + ident})
        line.event(f"early{ident}", 100, 10, {"flops": 5 + ident})
        line.event(f"none{ident}", 200, 10, {"bytes_accessed": -3})
    path.write_bytes(space.encode())
    trace = read_xplane(str(path))
    events = trace.device_events
    named = {
        name: {trace.strings[events.name[row]]: value for row, value in zip(stat.rows, stat.values, strict=True)}
        for name, stat in trace.device_stats.items()
    }
    assert named == {
        "flops": {"early0": 5, "late0": 7, "early1": 6, "late1": 8},
        "bytes_accessed": {"late0": 70, "late1": 71},
    }
    assert [device.peak_flops_per_s for device in trace.devices] == [989.5e12] * 2


@pytest.mark.parametrize("peak", [0.0, -1.0, float("nan"), float("inf"), 1e9, b"fast"])
def test_a_peak_that_no_gpu_has_is_unknown(path: Path, peak: float | bytes) -> None:
    space = Space()
    gpu(space, 0, {"peak_teraflops_per_second": peak}).line(7, "Stream #7").event("k", 0, 1)
    path.write_bytes(space.encode())
    trace = read_xplane(str(path))
    assert trace.devices[0].peak_flops_per_s is None and trace.device_stats == {}


def test_a_written_trace_comes_back(path: Path) -> None:
    space = Space(hostnames=("host-9",), warnings=("w",), errors=("e",))
    plane = gpu(
        space, 2,
        {
            "device_vendor": "Nvidia", "gpu_device_name": "NVIDIA H100", "clock_rate": Unsigned(1_980_000),
            "core_count": Unsigned(132), "memory_bandwidth": Unsigned(3_352_000_000_000),
            "memory_size": Unsigned(85_000_000_000), "compute_cap_major": Unsigned(9), "compute_cap_minor": 0,
        },
    )  # fmt: skip
    line = plane.line(13, "Stream #13(Compute)", 7)
    details = "regs:32 static_shared:0 dynamic_shared:0 grid:4,1,1 block:128,1,1 occ_pct:50"
    line.event(
        "sgemm", 100, 50,
        {"correlation_id": Unsigned(5), "kernel_details": Ref(details), "theoretical_occupancy_pct": 50.0,
         "tf_op": "a/MatMul:MatMul", "hlo_op": "dot.1", "hlo_module": "jit_f", "group_id": 3, "cuda_graph_id": 8},
    )  # fmt: skip
    line.event("add", 200, 0, {"correlation_id": 6, "kernel_details": details, "theoretical_occupancy_pct": 0.0})
    line.event("MemcpyH2D", 300, 20, {"memcpy_details": "kind_src:pinned kind_dst:device size:64 dest:2 async:1"})
    line.event("MemcpyP2P", 400, 20, {"memcpy_details": "kind_src:device kind_dst:device size:96 dest:1 async:0"})
    line.event("Memset", 500, 5, {"memset_details": "kind:Device num_bytes:256 async:1"})
    line.event("ncclDevKernel_AllReduce", 600, 10)
    host = space.plane("/host:CPU")
    thread = host.line(-559, "", 3, "python")
    thread.event("train", 0, 900, {"step_num": 4, "_r": 1, "group_id": 3})
    thread.event("cuLaunchKernel", 10, 20, {"correlation_id": 5, "_pt": 1, "_p": 2, "_ct": 3, "_c": 4})
    space.plane(
        "Task Environment",
        stats={"profile_start_time": Unsigned(10**18), "profile_stop_time": Unsigned(10**18 + 5000)},
    )
    trace = read(path, space)
    (device,) = trace.devices
    assert (device.id, device.name, device.vendor) == (2, "NVIDIA H100", "Nvidia")
    assert (device.sm_count, device.clock_khz, device.compute_capability) == (132, 1_980_000, (9, 0))
    assert (device.memory_size_bytes, device.memory_bandwidth_bytes_per_s) == (85_000_000_000, 3_352_000_000_000)
    d = trace.device_events
    assert names(trace) == ["sgemm", "add", "MemcpyH2D", "MemcpyP2P", "Memset", "ncclDevKernel_AllReduce"]
    assert (d.start - 7000).tolist() == [100, 200, 300, 400, 500, 600]
    assert d.duration.tolist() == [50, 0, 20, 20, 5, 10]
    assert [EventClass(k).name for k in d.klass.tolist()] == [
        "COMPUTE", "COMPUTE", "COPY", "COMMUNICATION", "MEMSET", "COMMUNICATION",
    ]  # fmt: skip
    assert [CopyKind(k).name for k in d.copy_kind.tolist()] == ["NONE", "NONE", "H2D", "P2P", "NONE", "NONE"]
    assert d.copy_bytes.tolist() == [-1, -1, 64, 96, 256, -1]
    assert d.copy_async.tolist()[:4] == [-1, -1, 1, 0]
    assert d.copy_memory.tolist() == [-1, -1, 0, -1, -1, -1]
    assert d.correlation.tolist() == [5, 6, -1, -1, -1, -1]
    assert (d.group.tolist()[0], d.graph.tolist()[0]) == (3, 8)
    assert trace.strings[d.details[0]] == trace.strings[d.details[1]] == details
    assert d.details[0] == d.details[1]  # interned, whether text or reference
    assert [trace.strings[i] for i in (d.op[0], d.hlo_op[0], d.hlo_module[0])] == ["a/MatMul:MatMul", "dot.1", "jit_f"]
    assert d.occupancy_pct[0] == 50 and np.isnan(d.occupancy_pct[1])
    h = trace.host_events
    assert (trace.threads[0].name, trace.threads[0].line_id) == ("python", -559)
    assert h.step_num.tolist() == [4, -1] and (h.is_root == 1).tolist() == [True, False]
    assert (h.producer_type[1], h.producer_id[1], h.consumer_type[1], h.consumer_id[1]) == (1, 2, 3, 4)
    assert h.start.tolist() == [3000, 3010] and h.correlation.tolist() == [-1, 5]
    assert trace.recorded == (0, 5_000_000) and trace.wall_start_unix_ns == 10**18
    assert (trace.host, trace.warnings, trace.errors) == ("node-3", ("w",), ("e",))
    assert trace.notes == ()


def test_host_only(path: Path) -> None:
    space = Space()
    space.plane("/host:CPU").line(1, "python").event("train", 0, 10)
    trace = read(path, space)
    assert trace.devices == () and len(trace.device_events) == 0 and len(trace.host_events) == 1
    assert analyse(trace).window is None


def test_gpu_planes_without_lines(path: Path) -> None:
    space = Space(errors=("Insufficient privilege to run libcupti (you need root permission).",))
    for i in range(4):
        gpu(space, i)
    trace = read(path, space)
    assert [d.id for d in trace.devices] == [0, 1, 2, 3]
    assert len(trace.device_events) == len(trace.streams) == 0
    assert analyse(trace).accounting == ()


def test_nothing_but_an_error(path: Path) -> None:
    trace = read(path, Space(errors=("No GPU detected.",)))
    assert trace.errors == ("No GPU detected.",)


def test_device_stats_missing(path: Path) -> None:
    space = Space()
    gpu(space, stats={}).line(1, "Stream #1").event("k", 0, 10)
    (device,) = read(path, space).devices
    assert (device.name, device.vendor, device.sm_count, device.compute_capability) == (None, None, None, None)
    assert device.memory_size_bytes is device.clock_khz is device.memory_bandwidth_bytes_per_s is None


@pytest.mark.parametrize(
    "value", [0, -1, Unsigned(2**64 - 1), 2**62, float("nan"), float("inf"), -0.5, 1e300, "many", b"\xff\xfe"]
)
def test_garbage_in_device_stats_is_unknown(path: Path, value: Any) -> None:
    space = Space()
    keys = ("core_count", "clock_rate", "memory_bandwidth", "memory_size", "compute_cap_major", "compute_cap_minor")
    gpu(space, stats=dict.fromkeys(keys, value)).line(1, "Stream #1").event("k", 0, 10)
    (device,) = read(path, space).devices
    assert device.sm_count is device.clock_khz is device.compute_capability is None
    assert device.memory_size_bytes is device.memory_bandwidth_bytes_per_s is None


def test_garbage_in_event_stats(path: Path) -> None:
    space = Space()
    line = gpu(space).line(1, "Stream #1")
    for i, value in enumerate((float("nan"), float("inf"), 1e308, -5.0, 250.0, "x", b"\xff", 2**63 - 1)):
        line.event("k", 10 * i, 5, {
            "theoretical_occupancy_pct": value, "correlation_id": value, "group_id": value, "cuda_graph_id": value,
            "kernel_details": "regs:2191500840 shm:-4 grid:x block:9999,1,1", "tf_op": b"\xff\x00",
        })  # fmt: skip
    host = space.plane("/host:CPU").line(1, "python")
    host.event("launch", 0, 1, {"correlation_id": "NaN", "step_num": -7, "_r": 1, "_p": 2**63 - 1, "_pt": -1})
    trace = read(path, space)
    assert np.isnan(trace.device_events.occupancy_pct).all()
    assert len(trace.device_events) == 8
    result = analyse(trace)
    assert result.accounting[0].compute == 40
    assert all(row.registers is None for row in result.kernels.rows)


def test_zero_and_negative_durations(path: Path) -> None:
    space = Space()
    line = gpu(space).line(1, "Stream #1")
    line.event("zero", 0, 0)
    line.event("negative", 5, -10)
    line.event("good", 20, 10)
    host = space.plane("/host:CPU").line(1, "python")
    host.event("negative", 0, -1)
    trace = read(path, space)
    assert names(trace) == ["zero", "good"]
    assert notes(trace) == {"negative_durations": 2}
    assert len(trace.host_events) == 0
    assert analyse(trace).accounting[0].compute == 10


def test_negative_offsets_are_times_before_the_lines_start(path: Path) -> None:
    space = Space()
    gpu(space).line(1, "Stream #1", 5).event("early", -2000, 10)
    assert read(path, space).device_events.start.tolist() == [3000]


def test_overlaps_inside_a_stream(path: Path) -> None:
    space = Space()
    line = gpu(space).line(1, "Stream #1(Compute)")
    for start, length in ((0, 100), (10, 20), (50, 100), (50, 100)):
        line.event("k", start, length)
    (parts,) = analyse(read(path, space)).accounting
    assert (parts.compute, parts.idle, parts.wall) == (150, 0, 150)


def test_events_without_a_start_are_no_intervals(path: Path) -> None:
    space = Space()
    line = gpu(space).line(1, "Stream #1")
    line.occurrences("counted", 17, 5000)
    line.event("good", 20, 10)
    trace = read(path, space)
    assert names(trace) == ["good"]


@pytest.mark.parametrize("first", [True, False])
def test_times_beyond_seven_days_are_left_out(path: Path, first: bool) -> None:
    space = Space()
    plane = gpu(space)
    if first:
        plane.line(9, "Stream #9(Compute)", 10 * DAY_NS).event("late line", 0, 10)
    line = plane.line(13, "Stream #13(Compute)", 1000)
    for i in range(20):
        line.event("good", 100 * i, 50)
    line.event("late", 8 * DAY_NS * 1000, 10)
    line.event("long", 5000, 8 * DAY_NS * 1000)
    line.event("early", -8 * DAY_NS * 1000, 10)
    line.event("never", 2**63 - 1, 2**63 - 1)
    line.event("before all", -(2**63), 2**63 - 1)
    if not first:
        plane.line(9, "Stream #9(Compute)", 10 * DAY_NS).event("late line", 0, 10)
        plane.line(10, "Stream #10(Compute)", 2**63 - 1).event("impossible line", 0, 10)
        plane.line(11, "Stream #11(Compute)", -(2**63)).event("impossible line", 0, 10)
    trace = read(path, space)
    assert set(names(trace)) == {"good"} and len(trace.device_events) == 20
    assert notes(trace) == {"implausible_times": 6 if first else 8}
    assert analyse(trace).window is not None


def test_a_gpu_whose_clock_is_wrong_does_not_hide_the_others(path: Path) -> None:
    space = Space()
    gpu(space, 0).line(9, "Stream #9(Compute)", 10 * DAY_NS).event("late", 0, 10)
    line = gpu(space, 1).line(13, "Stream #13(Compute)", 1000)
    for i in range(20):
        line.event("good", 100 * i, 50)
    space.plane("/host:CPU").line(1, "python", 900).event("train", 0, 10_000)
    trace = read(path, space)
    assert set(names(trace)) == {"good"} and len(trace.host_events) == 1
    assert notes(trace) == {"implausible_times": 1}


def test_files_that_were_not_normalised(path: Path) -> None:
    """Line timestamps as epoch nanoseconds: host and device keep their distance, to the picosecond."""
    now = 1_772_442_845_123_456_789
    space = Space()
    gpu(space).line(13, "Stream #13(Compute)", now + 5_000_000).event("k", 7, 50, {"correlation_id": 1})
    space.plane("/host:CPU").line(1, "python", now).event("cuLaunchKernel", 11, 50, {"correlation_id": 1})
    space.plane(
        "Task Environment",
        stats={"profile_start_time": Unsigned(now), "profile_stop_time": Unsigned(now + 10_000_000)},
    )
    trace = read(path, space)
    assert trace.device_events.start[0] - trace.host_events.start[0] == 5_000_000_000 - 4
    assert abs(int(trace.host_events.start[0])) < 7 * DAY_NS * 1000
    assert notes(trace) == {}


def test_host_and_device_lines_have_their_own_zero(path: Path) -> None:
    space = Space()
    gpu(space).line(13, "Stream #13(Compute)", 216_823).event("k", 1, 50)
    space.plane("/host:CPU").line(1, "python", 138_006).event("x", 2, 50)
    trace = read(path, space)
    assert (trace.device_events.start[0], trace.host_events.start[0]) == (216_823_001, 138_006_002)


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        "a\x00b\x1b[31mred\r\n\t",
        "x" * 100_000,
        "größe 你好 🙂",
        "",
        "%s{0}$&",
        "\u202eevil",
    ],
)
def test_any_name(path: Path, name: str) -> None:
    space = Space(hostnames=(name,), warnings=(name,), errors=(name,))
    plane = gpu(space, stats={"device_vendor": name, "gpu_device_name": name})
    plane.line(1, "Stream #1", display_name=name).event(
        name, 0, 10, {"tf_op": name, "kernel_details": name, "memcpy_details": name, "hlo_op": name}
    )
    plane.line(2, name).event(name, 0, 10)
    space.plane("/host:CPU").line(1, name, display_name=name).event(name, 0, 10)
    space.plane(name).line(1, name).event(name, 0, 10)
    trace = read(path, space)
    assert names(trace) == [name]
    assert trace.strings[trace.host_events.name[0]] == name
    assert trace.devices[0].name is None or len(trace.devices[0].name) <= 1024
    analyse(trace)


def test_names_that_are_no_text(path: Path) -> None:
    space = Space()
    plane = gpu(space)
    plane.line(1, "Stream #1").event("QQQQ", 0, 10)
    path.write_bytes(space.encode().replace(b"QQQQ", b"\xff\xfe\xc3\x28"))
    assert names(read_xplane(str(path))) == ["\ufffd\ufffd\ufffd("]


def test_planes_and_lines_of_one_name_and_id_are_one(path: Path) -> None:
    space = Space()
    for start in (0, 100):
        plane = gpu(space, 0)
        plane.line(13, "Stream #13(Compute)").event("a", start, 10)
        plane.line(13, "Stream #13(Compute)").event("b", start + 50, 10)
        plane.line(-13, "Stream #14(Compute)").event("c", start + 70, 10)
        host = space.plane("/host:CPU")
        host.line(-5, "python", display_name="python").event("x", start, 10)
        host.line(-5, "python").event("y", start + 20, 10)
    trace = read(path, space)
    assert [d.id for d in trace.devices] == [0]
    assert sorted(s.line_id for s in trace.streams) == [-13, 13]
    assert names(trace) == ["a", "b", "c", "a", "b", "c"]
    assert len(trace.threads) == 1 and len(trace.host_events) == 4


def test_gpus_are_ordered_by_their_number(path: Path) -> None:
    space = Space()
    for number in (10, 2, 0, 7):
        gpu(space, number).line(1, "Stream #1").event(f"k{number}", number, 10)
    trace = read(path, space)
    assert [d.id for d in trace.devices] == [0, 2, 7, 10]
    assert [d.index for d in trace.devices] == [0, 1, 2, 3]
    assert names(trace) == ["k0", "k2", "k7", "k10"]
    for i in range(4):
        stream = trace.streams[trace.device_events.stream[i]]
        assert stream.device == trace.device_events.device[i] == i


def test_derived_lines_and_memory_events_are_no_work(path: Path) -> None:
    space = Space()
    plane = gpu(space)
    plane.line(1, "Stream #1(Compute)").event("k", 0, 10)
    for i, name in enumerate(
        ("Steps", "XLA Ops", "XLA Modules", "Framework/TensorFlow Ops", "Launch Stats", "Source code",
         "Steps - from #1", "CUPTI overhead", "_counters_", "Stream #2(MemoryResidency)", "Stream #3(UnifiedMemory)")
    ):  # fmt: skip
        plane.line(100 + i, name).event("repeated", 0, 1000)
    plane.line(0x10000000 + 1, "Stream #268435457").event("page fault", 0, 1000)
    mixed = plane.line(5, "Stream #5(Compute,MemoryAlloc)")
    mixed.event("alloc", 0, 1000, {"memalloc_details": "kind:Device num_bytes:5"})
    mixed.event("free", 0, 1000, {"MemFree_details": "num_bytes:5"})
    mixed.event("lives", 0, 1000, {"MemoryResidency_details": "num_bytes:5"})
    mixed.event("k", 20, 10)
    plane.line(0xDEADBEEF, "Steps").event("1", 0, 1000)
    plane.line(-559038737, "Steps").event("1", 0, 1000)
    trace = read(path, space)
    assert names(trace) == ["k", "k"]


def test_other_planes_are_left_alone(path: Path) -> None:
    space = Space()
    for name in ("/host:metadata", "/host:__ScopeRangeCallStack__", "/device:CUSTOM:x", "/device:TPU:0", "#Chip", ""):
        space.plane(name).line(1, "Stream #1").event("x", 0, 10)
    gpu(space).line(1, "Stream #1").event("k", 0, 10)
    trace = read(path, space)
    assert names(trace) == ["k"] and len(trace.host_events) == 0 and len(trace.devices) == 1


def test_the_host_can_be_given(path: Path) -> None:
    space = Space()
    gpu(space)
    path.write_bytes(space.encode())
    assert read_xplane(str(path), host="other").devices[0].host == "other"


def test_progress(path: Path) -> None:
    space = Space()
    for i in range(5):
        gpu(space, i).line(1, "Stream #1").event("k", 0, 10)
    path.write_bytes(space.encode())
    seen: list[float] = []
    read_xplane(str(path), progress=seen.append)
    assert seen == sorted(seen) and len(seen) == 5 and seen[-1] == 1.0


# -- bad files -----------------------------------------------------------------------------


def code_of(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(ProfileError) as error:
        read_xplane(str(path))
    assert error.value.path == str(path)
    return error.value.code


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty_file"),
        (b"just some text, renamed to look like a profile\n", "not_xplane"),
        (b"Lorem ipsum dolor sit amet, consectetur adipiscing elit.\n" * 200, "not_xplane"),
        (b'{"traceEvents": []}', "not_xplane"),
        (gzip.compress(b"profile" * 100, mtime=0), "not_xplane"),
        (b"\xff" * 500, "not_xplane"),
        (b"\0" * 500, "not_xplane"),
        (b"\x0a\x05hello", "not_xplane"),
        (b"\x0a\x00" * 50, "not_xplane"),
    ],
)
def test_files_that_are_something_else(path: Path, content: bytes, code: str) -> None:
    assert code_of(path, content) == code


def test_missing_path_and_folder(tmp_path: Path) -> None:
    for where, code in ((tmp_path / "nowhere", "missing_path"), (tmp_path, "io_error")):
        with pytest.raises(ProfileError) as error:
            read_xplane(str(where))
        assert (error.value.code, error.value.path) == (code, str(where))


def test_a_path_with_a_null_character() -> None:
    with pytest.raises(ProfileError):
        read_xplane("a\0b.xplane.pb")


@pytest.mark.slow
def test_truncated_anywhere(path: Path, demo_logs: Path) -> None:
    """Cut at a thousand places, a file is never half a diagnosis without a word, and never a crash."""
    content = next(demo_logs.glob("healthy/**/*.xplane.pb")).read_bytes()
    draw = random.Random(5)
    sizes = {1, 2, 3, 10, 100, len(content) - 1, *(draw.randrange(1, len(content)) for _ in range(100))}
    ends: Counter[str] = Counter()
    for size in sorted(size for size in sizes if size > 10):
        path.write_bytes(content[:size])
        try:
            trace = read_xplane(str(path))
        except ProfileError as error:
            ends[error.code] += 1
        else:
            assert [note.key for note in trace.notes] == [PART]
            ends["part"] += 1
    assert set(ends) <= {"truncated", "malformed", "part"} and ends["malformed"] <= 0.05 * sum(ends.values())


def test_whole_planes_in_front_of_a_cut_are_read(path: Path) -> None:
    space = Space()
    for number in range(3):
        line = gpu(space, number).line(1, "Stream #1")
        for at in range(50):
            line.event("kernel", at * 1000, 500)
    content = space.encode()
    path.write_bytes(content[: len(content) - 100])
    trace = read_xplane(str(path))
    assert [device.id for device in trace.devices] == [0, 1] and len(trace.device_events) == 100
    (note,) = trace.notes
    assert note.key == PART and note.params == {"count": 100, "host": "node-3"}


@pytest.mark.parametrize(("plane", "kind"), [("/device:TPU:{}", "TPU"), ("/device:CUSTOM:npu:{}", "npu")])
def test_accelerators_that_are_no_gpus_are_named(path: Path, plane: str, kind: str) -> None:
    space = Space()
    for number in range(4):
        space.plane(plane.format(number), number + 1)
    space.plane("/host:CPU", 9)
    trace = read(path, space)
    (note,) = trace.notes
    assert (note.key, note.params) == (OTHER_ACCELERATORS, {"count": 4, "kind": kind}) and not trace.devices


@pytest.mark.parametrize("damage", [lambda data: data.decode("utf-8", "replace"), lambda data: data.decode("latin-1")])
def test_a_file_that_was_saved_as_text(path: Path, demo_logs: Path, damage: Callable[[bytes], str]) -> None:
    content = next(demo_logs.glob("slow_gpu/**/*.xplane.pb")).read_bytes()
    assert code_of(path, damage(content).encode()) == "saved_as_text"


@given(st.binary(max_size=300))
def test_random_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "random.xplane.pb"
    path.write_bytes(content)
    try:
        trace = read_xplane(str(path))
    except ProfileError as error:
        assert error.path == str(path)
    else:
        analyse(trace)


@pytest.mark.slow
def test_damaged_bytes_give_an_error_or_a_trace_that_adds_up(path: Path) -> None:
    space = Space(warnings=("w",))
    for number in range(2):
        line = gpu(space, number).line(13, "Stream #13(Compute)", 50)
        for i in range(8):
            line.event(f"k{i}", 1000 * i, 400, {"correlation_id": 10 * number + i + 1, "kernel_details": "regs:3"})
    host = space.plane("/host:CPU").line(1, "python", 40)
    for i in range(16):
        host.event("cuLaunchKernel", 900 * i, 50, {"correlation_id": i + 1, "step_num": i, "_r": 1})
    content = space.encode()
    draw = random.Random(11)
    read_well = 0
    for _ in range(400):
        damaged = bytearray(content)
        for _ in range(draw.randrange(1, 6)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        path.write_bytes(bytes(damaged))
        try:
            trace = read_xplane(str(path))
        except ProfileError as error:
            assert error.path == str(path)
            continue
        read_well += 1
        for parts in analyse(trace).accounting:
            assert sum(parts.idle_by_cause) == parts.idle >= 0
            assert parts.busy + parts.idle == parts.wall
    assert read_well > 50


def test_more_gpus_than_any_host_has_are_refused(path: Path) -> None:
    space = Space()
    for number in range(MAX_DEVICES + 1):
        gpu(space, number)
    with pytest.raises(ProfileError, match="too_many_events") as caught:
        read(path, space)
    assert caught.value.path == str(path)


def test_more_threads_than_any_program_has_are_refused(path: Path) -> None:
    space = Space()
    plane = space.plane("/host:CPU")
    for number in range(MAX_THREADS + 1):
        plane.line(number, "t").event("e", 0, 1)
    with pytest.raises(ProfileError, match="too_many_events"):
        read(path, space)


def test_a_long_name_with_very_many_ops_is_looked_at_once(path: Path) -> None:
    space = Space()
    stream = gpu(space).line(7, "Stream #7(Compute)")
    for number in range(20_000):
        stream.event("a" * 4_000, number * 10, 5, {"hlo_op": f"fusion.{number}", "tf_op": f"a/b:Op{number}"})
    stream.event("a" * 4_000, 10**6, 5, {"hlo_op": "all-reduce.1"})
    began = time.process_time()
    trace = read(path, space)
    table = kernel_table(trace, None)
    assert time.process_time() - began < 5  # a search for each pair takes half a minute
    assert np.flatnonzero(trace.device_events.klass == EventClass.COMMUNICATION).tolist() == [20_000]
    assert len(table.rows) == 1 and table.rows[0].calls == 20_001


def test_sizes_that_no_copy_can_have_are_unknown(path: Path) -> None:
    space = Space()
    stream = gpu(space).line(7, "Stream #7(MemcpyH2D)")
    for number, size in enumerate((100, 1 << 46, (1 << 46) + 1, 999_999_999_999_999_999)):
        details = f"kind_src:pageable kind_dst:device size:{size} dest:0 async:0"
        stream.event("MemcpyH2D", number * 10, 5, {"memcpy_details": details})
    assert read(path, space).device_events.copy_bytes.tolist() == [100, 1 << 46, -1, -1]
