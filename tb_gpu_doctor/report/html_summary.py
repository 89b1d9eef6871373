"""A diagnosis as a piece of HTML for a notebook: verdict, a bar for each GPU, findings that unfold.

It holds no script and asks nobody for anything. Styles stand on the elements, so nothing outside changes. Words take
the colour of the text around them and signs have middle tones, so it reads on light and on dark pages alike; whatever
a profile names is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from tb_gpu_doctor.diagnosis.model import Diagnosis, Finding, GpuNames, GpuReport
from tb_gpu_doctor.report.diagnosis_text import (
    MAX_GPUS,
    SYMBOLS,
    cost,
    extremes,
    heading,
    places,
    shares,
    verdict_line,
    words_and_code,
)
from tb_gpu_doctor.report.sentences import say
from tb_gpu_doctor.texts import pick_language, text
from tb_gpu_doctor.texts.numbers import gpu_names

# At least 3:1 on white and on the darkest greys of notebooks.
_COLOURS = {"critical": "#e5484d", "warning": "#c27400", "info": "#0c84d6", "ok": "#2b9a66", "cannot_tell": "#ab4aba"}
_PARTS = {"compute": "#2b9a66", "communication": "#5472e4", "transfer": "#0797b9", "idle": "#e5484d"}
_BAR_WIDTH = 1_000
_BAR_HEIGHT = 14
# Between two parts, so that they are told apart without colour.
_BAR_GAP = 3
_DIM = "opacity:.78"
_CODE = "margin:4px 0;padding:6px 8px;border:1px solid rgba(128,128,128,.4);border-radius:4px"
_CODE += ";background:none;font-family:monospace"


def html_summary(diagnosis: Diagnosis, lang: str = "en") -> str:
    """The summary as one element, ready to stand in any page."""
    lang = pick_language(lang)
    return (
        f'<div class="gpu-doctor" lang="{lang}" style="max-width:64em;line-height:1.45;white-space:normal">'
        + "".join(_sections(diagnosis, lang))
        + "</div>"
    )


def _sections(diagnosis: Diagnosis, lang: str) -> Iterator[str]:
    yield _line(escape(heading(diagnosis, lang).plain), _DIM)
    # the sign is drawn already
    verdict = verdict_line(diagnosis, lang).plain.removeprefix(SYMBOLS[diagnosis.verdict])
    yield _line(
        f"{_sign(diagnosis.verdict)} {escape(verdict.strip())}", "font-size:1.15em;font-weight:600;margin:4px 0"
    )
    if any(gpu.wall for gpu in diagnosis.gpus):
        yield _title("report.sections.time", lang)
        yield from _bars(diagnosis, lang)
    if diagnosis.findings:
        yield _title("report.sections.findings", lang)
    for index, finding in enumerate(diagnosis.findings):
        yield _finding(diagnosis, finding, lang, is_open=not index)
    unknown = [say(phrase, lang) for phrase in (*diagnosis.reasons, *diagnosis.warnings)]
    if unknown:
        yield _title("report.sections.unknown", lang)
        yield _listed("ul", [escape(sentence) for sentence in unknown])


def _line(content: str, style: str) -> str:
    return f'<div style="{style}">{content}</div>'


def _title(key: str, lang: str) -> str:
    return _line(escape(text(key, lang)), "font-weight:600;margin:10px 0 4px")


def _sign(severity: str) -> str:
    return f'<span aria-hidden="true" style="color:{_COLOURS[severity]}">{SYMBOLS[severity]}</span>'


def _listed(tag: str, items: list[str]) -> str:
    return f'<{tag} style="margin:2px 0;padding-left:1.6em">{"".join(f"<li>{item}</li>" for item in items)}</{tag}>'


def _bars(diagnosis: Diagnosis, lang: str) -> Iterator[str]:
    """A bar a GPU with its numbers below; of many GPUs the extremes, as in the terminal."""
    gpus = [gpu for gpu in diagnosis.gpus if gpu.wall]
    show_host = len(diagnosis.hosts) > 1
    shown = gpus if len(gpus) <= MAX_GPUS else extremes(gpus)
    yield '<div style="display:grid;grid-template-columns:max-content 1fr;gap:0 12px;align-items:center">'
    for gpu in shown:
        name = escape(gpu_names(GpuNames((gpu.gpu,), 0, show_host), lang))
        numbers = " · ".join(shares(gpu, lang).plain.split("  "))
        yield f"<div>{name}</div><div>{_bar(gpu, numbers, lang)}</div>"
        yield f'<div></div><div style="font-size:.9em;margin-bottom:5px;{_DIM}">{escape(numbers)}</div>'
    yield "</div>"
    if len(gpus) > len(shown):
        yield _line(escape(text("report.folded_gpus", lang, count=len(gpus) - len(shown))), _DIM)
    box = "display:inline-block;width:.8em;height:.8em;border-radius:2px"
    legend = "".join(
        f'<span style="display:inline-block;margin-right:14px"><span style="{box};background:{colour}"></span> '
        f"{escape(text(f'report.parts.{part}', lang))}</span>"
        for part, colour in _PARTS.items()
    )
    yield _line(legend, "font-size:.9em")


def _bar(gpu: GpuReport, numbers: str, lang: str) -> str:
    """Where the window went, as a picture with the same words for those who cannot see it."""
    assert gpu.wall
    rects, left = [], 0.0
    for part, colour in _PARTS.items():
        value = getattr(gpu, part) or 0
        if not value:
            continue
        width = value * _BAR_WIDTH / gpu.wall
        drawn = max(width - _BAR_GAP, min(width, 1.0))
        word = escape(text(f"report.parts.{part}", lang))
        rects.append(
            f'<rect x="{left:.1f}" y="0" width="{drawn:.1f}" height="{_BAR_HEIGHT}" fill="{colour}">'
            f"<title>{word}</title></rect>"
        )
        left += width
    return (
        f'<svg role="img" aria-label="{escape(numbers)}" viewBox="0 0 {_BAR_WIDTH} {_BAR_HEIGHT}" width="100%" '
        f'height="{_BAR_HEIGHT}" preserveAspectRatio="none" style="display:block">{"".join(rects)}</svg>'
    )


def _finding(diagnosis: Diagnosis, finding: Finding, lang: str, is_open: bool) -> str:
    severity = escape(text(f"report.severities.{finding.severity}", lang))
    told = cost(finding, lang)
    head = f"{_sign(finding.severity)} <b>{severity}</b>&ensp;{escape(say(finding.title, lang))}"
    if told:
        head += f' <span style="{_DIM}">({escape(told)})</span>'
    body = "".join(_details(diagnosis, finding, lang))
    summary = f'<summary style="cursor:pointer;padding:2px 0">{head}</summary>'
    return f'<details{" open" if is_open else ""}>{summary}<div style="padding:0 0 8px 1.4em">{body}</div></details>'


def _details(diagnosis: Diagnosis, finding: Finding, lang: str) -> Iterator[str]:
    """Why, where to see it, what to do, and how to check that it helped."""
    sentences = [escape(say(phrase, lang)) for phrase in finding.explanation]
    if sentences:
        yield f"<div>{sentences[0]}</div>"
    if sentences[1:]:
        yield _listed("ul", sentences[1:])
    where = [escape(place) for place in places(diagnosis, finding, lang)]
    if where:
        yield _title("report.where", lang) + _listed("ul", where)
    if finding.advice:
        yield _title("report.what_to_do", lang) + _listed("ol", [_advice(say(p, lang)) for p in finding.advice])
    yield _title("report.how_to_check", lang) + f"<div>{escape(say(finding.check, lang))}</div>"


def _advice(sentence: str) -> str:
    words, code = words_and_code(sentence)
    lines = "\n".join(code)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words)) + (
        f'<pre style="{_CODE}">{escape(lines)}</pre>' if code else ""
    )
