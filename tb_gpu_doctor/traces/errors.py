"""What can go wrong between a path and a trace, as codes that the edges turn into words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class TraceError(Exception):
    """A file or folder that cannot be read as a profile.

    Attributes:
        code: catalogue key below ``errors.`` (for example ``truncated``); the
            command and the tab look the sentence up in the user's language.
        path: the file or folder that the message names.
        params: what else the sentence needs (byte offset, plane, ...).
    """

    def __init__(self, code: str, path: str = "", **params: Any) -> None:
        self.code = code
        self.path = path
        self.params: dict[str, Any] = params
        detail = ", ".join(f"{key}={value}" for key, value in params.items())
        super().__init__(f"{code}: {path}" + (f" ({detail})" if detail else ""))

    def with_path(self, path: str) -> TraceError:
        """The same error, naming ``path``."""
        return TraceError(self.code, path, **self.params)


# The note of a file that is only a part of what was recorded: nothing told of it proves that the run is well.
PART = "cut_off_part"


@dataclass(frozen=True)
class Note:
    """Something that the decoder saw and that a reader of the numbers should know.

    ``code`` is a catalogue key below ``notes.``; ``params`` fill its sentence.
    """

    code: str
    params: dict[str, Any] = field(default_factory=dict)
