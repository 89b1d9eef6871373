"""Keep Python's cyclic garbage collector from stopping TensorBoard.

A full collection looks at every object of the process while nothing else of it runs. TensorBoard's plugins import
hundreds of thousands of objects that stay until the end, so that each of these collections takes some tenths of a
second, and with many requests there is one every few seconds, in which hardly anything is found. What has outlived a
slow full collection is therefore set aside (`gc.freeze`): it still goes when nothing refers to it any more, and only
rings of objects are not looked for in it again.
"""

from __future__ import annotations

import gc
import threading
import time

# A collection that works longer than this is felt.
SLOW_S = 0.05
# Setting aside is for what modules bring along. It may not become a way to leak: each time all rings that are alive
# at that moment will never be found again.
MOST_TIMES = 8

_lock = threading.Lock()
_guard: _Guard | None = None


def keep_collections_short() -> None:
    """From now on, in this process; called again it does nothing.

    What has been loaded so far is set aside at once.
    """
    global _guard
    with _lock:
        if _guard is not None:
            return
        _guard = _Guard()
    gc.freeze()
    gc.callbacks.append(_guard)


class _Guard:
    """Sets aside what full collections have looked at in vain for too long."""

    def __init__(self, slow_s: float = SLOW_S, most_times: int = MOST_TIMES) -> None:
        self._slow_s = slow_s
        self._left = most_times
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info.get("generation") != 2:
            return
        if phase == "start":
            self._began = time.thread_time()  # waiting for a core says nothing about the heap
        elif self._left > 0 and time.thread_time() - self._began > self._slow_s:
            self._left -= 1
            gc.freeze()
