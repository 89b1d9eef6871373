"""How busy GPUs were while training ran."""

from __future__ import annotations

import numpy as np
import pytest

from tb_gpu_doctor.telemetry.load import active_window, measure
from tb_gpu_doctor.telemetry.series import Span
from tests.telemetry.build import START_NS, S, series

BUSY = 10.0


def test_the_mean_over_training() -> None:
    found = measure(series(utilization_percent=np.where(np.arange(100) % 2, 80, 40)), BUSY)
    assert found is not None and found.utilization == pytest.approx(0.6, abs=0.01) and found.ever_busy
    assert (found.first_step, found.last_step) == (10, 990)


def test_what_comes_before_and_after_training_is_left_out() -> None:
    rows = np.arange(100)
    busy = np.where((rows >= 20) & (rows < 80), 90, 0)
    found = measure(series(utilization_percent=busy, steps_per_s=None), BUSY)
    assert found is not None and found.utilization == pytest.approx(0.9) and found.seconds == 60
    assert found.start_ns == START_NS + 20 * S and found.end_ns == START_NS + 79 * S
    assert found.first_step is None


def test_saving_and_validating_are_left_out_and_collecting_garbage_is_not() -> None:
    rows = np.arange(100)
    busy = np.where((rows >= 40) & (rows < 60), 0, 90)
    spans = (
        Span("checkpoint", START_NS + 40 * S, START_NS + 50 * S, 400),
        Span("validation", START_NS + 50 * S, START_NS + 60 * S, 500),
    )
    found = measure(series(utilization_percent=busy), BUSY, spans)
    assert found is not None and found.utilization == pytest.approx(0.9)
    other = (Span("garbage_collection", START_NS + 40 * S, START_NS + 60 * S, 400),)
    found = measure(series(utilization_percent=busy), BUSY, other)
    assert found is not None and found.utilization < 0.75


def test_a_gpu_that_never_works_is_idle_while_the_others_train() -> None:
    gpus = (series(0), series(1, utilization_percent=0.0))
    window = active_window(gpus, BUSY)
    found = measure(gpus[1], BUSY, (), window)
    assert found is not None and found.utilization == 0 and not found.ever_busy
    assert measure(gpus[1], BUSY) is None  # alone nothing tells when training ran


def test_without_utilization_nothing_is_said() -> None:
    assert measure(series(drop=["utilization_percent"]), BUSY) is None
    assert active_window((series(drop=["utilization_percent"]),), BUSY) is None
    assert measure(series(count=0), BUSY) is None
