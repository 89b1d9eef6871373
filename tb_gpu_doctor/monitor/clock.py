"""Wall time that never runs backwards, whatever happens to the machine's clock."""

from __future__ import annotations

import time
from collections.abc import Callable

# What the network time daemon slews is far below; what a person or a resumed virtual machine sets is above.
JUMP_NS = 1_000_000_000


class WallClock:
    """Unix time in nanoseconds, strictly growing.

    A jump forward is followed: the machine slept, or its clock was wrong. After a jump backwards time goes on
    from where it was, at the pace of the monotonic clock, until the machine's clock has caught up: series
    that turn back cannot be drawn, and TensorBoard would drop what it knows.

    Args:
        on_jump: called with the size of each jump in seconds, negative for backwards.
    """

    def __init__(
        self,
        on_jump: Callable[[float], None] = lambda seconds: None,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._on_jump = on_jump
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._offset = wall_ns() - monotonic_ns()
        self._held_back = False
        self._last = 0

    def now_ns(self) -> int:
        """The time now, later than any told before."""
        wall, monotonic = self._wall_ns(), self._monotonic_ns()
        jump = wall - monotonic - self._offset
        if jump <= -JUMP_NS:
            if not self._held_back:
                self._held_back = True
                self._on_jump(jump / 1e9)
            now = monotonic + self._offset
        else:
            if jump >= JUMP_NS and not self._held_back:
                self._on_jump(jump / 1e9)
            self._held_back = False
            self._offset = wall - monotonic
            now = wall
        self._last = max(now, self._last + 1)
        return self._last
