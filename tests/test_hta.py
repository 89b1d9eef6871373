"""HolisticTraceAnalysis' figures from our columns, as it gave them once."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from simulator.torch_models import gpt
from simulator.torch_program import TorchRun
from simulator.torch_scenarios import torch_job
from tb_gpu_doctor.traces.trace_json import read_trace_json
from tests.hta_definitions import Figures, figures, idle_by_stream
from tests.traces.json_writing import document, event, kernel, write

# HolisticTraceAnalysis 0.5.0 (pandas 3.1.1, Python 3.11) on the job that `small_job` writes, by
# `python hta_case.py FOLDER` in its own environment: idle, compute, non-compute and span in
# microseconds, overlap in per cent.
RECORDED_IDLE = {
    0: {(7, "host_wait"): 540, (7, "kernel_wait"): 541, (7, "other"): 12121,
        (20, "host_wait"): 20059, (20, "kernel_wait"): 14, (20, "other"): 0},
    1: {(7, "host_wait"): 9246, (7, "kernel_wait"): 529, (7, "other"): 3525,
        (20, "host_wait"): 25908, (20, "kernel_wait"): 0, (20, "other"): 14807},
}  # fmt: skip
RECORDED = {
    0: (878.0, 50556.0, 12521.0, 63955.0, 63.52),
    1: (9734.0, 50577.0, 3765.0, 64076.0, 65.71),
}


def small_job(folder: Path) -> list[Path]:
    """Two ranks, four steps; the loader of rank 1 is late."""
    job = torch_job("small", 1_772_353_263_204_117_905, TorchRun(4, gpt(layers=3), {1: 3_000}), seed=3, ranks=2)
    paths = []
    for path, content in job.files().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        paths.append(folder / path)
    return paths


def rounded(found: Figures) -> tuple[float, ...]:
    return found.idle_us, found.compute_us, found.non_compute_us, found.kernel_us, round(100 * found.overlap, 2)


def test_our_columns_give_the_figures_that_hta_gave(tmp_path: Path) -> None:
    traces = [read_trace_json(str(path)) for path in small_job(tmp_path)]
    assert {trace.rank: rounded(figures(trace, marked_on_gpu=True)) for trace in traces} == RECORDED
    assert {trace.rank: idle_by_stream(trace, marked_on_gpu=True) for trace in traces} == RECORDED_IDLE


def test_what_counts_for_hta(tmp_path: Path) -> None:
    """By hand: parts of microseconds, the last step, names, overlap."""
    path = write(
        tmp_path / "rank.pt.trace.json",
        document(
            event("user_annotation", "ProfilerStep#1", 0, 100),
            event("user_annotation", "ProfilerStep#2", 100, 100),
            *(event("cuda_runtime", "cudaLaunchKernel", 5 * n, 2, correlation=n) for n in range(1, 5)),
            event("cuda_runtime", "cudaLaunchKernel", 120, 2, correlation=9),
            kernel("gemm", 10.5, 20, 1),  # 11 to 30
            kernel("ncclDevKernel_AllReduce", 25.2, 14.9, 2, stream=20),  # 26 to 40
            event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 60, 5, 0, 7, device=0, stream=7, correlation=3),
            kernel("gemm", 63, 7, 4),
            kernel("gemm", 130, 10, 9),  # of the last step
        ),
    )
    found = figures(read_trace_json(path), marked_on_gpu=False)
    assert rounded(found) == (20, 19 + 7, 10 + 3, 59, round(100 * 4 / 14, 2))
    exact = figures(read_trace_json(path), marked_on_gpu=False, whole_us=False)
    assert exact.kernel_us == pytest.approx(59.5) and exact.compute_us == pytest.approx(27)
    assert exact.overlap == pytest.approx(5.3 / 14.9)
    alone = write(tmp_path / "alone.pt.trace.json", document(kernel("gemm", 1, 4), kernel("gemm", 7, 3)))
    assert rounded(figures(read_trace_json(alone), False))[:4] == (2, 7, 0, 9)
    assert math.isnan(figures(read_trace_json(alone), False).overlap)
