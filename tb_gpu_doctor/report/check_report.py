"""The result of a check in the forms that people and CI systems read: one function a format, see `FORMATS`.

The JSON, version 1, has the structure that docs/check.md describes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

from tb_gpu_doctor.comparison.check import EXIT_STATUS, FAILURES, CheckResult, Status
from tb_gpu_doctor.comparison.compare import Comparison
from tb_gpu_doctor.documents import to_json
from tb_gpu_doctor.report.comparison_report import comparison_dict, part_name
from tb_gpu_doctor.report.markdown import escaped, row, table
from tb_gpu_doctor.report.sentences import say
from tb_gpu_doctor.texts import text
from tb_gpu_doctor.texts.numbers import clean, duration, percent, signed_percent

SCHEMA_VERSION = 1
# Characters that no XML document can hold: all but those of the production Char of XML 1.0.
_FORBIDDEN = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
_SYMBOLS: dict[str, str] = {"pass": "✅", "cannot_tell": "❔", **dict.fromkeys(FAILURES, "❌")}


def headline(result: CheckResult, lang: str) -> str:
    """One sentence for the whole check."""
    statuses = [item.status for item in result.items]
    found = {failure: statuses.count(failure) for failure in FAILURES if failure in statuses}
    if not found:
        return text(f"check.headline.{result.status}", lang, count=len(statuses), unsure=statuses.count("cannot_tell"))
    failed = [text(f"check.failed.{failure}", lang, count=count) for failure, count in found.items()]
    return text("check.headline.failed", lang, failed=failed, count=len(statuses))


def status_word(status: Status, lang: str) -> str:
    """PASS, CANNOT TELL, or what failed."""
    return text(f"check.statuses.{status}", lang)


def as_text(result: CheckResult, lang: str) -> str:
    """A line a check, for a terminal or a log."""
    label = clean(result.run.label, 200)
    if result.comparison is not None:
        label += " " + text("check.against", lang, label=result.comparison.before.label)
    width = max(len(status_word(item.status, lang)) for item in result.items)
    lines = [f"GPU Doctor · {label}", f"{status_word(result.status, lang)}  {headline(result, lang)}", ""]
    for item in result.items:
        lines.append(f"{status_word(item.status, lang).ljust(width)}  {item.id}: {say(item.message, lang)}")
    if result.comparison is not None:
        lines += [f"- {say(phrase, lang)}" for phrase in result.comparison.obstacles]
    # In a CI's log a line must not be a command: names from profiles never begin one, and this is the older form.
    return "\n".join(lines).replace("##[", "# #[") + "\n"


def as_json(result: CheckResult, lang: str) -> str:
    """The result for programs, and the whole comparison where there is a baseline."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "status": result.status,
        "exit_status": EXIT_STATUS[result.status],
        "headline": headline(result, lang),
        "label": clean(result.run.label, 1_000),
        "checks": [
            {"id": item.id, "status": item.status, "message": say(item.message, lang), "docs": item.docs}
            for item in result.items
        ],
        "comparison": None if result.comparison is None else comparison_dict(result.comparison, lang),
    }
    return to_json(document) + "\n"


def as_junit(result: CheckResult, lang: str) -> str:
    """JUnit XML, one test case a check; text from profiles holds no character that XML forbids.

    What cannot be told is an error, so that no CI system takes it for a pass.
    """
    statuses = [item.status for item in result.items]
    suite = ElementTree.Element(
        "testsuite",
        name="gpu-doctor",
        tests=str(len(statuses)),
        failures=str(sum(status in FAILURES for status in statuses)),
        errors=str(statuses.count("cannot_tell")),
        skipped="0",
    )
    label = clean(result.run.label, 200)
    for item in result.items:
        case = ElementTree.SubElement(suite, "testcase", classname=f"gpu-doctor.{label}", name=item.id)
        message = say(item.message, lang)
        if item.status == "pass":
            ElementTree.SubElement(case, "system-out").text = message
            continue
        tag = "failure" if item.status in FAILURES else "error"
        ElementTree.SubElement(case, tag, message=message, type=item.status).text = message
    doubts = result.comparison.obstacles if result.comparison is not None else ()
    lines = [headline(result, lang), *(f"- {say(phrase, lang)}" for phrase in doubts)]
    ElementTree.SubElement(suite, "system-out").text = "\n".join(lines)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    for element in root.iter():
        element.text = _allowed(element.text) if element.text is not None else None
        for name, value in element.items():
            element.set(name, _allowed(value))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _allowed(value: str) -> str:
    """The text with characters replaced that no XML document can hold, not even escaped."""
    return _FORBIDDEN.sub("\ufffd", value)


