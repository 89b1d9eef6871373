"""What the fields of each tool measure, as the project's metrics (`tb_gpu_doctor.metrics`)."""

from __future__ import annotations

from dataclasses import dataclass

from tb_gpu_doctor.metrics import THROTTLE_BITS


@dataclass(frozen=True)
class Field:
    """Where a column goes.

    Attributes:
        metric: its id; or a name of `GpuFacts.limits` where ``limit`` is set.
        measure: a key of `values.UNITS`.
        unit: what the tool's documentation says where it writes none beside the numbers; None: it always writes one.
    """

    metric: str
    measure: str
    unit: str | None = None
    limit: bool = False


def _csv_fields() -> dict[str, Field]:
    plain = {
        "utilization.gpu": Field("utilization_percent", "percent"),
        "utilization.memory": Field("memory_utilization_percent", "percent"),
        "memory.used": Field("memory_used_bytes", "bytes"),
        "memory.free": Field("memory_free_bytes", "bytes"),
        "memory.reserved": Field("memory_reserved_bytes", "bytes"),
        "memory.total": Field("memory_total_bytes", "bytes", limit=True),
        "power.draw": Field("power_watts", "watts"),
        "power.draw.average": Field("power_watts", "watts"),
        "power.draw.instant": Field("power_watts", "watts"),
        "power.limit": Field("power_limit_watts", "watts"),
        "enforced.power.limit": Field("power_limit_watts", "watts"),
        "power.default_limit": Field("power_limit_default_watts", "watts", limit=True),
        "temperature.gpu": Field("temperature_celsius", "celsius", ""),
        "temperature.memory": Field("memory_temperature_celsius", "celsius", ""),
        "clocks.current.sm": Field("sm_clock_mhz", "mhz"),
        "clocks.sm": Field("sm_clock_mhz", "mhz"),
        "clocks.current.memory": Field("memory_clock_mhz", "mhz"),
        "clocks.mem": Field("memory_clock_mhz", "mhz"),
        "clocks.max.sm": Field("sm_clock_max_mhz", "mhz", limit=True),
        "clocks.max.memory": Field("memory_clock_max_mhz", "mhz", limit=True),
        "pcie.link.gen.current": Field("pcie_generation", "count", ""),
        "pcie.link.gen.gpucurrent": Field("pcie_generation", "count", ""),
        "pcie.link.gen.max": Field("pcie_generation_max", "count", "", limit=True),
        "pcie.link.width.current": Field("pcie_width", "count", ""),
        "pcie.link.width.max": Field("pcie_width_max", "count", "", limit=True),
        "ecc.errors.corrected.volatile.total": Field("ecc_corrected", "count", ""),
        "ecc.errors.uncorrected.volatile.total": Field("ecc_uncorrected", "count", ""),
        "fan.speed": Field("fan_percent", "percent"),
        "total_energy_consumption": Field("energy_joules", "joules"),
    }
    for prefix in ("clocks_event_reasons", "clocks_throttle_reasons"):
        plain[f"{prefix}.active"] = Field("clock_event_reasons", "bits", "")
        for name, metric in _COUNTERS.items():
            plain[f"{prefix}_counters.{name}"] = Field(f"throttled_{metric}_seconds", "seconds")
    return plain


