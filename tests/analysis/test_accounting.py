"""Where the time of each GPU went: against a sweep over all borders, real files and the simulator's ledgers."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.scenarios import SCENARIOS, SimulatedRun
from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.accounting import busy_sets
from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.callers import causality
from tb_gpu_doctor.analysis.idle import find_gaps
from tb_gpu_doctor.analysis.launches import launch_of
from tb_gpu_doctor.analysis.results import Category, Cause, Window
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Trace
from tb_gpu_doctor.traces.xplane import read_xplane
from tests.analysis import brute_force
from tests.analysis.small_traces import Recorder, rows_of, traces
from tests.real_traces import XPLANE_FOLDERS, real_trace


@pytest.mark.slow
@given(traces())
def test_every_picosecond_has_one_category(trace: Trace) -> None:
    result = analyse(trace)
    if result.window is None:
        assert not result.accounting and not len(result.gaps)
        return
    assert [a.device for a in result.accounting] == list(range(len(trace.devices)))
    for parts in result.accounting:
        expected = brute_force.accounting(trace, parts.device, result.window.start, result.window.end)
        assert (parts.compute, parts.communication, parts.transfer, parts.idle) == tuple(
            expected[c] for c in (Category.COMPUTE, Category.COMMUNICATION, Category.TRANSFER, Category.IDLE)
        )
        assert parts.wall == result.window.length
    assert_exact(result)


def assert_exact(result: TraceAnalysis) -> None:
    """The promise of the accounting: nothing is lost and nothing counted twice."""
    assert result.window is not None
    for parts in result.accounting:
        assert parts.compute + parts.communication + parts.transfer + parts.idle == parts.wall == result.window.length
        assert parts.busy == parts.wall - parts.idle
        assert sum(parts.idle_by_cause) == parts.idle
        assert min(parts.compute, parts.communication, parts.transfer, parts.idle, *parts.idle_by_cause) >= 0
        assert len(parts.idle_by_cause) == len(Cause)
    gaps = result.gaps
    assert (gaps.by_cause >= 0).all()
    assert (gaps.by_cause.sum(axis=1) == gaps.end - gaps.start).all()
    assert (gaps.cause == gaps.by_cause.argmax(axis=1)).all()


@given(traces())
def test_summaries(trace: Trace) -> None:
    result = analyse(trace)
    if result.window is None:
        assert not result.summaries
        return
    low, high = result.window.start, result.window.end
    events, steps = trace.device_events, result.steps
    active = [g for g in range(len(trace.devices)) if rows_of(events, g)]
    assert [s.device for s in result.summaries] == active
    complete = np.flatnonzero(steps.complete).tolist()
    kernels = (EventClass.COMPUTE, EventClass.COMMUNICATION)
    for summary in result.summaries:
        gpu = summary.device
        sweep = brute_force.accounting(trace, gpu, low, high)
        assert summary.idle == sweep[Category.IDLE]
        assert summary.busy == high - low - summary.idle
        assert summary.compute == sweep[Category.COMPUTE]
        inside = [row for s, e, row in brute_force.spans(trace, gpu) if s < high and e > low]
        is_kernel = [EventClass(int(events.klass[row])) in kernels for row in inside]
        assert (summary.kernels, summary.copies) == (is_kernel.count(True), is_kernel.count(False))
        for at, step in enumerate(complete):
            start, end = int(steps.start[step, gpu]), int(steps.end[step, gpu])
            if end < 0:
                assert summary.compute_per_step[at] == summary.idle_per_step[at] == 0
                continue
            sweep = brute_force.accounting(trace, gpu, start, end) if end > start else dict.fromkeys(Category, 0)
            assert summary.compute_per_step[at] == sweep[Category.COMPUTE]
            assert summary.idle_per_step[at] == sweep[Category.IDLE]


def test_priorities_where_work_overlaps() -> None:
    record = Recorder()
    record.work(0, 10)
    record.work(5, 20, stream=1, klass=EventClass.COMMUNICATION)
    record.work(8, 30, stream=2, klass=EventClass.COPY, copy_kind=CopyKind.H2D)
    record.work(25, 28, stream=3, klass=EventClass.MEMSET)
    record.work(40, 50)
    (parts,) = analyse(record.trace()).accounting
    in_us = [p // 10**6 for p in (parts.compute, parts.communication, parts.transfer, parts.idle)]
    assert in_us == [20, 10, 10, 10]


@given(traces(), st.integers(-5, 70), st.integers(0, 40))
def test_busy_sets_hold_all_work(trace: Trace, low: int, length: int) -> None:
    for gpu in range(len(trace.devices)):
        compute, kernels, work = (intervals.clip(s, low, low + length) for s in busy_sets(trace.device_events, gpu))
        for found, classes in (
            (compute, (EventClass.COMPUTE,)),
            (kernels, (EventClass.COMPUTE, EventClass.COMMUNICATION)),
            (work, tuple(EventClass)),
        ):
            expected = brute_force.union((s[:2] for s in brute_force.spans(trace, gpu, classes)), low, low + length)
            assert list(zip(*(a.tolist() for a in found), strict=True)) == expected


# Counted independently: folder, GPU, kernels, copies, then span, busy and exposed copies in picoseconds.
REAL = [
    ("jax_conv_8xmi300x", 0, 60, 0, 138_470_832_000, 3_995_965_000, 0),
    ("jax_conv_8xmi300x", 7, 25, 0, 90_563_059_000, 3_502_165_000, 0),
    ("jax_gemm_1of8_mi300x", 0, 54, 0, 9_456_212_000, 3_475_484_000, 0),
    ("jax_te_attention", 0, 150, 0, 12_956_751_000, 12_133_127_000, 0),
    ("tf_bert_8gpu", 1, 0, 19, 13_417_422_000, 33_792_000, 33_792_000),
    ("tf_bert_8gpu", 4, 665, 94, 119_308_658_000, 14_983_622_000, 158_237_000),
    ("tf_bert_8gpu", 6, 665, 113, 490_469_870_000, 15_050_451_000, 185_088_000),
    ("xla_2xgtx1080ti", 0, 1, 0, 1_888_000, 1_888_000, 0),
    ("xla_2xgtx1080ti", 1, 1, 0, 1_984_000, 1_984_000, 0),
]


@pytest.mark.parametrize(("folder", "gpu", "kernels", "copies", "span", "busy", "exposed"), REAL)
def test_real_files(folder: str, gpu: int, kernels: int, copies: int, span: int, busy: int, exposed: int) -> None:
    trace = real_trace(folder)
    (device,) = (d for d in trace.devices if d.id == gpu)
    rows = trace.device_events.of_device(device.index)
    klass = trace.device_events.klass[rows]
    assert np.count_nonzero(klass <= EventClass.COMMUNICATION) == kernels
    assert np.count_nonzero(klass > EventClass.COMMUNICATION) == copies
    low, high = int(trace.device_events.start[rows].min()), int(trace.device_events.end[rows].max())
    assert high - low == span
    _, work, everything = busy_sets(trace.device_events, device.index)
    assert intervals.measure(everything) == busy
    assert intervals.measure(everything) - intervals.measure(work) == exposed
    assert intervals.measure(intervals.complement(everything, low, high)) == span - busy


@pytest.mark.parametrize("folder", XPLANE_FOLDERS)
def test_real_files_add_up(folder: str) -> None:
    trace = real_trace(folder)
    result = analyse(trace)
    assert result.window is not None
    if result.steps.cut_at is None:
        assert (result.window.start, result.window.end) == trace.device_events.extent()
    assert_exact(result)
    for parts in result.accounting:
        sweep = intervals.measure(
            intervals.clip(busy_sets(trace.device_events, parts.device)[2], result.window.start, result.window.end)
        )
        assert parts.busy == sweep


@cache
def simulated(name: str) -> SimulatedRun:
    return SCENARIOS[name]()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_demo_runs_agree_with_what_was_simulated(name: str, demo_logs: Path) -> None:
    run = simulated(name)
    result = analyse(read_xplane(str(demo_logs / run.path)))
    assert result.window is not None
    window = (result.window.start, result.window.end)
    assert window == run.truth.window
    assert result.steps.count == len(run.truth.markers)
    assert_exact(result)
    for parts in result.accounting:
        truth = run.truth.accounting(parts.device, window)
        assert (parts.compute, parts.communication, parts.transfer, parts.idle) == (
            truth.compute,
            truth.communication,
            truth.transfer,
            truth.idle,
        )
        # Causes are inferred from what the profiler shows, the truth knows what really was: 2 % of the window.
        ours = {cause.id: parts.idle_of(cause) / parts.wall for cause in Cause}
        real = {cause: time / parts.wall for cause, time in truth.idle_by_cause.items()}
        for cause in ours:
            assert ours[cause] == pytest.approx(real[cause], abs=0.02), cause
        assert ours["dependency"] + ours["kernel_gap"] == pytest.approx(
            real["dependency"] + real["kernel_gap"], abs=0.002
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_demo_steps_are_those_that_were_simulated(name: str, demo_logs: Path) -> None:
    run = simulated(name)
    steps = analyse(read_xplane(str(demo_logs / run.path))).steps
    assert steps.source == "marked"
    assert steps.number.tolist() == [m.number for m in run.truth.markers]
    for gpu in run.truth.gpus:
        assert steps.start[:, gpu.gpu].tolist() == list(gpu.step_starts)
        assert steps.end[:, gpu.gpu].tolist() == list(gpu.step_ends)


@pytest.mark.parametrize("name", SCENARIOS)
def test_gaps_of_any_window_agree_with_what_was_simulated(name: str, demo_logs: Path) -> None:
    run = simulated(name)
    trace = read_xplane(str(demo_logs / run.path))
    low, high = run.truth.window_of(2, 5)
    window = Window(low + 12_345, high - 6_789)
    gaps = find_gaps(trace, window, launch_of(trace), causality(trace))
    for device in trace.devices:
        truth = run.truth.accounting(device.index, (window.start, window.end))
        by_cause = gaps.by_cause[gaps.device == device.index].sum(axis=0).tolist()
        assert sum(by_cause) == truth.idle
        for cause in Cause:
            real = truth.idle_by_cause[cause.id] / window.length
            assert by_cause[cause] / window.length == pytest.approx(real, abs=0.02), cause
