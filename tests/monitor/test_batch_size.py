"""Batch-size sweeps: the fit, real steps in real processes, and processes that die."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tb_gpu_doctor
from tb_gpu_doctor.monitor import batch_size as batch_module
from tb_gpu_doctor.monitor.batch_measure import (
    BadFactory,
    Measure,
    Point,
    fit,
    is_out_of_memory,
    load_factory,
    predicted_peak,
    recommend,
)
from tb_gpu_doctor.monitor.batch_size import BatchError, find_batch_size, importable_name
from tb_gpu_doctor.telemetry.recordings import read_telemetry
from tests.monitor import batch_steps

REPOSITORY = Path(__file__).resolve().parents[2]
QUICK = Measure(warmup=1, repeats=2, block_seconds=0.02)
HERE = "tests.monitor.batch_steps"


def points(fixed: float, per_sample: float, sizes: tuple[int, ...] = (8, 16, 32, 64, 128, 256)) -> list[Point]:
    times = [fixed + per_sample * size for size in sizes]
    return [Point(size, size / seconds, seconds) for size, seconds in zip(sizes, times, strict=True)]


# --- the fit -----------------------------------------------------------------------------------------


@given(st.floats(0, 0.1), st.floats(1e-6, 0.01))
@settings(max_examples=50, deadline=None)
def test_an_exact_line_is_found(fixed: float, per_sample: float) -> None:
    found = fit(points(fixed, per_sample))
    assert found is not None and found.error < 1e-6
    assert found.fixed_seconds == pytest.approx(fixed, rel=1e-3, abs=1e-5)
    assert found.per_sample_seconds == pytest.approx(per_sample, rel=1e-3)


def test_one_disturbed_size_does_not_move_it_and_no_part_is_negative() -> None:
    made = points(0.004, 0.0001)
    made[3] = Point(64, 64 / 0.5, 0.5)
    found = fit(made)
    assert found is not None
    assert (found.fixed_seconds, found.per_sample_seconds) == (pytest.approx(0.004), pytest.approx(0.0001))
    falling = [Point(8, 1, 0.02), Point(16, 1, 0.01)]
    found = fit(falling)
    assert found is not None and found.fixed_seconds >= 0 and found.per_sample_seconds >= 0


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(1e-4, 1)), min_size=2, max_size=8, unique_by=lambda p: p[0]))
@settings(max_examples=30, deadline=None)
def test_no_line_on_a_grid_is_better(measured: list[tuple[int, float]]) -> None:
    made = [Point(size, size / seconds, seconds) for size, seconds in measured]
    found = fit(made)
    assert found is not None
    sizes, seconds = np.array(measured, float).T
    top = seconds.max()
    fixed, slope = np.meshgrid(np.linspace(0, top, 60), np.linspace(0, top / sizes.min(), 60))
    errors = (np.abs(fixed[..., None] + slope[..., None] * sizes - seconds) / seconds).mean(-1)
    assert found.error <= errors.min() + 1e-9


def test_too_few_sizes_have_no_fit() -> None:
    assert fit([]) is None and fit([Point(8, 1.0, 8.0), Point(16, problem="out_of_memory")]) is None


def test_the_smallest_size_within_five_percent_is_recommended() -> None:
    rates = {8: 50.0, 16: 94.9, 32: 95.1, 64: 100.0, 128: 99.0}
    chosen = recommend([Point(size, rate, size / rate) for size, rate in rates.items()])
    assert chosen is not None and chosen.batch_size == 32
    assert recommend([Point(8, problem="killed")]) is None


def test_memory_is_extrapolated_from_the_two_largest() -> None:
    known = [Point(8, 1, 1, 0, 1000), Point(16, 1, 1, 0, 1800), Point(32, 1, 1, 0, 3400), Point(64, problem="killed")]
    assert predicted_peak(known, 64) == pytest.approx(3400 + 32 * 100)
    assert predicted_peak(known[:1], 16) is None


# --- sweeps in processes of their own ------------------------------------------------------------------


@pytest.mark.slow
def test_a_sweep_finds_what_was_built_in_and_is_read_back(tmp_path: Path) -> None:
    seen: list[Point] = []
    result = find_batch_size(
        batch_steps.linear, start=20, max_batch=1280, growth=4, measure_as=QUICK, logdir=tmp_path,
        on_point=seen.append,
    )  # fmt: skip
    assert [point.batch_size for point in result.points] == [20, 80, 320, 1280] and seen == list(result.points)
    assert result.fit is not None and result.stopped == "max_batch" and result.exact_memory
    # sleep() takes a little longer than asked for, on a busy machine more.
    assert result.fit.per_sample_seconds == pytest.approx(batch_steps.PER_SAMPLE_S, rel=0.2)
    assert result.recommended == 1280  # 320 gives 71 % of what 1280 gives
    assert result.headroom is not None and 0 < result.headroom < 1
    (sweep,) = (telemetry := read_telemetry(tmp_path)).sweeps
    assert telemetry.recordings == () and telemetry.problems == ()
    assert sweep.run == result.run and sweep.recommended == 1280
    assert [point.samples_per_s for point in sweep.points] == [point.samples_per_s for point in result.points]
    assert sweep.fixed_seconds == result.fit.fixed_seconds


def test_the_scalars_tab_shows_it(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = find_batch_size(batch_steps.linear, max_batch=16, measure_as=QUICK, logdir=tmp_path)
    assert result.run is not None
    events = EventAccumulator(str(tmp_path / result.run))
    events.Reload()
    rates = events.Scalars("batch/samples_per_s")
    assert [event.step for event in rates] == [8, 16]
    assert rates[0].value == pytest.approx(result.points[0].samples_per_s, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "sizes", "problem", "stopped"),
    [
        ("fails_above_32", [16, 32, 64], "out_of_memory", "memory"),
        ("is_killed_above_16", [16, 32], "killed", "memory"),
        ("crashes_above_16", [16, 32], "the process was ended by SIGABRT", "problem"),
    ],
)
def test_children_that_die_end_the_sweep_and_harm_nothing(
    name: str, sizes: list[int], problem: str, stopped: str
) -> None:
    result = find_batch_size(f"{HERE}:{name}", start=16, measure_as=QUICK)
    assert [point.batch_size for point in result.points] == sizes
    assert result.points[-1].problem == problem and result.stopped == stopped
    assert result.recommended == sizes[-2]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_memory_that_really_ends() -> None:
    result = find_batch_size(f"{HERE}:fills_memory", start=2, memory_fraction=1.0, patience=None, growth=4,
                             measure_as=Measure(warmup=1, repeats=1, block_seconds=0))  # fmt: skip
    assert result.points[-1].problem == "out_of_memory" and result.stopped == "memory"
    assert len(result.points) >= 2 and result.recommended is not None


def test_the_first_size_that_does_not_fit_is_an_answer_and_a_bug_is_an_error() -> None:
    result = find_batch_size(f"{HERE}:fails_above_32", start=64, measure_as=QUICK)
    assert result.recommended is None and result.stopped == "memory"
    with pytest.raises(BatchError, match="no such layer"):
        find_batch_size(f"{HERE}:has_a_bug", measure_as=QUICK)
    with pytest.raises(BadFactory, match="nothing_like_it"):
        find_batch_size(f"{HERE}:nothing_like_it", measure_as=QUICK)


@pytest.mark.slow
def test_a_size_that_takes_too_long_is_ended() -> None:
    result = find_batch_size(f"{HERE}:hangs", measure_as=QUICK, timeout_s=1)
    assert result.points[0].problem == "timeout" and result.stopped == "problem"


def test_what_a_step_prints_does_not_disturb(capfd: pytest.CaptureFixture[str]) -> None:
    assert find_batch_size(f"{HERE}:prints", max_batch=8, measure_as=QUICK).recommended == 8
    assert capfd.readouterr().out == ""


# --- in this process -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_cannot_be_imported_is_measured_here() -> None:
    calls: list[int] = []

    def make_step(batch_size: int) -> Any:
        calls.append(batch_size)
        if batch_size > 32:
            raise MemoryError
        return batch_steps.linear(batch_size)

    result = find_batch_size(make_step, measure_as=QUICK)
    assert calls == [8, 16, 32, 64] and result.stopped == "memory" and not result.exact_memory
    with pytest.raises(ValueError, match="imported"):
        find_batch_size(make_step, in_process=False)


def test_the_end_of_gain_and_of_memory_are_seen_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(make_step: Any, size: int, how: Measure) -> Point:
        return Point(size, min(size, 64.0), size / min(size, 64.0), 0.0, 1000 + 10 * size, 6000)

    monkeypatch.setattr(batch_module, "_measure_here", measured)
    result = find_batch_size(lambda size: None, memory_fraction=1.0)
    assert [point.batch_size for point in result.points] == [8, 16, 32, 64, 128, 256]
    assert result.stopped == "memory_predicted"  # 512 would need 6120 bytes
    assert result.recommended == 64 and result.headroom == pytest.approx(1 - 1640 / 6000)
    result = find_batch_size(lambda size: None, patience=2)
    assert [point.batch_size for point in result.points] == [8, 16, 32, 64, 128, 256] and result.stopped == "no_gain"


def test_names_of_functions() -> None:
    assert importable_name(batch_steps.linear) == f"{HERE}:linear"
    assert importable_name(batch_steps.Holder.make) == f"{HERE}:Holder.make"
    assert importable_name(lambda size: None) is None
    assert load_factory(f"{HERE}:Holder.make") is batch_steps.Holder.make
    for wrong in ("", "x", ":x", "x:", "no_such_module_at_all:f", f"{HERE}:HERE", "no/such/file.py:f"):
        with pytest.raises(BadFactory):
            load_factory(wrong)


def test_a_script_measures_its_own_function(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import time, tb_gpu_doctor\n"
        "from tb_gpu_doctor.monitor.batch_measure import Measure\n"
        "def make_step(batch_size):\n"
        "    return lambda: time.sleep(0.001)\n"
        "if __name__ == '__main__':\n"
        "    result = tb_gpu_doctor.find_batch_size(make_step, max_batch=8, measure_as=Measure(1, 1, 0.01))\n"
        "    print(result.exact_memory, result.recommended)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment, cwd=tmp_path, check=True
    )
    assert done.stdout.split() == ["True", "8"]


@pytest.mark.parametrize("words", [
    "OOM when allocating tensor with shape[1]", "CUDA out of memory. Tried to allocate", "std::bad_alloc out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED", "RESOURCE_EXHAUSTED: x", "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "Unable to allocate 1. GiB for an array", "[Errno 12] Cannot allocate memory",
])  # fmt: skip
def test_out_of_memory_in_all_words(words: str) -> None:
    assert is_out_of_memory(RuntimeError(words))
    try:
        try:
            raise RuntimeError(words)
        except RuntimeError as cause:
            raise ValueError("outer") from cause
    except ValueError as error:
        assert is_out_of_memory(error)


def test_other_errors_are_none() -> None:
    for error in (RuntimeError("room"), ValueError("shape mismatch"), KeyError("memory")):
        assert not is_out_of_memory(error)


@pytest.mark.parametrize(
    "arguments",
    [{"start": 0}, {"max_batch": 4}, {"growth": 1}, {"memory_fraction": 0}, {"timeout_s": 0},
     {"measure_as": Measure(repeats=0)}],
)  # fmt: skip
def test_arguments_that_make_no_sense(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="out of range"):
        tb_gpu_doctor.find_batch_size(batch_steps.linear, **arguments)
