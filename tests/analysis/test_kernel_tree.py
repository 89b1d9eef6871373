"""Kernel time by scope and op, against sums over the ops' prefixes.

Layers of PyTorch's kernels against a walk over the frames around each launch.

Runs of short kernels against a walk over the events of each stream.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.callers import causality
from tb_gpu_doctor.analysis.kernel_families import is_fusible, kernel_family
from tb_gpu_doctor.analysis.kernel_results import KernelRow
from tb_gpu_doctor.analysis.kernel_tree import (
    LONGEST_PAUSE_PS,
    MAX_DEPTH,
    MAX_NAMED,
    SHORT_KERNEL_PS,
    SHORTEST_RUN,
    KernelEvents,
    find_fusion,
    kernel_tree,
    largest,
    layer_scopes,
    op_path,
)
from tb_gpu_doctor.analysis.kernels import kernel_table
from tb_gpu_doctor.analysis.launches import launch_of
from tb_gpu_doctor.traces.columns import (
    Device,
    HostThread,
    StringTable,
    Trace,
    device_events,
    host_events,
)
from tb_gpu_doctor.traces.read import read_trace
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.diagnosis.build import kernel

NAMES = ["nn.Module: Net_0", "nn.Module: Linear_0", "nn.Module: Linear_1", "aten::mm", "cudaLaunchKernel", "kernel"]
LAUNCH, KERNEL = 4, 5


def walked(trace: Trace) -> list[tuple[str, ...]]:
    """For each device event the modules whose frames hold its launch, longest first."""
    host, launch = trace.host_events, launch_of(trace)
    found = []
    for row in launch.tolist():
        path: list[tuple[int, int, str]] = []
        if row >= 0:
            same = np.flatnonzero((host.thread == host.thread[row]) & (host.start <= host.start[row]))
            for other in same[host.end[same] >= host.end[row]].tolist():
                name = trace.strings[host.name[other]]
                if other != row and name.startswith("nn.Module: "):
                    path.append((int(host.start[other]), -int(host.end[other]), name.removeprefix("nn.Module: ")))
        found.append(tuple(name for _, _, name in sorted(path)))
    return found


@st.composite
def nested(draw: st.DrawFn) -> Trace:
    """Frames that lie properly inside each other, with launches somewhere in them."""
    rows: list[tuple[int, int, int]] = []

    def fill(low: int, high: int, depth: int) -> None:
        at = low
        while at + 2 < high and draw(st.booleans()):
            end = draw(st.integers(at + 1, high - 1))
            name = draw(st.integers(0, LAUNCH))
            rows.append((at, end - at, name))
            if name != LAUNCH and depth < 4:
                fill(at + 1, end, depth + 1)
            at = end + 1

    fill(0, 60, 0)
    launches = [i for i, (_, _, name) in enumerate(rows) if name == LAUNCH]
    correlation = [launches.index(i) + 1 if i in launches else -1 for i in range(len(rows))]
    count = len(launches) + 1  # one kernel whose launch was not recorded
    return Trace(
        path="", host="h", format="kineto", strings=StringTable.of(NAMES), devices=(Device(0, "h", 0),), streams=(),
        device_events=device_events(
            count, device=[0] * count, start=list(range(100, 100 + count)), duration=[1] * count,
            name=[KERNEL] * count, correlation=list(range(1, count + 1)),
        ),
        threads=(HostThread(0, 1, "t"),),
        host_events=host_events(
            len(rows), thread=[0] * len(rows), start=[r[0] for r in rows], duration=[r[1] for r in rows],
            name=[r[2] for r in rows], correlation=correlation,
        ),
    )  # fmt: skip


@given(nested())
def test_against_a_walk_over_the_frames(trace: Trace) -> None:
    scopes = layer_scopes(trace, launch_of(trace), causality(trace))
    expected = walked(trace)
    if scopes is None:
        assert not any(expected)
        return
    assert [scopes.paths[code] if code >= 0 else () for code in scopes.code.tolist()] == expected
    table = kernel_table(trace, None, None, scopes)
    assert table.ops is not None and table.ops.scope is not None
    counted = {
        table.ops.scopes[layer] if layer >= 0 else (): calls
        for layer, calls in zip(table.ops.scope.tolist(), table.ops.calls.tolist(), strict=True)
    }
    assert counted == {path: expected.count(path) for path in expected}


@pytest.mark.parametrize("folder", ["kineto_bert_small_h100", "kineto_eager_b200"])
def test_recorded_modules(folder: str, shared_traces: Path) -> None:
    if not (shared_traces / folder).is_dir():
        pytest.skip(f"recorded profile not present ({folder})")
    (session,) = find_sessions(str(shared_traces / folder)).sessions
    trace = read_trace(session.files[0])
    scopes = layer_scopes(trace, launch_of(trace), causality(trace))
    assert scopes is not None and len(scopes.paths) > 10
    assert [scopes.paths[code] if code >= 0 else () for code in scopes.code.tolist()] == walked(trace)
    times = analyse(trace).kernels.ops
    assert times is not None and times.scopes == scopes.paths


def test_without_modules_there_are_no_layers() -> None:
    events = device_events(1, device=[0], start=[0], duration=[1], name=[0])
    trace = Trace("", "h", "kineto", StringTable.of(["k"]), (Device(0, "h", 0),), (), events, (), host_events(0))
    assert layer_scopes(trace, launch_of(trace), causality(trace)) is None
    nodes, _ = largest(kernel_tree([]), 10)
    assert nodes == []


@pytest.mark.parametrize(
    ("op", "path"),
    [
        ("model/dense/MatMul:MatMul", ("model", "dense", "MatMul")),
        ("model/dense/MatMul_1:MatMul", ("model", "dense", "MatMul_1")),
        ("model/drop/GreaterEqual:Cast", ("model", "drop", "GreaterEqual (Cast)")),
        ("jit(f)/jvp(bsd,de->bse)/dot_general", ("jit(f)", "jvp(bsd,de->bse)", "dot_general")),
        ("jit(f)/transpose(jvp(a/b))/add", ("jit(f)", "transpose(jvp(a/b))", "add")),
        ("aten::mm", ("aten::mm",)),
        ("torch::autograd::CppNode<Split/Op>", ("torch::autograd::CppNode<Split/Op>",)),
        ("", ("",)),
        ("//a//b/", ("a", "b")),
        ("a)b/c", ("a)b", "c")),
        ("a(b/c", ("a(b/c",)),
        (":MatMul", (":MatMul",)),
        ("x:", ("x:",)),
    ],
)
def test_paths(op: str, path: tuple[str, ...]) -> None:
    assert op_path(op) == path


@given(st.text(alphabet="ab/:()<>-", max_size=200))
def test_any_name_is_a_path(op: str) -> None:
    path = op_path(op)
    assert 1 <= len(path) <= MAX_DEPTH and (path == ("",) or all(path))


def test_endless_names_end() -> None:
    assert len(op_path("a/" * 100_000)) == MAX_DEPTH
    assert len(op_path("(" * 100_000)) == 1


OPS = st.sampled_from(["m/a/X:X", "m/a/Y:Y", "m/b/X:X", "m/a", "z", "", "m/a/X:Z"])
TIMES = st.lists(
    st.tuples(st.sampled_from(["k1", "k2"]), st.sampled_from([0.5, None]), OPS, st.integers(1, 9), st.integers(0, 99)),
    max_size=40,
)


@given(TIMES)
def test_every_level_sums_up_what_lies_below(times: list[tuple[str, float | None, str, int, int]]) -> None:
    rows: list[tuple[KernelRow, str, int, int]] = [
        (kernel(name, occupancy=occupancy), op, calls, total) for name, occupancy, op, calls, total in times
    ]
    expected: dict[tuple[str, ...], list[float]] = defaultdict(lambda: [0, 0, 0.0, 0.0])
    for row, op, calls, total in rows:
        path = (*op_path(op), f"kernel {row.name}")
        for depth in range(1, len(path) + 1):
            # an op and a scope of one name are two nodes
            kind = "kernel" if depth == len(path) else "op" if depth == len(path) - 1 else "scope"
            sums = expected[(*path[:depth], kind)]
            sums[0] += total
            sums[1] += calls
            if row.occupancy is not None:
                sums[2] += row.occupancy * total
                sums[3] += total
    root = kernel_tree(rows)
    nodes, truncated = largest(root, 1000)
    assert not truncated
    paths: list[tuple[str, ...]] = []
    for parent, node in nodes:
        assert parent < len(paths)
        above = paths[parent] if parent >= 0 else ()
        paths.append((*above, f"kernel {node.name}" if node.kind == "kernel" else node.name))
        total, calls, weighted, known = expected.pop((*paths[-1], node.kind))
        assert (node.total_ps, node.calls) == (total, calls)
        assert node.mean("occupancy") == (pytest.approx(weighted / known) if known else None)
        assert node.kind != "kernel" or node.row is not None
    assert not expected
    assert root.total_ps == sum(total for *_, total in times)


@given(TIMES, st.integers(0, 12))
def test_the_longest_are_kept_with_all_above_them(
    times: list[tuple[str, float | None, str, int, int]], most: int
) -> None:
    root = kernel_tree((kernel(name), op, calls, total) for name, _, op, calls, total in times)
    everything, _ = largest(root, 1000)
    kept, truncated = largest(root, most)
    assert len(kept) == min(most, len(everything)) and truncated == (len(everything) > most)
    left_out = {id(node) for _, node in everything} - {id(node) for _, node in kept}
    shortest = min((node.total_ps for _, node in kept), default=0)
    assert all(node.total_ps <= shortest for _, node in everything if id(node) in left_out) or not kept
    siblings = defaultdict(list)
    for parent, node in kept:
        siblings[parent].append(node.total_ps)
    assert all(times == sorted(times, reverse=True) for times in siblings.values())


US = 1_000_000
FUSIBLE = np.array([True, True, False, True])


def events_of(rows: list[tuple[int, int, int, int, int, int]], complete: list[bool]) -> KernelEvents:
    """Rows of (device, stream, start, duration, step, code), in any order."""
    rows = sorted(rows, key=lambda row: (row[0], row[2], -row[3]))
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)] or [np.zeros(0, np.int64)] * 6
    device, stream, start, duration, step, code = columns
    return KernelEvents(
        device.astype(np.int32), (stream + 2 * device).astype(np.int32), start, duration, step.astype(np.int32),
        np.array(complete, np.bool_), code, code + 100,
    )  # fmt: skip


def brute_force(events: KernelEvents) -> dict[tuple[int, tuple[int, ...]], list[tuple[int, int, bool]]]:
    """(device, kernels in order) to (span, saving, in a complete step) of each run."""
    streams = defaultdict(list)
    for row in range(len(events.code)):
        streams[int(events.stream[row])].append(row)
    found = defaultdict(list)
    for rows in streams.values():
        run: list[int] = []
        for row in [*rows, None]:
            if row is not None:
                short = FUSIBLE[events.code[row]] and events.duration[row] < SHORT_KERNEL_PS
                if run and short:
                    before = run[-1]
                    pause = events.start[row] - events.start[before] - events.duration[before]
                    if pause <= LONGEST_PAUSE_PS and events.step[row] == events.step[before]:
                        run.append(row)
                        continue
            if len(run) >= SHORTEST_RUN:
                ends = [int(events.start[r] + events.duration[r]) for r in run]
                span = max(ends) - int(events.start[run[0]])
                saving = span - min(int(events.duration[r]) for r in run)
                step = int(events.step[run[0]])
                key = int(events.device[run[0]]), tuple(int(events.code[r]) for r in run)
                found[key].append((span, saving, step >= 0 and bool(events.complete[step])))
            run = [row] if row is not None and short else []
    return found


ROWS = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(0, 1), st.integers(0, 80).map(lambda n: n * 3 * US),
        st.sampled_from([US, 2 * US, 9 * US, SHORT_KERNEL_PS]), st.integers(-1, 1), st.integers(0, 3),
    ),
    max_size=60,
)  # fmt: skip


@given(ROWS)
def test_against_a_walk_over_the_streams(rows: list[tuple[int, int, int, int, int, int]]) -> None:
    # Groups are per device, so the same number on another device is another kernel.
    events = events_of([(d, s, at, length, step, code) for d, s, at, length, step, code in rows], [True, False])
    code = events.code + 4 * events.device
    events = KernelEvents(**{**events.__dict__, "code": code})
    expected = {
        (device, tuple(c + 4 * device for c in codes)): runs
        for (device, codes), runs in brute_force(KernelEvents(**{**events.__dict__, "code": code % 4})).items()
    }
    place = np.arange(8) * 10
    found, per_device = find_fusion(events, np.tile(FUSIBLE, 2), 2, place)
    assert {(c.device, tuple(r // 10 for r in c.rows)) for c in found} == set(expected)
    for candidate in found:
        runs = expected[candidate.device, tuple(row // 10 for row in candidate.rows)]
        assert candidate.runs == len(runs)
        assert candidate.kernels == len(candidate.rows) == len(candidate.ops)
        assert candidate.total_ps == sum(span for span, _, _ in runs)
        assert candidate.saving_ps == sum(saving for _, saving, _ in runs)
        assert candidate.saving_in_steps_ps == sum(saving for _, saving, complete in runs if complete)
        assert candidate.end - candidate.start <= max(span for span, _, _ in runs)
        assert 0 <= candidate.saving_ps < candidate.total_ps
    assert [c.saving_ps for c in found] == sorted((c.saving_ps for c in found), reverse=True)
    for device in range(2):
        assert per_device[device] == sum(s for (d, _), runs in expected.items() if d == device for _, s, _ in runs)


def test_a_long_run_names_its_first_kernels() -> None:
    events = events_of([(0, 0, n * 2 * US, US, 0, n % 2) for n in range(100)], [True])
    (candidate,), saving = find_fusion(events, FUSIBLE, 1, np.arange(4))
    assert (candidate.kernels, candidate.runs, len(candidate.rows)) == (100, 1, MAX_NAMED)
    assert candidate.total_ps == 199 * US and saving == (198 * US,)


def test_what_ends_a_run() -> None:
    def runs(*rows: tuple[int, int, int, int, int, int]) -> list[int]:
        return [c.kernels for c in find_fusion(events_of(list(rows), [True, True]), FUSIBLE, 1, np.arange(4))[0]]

    first = [(0, 0, 0, US, 0, 0), (0, 0, 2 * US, US, 0, 1)]
    assert runs(*first) == []
    assert runs(*first, (0, 0, 4 * US, US, 0, 0)) == [3]
    assert runs(*first, (0, 0, 4 * US, US, 1, 0)) == []  # the next step
    assert runs(*first, (0, 1, 4 * US, US, 0, 0)) == []  # another stream
    assert runs(*first, (0, 0, 4 * US, US, 0, 2)) == []  # another kind of kernel
    assert runs(*first, (0, 0, 4 * US, SHORT_KERNEL_PS, 0, 0)) == []  # no short one
    assert runs(*first, (0, 0, 3 * US + LONGEST_PAUSE_PS, US, 0, 0)) == [3]
    assert runs(*first, (0, 0, 3 * US + LONGEST_PAUSE_PS + 1, US, 0, 0)) == []


def test_nothing_without_kernels_or_elementwise_ones() -> None:
    assert find_fusion(events_of([], []), FUSIBLE, 2, np.arange(4)) == ((), (0, 0))
    events = events_of([(0, 0, n * 2 * US, US, 0, 2) for n in range(9)], [True])
    assert find_fusion(events, FUSIBLE, 1, np.arange(4)) == ((), (0,))


def fusible(name: str, op: str = "") -> bool:
    return is_fusible(name, op, kernel_family(name, op))


def test_what_a_compiler_wrote_is_no_candidate() -> None:
    assert fusible("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>")
    assert fusible("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>")
    assert fusible("void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorConversionOp<float>>>")
    for name in ("loop_add_multiply_fusion_3", "wrapped_convert.kd", "triton_poi_fused_add_0", "input_add_fusion"):
        assert not fusible(name)
    assert not fusible("triton__0d1d2d3de", "triton_poi_fused_add_mul_tanh_0")
    assert not fusible("volta_sgemm_128x64_nn") and not fusible("void reduce_kernel<128>")
