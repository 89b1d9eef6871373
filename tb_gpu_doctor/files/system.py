"""One way to look at files, with the names of `os`: on this machine these are `os`' own functions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from tb_gpu_doctor.files.addresses import is_remote


class State(Protocol):
    """What is known of a file or folder, as `os.stat_result` names it."""

    @property
    def st_size(self) -> int:
        """Bytes."""

    @property
    def st_mtime(self) -> float:
        """Unix seconds."""

    @property
    def st_mtime_ns(self) -> int:
        """Unix nanoseconds."""

    @property
    def st_dev(self) -> int:
        """Of one file system, together with `st_ino`."""

    @property
    def st_ino(self) -> int:
        """Of one file."""


class Entry(Protocol):
    """What lies in a folder, as `os.DirEntry` names it."""

    @property
    def name(self) -> str:
        """Its last part."""

    @property
    def path(self) -> str:
        """The whole path."""

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a folder."""

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a file."""

    def is_symlink(self) -> bool:
        """Whether it is a link."""


class Files(Protocol):
    """Looks at files; never writes. Paths are those of `names.shown`, with ``sep`` between their parts."""

    sep: str

    def refresh(self, root: str, max_age_s: float = 0.0, deep: bool = True) -> None:
        """Have a folder, and if ``deep`` what matters below it, looked at anew, unless that was done within a time."""

    def is_cut(self, root: str) -> bool:
        """Whether a folder held more than was looked at."""

    def scandir(self, path: str) -> AbstractContextManager[Iterator[Entry]]:
        """What lies in a folder."""

    def listdir(self, path: str) -> list[str]:
        """The names in a folder."""

    def stat(self, path: str) -> State:
        """The state of a file or folder."""

    def isfile(self, path: str) -> bool:
        """Whether it is a file."""

    def isdir(self, path: str) -> bool:
        """Whether it is a folder."""

    def islink(self, path: str) -> bool:
        """Whether it is a link."""

    def abspath(self, path: str) -> str:
        """The whole path, without a separator at its end."""

    def join(self, folder: str, name: str) -> str:
        """A path within a folder."""

    def readable(self, path: str) -> bool:
        """Whether a folder can be listed."""

    def address(self, path: str) -> str:
        """The address behind a path, with its credentials: to open it, never to show it."""

    def version(self, state: State) -> str:
        """Names the content of a file by its state; "" where nothing tells it."""


class _Local:
    sep = os.sep
    isfile = staticmethod(os.path.isfile)
    isdir = staticmethod(os.path.isdir)
    islink = staticmethod(os.path.islink)

    @staticmethod
    def abspath(path: str) -> str:
        return os.path.abspath(path)

    @staticmethod
    def join(folder: str, name: str) -> str:
        return os.path.join(folder, name)

    @staticmethod
    def scandir(path: str) -> AbstractContextManager[Iterator[Entry]]:
        return os.scandir(path)

    @staticmethod
    def listdir(path: str) -> list[str]:
        return os.listdir(path)

    @staticmethod
    def stat(path: str) -> State:
        return os.stat(path)

    @staticmethod
    def refresh(root: str, max_age_s: float = 0.0, deep: bool = True) -> None:
        pass

    @staticmethod
    def is_cut(root: str) -> bool:
        return False

    @staticmethod
    def readable(path: str) -> bool:
        return os.access(path, os.R_OK | os.X_OK)

    @staticmethod
    def address(path: str) -> str:
        return path

    @staticmethod
    def version(state: State) -> str:
        return f"{state.st_size} {state.st_mtime_ns} {state.st_ino}"


LOCAL: Files = _Local()


def files_at(path: str) -> Files:
    """What looks at a path or address."""
    if not is_remote(path):
        return LOCAL
    from tb_gpu_doctor.files.remote import remote_at

    return remote_at(path)
