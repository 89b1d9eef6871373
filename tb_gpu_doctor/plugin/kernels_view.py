"""The answers about kernels: table, tree by op, filling by step, fusion candidates, staircase, CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tb_gpu_doctor.analysis.filling import gpu_fills, sm_efficiency, step_use
from tb_gpu_doctor.analysis.kernel_families import FAMILIES, TENSOR_CLASSES
from tb_gpu_doctor.analysis.kernel_tree import KERNEL, kernel_tree, largest
from tb_gpu_doctor.analysis.occupancy import (
    BLOCK_SIZE,
    BLOCKS,
    REGISTERS,
    SHARED_MEMORY,
    UNLIMITED,
    config_of,
    next_steps,
    staircase,
    theoretical_occupancy,
)
from tb_gpu_doctor.plugin.responses import to_json
from tb_gpu_doctor.plugin.timeline import MAX_NAME_CHARS, shorten
from tb_gpu_doctor.report.kernel_report import By, Listed, ListedGpu, as_dict, csv_lines, kernel_list, over_gpus
from tb_gpu_doctor.traces.columns import PS_PER_MS

if TYPE_CHECKING:
    from tb_gpu_doctor.analysis.kernel_results import KernelRow
    from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
    from tb_gpu_doctor.plugin.lanes import ClockShift
    from tb_gpu_doctor.traces.columns import Trace

MAX_ROWS, MAX_NODES, MAX_STEPS, MAX_CANDIDATES = 5_000, 5_000, 2_000, 200
# Kernels by op of which the tree is made, the longest ones.
MAX_TIMES = 50_000
# Rows that are kept for the CSV and for sums over GPUs, the longest ones: no real profile has nearly as many.
MAX_KEPT = 100_000
# Rough sizes in memory, for the bound on all kept answers.
_ROW_BYTES, _TIME_BYTES = 1_200, 200


class KernelsView:
    """What a session's kernels say, made when the session is.

    Args:
        traces: the files of the session.
        analyses: one for each.
        hosts: label of each.
        shifts: what the timeline adds to the times of each.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        analyses: Sequence[TraceAnalysis],
        hosts: Sequence[str],
        shifts: Sequence[ClockShift],
    ) -> None:
        self._gpus = [
            ListedGpu(host, device) for host, trace in zip(hosts, traces, strict=True) for device in trace.devices
        ]
        kernels = kernel_list(
            [(trace.devices, analysis.kernels.rows) for trace, analysis in zip(traces, analyses, strict=True)]
        )
        self._left_out = max(0, len(kernels) - MAX_KEPT)
        self._kernels = kernels[:MAX_KEPT]
        self._devices = _devices(traces, analyses, self._gpus)
        self._times = _times(traces, analyses)
        self.filling_json = to_json(_filling(traces, analyses))
        self.fusion_json = to_json(_fusion(traces, analyses, shifts))
        self._tables: dict[str, bytes] = {}
        self._trees: dict[int | None, bytes] = {}

    @property
    def device_count(self) -> int:
        """GPUs of the session."""
        return len(self._gpus)

    @property
    def size_bytes(self) -> int:
        """Approximate memory held."""
        texts = sum(map(len, [*self._tables.values(), *self._trees.values()]))
        texts += len(self.filling_json) + len(self.fusion_json)
        return texts + _ROW_BYTES * len(self._kernels) + _TIME_BYTES * len(self._times)

    def table_json(self, by: By) -> bytes:
        """The answer of ``kernels``."""
        made = self._tables.get(by)
        if made is None:  # two who ask at once make it twice
            rows = self._listed(by)
            made = self._tables[by] = to_json(
                {
                    "devices": self._devices,
                    "rows": [_short(as_dict(kernel)) for kernel in rows[:MAX_ROWS]],
                    "by": by,
                    "total_rows": len(rows) + self._left_out,
                    "truncated": len(rows) > MAX_ROWS or self._left_out > 0,
                }
            )
        return made

    def csv(self, by: By) -> bytes:
        """The whole table as CSV, with the mark by which spreadsheets know UTF-8."""
        return "".join(csv_lines(self._listed(by), self._gpus)).encode("utf-8-sig", "replace")

    def _listed(self, by: By) -> list[Listed]:
        return self._kernels if by == "gpu" else over_gpus(self._kernels, self._gpus)

    def tree_json(self, device: int | None) -> bytes:
        """The answer of ``kernels/tree`` for one GPU or all, made once."""
        made = self._trees.get(device)
        if made is None:
            made = self._trees[device] = self._tree(device)  # two who ask at once make it twice
        return made

    def _tree(self, device: int | None) -> bytes:
        root = kernel_tree(
            (row, op, calls, total) for gpu, row, op, calls, total in self._times if device is None or gpu == device
        )
        found, truncated = largest(root, MAX_NODES)
        nodes = [
            {
                "parent": parent,
                "kind": node.kind,
                "name": shorten(node.name, MAX_NAME_CHARS),
                "total_ms": node.total_ps / PS_PER_MS,
                "calls": node.calls,
                "share": node.total_ps / root.total_ps if root.total_ps else 0.0,
                "occupancy": node.mean("occupancy"),
                "achieved_occupancy": node.mean("achieved_occupancy"),
                "sm_share": node.mean("sm_share"),
                "tensor_cores": node.row.tensor_cores if node.row is not None and node.kind == KERNEL else None,
                "family": node.row.family if node.row is not None and node.kind == KERNEL else None,
            }
            for parent, node in found
        ]
        truncated |= len(self._times) >= MAX_TIMES
        return to_json({"nodes": nodes, "total_ms": root.total_ps / PS_PER_MS, "truncated": truncated})

    def staircase_json(self, kernel: int) -> bytes | None:
        """The answer of ``kernels/staircase``; None where there is no such kernel."""
        if not 0 <= kernel < len(self._kernels):
            return None
        row = self._kernels[kernel].row
        device = self._gpus[self._kernels[kernel].gpus[0]].device
        return to_json(
            {
                "kernel": kernel,
                "name": shorten(row.name, MAX_NAME_CHARS),
                "compute_capability": device.compute_capability,
                **_steps_of(row, device.compute_capability if device.is_nvidia else None),
            }
        )


