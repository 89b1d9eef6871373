"""What is told to users before it is put into words: a `Phrase`, whoever has something to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Phrase:
    """A sentence to be, in no language yet; `report.sentences.say` puts it into one.

    Attributes:
        key: of the text catalogues; empty for what was recorded as words.
        params: what fills the placeholders, further phrases and errors among it.
        words: a sentence that was recorded, by language, in those it came in; it has no key.
    """

    key: str
    params: Mapping[str, Any] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def recorded(cls, words: Mapping[str, str]) -> Phrase:
        """A sentence that somebody else wrote down, by language."""
        return cls("", {}, words)

    @property
    def code(self) -> str:
        """The last part of the key."""
        return self.key.rpartition(".")[2]

    @property
    def is_recorded(self) -> bool:
        """Whether it was words already when it was read."""
        return not self.key
