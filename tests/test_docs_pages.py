"""The pages behind the findings: found, complete in both languages, true to the thresholds, safe to ask for."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor import docs_pages
from tb_gpu_doctor.diagnosis.rule import kinds, rules
from tb_gpu_doctor.diagnosis.thresholds import Thresholds

PAGES = docs_pages.list_pages()
T = Thresholds()
# Safeguards against false alarms that the pages say in words, or leave to the code.
SAFEGUARDS = {
    ("sync_stall", "min_located"),
    ("transfer_bound", "recurs"),
    ("imbalance", "persistence"),
    ("low_utilization", "full"),
    ("memory_headroom", "spare"),
}


def code_blocks(markdown: str) -> list[str]:
    """Fenced code without comments, which are translated."""
    blocks = re.findall(r"^```(?:python|bash|cpp)\n(.*?)^```", markdown, re.DOTALL | re.MULTILINE)
    return [re.sub(r"(?m)\s*#.*$", "", block) for block in blocks]


def test_there_is_a_page_for_each_kind() -> None:
    assert {f"findings/{kind}" for kind in kinds()} == set(PAGES)


def shape(markdown: str) -> tuple[object, ...]:
    """What a page and its translation have in common: headings of both levels, points of lists, code."""
    lines = markdown.splitlines()
    headings = [sum(line.startswith(level) for line in lines) for level in ("# ", "## ")]
    return headings, markdown.count("\n- "), code_blocks(markdown)


def test_both_languages_have_the_same_shape() -> None:
    shapes = {page: [shape(docs_pages.read_page(page, lang)) for lang in ("en", "es")] for page in PAGES}
    assert not {page: both for page, both in shapes.items() if both[0] != both[1] or both[0][0] != [1, 5]}
    assert not [page for page in PAGES if docs_pages.read_page(page, "en") == docs_pages.read_page(page, "es")]


def test_the_translations_are_complete() -> None:
    folder = docs_pages.docs_root() / "findings"
    assert {path.name for path in folder.glob("*.md")} == {path.name for path in folder.glob("es/*.md")}


def test_python_examples_are_python() -> None:
    for page in PAGES:
        for lang in ("en", "es"):
            markdown = docs_pages.read_page(page, lang)
            for block in re.findall(r"^```python\n(.*?)^```", markdown, re.DOTALL | re.MULTILINE):
                compile(block, f"{page} ({lang})", "exec")


def named_shares() -> list[tuple[str, float]]:
    """Every share among the thresholds of the rules, and the shared ones that a page explains."""
    own = [
        (rule.kind, getattr(rule.thresholds, field.name))
        for rule in rules()
        if dataclasses.is_dataclass(rule.thresholds)
        for field in dataclasses.fields(rule.thresholds)
        if field.type == "float" and (rule.kind, field.name) not in SAFEGUARDS
    ]
    return [
        *((kind, share) for kind, share in own if share < 1),
        ("low_occupancy", T.kernel_min_share),
        ("underfilled_gpu", T.kernel_min_share),
        *((kind, share) for kind in ("thermal_throttle", "power_throttle") for share in
          (T.throttle_warning, T.throttle_critical)),
        ("thermal_throttle", T.unequal_clock),
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "share"), named_shares())
def test_the_pages_name_the_thresholds_in_force(kind: str, share: float) -> None:
    for lang in ("en", "es"):
        text = docs_pages.read_page(f"findings/{kind}", lang)
        assert re.search(rf"\b{share * 100:g} %", text), f"{kind} ({lang}) does not name {share * 100:g} %"


def test_an_unknown_language_falls_back_to_english() -> None:
    english = docs_pages.read_page("findings/input_bound", "en")
    for lang in ("fr", "", "..", "es/..", "/"):
        assert docs_pages.read_page("findings/input_bound", lang) == english


@pytest.mark.parametrize(
    "page", ["", "findings", "findings/", "findings/../findings/imbalance", "../LICENSE", "findings/nope",
             "findings/es/imbalance", "findings/imbalance.md", "FINDINGS/imbalance", "findings/imbalance\n", "\0"],
)  # fmt: skip
def test_only_listed_pages_are_served(page: str) -> None:
    with pytest.raises(KeyError):
        docs_pages.read_page(page, "en")


@given(st.text(), st.text())
def test_whatever_is_asked_for_is_a_page_or_a_key_error(page: str, lang: str) -> None:
    try:
        assert docs_pages.read_page(page, lang).startswith("# ")
    except KeyError:
        assert page not in PAGES
