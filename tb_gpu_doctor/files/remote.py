"""Files behind ``scheme://``: listed in parallel, within bounds, and remembered for a short time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import islice
from types import TracebackType
from typing import Any

from tb_gpu_doctor.files.backends import ASK_TIMEOUT_S, call, modified_ns, open_backend, tag_of
from tb_gpu_doctor.files.errors import RemoteError, translated
from tb_gpu_doctor.files.names import scheme_of, scrubbed, shown, split_address
from tb_gpu_doctor.files.parallel_calls import in_parallel
from tb_gpu_doctor.files.system import State

# What one look at a logdir lists at most, whatever lies there.
MAX_ENTRIES = 200_000
MAX_FOLDERS = 20_000
MAX_DEPTH = 40
MAX_SECONDS = 120.0
# A listing that is older than this is asked for again.
LISTING_AGE_S = 30.0
_MAX_NAME = 1_024
# Files that anything here reads; only of these a missing size is asked for.
_READ = (".pb", ".json", ".gz", ".riegeli", ".gpu_doctor")
_HTTP = ("http", "https")
_PROFILE = ("plugins", "profile")


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


class _Listing:
    """Looks like what `os.scandir` returns."""

    def __init__(self, entries: Iterable[RemoteEntry]) -> None:
        self._entries = entries

    def __enter__(self) -> Iterator[RemoteEntry]:
        return iter(self._entries)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass


@dataclass(frozen=True)
class _Known:
    """A folder as it was listed, or why it could not be."""

    at: float
    entries: Mapping[str, RemoteEntry] = field(default_factory=dict)
    error: OSError | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether it was listed within `LISTING_AGE_S`."""
        return time.monotonic() - self.at <= LISTING_AGE_S


