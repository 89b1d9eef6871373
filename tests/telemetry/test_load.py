"""Utilization while training ran, other processes on the GPU, and its PCIe link."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.telemetry.load import active_window, link, measure, sharing, stretches_beside
from tb_gpu_doctor.telemetry.series import Span
from tests.telemetry.build import GIB, START_NS, S, series

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


@given(st.lists(st.tuples(st.integers(-5, 40), st.integers(-5, 40)), max_size=6))
def test_stretches_that_overlap_are_left_out_once(bounds: list[tuple[int, int]]) -> None:
    spans = [Span("checkpoint", START_NS + low * S, START_NS + high * S, 0) for low, high in bounds]
    whole = (START_NS, START_NS + 29 * S)
    found = measure(series(count=30, utilization_percent=np.full(30, 90)), BUSY, stretches_beside(spans), whole)
    beside = {at for low, high in bounds for at in range(low, high)}
    left = [at for at in range(30) if at not in beside]
    assert (found is None) == (not left)
    if found is not None:
        assert found.seconds == pytest.approx(len(left), abs=1e-6)


def test_saving_and_validating_are_left_out_and_collecting_garbage_is_not() -> None:
    rows = np.arange(100)
    busy = np.where((rows >= 40) & (rows < 60), 0, 90)
    spans = (
        Span("checkpoint", START_NS + 40 * S, START_NS + 50 * S, 400),
        Span("validation", START_NS + 50 * S, START_NS + 60 * S, 500),
    )
    found = measure(series(utilization_percent=busy), BUSY, stretches_beside(spans))
    assert found is not None and found.utilization == pytest.approx(0.9)
    other = (Span("garbage_collection", START_NS + 40 * S, START_NS + 60 * S, 400),)
    found = measure(series(utilization_percent=busy), BUSY, stretches_beside(other))
    assert found is not None and found.utilization < 0.75


def test_a_gpu_that_never_works_is_idle_while_the_others_train() -> None:
    gpus = (series(0), series(1, utilization_percent=0.0))
    window = active_window(gpus, BUSY)
    found = measure(gpus[1], BUSY, None, window)
    assert found is not None and found.utilization == 0 and not found.ever_busy
    assert measure(gpus[1], BUSY) is None  # alone nothing tells when training ran


def test_without_utilization_nothing_is_said() -> None:
    assert measure(series(drop=["utilization_percent"]), BUSY) is None
    assert active_window((series(drop=["utilization_percent"]),), BUSY) is None
    assert measure(series(count=0), BUSY) is None


SLOW_TICKS = np.arange(100) % 10 == 0


def slow(values: object) -> np.ndarray:
    return np.where(SLOW_TICKS, values, np.nan)


def test_nobody_else() -> None:
    assert sharing(series(other_processes=slow(0))) is None
    assert sharing(series(drop=["other_processes"])) is None


def test_another_process_is_counted_between_the_slow_ticks_too() -> None:
    others = slow(np.where(np.arange(100) >= 40, 2, 0))
    found = sharing(series(other_processes=others))
    assert found is not None and found.share == pytest.approx(0.6) and found.most == 2 and found.since_step == 400
    assert found.others_bytes is None


def test_the_others_memory_is_what_is_not_ours() -> None:
    found = sharing(
        series(
            other_processes=slow(1), memory_process_bytes=slow(50.0 * GIB), memory_used_bytes=61.0 * GIB,
            memory_reserved_bytes=1.0 * GIB,
        )
    )  # fmt: skip
    assert found is not None and found.others_bytes == 10 * GIB and found.memory_share == pytest.approx(0.125)


def test_a_full_link_is_no_finding() -> None:
    assert link(series(), 10) is None
    assert link(series(drop=["pcie_generation", "pcie_width"]), 10) is None
    assert link(series(pcie_generation=1.0, utilization_percent=0.0), 10) is None


def test_an_idle_gpu_slows_its_link_down_on_purpose() -> None:
    busy = np.where(np.arange(100) < 50, 0, 95)
    assert link(series(utilization_percent=busy, pcie_generation=np.where(busy, 5, 1)), 10) is None


@pytest.mark.parametrize(
    ("generation", "width", "lost"),
    [(4, 16, 0.5), (5, 8, 0.5), (5, 4, 0.75), (3, 8, 1 - 0.985 / 3.938 / 2), (1, 16, 1 - 0.25 / 3.938)],
)
def test_what_is_lost(generation: int, width: int, lost: float) -> None:
    found = link(series(pcie_generation=float(generation), pcie_width=float(width), pcie_replays=3.0), 10)
    assert found is not None and found.lost == pytest.approx(lost, abs=0.001)
    assert (found.generation, found.width, found.generation_max, found.width_max, found.replays) == (
        generation,
        width,
        5,
        16,
        3,
    )


def test_the_traffic_is_that_of_the_busier_direction_over_the_present_rate() -> None:
    found = link(
        series(pcie_generation=4.0, pcie_receive_bytes_per_s=slow(3.15e9), pcie_send_bytes_per_s=slow(1e9)), 10
    )
    assert found is not None and found.traffic == pytest.approx(0.1, abs=0.001)
