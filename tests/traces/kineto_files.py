"""Small traces as PyTorch writes them, of a process in a job."""

from __future__ import annotations

from typing import Any

BASE_S = 1_750_000_000


def kineto(
    rank: int | None = None,
    world: int | None = None,
    pid: int = 100,
    host: str | None = None,
    start_s: float = 0.0,
    events: int = 3,
    device: int = 0,
) -> dict[str, Any]:
    """One process: operators that launch a kernel each, ten microseconds apart."""
    at = start_s * 1e6
    made: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": at, "args": {"name": "python"}}
    ]
    for number in range(events):
        ts = at + number * 10
        made += [
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": pid, "tid": pid, "ts": ts, "dur": 3, "args": {}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": pid, "tid": pid, "ts": ts + 1,
             "dur": 1, "args": {"correlation": number + 1}},
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": device, "tid": 7, "ts": ts + 3, "dur": 5,
             "args": {"device": device, "stream": 7, "correlation": number + 1}},
        ]  # fmt: skip
    made.append(
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": at,
         "dur": events * 10, "args": {"Op count": 0}}
    )  # fmt: skip
    job = {} if rank is None else {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world}}
    named = {} if host is None else {"host_name": host}
    return {
        "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "A GPU"}], **job, **named,
        "baseTimeNanoseconds": BASE_S * 10**9, "traceEvents": made, "traceName": "trace.json",
    }  # fmt: skip
