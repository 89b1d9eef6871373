"""A diagnosis as a summary for a terminal: coloured where it can be, plain when piped.

Everything is printed as `rich.text.Text`, so nothing from a profile is read as markup, and
every recorded string passes `clean`, so nothing from it can steer the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tb_gpu_doctor.analysis.results import CAUSE_IDS
from tb_gpu_doctor.diagnosis.model import (
    Diagnosis,
    Evidence,
    Finding,
    GpuNames,
    GpuRef,
    GpuReport,
    KernelReport,
)
from tb_gpu_doctor.diagnosis.telemetry_report import GpuFigures, TelemetryReport
from tb_gpu_doctor.report.sentences import say
from tb_gpu_doctor.texts import pick_language, text
from tb_gpu_doctor.texts.numbers import NBSP, clean, duration, gpu_names, listing, number, percent
from tb_gpu_doctor.traces.torch_names import machine_of

_STYLES = {"critical": "bold red", "warning": "bold yellow", "info": "bold cyan", "ok": "bold green"}
_STYLES["cannot_tell"] = "bold magenta"
SYMBOLS = {"critical": "✖", "warning": "▲", "info": "i", "ok": "✔", "cannot_tell": "?"}
# Distinct without colour too.
_PARTS = (
    ("compute", "█", "green"),
    ("communication", "▓", "blue"),
    ("transfer", "▒", "cyan"),
    ("idle", "░", "red"),
)
PARTS = tuple(part for part, _, _ in _PARTS)
_BAR_WIDTH = 32
_LEAST_BAR_WIDTH = 16
# What usually stands beside a bar: the GPU, four parts and the largest cause.
_BESIDE_BAR = 80
# More GPUs than this are shown by their extremes only, so many in each direction.
MAX_GPUS = 16
_EXTREMES = 3
_MAX_RECORDED = 32
_MAX_KERNELS = 5
_MAX_EVIDENCE = 3
# Two GPUs show the same moment when they share this much of it.
_ALIKE = 0.9
_FENCE = re.compile(r"\n?```[a-z]*\n(.*?)\n?```\n?", re.DOTALL)


def print_report(diagnosis: Diagnosis, console: Console, lang: str = "en", brief: bool = False) -> None:
    """Print the summary of a diagnosis.

    Sentences are wrapped at the console's width; bars and code are not, so that code can be pasted.

    Args:
        diagnosis: what to print.
        console: where to.
        lang: the language.
        brief: leave it at the verdict, where the time went and one line for each finding, as suits a log.
    """
    writer = _Writer(console, pick_language(lang))
    for line in writer.brief(diagnosis) if brief else writer.lines(diagnosis):
        console.print(line, soft_wrap=True)


class _Writer:
    """Lays a diagnosis out in lines."""

    def __init__(self, console: Console, lang: str) -> None:
        self.console = console
        self.lang = lang

    def lines(self, diagnosis: Diagnosis) -> Iterator[Text]:
        """All lines, section by section."""
        lang = self.lang
        yield from self.wrapped(heading(diagnosis, lang))
        yield Text()
        yield from self.wrapped(verdict_line(diagnosis, lang), "", "  ")
        if any(gpu.wall for gpu in diagnosis.gpus):
            yield Text()
            yield from self.bars(diagnosis)
        if diagnosis.findings:
            yield Text()
            yield _title("report.sections.findings", lang)
        for index, finding in enumerate(diagnosis.findings, 1):
            if index > 1:
                yield Text()
            yield from self.finding(diagnosis, finding, index)
        if diagnosis.kernels:
            yield Text()
            yield from self.kernels(diagnosis)
        if diagnosis.telemetry is not None:
            yield from self.telemetry(diagnosis, diagnosis.telemetry)
        unknown = [say(phrase, lang) for phrase in (*diagnosis.reasons, *diagnosis.warnings)]
        if unknown:
            yield Text()
            yield _title("report.sections.unknown", lang)
        for sentence in unknown:
            yield from self.wrapped(Text(sentence), "- ", "  ")

    def brief(self, diagnosis: Diagnosis) -> Iterator[Text]:
        """The verdict, where the time went over all GPUs, a line a finding, and what cannot be known."""
        lang = self.lang
        is_told_below = diagnosis.verdict in ("critical", "warning")
        verdict = _verdict_word(diagnosis, lang) if is_told_below else verdict_line(diagnosis, lang)
        yield verdict.append("  ").append_text(heading(diagnosis, lang))
        gpus = [gpu for gpu in diagnosis.gpus if gpu.wall]
        if gpus:
            names = GpuNames(tuple(gpu.gpu for gpu in gpus), len(gpus), len(diagnosis.hosts) > 1)
            yield Text(f"{text('report.sections.time', lang)}, {gpu_names(names, lang)}: ").append_text(
                shares(_sum(gpus), lang)
            )
        for index, finding in enumerate(diagnosis.findings, 1):
            line = Text(f"{index}. ").append_text(_finding_title(finding, lang))
            told = cost(finding, lang)
            yield line.append(f" · {told}") if told else line
        for phrase in (*diagnosis.reasons, *diagnosis.warnings):
            yield Text(f"- {say(phrase, lang)}")

    def wrapped(self, body: Text, first: str = "", rest: str = "") -> Iterator[Text]:
        """``body`` broken between words, the lines led by ``first`` and ``rest``."""
        width = max(20, self.console.width - len(rest))
        for number_, line in enumerate(_broken(body, width)):
            line.rstrip()
            yield Text(rest if number_ else first).append_text(line)

    def finding(self, diagnosis: Diagnosis, finding: Finding, index: int) -> Iterator[Text]:
        """One finding: what, why, what it costs, where to see it, what to do."""
        lang, indent = self.lang, "   "
        yield from self.wrapped(_finding_title(finding, lang), f"{index}.".ljust(3), indent)
        if told := cost(finding, lang):
            yield from self.wrapped(Text(told, style="bold"), indent, indent)
        # The first sentence says what is wrong; what follows are the facts behind it.
        for position, phrase in enumerate(finding.explanation):
            bullet = "- " if position else ""
            yield from self.wrapped(Text(say(phrase, lang)), indent + bullet, indent + " " * len(bullet))
        if finding.evidence:
            yield Text(indent + text("report.where", lang))
        for place in places(diagnosis, finding, lang):
            yield from self.wrapped(Text(place, style="dim"), indent + "· ", indent + "  ")
        if finding.advice:
            yield Text(indent + text("report.what_to_do", lang))
        for number_, phrase in enumerate(finding.advice, 1):
            words, code = words_and_code(say(phrase, lang))
            yield from self.wrapped(Text(words), f"{indent}{number_}) ", indent + "   ")
            for line in code:
                yield Text(f"{indent}     ").append(line, style="green") if line else Text()
        yield Text(indent + text("report.how_to_check", lang))
        yield from self.wrapped(Text(say(finding.check, lang)), indent + "   ", indent + "   ")

    def bars(self, diagnosis: Diagnosis) -> Iterator[Text]:
        """A bar for each GPU with its numbers beside it; on a narrow terminal these go on below."""
        lang = self.lang
        yield _title("report.sections.time", lang)
        gpus = [gpu for gpu in diagnosis.gpus if gpu.wall]
        show_host = len(diagnosis.hosts) > 1
        shown = gpus if len(gpus) <= MAX_GPUS else extremes(gpus)
        labels = [gpu_names(GpuNames((gpu.gpu,), 0, show_host), lang) for gpu in shown]
        width = max(len(label) for label in labels)
        cells = min(_BAR_WIDTH, max(_LEAST_BAR_WIDTH, self.console.width - _BESIDE_BAR))
        rest = " " * (width + cells + 6)
        for gpu, label in zip(shown, labels, strict=True):
            lead = Text(f"  {label.ljust(width)}  ").append_text(_bar(gpu, cells)).append("  ")
            for index, line in enumerate(self.wrapped(shares(gpu, lang), "", rest)):
                yield lead.append_text(line) if not index else line
        if len(gpus) > len(shown):
            folded = Text(text("report.folded_gpus", lang, count=len(gpus) - len(shown)), style="dim")
            yield from self.wrapped(folded, "  ", "  ")
        legend = Text("  ")
        for part, symbol, style in _PARTS:
            legend.append(symbol, style=style)
            legend.append(f" {text(f'report.parts.{part}', lang)}   ", style="dim")
        legend.rstrip()
        yield legend

    def telemetry(self, diagnosis: Diagnosis, report: TelemetryReport) -> Iterator[Text]:
        """A line of figures for each GPU that was recorded, and what was not joined."""
        if report.gpus:
            yield Text()
            yield _title("telemetry.section_simulated" if report.simulated else "telemetry.section", self.lang)
            lines = _telemetry_lines(report, diagnosis.hosts, self.lang)
            width = max(len(label) for label, _ in lines)
            for label, figures in lines:
                yield from self.wrapped(Text(figures), f"  {label.ljust(width)}  ", " " * (width + 4))
            if len(report.gpus) > len(lines):
                yield Text("  " + text("report.more_gpus", self.lang, count=len(report.gpus) - len(lines)), style="dim")
        elif not all(note.is_recorded for note in report.notes):
            yield Text()
            yield _title("telemetry.section", self.lang)
        # What the monitor could not record is for those who look at the series; what was not joined is for all.
        for note in (note for note in report.notes if not note.is_recorded):
            yield from self.wrapped(Text(say(note, self.lang)), "- ", "  ")

    def kernels(self, diagnosis: Diagnosis) -> Iterator[Text]:
        """The kernels that took longest, all GPUs together; names in lines of their own where they need the room."""
        lang, width = self.lang, self.console.width
        yield _title("report.sections.kernels", lang)
        shown = diagnosis.kernels[:_MAX_KERNELS]
        facts = [_kernel_facts(kernel, lang) for kernel in shown]
        longest = max(len(line.plain) for line in facts)
        names = [clean(kernel.name, max(40, width - 13)) for kernel in shown]
        one_line = max(map(cell_len, names)) + longest + 2 <= width
        for line, name in zip(facts, names, strict=True):
            if one_line:
                line.pad_right(longest + 2 - len(line.plain))
                yield line.append(name)
            else:
                yield line
                yield Text(" " * 13 + name)


def extremes(gpus: Sequence[GpuReport]) -> list[GpuReport]:
    """The GPUs that are idle longest, and those that compute most and least, in their order."""

    def share(index: int, part: str) -> float:
        return float(getattr(gpus[index], part) or 0) / (gpus[index].wall or 1)

    by_idle, by_compute = (
        sorted(range(len(gpus)), key=lambda index, part=part: share(index, part))  # type: ignore[misc]
        for part in ("idle", "compute")
    )
    chosen = {*by_idle[-_EXTREMES:], *by_compute[:_EXTREMES], *by_compute[-_EXTREMES:]}
    return [gpus[index] for index in sorted(chosen)]


def _kernel_facts(kernel: KernelReport, lang: str) -> Text:
    line = Text(f"  {duration(kernel.total, lang):>9}  ")
    line.append(text("report.kernel_calls", lang, calls=kernel.calls))
    if kernel.occupancy is not None:
        line.append(" · " + text("report.kernel_occupancy", lang, occupancy=kernel.occupancy), style="dim")
    if kernel.limiter is not None:
        line.append(" (" + text(f"report.limiters.{kernel.limiter}", lang) + ")", style="dim")
    return line


def _broken(body: Text, width: int) -> Iterator[Text]:
    """Lines of at most ``width`` cells, broken at spaces (never at no-break ones); longer words are cut."""
    for paragraph in body.split("\n"):
        cuts, used = [], len(paragraph.plain) - len(paragraph.plain.lstrip(" "))
        for word in re.finditer("[^ ]+ *", paragraph.plain):
            letters = word.group().rstrip(" ")
            if used and used + cell_len(letters) > width:
                cuts.append(word.start())
                used = 0
            for offset, letter in enumerate(letters, word.start()):
                used += cell_len(letter)
                if used > width:
                    cuts.append(offset)
                    used = cell_len(letter)
            used += len(word.group()) - len(letters)
        yield from paragraph.divide(cuts)


def _title(key: str, lang: str) -> Text:
    return Text(text(key, lang), style="bold underline")


def heading(diagnosis: Diagnosis, lang: str) -> Text:
    """Which profile it is, and how much of it there is."""
    name = "/".join(part for part in (diagnosis.run, diagnosis.session) if part)
    parts = [f"GPU Doctor · {clean(name, 200)}"]
    hosts = [clean(host, 80) for host in diagnosis.hosts]
    if hosts:
        shown = hosts if len(hosts) <= 4 else [*hosts[:4], "…"]
        machines = list(dict.fromkeys(map(machine_of, hosts)))
        key = "hosts" if len(machines) == len(hosts) else "processes" if len(machines) == 1 else "processes_on_hosts"
        words = text(f"report.heading.{key}", lang, count=len(hosts), hosts=len(machines), host=machines[0])
        parts.append(f"{words} {listing(shown, lang)}")
    steps = diagnosis.steps
    if steps.count and steps.median is not None:
        key = f"report.heading.steps_{steps.source}"
        parts.append(text(key, lang, count=steps.count, median=steps.median))
    if steps.samples_per_s is not None:
        parts.append(text("report.heading.samples", lang, rate=steps.samples_per_s))
    if diagnosis.window is not None:
        parts.append(text("report.heading.window", lang, window=diagnosis.window))
    return Text(" · ".join(parts), style="dim")


def _verdict_word(diagnosis: Diagnosis, lang: str) -> Text:
    words = f"{SYMBOLS[diagnosis.verdict]} {text(f'report.verdicts.{diagnosis.verdict}', lang)}"
    return Text().append(words, style=_STYLES[diagnosis.verdict])


def verdict_line(diagnosis: Diagnosis, lang: str) -> Text:
    """The verdict, and the finding or the reason behind it."""
    return _verdict_word(diagnosis, lang).append("  " + verdict_sentence(diagnosis, lang))


def verdict_sentence(diagnosis: Diagnosis, lang: str) -> str:
    """The finding or the reason behind the verdict."""
    if diagnosis.verdict in ("critical", "warning"):
        worst = next(f for f in diagnosis.findings if f.severity == diagnosis.verdict and not f.is_about_profile)
        title = say(worst.title, lang)
        return title if diagnosis.incomplete is None else f"{title}. {say(diagnosis.incomplete, lang)}"
    # Of telemetry alone the first reason says what was looked for.
    summary = [] if diagnosis.format == "telemetry" else [text(f"report.summary.{diagnosis.verdict}", lang)]
    told = [say(reason, lang) for reason in diagnosis.reasons[:1]]
    if diagnosis.incomplete is not None and say(diagnosis.incomplete, lang) not in told:
        told.append(say(diagnosis.incomplete, lang))
    return " ".join([*summary, *told])


def _finding_title(finding: Finding, lang: str) -> Text:
    style, line = _STYLES[finding.severity], Text()
    line.append(f"{SYMBOLS[finding.severity]} {text(f'report.severities.{finding.severity}', lang)}", style=style)
    return line.append(f"  {say(finding.title, lang)}", style="bold")


def _sum(gpus: Sequence[GpuReport]) -> GpuReport:
    """One GPU whose times are those of all."""

    def total(values: Iterable[int | None]) -> int:
        return sum(value or 0 for value in values)

    causes = [gpu.idle_by_cause or (0,) * len(CAUSE_IDS) for gpu in gpus]
    return replace(
        gpus[0],
        wall=total(gpu.wall for gpu in gpus),
        compute=total(gpu.compute for gpu in gpus),
        communication=total(gpu.communication for gpu in gpus),
        transfer=total(gpu.transfer for gpu in gpus),
        idle=total(gpu.idle for gpu in gpus),
        idle_by_cause=tuple(map(sum, zip(*causes, strict=True))),
    )


def _bar(gpu: GpuReport, width: int) -> Text:
    assert gpu.wall
    line = Text()
    values = [getattr(gpu, part) for part, _, _ in _PARTS]
    for (_, symbol, style), cells in zip(_PARTS, _cells(values, gpu.wall, width), strict=True):
        line.append(symbol * cells, style=style)
    return line


def shares(gpu: GpuReport, lang: str) -> Text:
    """The parts of a GPU's window, and the causes of its idle time that matter, largest first."""
    assert gpu.wall and gpu.idle_by_cause is not None
    parts = []
    for part, _, _ in _PARTS:
        value = getattr(gpu, part)
        if value:
            parts.append(f"{text(f'report.parts.{part}', lang)} {percent(value / gpu.wall, lang)}".replace(" ", NBSP))
    line = Text("  ".join(parts))
    causes = sorted(zip(CAUSE_IDS, gpu.idle_by_cause, strict=True), key=lambda item: -item[1])
    shown = [
        f"{text(f'report.causes.{cause}', lang)} {percent(value / gpu.wall, lang)}".replace(" ", NBSP)
        for cause, value in causes[:3]
        if value >= 0.005 * gpu.wall
    ]
    if shown:
        line.append(" ").append(f"({', '.join(shown)})", style="dim")
    return line


