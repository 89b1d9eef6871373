"""Lines that are too long for the terminal go on below, indented, so that the next line is told from their rest."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

# A rest that has less room than this is not indented.
_LEAST_WIDTH = 16


def print_hanging(line: Text, console: Console) -> None:
    """Print one line; what does not fit stands below, two columns further in than the line begins."""
    plain = line.plain
    indent = len(plain) - len(plain.lstrip()) + 2
    width = console.width - indent
    if cell_len(plain) <= console.width or width < _LEAST_WIDTH:
        console.print(line, soft_wrap=False)
        return
    first = line.wrap(console, console.width)[0]
    first.rstrip()
    console.print(first, soft_wrap=False)
    at = len(first.plain)
    at += len(plain[at:]) - len(plain[at:].lstrip())
    for rest in line[at:].wrap(console, width):
        rest.rstrip()
        console.print(Text(" " * indent).append_text(rest), soft_wrap=False)