_COUNTERS = {
    "sw_power_cap": "software_power",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "software_thermal",
    "hw_thermal_slowdown": "hardware_thermal",
    "hw_power_brake_slowdown": "power_brake",
}
CSV_FIELDS = _csv_fields()
# Reasons that were asked for one by one, ``Active`` or ``Not Active``.
CSV_BITS = {
    f"{prefix}.{name}": bit
    for prefix in ("clocks_event_reasons", "clocks_throttle_reasons")
    for name, bit in {
        "gpu_idle": 0x1,
        "applications_clocks_setting": 0x2,
        "sw_power_cap": THROTTLE_BITS["software_power"],
        "hw_slowdown": THROTTLE_BITS["hardware_slowdown"],
        "sync_boost": THROTTLE_BITS["sync_boost"],
        "sw_thermal_slowdown": THROTTLE_BITS["software_thermal"],
        "hw_thermal_slowdown": THROTTLE_BITS["hardware_thermal"],
        "hw_power_brake_slowdown": THROTTLE_BITS["power_brake"],
    }.items()
}
# Of dmon; the unit stands in the second line of its header, where MB are MiB for memory.
DMON_FIELDS = {
    "pwr": Field("power_watts", "watts"),
    "gtemp": Field("temperature_celsius", "celsius"),
    "temp": Field("temperature_celsius", "celsius"),
    "mtemp": Field("memory_temperature_celsius", "celsius"),
    "sm": Field("utilization_percent", "percent"),
    "mem": Field("memory_utilization_percent", "percent"),
    "mclk": Field("memory_clock_mhz", "mhz"),
    "pclk": Field("sm_clock_mhz", "mhz"),
    "fb": Field("memory_used_bytes", "bytes"),
    "sbecc": Field("ecc_corrected", "count", ""),
    "dbecc": Field("ecc_uncorrected", "count", ""),
    "pci": Field("pcie_replays", "count", ""),
    "rxpci": Field("pcie_receive_bytes_per_s", "bytes_per_s"),
    "txpci": Field("pcie_send_bytes_per_s", "bytes_per_s"),
}

