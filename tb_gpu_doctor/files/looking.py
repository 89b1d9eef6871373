"""One look at a remote logdir: its folders listed many at a time, within bounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from tb_gpu_doctor.errors import RemoteError
from tb_gpu_doctor.files.infos import RemoteEntry
from tb_gpu_doctor.files.parallel_calls import in_parallel
from tb_gpu_doctor.files.patience import ASK_TIMEOUT_S, ask_timeout_s

# What one look at a logdir lists at most, whatever lies there.
MAX_ENTRIES = 200_000
MAX_FOLDERS = 20_000
MAX_DEPTH = 40
MAX_SECONDS = 120.0
# A listing that is older than this is asked for again.
LISTING_AGE_S = 30.0
# Files that anything here reads; only of these a missing size is asked for.
READ_SUFFIXES = (".pb", ".json", ".gz", ".riegeli", ".gpu_doctor")
_PROFILE = ("plugins", "profile")


@dataclass(frozen=True)
class Known:
    """A folder as it was listed, or why it could not be."""

    at: float
    entries: Mapping[str, RemoteEntry] = field(default_factory=dict)
    error: OSError | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether it was listed within `LISTING_AGE_S`."""
        return time.monotonic() - self.at <= LISTING_AGE_S


@dataclass(frozen=True)
class Look:
    """What one look found.

    Attributes:
        found: the folders by their paths; those that were too many or too deep are empty.
        cut: whether there was more than the bounds allow, or it took too long.
    """

    found: dict[str, Known]
    cut: bool


def look(
    root: str,
    deep: bool,
    list_folder: Callable[[str], dict[str, RemoteEntry]],
    ask: Callable[[str], RemoteEntry],
    translated: Callable[[BaseException], OSError],
) -> Look:
    """List a folder, and if ``deep`` everything below it that can hold profiles, in parallel and within bounds.

    Args:
        root: the folder.
        deep: whether to go on below it.
        list_folder: asks the server for a folder.
        ask: asks the server for the state of one file.
        translated: what an exception means.
    """
    seconds = MAX_SECONDS * max(1.0, ask_timeout_s() / ASK_TIMEOUT_S)
    deadline = time.monotonic() + seconds
    most = MAX_DEPTH if deep else 0
    found: dict[str, Known] = {}
    left: list[str] = []
    frontier, depth, entries, cut = [root], 0, 0, False
    while frontier and depth <= most:
        room = MAX_FOLDERS - len(found)
        cut = cut or len(frontier) > room
        left += frontier[room:]
        frontier = frontier[:room]
        outcomes = in_parallel(list_folder, frontier, deadline)
        below: list[str] = []
        for folder, outcome in zip(frontier, outcomes, strict=True):
            if outcome is None:
                cut = True
                error = RemoteError("remote_timeout", seconds=seconds) if folder == root else None
                found[folder] = Known(time.monotonic(), error=error)
                continue
            if isinstance(outcome, BaseException):
                found[folder] = Known(time.monotonic(), error=translated(outcome))
                continue
            kept = first(outcome, MAX_ENTRIES - entries)
            cut = cut or len(kept) < len(outcome)
            entries += len(kept)
            found[folder] = Known(time.monotonic(), kept)
            below += [entry.path for entry in kept.values() if entry.folder and _leads_on(folder, entry.name)]
        # Where profiles and recordings lie comes first, should the bounds be reached.
        frontier = sorted(
            below, key=lambda path: not any(part in path.split("/") for part in (*_PROFILE, "gpu_doctor"))
        )
        depth += 1
    _measure(found, ask, deadline)
    if deep:
        for folder in left + frontier:  # too many, or too deep
            found[folder] = Known(time.monotonic())
    # Good from now on, however long the look took: the walk that follows may not ask for each folder once more.
    return Look({path: replace(known, at=time.monotonic()) for path, known in found.items()}, cut)


def first(entries: dict[str, RemoteEntry], limit: int) -> dict[str, RemoteEntry]:
    """As many entries as there may be."""
    return entries if len(entries) <= limit else dict(islice(entries.items(), max(0, limit)))


def _measure(found: dict[str, Known], ask: Callable[[str], RemoteEntry], deadline: float) -> None:
    """Ask for the sizes of files that their listing did not tell."""
    unknown = [
        (folder, entry)
        for folder, known in found.items()
        for entry in known.entries.values()
        if entry.st_size < 0 and entry.name.endswith(READ_SUFFIXES)
    ]
    if not unknown:
        return
    outcomes = in_parallel(lambda pair: ask(pair[1].path), unknown, deadline)
    told = {outcome.path: outcome for outcome in outcomes if isinstance(outcome, RemoteEntry) and not outcome.folder}
    for folder in {folder for folder, _ in unknown}:
        known = found[folder]
        entries = {name: told.get(entry.path, entry) for name, entry in known.entries.items()}
        found[folder] = Known(known.at, entries)


def _leads_on(folder: str, name: str) -> bool:
    """Whether profiles or recordings can lie below: as local logdirs are walked."""
    parts = folder.split("/")
    if parts[-1] == _PROFILE[0]:
        return name == _PROFILE[1]
    # In a session's folder lie its files and nothing more.
    return tuple(parts[-3:-1]) != _PROFILE
