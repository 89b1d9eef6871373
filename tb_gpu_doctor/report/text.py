"""A diagnosis as a summary for a terminal: coloured where it can be, plain when piped.

Everything is printed as `rich.text.Text`, so nothing from a profile is read as markup, and
every recorded string passes `clean`, so nothing from it can steer the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from tb_gpu_doctor.analysis.vocabulary import CAUSE_IDS
from tb_gpu_doctor.diagnosis.model import Diagnosis, Evidence, Finding, GpuNames, GpuReport
from tb_gpu_doctor.report.words import say
from tb_gpu_doctor.texts import pick_language, text
from tb_gpu_doctor.texts.numbers import clean, duration, gpu_names, listing, number, percent

_STYLES = {"critical": "bold red", "warning": "bold yellow", "info": "bold cyan", "ok": "bold green"}
_STYLES["cannot_tell"] = "bold magenta"
_SYMBOLS = {"critical": "✖", "warning": "▲", "info": "i", "ok": "✔", "cannot_tell": "?"}
# Distinct without colour too.
_PARTS = (
    ("compute", "█", "green"),
    ("communication", "▓", "blue"),
    ("transfer", "▒", "cyan"),
    ("idle", "░", "red"),
)
_BAR_WIDTH = 32
_MAX_GPUS = 32
_MAX_KERNELS = 5
_MAX_EVIDENCE = 3
_FENCE = re.compile(r"\n?```[a-z]*\n(.*?)\n?```\n?", re.DOTALL)


def print_report(diagnosis: Diagnosis, console: Console, lang: str = "en") -> None:
    """Print the summary of a diagnosis."""
    console.print(Group(*_sections(diagnosis, pick_language(lang))))


def _sections(diagnosis: Diagnosis, lang: str) -> Iterator[RenderableType]:
    yield _heading(diagnosis, lang)
    yield Text()
    yield _verdict(diagnosis, lang)
    if any(gpu.wall for gpu in diagnosis.gpus):
        yield Text()
        yield from _bars(diagnosis, lang)
    if diagnosis.findings:
        yield Text()
        yield _title("report.sections.findings", lang)
        for index, finding in enumerate(diagnosis.findings, 1):
            yield from _finding(diagnosis, finding, index, lang)
    if diagnosis.kernels:
        yield Text()
        yield from _kernels(diagnosis, lang)
    unknown = [say(phrase, lang) for phrase in (*diagnosis.reasons, *diagnosis.warnings)]
    if unknown:
        yield Text()
        yield _title("report.sections.unknown", lang)
        for sentence in unknown:
            yield _item("-", Text(sentence))


def _title(key: str, lang: str) -> Text:
    return Text(text(key, lang), style="bold underline")


def _item(mark: str, body: RenderableType, indent: int = 0) -> RenderableType:
    """A list item whose wrapped lines stay behind its mark."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_row(Text(mark), body)
    return Padding(grid, (0, 0, 0, indent))


def _heading(diagnosis: Diagnosis, lang: str) -> Text:
    name = "/".join(part for part in (diagnosis.run, diagnosis.session) if part)
    parts = [f"GPU Doctor · {clean(name, 200)}"]
    hosts = [clean(host, 80) for host in diagnosis.hosts]
    if hosts:
        shown = hosts if len(hosts) <= 4 else [*hosts[:4], "…"]
        parts.append(text("report.heading.hosts", lang, count=len(hosts)) + " " + listing(shown, lang))
    steps = diagnosis.steps
    if steps.count and steps.median is not None:
        key = f"report.heading.steps_{steps.source}"
        parts.append(text(key, lang, count=steps.count, median=steps.median))
    if diagnosis.window is not None:
        parts.append(text("report.heading.window", lang, window=diagnosis.window))
    return Text(" · ".join(parts), style="dim")


def _verdict(diagnosis: Diagnosis, lang: str) -> Text:
    line = Text()
    line.append(f"{_SYMBOLS[diagnosis.verdict]} ", style=_STYLES[diagnosis.verdict])
    line.append(text(f"report.verdicts.{diagnosis.verdict}", lang), style=_STYLES[diagnosis.verdict])
    line.append("  ")
    if diagnosis.verdict in ("critical", "warning"):
        worst = next(f for f in diagnosis.findings if f.severity == diagnosis.verdict and not f.is_about_profile)
        line.append(say(worst.title, lang))
    else:
        line.append(text(f"report.summary.{diagnosis.verdict}", lang))
        if diagnosis.reasons:
            line.append(" " + say(diagnosis.reasons[0], lang))
    return line


def _bars(diagnosis: Diagnosis, lang: str) -> Iterator[RenderableType]:
    yield _title("report.sections.time", lang)
    gpus = [gpu for gpu in diagnosis.gpus if gpu.wall]
    show_host = len(diagnosis.hosts) > 1
    labels = [gpu_names(GpuNames((gpu.gpu,), 0, show_host), lang) for gpu in gpus]
    width = max(len(label) for label in labels)
    for gpu, label in zip(gpus[:_MAX_GPUS], labels, strict=False):
        yield _bar(gpu, label.ljust(width), lang)
    if len(gpus) > _MAX_GPUS:
        yield Text("  " + text("report.more_gpus", lang, count=len(gpus) - _MAX_GPUS), style="dim")
    legend = Text("  ")
    for part, symbol, style in _PARTS:
        legend.append(symbol, style=style)
        legend.append(f" {text(f'report.parts.{part}', lang)}   ", style="dim")
    yield legend


