"""A `RunSummary` as a small JSON file that can be reviewed and kept beside the code.

Times are milliseconds there, rounded to nanoseconds. The structs declare what a file holds and within which bounds;
what has a default was not written by earlier versions.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from tb_gpu_doctor.analysis.step_costs import PART_IDS
from tb_gpu_doctor.comparison.summary import MAX_KERNELS, MAX_STEPS, TELEMETRY, FindingSum, KernelSum, RunSummary
from tb_gpu_doctor.diagnosis.rule import kinds
from tb_gpu_doctor.documents import DamagedDocument, from_json, plain
from tb_gpu_doctor.errors import DocumentError, RemoteError
from tb_gpu_doctor.files.addresses import is_remote, local_path, shown
from tb_gpu_doctor.files.fetching import read_head
from tb_gpu_doctor.traces.columns import PS_PER_MS

KIND = "gpu-doctor baseline"
VERSION = 1
# A baseline has a few hundred kilobytes at most; what is larger is something else.
MAX_BYTES = 8 << 20
_DIGITS = 6  # of a millisecond: nanoseconds

# No time, size or count is larger; sums of such numbers stay numbers.
_Number = Annotated[float, Meta(ge=0, le=1e15)]
_Count = Annotated[int, Meta(ge=0, le=10**15)]
_OfSteps = Annotated[list[_Number], Meta(max_length=MAX_STEPS)]
_Kinds = Annotated[list[str], Meta(max_length=100)]
_Shape = tuple[_Count, _Count, _Count]
_Severity = Literal["critical", "warning", "info"]


class _Head(msgspec.Struct):
    """What any version of the file begins with."""

    kind: Literal["gpu-doctor baseline"]
    version: int = VERSION


class _Steps(msgspec.Struct):
    source: Literal["marked", "inferred", "none"]
    count: _Count
    median_ms: _Number | None
    wall_ms: _OfSteps
    parts_ms: dict[str, _OfSteps]


class _Finding(msgspec.Struct, omit_defaults=True):
    kind: str
    cause: str | None
    severity: _Severity
    share: _Number | None
    saving_ms_per_step: _Number | None
    gpus: Annotated[list[str], Meta(max_length=100_000)]
    part_of: str | None = None


class _Kernel(msgspec.Struct, omit_defaults=True):
    name: str
    grid: _Shape | None
    block: _Shape | None
    calls: _Number
    ms: _Number
    occupancy: _Number | None
    wave_blocks: _Count | None = None


class _Baseline(msgspec.Struct, kw_only=True):
    kind: Literal["gpu-doctor baseline"] = "gpu-doctor baseline"
    version: int = VERSION
    label: str
    format: str
    verdict: _Severity | Literal["ok", "cannot_tell"]
    gpus: Annotated[list[str | None], Meta(max_length=100_000)]
    hosts: _Count
    unread_files: _Count = 0
    cut_files: _Count | msgspec.UnsetType = msgspec.UNSET
    batch: _Number | None
    steps: _Steps
    window_ms: _Number
    window_shares: dict[str, _Number]
    occupancy: _Number | None
    telemetry: dict[str, _Number]
    multiprocessors: _Count | None = None
    doubts: _Kinds
    not_shown: _Kinds = []
    findings: Annotated[list[_Finding], Meta(max_length=1_000)]
    kernels: Annotated[list[_Kernel], Meta(max_length=MAX_KERNELS)]


def to_json(summary: RunSummary) -> str:
    """The file's text: a kernel and a finding a line, so that a change of a baseline reads well in a review."""
    data = plain(_declared(summary))
    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {_laid_out(data[name])}" for name in data) + "\n}\n"


