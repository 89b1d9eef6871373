"""Find the recordings of monitors below a logdir, without opening a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.files.names import local_path, shown
from tb_gpu_doctor.files.system import Entry, Files, files_at
from tb_gpu_doctor.recording_format import FILE_SUFFIX

# As deep as profiles are looked for; the bound also ends symlink mazes.
MAX_DEPTH = 32
# A logdir with more is taken for the newest ones.
MAX_RECORDINGS = 2_000
# A remote folder that was listed within this time is not listed again.
LISTING_AGE_S = 20.0


@dataclass(frozen=True)
class RecordingFile:
    """One process's recording.

    Attributes:
        path: of the event file.
        run: its folder below the logdir, with ``/``; "" where the logdir itself is that folder.
    """

    path: str
    run: str
    size_bytes: int
    modified_ns: int
    inode: int


def find_recordings(
    logdir: str | os.PathLike[str], problems: list[tuple[str, str]] | None = None
) -> list[RecordingFile]:
    """Every recording below (or at) a path, in order of its name; a file's own path gives that one.

    Args:
        logdir: a folder or a recording's event file, on this machine or behind ``scheme://``.
        problems: takes ``(path, reason)`` of folders that cannot be read.
    """
    return list(_walk(os.fspath(logdir), [] if problems is None else problems))


def has_recording(logdir: str | os.PathLike[str]) -> bool:
    """Whether a recording lies below a path; ends at the first one."""
    return next(_walk(os.fspath(logdir), []), None) is not None


def _walk(root: str, problems: list[tuple[str, str]]) -> Iterator[RecordingFile]:
    root = local_path(root)
    files = files_at(root)
    root = shown(root)
    if files.isfile(root):
        found = _file(files, root, "")
        if found is not None:
            yield found
        return
    files.refresh(root, LISTING_AGE_S)
    seen: set[tuple[int, int]] = set()
    stack = [(root, "", 0)]
    links: list[tuple[str, str, int]] = []  # followed last, so that a run keeps its own name
    while stack or links:
        folder, run, depth = (stack or links).pop()
        try:
            stat = files.stat(folder)
            if (stat.st_dev, stat.st_ino) in seen:
                continue
            seen.add((stat.st_dev, stat.st_ino))
            with files.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name, reverse=True)
        except FileNotFoundError:
            continue  # removed while we walked, or a link into nothing
        except (OSError, ValueError) as error:
            problems.append((folder, getattr(error, "strerror", None) or str(error)))
            continue
        for entry in entries:
            if entry.name.endswith(FILE_SUFFIX) and "tfevents" in entry.name:
                found = _file(files, entry.path, run)
                if found is not None:
                    yield found
            elif depth < MAX_DEPTH and _is_folder(entry):
                (links if entry.is_symlink() else stack).append(
                    (entry.path, f"{run}/{entry.name}" if run else entry.name, depth + 1)
                )


def _file(files: Files, path: str, run: str) -> RecordingFile | None:
    try:
        stat = files.stat(path)
    except OSError:
        return None
    # A pipe or a device of this name would hold the reader up for ever.
    if not files.isfile(path):
        return None
    return RecordingFile(path, run, stat.st_size, stat.st_mtime_ns, stat.st_ino)


def _is_folder(entry: Entry) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
