"""Annotations of GitHub Actions: workflow commands on standard output."""

from __future__ import annotations

from tb_gpu_doctor.comparison.check import CheckResult
from tb_gpu_doctor.report.check.words import headline, status_word
from tb_gpu_doctor.report.words import say

_COMMANDS = {"pass": "notice", "regression": "error", "cannot_tell": "warning"}


def as_github(result: CheckResult, lang: str) -> str:
    """An annotation for the whole, for each check that did not pass, and for what the comparison says beside it.

    Nothing from a profile is a command.
    """
    command = {"pass": "notice", "regression": "error", "cannot_tell": "error"}[result.status]
    lines = [_annotation(command, status_word(result.status, lang), headline(result, lang))]
    for item in result.items:
        if item.status != "pass":
            lines.append(_annotation(_COMMANDS[item.status], item.id, say(item.message, lang)))
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
