"""Opening fsspec's file systems: the only module that imports fsspec, and only for an address that needs it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from tb_gpu_doctor.errors import RemoteError
from tb_gpu_doctor.files.addresses import is_chained, scheme_of, scrubbed, split_address
from tb_gpu_doctor.files.backend_errors import translated
from tb_gpu_doctor.files.patience import ask_timeout_s, call_timeout_s
from tb_gpu_doctor.files.ssh import with_known_hosts

# The extra of this package that brings what a scheme needs.
_EXTRAS = {
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("hdfs", "arrow_hdfs"), "hdfs"),
    **dict.fromkeys(("abfs", "abfss", "az", "adl"), "azure"),
    **dict.fromkeys(("http", "https"), "http"),
    **dict.fromkeys(("sftp", "ssh"), "sftp"),
}
_HTTP = ("http", "https")
_SFTP = ("sftp", "ssh")
_S3 = ("s3", "s3a")
_GCS = ("gs", "gcs")
_LOGGERS = ("fsspec", "gcsfs", "s3fs", "adlfs", "aiobotocore", "botocore", "azure", "google", "paramiko", "asyncio")


def install_command(scheme: str) -> str:
    """What to type to be able to read addresses of a scheme."""
    return f"pip install 'tb-gpu-doctor[{_EXTRAS.get(scheme, 'remote')}]'"


def open_backend(address: str) -> Any:
    """The file system of an address, of its own: nobody else's settings and caches are touched.

    Raises:
        RemoteError: ``remote_unknown``, ``remote_chained``, ``remote_backend``, or what the backend says.
    """
    scheme = scheme_of(address) or ""
    if is_chained(address):
        raise RemoteError("remote_chained")
    try:
        import fsspec
    except ImportError:
        raise RemoteError("remote_backend", scheme=scheme, command=install_command(scheme)) from None
    _hush()
    try:
        kind = fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        raise _missing(scheme, error) from None
    except ValueError:
        raise RemoteError("remote_unknown", scheme=scheme) from None
    try:
        options = {**kind._get_kwargs_from_urls(address), **_credentials(scheme, address)}
        options |= _options(scheme, fsspec.config.conf)
        if scheme in (*_SFTP, "ftp") and options.get("host", "").startswith("["):
            options["host"] = options["host"].strip("[]")  # of an IPv6 address, which only stand in addresses
        return _settled(_made(kind, scheme, options, address), scheme)
    except ImportError as error:  # found only now that a part of it is missing
        raise _missing(scheme, error) from None
    except Exception as error:
        raise translated(error, scheme, secrets_of(address)) from None


@functools.cache
def _hush() -> None:
    """Keep the backends' warnings, which repeat what is raised, off the terminal; who has set up logging gets them."""
    for logger in _LOGGERS:
        logging.getLogger(logger).addHandler(logging.NullHandler())


def _missing(scheme: str, error: ImportError) -> RemoteError:
    # fsspec says what the schemes need that no extra of this package is for.
    command = install_command(scheme) if scheme in _EXTRAS else scrubbed(str(error))
    return RemoteError("remote_backend", scheme=scheme, command=command)


def _made(kind: Any, scheme: str, options: dict[str, Any], address: str) -> Any:
    if scheme in _SFTP:
        return with_known_hosts(kind)(skip_instance_cache=True, **options)
    backend = kind(skip_instance_cache=True, **options)
    if scheme not in _GCS or not hasattr(backend, "_lookup_bucket_type"):
        return backend
    # Newer versions ask by gRPC for the kind of a bucket, which many proxies and emulators do not pass on, and try for
    # a minute at each call. Only buckets within one zone cannot be read without it.
    if not os.environ.get("STORAGE_EMULATOR_HOST"):
        with contextlib.suppress(Exception):
            found = call(backend, "lookup_bucket_type", split_address(address)[2].partition("/")[0], timeout_s=3.0)
            if str(getattr(found, "name", found)).startswith("ZONAL"):
                return backend
    plain = importlib.import_module("gcsfs.core").GCSFileSystem
    return plain(skip_instance_cache=True, **options)


