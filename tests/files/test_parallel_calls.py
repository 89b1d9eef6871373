"""Many calls at once."""

from __future__ import annotations

import threading
import time

import pytest

from tb_gpu_doctor.files.parallel_calls import in_parallel, within


def test_results_and_exceptions_stand_in_order() -> None:
    def half(value: int) -> float:
        if value == 3:
            raise ValueError("three")
        return value / 2

    outcomes = in_parallel(half, range(100))
    assert [outcome for index, outcome in enumerate(outcomes) if index != 3] == [i / 2 for i in range(100) if i != 3]
    assert isinstance(outcomes[3], ValueError)
    assert in_parallel(half, []) == [] and in_parallel(half, [4]) == [2.0]


def test_a_deadline_leaves_the_rest() -> None:
    gate = threading.Event()
    began = time.monotonic()
    outcomes = in_parallel(lambda value: value or gate.wait(30), [1, 0, 2], time.monotonic() + 0.3, workers=3)
    assert outcomes == [1, None, 2] and time.monotonic() - began < 5
    gate.set()


def test_no_more_than_so_many_at_a_time() -> None:
    lock, now, most = threading.Lock(), 0, 0

    def call(_value: int) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.01)
        with lock:
            now -= 1

    in_parallel(call, range(30), workers=4)
    assert 2 <= most <= 4


def test_a_wait_ends() -> None:
    gate = threading.Event()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        within(0.2, lambda: gate.wait(30))
    assert time.monotonic() - began < 5
    gate.set()
    assert within(5, lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0)