def _steps_of(row: KernelRow, capability: tuple[int, int] | None) -> dict[str, Any]:
    config = config_of(capability, row.registers, row.shared_bytes, row.block_threads)
    if config is None:
        return {"now": None, "curves": None, "next": None}
    now = theoretical_occupancy(capability, config.registers, config.shared_bytes, config.block_threads)
    assert now is not None
    allowed = (now.by_warps, now.by_blocks, now.by_registers, now.by_shared_memory)
    return {
        "now": {
            "registers": config.registers,
            "shared_bytes": config.shared_bytes,
            "block_threads": config.block_threads,
            "occupancy": now.value,
            "active_blocks": now.active_blocks,
            "limiter": now.limiter,
            "allowed": {
                name: None if blocks == UNLIMITED else blocks
                for name, blocks in zip((BLOCK_SIZE, BLOCKS, REGISTERS, SHARED_MEMORY), allowed, strict=True)
            },
        },
        "curves": {
            what: {"x": curve.x, "occupancy": curve.occupancy, "limiter": curve.limiter}
            for what, curve in staircase(config).items()
        },
        "next": [
            {
                "changes": [
                    {"what": change.what, "from": change.before, "to": change.after} for change in step.changes
                ],
                "occupancy": step.occupancy,
                "active_blocks": step.active_blocks,
            }
            for step in next_steps(config)
        ],
    }


def _short(row: dict[str, Any]) -> dict[str, Any]:
    row["name"], row["op"] = shorten(row["name"], MAX_NAME_CHARS), shorten(row["op"], MAX_NAME_CHARS)
    return row


def _devices(
    traces: Sequence[Trace], analyses: Sequence[TraceAnalysis], gpus: Sequence[ListedGpu]
) -> list[dict[str, Any]]:
    """What the kernels say of each GPU."""
    found: list[dict[str, Any]] = []
    for trace, analysis in zip(traces, analyses, strict=True):
        accounts = {account.device: account for account in analysis.accounting}
        for fill in analysis.kernels.fills or gpu_fills(analysis.kernels.rows, trace.devices):
            gpu, account = gpus[len(found)], accounts.get(fill.device)
            tensor = None
            if fill.tensor_ps is not None:
                tensor = {name: time / PS_PER_MS for name, time in zip(TENSOR_CLASSES, fill.tensor_ps, strict=True)}
            found.append(
                {
                    "host": gpu.host,
                    "id": gpu.device.id,
                    "name": gpu.device.name,
                    "compute_capability": gpu.device.compute_capability,
                    "sm_count": gpu.device.sm_count,
                    "kernel_ms": fill.kernel_ps / PS_PER_MS,
                    "window_ms": None if account is None else account.wall / PS_PER_MS,
                    "occupancy": fill.occupancy,
                    "occupancy_coverage": fill.occupancy_coverage,
                    "achieved_occupancy": fill.achieved_occupancy,
                    "sm_share": fill.sm_share,
                    "sm_efficiency": sm_efficiency(fill, account),
                    "tensor_cores_ms": tensor,
                    "families_ms": {
                        family: time / PS_PER_MS for family, time in zip(FAMILIES, fill.family_ps, strict=True)
                    },
                }
            )
    return found


