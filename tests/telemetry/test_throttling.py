"""Throttling: which samples count, how much of the working time, and since when; against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.metrics import THROTTLE_BITS
from tb_gpu_doctor.telemetry.throttling import bands, kind_masks, measure, reason_masks
from tests.telemetry.build import START_NS, S, series

BUSY = 10.0
THERMAL, CAP, HARDWARE, BRAKE, SOFTWARE_THERMAL = 0x40, 0x4, 0x8, 0x80, 0x20


def only(kind: str, **values: object) -> object:
    found = [t for t in measure(series(**values), BUSY) if t.kind == kind]
    assert len(found) == 1
    return found[0]


def test_a_healthy_gpu_is_not_throttled() -> None:
    assert measure(series(), BUSY) == () and bands(series()) == ()


@pytest.mark.parametrize(
    ("bits", "clock", "kinds"),
    [
        (THERMAL | HARDWARE, 1000, {"thermal"}),
        (THERMAL | HARDWARE, 2000, {"thermal"}),
        (SOFTWARE_THERMAL, 1500, {"thermal"}),
        (SOFTWARE_THERMAL, 1950, set()),  # 97.5 % of the maximum
        (CAP, 1500, {"power"}),
        (CAP, 1850, set()),  # 92.5 %: what a large GPU does at full load
        (BRAKE | HARDWARE, 1000, {"power"}),
        (HARDWARE, 1000, {"other"}),
        (0x1 | 0x2 | 0x100 | 0x10, 1000, set()),  # idle, application and display clocks, sync boost
        (THERMAL | CAP, 1000, {"thermal", "power"}),
    ],
)
def test_bits_count_together_with_clocks(bits: int, clock: float, kinds: set[str]) -> None:
    found = measure(series(clock_event_reasons=bits, sm_clock_mhz=clock), BUSY)
    assert {t.kind for t in found} == kinds
    assert all(t.share == 1.0 for t in found)


def test_without_clocks_a_thermal_bit_counts_and_a_power_cap_does_not() -> None:
    assert [t.kind for t in measure(series(clock_event_reasons=SOFTWARE_THERMAL, drop=["sm_clock_mhz"]), BUSY)] == [
        "thermal"
    ]
    assert measure(series(clock_event_reasons=CAP, drop=["sm_clock_mhz"]), BUSY) == ()
    assert measure(series(clock_event_reasons=CAP, sm_clock_mhz=1000, limits={"sm_clock_max_mhz": 0.0}), BUSY) == ()


def test_a_driver_without_reasons_says_nothing() -> None:
    assert measure(series(drop=["clock_event_reasons"]), BUSY) == ()
    assert kind_masks(series(clock_event_reasons=np.nan)) == {}


def test_idle_time_does_not_count() -> None:
    bits = np.where(np.arange(100) < 50, THERMAL, 0)
    assert measure(series(clock_event_reasons=bits, utilization_percent=np.where(bits > 0, 2, 98)), BUSY) == ()
    found = only("thermal", clock_event_reasons=bits, utilization_percent=np.where(np.arange(100) < 75, 98, 0))
    assert found.share == pytest.approx(50 / 75, abs=0.01)


def test_a_lasting_state_has_a_beginning_in_steps_and_figures() -> None:
    late = np.arange(200) >= 120
    found = only(
        "thermal", count=200, clock_event_reasons=np.where(late, THERMAL, 0), sm_clock_mhz=np.where(late, 1200, 1900),
        temperature_celsius=np.where(late, 91, 70),
    )  # fmt: skip
    assert found.lasting and found.since_step == 1200 and found.since_ns == START_NS + 120 * S
    assert (found.clock_mhz, found.free_clock_mhz, found.max_clock_mhz) == (1200, 1900, 2000)
    assert (found.temperature_celsius, found.slowdown_celsius) == (91, 90)
    assert found.reasons == ("hardware_thermal",) and found.share == pytest.approx(0.4)


def test_a_single_early_sample_is_not_the_beginning() -> None:
    bits = np.where(np.arange(1000) >= 400, SOFTWARE_THERMAL, 0)
    bits[30] = SOFTWARE_THERMAL
    clock = np.where(bits > 0, 1300, 1900)
    found = only("thermal", count=1000, clock_event_reasons=bits, sm_clock_mhz=clock)
    assert found.lasting and found.since_step == 4000
    assert found.slowdown_celsius == 87  # the software's limit, not the hardware's


def test_what_comes_and_goes_has_only_a_first_time() -> None:
    bits = np.where(np.arange(300) % 3 == 1, THERMAL, 0)
    found = only("thermal", count=300, clock_event_reasons=bits)
    assert not found.lasting and found.since_step == 10 and found.share == pytest.approx(1 / 3, abs=0.01)


def test_a_pause_of_the_process_does_not_count_as_throttled_time() -> None:
    made = series(clock_event_reasons=np.where(np.arange(100) == 50, THERMAL, 0))
    wall = made.wall_ns.copy()
    wall[50:] += 3600 * S
    paused = type(made)(made.run, made.facts, wall, made.step, made.values)
    assert measure(paused, BUSY)[0].share < 0.06


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=60))
def test_the_beginning_is_the_best_change_point(rows: list[tuple[bool, bool]]) -> None:
    hot, idle = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    made = series(
        count=len(rows), clock_event_reasons=np.where(hot, THERMAL, 0), utilization_percent=np.where(idle, 0, 90)
    )
    found = [t for t in measure(made, BUSY) if t.kind == "thermal"]
    mask = hot[~idle]
    if not mask.any():
        assert not found
        return
    (throttling,) = found
    assert throttling.share == pytest.approx(mask.mean())
    costs = [mask[:i].sum() + (~mask[i:]).sum() for i in range(len(mask))]
    point = costs.index(min(costs))
    tail = mask[point:]
    lasting = bool(mask[point]) and tail.mean() >= 0.8 and tail.sum() >= 0.5 * mask.sum()
    assert throttling.lasting == lasting
    row = np.flatnonzero(~idle)[point if lasting else int(np.argmax(mask))]
    assert throttling.since_ns == START_NS + int(row) * S


@given(st.lists(st.sampled_from([0, THERMAL, CAP, THERMAL | CAP, HARDWARE]), max_size=80), st.integers(1, 8))
def test_bands_cover_what_is_throttled_and_are_few(bits: list[int], most: int) -> None:
    made = series(count=len(bits), clock_event_reasons=np.array(bits, np.float64), sm_clock_mhz=1000)
    masks = kind_masks(made)
    for limit in (None, most):
        found = bands(made, limit)
        assert list(found) == sorted(found, key=lambda b: (b.start_ns, b.end_ns))
        for kind, mask in masks.items():
            own = [b for b in found if b.kind == kind]
            assert limit is None or len(own) <= limit
            for row in np.flatnonzero(mask):
                assert sum(b.start_ns <= made.wall_ns[row] <= b.end_ns for b in own) == 1
            assert bool(own) == bool(mask.any())
            assert all(a.end_ns < b.end_ns and a.end_ns <= b.start_ns for a, b in itertools.pairwise(own))


def test_every_bit_belongs_to_one_kind_at_most() -> None:
    for name, bit in THROTTLE_BITS.items():
        masks = reason_masks(series(clock_event_reasons=bit, sm_clock_mhz=500))
        assert [reason for reason, mask in masks.items() if mask.any()] == [name]
        kinds = [
            kind for kind, mask in kind_masks(series(clock_event_reasons=bit, sm_clock_mhz=500)).items() if mask.any()
        ]
        assert len(kinds) == (0 if name == "sync_boost" else 1)


def test_the_software_bit_at_the_usual_clock_costs_nothing() -> None:
    # The GPU boosts to 1,800 of 2,000 MHz by itself; with the bit set it runs at 1,780.
    bits = np.where(np.arange(200) % 2, SOFTWARE_THERMAL, 0)
    assert measure(series(count=200, clock_event_reasons=bits, sm_clock_mhz=np.where(bits > 0, 1780, 1800)), BUSY) == ()
    slow = np.where(bits > 0, 1600, 1800)
    assert measure(series(count=200, clock_event_reasons=bits, sm_clock_mhz=slow), BUSY)[0].kind == "thermal"


def test_a_slowdown_without_a_reason_is_heat_at_the_thermal_limit_only() -> None:
    for heat, kind in ((70.0, "other"), (86.0, "other"), (87.0, "thermal"), (90.0, "thermal")):
        found = measure(series(clock_event_reasons=HARDWARE, sm_clock_mhz=900, temperature_celsius=heat), BUSY)
        assert [t.kind for t in found] == [kind]
