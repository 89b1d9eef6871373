"""From values to HTTP answers; what went wrong is told in the user's language."""

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

from tb_gpu_doctor.errors import RequestError
from tb_gpu_doctor.report.sentences import say
from tb_gpu_doctor.texts import pick_language

JSON_TYPE = "application/json"
CSV_TYPE = "text/csv; charset=utf-8"
BINARY_TYPE = "application/octet-stream"
_VERSION = re.compile(r"[0-9a-f]{16}")
_ACCEPTS_GZIP = re.compile(r"(?:^|,)\s*(?:x-)?gzip\s*(?:;\s*q=(?!0(?:\.0+)?\s*(?:,|$))[\d.]+\s*)?(?:,|$)")


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


def error_answer(request: Request, error: RequestError) -> Response:
    """The error object of docs/http_api.md."""
    lang = pick_language(request.args.get("lang", ""))
    body = {"error": {"code": error.code, "message": say(error.phrase, lang), "path": error.path}}
    headers = [("Allow", str(error.params["allow"]))] if error.status == 405 else None
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
    """A bundled file, read and compressed once, and again only when it was rebuilt.

    Args:
        path: of the file.
        content_type: what it is.
        part_of: the file that asks for this one by its version (``?v=``). One that is not the version of today belongs
            to a page that was opened before an update.
    """

    def __init__(self, path: Path, content_type: str, part_of: Path | None = None) -> None:
        self._path = path
        self._part_of = part_of
        self._content_type = content_type
        self._lock = threading.Lock()
        self._loaded: _Loaded | None = None

    def answer(self, request: Request) -> Response:
        """Return the file, or 304 when the client has it.

        Raises:
            RequestError: 404 when the package was built without it, or when another version of it is wanted.
        """
        wanted = request.args.get("v")
        try:
            if wanted is not None and self._part_of is not None and not self._is_version(wanted):
                raise RequestError(404, "no_bundle", path=self._path.name)
            loaded = self._load()
        except OSError:
            raise RequestError(404, "no_bundle", path=self._path.name) from None
        compress = accepts_gzip(request)
        # A strong tag names exact bytes, hence one tag for each encoding.
        tags = {False: f'"{loaded.etag}"', True: f'"{loaded.etag}-gz"'}
        headers = [("ETag", tags[compress]), ("Vary", "Accept-Encoding")]
        if any(request.if_none_match.contains(tag.strip('"')) for tag in tags.values()):
            return Response(status=304, headers=[*headers, ("Cache-Control", "no-cache, must-revalidate")])
        content = loaded.compressed if compress else loaded.content
        encoding = "gzip" if compress else None
        return _respond(request, content, self._content_type, content_encoding=encoding, headers=headers)

    def _is_version(self, wanted: str) -> bool:
        whole = self._part_of.read_bytes() if self._part_of else b""
        return _VERSION.fullmatch(wanted) is not None and f"?v={wanted}".encode() in whole

    def _load(self) -> _Loaded:
        stat = self._path.stat()
        stamp = (stat.st_mtime_ns, stat.st_size)
        with self._lock:
            if self._loaded is None or self._loaded.stamp != stamp:
                content = self._path.read_bytes()
                digest = hashlib.sha256(content).hexdigest()
                self._loaded = _Loaded(stamp, content, gzip.compress(content, 9, mtime=0), digest)
            return self._loaded
