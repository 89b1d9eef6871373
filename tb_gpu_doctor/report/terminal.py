"""The layout of a terminal, whether it is one or a pipe: tables that fit, and lines that go on below, indented."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

# A rest that has less room than this is not indented.
_LEAST_WIDTH = 16
# The last column of a table holds names: columns that can be spared make room for so much of them.
_LEAST_NAME = 24
_GAP = 2


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        head: what stands over it.
        is_number: whether it is flush right.
        spare: 0 is always shown; of the others, the highest goes first where the terminal is narrow.
    """

    head: str
    is_number: bool = False
    spare: int = 0


def print_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str | Text]],
    console: Console,
    indent: int = 0,
    wraps: bool = False,
    head_style: str = "bold",
) -> None:
    """Print rows below their heads; the last column is cut at the console's width, or wrapped if ``wraps``."""
    cells = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    widths = [max([cell_len(column.head), *(row[at].cell_len for row in cells)]) for at, column in enumerate(columns)]
    last, shown = len(columns) - 1, list(range(len(columns)))

    def room() -> int:
        """What is left for the last column."""
        return console.width - indent - sum(widths[at] + _GAP for at in shown if at != last)

    spare = [at for at in shown if columns[at].spare]
    for at in sorted(spare, key=lambda at: -columns[at].spare):
        if room() < min(_LEAST_NAME, widths[last]):
            shown.remove(at)
    has_heads = any(column.head for column in columns)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style=head_style, show_header=has_heads)
    for at in shown:
        table.add_column(
            Text(columns[at].head),
            justify="right" if columns[at].is_number else "left",
            no_wrap=not (wraps and at == last),
            overflow="fold" if wraps else "ellipsis",
            width=max(room(), _LEAST_WIDTH) if at == last else widths[at],
        )
    for row in cells:
        table.add_row(*(row[at] for at in shown))
    options = console.options.update_width(max(console.width - indent, sum(widths) + _GAP * len(widths)))
    for line in console.render_lines(table, options, pad=False):
        # rich fills each line up to the table's width
        length = cell_len("".join(segment.text for segment in line).rstrip())
        kept = Segment.adjust_line_length(line, length, pad=False)
        console.print(Segments([Segment(" " * indent), *kept, Segment.line()]), soft_wrap=True)


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
