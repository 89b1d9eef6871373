"""What one file tells in short: its analysis without anything that grows with its events.

Steps, accounting, kernel table, collectives and what they sum to are there; columns of events, gaps and copies are
not, and stand as far objects that fetch them from where they are (`traces.far`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.traces.columns import Trace
from tb_gpu_doctor.traces.elsewhere import Elsewhere
from tb_gpu_doctor.traces.far import FarMapping, connect, far

# Fields that stay behind, by the field of `Trace` or `TraceAnalysis` that holds them; all fields where none is named.
_TRACE: dict[str, tuple[str, ...]] = {"strings": (), "device_events": (), "host_events": ()}
_MAPPINGS = ("host_stats", "device_stats")
_ANALYSIS: dict[str, tuple[str, ...]] = {
    "steps": ("event_step",),
    "gaps": (),
    "lateness": ("start", "end", "step", "late", "wait"),
    "kernels": ("steps", "ops"),
    "transfers": ("rows", "exposed", "late", "gap_wait"),
    "bounces": ("device", "step", "down", "up", "op", "op_time", "gap_part"),
    "contention": ("gap_part",),
}

Sketch = tuple[Trace, TraceAnalysis]


def sketch(trace: Trace, analysis: TraceAnalysis) -> Sketch:
    """The short form of a file, to be sent; `connected` makes it whole on the other side."""
    parts = {name: far(getattr(trace, name), _unconnected, *away) for name, away in _TRACE.items()}
    mappings: dict[str, Any] = {name: dict.fromkeys(getattr(trace, name)) for name in _MAPPINGS}
    return (
        replace(trace, **parts, **mappings),
        replace(analysis, **_each(analysis, lambda _, away, part: far(part, _unconnected, *away))),
    )


def connected(short: Sketch, place: Elsewhere) -> Sketch:
    """The sketch whose columns are fetched from a place when they are asked for."""
    trace, analysis = short

    def fetch(path: str) -> Callable[[str], Any]:
        return lambda name: place.desk.work(column, [(place, (path, name))])[0]

    parts = {name: connect(getattr(trace, name), fetch(f"trace.{name}")) for name in _TRACE}
    mappings: dict[str, Any] = {
        name: FarMapping(tuple(getattr(trace, name)), fetch(f"trace.{name}")) for name in _MAPPINGS
    }
    parts_of_analysis = _each(analysis, lambda path, _, part: connect(part, fetch(path)))
    return replace(trace, **parts, **mappings, elsewhere=place), replace(analysis, **parts_of_analysis)


def column(trace: Trace, analysis: TraceAnalysis, path: str, name: str) -> Any:
    """One field of a part of a file, where its columns are."""
    root, field, *index = path.split(".")
    part = getattr(trace if root == "trace" else analysis, field)
    if index:
        part = part[int(index[0])]
    return part[name] if isinstance(part, dict) else getattr(part, name)


def _each(analysis: TraceAnalysis, change: Callable[[str, Sequence[str], Any], Any]) -> dict[str, Any]:
    """What becomes of the parts of an analysis that have columns."""
    parts: dict[str, Any] = {}
    for name, away in _ANALYSIS.items():
        part, path = getattr(analysis, name), f"analysis.{name}"
        if isinstance(part, tuple):
            parts[name] = tuple(change(f"{path}.{index}", away, item) for index, item in enumerate(part))
        elif part is not None:
            parts[name] = change(path, away, part)
    return parts


def _unconnected(name: str) -> Any:
    raise RuntimeError(f"{name} of a sketch that has not been connected")


def column_bytes(value: Any) -> int:
    """About how much memory the arrays, texts and records of a value take."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, (bytes, str)):
        return len(value)
    if isinstance(value, dict):
        return sum(column_bytes(item) for item in value.values())
    if isinstance(value, (tuple, list)):
        return sum(column_bytes(item) for item in value)
    if hasattr(type(value), "__dataclass_fields__"):
        return 64 + sum(column_bytes(getattr(value, spec.name)) for spec in fields(value))
    return 32