def as_github(result: CheckResult, lang: str) -> str:
    """Annotations of GitHub Actions: for the whole, for each check that did not pass, and for the comparison's doubts.

    Nothing from a profile is a command.
    """
    command = "notice" if result.status == "pass" else "error"
    lines = [_annotation(command, status_word(result.status, lang), headline(result, lang))]
    for item in result.items:
        if item.status != "pass":
            lines.append(
                _annotation("error" if item.status in FAILURES else "warning", item.id, say(item.message, lang))
            )
    if result.comparison is not None:
        lines += [_annotation("notice", "step_time", say(phrase, lang)) for phrase in result.comparison.obstacles]
    return "\n".join(lines) + "\n"


def _annotation(command: str, title: str, message: str) -> str:
    return f"::{command} title={_property(f'GPU Doctor: {title}')}::{_data(message)}"


def _data(value: str) -> str:
    """As GitHub's own toolkit escapes a message."""
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    """The same for a property, where two more characters have a meaning."""
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def as_markdown(result: CheckResult, lang: str) -> str:
    """A heading, a sentence and tables in Markdown, as job summaries and merge requests show them."""
    columns = [text(f"check.columns.{name}", lang) for name in ("check", "result", "details")]
    lines = [
        f"## {_SYMBOLS[result.status]} GPU Doctor: {status_word(result.status, lang)}",
        "",
        escaped(headline(result, lang)),
        "",
        *table(columns, "lll"),
    ]
    for item in result.items:
        word = f"{_SYMBOLS[item.status]} {status_word(item.status, lang)}"
        lines.append(row([f"`{item.id}`", word, escaped(say(item.message, lang))]))
    if result.comparison is not None:
        lines += _comparison(result.comparison, lang)
    return "\n".join(lines) + "\n"


def _comparison(comparison: Comparison, lang: str) -> list[str]:
    names = [text(f"compare.columns.{name}", lang) for name in ("before", "after", "change")]
    title = text("compare.sections.parts", lang)
    lines = ["", f"### {escaped(title)}", "", *table(["", *names], "lrrr")]
    for part in comparison.parts:
        moved = part.after - part.before
        if comparison.unit == "window":
            cells = [percent(part.before, lang), percent(part.after, lang), signed_percent(moved, lang)]
        else:
            sign = "+" if moved > 0 else "−" if moved < 0 else ""
            cells = [duration(part.before, lang), duration(part.after, lang), sign + duration(abs(moved), lang)]
        lines.append(row([escaped(part_name(part.part, lang)), *cells]))
    if comparison.obstacles:
        lines += ["", *(f"- {escaped(say(phrase, lang))}" for phrase in comparison.obstacles)]
    labels = [
        f"{name}: `{clean(run.label, 200).replace('`', '')}`"
        for name, run in zip(names, (comparison.before, comparison.after), strict=False)
    ]
    return [*lines, "", " · ".join(labels)]


# By the name that the command takes.
FORMATS: dict[str, Callable[[CheckResult, str], str]] = {
    "text": as_text,
    "json": as_json,
    "junit": as_junit,
    "github": as_github,
    "markdown": as_markdown,
}
