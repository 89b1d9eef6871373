"""What requests to the routes name besides a profile: stretches of time, lanes, metrics, ways to sum up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from werkzeug.wrappers import Request

from tb_gpu_doctor.plugin.messages import HttpError
from tb_gpu_doctor.plugin.responses import int_argument, name_argument, time_argument

if TYPE_CHECKING:
    from tb_gpu_doctor.report.kernel_report import By

# The names of all workers' sessions, read as one job.
MAX_SESSION_CHARS = 32_768


def session_argument(request: Request, which: str) -> str:
    """The session of one side of a comparison."""
    return name_argument(request, f"{which}_session", MAX_SESSION_CHARS)


def lane_argument(request: Request, count: int) -> int | None:
    """The lane that the request names; None where it names none."""
    if "lane" not in request.args:
        return None
    lane = int_argument(request, "lane", 0, 1 << 16)
    if lane >= count:
        raise HttpError(404, "unknown_lane", lane=str(lane))
    return lane


def series_arguments(request: Request) -> tuple[list[str], int]:
    """The metrics asked for and the most points of each series."""
    from tb_gpu_doctor.plugin.telemetry_view import DEFAULT_POINTS, MAX_POINTS, metrics_argument

    metrics = metrics_argument(name_argument(request, "metric"))
    if metrics is None:
        raise HttpError(400, "bad_parameter", name="metric")
    return metrics, int_argument(request, "points", 2, MAX_POINTS, default=DEFAULT_POINTS)


def range_arguments(request: Request) -> tuple[int, int]:
    """The stretch [start, end) in picoseconds that the request names."""
    start, end = time_argument(request, "start_ps"), time_argument(request, "end_ps")
    if end <= start:
        raise HttpError(400, "bad_parameter", "empty_range")
    return start, end


def by_argument(request: Request) -> By:
    """How a kernel table sums up: per GPU unless asked otherwise."""
    by = request.args.get("by", "gpu")
    if by == "gpu":
        return "gpu"
    if by == "kernel":
        return "kernel"
    raise HttpError(400, "bad_parameter", "parameter_choice", name="by", choices="gpu, kernel")
