"""Everything that this package raises on purpose, at one place.

    DoctorError
    ├── ProfileError       a file or folder that cannot be read as a profile, or not be analysed
    │   └── ClusterError   the cluster that should read it is of no use
    ├── RemoteError        a remote file or folder that cannot be reached (an `OSError` as well)
    ├── DocumentError      a baseline, a file of limits or a report that cannot be read or written
    ├── PackError          a pack that cannot be written, opened or shown
    ├── MissingLibraryError  a table should become a frame of a library that is not installed (an `ImportError` as well)
    └── RequestError       a question of the tab that has no answer

Each says what happened by a ``code`` that never changes, names a ``path``, and holds in ``params`` what a sentence
about it needs. They survive pickling, so that they cross the border between processes.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from tb_gpu_doctor.phrase import Phrase

_Error = TypeVar("_Error", bound="DoctorError")


class DoctorError(Exception):
    """Something that the doctor cannot do, for a reason that it can name.

    Attributes:
        area: the sentence of a code stands below it in the text catalogues.
        code: what happened, for programs: ``truncated``, ``no_permission``, ...
        path: the file, folder or address that it is about; empty where it is about none.
        params: what else the sentence needs: a byte offset, a reason in the system's words, ...
    """

    area: ClassVar[str] = "errors"

    def __init__(self, code: str, path: str = "", **params: Any) -> None:
        self.code = code
        self.path = path
        self.params: dict[str, Any] = params
        details = ", ".join(f"{name}={value}" for name, value in params.items())
        super().__init__(f"{code}: {path}" + (f" ({details})" if details else ""))

    @property
    def phrase(self) -> Phrase:
        """What went wrong with which file, and what to do, as a sentence to be."""
        return Phrase(f"{self.area}.{self.code}", {**self.params, "path": self.path})

    def with_path(self: _Error, path: str) -> _Error:
        """The same error, naming ``path``."""
        return type(self)(self.code, path, **self.params)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), (self.code, self.path), self.params)


def _rebuilt(kind: type[_Error], given: tuple[Any, ...], params: dict[str, Any]) -> _Error:
    return kind(*given, **params)


class ProfileError(DoctorError):
    """A file or folder that cannot be read as a profile, or not be analysed."""


class ClusterError(ProfileError):
    """The cluster that should read a profile cannot be reached, or is lost."""


class RemoteError(DoctorError, OSError):
    """A remote file or folder that cannot be reached or read; ``path`` is empty where who asked knows it."""

    def __init__(self, code: str, path: str = "", **params: Any) -> None:
        super().__init__(code, path, **params)
        self.strerror = str(params.get("reason") or params.get("command") or code.replace("_", " "))

    def __str__(self) -> str:
        return str(self.strerror)


class DocumentError(DoctorError):
    """A baseline, a file of limits or a report that cannot be read or written."""


class PackError(DoctorError):
    """A pack that cannot be written, opened or shown, or is not to be trusted."""

    area = "pack.errors"


class MissingLibraryError(DoctorError, ImportError):  # type: ignore[misc]  # both have a `path`
    """A table should become a frame of a library that is not installed; ``library`` among the parameters names it."""

    def __init__(self, code: str, path: str = "", **params: Any) -> None:
        super().__init__(code, path, **params)
        self.path = path  # which `ImportError` has a use of its own for

    def __str__(self) -> str:
        library = self.params.get("library", "")
        return f"{library} is not installed. Install it with: pip install {library}"


class RequestError(DoctorError):
    """A question of the tab that has no answer.

    Attributes:
        status: of the HTTP answer.
        key: which sentence says it, where that is not the one of the code.
    """

    area = "plugin"

    def __init__(self, status: int, code: str, key: str = "", path: str = "", **params: Any) -> None:
        super().__init__(code, path, **params)
        self.status = status
        self.key = key
        self._told: Phrase | None = None

    @classmethod
    def about(cls, error: DoctorError, status: int = 422) -> RequestError:
        """The answer where ``error`` is the reason; its path is one that the user may see."""
        answer = cls(status, error.code, path=error.path)
        answer._told = error.phrase
        return answer

    @property
    def phrase(self) -> Phrase:
        """The sentence to show."""
        return self._told or Phrase(f"{self.area}.{self.key or self.code}", self.params)

    def with_path(self, path: str) -> RequestError:
        """The same error, naming ``path``."""
        error = RequestError(self.status, self.code, self.key, path, **self.params)
        error._told = self._told
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self.status, self.code, self.key, self.path)
        return _rebuilt, (RequestError, given, self.params), {"_told": self._told}
