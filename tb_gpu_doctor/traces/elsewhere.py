"""Files whose columns are not here: who holds them, and what can be done with them there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Elsewhere(Protocol):
    """Where the columns of a file are when they are not here: a file in the hands of a `Desk`."""

    @property
    def desk(self) -> Desk:
        """Who holds it."""


class Desk(Protocol):
    """Holds files, and works on them where they are."""

    def work(self, function: Callable[..., Any], calls: Sequence[tuple[Elsewhere, tuple[Any, ...]]]) -> list[Any]:
        """``function(trace, analysis, *arguments)`` for each file and its arguments, in order.

        The function is one of a module, so that it can be sent by its name; what it gives should be small.
        """
