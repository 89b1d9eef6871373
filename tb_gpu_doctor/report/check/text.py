"""A line a check, for a terminal or a log."""

from __future__ import annotations

from tb_gpu_doctor.comparison.check import CheckResult
from tb_gpu_doctor.report.check.words import headline, status_word
from tb_gpu_doctor.report.words import say
from tb_gpu_doctor.texts import text
from tb_gpu_doctor.texts.numbers import clean


def as_text(result: CheckResult, lang: str) -> str:
    """The result as plain lines."""
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