def _settled(backend: Any, scheme: str) -> Any:
    """The backend without a cache of its own, and with an end to its waiting where it knows none."""
    # What a listing holds is cached here, bounded and for a known time; the backend's own cache knows no end.
    # Not an option when it is made: some pass all options on to what connects.
    if hasattr(backend, "dircache"):
        backend.dircache.use_listings_cache = False
    if hasattr(backend, "use_listings_cache"):
        backend.use_listings_cache = False
    if scheme in _SFTP and hasattr(backend, "ftp"):
        backend.ftp.get_channel().settimeout(call_timeout_s())
    if scheme == "webhdfs":
        session = backend.session
        session.request = functools.partial(session.request, timeout=(ask_timeout_s(), call_timeout_s()))
    return backend


def _user_and_password(address: str) -> tuple[str, str]:
    user, _, password = split_address(address)[1].removesuffix("@").partition(":")
    return user, password


def secrets_of(address: str) -> tuple[str, ...]:
    """What may not be told of an address, as it is written and as it is sent."""
    user, password = _user_and_password(address)
    return (f"{user}:{password}", password, unquote(password)) if password else ()


def _credentials(scheme: str, address: str) -> dict[str, str]:
    """User and password of an address, as the backend takes them: fsspec leaves them encoded, or in the path."""
    user, password = _user_and_password(address)
    if scheme in _S3:
        # A secret key may hold a slash or a plus, and mostly nobody has encoded it.
        return {"key": unquote(user), "secret": unquote(password)} if password else {}
    if scheme in (*_SFTP, "ftp", "smb"):
        found = {"username": user, "password": password}
    elif scheme == "webhdfs":
        found = {"user": user, "password": password}
    else:
        found = {"user": user} if scheme in ("hdfs", "arrow_hdfs") else {}
    return {name: unquote(value) for name, value in found.items() if value}


def _options(scheme: str, configured: Mapping[str, Any]) -> dict[str, Any]:
    """What a backend is told beside the address; what the user has set up for fsspec wins."""
    known = configured.get(scheme) or {}
    options: dict[str, Any] = {}
    # Where aiohttp is used, proxies of the environment are taken only if it is told so.
    if scheme in _S3:
        endpoint = _s3_endpoint()
        options = {"endpoint_url": endpoint} if endpoint else {}
    elif scheme in _GCS:
        options = {"access": "read_only", "session_kwargs": {"trust_env": True}}
    elif scheme in _HTTP:
        import aiohttp

        # Large files take long; a server that says nothing does not.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=ask_timeout_s(), sock_read=call_timeout_s())
        options = {"client_kwargs": {"timeout": timeout, "trust_env": True}}
    elif scheme in _SFTP:
        options = dict.fromkeys(("timeout", "banner_timeout", "auth_timeout"), ask_timeout_s())
    elif scheme == "ftp":
        options = {"timeout": ask_timeout_s()}
    return {name: value for name, value in options.items() if name not in known}


def _s3_endpoint() -> str:
    """The server that TensorBoard and TensorFlow take for S3, where AWS' own variables name none."""
    if any(os.environ.get(name) for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")):
        return ""
    endpoint = os.environ.get("S3_ENDPOINT", "")
    if endpoint and "://" not in endpoint:  # as TensorFlow has it
        endpoint = f"{'http' if os.environ.get('S3_USE_HTTPS') == '0' else 'https'}://{endpoint}"
    return endpoint


def call(backend: Any, name: str, *arguments: Any, timeout_s: float, **named: Any) -> Any:
    """Call a method of a backend, for a bounded time where it runs on fsspec's loop."""
    if getattr(backend, "async_impl", False) and not getattr(backend, "asynchronous", False):
        from fsspec.asyn import sync

        return sync(backend.loop, getattr(backend, f"_{name}"), *arguments, timeout=timeout_s, **named)
    return getattr(backend, name)(*arguments, **named)
