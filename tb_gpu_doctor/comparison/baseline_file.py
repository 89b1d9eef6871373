"""A `RunSummary` as a small JSON file that can be reviewed and kept beside the code."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from tb_gpu_doctor.analysis.step_costs import PART_IDS
from tb_gpu_doctor.comparison.summary import MAX_KERNELS, MAX_STEPS, TELEMETRY, FindingSum, KernelSum, RunSummary
from tb_gpu_doctor.diagnosis.model import SEVERITIES
from tb_gpu_doctor.diagnosis.registry import kinds
from tb_gpu_doctor.files.errors import RemoteError
from tb_gpu_doctor.files.fetching import read_head
from tb_gpu_doctor.files.names import is_remote, local_path, shown
from tb_gpu_doctor.traces.columns import PS_PER_MS
from tb_gpu_doctor.traces.errors import TraceError

KIND = "gpu-doctor baseline"
VERSION = 1
# A baseline has a few hundred kilobytes at most; what is larger is something else.
MAX_BYTES = 8 << 20
_MAX_GPUS = 100_000
# No time, size or count is larger; sums of such numbers stay numbers.
_MOST = 1e15
_DIGITS = 6  # of a millisecond: nanoseconds
_T = TypeVar("_T")


def to_dict(summary: RunSummary) -> dict[str, Any]:
    """Plain data; times are milliseconds, rounded to nanoseconds."""
    return {
        "kind": KIND,
        "version": VERSION,
        "label": summary.label,
        "format": summary.format,
        "verdict": summary.verdict,
        "gpus": list(summary.models),
        "hosts": summary.hosts,
        "unread_files": summary.unread,
        "batch": summary.batch,
        "steps": {
            "source": summary.step_source,
            "count": summary.step_count,
            "median_ms": _ms(summary.median_ps),
            "wall_ms": [_ms(value) for value in summary.wall_ps.tolist()],
            "parts_ms": {
                part: [_ms(value) for value in summary.parts_ps[:, index].tolist()]
                for index, part in enumerate(PART_IDS)
                if summary.parts_ps[:, index].any()
            },
        },
        "window_ms": _ms(summary.window_ps),
        "window_shares": {
            part: _round(v) for part, v in zip(PART_IDS, summary.window_parts.tolist(), strict=True) if v
        },
        "occupancy": _round(summary.occupancy),
        "telemetry": {name: _round(value) for name, value in sorted(summary.telemetry.items())},
        "multiprocessors": summary.sm_count,
        "doubts": list(summary.doubts),
        "not_shown": list(summary.not_shown),
        "findings": [
            {
                "kind": finding.kind,
                "cause": finding.cause,
                "severity": finding.severity,
                "share": _round(finding.share),
                "saving_ms_per_step": _ms(finding.saving_ps_per_step),
                "gpus": list(finding.gpus),
                **({} if finding.part_of is None else {"part_of": finding.part_of}),
            }
            for finding in summary.findings
        ],
        "kernels": [
            {
                "name": row.name,
                "grid": row.grid,
                "block": row.block,
                "calls": _round(row.calls),
                "ms": _ms(row.total_ps),
                "occupancy": _round(row.occupancy),
                **({} if row.wave_blocks is None else {"wave_blocks": row.wave_blocks}),
            }
            for row in summary.kernels
        ],
    }


def to_json(summary: RunSummary) -> str:
    """A kernel and a finding a line, so that a change of a baseline reads well in a review."""
    data = to_dict(summary)
    lines = [f"  {json.dumps(name)}: {_value(data[name])}" for name in data]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _value(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(f"    {json.dumps(entry, allow_nan=False)}" for entry in value) + "\n  ]"
    if isinstance(value, dict) and "wall_ms" in value:
        return "{\n" + ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n  }"
    return json.dumps(value, allow_nan=False)


def is_baseline(path: str) -> bool:
    """Whether a path looks like a baseline file and not like a profile, whatever it is called."""
    path = local_path(path)
    if is_remote(path):
        return _is_remote_baseline(path)
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            head = file.read(200)
            if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
                return False
            # a tool that sorts keys moves the kind down
            return KIND.encode() in head or (os.path.getsize(path) <= MAX_BYTES and KIND.encode() in head + file.read())
    except (OSError, ValueError):
        return False


def _is_remote_baseline(path: str) -> bool:
    """The same behind an address, by its name and its first bytes: a large trace is not fetched for this."""
    if not shown(path).endswith(".json"):
        return False
    try:
        return KIND.encode() in read_head(path, 1 << 16)
    except OSError:
        return False


def read(path: str) -> RunSummary:
    """Read a baseline file.

    Raises:
        TraceError: ``unreadable_file``, ``bad_baseline`` or ``newer_baseline``.
    """
    try:
        content = read_head(path, MAX_BYTES + 1)
    except RemoteError as error:
        raise TraceError(error.code, shown(path), **error.params) from error
    except OSError as error:
        raise TraceError("unreadable_file", shown(path), reason=error.strerror or str(error)) from error
    if len(content) > MAX_BYTES:
        raise TraceError("bad_baseline", shown(path), reason=f"> {MAX_BYTES} bytes")
    try:
        data = json.loads(content)
        if not isinstance(data, dict) or data.get("kind") != KIND:
            raise ValueError("kind")
        if isinstance(data.get("version"), int) and data["version"] > VERSION:
            raise TraceError("newer_baseline", shown(path), version=data["version"])
        return from_dict(data)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise TraceError("bad_baseline", shown(path), reason=f"{type(error).__name__}: {error}"[:200]) from error


def from_dict(data: Mapping[str, Any]) -> RunSummary:
    """The summary of plain data.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    steps = data["steps"]
    wall = np.array([_number(value) for value in _bounded(steps["wall_ms"], MAX_STEPS)], np.float64) * PS_PER_MS
    parts = np.zeros((len(wall), len(PART_IDS)))
    for part, values in steps["parts_ms"].items():
        column = [_number(value) for value in _bounded(values, MAX_STEPS)]
        parts[:, PART_IDS.index(part)] = np.array(column) * PS_PER_MS
    count = int(_number(steps["count"]))
    if (len(wall) and (wall <= 0).any()) or count < len(wall) or bool(count) != bool(len(wall)):
        raise ValueError("steps.wall_ms")
    shares = np.zeros(len(PART_IDS))
    for part, value in data["window_shares"].items():
        shares[PART_IDS.index(part)] = _number(value)
    findings = [_finding(row) for row in _bounded(data["findings"], 1_000)]
    return RunSummary(
        label=str(data["label"]),
        format=str(data["format"]),
        verdict=_one_of(data["verdict"], (*SEVERITIES, "ok", "cannot_tell")),
        models=tuple(None if name is None else str(name) for name in _bounded(data["gpus"], _MAX_GPUS)),
        hosts=int(_number(data["hosts"])),
        batch=_count(data["batch"]),
        step_source=_one_of(steps["source"], ("marked", "inferred", "none")),
        step_count=count,
        median_ps=_ps(steps["median_ms"]),
        wall_ps=wall,
        parts_ps=parts,
        window_ps=_ps(data["window_ms"]) or 0.0,
        window_parts=shares,
        kernels=tuple(_kernel(row) for row in _bounded(data["kernels"], MAX_KERNELS)),
        # A kind that another version knows is none that this one could find again.
        findings=tuple(finding for finding in findings if finding.kind in kinds()),
        doubts=tuple(str(kind) for kind in _bounded(data["doubts"], 100) if kind in kinds()),
        occupancy=None if data["occupancy"] is None else _number(data["occupancy"]),
        # A metric that another version knows is none that this one could show.
        telemetry={name: _number(value) for name, value in data["telemetry"].items() if name in TELEMETRY},
        # not written by earlier versions
        unread=int(_number(data.get("unread_files", 0))),
        sm_count=_count(data.get("multiprocessors")),
        not_shown=tuple(str(kind) for kind in _bounded(data.get("not_shown", []), 100) if kind in kinds()),
    )


