"""The kernel table for a terminal: the longest kernels with what limits them, and what fills each GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from tb_gpu_doctor.report.kernel_list import Listed, ListedGpu
from tb_gpu_doctor.texts import text
from tb_gpu_doctor.texts.numbers import clean, duration, number, percent

if TYPE_CHECKING:
    from tb_gpu_doctor.analysis.filling import GridScaling
    from tb_gpu_doctor.analysis.kernel_results import GpuFill

_UNKNOWN = "–"
_MAX_NAME = 400
_LEAST_NAME = 24
_MAX_GPUS = 32


def print_kernels(
    kernels: Sequence[Listed], gpus: Sequence[ListedGpu], most: int, console: Console, lang: str = "en"
) -> None:
    """Print the first ``most`` kernels of a list, one a line; names are cut at the console's width."""
    if not kernels:
        console.print(Text(text("report.kernel_table.none", lang)))
        return
    heads = (
        "total", "share", "calls", "mean", "occupancy", "achieved", "waves", "limiter", "tensor_cores", "family",
        "name",
    )  # fmt: skip
    lines = [[text(f"report.kernel_table.{head}", lang) for head in heads]]
    several = len(gpus) > 1 and any(len(kernel.gpus) == 1 for kernel in kernels)
    for kernel in kernels[:most]:
        row = kernel.row
        where = ""
        if several and len(kernel.gpus) == 1:
            gpu = gpus[kernel.gpus[0]]
            where = f"[{gpu.host}:{gpu.device.id}] "
        lines.append([
            duration(row.total_ps, lang),
            percent(row.share, lang),
            number(row.calls, lang),
            duration(row.mean_ps, lang),
            _percent(row.occupancy, lang) + ("*" if row.occupancy_differs else ""),
            _percent(row.achieved_occupancy, lang),
            _UNKNOWN if row.waves is None else number(row.waves, lang, 1),
            _UNKNOWN if row.limiter is None else text(f"report.limiters.{row.limiter}", lang),
            _UNKNOWN if row.tensor_cores is None else text(f"report.tensor_cores.{row.tensor_cores}", lang),
            text(f"report.families.{row.family}", lang),
            clean(f"{where}{row.name}", _MAX_NAME),
        ])  # fmt: skip
    _print_table(lines, 7, console)
    if any(kernel.row.occupancy_differs for kernel in kernels[:most]):
        console.print(Text(text("report.kernel_table.differs", lang)))
    if len(kernels) > most:
        console.print(Text(text("report.kernel_table.more", lang, count=len(kernels) - most)))


def print_fills(fills: Sequence[tuple[ListedGpu, GpuFill]], console: Console, lang: str = "en") -> None:
    """One line a GPU that ran kernels: occupancy, multiprocessors, tensor cores."""
    shown = [(gpu, fill) for gpu, fill in fills if fill.kernel_ps]
    for gpu, fill in shown[:_MAX_GPUS]:
        facts = {
            "gpu": f"{clean(gpu.host)}:{gpu.device.id}",
            "kernels": fill.kernel_ps,
            "occupancy": _percent(fill.occupancy, lang),
            "achieved": _percent(fill.achieved_occupancy, lang),
            "sms": _percent(fill.sm_share, lang),
        }
        line = text("report.kernel_table.gpu", lang, **facts)
        used, unused = fill.tensor_ps[:2] if fill.tensor_ps is not None else (0, 0)
        if used + unused:
            line += " " + text("report.kernel_table.gpu_tensor", lang, used=used / (used + unused))
        console.print(Text(line))
    if len(shown) > _MAX_GPUS:
        console.print(Text(text("report.kernel_table.more_gpus", lang, count=len(shown) - _MAX_GPUS)))


def print_scaling(
    scaling: Sequence[GridScaling], batch: int, other_batch: int, most: int, console: Console, lang: str = "en"
) -> None:
    """How grids grow from one batch size to another, and from which batch on they fill the GPU."""
    console.print(Text(text("report.grid_scaling.title", lang, batch=batch, other=other_batch), style="bold"))
    if not scaling:
        console.print(Text(text("report.grid_scaling.none", lang)))
        return
    heads = ("blocks", "other_blocks", "covered", "filled")
    lines = [[*(text(f"report.grid_scaling.{h}", lang) for h in heads), text("report.kernel_table.name", lang)]]
    for entry in scaling[:most]:
        fixed = text("report.grid_scaling.fixed", lang)
        covered, filled = (
            (_UNKNOWN if value is None else number(value, lang)) if entry.scales else fixed
            for value in (entry.block_per_sm_batch, entry.full_wave_batch)
        )
        lines.append([
            number(entry.blocks, lang), number(entry.other_blocks, lang), covered, filled, clean(entry.name, _MAX_NAME),
        ])  # fmt: skip
    _print_table(lines, 4, console)


def _print_table(lines: Sequence[Sequence[str]], numbers: int, console: Console) -> None:
    """Columns side by side, the first ``numbers`` to the right; the last one is cut where the console ends."""
    widths = [max(cell_len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)]
    room = max(console.width - sum(widths) - 2 * len(widths), _LEAST_NAME)
    for index, line in enumerate(lines):
        cells = []
        for column, width in enumerate(widths):
            padding = " " * (width - cell_len(line[column]))
            cells.append(padding + line[column] if column < numbers else line[column] + padding)
        name = line[-1] if cell_len(line[-1]) <= room else set_cell_size(line[-1], room - 1) + "…"
        console.print(Text("  ".join([*cells, name]), style="bold" if index == 0 else ""), soft_wrap=True)


def _percent(value: float | None, lang: str) -> str:
    return _UNKNOWN if value is None else percent(value, lang)
