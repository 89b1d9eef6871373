"""The sampler on the real pynvml over a driver that plays scenarios, at the scenario's own time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tb_gpu_doctor.metrics import METRICS, THROTTLE_BITS
from tb_gpu_doctor.monitor.devices import list_devices, visible_devices
from tb_gpu_doctor.monitor.notes import Notes
from tb_gpu_doctor.monitor.nvml import DriverLost, Nvml
from tb_gpu_doctor.monitor.probes import driver_facts, gpu_facts
from tb_gpu_doctor.monitor.sampler import COLUMN, Sampler
from tests import nvml as stub_of_tests

Values = NDArray[np.float64]


class Machine:
    """A scenario with a sampler on it."""

    def __init__(self, scenario: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = folder / "scenario.txt"
        path.write_text(scenario, encoding="utf-8")
        self.stub = stub_of_tests.loaded()
        monkeypatch.setenv("NVML_STUB_SCENARIO", str(path))
        self.stub.set_time(0.0)
        self.nvml = Nvml()
        self.nvml.start()
        self.kept: list[dict[str, Any]] = []
        self.time_s = 0.0
        devices = visible_devices(list_devices(self.nvml), {}).devices
        self.sampler = Sampler(self.nvml, devices, Notes(self.kept.append), 1.0)
        self.devices = devices

    def sample(self, time_s: float) -> Values:
        self.time_s = time_s
        self.stub.set_time(time_s)
        return self.sampler.sample(None, lambda: round(self.time_s * 1e9))

    def series(self, metric: str, seconds: int, gpu: int = 0) -> list[float]:
        return [float(self.sample(float(time_s))[gpu, COLUMN[metric]]) for time_s in range(seconds)]

    @property
    def told(self) -> list[str]:
        return [note["key"].split(".")[1] for note in self.kept]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Machine]]:
    made: list[Machine] = []

    def make(scenario: str) -> Machine:
        made.append(Machine(scenario, tmp_path, monkeypatch))
        return made[-1]

    yield make
    for machine in made:
        machine.nvml.stop()
        machine.stub.set_time(-1.0)


def test_every_metric_comes_in_its_unit(machine: Callable[[str], Machine]) -> None:
    scenario = f"""
    gpus 1
    gpu 0 utilization 91
    gpu 0 memory_utilization 37
    gpu 0 memory_total 80e9
    gpu 0 memory_used 10e9
    gpu 0 memory_reserved 1e9
    gpu 0 power 432.5
    gpu 0 power_limit 650
    gpu 0 temperature 71
    gpu 0 memory_temperature 83
    gpu 0 sm_clock 1755
    gpu 0 memory_clock 2619
    gpu 0 reasons 0x24
    gpu 0 fan 45
    gpu 0 fail fan SUCCESS
    gpu 0 replays 0:0 1000:1000
    gpu 0 pcie_rx 1500000
    gpu 0 pcie_tx 250000
    gpu 0 pcie_generation 4
    gpu 0 pcie_width 8
    gpu 0 links 4
    gpu 0 nvlink_rx 0:0 1000:1024000
    gpu 0 nvlink_tx 0:0 1000:2048000
    gpu 0 ecc_corrected 0:0 1000:1000
    gpu 0 ecc_uncorrected 0:7 1000:1007
    gpu 0 process self 9e9
    gpu 0 process 4711 1e9
    gpu 0 process {os.getppid()} 1e9
    """
    playing = machine(scenario)
    for time_s in range(10):
        playing.sample(time_s)
    row = dict(zip([metric.id for metric in METRICS], playing.sample(10.0)[0].tolist(), strict=True))
    allocator = {name for name in row if name.startswith("allocator")}
    assert {name for name, value in row.items() if np.isnan(value)} == allocator
    expected = {
        "utilization_percent": 91,
        "memory_utilization_percent": 37,
        "memory_used_bytes": 10e9,
        "memory_reserved_bytes": 1e9,
        "memory_free_bytes": 69e9,
        "memory_process_bytes": 9e9,
        "other_processes": 2,
        "power_watts": 432.5,
        "power_limit_watts": 650,
        "temperature_celsius": 71,
        "memory_temperature_celsius": 83,
        "sm_clock_mhz": 1755,
        "memory_clock_mhz": 2619,
        "clock_event_reasons": 0x24,
        "fan_percent": 45,
        "pcie_receive_bytes_per_s": 1.5e9,
        "pcie_send_bytes_per_s": 0.25e9,
        "pcie_generation": 4,
        "pcie_width": 8,
        "pcie_replays": 10,
        "nvlink_receive_bytes": 10 * 1024 * 1024,
        "nvlink_send_bytes": 20 * 1024 * 1024,
        "ecc_corrected": 10,
        "ecc_uncorrected": 10,
        "energy_joules": 4325,
        "busy_seconds": 9.1,
        "throttled_software_power_seconds": 10,
        "throttled_software_thermal_seconds": 10,
        "throttled_hardware_slowdown_seconds": 0,
        "throttled_hardware_thermal_seconds": 0,
        "throttled_sync_boost_seconds": 0,
        "throttled_power_brake_seconds": 0,
    }
    assert expected.keys() == row.keys() - allocator
    for name, value in expected.items():
        assert row[name] == pytest.approx(value, rel=1e-6), name
    assert not playing.told


def test_processes_count_only_beside_this_one(machine: Callable[[str], Machine]) -> None:
    processes = "gpu 0 process self 1e9\ngpu 0 process 4711 1e9 5\ngpu 1 process 4712 1e9\n"
    playing = machine("gpus 3\n" + processes)
    first, later = playing.sample(0.0)[:, COLUMN["other_processes"]], [playing.sample(float(n)) for n in range(1, 11)]
    assert np.array_equal(first, [0, np.nan, np.nan], equal_nan=True), "a rank beside us, or a container's empty list"
    assert later[-1][0, COLUMN["other_processes"]] == 1


def test_counters_of_time_are_the_sums_of_what_was_set(machine: Callable[[str], Machine]) -> None:
    playing = machine("gpus 1\ngpu 0 reasons 0:0 3:0x40 6:0x44 8:0\ngpu 0 utilization 50")
    rows = [playing.sample(float(time_s))[0] for time_s in range(12)]
    reasons = [int(row[COLUMN["clock_event_reasons"]]) for row in rows]
    for name, bit in THROTTLE_BITS.items():
        counted = [row[COLUMN[f"throttled_{name}_seconds"]] for row in rows]
        assert counted == [sum(bool(reason & bit) for reason in reasons[1 : n + 1]) for n in range(12)], name
    assert [row[COLUMN["busy_seconds"]] for row in rows] == [0.5 * n for n in range(12)]


def test_slow_questions_come_at_every_tenth_tick_spread_over_the_gpus(machine: Callable[[str], Machine]) -> None:
    playing = machine("gpus 4")
    rows = [playing.sample(float(time_s))[:, COLUMN["pcie_width"]] for time_s in range(31)]
    asked = [[tick for tick, row in enumerate(rows) if row[gpu] == row[gpu]] for gpu in range(4)]
    assert asked == [[0, 10, 20, 30], [0, 1, 11, 21], [0, 2, 12, 22], [0, 3, 13, 23]]


def test_a_tick_that_is_late_leaves_slow_questions_for_later(machine: Callable[[str], Machine]) -> None:
    playing = machine("gpus 1")
    clock = iter(range(0, 10**15, 10**9))
    for tick in range(21):
        playing.stub.set_time(float(tick))
        row = playing.sampler.sample(0.5, lambda: next(clock))[0]
        assert (row[COLUMN["pcie_width"]] == row[COLUMN["pcie_width"]]) == (tick == 0)
        assert row[COLUMN["temperature_celsius"]] == 35


def test_what_is_not_supported_is_left_out_with_one_note(machine: Callable[[str], Machine]) -> None:
    playing = machine("gpus 2\ngpu * fail power NOT_SUPPORTED\ngpu 1 fail temperature NO_PERMISSION\ngpu * links 2")
    calls = []
    for time_s in range(20):
        before = playing.stub.calls
        row = playing.sample(float(time_s))
        calls.append(playing.stub.calls - before)
    assert np.isnan(row[:, COLUMN["power_watts"]]).all()
    assert row[0, COLUMN["temperature_celsius"]] == 35
    assert sorted(playing.told) == ["metric_forbidden", "metric_unsupported", "metric_unsupported"]
    sentences = " ".join(note["sentence"] for note in playing.kept)
    assert "power_watts is left out for gpu0, gpu1" in sentences
    assert "temperature_celsius is left out for gpu1" in sentences
    assert calls[12] < calls[0], "what was refused may not be asked for again"


def test_a_value_that_fails_for_a_while_comes_back(machine: Callable[[str], Machine]) -> None:
    playing = machine("gpus 1\ngpu 0 fail power UNKNOWN 3 8\ngpu 0 fail temperature UNKNOWN 3 99")
    rows = [playing.sample(float(time_s))[0] for time_s in range(30)]
    power = [row[COLUMN["power_watts"]] == row[COLUMN["power_watts"]] for row in rows]
    assert power == [True] * 3 + [False] * 5 + [True] * 22
    assert "metric_failing" in playing.told
    assert sum("temperature_celsius" in note["sentence"] for note in playing.kept) == 1


def test_a_gpu_falls_off_the_bus_and_the_others_go_on(machine: Callable[[str], Machine]) -> None:
    playing = machine("gpus 3\ngpu 1 lost 5")
    rows = [playing.sample(float(time_s)) for time_s in range(10)]
    alive = np.array([~np.isnan(row[:, COLUMN["temperature_celsius"]]) for row in rows])
    assert alive[:, 0].all() and alive[:, 2].all()
    assert alive[:5, 1].all() and not alive[5:, 1].any()
    assert np.isnan(rows[-1][1]).all()
    assert playing.told.count("gpu_lost") == 1


def test_a_reloaded_driver_starts_its_counters_at_zero_and_ours_go_on(machine: Callable[[str], Machine]) -> None:
    scenario = "gpus 2\ngpu * replays 0:100 10:110 10.5:0 20:9.5\ngpu * power 100\ngone 11 14 DRIVER_NOT_LOADED"
    playing = machine(scenario)
    assert playing.series("pcie_replays", 11) == [float(n) for n in range(11)]
    with pytest.raises(DriverLost):
        playing.sample(11.0)
    playing.nvml.stop()
    again = Nvml()
    playing.stub.set_time(12.0)
    with pytest.raises(DriverLost):
        again.start()
    playing.stub.set_time(15.0)
    again.start()
    playing.sampler.renew(again, list_devices(again))
    after = playing.sample(15.0)
    assert after[0, COLUMN["pcie_replays"]] == pytest.approx(10 + 4, abs=1)
    assert after[0, COLUMN["power_watts"]] == 100
    again.stop()


def test_instances_have_their_own_memory_and_their_boards_temperature(machine: Callable[[str], Machine]) -> None:
    playing = machine("gpus 1\ngpu 0 mig 2\ngpu 0 memory_total 80e9\ngpu 0 memory_used 20e9\ngpu 0 temperature 66")
    row = playing.sample(0.0)[0]
    assert row[COLUMN["memory_used_bytes"]] == 10e9
    assert row[COLUMN["temperature_celsius"]] == 66
    assert np.isnan(row[COLUMN["utilization_percent"]])
    facts = gpu_facts(playing.nvml, playing.devices[0], 0)
    assert facts["label"] == "gpu0_mig0"
    assert facts["limits"]["memory_total_bytes"] == 40e9


def test_facts_of_gpus_and_driver(machine: Callable[[str], Machine]) -> None:
    playing = machine("gpus 2\ndriver 550.54.15 (simulated)\ncuda 12040\ngpu * links 1\ngpu 1 slowdown_temperature 93")
    facts = gpu_facts(playing.nvml, playing.devices[1], 1)
    assert facts["uuid"] == "GPU-00000001-0000-0000-0000-000000000002"
    assert facts["pci_bus_id"] == "00000000:11:00.0"
    assert facts["name"] == "NVIDIA H100 80GB HBM3"
    assert facts["limits"] == {
        "sm_clock_max_mhz": 1980,
        "memory_clock_max_mhz": 2619,
        "shutdown_temperature_celsius": 92,
        "slowdown_temperature_celsius": 93,
        "memory_max_temperature_celsius": 95,
        "gpu_max_temperature_celsius": 87,
        "power_limit_default_watts": 700,
        "power_limit_watts": 700,
        "power_limit_min_watts": 200,
        "power_limit_max_watts": 700,
        "pcie_generation_max": 5,
        "pcie_width_max": 16,
        "cores": 16896,
        "persistence_mode": 1,
        "memory_total_bytes": 80e9,
        "nvlinks": 1,
    }
    driver = driver_facts(playing.nvml, playing.devices)
    assert driver["driver_version"] == "550.54.15 (simulated)"
    assert driver["cuda_driver_version"] == "12.4"
    assert driver["topology"] == {"0-1": "nvlink"}
    assert driver["simulated"] is True


def test_errors_that_the_driver_reports_come_as_notes_of_their_gpu(machine: Callable[[str], Machine]) -> None:
    one = machine("gpus 3\ngpu 1 xid 31 2\ngpu 2 xid 79 3\ngpu 2 lost 3")
    one.sample(0.0)
    assert "xid" not in one.told
    for time_s in (2.5, 3.5, 4.5):
        one.sample(time_s)
    told = [note["params"] for note in one.kept if note["key"] == "recording.xid"]
    assert told == [{"gpu": "gpu1", "xid": 31}, {"gpu": "gpu2", "xid": 79}]
    assert "Xid 79" in " ".join(note["sentence"] for note in one.kept)


def test_a_driver_without_events_is_recorded_all_the_same(
    machine: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    import pynvml

    monkeypatch.delattr(pynvml, "nvmlEventSetCreate")
    one = machine("gpus 1\ngpu 0 xid 79 0")
    assert np.isfinite(one.sample(1.0)[0, COLUMN["power_watts"]]) and "xid" not in one.told
