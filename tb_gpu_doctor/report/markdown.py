"""A diagnosis as Markdown, for pull requests and tickets; and what makes recorded text harmless in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tb_gpu_doctor.diagnosis.model import Diagnosis, Finding, GpuNames
from tb_gpu_doctor.report.diagnosis_text import (
    MAX_GPUS,
    PARTS,
    SYMBOLS,
    cost,
    extremes,
    heading,
    verdict_sentence,
)
from tb_gpu_doctor.report.sentences import say
from tb_gpu_doctor.texts import pick_language, text
from tb_gpu_doctor.texts.numbers import clean, duration, gpu_names, percent

_MAX_KERNELS = 5
_MAX_NAME = 120
_FENCE = re.compile(r"\n?```([a-z]*)\n(.*?)\n?```\n?", re.DOTALL)


def diagnosis_markdown(diagnosis: Diagnosis, lang: str = "en") -> str:
    """The verdict, where the time went, findings with what to do about them, and the longest kernels.

    Nothing from a profile becomes a link, an image, a mention or a tag.
    """
    return "\n".join(_lines(diagnosis, pick_language(lang))) + "\n"


def _lines(diagnosis: Diagnosis, lang: str) -> Iterator[str]:
    word = text(f"report.verdicts.{diagnosis.verdict}", lang)
    yield f"## {SYMBOLS[diagnosis.verdict]} GPU Doctor: {word}"
    yield ""
    yield escaped(verdict_sentence(diagnosis, lang))
    yield ""
    yield f"<sub>{escaped(heading(diagnosis, lang).plain)}</sub>"
    yield from _times(diagnosis, lang)
    if diagnosis.findings:
        yield from ("", f"### {escaped(text('report.sections.findings', lang))}")
    for index, finding in enumerate(diagnosis.findings, 1):
        yield ""
        yield from _finding(finding, index, lang)
    yield from _kernels(diagnosis, lang)
    unknown = (*diagnosis.reasons, *diagnosis.warnings)
    if unknown:
        yield from ("", f"### {escaped(text('report.sections.unknown', lang))}", "")
        yield from (f"- {escaped(say(phrase, lang))}" for phrase in unknown)


def _times(diagnosis: Diagnosis, lang: str) -> Iterator[str]:
    gpus = [gpu for gpu in diagnosis.gpus if gpu.wall]
    if not gpus:
        return
    shown = gpus if len(gpus) <= MAX_GPUS else extremes(gpus)
    yield from ("", f"### {escaped(text('report.sections.time', lang))}", "")
    heads = [text(f"report.parts.{part}", lang) for part in PARTS]
    yield from table(["GPU", *heads], "l" + "r" * len(heads))
    for gpu in shown:
        name = gpu_names(GpuNames((gpu.gpu,), 0, len(diagnosis.hosts) > 1), lang)
        yield row([escaped(name), *(percent((getattr(gpu, part) or 0) / (gpu.wall or 1), lang) for part in PARTS)])
    if len(gpus) > len(shown):
        yield from ("", escaped(text("report.folded_gpus", lang, count=len(gpus) - len(shown))))


def _finding(finding: Finding, index: int, lang: str) -> Iterator[str]:
    severity = text(f"report.severities.{finding.severity}", lang)
    yield f"{index}. **{SYMBOLS[finding.severity]} {severity}: {escaped(say(finding.title, lang))}**"
    if told := cost(finding, lang):
        yield from ("", f"   {escaped(told)}")
    yield ""
    yield "   " + " ".join(escaped(say(phrase, lang)) for phrase in finding.explanation)
    if not finding.advice:
        return
    yield from ("", f"   <details><summary>{escaped(text('report.what_to_do', lang).rstrip(':'))}</summary>", "")
    for phrase in finding.advice:
        words, language, code = _parts(say(phrase, lang))
        yield f"   - {words}"
        if code:
            yield from ("", f"     ```{language}", *(f"     {line}".rstrip() for line in code), "     ```")
    yield from ("", "   </details>")


def _parts(advice: str) -> tuple[str, str, list[str]]:
    """Words, language and lines of the code of an advice, which is Markdown itself but for the names in it."""
    match = _FENCE.search(advice)
    words = advice if match is None else f"{advice[: match.start()]} {advice[match.end() :]}"
    pieces = re.split("`([^`\n]*)`", " ".join(words.split()))
    # every second piece stood between backticks
    safe = "".join(f"`{piece}`" if at % 2 and piece else escaped(piece) for at, piece in enumerate(pieces))
    if match is None:
        return safe.strip(), "", []
    return safe.strip(), match[1], match[2].replace("```", "'''").splitlines()


def _kernels(diagnosis: Diagnosis, lang: str) -> Iterator[str]:
    if not diagnosis.kernels:
        return
    yield from ("", f"### {escaped(text('report.sections.kernels', lang))}", "")
    heads = ("total", "calls", "occupancy", "name")
    yield from table([text(f"report.kernel_table.{head}", lang) for head in heads], "rrrl")
    for kernel in diagnosis.kernels[:_MAX_KERNELS]:
        occupancy = "–" if kernel.occupancy is None else percent(kernel.occupancy, lang)
        name = clean(kernel.name, _MAX_NAME).replace("`", "'").replace("|", "\\|")
        yield row([duration(kernel.total, lang), str(kernel.calls), occupancy, f"`{name}`"])


def table(heads: Sequence[str], columns: str) -> list[str]:
    """The first two lines of a table; ``columns`` says of each whether it stands left (``l``) or right (``r``)."""
    return [row(heads), row(["---" if side == "l" else "---:" for side in columns])]


def row(cells: Sequence[str]) -> str:
    """A line of a table; its cells are Markdown already."""
    return "| " + " | ".join(cells) + " |"


def escaped(value: str) -> str:
    """Text that Markdown and HTML leave as it is: nothing from a profile becomes a link, an image or a tag."""
    # a colon before slashes and a point after www would begin a link
    signs = r"([\\`*_{}\[\]<>()#|~!@]|:(?=//)|(?<=www)\.)"
    return re.sub(signs, r"\\\1", value.replace("&", "&amp;")).replace("\n", " ")
