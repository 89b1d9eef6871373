"""What stores say of their files, each in its own words, as files and folders like those of `os`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from typing import Any

from tb_gpu_doctor.files.addresses import scrubbed

_MAX_NAME = 1_024
_TIMES = (
    "LastModified",
    "last_modified",
    "Last-Modified",
    "mtime",
    "updated",
    "modificationTime",
    "modified",
    "modify",
    "created",
)
_TAGS = ("ETag", "etag", "generation", "VersionId", "version_id", "md5Hash", "md5", "checksum", "content_md5")
# FTP's.
_DIGITS = re.compile(r"\d{14}(\.\d+)?")


@dataclass(frozen=True)
class RemoteEntry:
    """A file or folder, and its state; the names are those of `os`. ``st_size`` is -1 where it is not known."""

    name: str
    path: str
    folder: bool
    st_size: int = 0
    st_mtime_ns: int = 0
    tag: str = ""

    st_dev = 0

    @property
    def st_mtime(self) -> float:
        """Unix seconds; 0 where the store does not tell."""
        return self.st_mtime_ns / 1e9

    @property
    def st_ino(self) -> int:
        """One number for one place and content."""
        return int.from_bytes(blake2b(f"{self.path}\0{self.tag}".encode(), digest_size=7).digest(), "big")

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a folder."""
        return self.folder

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a file."""
        return not self.folder

    def is_symlink(self) -> bool:
        """Never: links are left out."""
        return False


def entry_of(path: str, info: Mapping[str, Any]) -> RemoteEntry:
    """What a backend tells of the file or folder at a shown path."""
    size = info.get("size")
    is_folder = info.get("type") == "directory"
    return RemoteEntry(
        name=path.rpartition("/")[2],
        path=path,
        folder=is_folder,
        st_size=0 if is_folder else size if isinstance(size, int) and size >= 0 else -1,
        st_mtime_ns=modified_ns(info),
        tag=scrubbed(tag_of(info)),
    )


def listed_name(info: Any, own: str, is_web: bool) -> str | None:
    """The last part of a listed name; None for what is no plain file or folder within the listed one.

    Args:
        info: what the backend says.
        own: the listed folder as the backend names it, without a slash at its end.
        is_web: whether names are links of a page, which lead anywhere.
    """
    if not isinstance(info, Mapping) or info.get("type") not in ("file", "directory") or info.get("islink"):
        return None
    full = str(info.get("name", "")).rstrip("/")
    folder, _, name = full.rpartition("/")
    if full == own or name in ("", ".", "..") or len(name) > _MAX_NAME or any(sign in name for sign in "\0\r\n"):
        return None
    if is_web and (folder != own.partition("?")[0].rstrip("/") or "?" in name or "#" in name):
        return None
    return name


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
    if _DIGITS.fullmatch(value):
        return datetime.strptime(value[:14], "%Y%m%d%H%M%S")
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return parsedate_to_datetime(value)


def tag_of(info: Mapping[str, Any]) -> str:
    """What the store itself names a file's present content by; "" where it does not."""
    return " ".join(f"{key}={info[key]}" for key in _TAGS if info.get(key))
