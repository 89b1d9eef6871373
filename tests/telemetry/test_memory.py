"""What training needs of the memory: who may be believed, and what a leak is."""

from __future__ import annotations

import numpy as np
import pytest

from tb_gpu_doctor.telemetry.memory import measure
from tests.telemetry.build import GIB, series

NO_ALLOCATOR = ("allocator_used_bytes", "allocator_peak_bytes")


def test_the_allocator_is_believed() -> None:
    found = measure(series(), None)
    assert found is not None and found.source == "allocator" and found.growth is None
    assert found.peak_bytes == 64 * GIB and found.capacity_bytes == 80 * GIB and found.used == pytest.approx(0.8)


def test_its_own_limit_is_the_capacity() -> None:
    found = measure(series(limits={"allocator_limit_bytes": 70.0 * GIB}), False)
    assert found is not None and found.capacity_bytes == 70 * GIB


@pytest.mark.parametrize("growth", [None, False])
def test_preallocated_memory_tells_nothing(growth: bool | None) -> None:
    assert measure(series(drop=NO_ALLOCATOR), growth) is None


def test_nvml_counts_where_memory_grows_on_demand() -> None:
    found = measure(series(drop=NO_ALLOCATOR, memory_used_bytes=30.0 * GIB), True)
    assert found is not None and found.source == "nvml" and found.peak_bytes == 30 * GIB
    own = np.where(np.arange(100) % 10 == 0, 20.0 * GIB, np.nan)
    found = measure(series(drop=NO_ALLOCATOR, memory_process_bytes=own), True)
    assert found is not None and found.peak_bytes == 20 * GIB


def test_without_a_capacity_nothing_is_said() -> None:
    assert measure(series(limits={"memory_total_bytes": 0.0}), True) is None


def test_a_leak_has_a_rate_and_an_end() -> None:
    rise = np.arange(400) * 0.05 * GIB
    found = measure(series(count=400, allocator_used_bytes=10 * GIB + rise, allocator_peak_bytes=30.0 * GIB), None)
    assert found is not None and found.growth is not None
    assert found.growth.bytes_per_s == pytest.approx(0.05 * GIB, rel=0.01)
    assert found.growth.bytes_per_step == pytest.approx(0.005 * GIB, rel=0.01)
    left = (80 - (10 + 399 * 0.05)) / 0.05
    assert found.growth.seconds_left == pytest.approx(left, rel=0.02)
    assert found.growth.steps_left == pytest.approx(left * 10, rel=0.02)


def test_what_comes_back_is_no_leak() -> None:
    wave = 10 * GIB + 5 * GIB * (np.arange(400) % 37) / 37
    found = measure(series(count=400, allocator_used_bytes=wave), None)
    assert found is not None and found.growth is None


def test_a_leak_shows_below_the_waves_of_the_steps() -> None:
    noise = np.random.default_rng(1).uniform(0, 8 * GIB, 400)
    found = measure(series(count=400, allocator_used_bytes=10 * GIB + np.arange(400) * 0.1 * GIB + noise), None)
    assert found is not None and found.growth is not None


def test_filling_up_at_the_start_is_no_leak() -> None:
    filled = np.minimum(np.arange(400) / 70, 1) * 50 * GIB
    found = measure(series(count=400, allocator_used_bytes=filled), None)
    assert found is not None and found.growth is None


def test_noise_alone_hardly_ever_is_a_leak() -> None:
    # Eight of nine differences upwards by chance: 1,014 of the 10! orders, that is one recording in 3,600.
    found = 0
    for seed in range(400):
        noise = np.random.default_rng(seed).normal(0, GIB, 400)
        memory = measure(series(count=400, allocator_used_bytes=30 * GIB + noise), None)
        assert memory is not None
        found += memory.growth is not None
    assert found <= 1
