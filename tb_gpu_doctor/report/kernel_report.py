"""The kernels of a session as one list over all its files: as plain data, as CSV and as a table for a terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.text import Text

from tb_gpu_doctor.report.terminal import Column, print_table
from tb_gpu_doctor.texts import text
from tb_gpu_doctor.texts.numbers import clean, duration, number, percent
from tb_gpu_doctor.traces.columns import PS_PER_MS, PS_PER_US, Device

if TYPE_CHECKING:
    from tb_gpu_doctor.analysis.filling import GridScaling
    from tb_gpu_doctor.analysis.kernel_results import GpuFill, KernelRow

By = Literal["gpu", "kernel"]
# What a spreadsheet takes for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
CSV_HEAD = (
    "id", "gpus", "name", "op", "calls", "total_ms", "in_window_ms", "mean_us", "min_us", "max_us", "share",
    "registers", "static_shared_bytes", "dynamic_shared_bytes", "grid", "block", "blocks", "occupancy", "limiter",
    "recorded_occupancy", "occupancy_differs", "achieved_occupancy", "waves", "tail", "sm_share", "wave_blocks",
    "family", "persistent", "tensor_cores", "data_type", "bound",
)  # fmt: skip
_UNKNOWN = "–"
_MAX_NAME = 400
_MAX_GPUS = 32


@dataclass(frozen=True)
class ListedGpu:
    """One GPU of the session."""

    host: str
    device: Device


@dataclass(frozen=True)
class Listed:
    """One kernel of the list.

    Attributes:
        id: place of its row (of its longest row) in the list per GPU.
        gpus: indices of the GPUs that it is summed up over.
        row: its numbers; of several GPUs together, with the launch facts of the longest.
    """

    id: int
    gpus: tuple[int, ...]
    row: KernelRow


def kernel_list(tables: Sequence[tuple[Sequence[Device], Sequence[KernelRow]]]) -> list[Listed]:
    """All kernels of all files, longest first; GPUs are numbered through over the files."""
    found: list[tuple[int, KernelRow]] = []
    first = 0
    for devices, rows in tables:
        found += [(first + row.device, row) for row in rows]
        first += len(devices)
    found.sort(key=lambda entry: -entry[1].total_ps)
    return [Listed(index, (gpu,), row) for index, (gpu, row) in enumerate(found)]


def over_gpus(kernels: Sequence[Listed], gpus: Sequence[ListedGpu]) -> list[Listed]:
    """The same kernels, summed up over GPUs of the same kind; ``share`` is then the part of all kernel time."""
    groups: dict[tuple[object, ...], list[Listed]] = {}
    for kernel in kernels:
        row, device = kernel.row, gpus[kernel.gpus[0]].device
        kind = (device.name, device.vendor, device.compute_capability, device.sm_count)
        facts = (row.registers, row.static_shared_bytes, row.dynamic_shared_bytes, row.grid, row.block)
        groups.setdefault((row.name, *facts, row.family, row.occupancy, *kind), []).append(kernel)
    everything = sum(kernel.row.total_ps for kernel in kernels)
    found = [_together(group, everything) for group in groups.values()]
    found.sort(key=lambda kernel: (-kernel.row.total_ps, kernel.id))
    return found


def _together(group: list[Listed], everything: int) -> Listed:
    longest, rows = group[0], [kernel.row for kernel in group]
    total = sum(row.total_ps for row in rows)
    row = replace(
        longest.row,
        calls=sum(row.calls for row in rows),
        total_ps=total,
        in_window_ps=sum(row.in_window_ps for row in rows),
        min_ps=min(row.min_ps for row in rows),
        max_ps=max(row.max_ps for row in rows),
        share=total / everything if everything else 0.0,
        occupancy_differs=any(row.occupancy_differs for row in rows),
    )
    return Listed(longest.id, tuple(sorted({gpu for kernel in group for gpu in kernel.gpus})), row)


def as_dict(kernel: Listed) -> dict[str, Any]:
    """One kernel as JSON-ready data; times in milliseconds and microseconds."""
    row = kernel.row
    return {
        "id": kernel.id,
        "device": kernel.gpus[0] if len(kernel.gpus) == 1 else None,
        "devices": list(kernel.gpus),
        "name": row.name,
        "op": row.op,
        "calls": row.calls,
        "total_ms": row.total_ps / PS_PER_MS,
        "in_window_ms": row.in_window_ps / PS_PER_MS,
        "mean_us": row.mean_ps / PS_PER_US,
        "min_us": row.min_ps / PS_PER_US,
        "max_us": row.max_ps / PS_PER_US,
        "share": row.share,
        "registers": row.registers,
        "static_shared_bytes": row.static_shared_bytes,
        "dynamic_shared_bytes": row.dynamic_shared_bytes,
        "grid": row.grid,
        "block": row.block,
        "blocks": row.blocks,
        "occupancy": row.occupancy,
        "limiter": row.limiter,
        "recorded_occupancy": row.recorded_occupancy,
        "occupancy_differs": row.occupancy_differs,
        "achieved_occupancy": row.achieved_occupancy,
        "waves": row.waves,
        "tail": row.tail,
        "sm_share": row.sm_share,
        "wave_blocks": row.wave_blocks,
        "family": row.family,
        "persistent": row.persistent,
        "tensor_cores": row.tensor_cores,
        "data_type": row.data_type,
        "bound": row.bound,
    }


def csv_lines(kernels: Sequence[Listed], gpus: Sequence[ListedGpu]) -> Iterator[str]:
    """The list as CSV (RFC 4180), line by line, with the names of the JSON as its head.

    ``gpus`` stands in place of ``device`` and ``devices``: ``host:number``, separated by blanks. Unknown values are
    empty. A text that a spreadsheet would take for a formula is led by an apostrophe: names come from files that
    anybody may have written.
    """
    target = io.StringIO()
    writer = csv.writer(target)

    def line(cells: Sequence[Any]) -> str:
        target.seek(0)
        target.truncate()
        writer.writerow([_cell(cell) for cell in cells])
        return target.getvalue()

    yield line(CSV_HEAD)
    for kernel in kernels:
        data = as_dict(kernel)
        data["gpus"] = " ".join(f"{gpus[gpu].host}:{gpus[gpu].device.id}" for gpu in kernel.gpus)
        yield line([data[name] for name in CSV_HEAD])


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    if isinstance(value, str):
        # line breaks and other controls would tear rows apart in tools that do not know quoting
        clean = "".join(letter if letter.isprintable() else " " for letter in value)
        return f"'{clean}" if clean.lstrip().startswith(_FORMULA) or value.startswith(_FORMULA) else clean
    return value


def print_kernels(
    kernels: Sequence[Listed], gpus: Sequence[ListedGpu], limit: int, console: Console, lang: str = "en"
) -> None:
    """Print the first ``limit`` kernels of a list, one a line; names are cut at the console's width."""
    if not kernels:
        console.print(Text(text("report.kernel_table.none", lang)))
        return
    # A narrow terminal goes without those that most kernels share or that are rarely recorded.
    heads = {
        "total": 0, "share": 0, "calls": 0, "mean": 0, "occupancy": 0, "achieved": 4, "waves": 3, "limiter": 1,
        "tensor_cores": 2, "family": 5, "name": 0,
    }  # fmt: skip
    columns = [
        Column(text(f"report.kernel_table.{head}", lang), index < 7, spare)
        for index, (head, spare) in enumerate(heads.items())
    ]
    rows = []
    several = len(gpus) > 1 and any(len(kernel.gpus) == 1 for kernel in kernels)
    for kernel in kernels[:limit]:
        row = kernel.row
        where = ""
        if several and len(kernel.gpus) == 1:
            gpu = gpus[kernel.gpus[0]]
            where = f"[{gpu.host}:{gpu.device.id}] "
        rows.append([
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
    print_table(columns, rows, console)
    if any(kernel.row.occupancy_differs for kernel in kernels[:limit]):
        console.print(Text(text("report.kernel_table.differs", lang)))
    if len(kernels) > limit:
        console.print(Text(text("report.kernel_table.more", lang, count=len(kernels) - limit)))


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
    scaling: Sequence[GridScaling], batch: int, other_batch: int, limit: int, console: Console, lang: str = "en"
) -> None:
    """How grids grow from one batch size to another, and from which batch on they fill the GPU."""
    console.print(Text(text("report.grid_scaling.title", lang, batch=batch, other=other_batch), style="bold"))
    if not scaling:
        console.print(Text(text("report.grid_scaling.none", lang)))
        return
    heads = ("blocks", "other_blocks", "covered", "filled")
    columns = [Column(text(f"report.grid_scaling.{head}", lang), is_number=True) for head in heads]
    columns.append(Column(text("report.kernel_table.name", lang)))
    rows = []
    for entry in scaling[:limit]:
        fixed = text("report.grid_scaling.fixed", lang)
        covered, filled = (
            (_UNKNOWN if value is None else number(value, lang)) if entry.scales else fixed
            for value in (entry.block_per_sm_batch, entry.full_wave_batch)
        )
        rows.append([
            number(entry.blocks, lang), number(entry.other_blocks, lang), covered, filled, clean(entry.name, _MAX_NAME),
        ])  # fmt: skip
    print_table(columns, rows, console)


def _percent(value: float | None, lang: str) -> str:
    return _UNKNOWN if value is None else percent(value, lang)
