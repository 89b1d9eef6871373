"""The summary for a terminal: complete, plain when it must be, and safe against what profiles contain."""

from __future__ import annotations

import io
import itertools
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.model import Diagnosis, Evidence
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.report.diagnosis_text import _BAR_WIDTH, _broken, _cells, _moments, print_report, verdict_line
from tb_gpu_doctor.report.sentences import error_sentence, say
from tb_gpu_doctor.texts import text
from tests.diagnosis.build import kernel, profile
from tests.hosts import diagnosed
from tests.report.test_diagnosis_report import FRAMEWORKS, SCENARIOS, report


def printed(diagnosis: Diagnosis, lang: str = "en", width: int = 100, colour: bool = False) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=colour, color_system="standard" if colour else None,
        markup=False, highlight=False, emoji=False,
    )  # fmt: skip
    print_report(diagnosis, console, lang)
    return out.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("lang", ["en", "es"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_situation_can_be_printed(name: str, framework: str, lang: str) -> None:
    made = report(name, framework)
    output = printed(made, lang)
    assert "\x1b" not in output
    assert not [line for line in output.splitlines() if line != line.rstrip() and "█" not in line]
    data = made.to_dict(lang)
    words = " ".join(output.split())
    for finding in data["findings"]:
        assert " ".join(finding["title"].split()) in words
        for advice in finding["advice"]:
            for line in re.findall(r"```\w+\n(.*?)\n```", advice, re.DOTALL):
                for code in line.splitlines():
                    assert not code or f" {code}\n" in output, "code stays in one piece"


def test_wrapping_keeps_the_width_for_words() -> None:
    for line in printed(report("input"), width=60).splitlines():
        assert len(line) <= 60 or "█" in line or line.startswith("        ") or "·" in line


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_bars_and_their_numbers_stay_inside_the_terminal(width: int) -> None:
    for line in printed(report("input"), width=width).splitlines():
        if "█" in line:
            assert len(line) <= width


@given(st.text(alphabet="ab \N{NO-BREAK SPACE}漢", max_size=60), st.integers(4, 30))
def test_lines_break_at_spaces_only_and_lose_nothing(words: str, width: int) -> None:
    lines = list(_broken(Text(words), width))
    assert "".join(line.plain for line in lines) == words
    for line in lines:
        assert Text(line.plain.rstrip(" ")).cell_len <= width
    for line, following in itertools.pairwise(lines):
        whole = line.plain[-1:] == " " or Text(line.plain + following.plain.split(" ")[0]).cell_len > width
        assert whole, "a line ends at a space, or in a word that is too long for it"


def test_what_several_gpus_show_at_one_time_is_said_once() -> None:
    def seen(gpu: int | None, start: int, end: int, thread: str = "t", host: str = "a") -> Evidence:
        return Evidence(host, gpu, start, end, thread, 3, "waited")

    [pair, later] = _moments([seen(1, 1000, 2000), seen(0, 1010, 2020, "u"), seen(0, 5000, 6000)])
    assert (pair.gpus, pair.start, pair.end, pair.one_thread) == ((1, 0), 1000, 2020, False)
    assert (later.gpus, later.start, later.end, later.one_thread) == ((0,), 5000, 6000, True)
    for other in (seen(0, 1000, 2000), seen(None, 1000, 2000), seen(1, 1000, 2000, host="b"), seen(1, 1300, 2300)):
        assert len(_moments([seen(0, 1000, 2000), other])) == 2


def test_colour_only_where_asked() -> None:
    made = report("input")
    coloured, plain = printed(made, colour=True), printed(made)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain


@pytest.mark.parametrize(
    ("name", "word"),
    [("healthy", "HEALTHY"), ("input", "CRITICAL"), ("no_gpu", "CANNOT TELL"), ("underfilled", "WARNING")],
)
def test_the_verdict_is_at_the_top(name: str, word: str) -> None:
    assert word in printed(report(name, complete=True)).splitlines()[2]


@pytest.mark.parametrize("name", ["healthy", "input", "unexplained"])
def test_a_file_that_could_not_be_read_is_in_the_headline(name: str) -> None:
    for lang, words in (("en", "1 of 2 files missing: x"), ("es", "Falta 1 de 2 archivos: x")):
        line = verdict_line(report(name), lang).plain
        assert words in line and line.count(words) == 1
        assert text("report.verdicts.ok", lang) not in line


def test_an_unexplained_idle_time_is_said_in_the_summary() -> None:
    words = printed(report("unexplained", complete=True))
    head = " ".join(words.split("\n\n")[1].split())
    assert "CANNOT TELL" in head and "does not show why" in head and "70%" in words


@pytest.mark.parametrize(
    "evil", ["\x1b[31mred\x1b[0m", "a\rb", "[bold red]x[/]", "\x9b31m", "‮txt", "line\nbreak", "]8;;"]
)
def test_names_can_neither_steer_the_terminal_nor_be_markup(evil: str) -> None:
    made = profile(
        1, kernels=[kernel(evil, occupancy=0.1)], idle={Cause.INPUT: 0.4}, host_event=evil, thread=evil, label=evil,
        errors=[evil], warnings=[evil],
    )  # fmt: skip
    diagnosis = diagnosed([made], run=evil, session=evil, failures=[ProfileError("truncated", evil, missing_bytes=1)])
    for lang in ("en", "es"):
        output = printed(diagnosis, lang)
        bad = {c for c in output if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")} - {"\n"}
        assert not bad
        if evil.startswith("[bold"):
            assert evil in output


def test_a_name_of_100_kilobytes_does_not_fill_the_screen() -> None:
    long = "k" * 100_000
    made = profile(1, kernels=[kernel(long, occupancy=0.1)], idle={Cause.INPUT: 0.4}, host_event=long, thread=long)
    assert len(printed(diagnosed([made]))) < 10_000


@given(st.lists(st.integers(0, 10**12), min_size=4, max_size=4).filter(any))
def test_bars_are_full_and_show_everything_present(values: list[int]) -> None:
    cells = _cells(values, sum(values))
    assert sum(cells) == _BAR_WIDTH
    for value, cell in zip(values, cells, strict=True):
        assert (cell > 0) == (value > 0)
        assert cell == pytest.approx(value * _BAR_WIDTH / sum(values), abs=3.01)


def test_errors_and_notes_without_a_text_still_say_what_they_know() -> None:
    assert "brand_new" in error_sentence(ProfileError("brand_new", "/a", plane=3), "en")
    assert "plane=3" in error_sentence(ProfileError("brand_new", "/a", plane=3), "es")
    assert "/a" in error_sentence(ProfileError("truncated", "/a"), "en"), "raised without what its text needs"
    assert "brand_new" in say(Phrase("notes.brand_new"), "en")
