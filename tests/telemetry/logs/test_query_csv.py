"""Logs of ``nvidia-smi --query-gpu``: units, words for no value, several GPUs, headers, times, damage."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.telemetry.logs.lines import _PIECE_BYTES
from tb_gpu_doctor.telemetry.logs.model import Log
from tb_gpu_doctor.telemetry.logs.read import read_log

HEADER = "timestamp, index, uuid, name, utilization.gpu [%], memory.used [MiB], power.draw [W], temperature.gpu"
START = datetime(2031, 3, 4, 5, 6, 7, 250_000, timezone.utc)


def stamp(second: float) -> str:
    return (START + timedelta(seconds=second)).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]


def row(second: float, gpu: int, *, used: str = "50 %", memory: str = "10 MiB", power: str = "70.5 W") -> str:
    return f"{stamp(second)}, {gpu}, GPU-aa-{gpu}, NVIDIA Toy 9, {used}, {memory}, {power}, 41"


def written(folder: Path, lines: list[str], encoding: str = "utf-8", end: str = "\n") -> Path:
    path = folder / "gpu.csv"
    path.write_bytes((end.join(lines) + end).encode(encoding))
    return path


def read(folder: Path, lines: list[str], **how: str) -> Log:
    return read_log(str(written(folder, lines, **how)))


def refusal(folder: Path, lines: list[str]) -> ProfileError:
    with pytest.raises(ProfileError) as told:
        read(folder, lines)
    assert told.value.path == str(folder / "gpu.csv")
    return told.value


def test_values_come_in_the_units_of_the_metrics(tmp_path: Path) -> None:
    log = read(tmp_path, [HEADER, row(0, 0), row(1, 0, used="[N/A]", memory="3 GiB", power="900 mW")])
    (gpu,) = log.gpus
    assert (log.format, log.clock, log.rows, log.notes) == ("query_csv", "local", 2, ())
    assert gpu.facts.uuid == "GPU-aa-0" and gpu.facts.name == "NVIDIA Toy 9" and gpu.facts.nvml_index == 0
    assert gpu.wall_ns.tolist() == [round((START.timestamp() + at) * 1000) * 1_000_000 for at in (0, 1)]
    assert gpu.values["utilization_percent"][0] == 50 and np.isnan(gpu.values["utilization_percent"][1])
    assert gpu.values["memory_used_bytes"].tolist() == [10 * 2**20, 3 * 2**30]
    assert gpu.values["power_watts"].tolist() == pytest.approx([70.5, 0.9])


def test_bare_numbers_have_the_unit_of_the_header(tmp_path: Path) -> None:
    log = read(tmp_path, [HEADER, f"{stamp(0)}, 0, GPU-aa-0, NVIDIA Toy 9, 7, 10, 70.5, 41"])
    assert log.gpus[0].values["memory_used_bytes"].tolist() == [10 * 2**20]


def test_numbers_without_any_unit_are_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path, ["timestamp, index, memory.used", f"{stamp(0)}, 0, 10"])
    assert error.code == "log_no_unit" and error.params == {"name": "memory.used"}


@pytest.mark.parametrize(
    "word", ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[Insufficient Permissions]", "[Unknown]", ""]
)
def test_what_the_driver_does_not_tell_is_unknown_and_never_zero(tmp_path: Path, word: str) -> None:
    log = read(tmp_path, [HEADER, row(0, 0, power=word), row(1, 0, power="0.00 W")])
    power = log.gpus[0].values["power_watts"]
    assert np.isnan(power[0]) and power[1] == 0


def test_a_column_that_is_never_told_is_absent(tmp_path: Path) -> None:
    log = read(tmp_path, [HEADER, row(0, 0, power="[N/A]"), row(1, 0, power="[N/A]")])
    assert "power_watts" not in log.gpus[0].values


def test_several_gpus_are_told_apart_by_their_index(tmp_path: Path) -> None:
    rows = [row(second + gpu / 1000, gpu, used=f"{10 * gpu + second} %") for second in range(5) for gpu in range(3)]
    log = read(tmp_path, [HEADER, *rows])
    assert [gpu.facts.nvml_index for gpu in log.gpus] == [0, 1, 2]
    for number, gpu in enumerate(log.gpus):
        assert gpu.values["utilization_percent"].tolist() == [10 * number + second for second in range(5)]


def test_without_a_key_their_order_tells_and_that_is_said(tmp_path: Path) -> None:
    rows = [f"{stamp(second + gpu / 1000)}, {10 * gpu} %" for second in range(5) for gpu in range(4)]
    log = read(tmp_path, ["timestamp, utilization.gpu [%]", *rows, f"{stamp(5)}, 3 %"])
    assert [len(gpu.wall_ns) for gpu in log.gpus] == [6, 5, 5, 5]
    assert [float(gpu.values["utilization_percent"][0]) for gpu in log.gpus] == [0, 10, 20, 30]
    assert log.notes == (("log_by_order", {"count": 4}),)


def test_without_a_key_and_with_changing_numbers_of_rows_nothing_is_guessed(tmp_path: Path) -> None:
    places = [0.0, 0.001, 1.0, 2.0, 2.001, 3.0, 3.001]
    rows = [f"{stamp(second)}, 3 %" for second in places]
    assert refusal(tmp_path, ["timestamp, utilization.gpu [%]", *rows]).code == "log_no_index"


def test_one_gpu_at_any_pace_is_one(tmp_path: Path) -> None:
    random.seed(3)
    second, rows = 0.0, []
    for _ in range(50):
        second += random.uniform(0.1, 1.5)
        rows.append(f"{stamp(second)}, 3 %")
    log = read(tmp_path, ["timestamp, utilization.gpu [%]", *rows])
    assert [len(gpu.wall_ns) for gpu in log.gpus] == [50]


@pytest.mark.parametrize(
    ("encoding", "end"), [("utf-16", "\r\n"), ("utf-16-le", "\n"), ("utf-8-sig", "\r\n"), ("utf-8", "\n")]
)
def test_encodings_of_shells(tmp_path: Path, encoding: str, end: str) -> None:
    log = read(tmp_path, [HEADER, row(0, 0), row(1, 0)], encoding=encoding, end=end)
    assert log.rows == 2 and log.notes == ()


def test_headers_that_come_again_and_lines_of_the_shell(tmp_path: Path) -> None:
    other = "timestamp, index, memory.used [MiB]"
    lines = ["Tue Mar  4 05:06:07 UTC 2031", HEADER, row(0, 0), HEADER, row(1, 0), "", other, f"{stamp(2)}, 0, 5 MiB"]
    log = read(tmp_path, lines)
    (gpu,) = log.gpus
    assert gpu.values["memory_used_bytes"].tolist() == [10 * 2**20, 10 * 2**20, 5 * 2**20]
    assert np.isnan(gpu.values["power_watts"][2])


def test_a_gpu_that_is_lost_is_told_and_keeps_its_index(tmp_path: Path) -> None:
    gone = ", ".join(["[GPU is lost]"] * 5)
    rows = [line for second in range(6) for line in (row(second, 0), row(second, 1))]
    rows += [line for second in range(6, 12) for line in (row(second, 0), f"{stamp(second)}, 1, [GPU is lost], {gone}")]
    log = read(tmp_path, [HEADER, *rows])
    assert [len(gpu.wall_ns) for gpu in log.gpus] == [12, 12]
    assert log.gpus[1].facts.uuid == "GPU-aa-1"
    (note,) = log.told[""]
    assert note.key == "recording.gpu_lost" and note.params == {"gpu": "gpu1", "reason": "GPU is lost"}


def test_reasons_of_clocks_as_bits_or_one_by_one(tmp_path: Path) -> None:
    head = "timestamp, index, clocks_throttle_reasons.active"
    log = read(tmp_path, [head, f"{stamp(0)}, 0, 0x0000000000000044", f"{stamp(1)}, 0, [N/A]"])
    assert log.gpus[0].values["clock_event_reasons"][0] == 0x44
    names = ("sw_power_cap", "hw_thermal_slowdown")
    head = "timestamp, index, " + ", ".join(f"clocks_event_reasons.{name}" for name in names)
    rows = [f"{stamp(0)}, 0, Active, Active", f"{stamp(1)}, 0, Not Active, Active", f"{stamp(2)}, 0, Active, [N/A]"]
    bits = read(tmp_path, [head, *rows]).gpus[0].values["clock_event_reasons"]
    assert bits[:2].tolist() == [0x44, 0x40] and np.isnan(bits[2])


def test_counters_count_from_the_beginning_of_the_log(tmp_path: Path) -> None:
    head = "timestamp, index, ecc.errors.uncorrected.volatile.total"
    log = read(tmp_path, [head, *(f"{stamp(at)}, 0, {value}" for at, value in enumerate((7, 7, 9)))])
    assert log.gpus[0].values["ecc_uncorrected"].tolist() == [0, 0, 2]


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([f"{stamp(0)}, 0 %, 3 MiB", f"{stamp(1)}, 0 %, 3 MiB"], "log_no_header"),
        (["index, utilization.gpu [%]", "0, 3 %"], "log_no_timestamp"),
        (["timestamp,gpu,memory.used,power.draw", f"{stamp(0)},0,3,4"], "log_names"),
        (["timestamp; index; utilization.gpu [%]", f"{stamp(0)}; 0; 3 %"], "log_semicolons"),
        (["timestamp, index, utilization.gpu [%]", "04.03.2031 05:06:07, 0, 3 %"], "log_dates"),
        (["timestamp, index, utilization.gpu [%]", "2031-03-04T05:06:07+02:00, 0, 3 %"], "log_dates"),
        (["timestamp, index, utilization.gpu [%]", "2031/13/04 05:06:07.000, 0, 3 %"], "log_dates"),
        (["timestamp, index, utilization.gpu [%]"], "log_no_rows"),
        (["# gpu         pid   type     sm", "    0       1     C      0"], "log_pmon"),
        (["+------+", "| NVIDIA-SMI 999.1    Driver Version: 999.1 |"], "log_screen"),
        (["something else altogether"], "log_unknown"),
    ],
)
def test_what_lacks_something_is_refused_with_it(tmp_path: Path, lines: list[str], code: str) -> None:
    assert refusal(tmp_path, lines).code == code


def test_damaged_lines_cost_themselves_and_are_counted(tmp_path: Path) -> None:
    lines = [
        HEADER,
        row(0, 0),
        row(1, 0)[:40],
        "\x00\x00\x00",
        row(2, 0, used="5\ufffd %"),
        "what, is, this?",
        row(3, 0),
    ]
    log = read(tmp_path, lines)
    assert log.rows == 3
    assert dict(log.notes)["log_lines_left_out"] == {"count": 3}
    assert dict(log.notes)["log_odd_values"] == {"names": ("utilization_percent",)}
    assert np.isnan(log.gpus[0].values["utilization_percent"][1])


@pytest.mark.parametrize(("rest", "rows"), [("41", 2), ("4", 2), ("", 2), (None, 3)])
def test_a_last_line_that_may_be_cut_within_a_number_is_left_out(tmp_path: Path, rest: str | None, rows: int) -> None:
    last = "timestamp, index, utilization.gpu [%]" if rest is None else HEADER
    full = [f"{stamp(at)}, 0, 3 %" for at in range(3)] if rest is None else [row(at, 0) for at in range(2)]
    text = "\n".join([last, *full])
    if rest is not None:
        text += "\n" + row(2, 0).rpartition(" ")[0] + " " + rest
    (tmp_path / "gpu.csv").write_text(text)
    assert read_log(str(tmp_path / "gpu.csv")).rows == rows


def test_a_clock_that_was_set_back_in_autumn_goes_on(tmp_path: Path) -> None:
    seconds = [0.0, 1.0, 2.0, 3.0 - 3600, 4.0 - 3600, 5.0 - 3600]
    log = read(tmp_path, [HEADER, *(row(second, 0) for second in seconds)])
    assert np.diff(log.gpus[0].wall_ns).tolist() == [1_000_000_000] * 5
    assert log.notes == (("log_clock_set_back", {"count": 1}),)


def test_hostile_texts_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "gpu.csv").write_text(HEADER + "\n" + "9" * (_PIECE_BYTES + 2_000_000))
    with pytest.raises(ProfileError) as told:
        read_log(str(tmp_path / "gpu.csv"))
    assert told.value.code == "log_long_line"
    lines = ["timestamp, index, utilization.gpu [%]", *(f"{stamp(at)}, {at}, 3 %" for at in range(1_100))]
    assert refusal(tmp_path, lines).code == "log_gpus"
    log = read(tmp_path, [lines[0], f"{stamp(0)}, 0, 1e999 %", f"{stamp(1)}, 0, 4 %"])
    assert np.isnan(log.gpus[0].values["utilization_percent"][0])


def test_pieces_of_a_large_log_fit_together(tmp_path: Path) -> None:
    """Equal to a reader that goes line by line."""
    random.seed(5)
    rows = [row(at + gpu / 1000, gpu, used=f"{random.randrange(101)} %") for at in range(30_000) for gpu in range(2)]
    path = written(tmp_path, [HEADER, *rows])
    assert path.stat().st_size > _PIECE_BYTES
    log = read_log(str(path))
    for number, gpu in enumerate(log.gpus):
        expected = [int(line.split(", ")[4].split()[0]) for line in rows if line.split(", ")[1] == str(number)]
        assert gpu.values["utilization_percent"].tolist() == expected
