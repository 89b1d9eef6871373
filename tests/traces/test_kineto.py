"""PyTorch's traces: against an independent count of the recorded ones, and against plain JSON of made ones."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.kernels import parse_kernel_details
from tb_gpu_doctor.analysis.launches import launch_of
from tb_gpu_doctor.traces import kineto_events
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Trace
from tb_gpu_doctor.traces.json_document import Event, parse_document
from tb_gpu_doctor.traces.kineto import kineto_trace
from tb_gpu_doctor.traces.kineto_events import Said
from tb_gpu_doctor.traces.trace_json import read_trace_json
from tests.conftest import SHARED_TRACES
from tests.traces.json_writing import Json, call, document, event, kernel, write

PS = 1_000_000  # per microsecond


def trace_of(content: Json, host: str = "h") -> Trace:
    return kineto_trace(parse_document(json.dumps(content).encode()), "file", host)


def names(trace: Trace, ids: np.ndarray) -> list[str]:
    return [trace.strings[int(i)] for i in ids]


# -- what others recorded ---------------------------------------------------------------------

# device events, NCCL, span, compute, exposed communication, exposed copies and memsets, idle: microseconds,
# counted by brute force elsewhere; communication is there what is named nccl.
COUNTED = {
    ("kineto_megatron_tp8_a100", 0): (777, 84, 595241, 131390, 241191, 146, 222514),
    ("kineto_megatron_tp8_a100", 1): (777, 84, 620790, 131923, 481306, 178, 7383),
    ("kineto_megatron_tp8_a100", 2): (777, 84, 610855, 131474, 413325, 170, 65886),
    ("kineto_megatron_tp8_a100", 3): (777, 84, 625603, 132743, 472390, 173, 20297),
    ("kineto_megatron_tp8_a100", 4): (777, 84, 630624, 131874, 495240, 181, 3329),
    ("kineto_megatron_tp8_a100", 5): (777, 84, 630631, 131544, 490928, 181, 7978),
    ("kineto_megatron_tp8_a100", 6): (777, 84, 606299, 133554, 263846, 151, 208748),
    ("kineto_megatron_tp8_a100", 7): (777, 84, 625330, 132271, 481865, 179, 11015),
    ("kineto_dlrm_8xv100", 0): (261, 8, 13009, 1034, 5537, 19, 6419),
    ("kineto_dlrm_8xv100", 7): (262, 8, 10967, 1059, 1580, 20, 8308),
    ("kineto_resnet50_loader0_v100", 0): (10015, 0, 927973, 640354, 0, 13173, 274446),
    ("kineto_resnet50_loader4_v100", 0): (9819, 0, 747140, 649808, 0, 20072, 77260),
    ("kineto_diff_control_a100", 3): (9450, 60, 464594, 281336, 87921, 19330, 76007),
    ("kineto_diff_test_v100", 1): (15632, 64, 745239, 548148, 73298, 96497, 27296),
    ("kineto_bert_small_h100", 0): (61, 0, 3907.8, 307.2, 0, 2.2, 3598.4),
    ("kineto_eager_b200", 0): (929, 1, 84487.2, 10771.7, 22.0, 802.8, 72890.7),
}
FOLDERS = sorted({folder for folder, _ in COUNTED} | {"kineto_minitoy_mi250"})


def recorded(folder: str) -> list[Path]:
    found = sorted((SHARED_TRACES / folder).glob("*.pt.trace.json.gz"))
    if not found:
        pytest.skip(f"real profile not present ({SHARED_TRACES / folder})")
    return found


@cache
def decoded(path: Path) -> Trace:
    return read_trace_json(str(path))


@cache
def plain(path: Path) -> Json:
    return json.loads(gzip.decompress(path.read_bytes()))


def covered(start: np.ndarray, end: np.ndarray) -> int:
    """Length of a union, event after event."""
    total, reached = 0, None
    for low, high in sorted(zip(start.tolist(), end.tolist(), strict=True)):
        if reached is None or low > reached:
            total, reached = total + high - low, high
        elif high > reached:
            total, reached = total + high - reached, high
    return total


@pytest.mark.parametrize(("folder", "number"), COUNTED)
def test_the_recorded_numbers(folder: str, number: int) -> None:
    paths = recorded(folder)
    trace = decoded(paths[number] if len(paths) > 1 else paths[0])
    events = trace.device_events
    named = np.array(["nccl" in name.lower() for name in names(trace, events.name)])
    copies = (events.klass == EventClass.COPY) | (events.klass == EventClass.MEMSET)
    copies |= (events.klass == EventClass.COMMUNICATION) & (events.copy_kind == CopyKind.P2P)
    compute = ~named & ~copies
    span = int(events.end.max() - events.start.min())
    busy = [
        covered(events.start[mask], events.end[mask]) for mask in (compute, compute | named, compute | named | copies)
    ]
    found = (span, busy[0], busy[1] - busy[0], busy[2] - busy[1], span - busy[2])
    expected = COUNTED[folder, number]
    assert (len(events), int(named.sum())) == expected[:2]
    rounding = 0.05001 if isinstance(expected[2], float) else 0
    assert np.abs(np.array(found) / PS - np.array(expected[2:])).max() <= rounding
    # our classes: custom all-reduce kernels of inference engines move data too, without being called nccl
    ours = events.klass == EventClass.COMMUNICATION
    assert (ours[named]).all() and (folder == "kineto_eager_b200" or not ours[compute].any())


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_launch_is_found_as_plain_json_finds_it(folder: str) -> None:
    for path in recorded(folder):
        trace, content = decoded(path), plain(path)
        events = [e for e in content["traceEvents"] if e.get("ph") == "X"]
        calls = {
            e["args"]["correlation"]: e["name"]
            for e in events
            if (e["cat"].lower().endswith(("runtime", "driver"))) and "correlation" in e.get("args", {})
        }
        wanted = sorted(
            (e["name"], calls.get(e["args"]["correlation"], ""))
            for e in events
            if e["cat"].lower() in ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
        )
        launch = launch_of(trace)
        launched = [trace.strings[int(trace.host_events.name[row])] if row >= 0 else "" for row in launch.tolist()]
        assert sorted(zip(names(trace, trace.device_events.name), launched, strict=True)) == wanted


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_step_is_marked(folder: str) -> None:
    for path in recorded(folder):
        trace, content = decoded(path), plain(path)
        wanted = sorted(
            int(e["name"].partition("#")[2])
            for e in content["traceEvents"]
            if e.get("ph") == "X" and e["name"].startswith("ProfilerStep#") and "gpu" not in e["cat"]
        )
        marked = np.flatnonzero(trace.host_events.is_root == 1)
        assert sorted(trace.host_events.step_num[marked].tolist()) == wanted
        assert set(names(trace, trace.host_events.name[marked])) <= {"ProfilerStep"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_properties_of_the_recorded(folder: str) -> None:
    for path in recorded(folder):
        trace, content = decoded(path), plain(path)
        info = content.get("distributedInfo", {})
        assert (trace.rank, trace.world_size) == (info.get("rank"), info.get("world_size"))
        (device,) = trace.devices
        described = {entry["id"]: entry for entry in content.get("deviceProperties", [])}.get(device.id)
        if described is None:
            assert (device.name, device.vendor) == (None, None)
            assert device.sm_count == 80  # a V100: told by the warps of each kernel on one multiprocessor
            continue
        assert (device.name, device.sm_count) == (described["name"], described["numSms"])
        assert device.compute_capability == (described["computeMajor"], described["computeMinor"])
        assert device.memory_size_bytes == described["totalGlobalMem"]
        assert device.is_nvidia == (described["warpSize"] == 32)
        assert trace.notes == () and trace.wall_start_unix_ns is not None
        assert trace.recorded is None or trace.recorded[1] >= int(trace.device_events.end.max())
        assert min(trace.device_events.start.min(), trace.host_events.start.min()) >= 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder", ["kineto_bert_small_h100", "kineto_diff_control_a100", "kineto_diff_test_v100", "kineto_eager_b200"]
)
def test_kernels_tell_the_multiprocessors_that_properties_name(folder: str) -> None:
    (path, *_) = recorded(folder)
    (device,) = decoded(path).devices
    content = dict(plain(path))
    content["deviceProperties"] = []
    (guessed,) = trace_of(content).devices
    assert guessed.sm_count == device.sm_count is not None


def test_multiprocessors_need_kernels_that_agree() -> None:
    def sms(*kernels: Json) -> int | None:
        (device,) = trace_of(document(*kernels)).devices
        return device.sm_count

    shape = {"grid": [64, 1, 1], "block": [128, 1, 1]}
    agreeing = [kernel("k", 10 * i, 1, **shape, blocks_per_SM=0.5925926) for i in range(10)]
    assert sms(*agreeing) == 108
    assert sms(*agreeing, *(kernel("k", 200 + i, 1, **shape, blocks_per_SM=0.8) for i in range(2))) is None
    for value in (0, -1, "x", True, 0.63, 1e-9, None):
        assert sms(kernel("k", 1, 1, **shape, blocks_per_SM=value)) is None
    assert sms(kernel("k", 1, 1, **shape, warps_per_SM=3.2)) == 80
    assert sms(kernel("k", 1, 1, grid=[64, 1], block=[128, 1, 1], blocks_per_SM=0.5)) is None


def test_what_the_recorded_kernels_say_of_themselves() -> None:
    (path,) = recorded("kineto_bert_small_h100")
    trace = decoded(path)
    wanted = sorted(
        (
            e["name"],
            e["args"]["registers per thread"],
            e["args"]["shared memory"],
            *e["args"]["grid"],
            *e["args"]["block"],
        )
        for e in plain(path)["traceEvents"]
        if e.get("cat") == "kernel"
    )
    found = []
    for row in np.flatnonzero(trace.device_events.klass == EventClass.COMPUTE).tolist():
        details = parse_kernel_details(trace.strings.raw(int(trace.device_events.details[row])))
        assert details.grid is not None and details.block is not None
        name = trace.strings[int(trace.device_events.name[row])]
        found.append((name, details.registers, details.shared_bytes, *details.grid, *details.block))
    assert sorted(found) == wanted


def test_a_recorded_collective() -> None:
    trace = decoded(recorded("kineto_eager_b200")[0])
    stats = {name: stat.values.tolist() for name, stat in trace.device_stats.items()}
    assert (stats["in_elements"], stats["out_elements"], stats["group_size"]) == ([25136], [201088], [8])
    texts = {name: trace.strings[stats[name][0]] for name in ("collective", "dtype", "process_group", "group_ranks")}
    assert texts == {
        "collective": "_allgather_base", "dtype": "BFloat16", "process_group": "3",
        "group_ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
    }  # fmt: skip
    (row,) = trace.device_stats["collective"].rows.tolist()
    assert trace.strings[int(trace.device_events.name[row])].startswith("ncclDevKernel_AllGather")


# -- what is made here ------------------------------------------------------------------------

microseconds = st.integers(0, 4_000_000).map(lambda ns: ns / 1000)


@st.composite
def traces(draw: st.DrawFn) -> Json:
    base = draw(st.sampled_from([0, 5_000.25, 1_419_247_332_972, 1_706_850_122_846_038]))
    if base > 1e15:  # so large that doubles hold whole microseconds only: writers then count those
        times: st.SearchStrategy[float] = st.integers(0, 4000).map(float)
    else:
        times = microseconds
    events: list[Json] = []
    for correlation in range(1, draw(st.integers(1, 12))):
        style = draw(st.sampled_from(["kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"]))
        device, stream = draw(st.integers(0, 2)), draw(st.integers(0, 3))
        name = {"k": "k", "g": "Memcpy HtoD (Pinned -> Device)", "m": "Memset (Device)"}[style[0].lower()]
        name += draw(st.text(max_size=3))
        events.append(
            event(style, name, base + draw(times), draw(times), pid=device, tid=f"stream {stream}",
                  device=device, stream=stream, correlation=correlation, bytes=draw(st.integers(0, 1 << 40)))
        )  # fmt: skip
        if draw(st.booleans()):
            events.append(call("cudaLaunchKernel", base + draw(times), draw(times), correlation))
    for _ in range(draw(st.integers(0, 6))):
        cat = draw(st.sampled_from(["cpu_op", "Operator", "user_annotation", "python_function"]))
        host_thread = draw(st.sampled_from([17, "18"]))
        events.append(event(cat, "op" + draw(st.text(max_size=3)), base + draw(times), draw(times), tid=host_thread))
    draw(st.randoms()).shuffle(events)
    return document(*events)


def exact(value: float) -> int:
    """Picoseconds, rounded to the nanosecond that the writer counts in."""
    return round(Fraction(value) * 1000) * 1000


@given(traces())
def test_rows_are_those_of_plain_json(content: Json) -> None:
    trace = trace_of(content)
    events = trace.device_events
    given_events = json.loads(json.dumps(content))["traceEvents"]
    device_side = [e for e in given_events if "stream" in e["args"]]
    host_side = [e for e in given_events if "stream" not in e["args"]]
    if not given_events:
        assert not len(events) and not len(trace.host_events)
        return
    zero = int(min(e["ts"] for e in given_events) // 1) * PS

    wanted = sorted(
        (e["args"]["device"], e["args"]["stream"], exact(e["ts"]) - zero, exact(e["dur"]), e["name"],
         e["args"]["correlation"], e["args"]["bytes"])
        for e in device_side
    )  # fmt: skip
    columns = zip(
        [trace.devices[i].id for i in events.device.tolist()],
        [trace.streams[i].line_id for i in events.stream.tolist()],
        events.start.tolist(), events.duration.tolist(), names(trace, events.name), events.correlation.tolist(),
        events.copy_bytes.tolist(), strict=True,
    )  # fmt: skip
    assert sorted(columns) == wanted
    assert [d.id for d in trace.devices] == sorted({e["args"]["device"] for e in device_side})

    host = trace.host_events
    wanted_host = sorted(
        (str(e["tid"]), exact(e["ts"]) - zero, exact(e["dur"]), e["name"], e["args"].get("correlation", -1))
        for e in host_side
    )
    found_host = zip(
        [trace.threads[i].name for i in host.thread.tolist()], host.start.tolist(), host.duration.tolist(),
        names(trace, host.name), host.correlation.tolist(), strict=True,
    )  # fmt: skip
    assert sorted(found_host) == wanted_host


def test_classes_and_copies() -> None:
    trace = trace_of(
        document(
            kernel("gemm", 0, 1),
            kernel("ncclDevKernel_AllReduce_Sum", 1, 1),
            *(
                event("gpu_memcpy", f"Memcpy {how}", 2 + i, 1, device=0, stream=7, correlation=i + 1, bytes=100 + i)
                for i, how in enumerate(
                    [
                        "HtoD (Pageable -> Device)",
                        "DtoH (Device -> Pinned)",
                        "DtoD (Device -> Device)",
                        "PtoP (Device -> Device)",
                    ]
                )
            ),
            event("gpu_memset", "Memset (Device)", 9, 1, device=0, stream=7, bytes=5),
            call("cudaMemcpyAsync", 0, 1, 1),
            call("cudaMemcpy", 1, 1, 2),
            call("hipMemcpyWithStream", 2, 1, 3),
        )
    )
    events = trace.device_events
    assert events.klass.tolist() == [0, 1, 2, 2, 2, 1, 3]
    assert events.copy_kind[2:].tolist() == [CopyKind.H2D, CopyKind.D2H, CopyKind.D2D, CopyKind.P2P, CopyKind.NONE]
    assert events.copy_bytes.tolist() == [-1, -1, 100, 101, 102, 103, 5]
    assert events.copy_memory.tolist() == [-1, -1, 1, 0, -1, -1, -1]
    assert events.copy_async.tolist() == [-1, -1, 1, 0, 0, -1, -1]


def test_amd_says_at_the_launch_what_the_kernel_does_not() -> None:
    trace = trace_of(
        document(
            kernel("Cijk_Ailk", 5, 1, 1, stream=0, kind="Dispatch Kernel"),
            event("gpu_memcpy", "CopyHostToDevice", 7, 1, device=0, stream=0, correlation=2),
            call("hipExtModuleLaunchKernel", 1, 1, 1, grid=[512, 1, 1], block=[256, 1, 1], shared_memory=64),
            call("hipMemcpyWithStream", 2, 1, 2, size="2560"),
            deviceProperties=[
                {"id": 0, "name": "AMD Radeon Graphics", "warpSize": 64, "computeMajor": 9, "numSms": 104}
            ],
        )
    )
    details = parse_kernel_details(trace.strings.raw(int(trace.device_events.details[0])))
    assert (details.grid, details.block, details.shared_bytes) == ((512, 1, 1), (256, 1, 1), 64)
    assert details.registers is None and trace.device_events.copy_bytes.tolist() == [-1, 2560]
    assert not trace.devices[0].is_nvidia and trace.devices[0].sm_count == 104


def test_the_operator_around_a_launch() -> None:
    trace = trace_of(
        document(
            event("user_annotation", "ProfilerStep#12", 0, 100),
            event("cpu_op", "aten::linear", 1, 40),
            event("cpu_op", "aten::addmm", 2, 20),
            call("cudaLaunchKernel", 5, 2, 1),
            call("cudaLaunchKernel", 30, 2, 2),
            call("cudaLaunchKernel", 60, 2, 3),
            event("cpu_op", "aten::mm", 0, 100, tid=99),
            kernel("a", 50, 1, 1),
            kernel("b", 51, 1, 2),
            kernel("c", 61, 1, 3),
        )
    )
    assert names(trace, trace.device_events.op) == ["aten::addmm", "aten::linear", ""]
    assert trace.strings[int(trace.host_events.name[trace.host_events.step_num == 12][0])] == "ProfilerStep"
    operators = trace.host_stats["operator"].rows
    assert sorted(names(trace, trace.host_events.name[operators])) == ["aten::addmm", "aten::linear", "aten::mm"]


def test_times_since_1970_and_since_a_base() -> None:
    since_1970 = trace_of(document(kernel("k", 1_706_850_122_846_038, 7)))
    assert since_1970.wall_start_unix_ns == 1_706_850_122_846_038_000
    based = trace_of(document(kernel("k", 1_419_247_332_972.313, 7), baseTimeNanoseconds=1_751_410_836_000_000_000))
    assert based.wall_start_unix_ns == 1_751_410_836_000_000_000 + 1_419_247_332_972_000
    assert based.device_events.start.tolist() == [313_000]
    assert trace_of(document(kernel("k", 77, 7))).wall_start_unix_ns is None


def test_threads_have_the_names_that_metadata_gives() -> None:
    named = {"ph": "M", "name": "thread_name", "pid": 17, "tid": 18, "args": {"name": "thread 18 (pt_autograd_0)"}}
    trace = trace_of(document(named, event("cpu_op", "a", 0, 1, tid="18"), event("cpu_op", "b", 0, 1, tid=19)))
    assert sorted(thread.name for thread in trace.threads) == ["18 (pt_autograd_0)", "19"]


def test_what_is_no_work_is_left_out() -> None:
    trace = trace_of(
        document(
            kernel("k", 0, 1),
            event("gpu_user_annotation", "ProfilerStep#1", 0, 50, pid=0, tid=7),
            event("overhead", "Activity Buffer Request", 0, 50, pid=-1, tid=0),
            event("cuda_sync", "Stream Wait Event", 0, 50, pid=0, tid=7, device=0, stream=7),
            {"ph": "s", "cat": "ac2g", "id": 1, "pid": 0, "tid": 7, "ts": 0, "name": "ac2g"},
            {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 17, "tid": 17, "ts": 0},
        )
    )
    assert len(trace.device_events) == 1
    # what the profiler says of itself is kept on a line of its own: loading of code is among it
    assert [trace.strings[name] for name in trace.host_events.name.tolist()] == ["overhead: Activity Buffer Request"]


@pytest.mark.parametrize(
    ("odd", "code", "events"),
    [
        ({"ts": 1e30}, "implausible_times", 1),
        ({"ts": None}, "implausible_times", 1),
        ({"dur": 1e30}, "implausible_times", 1),
        ({"dur": -1}, "negative_durations", 1),
        ({"ts": "soon"}, "broken_events", 1),
        ({"dur": None}, None, 2),
        ({"args": {"device": "none"}, "pid": "?"}, "broken_events", 1),
        ({"args": {"device": 1 << 40}}, "broken_events", 1),
        ({"args": {"device": 5000}}, "broken_events", 1),
        ({"args": {"device": [0]}}, None, 2),
        ({"args": {"device": 0, "stream": {}, "correlation": [], "grid": 5, "block": "x"}}, None, 2),
        ({"args": {"device": 0, "correlation": -5, "registers per thread": 1e300}}, None, 2),
        ({"args": {"device": 0, "grid": [1, 2], "block": [1, 2, "x"], "bytes": 1 << 80}}, None, 2),
        ({"args": {"device": 0, "Collective name": 5, "dtype": None, "Group size": -1}}, None, 2),
        ({"args": [1, 2]}, None, 2),
        ({"args": None}, None, 2),
        ({"name": None}, None, 2),
        ({"name": "x" * 100_000}, None, 2),
        ({"cat": "KERNEL"}, None, 2),
        ({"tid": None}, None, 2),
    ],
)
def test_odd_device_events(odd: Json, code: str | None, events: int) -> None:
    trace = trace_of(document(kernel("k", 10, 1), {**kernel("l", 20, 1), **odd}))
    assert len(trace.device_events) == events
    assert [note.code for note in trace.notes] == ([code] if code else [])
    assert all(len(text) <= 70_000 for text in trace.strings)


@pytest.mark.parametrize(
    "properties",
    [None, 5, "x", {}, [1], [{}], [{"id": -1}], [{"id": 0, "name": 5, "numSms": "many", "computeMajor": 1e9}],
     [{"id": 0, "totalGlobalMem": -1, "warpSize": None}]],
)  # fmt: skip
def test_odd_properties(properties: Any) -> None:
    trace = trace_of(document(kernel("k", 0, 1), deviceProperties=properties, distributedInfo=properties))
    (device,) = trace.devices
    assert (device.id, device.name, device.sm_count, device.memory_size_bytes) == (0, None, None, None)
    assert trace.rank is None and trace.world_size is None


@pytest.mark.parametrize("rank", [-1, "x", 1.5, 1 << 40, None, True])
def test_odd_ranks(rank: Any) -> None:
    assert trace_of(document(kernel("k", 0, 1), distributedInfo={"rank": rank})).rank is None


def hosts(paths: list[str]) -> Iterator[str]:
    for path in paths:
        yield read_trace_json(path).host


def test_the_process_is_named_by_the_file(tmp_path: Path) -> None:
    files = ["node.1_17.1700000000000.pt.trace.json", "rank3.pt.trace.json.gz", "my.json"]
    paths = [write(tmp_path / name, document(kernel("k", 0, 1))) for name in files]
    assert list(hosts(paths)) == ["node.1_17", "rank3", "my"]


# -- the quick way and the patient one -------------------------------------------------------------

_NUMBERS = st.one_of(
    st.integers(-2, 300), st.sampled_from([2**62 - 1, 2**62, 2**63, 10**25, 0.5, 128.0, True, None, "7"])
)
_SIZES = st.one_of(st.lists(_NUMBERS, min_size=2, max_size=4), st.just([8, 1, 1]), _NUMBERS)
_ARGS = st.fixed_dictionaries(
    {},
    optional={
        "device": st.one_of(st.integers(-1, 1100), _NUMBERS), "stream": st.one_of(_NUMBERS, st.just("stream 7")),
        "correlation": _NUMBERS, "bytes": _NUMBERS, "size": _NUMBERS, "grid": _SIZES, "block": _SIZES,
        "registers per thread": _NUMBERS, "shared memory": _NUMBERS, "graph id": _NUMBERS,
        "est. achieved occupancy %": _NUMBERS, "blocks per SM": _NUMBERS, "warps per SM": _NUMBERS,
        "Collective name": st.sampled_from(["allreduce", "", None, 5]), "Group size": _NUMBERS, "dtype": _NUMBERS,
        "External id": _NUMBERS, "unknown": st.one_of(_NUMBERS, _SIZES),
    },
)  # fmt: skip


_PLAIN = ("device", "stream", "correlation", "bytes", "graph")


@given(args=st.one_of(_ARGS, st.none(), st.lists(_NUMBERS, max_size=2)), pid=_NUMBERS, tid=_NUMBERS)
def test_arguments_of_usual_types_are_read_as_all_others_are(args: Any, pid: Any, tid: Any) -> None:
    made = {"ph": "X", "cat": "kernel", "name": "k", "pid": pid, "tid": tid, "ts": 1, "dur": 1, "args": args}
    (found,) = parse_document(json.dumps({"traceEvents": [made]}).encode()).complete or [Event(ph="X")]
    # in one list with others, which must not be mistaken for it
    other = Event(args=msgspec.Raw(b'{"device":1,"stream":2,"correlation":3}'))
    read, odd = kineto_events.device_args([other, found, other])
    plain, facts = kineto_events.odd_device_args(found)
    shape = [getattr(read[1], part) for part in kineto_events.SHAPE]
    assert (odd[1] if 1 in odd else kineto_events.launch_facts(*shape)) == facts
    assert [getattr(read[1], name) for name in _PLAIN] == [getattr(plain, name) for name in _PLAIN]
    assert [args.correlation for args in (read[0], read[2])] == [3, 3] and not odd.keys() & {0, 2}
    correlations, said = kineto_events.call_facts([other, found, other])
    correlation, wanted = kineto_events.odd_call_facts(found)
    assert said.get(1, Said(-1, None)) == wanted and correlations == [3, correlation, 3]


def test_the_only_device_is_the_one_described_whatever_their_numbers() -> None:
    """ROCm describes the devices that a process sees, and numbers those of events by their place in the machine."""
    events = [{"ph": "X", "cat": "kernel", "name": "k", "pid": 5, "tid": 1, "ts": 1, "dur": 2, "args": {"device": 5}}]
    described = [{"id": 0, "name": "AMD Instinct MI300X", "numSms": 304}]
    text = json.dumps({"schemaVersion": 1, "deviceProperties": described, "traceEvents": events}).encode()
    (device,) = kineto_trace(parse_document(text), "file", "h").devices
    assert (device.id, device.name, device.sm_count) == (5, "AMD Instinct MI300X", 304)


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder",
    ["kineto_resnet50_loader0_v100", "kineto_dlrm_8xv100", "kineto_megatron_tp8_a100", "kineto_eager_b200",
     "kineto_minitoy_mi250"],
)  # fmt: skip
def test_arrows_say_no_more_than_correlations(folder: str) -> None:
    """Why they are not read: their id is the correlation, and none begins where no call has it."""
    events = json.loads(gzip.decompress(recorded(folder)[-1].read_bytes()), strict=False)["traceEvents"]
    arrows = [e for e in events if e["ph"] in "sf" and e["cat"] in ("ac2g", "async_cpu_to_gpu", "async")]
    work, calls = {}, set()
    for e in events:
        category = (e.get("cat") or "").lower()
        if e["ph"] == "X" and category in ("cuda_runtime", "cuda_driver", "runtime"):
            calls.add(e["args"]["correlation"])
        elif e["ph"] == "X" and category in ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"):
            work[e["pid"], e["tid"], e["ts"]] = e["args"]["correlation"]
    ends = [(work[key], e["id"]) for e in arrows if (key := (e["pid"], e["tid"], e["ts"])) in work]
    assert len(ends) > 10 and all(correlation == ident for correlation, ident in ends)
    starts = {e["id"] for e in arrows if e["ph"] == "s" and (e["pid"], e["tid"], e["ts"]) not in work}
    assert not (starts & set(work.values())) - calls
