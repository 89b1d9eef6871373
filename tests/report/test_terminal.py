"""Lines that do not fit: nothing is lost, nothing is wider than the terminal, rests stand further in."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tb_gpu_doctor.report.terminal import print_hanging

WORDS = st.lists(st.text("abcé漢-./", min_size=1, max_size=30), min_size=1, max_size=30)


def printed(line: str, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    print_hanging(Text(line), console)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_the_rest_of_a_sentence_stands_under_its_words():
    assert printed("- one two three four five six", 20) == ["- one two three four", "  five six"]
    assert printed("  one two three four five six", 22) == ["  one two three four", "    five six"]


def test_what_fits_is_left_alone():
    assert printed("   111 ms  0.2%   19%", 21) == ["   111 ms  0.2%   19%"]


@given(WORDS, st.integers(0, 6), st.integers(24, 90))
def test_nothing_is_lost_and_nothing_is_too_wide(words: list[str], indent: int, width: int):
    line = " " * indent + " ".join(words)
    lines = printed(line, width)
    assert all(cell_len(shown) <= width for shown in lines)
    assert "".join("".join(shown.split()) for shown in lines) == "".join(line.split())
    assert all(shown.startswith(" " * (indent + 2)) for shown in lines[1:])
