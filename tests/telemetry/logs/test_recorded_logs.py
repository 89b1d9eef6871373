"""Real logs that others recorded, against counts made another way; skipped where they are not at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.telemetry.logs.read import read_log


def log_path(shared_traces: Path, name: str) -> str:
    path = shared_traces / name
    if not path.is_file():
        pytest.skip(f"real log not present ({path})")
    return str(path)


def test_a_plain_log(shared_traces: Path) -> None:
    (gpu,) = read_log(log_path(shared_traces, "smi_query_v100s/gpu_log.csv")).gpus
    used = gpu.values["utilization_percent"]
    assert (len(used), round(float(used.mean()), 3), used.max(), int((used > 0).sum())) == (107, 3.673, 19, 54)
    assert gpu.values["memory_used_bytes"].max() == 1094 * 2**20 and gpu.values["temperature_celsius"].max() == 29
    assert (gpu.wall_ns[-1] - gpu.wall_ns[0]) / 1e9 == pytest.approx(106.053)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("smi_query_4gpus_noheader/gpu_stats.csv", "log_no_header"),
        ("smi_query_noheader_units/gpu_log.csv", "log_no_header"),
        ("smi_wrapper_8xh100/nvidia_smi.csv", "log_names"),
        ("smi_pmon/gpu_monitor.log", "log_pmon"),
        ("smi_screen_2gpus/gpu_log.txt", "log_screen"),
    ],
)
def test_what_is_better_refused_than_wrong(shared_traces: Path, name: str, code: str) -> None:
    with pytest.raises(ProfileError) as told:
        read_log(log_path(shared_traces, name))
    assert told.value.code == code


def test_a_header_put_in_front_is_enough(shared_traces: Path, tmp_path: Path) -> None:
    given = tmp_path / "log.csv"
    rows = Path(log_path(shared_traces, "smi_query_4gpus_noheader/gpu_stats.csv")).read_text()
    given.write_text("timestamp, utilization.gpu [%], memory.used [MiB]\n" + rows)
    log = read_log(str(given))
    assert [len(gpu.wall_ns) for gpu in log.gpus] == [97] * 4
    most = [gpu.values["memory_used_bytes"].max() / 2**20 for gpu in log.gpus]
    assert most == [11409, 10851, 10911, 13325]
    rows = Path(log_path(shared_traces, "smi_query_noheader_units/gpu_log.csv")).read_text()
    names = "timestamp, utilization.gpu [%], utilization.memory [%], memory.used [MiB], memory.free [MiB]"
    given.write_text(f"{names}, temperature.gpu, power.draw [W]\n{rows}")
    (gpu,) = read_log(str(given)).gpus
    used = gpu.values["utilization_percent"]
    assert (len(used), round(float(used.mean()), 3), used.max(), int((used > 0).sum())) == (1923, 1.431, 98, 112)
    assert gpu.values["memory_used_bytes"].max() == 20137 * 2**20 and gpu.values["power_watts"].max() == 67.59
    assert (gpu.wall_ns[-1] - gpu.wall_ns[0]) / 1e9 == pytest.approx(9636.953)


def test_an_exporter(shared_traces: Path) -> None:
    (gpu,) = read_log(log_path(shared_traces, "smi_dcgm_exporter_t4/metrics.txt")).gpus
    assert gpu.facts.name == "Tesla T4" and gpu.values["sm_clock_mhz"].tolist() == [300]


def test_logs_on_the_layout_of_real_ones(shared_traces: Path) -> None:
    counts = {
        "dmon.log": (6, 2), "dmon_dates.log": (4, 2), "dcgmi_dmon.log": (4, 2), "dcgmi_dmon_46.log": (34, 2),
        "query_windows_utf16.csv": (2, 1), "query_not_supported.csv": (4, 2),
    }  # fmt: skip
    for name, (rows, gpus) in counts.items():
        log = read_log(log_path(shared_traces, f"smi_made/{name}"))
        assert (log.rows, len(log.gpus)) == (rows, gpus), name
    lost = read_log(log_path(shared_traces, "smi_made/query_not_supported.csv"))
    assert np.isnan(lost.gpus[0].values["utilization_percent"][0]) and "power_watts" not in lost.gpus[1].values
    assert [note.key for note in lost.told[""]] == ["recording.gpu_lost"]
