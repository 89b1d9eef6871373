"""Modules that take seconds to import, imported when a test first uses them: collecting the tests stays quick."""

from __future__ import annotations

from typing import Any

import pytest


class Lazily:
    """Stands for a module; a test that uses it where it is not installed is skipped."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_") or attribute == "pytestmark":
            raise AttributeError(attribute)  # pytest, looking for fixtures while it collects
        return getattr(pytest.importorskip(self._name), attribute)