# DCGM's fields by the name in the exporter without its prefix, and by the short one of `dcgmi dmon`, with the unit
# that its documentation gives.
_DCGM = (
    (("GPU_UTIL",), "GPUTL", "utilization_percent", "percent", "%"),
    (("MEM_COPY_UTIL",), "MCUTL", "memory_utilization_percent", "percent", "%"),
    (("FB_USED",), "FBUSD", "memory_used_bytes", "bytes", "MiB"),
    (("FB_FREE",), "FBFRE", "memory_free_bytes", "bytes", "MiB"),
    (("FB_RESERVED",), "FBRSV", "memory_reserved_bytes", "bytes", "MiB"),
    (("POWER_USAGE", "BOARD_POWER_WATTS"), "POWER", "power_watts", "watts", "W"),
    (("POWER_USAGE_INSTANT",), "POWINST", "power_watts", "watts", "W"),
    (("POWER_MGMT_LIMIT",), "", "power_limit_watts", "watts", "W"),
    (("ENFORCED_POWER_LIMIT", "BOARD_POWER_LIMIT_ENFORCED_WATTS"), "", "power_limit_watts", "watts", "W"),
    (("GPU_TEMP", "GPU_TEMP_CELSIUS"), "TMPTR", "temperature_celsius", "celsius", "C"),
    (("MEMORY_TEMP", "MEMORY_TEMP_CELSIUS"), "MMTMP", "memory_temperature_celsius", "celsius", "C"),
    (("SM_CLOCK",), "SMCLK", "sm_clock_mhz", "mhz", "MHz"),
    (("SM_CLOCK_HERTZ",), "", "sm_clock_mhz", "mhz", "Hz"),
    (("MEM_CLOCK",), "MMCLK", "memory_clock_mhz", "mhz", "MHz"),
    (("MEMORY_CLOCK_HERTZ",), "", "memory_clock_mhz", "mhz", "Hz"),
    (("CLOCK_THROTTLE_REASONS", "CLOCKS_EVENT_REASONS"), "DVCCTR", "clock_event_reasons", "bits", ""),
    (("POWER_VIOLATION",), "PVIOL", "throttled_software_power_seconds", "seconds", "ns"),
    (("SYNC_BOOST_VIOLATION",), "SBVIO", "throttled_sync_boost_seconds", "seconds", "ns"),
    (("PCIE_REPLAY_COUNTER", "PCIE_REPLAY_TOTAL"), "RPCTR", "pcie_replays", "count", ""),
    (("PCIE_LINK_GEN",), "", "pcie_generation", "count", ""),
    (("PCIE_LINK_WIDTH",), "", "pcie_width", "count", ""),
    (("ECC_SBE_VOL_TOTAL",), "ESVTL", "ecc_corrected", "count", ""),
    (("ECC_DBE_VOL_TOTAL",), "EDVTL", "ecc_uncorrected", "count", ""),
    (("FAN_SPEED",), "FANSP", "fan_percent", "percent", "%"),
    (("FAN_SPEED_RATIO",), "", "fan_percent", "ratio", ""),
    (("TOTAL_ENERGY_CONSUMPTION",), "TOTEC", "energy_joules", "joules", "mJ"),
    (("GPU_ENERGY_JOULES_TOTAL",), "", "energy_joules", "joules", "J"),
    (("FB_USED_BYTES",), "", "memory_used_bytes", "bytes", "B"),
    (("FB_FREE_BYTES",), "", "memory_free_bytes", "bytes", "B"),
    (("FB_RESERVED_BYTES",), "", "memory_reserved_bytes", "bytes", "B"),
    # Their values tell whether they are a ratio or, as in 4.6, per cent: see `exporter`.
    (("GPU_UTIL_RATIO",), "", "utilization_percent", "ratio", ""),
    (("MEM_COPY_UTIL_RATIO",), "", "memory_utilization_percent", "ratio", ""),
)
_PROFILED = (
    (("PCIE_RX_BYTES",), "PCIRX", "pcie_receive_bytes_per_s", "bytes_per_s", "B/s"),
    (("PCIE_TX_BYTES",), "PCITX", "pcie_send_bytes_per_s", "bytes_per_s", "B/s"),
)
_LIMITS = (
    (("FB_TOTAL",), "FBTTL", "memory_total_bytes", "bytes", "MiB"),
    (("FB_CAPACITY_BYTES",), "", "memory_total_bytes", "bytes", "B"),
    (("SLOWDOWN_TEMP",), "", "slowdown_temperature_celsius", "celsius", "C"),
    (("SHUTDOWN_TEMP",), "", "shutdown_temperature_celsius", "celsius", "C"),
    (("MAX_SM_CLOCK",), "", "sm_clock_max_mhz", "mhz", "MHz"),
)
# Of exporters of before 2020.
_OLD = {
    "dcgm_sm_clock": Field("sm_clock_mhz", "mhz", "MHz"),
    "dcgm_memory_clock": Field("memory_clock_mhz", "mhz", "MHz"),
    "dcgm_gpu_temp": Field("temperature_celsius", "celsius", "C"),
    "dcgm_memory_temp": Field("memory_temperature_celsius", "celsius", "C"),
    "dcgm_power_usage": Field("power_watts", "watts", "W"),
    "dcgm_gpu_utilization": Field("utilization_percent", "percent", "%"),
    "dcgm_mem_copy_utilization": Field("memory_utilization_percent", "percent", "%"),
    "dcgm_fb_used": Field("memory_used_bytes", "bytes", "MiB"),
    "dcgm_fb_free": Field("memory_free_bytes", "bytes", "MiB"),
    "dcgm_pcie_replay_counter": Field("pcie_replays", "count", ""),
    "dcgm_total_energy_consumption": Field("energy_joules", "joules", "mJ"),
}


def _exporter_fields() -> dict[str, Field]:
    found = dict(_OLD)
    for rows, prefixes, is_limit in (
        (_DCGM, ("DCGM_FI_DEV_",), False),
        (_PROFILED, ("DCGM_FI_PROF_",), False),
        (_LIMITS, ("DCGM_FI_DEV_",), True),
    ):
        for names, _, metric, measure, unit in rows:
            for prefix in prefixes:
                found |= {prefix + name: Field(metric, measure, unit, is_limit) for name in names}
    return found


EXPORTER_FIELDS = _exporter_fields()
XID_NAMES = ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR")
DCGMI_FIELDS = {
    short: Field(metric, measure, unit, is_limit)
    for rows, is_limit in (((*_DCGM, *_PROFILED), False), (_LIMITS, True))
    for _, short, metric, measure, unit in rows
    if short
}
DCGMI_XID = "XIDER"
