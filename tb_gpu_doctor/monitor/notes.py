"""What the monitor has to say: each sentence once, in the log and in the recording."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from tb_gpu_doctor import texts
from tb_gpu_doctor.monitor.language import spoken

LOG = logging.getLogger("tb_gpu_doctor")
MOST_NOTES = 500


class Notes:
    """Collects sentences, drops repeated ones, and hands the new ones on. No method raises.

    Args:
        keep: takes a new note as the recording stores it.
    """

    def __init__(self, keep: Callable[[dict[str, Any]], None]) -> None:
        self._keep = keep
        self._known: set[str] = set()

    def tell(self, key: str, level: int = logging.WARNING, **params: Any) -> None:
        """Note the text ``recording.<key>`` or ``monitor.<key>``, its parameters strings or numbers."""
        note = {"key": _full(key), "params": params, "sentence": self.words(key, "en", **params)}
        self._add(note, level, lambda: self.words(key, **params))

    def words(self, key: str, language: str | None = None, **params: Any) -> str:
        """The text of such a key, by default in the language of this process."""
        try:
            return texts.text(_full(key), language or spoken(), **params)
        except Exception as error:  # a damaged installation: better raw words than none
            return f"{key} {params} ({error!r})"

    def sentence(self, sentence: str, level: int = logging.WARNING) -> None:
        """Note a sentence that is already written."""
        self._add({"key": None, "params": {}, "sentence": sentence}, level, lambda: sentence)

    def _add(self, note: dict[str, Any], level: int, shown: Callable[[], str]) -> None:
        if note["sentence"] in self._known or len(self._known) >= MOST_NOTES:
            return
        self._known.add(note["sentence"])
        self._keep(note)
        LOG.log(level, "GPU Doctor: %s", shown())


def _full(key: str) -> str:
    return f"recording.{key}" if texts.has_text(f"recording.{key}") else f"monitor.{key}"
