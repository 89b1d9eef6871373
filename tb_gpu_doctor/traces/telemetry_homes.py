"""The runs of a logdir that hold recordings of the companion writer, and which of them a profile belongs to.

A home is the folder that a monitor was started for: it holds ``gpu_doctor/<host>/.../*.gpu_doctor``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from tb_gpu_doctor.files.system import files_at
from tb_gpu_doctor.recording_format import FILE_SUFFIX, FOLDER, PART_SUFFIX

# Deeper than a host, a process and what a remote store adds, no monitor writes.
_MAX_DEPTH = 4
_MAX_FILES = 10_000
# A remote folder that was listed within this time is not listed again.
LISTING_AGE_S = 20.0


@dataclass(frozen=True)
class Home:
    """A run with recordings: its name below the logdir, and the ``gpu_doctor`` folder in it."""

    run: str
    folder: str


def recording_files(folder: str) -> list[tuple[str, str]]:
    """(path, host) of every recording in a ``gpu_doctor`` folder, by name; what cannot be read is left out."""
    files = files_at(folder)
    files.refresh(folder, LISTING_AGE_S)
    found: list[tuple[str, str]] = []
    stack = [(folder, "", 0)]
    while stack and len(found) < _MAX_FILES:
        current, host, depth = stack.pop()
        try:
            with files.scandir(current) as entries:
                listed = sorted(entries, key=lambda entry: entry.name, reverse=True)
        except OSError:
            continue
        for entry in listed:
            try:
                if entry.name.endswith(FILE_SUFFIX) and "tfevents" in entry.name and entry.is_file():
                    found.append((entry.path, host))
                elif depth < _MAX_DEPTH and entry.name != FOLDER and entry.is_dir(follow_symlinks=False):
                    stack.append((entry.path, host or entry.name, depth + 1))
            except OSError:
                continue
    return sorted(found)


def part_files(path: str) -> list[str]:
    """The parts beside a recording, by name."""
    files = files_at(path)
    try:
        with files.scandir(os.path.dirname(path) or ".") as entries:
            return sorted(entry.path for entry in entries if entry.name.endswith(PART_SUFFIX) and entry.is_file())
    except (OSError, ValueError):
        return []


def nearest_homes(run: str, homes: Iterable[str]) -> tuple[str, ...]:
    """The homes whose common folder with ``run`` is nearest, several when equally near.

    Either one lies within the other, or they share a folder below the logdir: at the top of a logdir lie
    runs that have nothing to do with each other.
    """
    best: tuple[int, int] | None = None
    found: list[str] = []
    wanted = run.split("/") if run else []
    for home in sorted(set(homes)):
        parts = home.split("/") if home else []
        common = 0
        while common < min(len(wanted), len(parts)) and wanted[common] == parts[common]:
            common += 1
        if common < min(len(wanted), len(parts)) and not common:
            continue
        rank = (-common, len(wanted) + len(parts) - 2 * common)
        if best is None or rank < best:
            best, found = rank, []
        if rank == best:
            found.append(home)
    return tuple(found)


def home_beside(path: str) -> Home | None:
    """The home of what was named by its own path: a profile's run folder, a file's own folder, or a place in a home."""
    files = files_at(path)
    folder = path if files.isdir(path) else os.path.dirname(files.abspath(path))
    parts = files.abspath(folder).split(files.sep)
    if FOLDER in parts and recording_files(folder):
        last = len(parts) - 1 - parts[::-1].index(FOLDER)
        return Home("", files.sep.join(parts[: last + 1]))
    if tuple(parts[-3:-1]) == ("plugins", "profile"):
        folder = files.sep.join(parts[:-3]) or files.sep
    candidate = files.join(folder, FOLDER)
    return Home("", candidate) if files.isdir(candidate) and recording_files(candidate) else None