def _cells(values: Sequence[int], whole: int, width: int = _BAR_WIDTH) -> list[int]:
    """Character cells per part: they fill the bar exactly, and nothing present disappears before the largest part."""
    exact = [value * width / whole for value in values]
    cells = [max(1, round(cell)) if value else 0 for cell, value in zip(exact, values, strict=True)]
    while sum(cells) != width:
        change = 1 if sum(cells) < width else -1
        cells[max(range(len(cells)), key=cells.__getitem__)] += change
    return cells


def cost(finding: Finding, lang: str) -> str:
    """What a finding costs, "" where that cannot be told."""
    parts = []
    if finding.share is not None and finding.rule.cost != "none":
        # Time spent in something is not time lost to it.
        key = "time_in" if finding.rule.cost == "spent" else "share"
        parts.append(text(f"report.cost.{key}", lang, share=finding.share))
    if finding.saving_ps_per_step is not None:
        parts.append(text("report.cost.saving", lang, saving=finding.saving_ps_per_step))
    return " · ".join(parts)


@dataclass(frozen=True)
class _Moment:
    """Evidence of one moment: what several GPUs of a host show at the same time is said once."""

    first: Evidence
    gpus: tuple[int, ...]
    start: int
    end: int
    one_thread: bool


def _moments(evidence: Sequence[Evidence]) -> list[_Moment]:
    """Evidence in its own order, alike of several GPUs taken together."""
    moments: list[_Moment] = []
    for item in evidence:
        for index, moment in enumerate(moments):
            if _same_moment(moment, item):
                assert item.gpu is not None
                moments[index] = _Moment(
                    moment.first,
                    (*moment.gpus, item.gpu),
                    min(moment.start, item.start),
                    max(moment.end, item.end),
                    moment.one_thread and moment.first.thread == item.thread,
                )
                break
        else:
            gpus = () if item.gpu is None else (item.gpu,)
            moments.append(_Moment(item, gpus, item.start, item.end, True))
    return moments


