"""The benchmarks' own machinery: a fresh process per measurement, tables, and sections that replace each other."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import cluster, comparing, job, kernels, soak
from benchmarks.cases import Measurement
from benchmarks.run import Goal, Runs, Suite, put_section, ratio, run_case, table
from benchmarks.soak_browsers import Answer, Seen
from benchmarks.soak_watch import Heartbeats, Memory, memory_of
from simulator.large_xplane import Shape, generate

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "small.xplane.pb"
    generate(path, Shape(2000, 3000))
    return path


def test_memory_counts_what_lies_in_mappings_without_a_file() -> None:
    before = memory_of(os.getpid(), 0.0).server
    with mmap.mmap(-1, 32 << 20) as pages:
        pages.write(b"x" * len(pages))
        assert memory_of(os.getpid(), 0.0).server - before > 28 << 20


def test_every_case_of_ours_measures_the_whole_file(small_file: Path) -> None:
    notes = {}
    for case in ("read_only", "decode_numpy", "read_trace", "diagnose"):
        outcome = run_case(case, small_file, 120)
        assert isinstance(outcome, Measurement), outcome
        assert outcome.seconds > 0 and outcome.peak_bytes > 10_000_000
        notes[case] = outcome.note
    assert notes["decode_numpy"] == "5,000 events"
    assert notes["read_trace"] == "2,000 + 3,000 events"
    assert [path.name for path in small_file.parent.iterdir()] == [small_file.name], "no leftovers"


def test_a_case_that_fails_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "broken.xplane.pb"
    broken.write_bytes(b"no profile")
    outcome = run_case("read_trace", broken, 120)
    assert isinstance(outcome, str)
    assert "not_xplane" in outcome


def test_table_has_medians_ratios_and_goals() -> None:
    goals = (Goal("diagnose", "seconds", 0.4), Goal("diagnose", "peak_bytes", 0.5))
    suite = Suite("t", 10, 10, 3, ("diagnose", "kernel_stats"), goals)
    mine = [Measurement(seconds, 1.0, 600_000_000, "ok") for seconds in (1.0, 9.0, 2.0)]
    runs = {"diagnose": Runs(mine), "kernel_stats": Runs([Measurement(10.0, 4.0, 1_000_000_000, "5 kernels")])}
    assert ratio(runs, "diagnose", "seconds") == pytest.approx(0.2)
    text = table(suite, runs, 5_000_000)
    assert "| whole diagnosis | 2.00 | 0.20 | 1.00 | 0.25 | 600 | 0.60 | ok |" in text
    assert "time <= 0.4: 0.200: met" in text
    assert "peak memory <= 0.5: 0.600: MISSED" in text


def test_table_without_a_reference() -> None:
    suite = Suite("t", 10, 10, 1, ("diagnose", "kernel_stats"), (Goal("diagnose", "seconds", 0.4),))
    runs = {"diagnose": Runs([Measurement(1.0, 1.0, 1_000_000, "ok")]), "kernel_stats": Runs(failure="exit -6: abort")}
    text = table(suite, runs, 5_000_000)
    assert "| whole diagnosis | 1.00 | 1.00 | 1 | ok |" in text
    assert "failed: exit -6: abort" in text
    assert "not measured" in text


def test_sections_replace_their_own_and_leave_others(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    put_section("A", "one", path)
    put_section("B", "two", path)
    put_section("A", "three", path)
    assert path.read_text(encoding="utf-8") == "# Benchmarks\n\n## A\n\nthree\n\n## B\n\ntwo\n"


def test_a_job_is_measured_by_one_process_and_by_several() -> None:
    cells = job.measure_job("kineto", 2, 2_000, 2, 1)
    assert len(cells) == len(job.HEADER) and cells[:2] == ["kineto", "2"]
    by_name = dict(zip(job.HEADER, cells, strict=True))
    assert float(by_name["peak MB of a worker"]) > 10 and float(by_name["CPU ms a rank"]) > 0
    assert by_name["result"].split(",")[0] in ("ok", "warning", "critical", "cannot_tell")


def test_the_kernel_analysis_is_measured_on_both_kinds_of_names(tmp_path: Path) -> None:
    results = tmp_path / "RESULTS.md"
    results.write_text("# Benchmarks\n\n## Another\n\nkept\n", encoding="utf-8")
    kernels.main(["--events", "20000", "--rounds", "2", "--results", str(results)])
    text = results.read_text(encoding="utf-8")
    assert "## Another\n\nkept" in text and "## Kernel analysis" in text
    compiled, eager = (line for line in text.splitlines() if line.startswith("| kernels of"))
    assert " 0 fusible runs" in compiled and " 0 fusible runs" not in eager


def test_browsers_on_a_logdir_that_changes_meet_no_error() -> None:
    # On a busy machine little happens in seconds: then for longer.
    for minutes in (0.12, 0.5, 2.0):
        seen = soak.soak(minutes, browsers=4, sessions=12)
        assert not seen.errors, seen.errors[:3]
        assert set(seen.statuses) <= {200, 202, 404, 422}, seen.statuses
        if seen.statuses[200] > 20 and sum(seen.changes.values()) > 3 and seen.firsts:
            break
    assert seen.statuses[200] > 20 and sum(seen.changes.values()) > 3 and seen.firsts, (seen.statuses, seen.changes)
    assert min(one.server for one in seen.memory) > 10_000_000
    assert max(one.workers for one in seen.memory) > 10_000_000
    text = soak.page(seen, minutes, 4, 12)
    assert "0 errors" in text and "`diagnosis`" in text and f"| {minutes:g} |" in text


def test_stock_browsers_never_open_the_tab() -> None:
    seen = soak.soak(0.05, browsers=2, sessions=3, person=soak.StockBrowser)
    assert not seen.errors, seen.errors[:3]
    assert set(seen.latency) == {"environment", "runs", "plugins_listing", "plugin/scalars/tags"}
    assert max(one.workers for one in seen.memory) == 0, "and nothing is analysed"


def test_what_took_long_and_why_is_told() -> None:
    with Heartbeats() as beats:
        began = time.monotonic()
        sum(range(60_000_000))  # in C: no other thread of this process comes to its turn
        time.sleep(0.2)
        assert "the browsers' process stood still" in beats.during(began, time.monotonic())
        assert beats.during(began - 9, began - 8) == ""
    seen = Seen(slow=[Answer("doc", 200, 0.0, 1.5)], slow_words=["0 s: doc 1.50 s (200)"])
    seen.note(Answer("doc", 200, 0.0, 1.5), b"")
    assert "- `0 s: doc 1.50 s (200)`" in soak.page(seen, 1, 1, 1) and len(seen.slow) == 2


def test_growth_is_the_slope_of_the_second_half() -> None:
    memory = [Memory(float(at), 1_000_000 * max(at, 60), 5, 0) for at in range(120)]
    assert soak.growth_mb_per_minute(memory) == pytest.approx(60.0)
    assert soak.growth_mb_per_minute(memory[:90], lambda one: one.workers) == pytest.approx(0.0, abs=1e-9)


def test_growth_is_measured_from_one_host_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "BIG_EVENTS", 2_000)
    monkeypatch.setattr(cluster, "ON_PAPER", 64)
    out = tmp_path / "c.md"
    options = ["--hosts", "1", "3", "--events", "400", "--rounds", "1", "--dask-hosts", "2", "--results", str(out)]
    assert cluster.main(options) == 0
    page = out.read_text(encoding="utf-8")
    assert "From 1 to 3 hosts" in page and "| clocks |" in page and "facts, KB" in page
    assert "2 hosts of 2,000 events" in page


def test_how_far_comparisons_can_be_trusted_is_measured(tmp_path: Path) -> None:
    page = tmp_path / "c.md"
    comparing.main(["--pairs", "4", "--runs", "2", "--out", str(page)])
    text = page.read_text(encoding="utf-8")
    assert "| steady (1 %), +20 % |" in text and text.count("wrong") > 40
    random = np.random.default_rng(0)
    runs = [comparing.run_of(1 + 0.01 * random.standard_normal(20)) for _ in range(8)]
    same = comparing.judge(comparing.paired(runs, runs, 30), 0.0)
    assert same.share("same") == 1.0 and same.covered > 0.8
