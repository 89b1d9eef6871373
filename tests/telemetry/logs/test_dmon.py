"""Logs of ``nvidia-smi dmon`` and ``dcgmi dmon``: columns by the header, with times and without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.telemetry.logs.model import Log
from tb_gpu_doctor.telemetry.logs.read import read_log

NAMES = "#Date       Time        gpu   pwr gtemp    sm    fb rxpci"
UNITS = "#YYYYMMDD   HH:MM:SS    Idx     W     C     %    MB  MB/s"


def read(folder: Path, text: str) -> Log:
    (folder / "a.log").write_text(text)
    return read_log(str(folder / "a.log"))


def test_dmon_with_dates(tmp_path: Path) -> None:
    rows = [f" 20310304   23:59:5{second}      {gpu}   9{gpu}     -    4{second}   100     7 \n" for second in range(3)
            for gpu in range(2)]  # fmt: skip
    log = read(tmp_path, f"{NAMES}\n{UNITS}\n{''.join(rows[:4])}{NAMES}\n{UNITS}\n{''.join(rows[4:])}")
    assert (log.format, log.clock, log.rows, log.notes) == ("dmon", "local", 6, ())
    gpu = log.gpus[1]
    assert gpu.facts.nvml_index == 1 and np.diff(gpu.wall_ns).tolist() == [1_000_000_000] * 2
    assert gpu.values["utilization_percent"].tolist() == [40, 41, 42]
    assert gpu.values["memory_used_bytes"].tolist() == [100 * 2**20] * 3
    assert gpu.values["pcie_receive_bytes_per_s"].tolist() == [7e6] * 3
    assert "temperature_celsius" not in gpu.values


def test_dmon_without_times_knows_an_order_only(tmp_path: Path) -> None:
    rows = "".join(f"    {gpu}    {gpu}{tick} \n" for tick in range(4) for gpu in range(3))
    log = read(tmp_path, f"# gpu    pwr \n# Idx      W \n{rows}")
    assert log.clock == "order" and [gpu.values["power_watts"].tolist() for gpu in log.gpus][1] == [10, 11, 12, 13]
    assert np.diff(log.gpus[2].wall_ns).tolist() == [1_000_000_000] * 3


def test_dmon_between_commas(tmp_path: Path) -> None:
    log = read(tmp_path, "#gpu, pwr, sm\n#Idx, W, %\n0, 45, 3\n0, -, 4\n")
    assert np.isnan(log.gpus[0].values["power_watts"][1]) and log.gpus[0].values["utilization_percent"][1] == 4


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("#Time        gpu   pwr\n#HH:MM:SS    Idx     W\n 10:00:00   0   3 \n", "log_no_date"),
        ("# gpu    pwr \n# Idx      W \n", "log_no_rows"),
        (f"# gpu    pwr \n# Idx      W \n    0     3 \n{NAMES}\n{UNITS}\n", "log_mixed"),
    ],
)
def test_dmon_that_lacks_something(tmp_path: Path, text: str, code: str) -> None:
    with pytest.raises(ProfileError) as told:
        read(tmp_path, text)
    assert told.value.code == code


def test_a_last_row_of_dmon_that_was_cut_is_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, "# gpu    pwr \n# Idx      W \n    0     33 \n    0     3").rows == 1


def dcgmi(*columns: tuple[str, str, int], rows: list[list[str]], first: int = 16) -> str:
    def line(cells: list[str]) -> str:
        widths = [first, *(width for _, _, width in columns)]
        return "".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + "\n"

    head = line(["#Entity", *(name for name, _, _ in columns)]) + line(["ID", *(unit for _, unit, _ in columns)])
    return head + "".join(line(cells) for cells in rows)


@pytest.mark.parametrize("first", [10, 16])
def test_dcgmi_cuts_at_the_names(tmp_path: Path, first: int) -> None:
    columns = (("GPUTL", "", 18), ("POWER", "W", 18), ("FBUSD", "", 14), ("SMACT", "", 13))
    rows = [
        ["GPU 0", "75", "185.300", "28456", "0.612"],
        ["GPU 1", "0", "N/A", "", "N/A"],
        ["GPU 0", "77", "", "28457", "0.640"],
        ["GPU 1", "0", "52.114", "3", "N/A"],
    ]
    text = dcgmi(*columns, rows=rows, first=first)
    log = read(tmp_path, text + "\n".join(text.splitlines()[:2]) + "\ndmon was stopped due to receiving a signal")
    assert (log.format, log.clock, log.rows, log.notes) == ("dcgmi_dmon", "order", 4, ())
    one, other = log.gpus
    assert one.values["utilization_percent"].tolist() == [75, 77]
    assert one.values["memory_used_bytes"].tolist() == [28456 * 2**20, 28457 * 2**20]
    assert np.isnan(one.values["power_watts"][1]) and np.isnan(other.values["power_watts"][0])
    assert np.isnan(other.values["memory_used_bytes"][0]) and other.values["memory_used_bytes"][1] == 3 * 2**20


def test_dcgmi_instances_are_no_gpus_and_errors_are_told(tmp_path: Path) -> None:
    rows = [["GPU 2", "5", "79"], ["GPU-I 3", "9", ""], ["Switch 0", "1", ""], ["GPU 2", "6", "79"]]
    log = read(tmp_path, dcgmi(("GPUTL", "", 18), ("XIDER", "", 18), rows=rows))
    (gpu,) = log.gpus
    assert gpu.facts.nvml_index == 2 and gpu.values["utilization_percent"].tolist() == [5, 6]
    assert log.notes == (("log_other_entities", {"count": 2}),)
    assert [note.params for note in log.told[""]] == [{"gpu": "gpu2", "xid": 79}]
