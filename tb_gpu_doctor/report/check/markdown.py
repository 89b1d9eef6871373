"""A Markdown summary, as job summaries and merge requests show it."""

from __future__ import annotations

import re

from tb_gpu_doctor.comparison.check import CheckResult
from tb_gpu_doctor.comparison.results import Comparison
from tb_gpu_doctor.report.check.words import headline, status_word
from tb_gpu_doctor.report.comparison_text import part_name
from tb_gpu_doctor.report.words import say
from tb_gpu_doctor.texts import text
from tb_gpu_doctor.texts.numbers import clean, duration, percent, signed_percent

_SYMBOLS = {"pass": "✅", "regression": "❌", "cannot_tell": "❔"}


def as_markdown(result: CheckResult, lang: str) -> str:
    """The result as a heading, a sentence and tables."""
    columns = [text(f"check.columns.{name}", lang) for name in ("check", "result", "details")]
    lines = [
        f"## {_SYMBOLS[result.status]} GPU Doctor: {status_word(result.status, lang)}",
        "",
        escaped(headline(result, lang)),
        "",
        _row(columns),
        "| --- | --- | --- |",
    ]
    for item in result.items:
        word = f"{_SYMBOLS[item.status]} {status_word(item.status, lang)}"
        lines.append(_row([f"`{item.id}`", word, escaped(say(item.message, lang))]))
    if result.comparison is not None:
        lines += _comparison(result.comparison, lang)
    return "\n".join(lines) + "\n"


def _comparison(comparison: Comparison, lang: str) -> list[str]:
    names = [text(f"compare.columns.{name}", lang) for name in ("before", "after", "change")]
    title = text("compare.sections.parts", lang)
    lines = ["", f"### {escaped(title)}", "", _row(["", *names]), "| --- | ---: | ---: | ---: |"]
    for part in comparison.parts:
        moved = part.after - part.before
        if comparison.unit == "window":
            cells = [percent(part.before, lang), percent(part.after, lang), signed_percent(moved, lang)]
        else:
            sign = "+" if moved > 0 else "−" if moved < 0 else ""
            cells = [duration(part.before, lang), duration(part.after, lang), sign + duration(abs(moved), lang)]
        lines.append(_row([escaped(part_name(part.part, lang)), *cells]))
    if comparison.obstacles:
        lines += ["", *(f"- {escaped(say(phrase, lang))}" for phrase in comparison.obstacles)]
    labels = [
        f"{name}: `{clean(run.label, 200).replace('`', '')}`"
        for name, run in zip(names, (comparison.before, comparison.after), strict=False)
    ]
    return [*lines, "", " · ".join(labels)]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def escaped(value: str) -> str:
    """Text that Markdown and HTML leave as it is: nothing from a profile becomes a link, an image or a tag."""
    return re.sub(r"([\\`*_{}\[\]<>()#|~!@])", r"\\\1", value.replace("&", "&amp;")).replace("\n", " ")
