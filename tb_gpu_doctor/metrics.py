"""The series that the companion writer records for each GPU: one table that writer and reader share.

A metric's ``id`` is its name in code; ``tag`` is its name in event files and in TensorBoard's Scalars
tab, where the unit stands in the last part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Fold = Literal["mean", "max", "min", "last"]


@dataclass(frozen=True)
class Metric:
    """One series of one GPU.

    Attributes:
        id: stable name, with its unit.
        tag: name in event files.
        fold: how samples between two points become one point. Counters only grow and keep their ``last``.
        every: it is sampled at every n-th tick, since the driver answers slowly.
        counter: whether it is cumulative since the monitor's start.
    """

    id: str
    tag: str
    fold: Fold = "mean"
    every: int = 1
    counter: bool = False


# Bits of NVML's clocks event reasons by the name of the cumulative counter that tells how long each was set.
THROTTLE_BITS: dict[str, int] = {
    "software_power": 0x4,
    "hardware_slowdown": 0x8,
    "sync_boost": 0x10,
    "software_thermal": 0x20,
    "hardware_thermal": 0x40,
    "power_brake": 0x80,
}

METRICS: tuple[Metric, ...] = (
    Metric("utilization_percent", "gpu/utilization_percent"),
    Metric("memory_utilization_percent", "gpu/memory_controller_utilization_percent"),
    Metric("memory_used_bytes", "gpu/memory_used_bytes", "max"),
    Metric("memory_reserved_bytes", "gpu/memory_reserved_bytes", "max"),
    Metric("memory_free_bytes", "gpu/memory_free_bytes", "min"),
    Metric("memory_process_bytes", "gpu/memory_of_this_process_bytes", "max", every=10),
    Metric("allocator_used_bytes", "gpu/allocator_used_bytes", "max"),
    Metric("allocator_peak_bytes", "gpu/allocator_peak_bytes", "max"),
    Metric("power_watts", "gpu/power_watts"),
    Metric("power_limit_watts", "gpu/power_limit_watts", "last"),
    Metric("temperature_celsius", "gpu/temperature_celsius", "max"),
    Metric("memory_temperature_celsius", "gpu/memory_temperature_celsius", "max"),
    Metric("sm_clock_mhz", "gpu/sm_clock_mhz"),
    Metric("memory_clock_mhz", "gpu/memory_clock_mhz"),
    Metric("clock_event_reasons", "gpu/clock_event_reasons_bits", "last"),
    Metric("pcie_receive_bytes_per_s", "gpu/pcie_receive_bytes_per_s", every=10),
    Metric("pcie_send_bytes_per_s", "gpu/pcie_send_bytes_per_s", every=10),
    Metric("pcie_replays", "gpu/pcie_replays_total", "last", counter=True),
    Metric("pcie_generation", "gpu/pcie_generation", "last", every=10),
    Metric("pcie_width", "gpu/pcie_width_lanes", "last", every=10),
    Metric("nvlink_receive_bytes", "gpu/nvlink_receive_bytes_total", "last", every=10, counter=True),
    Metric("nvlink_send_bytes", "gpu/nvlink_send_bytes_total", "last", every=10, counter=True),
    Metric("ecc_corrected", "gpu/ecc_corrected_total", "last", every=10, counter=True),
    Metric("ecc_uncorrected", "gpu/ecc_uncorrected_total", "last", every=10, counter=True),
    Metric("fan_percent", "gpu/fan_percent"),
    Metric("energy_joules", "gpu/energy_joules_total", "last", counter=True),
    Metric("busy_seconds", "gpu/busy_seconds_total", "last", counter=True),
    Metric("other_processes", "gpu/other_processes", "max", every=10),
    *(
        Metric(f"throttled_{name}_seconds", f"gpu/throttled_{name}_seconds_total", "last", counter=True)
        for name in THROTTLE_BITS
    ),
)

BY_ID: dict[str, Metric] = {metric.id: metric for metric in METRICS}
