"""The stock Profiler opens the demo runs and counts what the truth counts."""

from __future__ import annotations

import json

import pytest

from tests.conftest import DEMO_LOGS
from tests.simulator.runs import NAMES, simulated
from tests.stock_profiler import MAX_ROWS, kernel_stats, run_tool

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", NAMES)
def test_kernel_totals_are_the_truth(name: str) -> None:
    rows = kernel_stats(DEMO_LOGS / simulated(name).path)
    assert 0 < len(rows) < MAX_ROWS
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        calls, total = found.get(row.name, (0, 0))
        found[row.name] = (calls + row.calls, total + round(row.total_us * 1_000_000))
    expected: dict[str, tuple[int, int]] = {}
    for gpu in simulated(name).truth.gpus:
        for kernel, truth in gpu.kernels.items():
            calls, total = expected.get(kernel, (0, 0))
            expected[kernel] = (calls + truth.calls, total + truth.total_ps)
    assert found.keys() == expected.keys()
    for kernel, (calls, total) in expected.items():
        assert found[kernel][0] == calls
        assert abs(found[kernel][1] - total) <= calls * 1_000  # the stock Profiler rounds each call to nanoseconds


@pytest.mark.parametrize(("name", "tool"), [("input_bound", "overview_page"), ("healthy", "trace_viewer@")])
def test_other_tools_open_the_runs(name: str, tool: str) -> None:
    answer = json.loads(run_tool(DEMO_LOGS / simulated(name).path, tool))
    assert answer
    if tool == "trace_viewer@":
        threads = {e["args"]["name"] for e in answer["traceEvents"] if e.get("name") == "thread_name"}
        assert any("python" in thread for thread in threads)
        names = {event.get("name") for event in answer["traceEvents"]}
        assert {f"train {marker.number}" for marker in simulated(name).truth.markers} <= names
