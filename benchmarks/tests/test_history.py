"""What is counted over many simulated histories is what the page says."""

from __future__ import annotations

from multiprocessing.pool import ThreadPool

import pytest

from benchmarks import history
from simulator.histories import HARSHER, NOISES


def test_the_report_says_what_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "COUNTS", (2, 8))
    monkeypatch.setattr(history, "SCATTERS", (0.05,))
    monkeypatch.setattr(history, "CHANGES", (0.5,))
    monkeypatch.setattr(history, "REAL_SCATTERS", (0.01,))
    monkeypatch.setattr(history, "SIDES", ((4, 4),))
    with ThreadPool(1) as pool:
        lines = list(history.report(range(2), pool))
    for noise in (*NOISES, *HARSHER):
        (row,) = (line for line in lines if line.startswith(f"| {noise} | 5% |"))
        assert row.count("|") == 8 and row.split("|")[3].strip() == "0.0%"
    assert "| +50% | 1% | 100% / 100% / 100% |" in lines
    assert any("held the first one in 100.0%" in line for line in lines)