def _same_moment(moment: _Moment, item: Evidence) -> bool:
    first = moment.first
    if item.gpu is None or not moment.gpus or item.gpu in moment.gpus:
        return False
    if (first.host, first.step, first.what) != (item.host, item.step, item.what):
        return False
    shared = min(moment.end, item.end) - max(moment.start, item.start)
    return shared >= _ALIKE * (max(moment.end, item.end) - min(moment.start, item.start))


def places(diagnosis: Diagnosis, finding: Finding, lang: str) -> list[str]:
    """Where a finding can be seen, the best places first."""
    return [_place(diagnosis, moment, lang) for moment in _moments(finding.evidence)[:_MAX_EVIDENCE]]


def _place(diagnosis: Diagnosis, moment: _Moment, lang: str) -> str:
    """Where to look: the time is the one that the trace viewer shows."""
    item = moment.first
    where = []
    many = len(diagnosis.hosts) > 1
    known = {gpu.gpu: gpu.gpu for gpu in diagnosis.gpus}
    refs = tuple(known.get(ref, ref) for gpu in sorted(moment.gpus) for ref in (GpuRef(item.host, gpu),))
    if many and len(refs) == 1 and refs[0].rank is not None:
        where.append(gpu_names(GpuNames(refs, 0, True), lang))
    elif many:
        where.append(clean(item.host, 80))
    if refs and not (many and len(refs) == 1 and refs[0].rank is not None):
        # No "all GPUs" here: with several hosts it would be all of this one.
        where.append(gpu_names(GpuNames(refs, 0, False), lang))
    if item.step is not None:
        where.append(text("report.step", lang, number=item.step))
    start, end = number(moment.start / 1e9, lang, 3), number(moment.end / 1e9, lang, 3)
    where.append(f"{start}–{end} ms ({duration(moment.end - moment.start, lang)})")
    what = clean(item.what, 100) if isinstance(item.what, str) else say(item.what, lang)
    if item.thread and moment.one_thread:
        what += f" [{clean(item.thread, 60)}]"
    return f"{' · '.join(where)}: {what}"


