"""The stock Profiler's own numbers, to hold ours against.

Its native code can abort the process and writes caches beside the file that it opens,
so it runs in a process of its own, on a copy.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest

# The Profiler keeps the kernels with the longest totals and drops the others.
MAX_ROWS = 1000

_SCRIPT = """
import sys
from xprof.convert import raw_to_tool_data
source, tool, target = sys.argv[1:]
data, _ = raw_to_tool_data.xspace_to_tool_data([source], tool, {})
with open(target, "wb") as file:
    file.write(data.encode() if isinstance(data, str) else data or b"")
"""


@dataclass(frozen=True)
class StockKernel:
    """One row of the stock Profiler's ``kernel_stats``, over all GPUs of the file.

    Rows are grouped by name, registers, shared memory, grid, block, occupancy and op.
    Durations are cut to whole nanoseconds; shared memory is static plus dynamic.
    """

    name: str
    registers: int
    shared_bytes: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    occupancy_pct: float
    op: str
    calls: int
    total_us: float
    min_us: float
    max_us: float
    uses_tensor_cores: bool = False
    op_takes_tensor_cores: bool = False


def run_tool(path: Path, tool: str, timeout_s: float = 120.0) -> bytes:
    """What one tool of the stock Profiler says about an XPlane file, as it answers the browser."""
    pytest.importorskip("xprof", reason="the stock Profiler (xprof) is not installed")
    with tempfile.TemporaryDirectory() as folder:
        copy, target = Path(folder) / "host.xplane.pb", Path(folder) / "answer"
        shutil.copyfile(path, copy)
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT, str(copy), tool, str(target)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode or not target.is_file():
            raise RuntimeError(f"xprof failed on {path} ({tool}): {done.stderr[-2000:]}")
        return target.read_bytes()


@lru_cache(maxsize=32)
def kernel_stats(path: Path) -> tuple[StockKernel, ...]:
    """The rows of ``kernel_stats`` for one XPlane file, longest total first."""
    table = json.loads(run_tool(path, "kernel_stats"))
    columns = [column["id"] for column in table["cols"]]
    rows = []
    for raw in table["rows"]:
        row = dict(zip(columns, (cell["v"] for cell in raw["c"]), strict=True))
        rows.append(
            StockKernel(
                name=row["kernel_name"],
                registers=int(row["registers_per_thread"]),
                shared_bytes=int(row["shmem_bytes"]),
                grid=_sizes(row["grid_dim"]),
                block=_sizes(row["block_dim"]),
                occupancy_pct=float(row["occupancy_pct"]),
                op=row["op_name"],
                calls=int(row["occurrences"]),
                total_us=float(row["total_duration_us"]),
                min_us=float(row["min_duration_us"]),
                max_us=float(row["max_duration_us"]),
                uses_tensor_cores=bool(row["is_kernel_using_tensor_core"]),
                op_takes_tensor_cores=bool(row["is_op_tensor_core_eligible"]),
            )
        )
    return tuple(rows)


def _sizes(text: str) -> tuple[int, int, int]:
    x, y, z = (int(part) for part in text.split(","))
    return x, y, z
