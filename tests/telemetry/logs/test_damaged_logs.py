"""Whatever stands in a log, it is read or refused with its path; nothing else is raised."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.telemetry.log_recordings import join_logs, logs_alone
from tb_gpu_doctor.telemetry.logs.read import read_log
from tb_gpu_doctor.traces.log_heads import LogFile
from tests.telemetry.logs.test_dmon import dcgmi
from tests.telemetry.logs.test_exporter import T0, answer, sample, series
from tests.telemetry.logs.test_query_csv import HEADER, row
from tests.telemetry.test_log_recordings import profile

SAMPLES = {
    "query": "\n".join([HEADER, *(row(second, gpu) for second in range(4) for gpu in range(2))]) + "\n",
    "dmon": "#Date       Time        gpu   pwr    sm    fb\n#YYYYMMDD   HH:MM:SS    Idx     W     %    MB\n"
    + "".join(
        f" 20310304   23:59:5{second}      {gpu}   90     4{second}   100 \n" for second in range(4) for gpu in range(2)
    ),
    "dcgmi": dcgmi(("GPUTL", "", 18), ("POWER", "W", 18), rows=[["GPU 0", "75", "185.3"], ["GPU 1", "", "N/A"]] * 4),
    "exporter": "".join(f"{T0 + at}\n" + sample("DCGM_FI_DEV_GPU_UTIL", 0, at) for at in range(4)),
    "prometheus": json.dumps(answer(series("DCGM_FI_DEV_GPU_UTIL", 0, [(T0 + at, str(at)) for at in range(4)]))),
}
ODD = st.sampled_from(
    [b"\x00", b"\xff", b",", b"\n", b"-", b"9" * 400, b"[N/A]", b"1e308", b"\r", b'"', b"{", b"#", b"2031/02/31", b" ",
     b"", "٣".encode(), b"9223372036854775807", b"GPU ", b"[GPU is lost]", b"0x", b"MiB",
     b"1969/01/01 00:00:00.000", b"gpu"]
)  # fmt: skip


@pytest.mark.parametrize("kind", sorted(SAMPLES))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage(kind: str, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(SAMPLES[kind].encode())
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(content)))
        length = data.draw(st.integers(0, 30))
        content[at : at + length] = data.draw(ODD)
    path = tmp_path / "gpu.log"
    path.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content))
    file = LogFile(str(path), given=True)
    try:
        log = read_log(str(path))
        logs_alone([file]).home()
        join_logs([file], [profile(0, 1)])
    except ProfileError as error:
        assert error.path == str(path) and str(error.phrase.params["path"]) == str(path)
        return
    for gpu in log.gpus:
        assert len(gpu.wall_ns) and (np.diff(gpu.wall_ns) > 0).all()
        for name, column in gpu.values.items():
            assert column.dtype == np.float64 and len(column) == len(gpu.wall_ns) and not np.isinf(column).any(), name


@given(st.binary(max_size=300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "gpu.log"
    path.write_bytes(content)
    with pytest.raises(ProfileError):
        read_log(str(path))
