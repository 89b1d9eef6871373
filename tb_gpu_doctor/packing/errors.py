"""What can be wrong with a pack."""

from __future__ import annotations

from typing import Any


class PackError(Exception):
    """One clear reason; ``code`` is a text of ``pack.errors``, ``params`` fill it."""

    def __init__(self, code: str, path: str = "", **params: Any) -> None:
        super().__init__(code)
        self.code, self.path, self.params = code, path, params
