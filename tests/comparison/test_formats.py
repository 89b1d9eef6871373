"""One run in three formats compares as no change, whichever stands for before: nothing is solved or new by a format."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from simulator.kineto_writer import packed
from tb_gpu_doctor.comparing import summary_of_path
from tb_gpu_doctor.comparison.compare import compare
from tests.simulator.test_torch import job, xplane
from tests.stock_profiler import run_tool


def test_one_run_in_three_formats_did_not_change(tmp_path: Path) -> None:
    simulated = job("pytorch_ddp").ranks[0]
    paths = {name: tmp_path / name for name in ("worker.pt.trace.json.gz", "gpu-node-0.trace.json.gz")}
    as_xplane = xplane(simulated, tmp_path)
    paths["worker.pt.trace.json.gz"].write_bytes(packed(simulated.content()))
    paths["gpu-node-0.trace.json.gz"].write_bytes(packed(run_tool(as_xplane, "trace_viewer")))
    runs = [summary_of_path(path) for path in (*paths.values(), as_xplane)]
    assert sorted(run.format for run in runs) == ["kineto", "trace_json", "xplane"]
    assert len({run.step_count for run in runs}) == 1
    for before, after in permutations(runs, 2):
        pair = f"{before.format} {after.format}"
        comparison = compare(before, after)
        assert comparison.outcome in ("same", "inconclusive"), pair
        assert comparison.change is not None and comparison.change.value == pytest.approx(0, abs=1e-6), pair
        assert comparison.change.low <= 0 <= comparison.change.high
        for part in comparison.parts:
            assert part.after - part.before == pytest.approx(0, abs=0.002 * before.wall_ps.mean()), (pair, part.part)
        told = {entry.change for entry in comparison.findings}
        assert not told & {"solved", "new", "better", "worse"}, (pair, comparison.findings)
        assert {kernel.kind for kernel in comparison.kernels} == {"changed"}, pair
        assert sum(abs(kernel.difference) for kernel in comparison.kernels) < 1e-6 * comparison.kernel_time_before
