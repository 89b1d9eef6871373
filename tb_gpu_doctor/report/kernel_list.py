"""The kernels of a session as one list over all its files: per GPU or summed up, as plain data and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from tb_gpu_doctor.traces.columns import PS_PER_MS, PS_PER_US, Device

if TYPE_CHECKING:
    from tb_gpu_doctor.analysis.kernel_results import KernelRow, KernelTable

By = Literal["gpu", "kernel"]
# What a spreadsheet takes for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


CSV_HEAD = (
    "id", "gpus", "name", "op", "calls", "total_ms", "in_window_ms", "mean_us", "min_us", "max_us", "share",
    "registers", "static_shared_bytes", "dynamic_shared_bytes", "grid", "block", "blocks", "occupancy", "limiter",
    "recorded_occupancy", "occupancy_differs", "achieved_occupancy", "waves", "tail", "sm_share", "wave_blocks",
    "family", "persistent", "tensor_cores", "data_type", "bound",
)  # fmt: skip


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


def kernel_list(tables: Sequence[tuple[Sequence[Device], KernelTable]]) -> list[Listed]:
    """All kernels of all files, longest first; GPUs are numbered through over the files."""
    found: list[tuple[int, KernelRow]] = []
    first = 0
    for devices, table in tables:
        found += [(first + row.device, row) for row in table.rows]
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
