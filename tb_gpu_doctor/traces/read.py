"""Which reader reads which format."""

from __future__ import annotations

from collections.abc import Callable

from tb_gpu_doctor.traces.columns import Trace
from tb_gpu_doctor.traces.errors import TraceError
from tb_gpu_doctor.traces.sessions import ProfileFile

Progress = Callable[[float], None]


def read_trace(file: ProfileFile, progress: Progress | None = None) -> Trace:
    """Decode one file of a session.

    Args:
        file: as `sessions.find_sessions` lists it.
        progress: called with the share of the file that is decoded, 0..1.

    Raises:
        TraceError: the file's ``problem``, or what its reader says; ``unsupported_format`` without a reader.
    """
    if file.problem is not None:
        raise TraceError(file.problem.code, file.path, **file.problem.params)
    # Here, not above: a session needs the readers of its own format only.
    if file.format == "xplane":
        from tb_gpu_doctor.traces.xplane import read_xplane

        return read_xplane(file.path, file.host, progress)
    if file.format in ("trace_json", "kineto"):
        from tb_gpu_doctor.traces.trace_json import read_trace_json

        return read_trace_json(file.path, file.host, progress)
    raise TraceError("unsupported_format", file.path)
