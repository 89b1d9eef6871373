"""Sentences for what went wrong, in the user's language."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from tb_gpu_doctor.texts import text
from tb_gpu_doctor.traces.errors import Note, TraceError

_LOG = logging.getLogger("tensorboard")


def message(key: str, lang: str, params: Mapping[str, Any]) -> str:
    """The text of ``key``; a text that is missing may not take the answer with it."""
    try:
        return text(key, lang, **params)
    except KeyError:
        _LOG.exception("GPU Doctor: no text for %s", key)
        return key


def error_message(error: TraceError, lang: str, shown: str) -> str:
    """The sentence for an error; ``shown`` is the path as the user may see it."""
    return message(f"errors.{error.code}", lang, {**error.params, "path": shown})


def note_message(note: Note, lang: str) -> str:
    """The sentence for a note."""
    return message(f"notes.{note.code}", lang, note.params)
