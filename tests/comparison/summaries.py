"""Summaries put together by hand, so that a test says every number itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tb_gpu_doctor.analysis.step_costs import PART_IDS
from tb_gpu_doctor.comparison import baseline_file
from tb_gpu_doctor.comparison.summary import KernelSum, RunSummary

MS = 1_000_000_000


def summary(steps_ms: Sequence[float] = (100.0,) * 12, **changes: Any) -> RunSummary:
    """A run of two GPUs that compute for nine tenths of each step and wait for input for the rest."""
    wall = np.array(steps_ms, np.float64) * MS
    parts = np.zeros((len(wall), len(PART_IDS)))
    parts[:, PART_IDS.index("compute")] = 0.9 * wall
    parts[:, PART_IDS.index("input")] = wall - 0.9 * wall
    shares = np.zeros(len(PART_IDS))
    shares[PART_IDS.index("compute")], shares[PART_IDS.index("input")] = 0.9, 0.1
    values: dict[str, Any] = {
        "label": "run",
        "format": "xplane",
        "verdict": "ok",
        "models": ("GPU X", "GPU X"),
        "hosts": 1,
        "batch": None,
        "step_source": "marked" if len(wall) else "none",
        "step_count": len(wall),
        "median_ps": float(np.median(wall)) if len(wall) else None,
        "wall_ps": wall,
        "parts_ps": parts,
        "window_ps": float(wall.sum()) or 1e12,
        "window_parts": shares,
        "kernels": (
            KernelSum("gemm", (64, 1, 1), (128, 1, 1), 10, 60 * MS, 0.5),
            KernelSum("relu", (32, 1, 1), (256, 1, 1), 20, 10 * MS, 1.0),
        ),
        "findings": (),
    }
    return RunSummary(**{**values, **changes})


def written(run: RunSummary) -> dict[str, Any]:
    """What a baseline file of the run says."""
    content: dict[str, Any] = json.loads(baseline_file.to_json(run))
    return content


def read_back(folder: Path, content: dict[str, Any]) -> RunSummary:
    """The run of a baseline file that says this."""
    path = folder / "changed.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return baseline_file.read(str(path))
