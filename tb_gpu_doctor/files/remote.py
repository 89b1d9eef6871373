"""Files behind ``scheme://`` with the names of `os`, and what is known of them for a short time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType

from tb_gpu_doctor.errors import RemoteError
from tb_gpu_doctor.files import looking
from tb_gpu_doctor.files.addresses import is_chained, shown, split_address
from tb_gpu_doctor.files.connection import Connection
from tb_gpu_doctor.files.infos import RemoteEntry, entry_of, listed_name
from tb_gpu_doctor.files.looking import Known
from tb_gpu_doctor.files.patience import call_timeout_s
from tb_gpu_doctor.files.system import State

_HTTP = ("http", "https")
# One look asks several times whether its root is there.
_TOLD_AGE_S = 5.0


class _Listing:
    """Looks like what `os.scandir` returns."""

    def __init__(self, entries: Iterable[RemoteEntry]) -> None:
        self._entries = entries

    def __enter__(self) -> Iterator[RemoteEntry]:
        return iter(self._entries)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass


class RemoteFiles:
    """The files of one server or bucket. Many threads may use it at a time.

    Paths are shown ones, without credentials; ``connection`` keeps those that came with an address.
    """

    sep = "/"

    def __init__(self, place: str) -> None:
        self.connection = Connection(place)
        self._is_web = self.connection.scheme in _HTTP
        self._lock = threading.RLock()
        self._folders: dict[str, Known] = {}
        self._refreshed: dict[str, float] = {}
        self._cut: set[str] = set()
        self._told: tuple[str, float, RemoteEntry] | None = None

    def learn(self, user: str, path: str, query: str) -> None:
        """Take the credentials of an address."""
        if self.connection.learn(user, path, query):
            with self._lock:
                self._folders.clear()
                self._refreshed.clear()
                self._told = None

    def address(self, path: str) -> str:
        """The address behind a shown path, with its credentials: to open it, never to show it."""
        return self.connection.address(path)

    def refresh(self, root: str, max_age_s: float = 0.0, deep: bool = True) -> None:
        """List a folder, and if ``deep`` everything below it that can hold profiles, see `looking.look`.

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
        seen = looking.look(root, deep, self._list, self.ask, self.connection.translated)
        with self._lock:
            if not deep:
                self._folders |= seen.found
                return
            self._folders = {path: known for path, known in self._folders.items() if not _within(path, root)}
            if len(self._folders) + len(seen.found) > 2 * looking.MAX_FOLDERS:
                self._folders.clear()
            self._folders |= seen.found
            ended = time.monotonic()
            self._refreshed = {
                path: at
                for path, at in self._refreshed.items()
                if not _within(path, root) and ended - at < 10 * looking.LISTING_AGE_S
            }
            self._refreshed[root] = ended
            self._cut = {path for path in self._cut if not _within(path, root)} | ({root} if seen.cut else set())

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
                known = Known(time.monotonic(), looking.first(self._list(path), looking.MAX_ENTRIES))
            except Exception as error:
                known = Known(time.monotonic(), error=self.connection.translated(error))
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
            told = self._told
        if known is not None and known.error is None and known.is_fresh:
            entry = known.entries.get(name)
            # A folder that cannot be listed is there all the same: who lists it is told why.
            if entry is not None and (entry.folder or entry.st_size >= 0):
                return entry
            if entry is None and not self._cut and not self._is_web:
                raise FileNotFoundError(path)
        if own is not None and isinstance(own.error, RemoteError) and own.is_fresh:
            raise own.error
        if own is not None and own.error is None and own.is_fresh and own.entries:
            return RemoteEntry(name, path, True)
        if told is not None and told[0] == path and time.monotonic() - told[1] <= _TOLD_AGE_S:
            return told[2]
        try:
            entry = self.ask(path)
        except RemoteError as error:  # the next one who asks need not wait for the same answer
            with self._lock:
                self._folders[path] = Known(time.monotonic(), error=error)
            raise
        if entry.folder:
            self._told = (path, time.monotonic(), entry)
        return entry

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

    def ask(self, path: str) -> RemoteEntry:
        """The state of one file or folder, asked for now.

        Raises:
            OSError: there is none, or it cannot be told.
        """
        info = dict(self.connection.ask("info", path))
        if self._is_web and not path.endswith(looking.READ_SUFFIXES):
            info["type"] = "directory"  # a server does not say which of its pages are folders
        return entry_of(path, info)

    def _list(self, folder: str) -> dict[str, RemoteEntry]:
        """One folder, asked for now. Names that would lead elsewhere are left out."""
        ends_with_slash = self._is_web and "?" not in self.address(folder)
        where = folder + "/" if ends_with_slash and not folder.endswith("/") else folder
        infos = self.connection.call("ls", where, call_timeout_s(), detail=True)
        own = self.connection.inner(folder).rstrip("/")
        entries: dict[str, RemoteEntry] = {}
        for info in infos:
            name = listed_name(info, own, self._is_web)
            # Where a file and a folder have one name, more can lie in the folder.
            if name is not None and not (name in entries and entries[name].folder):
                entries[name] = entry_of(self.join(folder, name), info)
        return {name: entries[name] for name in sorted(entries)}


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _split(path: str) -> tuple[str, str]:
    """(folder, name) of a path."""
    folder, _, name = path.rpartition("/")
    return (folder + "/" if folder.endswith(":/") else folder), name


_PLACES: dict[str, RemoteFiles] = {}
_PLACES_LOCK = threading.Lock()


def remote_at(address: str) -> RemoteFiles:
    """The files of an address' server or bucket; credentials in the address are remembered for all paths there."""
    scheme, user, place, query = split_address(address)
    name = shown(address) if is_chained(address) else scheme + place.partition("/")[0]
    with _PLACES_LOCK:
        files = _PLACES.get(name)
        if files is None:
            files = _PLACES[name] = RemoteFiles(name)
    files.learn(user, scheme + place, query)
    return files