def words_and_code(sentence: str) -> tuple[str, list[str]]:
    """The words of an advice, and the lines of the code below them."""
    match = _FENCE.search(sentence)
    if match is None:
        return sentence, []
    return (sentence[: match.start()] + " " + sentence[match.end() :]).strip(), match.group(1).splitlines()


def _telemetry_lines(report: TelemetryReport, hosts: Sequence[str], lang: str) -> list[tuple[str, str]]:
    """(GPU, its figures in words) for each GPU, at most `_MAX_RECORDED` of them."""
    lines = []
    for figures in report.gpus[:_MAX_RECORDED]:
        label = gpu_names(GpuNames((figures.gpu,), 0, len(hosts) > 1), lang)
        lines.append((label, ", ".join(part.replace(" ", NBSP) for part in _figures(figures, lang))))
    return lines


def _figures(figures: GpuFigures, lang: str) -> list[str]:
    """The figures that were recorded; what is missing is left out."""
    parts = []

    def add(key: str, *needed: float | None, **params: Any) -> bool:
        if any(value is None for value in needed):
            return False
        parts.append(text(f"telemetry.figures.{key}", lang, **params))
        return True

    add("busy", figures.utilization, share=figures.utilization)
    add("heat", figures.temperature_celsius, heat=figures.temperature_celsius)
    clock, top = figures.clock_mhz, figures.clock_max_mhz
    if not add("clock_of", clock, top, clock=clock, top=top):
        add("clock", clock, clock=clock)
    power, limit = figures.power_watts, figures.power_limit_watts
    if not add("power_of", power, limit, power=power, limit=limit):
        add("power", power, power=power)
    peak, capacity = figures.memory_peak_bytes, figures.memory_capacity_bytes
    add("memory", peak, capacity, peak=peak, capacity=capacity)
    for kind, share in figures.throttled:
        add(f"throttled_{kind}", share, share=share)
    return parts or [text("telemetry.figures.none", lang)]
