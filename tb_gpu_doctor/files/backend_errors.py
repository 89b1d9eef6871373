"""What the libraries behind addresses raise, as errors that the catalogues know."""

from __future__ import annotations

from tb_gpu_doctor.errors import RemoteError
from tb_gpu_doctor.files.addresses import scrubbed

# What a backend says when it found no credentials, wherever it looked.
_NO_CREDENTIALS = (
    "nocredentials",
    "credentialserror",
    "defaultcredentials",
    "partialcredentials",
    "profilenotfound",
    "refresherror",
    "tokenretrieval",
    "ssotoken",
    "credentialunavailable",
)
_NO_CREDENTIALS_WORDS = (
    "anonymous caller",
    "unable to locate credentials",
    "must provide either a connection_string",
    "no authentication methods available",
)
_DENIED_WORDS = (
    "accessdenied",
    "access denied",
    "invalidaccesskeyid",
    "signaturedoesnotmatch",
    "expiredtoken",
    "invalidtoken",
    "authenticationfailed",
    "authentication failed",
    "authorizationfailure",
    "forbidden",
    "unauthorized",
    "security token included in the request is",
)
_UNREACHABLE = (
    "novalidconnections",
    "eoferror",
    "clientconnector",
    "clientpayload",
    "endpointconnection",
    "connectionclosed",
    "serverdisconnected",
    "gaierror",
    "sslerror",
)
# What SSH says of a line that broke, or of a server that is none.
_BROKEN_WORDS = (
    "protocol banner",
    "connection dropped",
    "session not active",
    "no existing session",
    "socket is closed",
    "connection reset",
    "unable to open channel",
)


def translated(error: BaseException, scheme: str, secrets: tuple[str, ...] = (), seconds: float = 0.0) -> OSError:
    """What a backend's exception means: a `RemoteError`, or `FileNotFoundError`. Nothing secret is left in it.

    Args:
        error: whatever a backend raised.
        scheme: of the address.
        secrets: what may not be told.
        seconds: how long was waited for it, where that is known.
    """
    if isinstance(error, RemoteError):
        return error
    chain = _chain(error)
    names = " ".join(type(link).__name__ for link in chain).lower()
    words = " ".join(str(link) for link in chain).lower()
    statuses = {_status(link) for link in chain}
    # A backend may call everything "not found"; what led to that says more.
    telling = next((link for link in chain if not isinstance(link, FileNotFoundError)), error)
    reason = scrubbed(str(telling) or ("timed out" if "timeout" in names else type(telling).__name__), secrets)
    if any(name in names for name in _NO_CREDENTIALS) or any(word in words for word in _NO_CREDENTIALS_WORDS):
        return RemoteError("remote_credentials", scheme=scheme, reason=reason)
    if "requester pays" in words:
        return RemoteError("remote_pays", reason=reason)
    if "libjvm" in words or "libhdfs" in words:
        return RemoteError("remote_hdfs", reason=reason)
    # FTP has one number for what is not there and for what may not be read.
    if names.startswith("error_perm") and words.startswith("550") and not any(w in words for w in ("denied", "permi")):
        return FileNotFoundError(reason)
    denied = any(isinstance(link, PermissionError) for link in chain) or bool(statuses & {401, 403})
    denied = denied or (names.startswith("error_perm") and words.startswith(("530", "550")))
    if denied or any(word in words for word in _DENIED_WORDS):
        return RemoteError("remote_denied", scheme=scheme, reason=reason)
    if "fileexpired" in names:
        return RemoteError("remote_changed")
    if seconds and "timeout" in names and words.strip() in ("", "timed out"):
        return RemoteError("remote_timeout", seconds=seconds)
    if any(isinstance(link, (TimeoutError, ConnectionError)) for link in chain) or "timeout" in names:
        return RemoteError("remote_unreachable", reason=reason)
    broke_off = names.startswith("error_temp") and words.startswith(("421", "425", "426"))
    if broke_off or any(name in names for name in _UNREACHABLE) or any(word in words for word in _BROKEN_WORDS):
        return RemoteError("remote_unreachable", reason=reason)
    if isinstance(error, FileNotFoundError) or statuses & {404}:
        return FileNotFoundError(reason)
    return RemoteError("io_error", reason=reason)


def _chain(error: BaseException) -> list[BaseException]:
    """The exception and those that led to it."""
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links and len(links) < 10:
        links.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return links


def _status(error: BaseException) -> int | None:
    """The HTTP status that an exception carries."""
    for name in ("status", "code", "status_code"):
        value = getattr(error, name, None)
        if isinstance(value, (int, str)) and str(value).isdecimal():
            return int(value)
    return None