def _bar(gpu: GpuReport, label: str, lang: str) -> Text:
    assert gpu.wall and gpu.idle_by_cause is not None
    values = [getattr(gpu, part) for part, _, _ in _PARTS]
    line = Text(f"  {label}  ")
    for (_, symbol, style), cells in zip(_PARTS, _cells(values, gpu.wall), strict=True):
        line.append(symbol * cells, style=style)
    line.append("  ")
    for (part, _, _), value in zip(_PARTS, values, strict=True):
        if value:
            line.append(f"{text(f'report.parts.{part}', lang)} {percent(value / gpu.wall, lang)}  ")
    # The causes that matter, largest first.
    causes = sorted(zip(CAUSE_IDS, gpu.idle_by_cause, strict=True), key=lambda item: -item[1])
    shown = [
        f"{text(f'report.causes.{cause}', lang)} {percent(value / gpu.wall, lang)}"
        for cause, value in causes[:3]
        if value >= 0.005 * gpu.wall
    ]
    if shown:
        line.append(f"({', '.join(shown)})", style="dim")
    return line


def _cells(values: Sequence[int], whole: int) -> list[int]:
    """Character cells per part: they fill the bar exactly, and nothing present disappears before the largest part."""
    exact = [value * _BAR_WIDTH / whole for value in values]
    cells = [max(1, round(cell)) if value else 0 for cell, value in zip(exact, values, strict=True)]
    while sum(cells) != _BAR_WIDTH:
        change = 1 if sum(cells) < _BAR_WIDTH else -1
        cells[max(range(len(cells)), key=cells.__getitem__)] += change
    return cells


def _finding(diagnosis: Diagnosis, finding: Finding, index: int, lang: str) -> Iterator[RenderableType]:
    title = Text()
    title.append(f"{_SYMBOLS[finding.severity]} ", style=_STYLES[finding.severity])
    title.append(text(f"report.severities.{finding.severity}", lang), style=_STYLES[finding.severity])
    title.append(f"  {say(finding.title, lang)}", style="bold")
    yield _item(f"{index}.", title)
    yield Padding(Text(" ".join(say(phrase, lang) for phrase in finding.explanation)), (0, 0, 0, 3))
    cost = _cost(finding, lang)
    if cost:
        yield Padding(Text(cost, style="bold"), (0, 0, 0, 3))
    for item in finding.evidence[:_MAX_EVIDENCE]:
        yield Padding(Text(_place(diagnosis, item, lang), style="dim"), (0, 0, 0, 3))
    if finding.advice:
        yield Padding(Text(text("report.what_to_do", lang)), (0, 0, 0, 3))
    for number_, phrase in enumerate(finding.advice, 1):
        yield _item(f"{number_})", _advice(say(phrase, lang)), indent=3)
    yield Text()


def _cost(finding: Finding, lang: str) -> str:
    parts = []
    if finding.share is not None:
        parts.append(text("report.cost.share", lang, share=finding.share))
    if finding.saving_ps_per_step is not None:
        parts.append(text("report.cost.saving", lang, saving=finding.saving_ps_per_step))
    return " · ".join(parts)


def _place(diagnosis: Diagnosis, item: Evidence, lang: str) -> str:
    """Where to look: the time is the one that the trace viewer shows."""
    where = []
    if len(diagnosis.hosts) > 1:
        where.append(clean(item.host, 80))
    if item.gpu is not None:
        where.append(f"GPU {item.gpu}")
    if item.step is not None:
        where.append(text("report.step", lang, number=item.step))
    start, end = number(item.start / 1e9, lang, 3), number(item.end / 1e9, lang, 3)
    where.append(f"{start}–{end} ms ({duration(item.end - item.start, lang)})")
    what = clean(item.what, 100) if isinstance(item.what, str) else say(item.what, lang)
    if item.thread:
        what += f" [{clean(item.thread, 60)}]"
    return f"{' · '.join(where)}: {what}"


def _advice(sentence: str) -> RenderableType:
    """The words, and the code below them, unbroken so that it can be pasted."""
    match = _FENCE.search(sentence)
    if match is None:
        return Text(sentence)
    words = (sentence[: match.start()] + " " + sentence[match.end() :]).strip()
    code = Text(match.group(1), style="green", no_wrap=True, overflow="ignore")
    return Group(Text(words), Padding(code, (0, 0, 0, 2)))


def _kernels(diagnosis: Diagnosis, lang: str) -> Iterator[RenderableType]:
    yield _title("report.sections.kernels", lang)
    for kernel in diagnosis.kernels[:_MAX_KERNELS]:
        line = Text(f"  {duration(kernel.total, lang):>9}  ")
        line.append(text("report.kernel_calls", lang, calls=kernel.calls))
        if kernel.occupancy is not None:
            line.append("  " + text("report.kernel_occupancy", lang, occupancy=kernel.occupancy), style="dim")
        if kernel.limiter is not None:
            line.append(" (" + text(f"report.limiters.{kernel.limiter}", lang) + ")", style="dim")
        line.append(f"  {clean(kernel.name, 90)}")
        yield line
