"""Layers of PyTorch's kernels against a walk over the frames around each launch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.callers import causality
from tb_gpu_doctor.analysis.kernel_tree import kernel_tree, largest
from tb_gpu_doctor.analysis.kernels import kernel_table
from tb_gpu_doctor.analysis.launches import launch_of
from tb_gpu_doctor.analysis.layer_scopes import layer_scopes
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
