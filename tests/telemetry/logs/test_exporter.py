"""dcgm-exporter's text and Prometheus' answers: names and units of both generations, blanks, times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.telemetry.logs.model import Log
from tb_gpu_doctor.telemetry.logs.read import read_log

T0 = 1_930_000_000


def labels(gpu: int, **more: str) -> str:
    told = {"gpu": str(gpu), "UUID": f"GPU-bb-{gpu}", "modelName": "Toy {9}", "Hostname": "node7", **more}
    return ",".join(f'{name}="{value}"' for name, value in told.items())


def sample(name: str, gpu: int, value: object, **more: str) -> str:
    return f"{name}{{{labels(gpu, **more)}}} {value}\n"


def read(folder: Path, text: str) -> Log:
    (folder / "m.prom").write_text(text)
    return read_log(str(folder / "m.prom"))


def test_one_scrape_is_an_instant(tmp_path: Path) -> None:
    text = "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
    text += sample("DCGM_FI_DEV_GPU_UTIL", 0, 87) + sample("DCGM_FI_DEV_GPU_UTIL", 1, 3)
    text += sample("DCGM_FI_DEV_FB_USED", 0, 10) + sample("DCGM_FI_DEV_MEMORY_TEMP", 0, "9223372036854775794")
    log = read(tmp_path, text)
    assert (log.format, log.clock, log.rows, log.notes) == ("dcgm_exporter", "order", 2, (("log_one_scrape", {}),))
    gpu = log.gpus[0]
    assert (gpu.host, gpu.facts.uuid, gpu.facts.name) == ("node7", "GPU-bb-0", "Toy {9}")
    assert gpu.values["utilization_percent"].tolist() == [87] and "memory_temperature_celsius" not in gpu.values
    assert gpu.values["memory_used_bytes"].tolist() == [10 * 2**20]


@pytest.mark.parametrize(
    ("name", "value", "metric", "expected"),
    [
        ("DCGM_FI_DEV_SM_CLOCK", 1410, "sm_clock_mhz", 1410),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", "1.41e+09", "sm_clock_mhz", 1410),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", 0.87, "utilization_percent", 87),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", 87, "utilization_percent", 87),
        ("DCGM_FI_DEV_FB_USED_BYTES", 4096, "memory_used_bytes", 4096),
        ("DCGM_FI_DEV_BOARD_POWER_WATTS", 300.5, "power_watts", 300.5),
        ("DCGM_FI_PROF_PCIE_RX_BYTES", 900, "pcie_receive_bytes_per_s", 900),
        ("dcgm_power_usage", 50, "power_watts", 50),
    ],
)
def test_names_and_units_of_each_generation(
    tmp_path: Path, name: str, value: object, metric: str, expected: float
) -> None:
    log = read(tmp_path, sample(name, 0, value))
    assert log.gpus[0].values[metric].tolist() == pytest.approx([expected])


@pytest.mark.parametrize("value", ["NaN", "+Inf", "9223372036854775792", "2147483632", "140737488355330"])
def test_blanks_are_no_values(tmp_path: Path, value: str) -> None:
    text = sample("DCGM_FI_DEV_POWER_USAGE", 0, value) + sample("DCGM_FI_DEV_GPU_UTIL", 0, 5)
    assert "power_watts" not in read(tmp_path, text).gpus[0].values


@pytest.mark.parametrize("line", ["{t}", "# {t}.250", "iso", "date"])
def test_scrapes_with_times_between_them(tmp_path: Path, line: str) -> None:
    from datetime import datetime, timezone

    def told(second: int) -> str:
        moment = datetime.fromtimestamp(T0 + second, timezone.utc)
        known = {"iso": moment.isoformat(), "date": moment.strftime("%a %b %e %H:%M:%S UTC %Y")}
        return known.get(line, line.format(t=T0 + second))

    text = "".join(told(at) + "\n" + sample("DCGM_FI_DEV_GPU_UTIL", 0, at) for at in range(0, 30, 10))
    log = read(tmp_path, text)
    fraction = 250_000_000 if "250" in line else 0
    assert log.clock == "unix"
    assert log.gpus[0].wall_ns.tolist() == [(T0 + at) * 10**9 + fraction for at in range(0, 30, 10)]
    assert log.gpus[0].values["utilization_percent"].tolist() == [0, 10, 20]


def test_scrapes_without_times_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as told:
        read(tmp_path, sample("DCGM_FI_DEV_GPU_UTIL", 0, 1) + sample("DCGM_FI_DEV_GPU_UTIL", 0, 2))
    assert (told.value.code, told.value.params) == ("log_scrapes", {"count": 2})


def test_links_switches_and_errors(tmp_path: Path) -> None:
    text = 'DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{nvlink="0",gpu="0"} 3\n'
    text += sample("DCGM_FI_DEV_XID_ERRORS", 1, 79) + sample("DCGM_FI_DEV_GPU_UTIL", 1, 5)
    text += sample("DCGM_FI_DEV_FB_USED", 1, 5, GPU_I_ID="7")
    log = read(tmp_path, text)
    assert [(gpu.facts.nvml_index, gpu.facts.mig) for gpu in log.gpus] == [(1, None), (1, 7)]
    assert [note.params for note in log.told["node7"]] == [{"gpu": "gpu1", "xid": 79}]


def series(name: str, gpu: int, values: list[tuple[float, str]]) -> dict[str, Any]:
    metric = {"__name__": name, "gpu": str(gpu), "UUID": f"GPU-bb-{gpu}", "Hostname": "node7", "instance": "x:9400"}
    return {"metric": metric, "values": values}


def answer(*result: dict[str, Any], kind: str = "matrix") -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": kind, "result": list(result)}}


def test_a_range_of_prometheus(tmp_path: Path) -> None:
    used = [(T0 + at + 0.5, str(at)) for at in range(4)]
    power = [(T0 + at + 0.5, "NaN" if at == 2 else "100") for at in range(1, 4)]
    document = answer(series("DCGM_FI_DEV_GPU_UTIL", 0, used), series("DCGM_FI_DEV_POWER_USAGE", 0, power),
                      series("DCGM_FI_DEV_GPU_UTIL", 1, used))  # fmt: skip
    log = read(tmp_path, json.dumps(document))
    assert (log.format, log.clock, log.rows) == ("prometheus", "unix", 8)
    gpu = log.gpus[0]
    assert gpu.wall_ns.tolist() == [(T0 + at) * 10**9 + 500_000_000 for at in range(4)]
    assert gpu.values["utilization_percent"].tolist() == [0, 1, 2, 3]
    assert np.isnan(gpu.values["power_watts"]).tolist() == [True, False, True, False]
    lines = "\n".join(json.dumps(answer(one)) for one in document["data"]["result"])
    again = read(tmp_path, lines)
    assert again.rows == 8 and again.gpus[0].values["power_watts"][1] == 100


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"status": "error", "error": "parse error"}, "log_prometheus_error"),
        (answer({"metric": {"gpu": "0"}, "values": [[T0, "3"]]}), "log_prometheus_names"),
        (answer(kind="scalar"), "log_prometheus_kind"),
        (answer(), "log_no_rows"),
        (answer(series("DCGM_FI_DEV_GPU_UTIL", 0, [(12.0, "3")])), "log_dates"),
    ],
)
def test_answers_that_lack_something(tmp_path: Path, document: dict[str, Any], code: str) -> None:
    with pytest.raises(ProfileError) as told:
        read(tmp_path, json.dumps(document))
    assert told.value.code == code


def test_an_answer_that_was_cut_off(tmp_path: Path) -> None:
    text = json.dumps(answer(series("DCGM_FI_DEV_GPU_UTIL", 0, [(T0 + at, "3") for at in range(99)])))
    with pytest.raises(ProfileError) as told:
        read(tmp_path, text[:1000])
    assert told.value.code == "log_json"
