"""JUnit XML: one test case a check. What cannot be told is an error, so that no CI system takes it for a pass."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from tb_gpu_doctor.comparison.check import CheckResult
from tb_gpu_doctor.report.check.words import headline
from tb_gpu_doctor.report.words import say
from tb_gpu_doctor.texts.numbers import clean

# All but those of the production Char of XML 1.0.
_FORBIDDEN = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def as_junit(result: CheckResult, lang: str) -> str:
    """The result as JUnit XML; text from profiles holds no character that XML forbids."""
    statuses = [item.status for item in result.items]
    suite = ElementTree.Element(
        "testsuite",
        name="gpu-doctor",
        tests=str(len(statuses)),
        failures=str(statuses.count("regression")),
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
        tag = "failure" if item.status == "regression" else "error"
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
