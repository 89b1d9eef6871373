"""Bound what answers that are on their way hold in memory, all of them together."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

MAX_BYTES = 128 << 20
# Of this, one viewer at most: who reads slowly shall not keep the others waiting.
SHARE = 4


class AnswerMemory:
    """Memory for answers, lent until they are sent."""

    def __init__(self, most_bytes: int = MAX_BYTES) -> None:
        self._most = most_bytes
        self._lock = threading.Lock()
        self._lent: Counter[str] = Counter()

    def lend(self, size_bytes: int, viewer: str) -> Callable[[], None] | None:
        """Memory for one answer; None where there is none now.

        An answer that is larger than a viewer's share goes out while the viewer waits for no other.

        Args:
            size_bytes: of the answer.
            viewer: who asked for it.

        Returns:
            What gives it back; called again it does nothing.
        """
        with self._lock:
            mine = self._lent[viewer]
            if mine and mine + size_bytes > self._most // SHARE:
                return None
            if self._lent.total() + size_bytes > self._most:
                return None
            self._lent[viewer] += size_bytes
        left = [size_bytes]

        def give_back() -> None:
            with self._lock:
                if left:
                    self._lent[viewer] -= left.pop()
                    if not self._lent[viewer]:
                        del self._lent[viewer]

        return give_back

    @property
    def lent_bytes(self) -> int:
        """What answers hold now."""
        with self._lock:
            return self._lent.total()
