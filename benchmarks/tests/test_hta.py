"""The comparison with HolisticTraceAnalysis: its tables, and its figures where it is installed."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from benchmarks import hta
from tests.conftest import DEMO_LOGS
from tests.test_hta import small_job


def test_where_hta_is_installed_it_says_the_same(tmp_path: Path) -> None:
    python = os.environ.get("GPU_DOCTOR_HTA_PYTHON") or (sys.executable if importlib.util.find_spec("hta") else "")
    if not python:
        pytest.skip("HolisticTraceAnalysis is not installed (GPU_DOCTOR_HTA_PYTHON names an interpreter that has it)")
    small_job(tmp_path)
    for folder in (tmp_path / "small", DEMO_LOGS / "pytorch_ddp"):
        case = hta.Case("case", folder, 1)
        rows = hta.compared(case, hta.measure(case, Path(python)))
        assert len(rows) >= 9 * len(list(folder.iterdir()))
        assert [row for row in rows if float(row[4])] == []


def test_tables() -> None:
    said = {"seconds": 2.0, "cpu_seconds": 2.0, "peak_bytes": 10**8}
    outcome = hta.Outcome([said], [{**said, "seconds": 30.0}])
    assert "| 8 ranks of 5 events | 1/15.0: goal MISSED | 1/1.0 | 2.00 | 30.00 |" in hta.times_table(
        {"8 ranks of 5 events": outcome}
    )
    assert "| `x` | 1/15.0 | 1/1.0 | 2.00 |" in hta.times_table({"`x`": outcome})
    rows = [["0", "idle, ms", "1.000", "1.000", "0.000", "2.0"], ["0", "span, ms", "1.000", "1.500", "0.500", "2.0"]]
    assert hta.explained(rows).startswith("1 of 2 figures")
