"""Addresses of files: which are remote, and how they are shown without the secrets that they may carry."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

# One letter is a Windows drive.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")
# fsspec's chains, such as zip://a::s3://b and simplecache::s3://b; not the :: of [::1] or of a file's name.
_CHAINED = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+(://[^?]*)?::([A-Za-z][A-Za-z0-9+.\-]+::)*[A-Za-z][A-Za-z0-9+.\-]+://")
# What opens only what another address names.
_WITHIN_OTHERS = frozenset(
    {"zip", "tar", "libarchive", "reference", "simplecache", "filecache", "blockcache", "cached", "dir"}
)
_LOCAL_SCHEMES = frozenset({"file", "local"})
# container@account: the part before the @ names the place, and is no user.
_PLACE_BEFORE_AT = frozenset({"abfs", "abfss", "az", "adl", "wasb", "wasbs"})
_HAS_QUERY = frozenset({"http", "https", "dav", "davs"})
_SECRET = re.compile(
    r"(^|[?&;])[^=&;]*(sig|token|secret|passw|key|credential|x-amz-|x-goog-|delegation|auth)[^=&;]*=", re.IGNORECASE
)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]{1,40}://[^\s'\"<>\])]+")
_MAX_REASON = 300


def scheme_of(path: str) -> str | None:
    """The scheme of an address, in lower case; None for a path."""
    match = _SCHEME.match(path)
    if match is not None:
        return match.group(1).lower()
    return path.partition("::")[0].lower() if is_chained(path) else None


def is_chained(path: str) -> bool:
    """Whether an address leads through several file systems, or into what only such an address can name."""
    return _CHAINED.match(path) is not None or path.partition("://")[0].lower() in _WITHIN_OTHERS


def is_remote(path: str) -> bool:
    """Whether a path is an address that `os` cannot open."""
    scheme = scheme_of(path)
    return scheme is not None and scheme not in _LOCAL_SCHEMES


def local_path(path: str) -> str:
    """The path that a ``file://`` address names; any other path as it is."""
    if scheme_of(path) not in _LOCAL_SCHEMES:
        return path
    plain = path.partition("://")[2]
    plain = plain[len("localhost") :] if plain.startswith("localhost/") else plain
    if os.name == "nt":
        plain = re.sub(r"^/([A-Za-z]:)", r"\1", plain)
    decoded = unquote(plain)
    return decoded if decoded != plain and not os.path.exists(plain) and os.path.exists(decoded) else plain


def split_address(address: str) -> tuple[str, str, str, str]:
    """(scheme with ``://``, user and password with ``@``, place, query with ``?``) of a remote address."""
    match = _SCHEME.match(address)
    if match is None:
        return "", "", address, ""
    scheme, rest = match.group(1).lower(), address[match.end() :]
    host, slash, tail = rest.partition("/")
    user = ""
    if "@" in host:
        found, _, place = host.rpartition("@")
        if scheme not in _PLACE_BEFORE_AT or ":" in found:
            user, host = f"{found}@", place
    elif "@" in tail and re.search(r":(?!\d+$)", host):
        # A secret key with a slash in it that nobody has encoded.
        found, _, rest = rest.partition("@")
        user = f"{found}@"
        host, slash, tail = rest.partition("/")
    place, mark, query = f"{host}{slash}{tail}".partition("?")
    if mark and scheme not in _HAS_QUERY and not _SECRET.search(query):
        return match.group(1) + "://", user, f"{place}?{query}", ""
    if scheme in _HAS_QUERY:
        place = place.partition("#")[0]
    return match.group(1) + "://", user, place, mark + query


def shown(path: str) -> str:
    """A path as it may be shown: an address without user, password and signed query; any other path as it is."""
    if not is_remote(path):
        return path
    if is_chained(path):
        return "::".join(map(_shown, path.split("::")))
    return _shown(path)


def _shown(address: str) -> str:
    scheme, _, place, _ = split_address(address)
    return scheme + place


def scrubbed(text: str, secrets: tuple[str, ...] = ()) -> str:
    """One line of somebody else's message, without the secrets of addresses in it."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "")
    line = " ".join(_ADDRESS.sub(lambda match: shown(match.group()), text).split())
    return line if len(line) <= _MAX_REASON else line[: _MAX_REASON - 1] + "…"
