"""One log, whatever its format."""

from __future__ import annotations

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.telemetry.logs.model import Log
from tb_gpu_doctor.traces.log_heads import log_kind


def read_log(path: str) -> Log:
    """Read a log.

    Raises:
        ProfileError: it is none (``log_unknown``), or what it lacks to be read.
    """
    kind = log_kind(path)
    if kind is None:
        raise ProfileError("log_unknown", path)
    if kind.error is not None:
        raise kind.error.with_path(path)
    # Here, so that each format waits for its own reader alone.
    if kind.format == "query_csv":
        from tb_gpu_doctor.telemetry.logs.query_csv import read
    elif kind.format == "dmon":
        from tb_gpu_doctor.telemetry.logs.dmon import read
    elif kind.format == "dcgmi_dmon":
        from tb_gpu_doctor.telemetry.logs.dcgmi import read
    elif kind.format == "dcgm_exporter":
        from tb_gpu_doctor.telemetry.logs.exporter import read
    else:
        from tb_gpu_doctor.telemetry.logs.prometheus import read
    return read(path)
