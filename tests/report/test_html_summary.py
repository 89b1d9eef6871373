"""A diagnosis in a notebook: well formed, complete, harmless whatever a profile names, readable on any background."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest

from tb_gpu_doctor.diagnosis.model import Diagnosis, GpuRef
from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.report.html_summary import _COLOURS, _PARTS, html_summary
from tests.diagnosis.build import profile
from tests.hosts import diagnosed
from tests.report.test_diagnosis_report import FRAMEWORKS, SCENARIOS, report

TAGS = {"div", "svg", "rect", "title", "span", "b", "details", "summary", "ul", "ol", "li", "pre", "code"}
ATTRIBUTES = {
    "class", "lang", "style", "aria-hidden", "aria-label", "role", "open", "x", "y", "width", "height", "fill",
    "viewbox", "preserveaspectratio",
}  # fmt: skip
EVIL = "<script src=//x>alert(1)</script><img onerror=x>\"'&<b>`<i>`"


class Reading(HTMLParser):
    """Collects tags, and fails on any that is not closed where it was opened."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def harmless(page: str) -> Reading:
    read = Reading(page)
    assert {tag for tag, _ in read.tags} <= TAGS
    assert {name for _, attributes in read.tags for name in attributes} <= ATTRIBUTES
    for _, attributes in read.tags:
        assert not re.search(r"url\(|expression|@import|javascript", attributes.get("style") or "")
    return read


@pytest.mark.parametrize("lang", ["en", "es"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_situation_is_whole_and_harmless(name: str, framework: str, lang: str) -> None:
    made = report(name, framework)
    read = harmless(html_summary(made, lang))
    words = " ".join(" ".join(read.words).split())
    data = made.to_dict(lang)
    for finding in data["findings"]:
        assert " ".join(finding["title"].split()) in words
        assert len([tag for tag, _ in read.tags if tag == "details"]) == len(data["findings"])
    assert len([tag for tag, _ in read.tags if tag == "svg"]) == min(
        16, sum(bool(d["wall_ms"]) for d in data["devices"])
    )


def test_nothing_from_a_profile_is_markup() -> None:
    made: Diagnosis = report("input")
    finding = made.findings[0]
    evidence = tuple(replace(item, host=EVIL, what=EVIL, thread=EVIL) for item in finding.evidence)
    told = replace(
        finding, title=Phrase.recorded({"en": EVIL}), explanation=(Phrase.recorded({"en": EVIL}),) * 2,
        advice=(Phrase.recorded({"en": f"{EVIL}\n```python\n{EVIL}\n```"}),), evidence=evidence,
    )  # fmt: skip
    gpus = tuple(replace(gpu, gpu=GpuRef(EVIL, gpu.gpu.id), name=EVIL) for gpu in made.gpus)
    evil = replace(
        made, run=EVIL, session=EVIL, hosts=(EVIL, EVIL + "2"), gpus=gpus, findings=(told,), warnings=(EVIL,)
    )
    page = html_summary(evil)
    read = harmless(page)
    assert not re.search(r"<(script|img|i)\b", page)
    assert "alert(1)" in "".join(read.words) and "<script" in unescape(page)


def test_many_gpus_are_folded() -> None:
    page = html_summary(diagnosed([profile(64)]))
    assert page.count("<svg") <= 16 and "more GPUs" in page


def test_bars_fill_the_width_in_the_order_of_the_legend() -> None:
    page = html_summary(report("input"))
    for bar in re.findall(r"<svg.*?</svg>", page):
        starts = [float(x) for x in re.findall(r'<rect x="([\d.]+)"', bar)]
        widths = [float(x) for x in re.findall(r'y="0" width="([\d.]+)"', bar)]
        assert starts == sorted(starts) and starts[0] == 0
        assert starts[-1] + widths[-1] == pytest.approx(1_000, abs=4)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", sorted({*_COLOURS.values(), *_PARTS.values()}))
@pytest.mark.parametrize("page", ["#ffffff", "#111111", "#1e1e1e"])
def test_signs_and_bars_stand_out_on_light_and_dark_pages(colour: str, page: str) -> None:
    one, other = sorted((luminance(colour), luminance(page)))
    assert (other + 0.05) / (one + 0.05) >= 3
