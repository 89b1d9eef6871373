"""The kernel table against the stock Profiler's ``kernel_stats``, on the demo runs and on recorded files."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tb_gpu_doctor.analysis.kernel_results import KernelRow, KernelTable
from tb_gpu_doctor.analysis.kernels import kernel_table
from tb_gpu_doctor.traces.columns import Trace
from tests.stock_profiler import MAX_ROWS, StockKernel, kernel_stats


def profiles() -> list[Path]:
    repository = Path(__file__).parents[2]
    roots = (repository / "demo_logs", repository.parent / "shared" / "traces")
    return [path for root in roots for path in sorted(root.glob("**/plugins/profile/*/*.xplane.pb"))]


def ours_by_shape(trace: Trace) -> dict[tuple[object, ...], list[KernelRow]]:
    shapes = defaultdict(list)
    for row in kernel_table(trace, None).rows:
        shapes[row.name, row.registers or 0, row.grid, row.block].append(row)
    return shapes


def stock_by_shape(path: Path) -> dict[tuple[object, ...], list[StockKernel]]:
    shapes = defaultdict(list)
    for row in kernel_stats(path):
        registers = row.registers if row.registers <= 255 else 0
        shapes[row.name, registers, row.grid, row.block].append(row)
    return shapes


@pytest.mark.parametrize("path", profiles(), ids=lambda path: f"{path.parents[3].name}-{path.name.split('.')[0]}")
def test_against_the_stock_profiler(path: Path) -> None:
    """Calls and times per kernel and launch shape, over all GPUs of a file.

    Where the two differ on purpose:

    - the stock Profiler merges all GPUs of a file, so ours are summed over them;
    - it keeps the 1,000 longest kernels;
    - it cuts each duration to whole nanoseconds: one event may differ by one;
    - it shows the registers as recorded, garbage included (2,191,500,840); ours are unknown then;
    - its shared memory leaves out ``shm`` (TF 2.3/2.4) and ``group_mem`` (ROCm);
    - it splits a kernel by its op, we name the most frequent one (the tree has them all);
    - it knows no tensor cores by the names of Hopper's kernels, and takes AMD's matrix units for some;
    - kernels without launch details (CUDA graphs recorded as one event) are missing there.
    """
    xplane = pytest.importorskip("tb_gpu_doctor.traces.xplane")
    trace = xplane.read_xplane(path)
    ours, stock = ours_by_shape(trace), stock_by_shape(path)
    complete = sum(map(len, stock.values())) < MAX_ROWS
    for shape, rows in stock.items():
        assert shape in ours, shape
        mine = ours[shape]
        calls = sum(row.calls for row in rows)
        if complete:
            assert sum(row.calls for row in mine) == calls
            assert sum(row.total_ps for row in mine) / 1e6 == pytest.approx(
                sum(row.total_us for row in rows), abs=0.001 * (calls + len(rows))
            )
            assert min(row.min_ps for row in mine) / 1e6 == pytest.approx(min(row.min_us for row in rows), abs=0.002)
        assert max(row.max_ps for row in mine) / 1e6 == pytest.approx(max(row.max_us for row in rows), abs=0.002)
        check_occupancy(trace, mine, rows)
        check_launch(trace, mine, rows)
    if complete:
        assert all(shape in stock for shape, rows in ours.items() if rows[0].grid is not None)


def check_launch(trace: Trace, mine: list[KernelRow], stock: list[StockKernel]) -> None:
    """Shared memory in today's dialect; and what is known to use tensor cores there is known here."""
    for row in mine:
        if row.dynamic_shared_bytes is not None:
            assert row.shared_bytes in {kernel.shared_bytes for kernel in stock}
        if row.tensor_cores is not None and any(kernel.uses_tensor_cores for kernel in stock):
            assert row.tensor_cores == "used"


@pytest.mark.parametrize("run", ["input_bound", "slow_gpu"])
def test_by_op_against_the_stock_profiler(run: str, demo_logs: Path) -> None:
    """TensorFlow's ops are named by both; the stock Profiler leaves out the type after the colon."""
    xplane = pytest.importorskip("tb_gpu_doctor.traces.xplane")
    (path,) = (demo_logs / run).glob("plugins/profile/*/*.xplane.pb")
    trace = xplane.read_xplane(str(path))
    table = kernel_table(trace, None)
    assert table.ops is not None
    ours: dict[tuple[object, ...], list[int]] = defaultdict(lambda: [0, 0])
    for index, op, calls, total in zip(*(column.tolist() for column in ops_columns(table)), strict=True):
        row = table.rows[index]
        mine = ours[row.name, row.grid, row.block, trace.strings[op].rpartition(":")[0]]
        mine[0] += calls
        mine[1] += total
    stock: dict[tuple[object, ...], list[float]] = defaultdict(lambda: [0, 0.0])
    for kernel in kernel_stats(path):
        sums = stock[kernel.name, kernel.grid, kernel.block, kernel.op]
        sums[0] += kernel.calls
        sums[1] += kernel.total_us
    assert ours.keys() == stock.keys() and len(ours) > 400
    for key, (calls, total) in ours.items():
        assert stock[key][0] == calls
        assert stock[key][1] == pytest.approx(total / 1e6, abs=0.001 * (calls + 1))


def ops_columns(table: KernelTable) -> tuple[np.ndarray, ...]:
    assert table.ops is not None
    return table.ops.row, table.ops.op, table.ops.calls, table.ops.total_ps


def check_occupancy(trace: Trace, mine: list[KernelRow], stock: list[StockKernel]) -> None:
    """Where the recording knows an occupancy, ours is the same up to its rounding."""
    recorded = {row.occupancy_pct for row in stock} - {0.0}
    for row in mine:
        if recorded and trace.devices[row.device].is_nvidia:
            assert row.occupancy is not None
            assert min(abs(100 * row.occupancy - pct) for pct in recorded) <= 1.0
