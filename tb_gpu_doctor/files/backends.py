"""Opening fsspec's file systems: the only module that imports fsspec, and only for an address that needs it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from tb_gpu_doctor.files.errors import RemoteError, translated
from tb_gpu_doctor.files.names import scheme_of, scrubbed

# The extra of this package that brings what a scheme needs.
_EXTRAS = {
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("hdfs", "arrow_hdfs"), "hdfs"),
    **dict.fromkeys(("abfs", "abfss", "az", "adl"), "azure"),
    **dict.fromkeys(("http", "https"), "http"),
    **dict.fromkeys(("sftp", "ssh"), "sftp"),
}
# A call that takes longer is given up, where the backend allows it.
CALL_TIMEOUT_S = 60.0
# The same of a question with a short answer: a server that cannot be reached is told soon.
ASK_TIMEOUT_S = 20.0
_HTTP = ("http", "https")
_LOGGERS = ("fsspec", "gcsfs", "s3fs", "adlfs", "aiobotocore", "botocore", "azure", "google")
_TIMES = (
    "LastModified",
    "last_modified",
    "Last-Modified",
    "mtime",
    "updated",
    "modificationTime",
    "modified",
    "created",
)
_TAGS = ("ETag", "etag", "generation", "VersionId", "version_id", "md5Hash", "md5", "checksum", "content_md5")


def install_command(scheme: str) -> str:
    """What to type to be able to read addresses of a scheme."""
    return f"pip install 'tb-gpu-doctor[{_EXTRAS.get(scheme, 'remote')}]'"


def open_backend(address: str) -> Any:
    """The file system of an address, of its own: nobody else's settings and caches are touched.

    Raises:
        RemoteError: ``remote_unknown``, ``remote_backend``, or what the backend says (``remote_credentials``, ...).
    """
    scheme = scheme_of(address) or ""
    if "::" in address.partition("?")[0]:
        raise RemoteError("remote_unknown", scheme=address.partition("::")[0])
    try:
        import fsspec
    except ImportError:
        raise RemoteError("remote_backend", scheme=scheme, command=install_command(scheme)) from None
    for logger in _LOGGERS:  # their warnings repeat what is raised; who has set up logging still gets them
        logging.getLogger(logger).addHandler(logging.NullHandler())
    try:
        kind = fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        raise _missing(scheme, error) from None
    except ValueError:
        raise RemoteError("remote_unknown", scheme=scheme) from None
    try:
        options = {**kind._get_kwargs_from_urls(address), **_options(scheme, fsspec.config.conf)}
        # What a listing holds is cached here, bounded and for a known time; the backend's own cache knows no end.
        return kind(skip_instance_cache=True, use_listings_cache=False, **options)
    except ImportError as error:  # found only now that a part of it is missing
        raise _missing(scheme, error) from None
    except Exception as error:
        raise translated(error, scheme) from None


def _missing(scheme: str, error: ImportError) -> RemoteError:
    # fsspec says what the schemes need that no extra of this package is for.
    command = install_command(scheme) if scheme in _EXTRAS else scrubbed(str(error))
    return RemoteError("remote_backend", scheme=scheme, command=command)


def _options(scheme: str, configured: Mapping[str, Any]) -> dict[str, Any]:
    """What a backend is told beside the address; what the user has set up for fsspec wins."""
    known = configured.get(scheme) or {}
    if scheme in ("s3", "s3a") and "endpoint_url" not in known:
        endpoint = _s3_endpoint()
        return {"endpoint_url": endpoint} if endpoint else {}
    if scheme in _HTTP and "client_kwargs" not in known:
        import aiohttp

        # Large files take long; a server that says nothing does not.
        return {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=None, sock_connect=15, sock_read=60)}}
    return {}


def _s3_endpoint() -> str:
    """The server that TensorBoard and TensorFlow take for S3, where AWS' own variables name none."""
    if any(os.environ.get(name) for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")):
        return ""
    endpoint = os.environ.get("S3_ENDPOINT", "")
    if endpoint and "://" not in endpoint:  # as TensorFlow has it
        endpoint = f"{'http' if os.environ.get('S3_USE_HTTPS') == '0' else 'https'}://{endpoint}"
    return endpoint


def call(backend: Any, name: str, *arguments: Any, timeout_s: float = CALL_TIMEOUT_S, **named: Any) -> Any:
    """Call a method of a backend, for a bounded time where it runs on fsspec's loop."""
    if getattr(backend, "async_impl", False) and not getattr(backend, "asynchronous", False):
        from fsspec.asyn import sync

        return sync(backend.loop, getattr(backend, f"_{name}"), *arguments, timeout=timeout_s, **named)
    return getattr(backend, name)(*arguments, **named)


def modified_ns(info: Mapping[str, Any]) -> int:
    """When a file was written last, in Unix nanoseconds, as a listing or an info says; 0 where none does."""
    for key in _TIMES:
        value = info.get(key)
        try:
            if isinstance(value, str):
                value = _parsed(value)
            if isinstance(value, datetime):
                value = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
                return int(value.timestamp() * 1e6) * 1000
            if isinstance(value, (int, float)) and value > 0:
                seconds = value / 1000 if value > 1e11 else value  # WebHDFS tells milliseconds
                return int(seconds * 1e6) * 1000
        except (ValueError, OverflowError, TypeError):
            continue
    return 0


def _parsed(value: str) -> datetime:
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return parsedate_to_datetime(value)


def tag_of(info: Mapping[str, Any]) -> str:
    """What the store itself names a file's present content by; "" where it does not."""
    return " ".join(f"{key}={info[key]}" for key in _TAGS if info.get(key))