def _laid_out(value: object) -> str:
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
        DocumentError: ``unreadable_file``, ``bad_baseline`` or ``newer_baseline``.
    """
    try:
        content = read_head(path, MAX_BYTES + 1)
    except RemoteError as error:
        raise DocumentError(error.code, shown(path), **error.params) from error
    except OSError as error:
        raise DocumentError("unreadable_file", shown(path), reason=error.strerror or str(error)) from error
    if len(content) > MAX_BYTES:
        raise DocumentError("bad_baseline", shown(path), reason=f"> {MAX_BYTES} bytes")
    try:
        version = from_json(content, _Head).version
        if version > VERSION:
            raise DocumentError("newer_baseline", shown(path), version=version)
        return _summary(from_json(content, _Baseline))
    except DamagedDocument as error:
        raise DocumentError("bad_baseline", shown(path), reason=str(error)) from error


def _declared(summary: RunSummary) -> _Baseline:
    shares = zip(PART_IDS, summary.window_parts.tolist(), strict=True)
    return _Baseline(
        label=summary.label,
        format=summary.format,
        verdict=summary.verdict,  # type: ignore[arg-type]
        gpus=list(summary.models),
        hosts=summary.hosts,
        unread_files=summary.unread,
        cut_files=summary.cut or msgspec.UNSET,
        batch=summary.batch,
        steps=_Steps(
            source=summary.step_source,  # type: ignore[arg-type]
            count=summary.step_count,
            median_ms=_known(_ms, summary.median_ps),
            wall_ms=[_ms(value) for value in summary.wall_ps.tolist()],
            parts_ms={
                part: [_ms(value) for value in summary.parts_ps[:, index].tolist()]
                for index, part in enumerate(PART_IDS)
                if summary.parts_ps[:, index].any()
            },
        ),
        window_ms=_ms(summary.window_ps),
        window_shares={part: _rounded(share) for part, share in shares if share},
        occupancy=_known(_rounded, summary.occupancy),
        telemetry={name: _rounded(value) for name, value in sorted(summary.telemetry.items())},
        multiprocessors=summary.sm_count,
        doubts=list(summary.doubts),
        not_shown=list(summary.not_shown),
        findings=[
            _Finding(
                finding.kind,
                finding.cause,
                finding.severity,  # type: ignore[arg-type]
                _known(_rounded, finding.share),
                _known(_ms, finding.saving_ps_per_step),
                list(finding.gpus),
                finding.part_of,
            )
            for finding in summary.findings
        ],
        kernels=[
            _Kernel(
                row.name,
                row.grid,
                row.block,
                _rounded(row.calls),
                _ms(row.total_ps),
                _known(_rounded, row.occupancy),
                row.wave_blocks,
            )
            for row in summary.kernels
        ],
    )


def _summary(data: _Baseline) -> RunSummary:
    steps, known = data.steps, kinds()
    wall = np.array(steps.wall_ms, np.float64) * PS_PER_MS
    if (wall <= 0).any() or steps.count < len(wall) or bool(steps.count) != bool(len(wall)):
        raise DamagedDocument("steps.wall_ms")
    parts = np.zeros((len(wall), len(PART_IDS)))
    for part, values in steps.parts_ms.items():
        if part not in PART_IDS or len(values) != len(wall):
            raise DamagedDocument(f"steps.parts_ms.{part}"[:80])
        parts[:, PART_IDS.index(part)] = np.array(values) * PS_PER_MS
    shares = np.zeros(len(PART_IDS))
    for part, value in data.window_shares.items():
        if part not in PART_IDS:
            raise DamagedDocument(f"window_shares.{part}"[:80])
        shares[PART_IDS.index(part)] = value
    return RunSummary(
        label=data.label,
        format=data.format,
        verdict=data.verdict,
        models=tuple(data.gpus),
        hosts=data.hosts,
        batch=int(data.batch or 0) or None,
        step_source=steps.source,
        step_count=steps.count,
        median_ps=_ps(steps.median_ms),
        wall_ps=wall,
        parts_ps=parts,
        window_ps=data.window_ms * PS_PER_MS,
        window_parts=shares,
        kernels=tuple(
            KernelSum(
                row.name, row.grid, row.block, row.calls, row.ms * PS_PER_MS, row.occupancy, row.wave_blocks or None
            )
            for row in data.kernels
        ),
        # A kind or a metric that another version knows is none that this one could find or show.
        findings=tuple(
            FindingSum(
                row.kind, row.cause, row.severity, row.share, _ps(row.saving_ms_per_step), tuple(row.gpus), row.part_of
            )
            for row in data.findings
            if row.kind in known
        ),
        doubts=tuple(kind for kind in data.doubts if kind in known),
        occupancy=data.occupancy,
        telemetry={name: value for name, value in data.telemetry.items() if name in TELEMETRY},
        unread=data.unread_files,
        cut=data.cut_files or 0,
        sm_count=data.multiprocessors or None,
        not_shown=tuple(kind for kind in data.not_shown if kind in known),
    )


def _ps(value: float | None) -> float | None:
    return None if value is None else value * PS_PER_MS


def _ms(picoseconds: float) -> float:
    return round(float(picoseconds) / PS_PER_MS, _DIGITS)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _known(convert: Callable[[float], float], value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else convert(value)
