"""Sentences for what went wrong, in the user's language."""

from __future__ import annotations

from typing import Any

from tb_gpu_doctor.texts import text
from tb_gpu_doctor.traces.errors import TraceError


class HttpError(Exception):
    """An answer other than 200: its status, a stable code, and ``plugin.<key>`` as its sentence."""

    def __init__(self, status: int, code: str, key: str = "", path: str = "", **params: Any) -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code
        self.path = path
        self._key = key or code
        self._params = params

    def message(self, lang: str) -> str:
        """The sentence to show."""
        return text(f"plugin.{self._key}", lang, **self._params)


class ProfileError(HttpError):
    """422: the profile cannot be read; ``error`` names its path as the user may see it."""

    def __init__(self, error: TraceError) -> None:
        super().__init__(422, error.code, path=error.path)
        self._error = error

    def message(self, lang: str) -> str:
        """The sentence to show."""
        from tb_gpu_doctor.report.sentences import error_sentence

        return error_sentence(self._error, lang)
