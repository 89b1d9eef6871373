"""Small traces as PyTorch writes them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def event(cat: str, name: str, ts: float, dur: float, pid: Any = 17, tid: Any = 17, **args: Any) -> Json:
    """One complete event; underscores in the names of arguments stand for blanks."""
    return {
        "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
        "args": {key.replace("_", " "): value for key, value in args.items()},
    }  # fmt: skip


def kernel(
    name: str, ts: float, dur: float, correlation: int = 0, device: int = 0, stream: int = 7, **args: Any
) -> Json:
    """One kernel."""
    return event(
        "kernel", name, ts, dur, pid=device, tid=stream, device=device, stream=stream, correlation=correlation, **args
    )


def call(name: str, ts: float, dur: float, correlation: int, tid: Any = 17, **args: Any) -> Json:
    """One call of the driver."""
    return event("cuda_runtime", name, ts, dur, tid=tid, correlation=correlation, **args)


def document(*events: Json, **more: Any) -> Json:
    """A whole file."""
    return {"schemaVersion": 1, **more, "traceEvents": list(events)}


def write(path: Path, content: Any) -> str:
    """Write a document (or bytes as they are), packed if the name says so; the path as text."""
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(raw) if path.name.endswith(".gz") else raw)
    return str(path)
