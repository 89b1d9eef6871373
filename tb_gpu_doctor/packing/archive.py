"""Writes and opens packs: zip files that anybody may have made.

Writing is deterministic: the same files give the same bytes. Opening takes nothing on trust: no path leaves the
folder, no link is made, and what is unpacked stays within bounds whatever the file claims.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable

from tb_gpu_doctor.errors import PackError
from tb_gpu_doctor.files.writing import part_of

# 1 January 1980, the earliest time that a zip can tell.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
_PIECE = 1 << 20
# More than a cluster's recording; a pack that unpacks to more is refused before it fills the disk.
MAX_BYTES = 64 << 30
MAX_FILES = 200_000
# Folders take room on a disk as files do, and an entry may name dozens.
MAX_FOLDERS = 20_000
# Profiles pack to between 1/4 and 1/40. Small files may be as regular as they like.
MAX_RATIO = 300
FREE_BYTES = 64 << 20
_MAX_DEPTH, _MAX_PART, _MAX_PATH = 32, 255, 1_024
# Control characters, the other system's separator, and a drive.
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\]|^[A-Za-z]:")
# A higher one takes three times as long for a hundredth of the size.
_LEVEL = 6
_PACKED = (".gz", ".zst", ".zip")


def write_archive(path: str, folder: str, files: Iterable[str], report: Callable[[int], None] | None = None) -> int:
    """Pack files below ``folder``; the pack appears whole or not at all.

    Args:
        path: of the pack.
        folder: where the files lie.
        files: paths below it, with ``/``.
        report: called with the bytes packed since the last call.

    Returns:
        The pack's size in bytes.

    Raises:
        PackError: ``cannot_write``.
    """
    beside = part_of(path)
    try:
        if beside == path:  # a link or a device: a zip goes back in its file, which those may not allow
            with tempfile.TemporaryDirectory(prefix="gpu-doctor-") as temporary:
                whole = os.path.join(temporary, "pack.zip")
                size = write_archive(whole, folder, files, report)
                with open(whole, "rb") as source_file, open(path, "wb") as through:
                    shutil.copyfileobj(source_file, through)
            return size
        with zipfile.ZipFile(beside, "w", allowZip64=True) as archive:
            for name in sorted(files):
                info = zipfile.ZipInfo(name, _NO_TIME)
                info.create_system = 3
                info.external_attr = (stat.S_IFREG | 0o644) << 16
                info.compress_type = zipfile.ZIP_STORED if name.endswith(_PACKED) else zipfile.ZIP_DEFLATED
                info._compresslevel = _LEVEL  # type: ignore[attr-defined]
                source = os.path.join(folder, *name.split("/"))
                info.file_size = os.path.getsize(source)
                with open(source, "rb") as file, archive.open(info, "w") as target:
                    while piece := file.read(_PIECE):
                        target.write(piece)
                        if report is not None:
                            report(len(piece))
        size = os.path.getsize(beside)
        os.replace(beside, path)
        return size
    except OSError as error:
        raise PackError("cannot_write", path, reason=error.strerror or str(error)) from error
    finally:
        if beside != path and os.path.exists(beside):
            os.unlink(beside)


def unpack_archive(path: str, folder: str, max_bytes: int = MAX_BYTES, shown: str | None = None) -> list[str]:
    """Unpack a pack into an empty folder and return the files, with ``/``.

    Args:
        path: of the pack.
        folder: an empty one.
        max_bytes: what it may unpack to.
        shown: what errors call the pack, by default its path.

    Raises:
        PackError: ``missing``, ``unreadable``, ``not_a_zip``, ``encrypted``, ``cut_off``, ``unsafe_path``, ``link``,
            ``twice``, ``bomb``, ``too_large``, ``too_many_files``, ``too_many_folders``,
            ``unknown_method`` or ``cannot_unpack``.
    """
    name = shown if shown is not None else path
    try:
        with zipfile.ZipFile(path) as archive:
            return _unpack(archive, name, folder, max_bytes, os.path.getsize(path))
    except FileNotFoundError:
        raise PackError("missing", name) from None
    except (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError) as error:
        code = "cut_off" if _begins_as_zip(path) else "not_a_zip"
        raise PackError(code, name, reason=str(error)) from None
    except NotImplementedError as error:
        raise PackError("unknown_method", name, reason=str(error)) from None
    except (OSError, ValueError) as error:
        raise PackError("unreadable", name, reason=getattr(error, "strerror", None) or str(error)) from None


def _begins_as_zip(path: str) -> bool:
    """Whether a file begins as a zip does."""
    try:
        with open(path, "rb") as file:
            return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")
    except OSError:
        return False


def _unpack(archive: zipfile.ZipFile, path: str, folder: str, max_bytes: int, size: int) -> list[str]:
    """``size`` is that of the pack itself: entries may claim bytes that others claim as well."""
    entries = archive.infolist()
    if len(entries) > MAX_FILES:
        raise PackError("too_many_files", path, count=len(entries), most=MAX_FILES)
    claimed = sum(entry.file_size for entry in entries)
    if claimed > max_bytes:
        raise PackError("too_large", path, size=claimed, most=max_bytes)
    if claimed > FREE_BYTES and claimed > MAX_RATIO * size:
        # Many files that are small enough each, or that share their bytes.
        raise PackError("bomb", path, name=max(entries, key=lambda entry: entry.file_size).filename)
    wanted: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        name = safe_path(entry.filename, path)
        mode = entry.external_attr >> 16
        if mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_IFMT(mode) == 0):
            raise PackError("link", path, name=entry.filename)
        if entry.is_dir():
            continue
        if entry.flag_bits & 1:
            raise PackError("encrypted", path)
        if entry.file_size > FREE_BYTES and entry.file_size > MAX_RATIO * max(entry.compress_size, 1):
            raise PackError("bomb", path, name=entry.filename)
        if name in wanted:
            raise PackError("twice", path, name=entry.filename)
        wanted[name] = entry
    folders = {name[:at] for name in wanted for at in _separators(name)}
    if len(folders) > MAX_FOLDERS:
        raise PackError("too_many_folders", path, count=len(folders), most=MAX_FOLDERS)
    written = 0
    for name, entry in wanted.items():
        target = os.path.join(folder, *name.split("/"))
        here = 0
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with archive.open(entry) as source, open(target, "xb") as file:
                while piece := source.read(_PIECE):
                    here += len(piece)
                    written += len(piece)
                    # What a file's head claims is not what it holds.
                    if here > entry.file_size or written > max_bytes:
                        raise PackError("bomb", path, name=entry.filename)
                    file.write(piece)
        except FileExistsError:
            raise PackError("twice", path, name=entry.filename) from None
        except (NotADirectoryError, IsADirectoryError):
            raise PackError("twice", path, name=entry.filename) from None
        except OSError as error:
            raise PackError("cannot_unpack", path, reason=error.strerror or str(error)) from error
    return list(wanted)


def _separators(name: str) -> list[int]:
    return [at for at, letter in enumerate(name) if letter == "/"]


def safe_path(name: str, path: str = "") -> str:
    """A file's path in a pack, checked.

    Raises:
        PackError: ``unsafe_path`` for what leads out of the folder, or is no path on every system.
    """
    parts = name.rstrip("/").split("/")
    if (
        not name
        or name.startswith("/")
        or _FORBIDDEN.search(name)
        or len(name) > _MAX_PATH
        or len(parts) > _MAX_DEPTH
        or any(part in ("", ".", "..") or len(part) > _MAX_PART for part in parts)
    ):
        raise PackError("unsafe_path", path, name=name)
    return "/".join(parts)