def _kernel(row: Mapping[str, Any]) -> KernelSum:
    return KernelSum(
        str(row["name"]),
        _dim3(row["grid"]),
        _dim3(row["block"]),
        _number(row["calls"]),
        _number(row["ms"]) * PS_PER_MS,
        None if row["occupancy"] is None else _number(row["occupancy"]),
        _count(row.get("wave_blocks")),
    )


def _finding(row: Mapping[str, Any]) -> FindingSum:
    return FindingSum(
        str(row["kind"]),
        None if row["cause"] is None else str(row["cause"]),
        _one_of(row["severity"], SEVERITIES),
        None if row["share"] is None else _number(row["share"]),
        _ps(row["saving_ms_per_step"]),
        tuple(str(gpu) for gpu in _bounded(row["gpus"], _MAX_GPUS)),
        # not written by earlier versions
        None if row.get("part_of") is None else str(row["part_of"]),
    )


def _one_of(value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ValueError(f"unknown: {value!r}"[:80])
    return str(value)


def _dim3(value: Any) -> tuple[int, int, int] | None:
    if value is None:
        return None
    x, y, z = (int(_number(size)) for size in value)
    return x, y, z


def _bounded(values: list[_T], most: int) -> list[_T]:
    if not isinstance(values, list) or len(values) > most:
        raise ValueError(f"more than {most} entries")
    return values


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        raise ValueError(f"not a number: {value!r}"[:80])
    return float(value)


def _count(value: Any) -> int | None:
    return None if value is None else int(_number(value)) or None


def _ps(value: Any) -> float | None:
    return None if value is None else _number(value) * PS_PER_MS


def _ms(value: float | None) -> float | None:
    return None if value is None else round(float(value) / PS_PER_MS, _DIGITS)


def _round(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
