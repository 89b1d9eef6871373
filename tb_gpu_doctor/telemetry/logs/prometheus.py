"""What Prometheus answers about DCGM's metrics: a range query's JSON, one answer or one a line."""

from __future__ import annotations

import math
import os

import msgspec

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.files.opening import open_regular
from tb_gpu_doctor.telemetry.logs.exporter import NAME, Gathered
from tb_gpu_doctor.telemetry.logs.model import Log

# A day of eight GPUs every second in twenty metrics; larger ones are asked for in parts.
MAX_BYTES = 512 << 20
_FIRST_S, _LAST_S = 1e9, 4e9


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct):
    resultType: str  # Prometheus' own name
    result: list[_Series]


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""


def read(path: str) -> Log:
    """Read an answer.

    Raises:
        ProfileError: what it lacks, ``log_...``.
    """
    try:
        size = os.stat(path).st_size
        if size > MAX_BYTES:
            raise ProfileError("log_json_too_large", path, size_bytes=size, limit_bytes=MAX_BYTES)
        with open_regular(path) as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ProfileError("unreadable_file", path, reason=error.strerror or str(error)) from None
    gathered = Gathered(path)
    unnamed = total = 0
    for answer in _answers(path, raw.removeprefix(b"\xef\xbb\xbf")):
        if answer.data is None:
            raise ProfileError("log_prometheus_error", path, reason=answer.error[:200] or answer.status[:200])
        if answer.data.resultType not in ("matrix", "vector"):
            raise ProfileError("log_prometheus_kind", path, kind=answer.data.resultType[:40])
        for series in answer.data.result:
            name = series.metric.get("__name__", "")
            total += 1
            if NAME.fullmatch(name) is None:
                unnamed += name == ""
                continue
            gpu = gathered.gpu(series.metric)
            points = series.values if series.value is None else [series.value]
            if gpu is not None:
                times, numbers = _points(path, points)
                gathered.add(name, gpu, times, numbers)
    if unnamed == total and total:
        raise ProfileError("log_prometheus_names", path)
    gathered.finish()
    return gathered.rows.log("prometheus", "unix")


def _points(path: str, points: list[tuple[float, str]]) -> tuple[list[int], list[float]]:
    times, numbers = [], []
    for second, text in points:
        if not _FIRST_S < second < _LAST_S:
            raise ProfileError("log_dates", path, sample=str(second)[:40])
        try:
            numbers.append(float(text))
        except ValueError:
            numbers.append(math.nan)
        times.append(round(second * 1000) * 1_000_000)
    return times, numbers


def _answers(path: str, raw: bytes) -> list[_Answer]:
    """The answers in a file.

    Raises:
        ProfileError: ``log_json``: it is cut off or damaged.
    """
    try:
        if raw.lstrip()[:1] == b"[":
            return msgspec.json.decode(raw, type=list[_Answer])
        try:
            return [msgspec.json.decode(raw, type=_Answer)]
        except msgspec.DecodeError:
            lines = [line for line in raw.split(b"\n") if line.strip()]
            if len(lines) < 2 or not lines[0].rstrip().endswith(b"}"):
                raise
            return [msgspec.json.decode(line, type=_Answer) for line in lines]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProfileError("log_json", path, reason=str(error)[:200]) from None