def _times(traces: Sequence[Trace], analyses: Sequence[TraceAnalysis]) -> list[tuple[int, KernelRow, str, int, int]]:
    """(GPU, kernel, op, calls, picoseconds), the longest ones."""
    found: list[tuple[int, KernelRow, str, int, int]] = []
    first = 0
    for trace, analysis in zip(traces, analyses, strict=True):
        times = analysis.kernels.ops
        if times is not None:
            totals = times.total_ps
            kept = np.argsort(-totals, kind="stable")[:MAX_TIMES] if len(totals) > MAX_TIMES else range(len(totals))
            names: dict[tuple[int, int], str] = {}
            for at in kept:
                row, op = analysis.kernels.rows[int(times.row[at])], int(times.op[at])
                layer = -1 if times.scope is None else int(times.scope[at])
                if (op, layer) not in names:
                    names[op, layer] = "/".join((*(times.scopes[layer] if layer >= 0 else ()), trace.strings[op]))
                found.append((first + row.device, row, names[op, layer], int(times.calls[at]), int(totals[at])))
        first += len(trace.devices)
    if len(found) > MAX_TIMES:
        found.sort(key=lambda entry: -entry[4])
        del found[MAX_TIMES:]
    return found


def _filling(traces: Sequence[Trace], analyses: Sequence[TraceAnalysis]) -> dict[str, Any]:
    """The answer of ``kernels/filling``: steps of one number are one step, whatever file they are of."""
    count = sum(len(trace.devices) for trace in traces)
    usable = [analysis for analysis in analyses if analysis.kernels.steps is not None and len(analysis.steps.number)]
    numbers = sorted({int(number) for analysis in usable for number in analysis.steps.number})
    shown = numbers[:MAX_STEPS]
    place = {number: index for index, number in enumerate(shown)}
    names = ("kernel_ms", "wall_ms", "occupancy", "achieved_occupancy", "sm_share", "sm_efficiency")
    columns = {name: np.full((len(shown), count), np.nan) for name in names}
    complete = np.ones(len(shown), np.bool_)
    first = 0
    for trace, analysis in zip(traces, analyses, strict=True):
        fill, steps = analysis.kernels.steps, analysis.steps
        width = len(trace.devices)
        if fill is not None and len(steps.number):
            use = step_use(steps, fill, analysis.summaries)
            kept = [index for index, number in enumerate(steps.number.tolist()) if number in place]
            at = [place[int(steps.number[index])] for index in kept]
            values = (
                fill.kernel_ps / PS_PER_MS, use.wall_ps / PS_PER_MS, fill.occupancy, fill.achieved_occupancy,
                fill.sm_share, use.sm_efficiency,
            )  # fmt: skip
            for name, value in zip(names, values, strict=True):
                columns[name][at, first : first + width] = value[kept]
            complete[at] &= steps.complete[kept]
        first += width
    return {
        "devices": list(range(count)) if shown else [],
        "steps": shown,
        "complete": complete.tolist(),
        **{name: _known(column) for name, column in columns.items()},
        "truncated": len(numbers) > MAX_STEPS,
    }


def _known(column: np.ndarray) -> list[list[float | None]]:
    return [[None if value != value else value for value in row] for row in column.tolist()]


def _fusion(traces: Sequence[Trace], analyses: Sequence[TraceAnalysis], shifts: Sequence[ClockShift]) -> dict[str, Any]:
    """The answer of ``kernels/fusion``."""
    found: list[tuple[int, dict[str, Any]]] = []
    saving: list[float] = []
    for trace, analysis, shift in zip(traces, analyses, shifts, strict=True):
        first, table, steps = len(saving), analysis.kernels, analysis.steps.count
        for candidate in table.fusion:
            names = [shorten(table.rows[row].name, MAX_NAME_CHARS) for row in candidate.rows]
            found.append(
                (
                    candidate.saving_ps,
                    {
                        "device": first + candidate.device,
                        "kernels": candidate.kernels,
                        "runs": candidate.runs,
                        "total_ms": candidate.total_ps / PS_PER_MS,
                        "saving_ms": candidate.saving_ps / PS_PER_MS,
                        "saving_per_step_ms": candidate.saving_in_steps_ps / steps / PS_PER_MS if steps else None,
                        "names": names,
                        "ops": [shorten(trace.strings[op], MAX_NAME_CHARS) for op in candidate.ops],
                        "start_ps": candidate.start + shift.offset,
                        "end_ps": candidate.end + shift.offset,
                    },
                )
            )
        saving += [time / PS_PER_MS for time in table.fusion_ps] or [0.0] * len(trace.devices)
    found.sort(key=lambda entry: -entry[0])
    return {
        "candidates": [entry for _, entry in found[:MAX_CANDIDATES]],
        "saving_ms": saving,
        "truncated": len(found) > MAX_CANDIDATES,
    }
