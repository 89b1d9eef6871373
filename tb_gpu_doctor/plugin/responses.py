"""From values to HTTP answers, and from query strings to checked values."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorboard.backend import http_util
from werkzeug.wrappers import Request, Response

from tb_gpu_doctor.plugin.messages import HttpError
from tb_gpu_doctor.texts import pick_language

JSON_TYPE = "application/json"
CSV_TYPE = "text/csv; charset=utf-8"
BINARY_TYPE = "application/octet-stream"
# Kernel names make long requests, but nobody needs more than this in one value.
MAX_VALUE_CHARS = 4096
_INT64 = 1 << 63
_ACCEPTS_GZIP = re.compile(r"(?:^|,)\s*(?:x-)?gzip\s*(?:;\s*q=(?!0(?:\.0+)?\s*(?:,|$))[\d.]+\s*)?(?:,|$)")


def language(request: Request) -> str:
    """The language asked for, English for an unknown one."""
    return pick_language(request.args.get("lang", ""))


def name_argument(request: Request, name: str, most: int = MAX_VALUE_CHARS) -> str:
    """A text parameter of bounded length; "" when absent."""
    value = request.args.get(name, "")
    if len(value) > most:
        raise HttpError(400, "bad_parameter", name=name)
    return value


def int_argument(request: Request, name: str, low: int, high: int, default: int | None = None) -> int:
    """A whole number within [low, high].

    Raises:
        HttpError: 400 when it is absent (without a default), no whole number or out of bounds.
    """
    text = request.args.get(name)
    if text is None and default is not None:
        return default
    if text is None or not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        raise HttpError(400, "bad_parameter", name=name)
    value = int(text)
    if not low <= value <= high:
        raise HttpError(400, "bad_parameter", "parameter_range", name=name, low=str(low), high=str(high))
    return value


def time_argument(request: Request, name: str) -> int:
    """A time in picoseconds, within half of what an int64 holds: differences must fit too."""
    return int_argument(request, name, -(_INT64 // 2) + 1, _INT64 // 2 - 1)


def unix_ms_range(request: Request) -> tuple[int, int] | None:
    """``start_unix_ms`` and ``end_unix_ms`` in nanoseconds; None where neither is given.

    Raises:
        HttpError: 400 when one is absent, no number or far from any date, or the range is empty.
    """
    if "start_unix_ms" not in request.args and "end_unix_ms" not in request.args:
        return None
    values = []
    for name in ("start_unix_ms", "end_unix_ms"):
        text = request.args.get(name, "")
        if not re.fullmatch(r"-?[0-9]{1,13}(\.[0-9]{1,9})?", text):
            raise HttpError(400, "bad_parameter", name=name)
        values.append(round(float(text) * 1e6))
    if values[1] <= values[0]:
        raise HttpError(400, "bad_parameter", "empty_range")
    return values[0], values[1]


def to_json(value: Any) -> bytes:
    """``value`` as JSON; numbers that JSON cannot write become null."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, separators=(",", ":")).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def json_answer(request: Request, value: Any, status: int = 200) -> Response:
    """A JSON answer; ``value`` may be bytes that are JSON already."""
    content = value if isinstance(value, bytes) else to_json(value)
    return _respond(request, content, JSON_TYPE, code=status)


def binary_answer(request: Request, content: bytes, compress: bool = False) -> Response:
    """Columns or bins; ``compress`` for content that shrinks a lot at little cost."""
    encoding = None
    if compress and accepts_gzip(request):
        content, encoding = gzip.compress(content, compresslevel=1, mtime=0), "gzip"
    return _respond(request, content, BINARY_TYPE, content_encoding=encoding)


def csv_answer(request: Request, content: bytes, file_name: str) -> Response:
    """A table to be saved as a file."""
    headers = [("Content-Disposition", f'attachment; filename="{file_name}"')]
    return _respond(request, content, CSV_TYPE, headers=headers)


def error_answer(request: Request, error: HttpError) -> Response:
    """The error object of docs/http_api.md."""
    body = {"error": {"code": error.code, "message": error.message(language(request)), "path": error.path}}
    headers = [("Allow", "GET")] if error.status == 405 else None
    return _respond(request, to_json(body), JSON_TYPE, code=error.status, headers=headers)


def _respond(request: Request, content: bytes, content_type: str, **options: Any) -> Response:
    """TensorBoard's own answer (no sniffing, no caching, gzip), typed."""
    response: Response = http_util.Respond(request, content, content_type, **options)
    return response


def accepts_gzip(request: Request) -> bool:
    """Whether the client takes gzip."""
    return _ACCEPTS_GZIP.search(request.headers.get("Accept-Encoding", "").lower()) is not None


@dataclass(frozen=True)
class _Loaded:
    stamp: tuple[int, int]
    content: bytes
    compressed: bytes
    etag: str


class StaticFile:
    """A bundled file, read and compressed once, and again only when it was rebuilt."""

    def __init__(self, path: Path, content_type: str) -> None:
        self._path = path
        self._content_type = content_type
        self._lock = threading.Lock()
        self._loaded: _Loaded | None = None

    def answer(self, request: Request) -> Response:
        """Return the file, or 304 when the client has it.

        Raises:
            HttpError: 404 when the package was built without it.
        """
        try:
            loaded = self._load()
        except OSError:
            raise HttpError(404, "no_bundle", path=self._path.name) from None
        compress = accepts_gzip(request)
        # A strong tag names exact bytes, hence one tag for each encoding.
        tags = {False: f'"{loaded.etag}"', True: f'"{loaded.etag}-gz"'}
        headers = [("ETag", tags[compress]), ("Vary", "Accept-Encoding")]
        if any(request.if_none_match.contains(tag.strip('"')) for tag in tags.values()):
            return Response(status=304, headers=[*headers, ("Cache-Control", "no-cache, must-revalidate")])
        content = loaded.compressed if compress else loaded.content
        encoding = "gzip" if compress else None
        return _respond(request, content, self._content_type, content_encoding=encoding, headers=headers)

    def _load(self) -> _Loaded:
        stat = self._path.stat()
        stamp = (stat.st_mtime_ns, stat.st_size)
        with self._lock:
            if self._loaded is None or self._loaded.stamp != stamp:
                content = self._path.read_bytes()
                digest = hashlib.sha256(content).hexdigest()
                self._loaded = _Loaded(stamp, content, gzip.compress(content, 9, mtime=0), digest)
            return self._loaded
