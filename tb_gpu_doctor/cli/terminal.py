"""Where a report is printed: coloured where it can be, plain and of a fixed width where it is piped."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def console(no_color: bool, piped_width: int = 100) -> Console:
    """Standard output for rich; nothing printed to it is read as markup."""
    from rich.console import Console

    class Piped(Console):
        """Ends as everything else does when the reader goes away, and not with rich's own exit status."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Piped(
        file=sys.stdout,
        no_color=True if no_color else None,
        color_system=None if no_color else "auto",
        width=None if sys.stdout.isatty() else piped_width,
        markup=False,
        highlight=False,
        emoji=False,
    )
