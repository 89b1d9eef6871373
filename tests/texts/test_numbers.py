"""Numbers as each language writes them, and strings of strangers made harmless."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.diagnosis.model import GpuNames, GpuRef
from tb_gpu_doctor.texts.numbers import (
    LocaleFormatter,
    clean,
    duration,
    gpu_names,
    listing,
    number,
    percent,
    size,
)

NBSP = "\N{NO-BREAK SPACE}"


def test_separators() -> None:
    assert number(1234.5, "en", 1) == "1,234.5"
    assert number(1234.5, "es", 1) == "1.234,5"
    assert number(-1234567, "es") == "-1.234.567"


@given(st.floats(-1e12, 1e12), st.integers(0, 3))
def test_both_languages_write_the_same_number(value: float, decimals: int) -> None:
    english, spanish = number(value, "en", decimals), number(value, "es", decimals)
    assert float(english.replace(",", "")) == pytest.approx(value, abs=0.51 * 10**-decimals)
    assert english.replace(",", "").replace(".", ",") == spanish.replace(".", "")


@pytest.mark.parametrize(
    ("share", "english"),
    [(0, "0%"), (1, "100%"), (0.41, "41%"), (0.0423, "4.2%"), (0.9999, "99.9%"), (0.99951, "99.9%"), (0.0001, "<0.1%"),
     (0.0005, "0.1%"), (1.5, "150.0%"), (float("nan"), "unknown")],
)  # fmt: skip
def test_percent(share: float, english: str) -> None:
    assert percent(share, "en") == english


def test_percent_in_spanish_has_a_space() -> None:
    assert percent(0.0423, "es") == f"4,2{NBSP}%"


@given(st.floats(0, 1))
def test_only_the_whole_is_a_hundred_and_only_nothing_is_zero(share: float) -> None:
    written = percent(share, "en")
    assert (written == "100%") == (share == 1)
    assert (written in ("0%", "0.0%")) == (share == 0)


@pytest.mark.parametrize(
    ("picoseconds", "english"),
    [(0, "0 ms"), (1, "0.00 ns"), (1_500, "1.50 ns"), (999_600, "1.00 µs"), (12_345_678, "12.3 µs"),
     (123_456_789_012, "123 ms"), (1.5e12, "1.50 s"), (4e15, "4,000 s"), (-2e9, "-2.00 ms"), (float("inf"), "unknown")],
)  # fmt: skip
def test_duration(picoseconds: float, english: str) -> None:
    assert duration(picoseconds, "en").replace(NBSP, " ") == english


@given(st.floats(1e3, 1e15))
def test_duration_keeps_three_digits(picoseconds: float) -> None:
    value, unit = duration(picoseconds, "en").split(NBSP)
    back = float(value.replace(",", "")) * {"ns": 1e3, "µs": 1e6, "ms": 1e9, "s": 1e12}[unit]
    assert back == pytest.approx(picoseconds, rel=0.0051)


def test_size_and_listing() -> None:
    assert size(100, "en").replace(NBSP, " ") == "100 B"
    assert size(114 * 1024, "es").replace(NBSP, " ") == "114,0 KiB"
    assert listing(["a", "b", "c"], "en") == "a, b and c"
    assert listing(["a", "b"], "es") == "a y b"
    assert listing([], "es") == ""


def test_halves_are_rounded_up_as_in_the_tab() -> None:
    assert [percent(0.125, "en"), percent(0.135, "en"), number(0.5), number(1e300)[:5]] == ["13%", "14%", "1", "1,000"]


@given(st.floats(-1e15, 1e15), st.integers(0, 4))
def test_numbers_are_the_nearest_ones(value: float, decimals: int) -> None:
    shown = float(number(value, "en", decimals).replace(",", ""))
    assert abs(shown - value) <= 0.5 * 10**-decimals * (1 + 1e-9) + abs(value) * 1e-15


@pytest.mark.parametrize(
    ("ids", "total", "english", "spanish"),
    [([2], 4, "GPU 2", "GPU 2"), ([0, 1, 3], 8, "GPUs 0, 1 and 3", "GPU 0, 1 y 3"),
     ([0, 1], 2, "both GPUs", "las dos GPU"), ([5, 7, 4, 6, 0, 2], 8, "GPUs 0, 2 and 4–7", "GPU 0, 2 y 4–7"),
     (list(range(8)), 8, "all 8 GPUs", "las 8 GPU"), ([0], 1, "GPU 0", "GPU 0")],
)  # fmt: skip
def test_gpus(ids: list[int], total: int, english: str, spanish: str) -> None:
    names = GpuNames(tuple(GpuRef("h", i) for i in ids), total, False)
    assert (gpu_names(names, "en"), gpu_names(names, "es")) == (english, spanish)


def test_gpus_of_several_hosts() -> None:
    refs = (GpuRef("a", 0), GpuRef("a", 1), GpuRef("b", 3))
    assert gpu_names(GpuNames(refs, 9, True), "en") == "a: GPUs 0 and 1; b: GPU 3"
    others = GpuNames(tuple(GpuRef("a", i) for i in range(6)), 8, True, others=True)
    assert (gpu_names(others, "en"), gpu_names(others, "es")) == ("the other 6 GPUs", "las otras 6 GPU")
    many = GpuNames(tuple(GpuRef(f"h{index}", id) for index in range(6) for id in (0, 1)), 64, True)
    assert gpu_names(many, "en") == "h0: GPUs 0 and 1; h1: GPUs 0 and 1; h2: GPUs 0 and 1 and 6 more on 3 hosts"
    assert gpu_names(many, "es").endswith("h2: GPU 0 y 1 y 6 más en 3 hosts")
    assert gpu_names(GpuNames(refs, 9, True, others=True), "en") == "a: GPUs 0 and 1; b: GPU 3", "few enough to name"
    assert LocaleFormatter("en").format("{g:Gpus}", g=GpuNames(refs, 9, True)) == "a: GPUs 0 and 1; b: GPU 3"
    assert LocaleFormatter("es").format("{g:Gpus}", g=GpuNames(refs, 3, True)) == "Las 3 GPU"


def test_plural_counts_numbers_and_things() -> None:
    write = LocaleFormatter("en").format
    assert [write("{n:plural|step|steps}", n=n) for n in (0, 1, 2)] == ["steps", "step", "steps"]
    assert write("{n:plural|waits|wait}", n=GpuNames((GpuRef("h", 0),), 4, False)) == "waits"


def test_only_plain_names_are_placeholders() -> None:
    with pytest.raises(KeyError):
        LocaleFormatter("en").format("{a.__class__}", a=1)
    with pytest.raises(KeyError):
        LocaleFormatter("en").format("{a[0]}", a=[1])


@given(st.text(), st.none() | st.integers(10, 50))
def test_clean_leaves_nothing_that_steers_a_terminal(value: str, limit: int | None) -> None:
    cleaned = clean(value, limit)
    assert not [c for c in cleaned if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    cleaned.encode("utf-8")
    if limit is not None:
        assert len(cleaned) <= limit * 10


def test_clean_shows_what_was_there() -> None:
    assert clean("a\x1b[31mb\nc") == r"a\x1b[31mb\nc"
    assert clean("‮evil") == r"\u202eevil"
    assert clean("x" * 300, 100).startswith("xxx") and len(clean("x" * 300, 100)) == 100
    assert clean("vector<int, long>") == "vector<int, long>"


def test_gpus_of_ranked_processes_are_called_by_their_rank() -> None:
    refs = tuple(GpuRef(f"n_{rank}", rank % 2, rank, "node-0") for rank in range(6))
    one = GpuNames(refs[3:4], 6, True)
    assert gpu_names(one, "en") == "rank 3 (node-0, GPU 1)" and gpu_names(one, "es") == "rango 3 (node-0, GPU 1)"
    assert gpu_names(GpuNames((refs[0], *refs[2:5]), 6, True), "en") == "ranks 0 and 2–4"
    assert gpu_names(GpuNames(refs, 6, True), "en") == "all 6 GPUs"
    assert LocaleFormatter("en").format("{g:Gpus}", g=one) == "Rank 3 (node-0, GPU 1)"
    # nothing that a rank would not tell apart
    assert gpu_names(GpuNames(refs[3:4], 6, False), "en") == "GPU 1"
    assert gpu_names(GpuNames((refs[0], GpuRef("x", 0)), 6, True), "en") == "n_0: GPU 0 and x: GPU 0"
    assert GpuRef("a", 1, 5, "m") == GpuRef("a", 1)
