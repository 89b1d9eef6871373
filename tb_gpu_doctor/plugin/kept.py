"""Views that can be kept in the cache although they hold a lock."""

from __future__ import annotations

import threading
from typing import Any


class WithoutLock:
    """Pickles all but ``_lock``, which is made anew."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()
