"""Memory or arithmetic: said only where both are counted and a roof is near."""

from __future__ import annotations

import pytest

from tb_gpu_doctor.analysis.roofline import NEAR_THE_ROOF, bound_of
from tb_gpu_doctor.traces.columns import Device

GPU = Device(0, "h", 0, memory_bandwidth_bytes_per_s=1_000_000_000_000, peak_flops_per_s=100e12)
SECOND = 10**12


@pytest.mark.parametrize(
    ("flops", "accessed", "bound"),
    [
        (1_000, 600_000_000_000, "memory"),
        (1_000, 599_000_000_000, None),
        (60 * 10**12, 1_000, "compute"),
        (59 * 10**12, 1_000, None),
        (None, 600_000_000_000, None),
        (60 * 10**12, None, None),
        (0, 0, None),
    ],
)
def test_near_a_roof(flops: int | None, accessed: int | None, bound: str | None) -> None:
    assert NEAR_THE_ROOF == 0.6
    assert bound_of(GPU, SECOND, flops, accessed) == bound


def test_without_peaks_or_time_nothing_is_said() -> None:
    assert bound_of(Device(0, "h", 0), SECOND, 1, 10**12) is None
    assert bound_of(GPU, 0, 1, 10**12) is None
    no_peak = Device(0, "h", 0, memory_bandwidth_bytes_per_s=1_000_000_000_000)
    assert bound_of(no_peak, SECOND, 10**15, 1) is None
