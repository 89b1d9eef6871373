"""From query strings to checked values: languages, names, numbers, stretches of time, lanes, metrics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from werkzeug.wrappers import Request

from tb_gpu_doctor.errors import RequestError
from tb_gpu_doctor.metrics import BY_ID
from tb_gpu_doctor.texts import pick_language

if TYPE_CHECKING:
    from tb_gpu_doctor.report.kernel_report import By


# Kernel names make long requests, but nobody needs more than this in one value.
MAX_VALUE_CHARS = 4096
# The names of all workers' sessions, read as one job.
MAX_SESSION_CHARS = 32_768
MAX_METRICS = 16
_INT64 = 1 << 63


def language(request: Request) -> str:
    """The language asked for, English for an unknown one."""
    return pick_language(request.args.get("lang", ""))


# Sent by the tab with each request: a header of our own, which the page of another site cannot send.
VIEWER_HEADER = "X-GPU-Doctor-Viewer"


def viewer_of(request: Request) -> str:
    """Who asks: what the tab calls itself, else the address that the request comes from."""
    name = request.headers.get(VIEWER_HEADER, "")
    return name if re.fullmatch(r"[A-Za-z0-9-]{8,64}", name) else f"address {request.remote_addr}"


def own_page(request: Request, changes: bool) -> None:
    """Refuse what the page of another site has a browser ask.

    Args:
        request: what is asked.
        changes: whether it changes anything; then it must come from the tab, or from a program that says its name.

    Raises:
        RequestError: 403.
    """
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise RequestError(403, "foreign_page")
    if changes and VIEWER_HEADER not in request.headers:
        raise RequestError(403, "foreign_page")


def name_argument(request: Request, name: str, max_chars: int = MAX_VALUE_CHARS) -> str:
    """A text parameter of bounded length; "" when absent."""
    value = request.args.get(name, "")
    if len(value) > max_chars:
        raise RequestError(400, "bad_parameter", name=name)
    return value


def int_argument(request: Request, name: str, low: int, high: int, default: int | None = None) -> int:
    """A whole number within [low, high].

    Raises:
        RequestError: 400 when it is absent (without a default), no whole number or out of bounds.
    """
    text = request.args.get(name)
    if text is None and default is not None:
        return default
    if text is None or not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        raise RequestError(400, "bad_parameter", name=name)
    value = int(text)
    if not low <= value <= high:
        raise RequestError(400, "bad_parameter", "parameter_range", name=name, low=str(low), high=str(high))
    return value


def time_argument(request: Request, name: str) -> int:
    """A time in picoseconds, within half of what an int64 holds: differences must fit too."""
    return int_argument(request, name, -(_INT64 // 2) + 1, _INT64 // 2 - 1)


def unix_ms_range(request: Request) -> tuple[int, int] | None:
    """``start_unix_ms`` and ``end_unix_ms`` in nanoseconds; None where neither is given.

    Raises:
        RequestError: 400 when one is absent, no number or far from any date, or the range is empty.
    """
    if "start_unix_ms" not in request.args and "end_unix_ms" not in request.args:
        return None
    values = []
    for name in ("start_unix_ms", "end_unix_ms"):
        text = request.args.get(name, "")
        if not re.fullmatch(r"-?[0-9]{1,13}(\.[0-9]{1,9})?", text):
            raise RequestError(400, "bad_parameter", name=name)
        values.append(round(float(text) * 1e6))
    if values[1] <= values[0]:
        raise RequestError(400, "bad_parameter", "empty_range")
    return values[0], values[1]


def session_argument(request: Request, which: str) -> str:
    """The session of one side of a comparison."""
    return name_argument(request, f"{which}_session", MAX_SESSION_CHARS)


def lane_argument(request: Request, count: int) -> int | None:
    """The lane that the request names; None where it names none."""
    if "lane" not in request.args:
        return None
    lane = int_argument(request, "lane", 0, 1 << 16)
    if lane >= count:
        raise RequestError(404, "unknown_lane", lane=str(lane))
    return lane


def series_arguments(request: Request) -> tuple[list[str], int]:
    """The metrics asked for, at most `MAX_METRICS`, and the most points of each series; ``metric=`` asks for none."""
    from tb_gpu_doctor.plugin.telemetry_curves import DEFAULT_POINTS, MAX_POINTS

    names = list(dict.fromkeys(name for name in name_argument(request, "metric").split(",") if name))
    if "metric" not in request.args or len(names) > MAX_METRICS or any(name not in BY_ID for name in names):
        raise RequestError(400, "bad_parameter", name="metric")
    return names, int_argument(request, "points", 2, MAX_POINTS, default=DEFAULT_POINTS)


def range_arguments(request: Request) -> tuple[int, int]:
    """The stretch [start, end) in picoseconds that the request names."""
    start, end = time_argument(request, "start_ps"), time_argument(request, "end_ps")
    if end <= start:
        raise RequestError(400, "bad_parameter", "empty_range")
    return start, end


def by_argument(request: Request) -> By:
    """How a kernel table sums up: per GPU unless asked otherwise."""
    by = request.args.get("by", "gpu")
    if by == "gpu":
        return "gpu"
    if by == "kernel":
        return "kernel"
    raise RequestError(400, "bad_parameter", "parameter_choice", name="by", choices="gpu, kernel")