class RemoteFiles:
    """The files of one server or bucket. Many threads may use it at a time.

    Paths are shown ones, without credentials; those that came with an address are kept here and nowhere else.
    """

    sep = "/"

    def __init__(self, place: str) -> None:
        self._place = place
        self._scheme = scheme_of(place) or ""
        self._user = ""
        self._queries: dict[str, str] = {}
        self._backend: Any = None
        self._lock = threading.RLock()
        self._opening = threading.Lock()
        self._folders: dict[str, _Known] = {}
        self._refreshed: dict[str, float] = {}
        self._cut: set[str] = set()

    def learn(self, user: str, path: str, query: str) -> None:
        """Take the credentials of an address."""
        with self._lock:
            if user and user != self._user:
                self._user, self._backend = user, None
                self._folders.clear()
            if query:
                self._queries[path] = query

    def address(self, path: str) -> str:
        """The address behind a shown path, with its credentials: to open it, never to show it."""
        scheme, _, place, _ = split_address(path)
        query, longest = "", -1
        for root, found in self._queries.items():
            if (path == root or path.startswith(root.rstrip("/") + "/")) and len(root) > longest:
                query, longest = found, len(root)
        return f"{scheme}{self._user}{place}{query}"

    def backend(self) -> Any:
        """The file system of fsspec.

        Raises:
            RemoteError: it is not installed, or does not open.
        """
        with self._opening:  # takes seconds where a server does not answer; what is known is told meanwhile
            backend, user = self._backend, self._user
            if backend is None:
                backend = open_backend(self.address(self._place))
                with self._lock:
                    if user == self._user:
                        self._backend = backend
            return backend

    def inner(self, path: str) -> str:
        """The path as the backend names it."""
        return str(self.backend()._strip_protocol(self.address(path)))

    def translated(self, error: BaseException) -> OSError:
        """What a backend's exception means, see `errors.translated`."""
        user = self._user.rstrip("@")
        secrets = (self._user, user, user.partition(":")[2], *self._queries.values())
        return translated(error, self._scheme, secrets)

    def refresh(self, root: str, max_age_s: float = 0.0, deep: bool = True) -> None:
        """List a folder, and if ``deep`` everything below it that can hold profiles, in parallel and within bounds.

        Nothing is raised: what cannot be listed says so when it is asked for.
        """
        root = self.abspath(root)
        now = time.monotonic()
        with self._lock:
            if any(_within(root, done) and now - at <= max_age_s for done, at in self._refreshed.items()):
                return
            known = self._folders.get(root)
            if known is not None and isinstance(known.error, RemoteError) and now - known.at <= max_age_s:
                return
        deadline = now + MAX_SECONDS
        most = MAX_DEPTH if deep else 0
        found: dict[str, _Known] = {}
        left: list[str] = []
        frontier, depth, entries, cut = [root], 0, 0, False
        while frontier and depth <= most:
            room = MAX_FOLDERS - len(found)
            cut = cut or len(frontier) > room
            left += frontier[room:]
            frontier = frontier[:room]
            outcomes = in_parallel(self._list, frontier, deadline)
            below: list[str] = []
            for folder, outcome in zip(frontier, outcomes, strict=True):
                if outcome is None:
                    cut = True
                    error = RemoteError("remote_timeout", seconds=MAX_SECONDS) if folder == root else None
                    found[folder] = _Known(time.monotonic(), error=error)
                    continue
                if isinstance(outcome, BaseException):
                    found[folder] = _Known(time.monotonic(), error=self.translated(outcome))
                    continue
                kept = _first(outcome, MAX_ENTRIES - entries)
                cut = cut or len(kept) < len(outcome)
                entries += len(kept)
                found[folder] = _Known(time.monotonic(), kept)
                below += [entry.path for entry in kept.values() if entry.folder and _leads_on(folder, entry.name)]
            # Where profiles and recordings lie comes first, should the bounds be reached.
            frontier = sorted(
                below, key=lambda path: not any(part in path.split("/") for part in (*_PROFILE, "gpu_doctor"))
            )
            depth += 1
        self._measure(found, deadline)
        # Good from now on, however long the look took: the walk that follows may not ask for each folder once more.
        found = {path: replace(known, at=time.monotonic()) for path, known in found.items()}
        if not deep:
            with self._lock:
                self._folders |= found
            return
        for folder in left + frontier:  # too many, or too deep
            found[folder] = _Known(time.monotonic())
        with self._lock:
            self._folders = {path: known for path, known in self._folders.items() if not _within(path, root)}
            if len(self._folders) + len(found) > 2 * MAX_FOLDERS:
                self._folders.clear()
            self._folders |= found
            ended = time.monotonic()
            self._refreshed = {
                path: at
                for path, at in self._refreshed.items()
                if not _within(path, root) and ended - at < 10 * LISTING_AGE_S
            }
            self._refreshed[root] = ended
            self._cut = {path for path in self._cut if not _within(path, root)} | ({root} if cut else set())

    def is_cut(self, root: str) -> bool:
        """Whether a folder held more than the bounds allow, or took too long."""
        return self.abspath(root) in self._cut

    def scandir(self, path: str) -> _Listing:
        """What lies in a folder, as known within `LISTING_AGE_S`.

        Raises:
            OSError: it cannot be listed.
        """
        path = self.abspath(path)
        with self._lock:
            known = self._folders.get(path)
        if known is None or not known.is_fresh:
            try:
                known = _Known(time.monotonic(), _first(self._list(path), MAX_ENTRIES))
            except Exception as error:
                known = _Known(time.monotonic(), error=self.translated(error))
            with self._lock:
                self._folders[path] = known
        if known.error is not None:
            raise known.error
        return _Listing(known.entries.values())

    def listdir(self, path: str) -> list[str]:
        """The names in a folder."""
        with self.scandir(path) as entries:
            return [entry.name for entry in entries]

    def stat(self, path: str) -> RemoteEntry:
        """The state of a file or folder, from its folder's listing where that is known.

        Raises:
            OSError: there is none, or it cannot be told.
        """
        path = self.abspath(path)
        folder, name = _split(path)
        with self._lock:
            known = self._folders.get(folder)
            own = self._folders.get(path)
        if own is not None and isinstance(own.error, RemoteError) and own.is_fresh:
            raise own.error
        if known is not None and known.error is None and known.is_fresh:
            entry = known.entries.get(name)
            if entry is not None and (entry.folder or entry.st_size >= 0):
                return entry
            if entry is None and not self._cut and self._scheme not in _HTTP:
                raise FileNotFoundError(path)
        try:
            return self._ask(path)
        except RemoteError as error:  # the next one who asks need not wait for the same answer
            with self._lock:
                self._folders[path] = _Known(time.monotonic(), error=error)
            raise

    def isfile(self, path: str) -> bool:
        """Whether there is such a file."""
        try:
            return not self.stat(path).folder
        except OSError:
            return False

    def isdir(self, path: str) -> bool:
        """Whether there is such a folder."""
        path = self.abspath(path)
        with self._lock:
            known = self._folders.get(path)
        if known is not None and known.is_fresh and (known.entries or known.error):
            return known.error is None
        try:
            return self.stat(path).folder
        except OSError:
            return False

    def islink(self, path: str) -> bool:
        """Links are left out of listings."""
        return False

    def abspath(self, path: str) -> str:
        """The path without a slash at its end."""
        path = shown(path)
        return path.rstrip("/") if not path.endswith("://") else path

    def join(self, folder: str, name: str) -> str:
        """A path within a folder."""
        return folder + name if folder.endswith("/") else f"{folder}/{name}"

    def readable(self, path: str) -> bool:
        """Whether a folder can be listed."""
        try:
            self.scandir(path)
        except OSError:
            return False
        return True

    def version(self, state: State) -> str:
        """Names the content of a file by its state; "" where the store tells neither its time nor a tag."""
        tag = getattr(state, "tag", "")
        return f"{state.st_size} {state.st_mtime_ns} {tag}" if state.st_mtime_ns or tag else ""

    def _list(self, folder: str) -> dict[str, RemoteEntry]:
        """One folder, asked for now. Names that would lead elsewhere are left out."""
        inner = self.inner(folder)
        if self._scheme in _HTTP and "?" not in inner:
            inner = inner.rstrip("/") + "/"
        try:
            infos = call(self.backend(), "ls", inner, detail=True)
        except Exception as error:
            raise self.translated(error) from None
        entries: dict[str, RemoteEntry] = {}
        own = inner.rstrip("/")
        for info in infos:
            name = self._name(info, own)
            if name is not None:
                entries[name] = self._entry(self.join(folder, name), info)
        return {name: entries[name] for name in sorted(entries)}

    def _name(self, info: Any, own: str) -> str | None:
        """The last part of a listed name; None for what is no plain file or folder within the listed one."""
        if not isinstance(info, Mapping) or info.get("type") not in ("file", "directory") or info.get("islink"):
            return None
        full = str(info.get("name", "")).rstrip("/")
        folder, _, name = full.rpartition("/")
        if full == own or name in ("", ".", "..") or len(name) > _MAX_NAME or any(sign in name for sign in "\0\r\n"):
            return None
        if self._scheme in _HTTP and (folder != own.partition("?")[0].rstrip("/") or "?" in name or "#" in name):
            return None
        return name

    def _entry(self, path: str, info: Mapping[str, Any]) -> RemoteEntry:
        size = info.get("size")
        is_folder = info.get("type") == "directory"
        return RemoteEntry(
            name=path.rpartition("/")[2],
            path=path,
            folder=is_folder,
            st_size=size if isinstance(size, int) and size >= 0 and not is_folder else (0 if is_folder else -1),
            st_mtime_ns=modified_ns(info),
            tag=scrubbed(tag_of(info)),
        )

    def _ask(self, path: str) -> RemoteEntry:
        """The state of one file or folder, asked for now."""
        try:
            info = dict(call(self.backend(), "info", self.inner(path), timeout_s=ASK_TIMEOUT_S))
        except Exception as error:
            raise self.translated(error) from None
        if self._scheme in _HTTP and not path.endswith(_READ):
            info["type"] = "directory"  # a server does not say which of its pages are folders
        return self._entry(path, info)

    def _measure(self, found: dict[str, _Known], deadline: float) -> None:
        """Ask for the sizes of files that their listing did not tell."""
        unknown = [
            (folder, entry)
            for folder, known in found.items()
            for entry in known.entries.values()
            if entry.st_size < 0 and entry.name.endswith(_READ)
        ]
        if not unknown:
            return
        outcomes = in_parallel(lambda pair: self._ask(pair[1].path), unknown, deadline)
        told = {
            outcome.path: outcome for outcome in outcomes if isinstance(outcome, RemoteEntry) and not outcome.folder
        }
        for folder in {folder for folder, _ in unknown}:
            known = found[folder]
            entries = {name: told.get(entry.path, entry) for name, entry in known.entries.items()}
            found[folder] = _Known(known.at, entries)


def _first(entries: dict[str, RemoteEntry], most: int) -> dict[str, RemoteEntry]:
    return entries if len(entries) <= most else dict(islice(entries.items(), max(0, most)))


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _split(path: str) -> tuple[str, str]:
    """(folder, name) of a path."""
    folder, _, name = path.rpartition("/")
    return (folder + "/" if folder.endswith(":/") else folder), name


def _leads_on(folder: str, name: str) -> bool:
    """Whether profiles or recordings can lie below: as local logdirs are walked."""
    parts = folder.split("/")
    if parts[-1] == _PROFILE[0]:
        return name == _PROFILE[1]
    # In a session's folder lie its files and nothing more.
    return tuple(parts[-3:-1]) != _PROFILE


_PLACES: dict[str, RemoteFiles] = {}
_PLACES_LOCK = threading.Lock()


def remote_at(address: str) -> RemoteFiles:
    """The files of an address' server or bucket; credentials in the address are remembered for all paths there."""
    scheme, user, place, query = split_address(address)
    name = scheme + place.partition("/")[0]
    with _PLACES_LOCK:
        files = _PLACES.get(name)
        if files is None:
            files = _PLACES[name] = RemoteFiles(name)
    files.learn(user, scheme + place, query)
    return files
