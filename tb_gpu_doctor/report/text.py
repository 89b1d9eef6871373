"""A diagnosis as a summary for a terminal: coloured where it can be, plain when piped.

Everything is printed as `rich.text.Text`, so nothing from a profile is read as markup, and
every recorded string passes `clean`, so nothing from it can steer the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.console import Console
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
# Time spent in something is not time lost to it; and of a GPU without work the title says it all.
_TIME_IN = frozenset({"low_occupancy"})
_COSTLESS = frozenset({"idle_gpus"})
_FENCE = re.compile(r"\n?```[a-z]*\n(.*?)\n?```\n?", re.DOTALL)


def print_report(diagnosis: Diagnosis, console: Console, lang: str = "en") -> None:
    """Print the summary of a diagnosis.

    Sentences are wrapped at the console's width; bars and code are not, so that code can be pasted.
    """
    for line in _Writer(console, pick_language(lang)).lines(diagnosis):
        console.print(line, soft_wrap=True)


class _Writer:
    """Lays a diagnosis out in lines."""

    def __init__(self, console: Console, lang: str) -> None:
        self.console = console
        self.lang = lang

    def lines(self, diagnosis: Diagnosis) -> Iterator[Text]:
        """All lines, section by section."""
        lang = self.lang
        yield from self.wrapped(_heading(diagnosis, lang))
        yield Text()
        yield from self.wrapped(_verdict(diagnosis, lang), "", "  ")
        if any(gpu.wall for gpu in diagnosis.gpus):
            yield Text()
            yield from _bars(diagnosis, lang)
        if diagnosis.findings:
            yield Text()
            yield _title("report.sections.findings", lang)
        for index, finding in enumerate(diagnosis.findings, 1):
            if index > 1:
                yield Text()
            yield from self.finding(diagnosis, finding, index)
        if diagnosis.kernels:
            yield Text()
            yield from _kernels(diagnosis, lang)
        unknown = [say(phrase, lang) for phrase in (*diagnosis.reasons, *diagnosis.warnings)]
        if unknown:
            yield Text()
            yield _title("report.sections.unknown", lang)
        for sentence in unknown:
            yield from self.wrapped(Text(sentence), "- ", "  ")

    def wrapped(self, body: Text, first: str = "", rest: str = "") -> Iterator[Text]:
        """``body`` broken between words, the lines led by ``first`` and ``rest``."""
        width = max(20, self.console.width - len(rest))
        for number_, line in enumerate(body.wrap(self.console, width)):
            line.rstrip()
            yield Text(rest if number_ else first).append_text(line)

    def finding(self, diagnosis: Diagnosis, finding: Finding, index: int) -> Iterator[Text]:
        """One finding: what, why, what it costs, where to see it, what to do."""
        lang, indent = self.lang, "   "
        title = Text()
        title.append(f"{_SYMBOLS[finding.severity]} ", style=_STYLES[finding.severity])
        title.append(text(f"report.severities.{finding.severity}", lang), style=_STYLES[finding.severity])
        title.append(f"  {say(finding.title, lang)}", style="bold")
        yield from self.wrapped(title, f"{index}.".ljust(3), indent)
        explanation = " ".join(say(phrase, lang) for phrase in finding.explanation)
        yield from self.wrapped(Text(explanation), indent, indent)
        cost = _cost(finding, lang)
        if cost:
            yield from self.wrapped(Text(cost, style="bold"), indent, indent)
        for item in finding.evidence[:_MAX_EVIDENCE]:
            yield from self.wrapped(Text(_place(diagnosis, item, lang), style="dim"), indent + "· ", indent + "  ")
        if finding.advice:
            yield Text(indent + text("report.what_to_do", lang))
        for number_, phrase in enumerate(finding.advice, 1):
            words, code = _words_and_code(say(phrase, lang))
            yield from self.wrapped(Text(words), f"{indent}{number_}) ", indent + "   ")
            for line in code:
                yield Text(f"{indent}     ").append(line, style="green") if line else Text()


def _title(key: str, lang: str) -> Text:
    return Text(text(key, lang), style="bold underline")


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


def _bars(diagnosis: Diagnosis, lang: str) -> Iterator[Text]:
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
    line.rstrip()
    return line


def _cells(values: Sequence[int], whole: int) -> list[int]:
    """Character cells per part: they fill the bar exactly, and nothing present disappears before the largest part."""
    exact = [value * _BAR_WIDTH / whole for value in values]
    cells = [max(1, round(cell)) if value else 0 for cell, value in zip(exact, values, strict=True)]
    while sum(cells) != _BAR_WIDTH:
        change = 1 if sum(cells) < _BAR_WIDTH else -1
        cells[max(range(len(cells)), key=cells.__getitem__)] += change
    return cells


def _cost(finding: Finding, lang: str) -> str:
    parts = []
    if finding.share is not None and finding.kind not in _COSTLESS:
        key = "time_in" if finding.kind in _TIME_IN else "share"
        parts.append(text(f"report.cost.{key}", lang, share=finding.share))
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


def _words_and_code(sentence: str) -> tuple[str, list[str]]:
    """The words of an advice, and the lines of the code below them."""
    match = _FENCE.search(sentence)
    if match is None:
        return sentence, []
    return (sentence[: match.start()] + " " + sentence[match.end() :]).strip(), match.group(1).splitlines()


def _kernels(diagnosis: Diagnosis, lang: str) -> Iterator[Text]:
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
